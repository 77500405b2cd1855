/* Two ends that each send 200 KB before they read, in messages of all sizes: TCP has room for that. */
#include "common.h"

enum { BYTES = 200000, SEEN = 50000, MORE = 10000 };

static const int sizes[] = {1, 10, 100, 1000, 50000};
static char bytes[BYTES], got[BYTES];

static void talk(int size, int blocks, int by_epoll)
{
    int ends[2], set = epoll_create1(0);
    pair(&ends[0], &ends[1]);
    for (int end = 0; end < 2; end++) {
        struct epoll_event event = {.events = EPOLLOUT, .data.u32 = end};
        set_nonblocking(ends[end], !blocks);
        CHECK(!by_epoll || epoll_ctl(set, EPOLL_CTL_ADD, ends[end], &event) == 0);
    }
    long sent[2] = {0, 0};
    while (sent[0] < BYTES || sent[1] < BYTES) {
        for (int end = 0; end < 2; end++) {
            if (sent[end] == BYTES)
                continue;
            struct pollfd entry = {.fd = ends[end], .events = POLLOUT};
            struct epoll_event event;
            if (by_epoll)
                CHECK(epoll_wait(set, &event, 1, 10000) == 1);
            else if (!blocks)
                CHECK(poll(&entry, 1, 10000) == 1);
            long left = BYTES - sent[end];
            ssize_t n = write(ends[end], bytes + sent[end], left < size ? left : size);
            CHECK(n > 0 || errno == EAGAIN);
            sent[end] += n > 0 ? n : 0;
            if (sent[end] == BYTES && by_epoll)
                CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[end], NULL) == 0);
        }
    }
    for (int end = 0; end < 2; end++) {
        int available = 0;
        set_nonblocking(ends[end], 0);
        while (available < SEEN)
            CHECK(ioctl(ends[end], FIONREAD, &available) == 0);
        say("looked at", recv(ends[end], got, SEEN, MSG_PEEK | MSG_WAITALL));
        say("as they were sent", memcmp(bytes, got, SEEN) == 0);
        memset(got, 0, BYTES);
        say("received", recv(ends[end], got, BYTES, MSG_WAITALL));
        say("as they were sent", memcmp(bytes, got, BYTES) == 0);
        close(ends[end]);
    }
    close(set);
}

/* Whoever wants many bytes at once is told when they are there, whatever way each of them has come. */
static void low_water(int size)
{
    enum { POLL, EPOLL, SELECT, PEEK, WAYS };
    for (int way = 0; way < WAYS; way++) {
        int a, b, found = 0, set = epoll_create1(0);
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
        switch (way) {
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
    for (int at = 0; at < BYTES; at++)
        bytes[at] = at % 251 + at / 251;
    for (unsigned at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        printf("messages of %d\n", sizes[at]);
        talk(sizes[at], 1, 0);
        talk(sizes[at], 0, 0);
        talk(sizes[at], 0, 1);
        low_water(sizes[at]);
    }
    return 0;
}
