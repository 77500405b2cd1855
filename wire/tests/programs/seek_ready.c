/* After a seek, every other call that receives, or waits for something to receive, skips what was taken. */
#include "seeking.h"

#include <sys/uio.h>

static char buf[1 << 20];

/* Blocks of 1000 bytes, of which every second one is taken. */
static void all_calls_skip_holes(void)
{
    enum { BLOCK = 1000, BLOCKS = 40 };
    struct sender sender;
    int fd = connected(&sender, 0), pipes[2];
    tell(&sender, "start 40000");
    for (int block = 1; block < BLOCKS; block += 2)
        REQUIRE(seek_recv(fd, buf, BLOCK, 0, block * BLOCK) == BLOCK && is_pattern(buf, BLOCK, block * BLOCK));
    await(fd, 40000);
    REQUIRE(unread(fd) == 20000 && pipe(pipes) == 0);
    char *half = buf + BLOCK / 2;
    struct iovec pieces[] = { { buf, BLOCK / 2 }, { half, BLOCK / 2 } };
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
    struct mmsghdr messages[2] = { { .msg_hdr = { .msg_iov = pieces, .msg_iovlen = 1 } },
                                   { .msg_hdr = { .msg_iov = pieces + 1, .msg_iovlen = 1 } } };
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    size_t left = 20000;
    for (int call = 0; call < 10; call++) {
        size_t at = call * 2 * BLOCK;
        memset(buf, 0, BLOCK);
        switch (call) {
        case 0: REQUIRE(read(fd, buf, BLOCK) == BLOCK); break;
        case 1: REQUIRE(readv(fd, pieces, 2) == BLOCK); break;
        case 2: REQUIRE(recv(fd, buf, BLOCK, 0) == BLOCK); break;
        case 3: REQUIRE(recvfrom(fd, buf, BLOCK, 0, (struct sockaddr *)&name, &len) == BLOCK && len == 0); break;
        case 4: REQUIRE(recvmsg(fd, &message, 0) == BLOCK); break;
        case 5: REQUIRE(recvmmsg(fd, messages, 2, 0, NULL) == 2 && messages[1].msg_len == BLOCK / 2); break;
        case 6: REQUIRE(preadv2(fd, pieces, 2, -1, 0) == BLOCK); break;
        case 7:
            REQUIRE(splice(fd, NULL, pipes[1], NULL, BLOCK, 0) == BLOCK && read(pipes[0], buf, BLOCK) == BLOCK);
            break;
        case 8:
            REQUIRE(recv(fd, buf, BLOCK, MSG_PEEK) == BLOCK && is_pattern(buf, BLOCK, at));
            REQUIRE(recv(fd, buf, 2 * BLOCK, MSG_PEEK | MSG_WAITALL) == 2 * BLOCK);
            REQUIRE(is_pattern(buf, BLOCK, at) && is_pattern(buf + BLOCK, BLOCK, at + 2 * BLOCK));
            REQUIRE(recv(fd, buf, BLOCK, MSG_WAITALL) == BLOCK);
            break;
        case 9: REQUIRE(recv(fd, NULL, BLOCK, MSG_TRUNC) == BLOCK); break;
        }
        REQUIRE(call == 9 || is_pattern(buf, BLOCK, at));
        left -= BLOCK;
        REQUIRE(unread(fd) == left && extent(fd).head == FIRST + at + 2 * BLOCK);
    }
    REQUIRE(recv(fd, buf, sizeof buf, MSG_WAITALL | MSG_DONTWAIT) == (ssize_t)left && is_pattern(buf, BLOCK, 20000));
    FAILS(recv(fd, buf, 1, MSG_DONTWAIT), EAGAIN);
    close(pipes[0]), close(pipes[1]);
    finish(fd, &sender);
}

/* Each way of asking whether there is something to receive. */
static int by_poll(int fd, int wait)
{
    struct pollfd entry = { fd, POLLIN, 0 };
    int ready = poll(&entry, 1, wait ? -1 : 0);
    REQUIRE(ready >= 0);
    return ready == 1 && entry.revents & POLLIN;
}

static int by_select(int fd, int wait)
{
    struct timeval none = { 0 };
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    int ready = select(fd + 1, &set, NULL, NULL, wait ? NULL : &none);
    REQUIRE(ready >= 0);
    return ready == 1 && FD_ISSET(fd, &set);
}

static int epoll_set = -1;

static int by_epoll(int fd, int wait)
{
    struct epoll_event event = { .data.fd = fd };
    int ready = epoll_wait(epoll_set, &event, 1, wait ? -1 : 0);
    REQUIRE(ready == 0 || (ready == 1 && event.data.fd == fd));
    return ready == 1 && event.events & EPOLLIN;
}

static void take_and_ask(int (*is_readable)(int, int), uint32_t mode)
{
    struct sender sender;
    int fd = connected(&sender, 0);
    epoll_set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN | mode, .data.fd = fd };
    REQUIRE(epoll_ctl(epoll_set, EPOLL_CTL_ADD, fd, &event) == 0);
    REQUIRE(!is_readable(fd, 0));
    for (int round = 0; round < 20; round++) {
        size_t at = round * 600;
        tell(&sender, "send 300");
        REQUIRE(is_readable(fd, 1));
        await(fd, at + 300);
        /* The last hundred, then all that is before them. */
        REQUIRE(seek_recv(fd, buf, 100, 0, 200) == 100 && is_pattern(buf, 100, at + 200));
        REQUIRE(mode || is_readable(fd, 0));
        REQUIRE(recv(fd, buf, 300, 0) == 200 && is_pattern(buf, 200, at));
        REQUIRE(!is_readable(fd, 0) && unread(fd) == 0);
        FAILS(recv(fd, buf, 1, MSG_DONTWAIT), EAGAIN);
        tell(&sender, "send 300");
        REQUIRE(is_readable(fd, 1));
        REQUIRE(recv(fd, buf, 300, MSG_WAITALL) == 300 && is_pattern(buf, 300, at + 300));
        /* An edge may come for each of the pieces that the peer has sent. */
        while (mode && is_readable(fd, 0))
            FAILS(recv(fd, buf, 1, MSG_DONTWAIT), EAGAIN);
        REQUIRE(!is_readable(fd, 0));
    }
    tell(&sender, "fin");
    REQUIRE(is_readable(fd, 1) && recv(fd, buf, 1, 0) == 0);
    close(epoll_set);
    finish(fd, &sender);
}

static void poll_knows_what_was_taken(void)
{
    take_and_ask(by_poll, 0);
}

static void select_knows_what_was_taken(void)
{
    take_and_ask(by_select, 0);
}

static void epoll_knows_what_was_taken(void)
{
    take_and_ask(by_epoll, 0);
}

static void edges_come_after_a_seek(void)
{
    take_and_ask(by_epoll, EPOLLET);
}

/* To get at its end, the library moves the beginning of a long range into memory of its own. */
static void what_is_in_library_memory_is_readable(void)
{
    enum { LONG = 12000000, END = 1000 };
    struct sender sender;
    int fd = connected(&sender, 16384);
    epoll_set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    REQUIRE(epoll_ctl(epoll_set, EPOLL_CTL_ADD, fd, &event) == 0);
    tell(&sender, "start 12001000");
    REQUIRE(seek_recv(fd, buf, END, 0, LONG) == END && is_pattern(buf, END, LONG));
    REQUIRE(unread(fd) == LONG);
    for (size_t at = 0; at < LONG;) {
        REQUIRE(by_poll(fd, 0) && by_select(fd, 0) && by_epoll(fd, 0));
        ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
        REQUIRE(n > 0 && is_pattern(buf, n, at));
        at += n;
        REQUIRE(unread(fd) == LONG - at);
    }
    REQUIRE(!by_poll(fd, 0) && !by_select(fd, 0) && !by_epoll(fd, 0));
    close(epoll_set);
    finish(fd, &sender);
}

struct sleeper {
    pthread_t thread;
    int fd;
    pid_t id;
};

static void *seek_far(void *argument)
{
    static char far[1000];
    struct sleeper *sleeper = argument;
    __atomic_store_n(&sleeper->id, gettid(), __ATOMIC_RELEASE);
    REQUIRE(seek_recv(sleeper->fd, far, 1000, SEEKWIRE_POSITION, FIRST + 5000) == 1000 && is_pattern(far, 1000, 5000));
    return NULL;
}

static void start_far(struct sleeper *sleeper, int fd)
{
    char path[64], line[512] = "";
    *sleeper = (struct sleeper){ .fd = fd };
    REQUIRE(pthread_create(&sleeper->thread, NULL, seek_far, sleeper) == 0);
    while (__atomic_load_n(&sleeper->id, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)sleeper->id);
    while (!strstr(line, ") S")) {
        int file = open(path, O_RDONLY);
        ssize_t n = read(file, line, sizeof line - 1);
        REQUIRE(n > 0 && close(file) == 0);
        line[n] = 0;
    }
}

/* Another thread sleeps for bytes in the middle, and has the kernel wake it for them alone. What is readable is told at the
 * first look. */
static void a_sleeping_seek_hides_nothing(void)
{
    enum { BY_POLL, REGISTERED_BEFORE, REGISTERED_AFTER, ASKED_BEFORE, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        struct sender sender;
        struct sleeper sleeper;
        int fd = connected(&sender, 0), set = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = { .events = EPOLLIN }, told;
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        if (kind == REGISTERED_BEFORE || kind == ASKED_BEFORE)
            REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        if (kind == ASKED_BEFORE)
            REQUIRE(epoll_wait(set, &told, 1, 0) == 0);
        start_far(&sleeper, fd);
        tell(&sender, "send 100");
        await(fd, 100);
        if (kind == REGISTERED_AFTER)
            REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        for (int i = 0; i < 3; i++)
            if (kind == BY_POLL)
                REQUIRE(poll(&polled, 1, 0) == 1);
            else
                REQUIRE(epoll_wait(set, &told, 1, 0) == 1);
        tell(&sender, "send 6000");
        REQUIRE(pthread_join(sleeper.thread, NULL) == 0);
        REQUIRE(recv(fd, buf, 5100, MSG_WAITALL) == 5100);
        REQUIRE(is_pattern(buf, 5000, 0) && is_pattern(buf + 5000, 100, 6000));
        close(set);
        finish(fd, &sender);
    }
}

static void the_low_water_mark_counts_live_bytes(void)
{
    struct sender sender;
    int fd = connected(&sender, 0), low = 500;
    REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0);
    tell(&sender, "send 400");
    REQUIRE(seek_recv(fd, buf, 100, 0, 100) == 100);
    REQUIRE(!by_poll(fd, 0));
    tell(&sender, "send 200");
    REQUIRE(by_poll(fd, 1));
    REQUIRE(recv(fd, buf, 1000, 0) == 500 && is_pattern(buf + 100, 400, 200));
    socklen_t len = sizeof low;
    REQUIRE(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) == 0 && low == 500);
    finish(fd, &sender);
}

/* The set knew the socket before the library did. */
static void epoll_sets_of_sockets_from_elsewhere_are_found(void)
{
    int port, listener = listener_of(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), &port);
    struct sender sender = start_sender(port);
    int fd = syscall(SYS_accept4, listener, NULL, NULL, 0);
    epoll_set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    REQUIRE(fd >= 0 && close(listener) == 0 && epoll_ctl(epoll_set, EPOLL_CTL_ADD, fd, &event) == 0);
    warm_up(fd, &sender);
    tell(&sender, "send 300");
    REQUIRE(by_epoll(fd, 1));
    await(fd, 300);
    REQUIRE(seek_recv(fd, buf, 100, 0, 200) == 100 && by_epoll(fd, 0));
    REQUIRE(recv(fd, buf, 300, 0) == 200 && !by_epoll(fd, 0));
    REQUIRE(epoll_ctl(epoll_set, EPOLL_CTL_DEL, fd, NULL) == 0);
    tell(&sender, "send 300");
    await(fd, 600);
    struct epoll_event other;
    REQUIRE(epoll_wait(epoll_set, &other, 1, 0) == 0);
    REQUIRE(epoll_ctl(epoll_set, EPOLL_CTL_ADD, fd, &event) == 0 && by_epoll(fd, 1));
    close(epoll_set);
    finish(fd, &sender);
}

RUN(CASE(all_calls_skip_holes), CASE(poll_knows_what_was_taken), CASE(select_knows_what_was_taken),
    CASE(epoll_knows_what_was_taken), CASE(edges_come_after_a_seek), CASE(what_is_in_library_memory_is_readable),
    CASE(a_sleeping_seek_hides_nothing), CASE(the_low_water_mark_counts_live_bytes), CASE(epoll_sets_of_sockets_from_elsewhere_are_found))
