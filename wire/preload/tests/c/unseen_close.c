/* Descriptors that are closed out of the library's sight, and the files that get their numbers next. */
#include "common.h"
#include "raw.h"
#include <linux/close_range.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <dirent.h>

/* The library's own descriptors also begin at such numbers. */
static void many_at_once(void)
{
    enum { COUNT = 150 };
    static int a[COUNT], b[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++)
            pair(&a[i], &b[i]);
        for (int i = 0; i < COUNT; i++)
            CHECK(raw(SYS_close, a[i], 0, 0) == 0 && raw(SYS_close, b[i], 0, 0) == 0);
    }
    int c, d;
    char byte;
    pair(&c, &d);
    write_all(c, "x", 1);
    say("after many others", read(d, &byte, 1));
    close(c), close(d);
}


static int null; /* a descriptor of /dev/null */
static int other; /* a number that the openers may close or leave open */
static int old;  /* the number that was closed unseen */
static sigset_t no_signals;
static int post[2]; /* a pair of sockets that passes descriptors */

static int by_open(void) { return open("/dev/null", O_RDWR); }
static int by_openat(void) { return openat(AT_FDCWD, "/dev/null", O_RDWR); }
static int by_creat(void) { return creat("/dev/null", 0600); }
static int by_raw_number(void) { return syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0); }
static int by_eventfd(void) { return eventfd(0, EFD_NONBLOCK); }
static int by_memfd(void) { return memfd_create("name", 0); }
static int by_timerfd(void) { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK); }
static int by_signalfd(void) { return signalfd(-1, &no_signals, SFD_NONBLOCK); }
static int by_inotify(void) { return inotify_init1(IN_NONBLOCK); }
static int by_epoll(void) { return epoll_create1(0); }
static int by_dup(void) { return dup(null); }
static int by_dup2(void) { return dup2(null, old); }
static int by_fcntl(void) { return fcntl(null, F_DUPFD, old); }
static int by_udp(void) { return socket(AF_INET, SOCK_DGRAM, 0); }

static int by_pipe(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    other = ends[1];
    return ends[0];
}

static int by_socketpair(void)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    other = ends[1];
    return ends[0];
}

static int by_openpty(void)
{
    int ends[2];
    CHECK(openpty(&ends[0], &ends[1], NULL, NULL, NULL) == 0);
    other = ends[1];
    set_nonblocking(ends[0], 1);
    return ends[0];
}

static int by_mkstemp(void)
{
    char name[] = "/tmp/unseen-XXXXXX";
    int fd = mkstemp(name);
    CHECK(unlink(name) == 0);
    return fd;
}

/* Closed by the function that opened them: a connection at the number of a stream stays on TCP. */
static FILE *stream;
static DIR *directory;

static int by_fopen(void)
{
    CHECK((stream = fopen("/dev/null", "r+")) != NULL);
    return fileno(stream);
}

static int by_opendir(void)
{
    CHECK((directory = opendir("/")) != NULL);
    return dirfd(directory);
}

static int by_message(void)
{
    char byte = 'x', space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    int fd;
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &null, sizeof(int));
    CHECK(sendmsg(post[0], &message, 0) == 1);
    CHECK(recvmsg(post[1], &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return fd;
}

static int by_message_of_many(void)
{
    char byte = 'x', space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct mmsghdr many = {
        .msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space}};
    struct cmsghdr *control = CMSG_FIRSTHDR(&many.msg_hdr);
    int fd;
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &null, sizeof(int));
    CHECK(sendmmsg(post[0], &many, 1, 0) == 1);
    CHECK(recvmmsg(post[1], &many, 1, 0, NULL) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&many.msg_hdr)), sizeof(int));
    return fd;
}

static const struct opener {
    const char *name;
    int (*open)(void);
} openers[] = {
    {"open", by_open}, {"openat", by_openat}, {"creat", by_creat}, {"syscall", by_raw_number}, {"eventfd", by_eventfd},
    {"memfd_create", by_memfd}, {"timerfd_create", by_timerfd}, {"signalfd", by_signalfd}, {"inotify", by_inotify},
    {"epoll", by_epoll}, {"dup", by_dup}, {"dup2", by_dup2}, {"fcntl", by_fcntl}, {"socket", by_udp}, {"pipe", by_pipe},
    {"socketpair", by_socketpair}, {"openpty", by_openpty}, {"mkstemp", by_mkstemp}, {"fopen", by_fopen},
    {"opendir", by_opendir}, {"recvmsg", by_message}, {"recvmmsg", by_message_of_many},
};

static long inline_close(int fd) { return raw(SYS_close, fd, 0, 0); }
static long syscall_close(int fd) { return syscall(SYS_close, fd); }
static long syscall_close_range(int fd) { return syscall(SYS_close_range, fd, fd, 0); }
static long syscall_dup2(int fd) { return syscall(SYS_dup3, null, fd, 0) == fd ? syscall(SYS_close, fd) : -1; }

static const struct closer {
    const char *name;
    long (*close)(int);
} closers[] = {
    {"inline close", inline_close},
    {"close by number", syscall_close},
    {"close_range by number", syscall_close_range},
    {"dup3 by number", syscall_dup2},
};

/* The number of a closed connection is reused for another file. */
static void reused(const struct closer *closer, const struct opener *opener)
{
    char bytes[16] = "secret";
    int peer;
    printf("%s, then %s\n", closer->name, opener->name);
    pair(&old, &peer);
    int filler = dup(null); /* gets the number of the listener */
    CHECK(filler < old);
    CHECK(closer->close(old) == 0);
    other = -1;
    int fd = opener->open();
    say("the same number", fd == old);
    say("write", write(fd, bytes, 6));
    say("read", read(fd, bytes, 0));
    say("send", send(fd, bytes, 6, MSG_NOSIGNAL));
    set_nonblocking(peer, 1);
    /* The kernel reports the end by itself. */
    struct pollfd entry = {peer, POLLIN, 0};
    CHECK(poll(&entry, 1, -1) == 1);
    say("the peer reads", read(peer, bytes, sizeof bytes));
    int sent;
    while ((sent = send(peer, bytes, 6, MSG_NOSIGNAL)) == 6)
        ;
    say("and cannot send", sent);
    say("nothing to read", read(fd, bytes, 0));
    close(peer), close(filler);
    if (stream != NULL)
        CHECK(fclose(stream) == 0);
    else if (directory != NULL)
        CHECK(closedir(directory) == 0);
    else
        CHECK(close(fd) == 0);
    stream = NULL, directory = NULL;
    if (other >= 0)
        close(other);
}

/* A close that the library sees counts: unread bytes on the ring reset the connection. */
static void unread(const struct closer *closer)
{
    int peer;
    char bytes[16] = "unread";
    pair(&old, &peer);
    write_all(peer, bytes, 6);
    CHECK(recv(old, bytes, 6, MSG_PEEK | MSG_WAITALL) == 6);
    CHECK(closer->close(old) == 0);
    struct pollfd entry = {peer, POLLRDHUP, 0};
    CHECK(poll(&entry, 1, -1) == 1);
    printf("%s with bytes unread\n", closer->name);
    say("the peer reads", read(peer, bytes, sizeof bytes));
    close(peer);
}

static void say_more(void *argument)
{
    CHECK(raw(SYS_write, *(int *)argument, (long)"later", 5) == 5);
}

/* Neither closing nor opening calls the C library: noticed when there is nothing to do but sleep, and by the peer. */
static void inline_reuse(void)
{
    int peer, ends[2];
    char bytes[16];
    struct later later;
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        pair(&old, &peer);
        set_nonblocking(old, nonblocking);
        int filler = dup(null);
        CHECK(raw(SYS_close, old, 0, 0) == 0 && raw(SYS_pipe2, (long)ends, nonblocking ? O_NONBLOCK : 0, 0) == 0);
        say("the same number", ends[0] == old);
        if (nonblocking) {
            say("nothing", read(old, bytes, sizeof bytes));
            say_more(&ends[1]);
        } else {
            do_later(&later, say_more, &ends[1]);
        }
        say("from the pipe", read(old, bytes, sizeof bytes));
        if (!nonblocking)
            pthread_join(later.thread, NULL);
        say("the peer reads", read(peer, bytes, sizeof bytes));
        close(ends[0]), close(ends[1]), close(filler), close(peer);
    }
    pair(&old, &peer);
    int filler = dup(null);
    CHECK(raw(SYS_close, old, 0, 0) == 0 && raw(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDWR) == old);
    say("the peer reads", read(peer, bytes, sizeof bytes));
    say("to the file", write(old, "secret", 6));
    say("the peer reads", recv(peer, bytes, sizeof bytes, MSG_DONTWAIT));
    close(old), close(peer), close(filler);
}

/* Sent and received by number, as some runtimes do. */
static void by_number(void)
{
    int a, b, set = syscall(SYS_epoll_create1, 0);
    char buf[16];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    pair(&a, &b);
    say("write", syscall(SYS_write, a, "one", 3));
    say("read", syscall(SYS_read, b, buf, sizeof buf));
    say("sendto", syscall(SYS_sendto, b, "four", 4, 0, NULL, 0));
    say("recvfrom", syscall(SYS_recvfrom, a, buf, sizeof buf, 0, NULL, NULL));
    say("epoll_ctl", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, b, &event));
    write_all(a, "x", 1);
    say("epoll_pwait", syscall(SYS_epoll_pwait, set, &event, 1, -1, NULL, 8));
    say("data", event.data.u64);
    say("read", read(b, buf, sizeof buf));
    struct pollfd entry = {a, POLLIN | POLLOUT, 0};
    say("ppoll", syscall(SYS_ppoll, &entry, 1, NULL, NULL, 8));
    say("events", entry.revents);
    say("fcntl", syscall(SYS_fcntl, a, F_SETFL, O_NONBLOCK));
    say("empty", read(a, buf, sizeof buf));
    int c = syscall(SYS_dup, a);
    close(a);
    say("by the duplicate", write(c, "x", 1));
    say("read", read(b, buf, sizeof buf));
    say("shutdown", syscall(SYS_shutdown, c, SHUT_WR));
    say("the end", read(b, buf, sizeof buf));
    say("no such call", syscall(100000, 1, 2, 3));
    say("no such number", syscall(SYS_close, 100000));
    close(b), close(c), close(set);
}

int main(void)
{
    sigemptyset(&no_signals);
    CHECK((null = open("/dev/null", O_RDWR)) >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, post) == 0);
    for (size_t c = 0; c < sizeof closers / sizeof *closers; c++)
        for (size_t o = 0; o < sizeof openers / sizeof *openers; o++)
            reused(&closers[c], &openers[o]);
    /* Not the first: a close by an instruction is noticed too late. */
    for (size_t c = 1; c < sizeof closers / sizeof *closers; c++)
        unread(&closers[c]);
    by_number();
    inline_reuse();
    many_at_once();
    return 0;
}
