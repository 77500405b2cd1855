/* Two ends that each send before they read, in messages of all sizes. TCP has room for 200 KB from the start, and for more as
   it is sent. */
#include "common.h"

enum { MOST = 1000000, SEEN = 50000, MORE = 10000 };

static const struct {
    int size, bytes;
} cases[] = {{1, 200000}, {10, 200000}, {100, 200000}, {1000, MOST}, {8192, MOST}, {50000, MOST}};
static char bytes[MOST], got[MOST];

/* Waiting with a blocking send, with poll, with a set, with poll of a set, or with a set on which another thread sleeps. */
enum room { BLOCK, ASK, WATCH, ASK_SET, SHARE_SET, ROOMS };

static int set;

static void *sleep_on_set(void *unused)
{
    struct epoll_event event;
    for (;;)
        epoll_wait(set, &event, 1, -1);
    return unused;
}

static void wait_for_room(enum room room, int fd)
{
    struct pollfd entry = {fd, POLLOUT, 0}, sets = {set, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLOUT};
    switch (room) {
    case ASK: CHECK(poll(&entry, 1, 10000) == 1); break;
    case ASK_SET: CHECK(poll(&sets, 1, 10000) == 1); break;
    case SHARE_SET:
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
        CHECK(epoll_wait(set, &event, 1, 10000) == 1);
        event.events = 0;
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
        break;
    case WATCH: CHECK(epoll_wait(set, &event, 1, 10000) == 1); break;
    default: break;
    }
}

static void talk(int size, long all, enum room room)
{
    int ends[2];
    pthread_t thread;
    set = epoll_create1(0);
    pair(&ends[0], &ends[1]);
    for (int end = 0; end < 2; end++) {
        struct epoll_event event = {.events = room == SHARE_SET ? 0 : EPOLLOUT};
        set_nonblocking(ends[end], room != BLOCK);
        CHECK(room < WATCH || epoll_ctl(set, EPOLL_CTL_ADD, ends[end], &event) == 0);
    }
    CHECK(room != SHARE_SET || pthread_create(&thread, NULL, sleep_on_set, NULL) == 0);
    long sent[2] = {0, 0};
    while (sent[0] < all || sent[1] < all) {
        for (int end = 0; end < 2; end++) {
            if (sent[end] == all)
                continue;
            wait_for_room(room, ends[end]);
            long left = all - sent[end];
            ssize_t n = write(ends[end], bytes + sent[end], left < size ? left : size);
            CHECK(n > 0 || errno == EAGAIN);
            sent[end] += n > 0 ? n : 0;
            if (sent[end] == all && room >= WATCH)
                CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[end], NULL) == 0);
        }
    }
    CHECK(room != SHARE_SET || (pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0));
    for (int end = 0; end < 2; end++) {
        int available = 0;
        set_nonblocking(ends[end], 0);
        while (available < SEEN)
            CHECK(ioctl(ends[end], FIONREAD, &available) == 0);
        say("looked at", recv(ends[end], got, SEEN, MSG_PEEK | MSG_WAITALL));
        say("as they were sent", memcmp(bytes, got, SEEN) == 0);
        memset(got, 0, all);
        say("received", recv(ends[end], got, all, MSG_WAITALL));
        say("as they were sent", memcmp(bytes, got, all) == 0);
        close(ends[end]);
    }
    close(set);
}

/* A receiver that wants many bytes at once is woken when they have arrived, whichever carrier each of them used. */
static void low_water(int size)
{
    enum { POLL, EPOLL, SELECT, PEEK, METHODS };
    for (int method = 0; method < METHODS; method++) {
        int a, b, found = 0;
        set = epoll_create1(0);
        long sent = 0;
        pair(&a, &b);
        CHECK(setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, &(int){SEEN}, sizeof(int)) == 0);
        struct pollfd entry = {.fd = b, .events = POLLIN}, room = {.fd = a, .events = POLLOUT};
        struct epoll_event event = {.events = EPOLLIN};
        struct timeval limit = {10, 0};
        fd_set reads;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
        set_nonblocking(a, 1);
        while (sent < SEEN + MORE) {
            ssize_t n = write(a, bytes + sent, SEEN + MORE - sent < size ? SEEN + MORE - sent : size);
            CHECK(n > 0 || (errno == EAGAIN && poll(&room, 1, 10000) == 1));
            sent += n > 0 ? n : 0;
        }
        FD_ZERO(&reads);
        FD_SET(b, &reads);
        switch (method) {
        case POLL: found = poll(&entry, 1, 10000); break;
        case EPOLL: found = epoll_wait(set, &event, 1, 10000); break;
        case SELECT: found = select(b + 1, &reads, NULL, NULL, &limit); break;
        case PEEK:
            CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
            found = recv(b, got, SEEN + 1, MSG_PEEK | MSG_WAITALL);
        }
        say("wanted at once", found);
        CHECK(setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int)) == 0);
        CHECK(recv(b, got, SEEN + MORE, MSG_WAITALL) == SEEN + MORE && memcmp(bytes, got, SEEN + MORE) == 0);
        close(a), close(b), close(set);
    }
}

int main(void)
{
    for (int at = 0; at < MOST; at++)
        bytes[at] = at % 251 + at / 251;
    for (unsigned at = 0; at < sizeof cases / sizeof *cases; at++) {
        int size = cases[at].size, all = cases[at].bytes;
        printf("messages of %d\n", size);
        /* The smallest messages take minutes, and those of 10 bytes the same path. */
        enum room rooms = size == 1 ? ASK : size < 1000 ? ASK_SET : ROOMS;
        for (enum room room = BLOCK; room < rooms; room++)
            talk(size, all, room);
        low_water(size);
    }
    return 0;
}
