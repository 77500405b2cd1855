/* What seek_recv and its relatives promise, call by call. */
#include "seeking.h"

#include <spawn.h>

static char buf[1 << 20];

static void b_comes_before_a_and_c(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    struct seekwire_span holes[2];
    struct seekwire_extent st = { .size = sizeof st };
    tell(&sender, "send 6000");
    REQUIRE(seek_recv(fd, buf, 2000, 0, 1000) == 2000 && is_pattern(buf, 2000, 1000));
    await(fd, 6000);
    REQUIRE(seekwire_avail(fd, &st, holes, 2) == 0 && st.holes == 1 && st.head == FIRST && st.readable == 1000);
    REQUIRE(st.arrived == FIRST + 6000 && holes[0].start == FIRST + 1000 && holes[0].end == FIRST + 3000);
    REQUIRE(unread(fd) == 4000);
    REQUIRE(recv(fd, buf, sizeof buf, MSG_WAITALL | MSG_DONTWAIT) == 4000);
    REQUIRE(is_pattern(buf, 1000, 0) && is_pattern(buf + 1000, 3000, 3000));
    st = extent(fd);
    REQUIRE(st.head == FIRST + 6000 && st.holes == 0 && st.readable == 0 && unread(fd) == 0);
    finish(fd, &sender);
}

static void holes_merge_and_vanish_at_the_head(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 500");
    REQUIRE(seek_recv(fd, buf, 100, 0, 100) == 100 && seek_recv(fd, buf, 100, 0, 300) == 100);
    await(fd, 500);
    REQUIRE(extent(fd).holes == 2);
    REQUIRE(seek_recv(fd, buf, 100, 0, 200) == 100 && is_pattern(buf, 100, 200));
    REQUIRE(extent(fd).holes == 1 && extent(fd).head == FIRST);
    REQUIRE(seek_recv(fd, buf, 100, 0, 0) == 100 && is_pattern(buf, 100, 0));
    REQUIRE(extent(fd).holes == 0 && extent(fd).head == FIRST + 400);
    REQUIRE(seek_recv(fd, buf, 100, 0, 0) == 100 && is_pattern(buf, 100, 400));
    finish(fd, &sender);
}

static void errors_say_what_is_wrong(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    REQUIRE(seek_recv(fd, buf, 100, 0, 500) == 100);
    FAILS(seek_recv(fd, buf, 200, 0, 400), ENXIO);
    FAILS(seek_recv(fd, buf, 1, 0, 599), ENXIO);
    FAILS(seek_recv(fd, buf, 1, SEEKWIRE_POSITION, 0), ENXIO);
    FAILS(seek_recv(fd, buf, 1, SEEKWIRE_PARTIAL, 550), ENXIO);
    FAILS(seek_recv(fd, buf, 1, MSG_OOB, 0), EINVAL);
    FAILS(seek_recv(fd, buf, 1, 1 << 30, 0), EINVAL);
    FAILS(seek_recv(fd, buf, 100, 0, SIZE_MAX), EINVAL);
    FAILS(seek_recv(fd, buf, 100, SEEKWIRE_POSITION, SIZE_MAX - 50), EINVAL);
    FAILS(seek_recv(fd, NULL, 100, 0, 0), EFAULT);
    FAILS(seek_recv(fd, NULL, SIZE_MAX / 2 + 1, MSG_TRUNC, 0), EINVAL);
    FAILS(seek_recv(fd, NULL, SIZE_MAX / 2, MSG_TRUNC, 0), ENOBUFS);
    FAILS(seekwire_recvmsg(fd, NULL, 0, 0), EFAULT);
    struct seekwire_extent st = { .size = 8 };
    FAILS(seekwire_avail(fd, &st, NULL, 0), EINVAL);
    FAILS(seekwire_avail(fd, NULL, NULL, 0), EINVAL);
    REQUIRE(seek_recv(fd, buf, 0, 0, 10) == 0);
    int pipes[2], udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), port;
    REQUIRE(pipe(pipes) == 0);
    FAILS(seek_recv(-1, buf, 1, 0, 0), EBADF);
    FAILS(seek_recv(pipes[0], buf, 1, 0, 0), ENOTSOCK);
    FAILS(seek_recv(udp, buf, 1, 0, 0), EOPNOTSUPP);
    FAILS(seek_recv(tcp, buf, 1, 0, 0), ENOTCONN);
    st.size = sizeof st;
    FAILS(seekwire_avail(tcp, &st, NULL, 0), ENOTCONN);
    FAILS(seekwire_avail(udp, &st, NULL, 0), EOPNOTSUPP);
    listener_of(tcp, &port);
    FAILS(seek_recv(tcp, buf, 1, 0, 0), ENOTCONN);
    /* What failed has taken nothing. */
    REQUIRE(recv(fd, buf, sizeof buf, 0) == 900 && is_pattern(buf, 500, 0) && is_pattern(buf + 500, 400, 600));
    close(pipes[0]), close(pipes[1]), close(udp), close(tcp);
    finish(fd, &sender);
}

static void the_far_away_has_not_arrived(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    static const size_t far[] = { 1ul << 30, (1ul << 31) - 1, 1ul << 31, (1ul << 32) + 5, 1ul << 40, INT64_MAX };
    tell(&sender, "send 20000");
    await(fd, 20000);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        FAILS(seek_recv(fd, buf, 1, MSG_DONTWAIT, far[i]), EAGAIN);
        FAILS(seek_recv(fd, buf, 1, MSG_DONTWAIT | SEEKWIRE_PARTIAL, far[i]), EAGAIN);
        FAILS(seek_recv(fd, buf, 15000, MSG_DONTWAIT | MSG_TRUNC, far[i]), EAGAIN);
        FAILS(seek_recv(fd, buf, 15000, MSG_DONTWAIT | MSG_PEEK | SEEKWIRE_POSITION, far[i]), EAGAIN);
    }
    /* Also for one who waits, for a while. */
    struct timeval patience = { .tv_usec = 10000 };
    REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    FAILS(seek_recv(fd, buf, 15000, 0, 1ul << 40), EAGAIN);
    FAILS(seek_recv(fd, buf, 1, MSG_DONTWAIT, (size_t)INT64_MAX + 1), EINVAL);
    FAILS(seek_recv(fd, buf, 1, MSG_DONTWAIT | SEEKWIRE_POSITION, (size_t)INT64_MAX + 1), EINVAL);
    finish(fd, &sender);
}

static void nothing_is_always_there(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    static const int flags[] = { 0, SEEKWIRE_PARTIAL };
    struct iovec piece;
    tell(&sender, "send 100");
    REQUIRE(seek_recv(fd, buf, 10, 0, 50) == 10);
    for (size_t offset = 0; offset < 200; offset += 50)
        for (int i = 0; i < 2; i++) {
            REQUIRE(seek_recv(fd, buf, 0, flags[i] | MSG_DONTWAIT, offset) == 0);
            REQUIRE(seek_recv(fd, buf, 0, flags[i] | MSG_DONTWAIT | MSG_TRUNC, offset) == 0);
            REQUIRE(seek_recv(fd, buf, 0, flags[i] | MSG_DONTWAIT | MSG_PEEK, offset) == 0);
            REQUIRE(seekwire_recv_borrow(fd, &piece, 1, 0, flags[i] | MSG_DONTWAIT, offset) == 0);
        }
    REQUIRE(recv(fd, buf, 90, MSG_WAITALL) == 90);
    finish(fd, &sender);
}

static void bad_pointers_are_errors(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    void *const nowhere = (void *)8;
    struct iovec piece = { nowhere, 10 };
    struct msghdr message = { .msg_iov = nowhere, .msg_iovlen = 1 };
    struct seekwire_extent st = { .size = sizeof st };
    tell(&sender, "send 1000");
    REQUIRE(seek_recv(fd, buf, 10, 0, 500) == 10);
    FAILS(seek_recv(fd, nowhere, 10, 0, 100), EFAULT);
    FAILS(seek_recv(fd, nowhere, 10, MSG_PEEK, 100), EFAULT);
    FAILS(seekwire_recvmsg(fd, nowhere, 0, 100), EFAULT);
    FAILS(seekwire_recvmsg(fd, &message, 0, 100), EFAULT);
    message.msg_iov = &piece;
    FAILS(seekwire_recvmsg(fd, &message, 0, 100), EFAULT);
    FAILS(seekwire_avail(fd, nowhere, NULL, 0), EFAULT);
    FAILS(seekwire_avail(fd, &st, nowhere, 1), EFAULT);
    FAILS(seekwire_recv_borrow(fd, nowhere, 1, 10, 0, 100), EFAULT);
    FAILS(seekwire_recv_return(fd, nowhere, 1), EFAULT);
    REQUIRE(recv(fd, buf, 990, MSG_WAITALL) == 990 && is_pattern(buf, 500, 0) && is_pattern(buf + 500, 490, 510));
    finish(fd, &sender);
}

static void positions_do_not_move(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    REQUIRE(recv(fd, buf, 100, MSG_WAITALL) == 100);
    REQUIRE(seek_recv(fd, buf, 50, SEEKWIRE_POSITION, FIRST + 500) == 50 && is_pattern(buf, 50, 500));
    REQUIRE(recv(fd, buf, 100, MSG_WAITALL) == 100 && is_pattern(buf, 100, 100));
    REQUIRE(seek_recv(fd, buf, 50, SEEKWIRE_POSITION, FIRST + 600) == 50 && is_pattern(buf, 50, 600));
    finish(fd, &sender);
}

static void what_is_peeked_stays(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    REQUIRE(seek_recv(fd, buf, 100, MSG_PEEK | MSG_WAITALL, 400) == 100 && is_pattern(buf, 100, 400));
    REQUIRE(seek_recv(fd, NULL, 100, MSG_PEEK | MSG_TRUNC, 400) == 100);
    REQUIRE(extent(fd).holes == 0);
    REQUIRE(seek_recv(fd, buf, 100, MSG_WAITALL, 400) == 100 && is_pattern(buf, 100, 400));
    REQUIRE(recv(fd, buf, 900, MSG_PEEK | MSG_WAITALL) == 900);
    REQUIRE(is_pattern(buf, 400, 0) && is_pattern(buf + 400, 500, 500));
    REQUIRE(recv(fd, buf, 900, MSG_WAITALL) == 900 && is_pattern(buf + 400, 500, 500));
    finish(fd, &sender);
}

static void bytes_are_taken_without_a_copy(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    REQUIRE(seek_recv(fd, NULL, 300, MSG_TRUNC, 100) == 300);
    memset(buf, 7, 10);
    REQUIRE(seek_recv(fd, buf, 10, MSG_TRUNC, 400) == 10 && buf[0] == 7 && buf[9] == 7);
    REQUIRE(recv(fd, buf, 690, MSG_WAITALL) == 690 && is_pattern(buf + 100, 590, 410));
    finish(fd, &sender);
}

static void partial_takes_what_is_there(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    await(fd, 1000);
    REQUIRE(seek_recv(fd, buf, 100, 0, 500) == 100);
    REQUIRE(seek_recv(fd, buf, sizeof buf, SEEKWIRE_PARTIAL, 300) == 200 && is_pattern(buf, 200, 300));
    REQUIRE(seek_recv(fd, buf, sizeof buf, SEEKWIRE_PARTIAL, 900) == 100 && is_pattern(buf, 100, 900));
    FAILS(seek_recv(fd, buf, 10, SEEKWIRE_PARTIAL | MSG_DONTWAIT, 1000), EAGAIN);
    tell(&sender, "start 5");
    REQUIRE(seek_recv(fd, buf, 10, SEEKWIRE_PARTIAL, 1000) > 0 && is_pattern(buf, 1, 1000));
    finish(fd, &sender);
}

static void messages_have_several_buffers(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    char a[10], b[1000], c[30], control[64];
    struct sockaddr_in name;
    struct iovec pieces[] = { { a, sizeof a }, { b, sizeof b }, { c, sizeof c } };
    struct msghdr message = { &name, sizeof name, pieces, 3, control, sizeof control, MSG_CTRUNC };
    tell(&sender, "send 3000");
    REQUIRE(seekwire_recvmsg(fd, &message, 0, 700) == 1040);
    REQUIRE(is_pattern(a, 10, 700) && is_pattern(b, 1000, 710) && is_pattern(c, 30, 1710));
    REQUIRE(message.msg_namelen == 0 && message.msg_controllen == 0 && message.msg_flags == 0);
    message.msg_iovlen = 5000;
    FAILS(seekwire_recvmsg(fd, &message, 0, 0), EMSGSIZE);
    finish(fd, &sender);
}

static void loans_go_back_in_any_order(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    struct iovec loans[3][8], one;
    tell(&sender, "start 60000");
    for (int i = 0; i < 3; i++) {
        size_t seen = 0, from = 10000 * (2 * i + 1);
        REQUIRE(seekwire_recv_borrow(fd, loans[i], 8, 10000, 0, from) == 10000);
        for (int piece = 0; piece < 8; piece++) {
            REQUIRE(is_pattern(loans[i][piece].iov_base, loans[i][piece].iov_len, from + seen));
            seen += loans[i][piece].iov_len;
        }
        REQUIRE(seen == 10000);
    }
    FAILS(seek_recv(fd, buf, 1, 0, 30000), ENXIO);
    one = loans[1][0];
    one.iov_len--;
    FAILS(seekwire_recv_return(fd, &one, 1), EINVAL);
    struct iovec twice[] = { loans[1][0], loans[1][0] };
    FAILS(seekwire_recv_return(fd, twice, 2), EINVAL);
    REQUIRE(seekwire_recv_return(fd, loans[2], 8) == 0 && seekwire_recv_return(fd, loans[0], 8) == 0);
    FAILS(seekwire_recv_return(fd, loans[0], 1), EINVAL);
    REQUIRE(is_pattern(loans[1][0].iov_base, loans[1][0].iov_len, 30000));
    REQUIRE(seekwire_recv_return(fd, loans[1], 8) == 0 && seekwire_recv_return(fd, loans[1], 0) == 0);
    REQUIRE(recv(fd, buf, 30000, MSG_WAITALL) == 30000);
    REQUIRE(is_pattern(buf, 10000, 0) && is_pattern(buf + 10000, 10000, 20000) && is_pattern(buf + 20000, 10000, 40000));
    /* More segments than places: one piece all the same. */
    tell(&sender, "start 300000");
    REQUIRE(seekwire_recv_borrow(fd, &one, 1, 200000, 0, 100000) == 200000 && one.iov_len == 200000);
    REQUIRE(is_pattern(one.iov_base, 200000, 160000) && seekwire_recv_return(fd, &one, 1) == 0);
    FAILS(seekwire_recv_borrow(fd, &one, 1, 10, MSG_PEEK, 0), EINVAL);
    FAILS(seekwire_recv_borrow(fd, &one, 0, 10, 0, 0), EINVAL);
    FAILS(seekwire_recv_borrow(fd, &one, 1, 10, MSG_DONTWAIT, 500000), EAGAIN);
    REQUIRE(one.iov_len == 0 && one.iov_base == NULL);
    /* One that is never returned ends with the socket. */
    REQUIRE(seekwire_recv_borrow(fd, &one, 1, 10, 0, 50) == 10);
    finish(fd, &sender);
}

static void calls_that_do_not_wait_say_so(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    struct timeval limit = { .tv_usec = 20000 };
    tell(&sender, "send 100");
    await(fd, 100);
    FAILS(seek_recv(fd, buf, 100, MSG_DONTWAIT, 50), EAGAIN);
    REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    FAILS(seek_recv(fd, buf, 100, 0, 50), EAGAIN);
    REQUIRE(seek_recv(fd, buf, 50, 0, 50) == 50 && is_pattern(buf, 50, 50));
    REQUIRE(fcntl(fd, F_SETFL, 0) == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(seek_recv(fd, buf, 100, 0, 100), EAGAIN);
    REQUIRE(recv(fd, buf, sizeof buf, 0) == 50);
    FAILS(recv(fd, buf, 1, 0), EAGAIN);
    finish(fd, &sender);
}

static void the_end_of_the_stream_makes_ranges_short(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    tell(&sender, "fin");
    REQUIRE(seek_recv(fd, buf, 2000, 0, 500) == 500 && is_pattern(buf, 500, 500));
    REQUIRE(seek_recv(fd, buf, 10, 0, 1000) == 0 && seek_recv(fd, buf, 10, 0, 5000) == 0);
    struct iovec piece;
    REQUIRE(seekwire_recv_borrow(fd, &piece, 1, 10, 0, 1000) == 0 && piece.iov_len == 0);
    REQUIRE(recv(fd, buf, sizeof buf, 0) == 500 && is_pattern(buf, 500, 0) && recv(fd, buf, 1, 0) == 0);
    REQUIRE(seek_recv(fd, buf, 10, 0, 0) == 0);
    finish(fd, &sender);
}

static void a_reset_is_an_error(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 1000");
    REQUIRE(seek_recv(fd, buf, 100, 0, 500) == 100);
    tell(&sender, "rst");
    FAILS(seek_recv(fd, buf, 100, 0, 900000), ECONNRESET);
    finish(fd, &sender);
}

static void a_killed_peer_ends_the_stream(void)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    tell(&sender, "send 5000");
    REQUIRE(seek_recv(fd, buf, 100, 0, 500) == 100);
    REQUIRE(kill(sender.pid, SIGKILL) == 0);
    REQUIRE(seek_recv(fd, buf, 5000, 0, 4000) == 1000 && is_pattern(buf, 1000, 4000));
    REQUIRE(seek_recv(fd, buf, 10, 0, 90000) == 0);
    REQUIRE(recv(fd, buf, sizeof buf, MSG_WAITALL) == 3900 && is_pattern(buf + 500, 3400, 600));
    REQUIRE(recv(fd, buf, 1, 0) == 0);
    finish(fd, &sender);
}

static void more_than_any_buffer_can_be_skipped(void)
{
    struct sender sender;
    int fd = connected(&sender, 16384);
    size_t at = 0;
    tell(&sender, "start 12000000");
    REQUIRE(seek_recv(fd, buf, 1000000, 0, 10000000) == 1000000 && is_pattern(buf, 1000000, 10000000));
    while (at < 11000000) {
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        /* Behind the hole it goes on. */
        size_t before = at < 10000000 ? 10000000 - at : 0, first = (size_t)n < before ? (size_t)n : before;
        REQUIRE(n > 0 && is_pattern(buf, first, at));
        REQUIRE(is_pattern(buf + first, n - first, (at < 10000000 ? 10000000 : at) + 1000000));
        at += n;
    }
    finish(fd, &sender);
}

/* With SEEKWIRE_SEEK_MEMORY=0. */
static void without_memory_something_must_be_taken_out_first(void)
{
    struct sender sender;
    int fd = connected(&sender, 16384);
    tell(&sender, "start 12000000");
    FAILS(seek_recv(fd, buf, 1000, 0, 10000000), ENOBUFS);
    for (size_t at = 0; at < 10000000;) {
        ssize_t n = recv(fd, buf, 10000000 - at < sizeof buf ? 10000000 - at : sizeof buf, 0);
        REQUIRE(n > 0 && is_pattern(buf, n, at));
        at += n;
    }
    REQUIRE(seek_recv(fd, buf, 1000, 0, 1000) == 1000 && is_pattern(buf, 1000, 10001000));
    finish(fd, &sender);
}

static void sockets_are_made_for_seeking(void)
{
    int port, type, none = -1;
    socklen_t len = sizeof type;
    int fd = seekwire_socket(AF_INET, SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK && close(fd) == 0);
    FAILS(seekwire_socket(AF_INET, SOCK_DGRAM, 0), EINVAL);
    FAILS(seekwire_socket(AF_UNIX, 0, 0), EINVAL);
    FAILS(socket(AF_INET, SOCK_SEEK_STREAM, IPPROTO_UDP), EINVAL);
    int listener = listener_of(socket(AF_INET, SOCK_SEEK_STREAM | SOCK_CLOEXEC, 0), &port);
    REQUIRE(getsockopt(listener, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM);
    struct sender sender = start_sender(port);
    REQUIRE((fd = accept(listener, NULL, NULL)) >= 0);
    warm_up(fd, &sender);
    tell(&sender, "send 3000");
    REQUIRE(seek_recv(fd, buf, 1000, 0, 1000) == 1000 && is_pattern(buf, 1000, 1000));
    REQUIRE(recv(fd, buf, 2000, MSG_WAITALL) == 2000 && is_pattern(buf + 1000, 1000, 2000));
    REQUIRE(none == -1 && close(listener) == 0);
    finish(fd, &sender);
}

/* Made, and accepted, where the library does not see it. */
static void sockets_from_elsewhere_are_taken_up(void)
{
    int port, listener = listener_of(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), &port);
    struct sender sender = start_sender(port);
    int fd = syscall(SYS_accept4, listener, NULL, NULL, 0);
    int other = syscall(SYS_dup, fd);
    REQUIRE(fd >= 0 && other >= 0 && close(listener) == 0);
    char back;
    REQUIRE(fprintf(sender.commands, "warm\n") > 0 && fflush(sender.commands) == 0);
    for (char c = 0; c < 64; c++)
        REQUIRE(syscall(SYS_sendto, fd, &c, 1, 0, NULL, 0) == 1 && syscall(SYS_recvfrom, fd, &back, 1, 0, NULL, NULL) == 1);
    char answer[16];
    REQUIRE(fgets(answer, sizeof answer, sender.answers));
    tell(&sender, "send 3000");
    await(fd, 3000);
    REQUIRE(extent(fd).head == FIRST);
    REQUIRE(seek_recv(fd, buf, 1000, SEEKWIRE_POSITION, FIRST + 1000) == 1000 && is_pattern(buf, 1000, 1000));
    REQUIRE(recv(other, buf, 1500, MSG_WAITALL) == 1500 && is_pattern(buf + 1000, 500, 2000));
    REQUIRE(seek_recv(other, buf, 500, 0, 0) == 500 && is_pattern(buf, 500, 2500) && close(other) == 0);
    finish(fd, &sender);
}

static void a_socket_with_holes_stays_in_this_program(void)
{
    struct sender sender;
    int fd = connected(&sender, 0), pair[2];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec one = { "x", 1 };
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    tell(&sender, "send 1000");
    REQUIRE(seek_recv(fd, buf, 100, 0, 500) == 100);
    FAILS(sendmsg(pair[0], &message, 0), EBUSY);
    errno = 0;
    REQUIRE(fdopen(fd, "r") == NULL && errno == EBUSY);
    posix_spawn_file_actions_t actions;
    REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&actions, fd, 0) == EBUSY);
    posix_spawn_file_actions_destroy(&actions);
    int offset = 10;
    FAILS(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset), EBUSY);
    REQUIRE(recv(fd, buf, 900, MSG_WAITALL) == 900 && is_pattern(buf + 500, 400, 600));
    REQUIRE(sendmsg(pair[0], &message, 0) == 1);
    close(pair[0]), close(pair[1]);
    finish(fd, &sender);
}

static void duplicates_share_the_holes(void)
{
    struct sender sender;
    int fd = connected(&sender, 0), other = dup(fd);
    tell(&sender, "send 3000");
    REQUIRE(other >= 0 && seek_recv(other, buf, 1000, 0, 1000) == 1000);
    FAILS(seek_recv(fd, buf, 1, 0, 1500), ENXIO);
    REQUIRE(recv(fd, buf, 2000, MSG_WAITALL) == 2000 && is_pattern(buf + 1000, 1000, 2000));
    REQUIRE(close(fd) == 0);
    tell(&sender, "send 3000");
    REQUIRE(seek_recv(other, buf, 1000, 0, 1000) == 1000 && is_pattern(buf, 1000, 4000));
    REQUIRE(recv(other, buf, 2000, MSG_WAITALL) == 2000 && is_pattern(buf + 1000, 1000, 5000));
    finish(other, &sender);
}

int main(int argc, char **argv)
{
    static const struct test cases[] = {
        CASE(b_comes_before_a_and_c),
        CASE(holes_merge_and_vanish_at_the_head),
        CASE(errors_say_what_is_wrong), CASE(the_far_away_has_not_arrived),
    CASE(nothing_is_always_there), CASE(bad_pointers_are_errors),
        CASE(positions_do_not_move),
        CASE(what_is_peeked_stays),
        CASE(bytes_are_taken_without_a_copy),
        CASE(partial_takes_what_is_there),
        CASE(messages_have_several_buffers),
        CASE(loans_go_back_in_any_order),
        CASE(calls_that_do_not_wait_say_so),
        CASE(the_end_of_the_stream_makes_ranges_short),
        CASE(a_reset_is_an_error),
        CASE(a_killed_peer_ends_the_stream),
        CASE(more_than_any_buffer_can_be_skipped),
        CASE(sockets_are_made_for_seeking),
        CASE(sockets_from_elsewhere_are_taken_up),
        CASE(a_socket_with_holes_stays_in_this_program),
        CASE(duplicates_share_the_holes),
    };
    static const struct test starved[] = { CASE(without_memory_something_must_be_taken_out_first) };
    const char *memory = getenv("SEEKWIRE_SEEK_MEMORY");
    if (memory && strcmp(memory, "0") == 0)
        return run_cases(argc, argv, starved, 1);
    return run_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
