/* Bad pointers, for which the kernel returns EFAULT, do not kill the program, and move no byte. */
#include "common.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

/* One of each kind: nowhere, an inaccessible page, a read-only page, and addresses that no memory has. */
static struct place {
    const char *name;
    char *at;
} places[] = {{"null", NULL}, {"one", (char *)1}, {"unmapped", NULL}, {"read-only", NULL}, {"kernel", (char *)-4096ul}, {"nobody", (char *)(1ul << 60)}};
enum { UNMAPPED = 2, READ_ONLY, PLACES = sizeof places / sizeof *places };

/* The end of an accessible page, before an inaccessible one. */
static char *edge;

static char *volatile address;

static void map(void)
{
    long page = sysconf(_SC_PAGESIZE);
    char *all = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED && mprotect(all + page, page, PROT_NONE) == 0);
    CHECK(mprotect(all + 2 * page, page, PROT_READ) == 0);
    edge = all + page;
    places[UNMAPPED].at = all + page;
    places[READ_ONLY].at = all + 2 * page;
}

static void give(int a, int b, const char *bytes)
{
    char buf[64];
    size_t len = strlen(bytes);
    write_all(a, bytes, len);
    CHECK(recv(b, buf, len, MSG_PEEK | MSG_WAITALL) == (ssize_t)len);
}

/* The remaining bytes of a connection on which no bytes were to be moved. */
static void left(int b)
{
    char buf[64] = "";
    say("left", recv(b, buf, sizeof buf - 1, MSG_DONTWAIT));
    printf("%s\n", buf);
}

/* Bytes are copied without checking first, so only clearly invalid addresses qualify. */
static int is_clear(int which)
{
    return which != UNMAPPED && which != READ_ONLY;
}

static void bytes(int a, int b)
{
    char buf[16];
    for (int i = 0; i < PLACES; i++) {
        if (!is_clear(i))
            continue;
        address = places[i].at;
        printf("bytes at %s\n", places[i].name);
        struct iovec iov = {address, 5}, two[2] = {{buf, 3}, {address, 5}};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        say("write", write(a, address, 5));
        say("send", send(a, address, 5, 0));
        say("sendto", sendto(a, address, 5, 0, NULL, 0));
        say("writev", writev(a, &iov, 1));
        say("writev, a part", writev(a, two, 2));
        say("sendmsg", sendmsg(a, &message, 0));
        say("recv of nothing", recv(b, address, 5, MSG_DONTWAIT));
        say("read of nothing", (set_nonblocking(b, 1), read(b, address, 5)));
        set_nonblocking(b, 0);
        give(a, b, "01234");
        say("read", read(b, address, 5));
        say("recv", recv(b, address, 5, 0));
        say("recv without waiting", recv(b, address, 5, MSG_DONTWAIT));
        say("recv peek", recv(b, address, 5, MSG_PEEK));
        say("recvfrom", recvfrom(b, address, 5, 0, NULL, NULL));
        say("readv", readv(b, &iov, 1));
        say("recvmsg", recvmsg(b, &message, 0));
        say("readv, a part", readv(b, two, 2));
        left(b);
        give(a, b, "567");
        say("readv, no more", readv(b, two, 2));
        left(b);
    }
}

static void vectors(int a, int b)
{
    for (int i = 0; i < PLACES; i++) {
        if (i == READ_ONLY)
            continue;
        struct iovec *iov = (struct iovec *)places[i].at;
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = 1};
        printf("iovec at %s\n", places[i].name);
        say("writev", writev(a, iov, 1));
        say("pwritev2", pwritev2(a, iov, 1, -1, RWF_NOWAIT));
        say("sendmsg", sendmsg(a, &message, 0));
        give(a, b, "01234");
        say("readv", readv(b, iov, 1));
        say("preadv2", preadv2(b, iov, 1, -1, RWF_NOWAIT));
        say("recvmsg", recvmsg(b, &message, 0));
        left(b);
    }
    struct iovec *last = (struct iovec *)edge - 1;
    *last = (struct iovec){"xyz", 3};
    say("writev beyond the edge", writev(a, last, 2));
    say("writev up to the edge", writev(a, last, 1));
    drain(b, 3);
}

static void headers(int a, int b)
{
    char buf[16];
    struct iovec iov = {buf, sizeof buf};
    for (int i = 0; i < PLACES; i++) {
        char *at = places[i].at;
        struct msghdr name = {.msg_name = at, .msg_namelen = 16, .msg_iov = &iov, .msg_iovlen = 1};
        printf("msghdr at %s\n", places[i].name);
        if (i != READ_ONLY) {
            say("sendmsg", sendmsg(a, (struct msghdr *)at, 0));
            say("sendmmsg", sendmmsg(a, (struct mmsghdr *)at, 2, 0));
            say("sendmsg without a socket", sendmsg(1000, (struct msghdr *)at, 0));
            say("sendmmsg without a socket", sendmmsg(1000, (struct mmsghdr *)at, 2, 0));
        }
        give(a, b, "01234");
        say("recvmsg", recvmsg(b, (struct msghdr *)at, MSG_DONTWAIT));
        say("recvmmsg", recvmmsg(b, (struct mmsghdr *)at, 2, MSG_DONTWAIT, NULL));
        say("recvmmsg, time", recvmmsg(b, &(struct mmsghdr){.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}}, 1, MSG_DONTWAIT, (struct timespec *)(i ? at : (char *)1)));
        left(b);
        give(a, b, "01234");
        if (i > 0) {
            say("a name", recvmsg(b, &name, 0));
            printf("%d\n", (int)name.msg_namelen);
        }
        left(b);
        if (i > 0 && i != READ_ONLY) {
            name.msg_namelen = 16;
            iov.iov_len = 5;
            say("to a name", sendmsg(a, &name, MSG_NOSIGNAL));
            say("to an address", sendto(a, "abcde", 5, MSG_NOSIGNAL, (struct sockaddr *)at, 16));
            say("to nobody", sendto(a, "abcde", 5, MSG_NOSIGNAL, (struct sockaddr *)at, 0));
            say("to nobody", recv(b, buf, 5, MSG_WAITALL));
            iov.iov_len = sizeof buf;
            left(b);
        }
    }
    struct sockaddr_in address = {0};
    CHECK(sendto(a, "fghij", 5, 0, (struct sockaddr *)&address, sizeof address) == 5);
    say("an address that means nothing", recv(b, buf, 5, MSG_WAITALL));
    say("an address too long", sendto(a, "klmno", 5, 0, (struct sockaddr *)&address, 4096));
    say("an address of negative length", sendto(a, "klmno", 5, 0, (struct sockaddr *)&address, negative));
    left(b);
    /* One message of two is readable. */
    struct mmsghdr *last = (struct mmsghdr *)edge - 1;
    memset(last, 0, sizeof *last);
    iov = (struct iovec){"pqr", 3};
    last->msg_hdr.msg_iov = &iov;
    last->msg_hdr.msg_iovlen = 1;
    say("sendmmsg beyond the edge", sendmmsg(a, last, 2, 0));
    printf("%u\n", last->msg_len);
    iov = (struct iovec){buf, 3};
    say("recvmmsg up to the edge", recvmmsg(b, last, 1, MSG_WAITFORONE, NULL));
    printf("%u\n", last->msg_len);
    left(b);
}

/* The address and length arguments of recvfrom. */
static void addresses(int a, int b)
{
    char buf[16];
    struct sockaddr_in from;
    for (int i = 0; i < PLACES; i++) {
        char *at = places[i].at;
        socklen_t len = sizeof from;
        printf("address at %s\n", places[i].name);
        give(a, b, "01234");
        say("address", recvfrom(b, buf, 2, 0, (struct sockaddr *)at, &len));
        printf("%d\n", (int)len);
        say("length", recvfrom(b, buf, 2, 0, (struct sockaddr *)&from, (socklen_t *)at));
        left(b);
    }
    socklen_t len = -1;
    give(a, b, "01234");
    say("negative length", recvfrom(b, buf, 2, 0, (struct sockaddr *)&from, &len));
    printf("%d\n", (int)len);
    struct iovec iov = {buf, 1};
    struct msghdr message = {.msg_name = &from, .msg_namelen = -1, .msg_iov = &iov, .msg_iovlen = 1};
    say("negative length of a name", recvmsg(b, &message, 0));
    message.msg_name = NULL;
    say("negative length of no name", recvmsg(b, &message, 0));
    printf("%d\n", (int)message.msg_namelen);
    left(b);
}

/* The kernel checks a signal mask whether there is something to wait for or not. */
static void masks(int epfd, int fd, sigset_t *mask)
{
    struct epoll_event event;
    struct pollfd entry = {fd, POLLIN, 0};
    struct timespec none = {0, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    say("ppoll, mask", ppoll(&entry, 1, &none, mask));
    say("pselect, mask", pselect(fd + 1, &set, NULL, NULL, &none, mask));
    say("epoll_pwait, mask", epoll_pwait(epfd, &event, 1, 0, mask));
    say("epoll_pwait2, mask", epoll_pwait2(epfd, &event, 1, &none, mask));
}

/* Calls by number: arguments that the C library would check itself are left to the kernel. */
static void by_number(int b)
{
    for (int i = 0; i < PLACES; i++) {
        char *at = places[i].at;
        struct pollfd entry = {b, POLLIN, 0};
        struct timespec none = {0, 0};
        struct {
            void *mask;
            size_t size;
        } mask = {at, 8};
        if (i == 0 || i == READ_ONLY)
            continue;
        printf("by number, %s\n", places[i].name);
        say("ppoll, time", syscall(SYS_ppoll, &entry, 1, at, NULL, 8));
        say("pselect6, set", syscall(SYS_pselect6, b + 1, at, NULL, NULL, &none, NULL));
        say("pselect6, time", syscall(SYS_pselect6, b + 1, NULL, NULL, NULL, at, NULL));
        say("pselect6, mask", syscall(SYS_pselect6, b + 1, NULL, NULL, NULL, &none, at));
        say("pselect6, behind the mask", syscall(SYS_pselect6, b + 1, NULL, NULL, NULL, &none, &mask));
#ifdef SYS_select
        say("select, time", syscall(SYS_select, b + 1, NULL, NULL, NULL, at));
#endif
        say("io_submit", syscall(SYS_io_submit, 0ul, 1l, at));
        say("io_submit, request", syscall(SYS_io_submit, 0ul, 1l, &at));
    }
}

/* Any result if the kernel has no io_uring. */
static void rings(void)
{
    struct io_uring_params params = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    for (int i = 0; i < PLACES; i++) {
        char *at = places[i].at;
        struct io_uring_files_update update = {.fds = (uintptr_t)at};
        struct io_uring_rsrc_register resources = {.nr = 3, .data = (uintptr_t)at};
        printf("io_uring, %s\n", places[i].name);
        say("setup", syscall(SYS_io_uring_setup, 4, at));
        say("files", syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, at, 3));
        say("more files", syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES_UPDATE, at, 1));
        say("more files at it", syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES_UPDATE, &update, 1));
        say("resources", syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES2, at, sizeof resources));
        say("resources at it", syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES2, &resources, sizeof resources));
    }
    close(ring);
}

/* Lengths that exceed the total, and that are shorter than a header. */
static void lengths_of_control_messages(int fd)
{
    static const size_t lengths[] = {0, 1, 15, 16, 17, 20, 24, 25, 1000, 1ul << 20, 1ul << 40, SIZE_MAX - 8, SIZE_MAX};
    struct cmsghdr *control = (struct cmsghdr *)(edge - CMSG_SPACE(sizeof(int)));
    struct iovec iov = {"x", 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        *control = (struct cmsghdr){.cmsg_len = lengths[i], .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        *(int *)CMSG_DATA(control) = 1;
        struct mmsghdr message = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                                              .msg_controllen = CMSG_SPACE(sizeof(int))}};
        printf("a control message of %zx\n", lengths[i]);
        say("sendmsg", sendmsg(fd, &message.msg_hdr, MSG_DONTWAIT));
        say("sendmmsg", sendmmsg(fd, &message, 1, MSG_DONTWAIT));
        message.msg_hdr.msg_controllen = lengths[i];
        control->cmsg_len = CMSG_LEN(sizeof(int));
        say("in so many bytes", sendmsg(fd, &message.msg_hdr, MSG_DONTWAIT));
    }
}

/* The kernel takes the bytes, and returns no messages. */
static void room_for_control_messages(int a, int b)
{
    char buf[16];
    struct iovec iov = {buf, 2};
    CHECK(setsockopt(b, IPPROTO_TCP, TCP_INQ, &(int){1}, sizeof(int)) == 0);
    for (int i = 0; i < PLACES; i++) {
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = places[i].at, .msg_controllen = 64};
        printf("room for messages at %s\n", places[i].name);
        give(a, b, "01");
        say("recvmsg", recvmsg(b, &message, 0));
        printf("%zu %x\n", (size_t)message.msg_controllen, (unsigned)message.msg_flags);
    }
    CHECK(setsockopt(b, IPPROTO_TCP, TCP_INQ, &(int){0}, sizeof(int)) == 0);
}

static void waiting(int a, int b)
{
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = 7}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, b, &event) == 0);
    for (int empty = 0; empty < 2; empty++) {
        if (!empty)
            give(a, b, "01234");
        for (int i = 0; i < PLACES; i++) {
            char *at = places[i].at;
            printf("%s, %s\n", places[i].name, empty ? "nothing to read" : "something to read");
            say("poll", poll((struct pollfd *)at, 1, 0));
            say("poll of nothing", poll((struct pollfd *)at, 0, 0));
            say("ppoll", ppoll((struct pollfd *)at, 1, &(struct timespec){0, 0}, NULL));
            say("select to read", select(b + 1, (fd_set *)at, NULL, NULL, &(struct timeval){0, 0}));
            say("select to write", select(b + 1, NULL, (fd_set *)at, NULL, &(struct timeval){0, 0}));
            say("pselect", pselect(b + 1, NULL, NULL, (fd_set *)at, &(struct timespec){0, 0}, NULL));
            say("epoll_wait", epoll_wait(epfd, (struct epoll_event *)at, 4, 0));
            say("epoll_pwait", epoll_pwait(epfd, (struct epoll_event *)at, 4, 0, NULL));
            if (i > 0 && i != READ_ONLY)
                masks(epfd, b, (sigset_t *)at);
            if (i > 0)
                say("epoll_pwait2", epoll_pwait2(epfd, &event, 1, (struct timespec *)at, NULL));
            if (i != READ_ONLY) {
                say("epoll_ctl MOD", epoll_ctl(epfd, EPOLL_CTL_MOD, b, (struct epoll_event *)at));
                say("epoll_ctl ADD", epoll_ctl(epfd, EPOLL_CTL_ADD, a, (struct epoll_event *)at));
                say("epoll_ctl ADD to no set", epoll_ctl(a, EPOLL_CTL_ADD, b, (struct epoll_event *)at));
            }
            say("FIONREAD", ioctl(b, FIONREAD, at));
            say("SIOCOUTQ", ioctl(a, TIOCOUTQ, at));
            say("FIONBIO", ioctl(a, FIONBIO, i == READ_ONLY ? NULL : at));
        }
        /* Room for one event of many. */
        struct epoll_event *last = (struct epoll_event *)edge - 1;
        say("epoll_wait at the edge", epoll_wait(epfd, last, 1000, 0));
        if (!empty)
            printf("%x %u\n", last->events, last->data.u32);
        struct pollfd *list = (struct pollfd *)edge - 1;
        *list = (struct pollfd){b, POLLIN, 0};
        say("poll beyond the edge", poll(list, 2, 0));
        say("poll up to the edge", poll(list, 1, 0));
        printf("%x\n", (unsigned)list->revents);
        /* The event is still there. */
        say("epoll_wait", epoll_wait(epfd, &event, 1, 0));
        if (!empty)
            left(b);
    }
    CHECK(close(epfd) == 0);
}

static void options(int a, int b)
{
    char buf[16], path[] = "/tmp/seekwire-pointers-XXXXXX";
    int file = mkstemp(path), n;
    CHECK(file >= 0 && unlink(path) == 0 && write(file, "0123456789", 10) == 10);
    for (int i = 0; i < PLACES; i++) {
        char *at = places[i].at;
        printf("options at %s\n", places[i].name);
        if (i != READ_ONLY) {
            say("SO_RCVTIMEO", setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, at, sizeof(struct timeval)));
            say("SO_RCVLOWAT", setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, at, sizeof n));
            say("connect", connect(a, (struct sockaddr *)at, sizeof(struct sockaddr_in)));
        }
        if (i > 0) {
            say("sendfile", sendfile(a, file, (off_t *)at, 2));
            say("from a file", recv(b, buf, sizeof buf, MSG_DONTWAIT));
        }
    }
}

int main(void)
{
    int a, b, c, d, post[2];
    map();
    say("poll without a connection", poll((struct pollfd *)places[UNMAPPED].at, 1, 0));
    say("select without a connection", select(1, (fd_set *)places[UNMAPPED].at, NULL, NULL, &(struct timeval){0, 0}));
    pair(&a, &b);
    vectors(a, b);
    headers(a, b);
    addresses(a, b);
    waiting(a, b);
    by_number(b);
    rings();
    room_for_control_messages(a, b);
    options(a, b);
    check_on_ring(a), check_on_ring(b);
    bytes(a, b);
    check_on_ring(a), check_on_ring(b);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, post) == 0);
    lengths_of_control_messages(post[0]);
    close(post[0]), close(post[1]);
    pair(&c, &d);
    lengths_of_control_messages(c);
    close(c), close(d);
    say("still there", (write_all(a, "!", 1), read(b, places[READ_ONLY].at - 4096 * 2, 1)));
    return 0;
}
