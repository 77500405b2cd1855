/* The ways to wait for room to send. */
#ifndef ROOM_H
#define ROOM_H

#include "common.h"
#include <sys/timerfd.h>

/* BUSY: in sleeps that something else ends after a while. LOOKS: after many waits that did not sleep, because something else was
 * ready. NESTED: in another set. */
enum how { BLOCK, POLL, SELECT, LEVEL, BUSY, EDGE, LOOKS, NESTED, HOWS };
static const char *const names[HOWS] = {"block", "poll", "select", "level", "busy", "edge", "looks", "nested"};

/* A set for one of the ways, containing `fd`. */
static int set_with(enum how how, int fd)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | (how >= EDGE ? EPOLLET : 0), .data.fd = fd};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* Waits on a set that a timer keeps waking. */
static int wait_beside_timer(int set, int fd, int timeout)
{
    int timer = timerfd_create(CLOCK_MONOTONIC, 0), found = 0;
    struct itimerspec often = {{0, 10000000}, {0, 10000000}};
    struct epoll_event events[2], event = {.events = EPOLLIN, .data.fd = timer};
    uint64_t times;
    CHECK(timer >= 0 && timerfd_settime(timer, 0, &often, NULL) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event) == 0);
    for (long long until = now() + timeout; !found && (timeout < 0 || now() < until);) {
        int n = epoll_wait(set, events, 2, timeout);
        for (int at = 0; at < n; at++) {
            found |= events[at].data.fd == fd;
            CHECK(events[at].data.fd == fd || read(timer, &times, sizeof times) == sizeof times);
        }
    }
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, timer, NULL) == 0 && close(timer) == 0);
    return found;
}

/* Waits on a set along with something that is always ready. */
static int look_and_wait(int set, int fd, int timeout)
{
    int ready[2], found = 0;
    struct epoll_event events[2], event = {.events = EPOLLIN};
    CHECK(pipe(ready) == 0 && write(ready[1], "x", 1) == 1);
    event.data.fd = ready[0];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ready[0], &event) == 0);
    for (int i = 0; i < 20 && !found; i++) {
        int n = epoll_wait(set, events, 2, 0);
        for (int at = 0; at < n; at++)
            found |= events[at].data.fd == fd;
    }
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ready[0], NULL) == 0 && close(ready[0]) == 0 && close(ready[1]) == 0);
    return found ? 1 : epoll_wait(set, events, 1, timeout);
}

/* Waits on a set that contains the set. It may be reported as readable without an event. */
static int wait_in_another(int set, int timeout)
{
    int outer = epoll_create1(0), n = 0;
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(outer >= 0 && epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0);
    long long until = now() + timeout, left = timeout;
    while (n == 0 && (timeout < 0 || left >= 0)) {
        if (epoll_wait(outer, &event, 1, timeout < 0 ? -1 : (int)left) == 1)
            n = epoll_wait(set, &event, 1, 0);
        left = until - now();
        if (left == 0)
            break;
    }
    CHECK(close(outer) == 0);
    return n;
}

/* Waits for room, for ever if `timeout` (ms) is negative; returns 0 if there is none for that long. */
static int wait_for_room(enum how how, int set, int fd, int timeout)
{
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    struct epoll_event event;
    struct timeval limit = {timeout / 1000, timeout % 1000 * 1000};
    fd_set out;
    switch (how) {
    case SELECT:
        FD_ZERO(&out);
        FD_SET(fd, &out);
        return select(fd + 1, NULL, &out, NULL, timeout < 0 ? NULL : &limit);
    case LEVEL:
    case EDGE: return epoll_wait(set, &event, 1, timeout);
    case BUSY: return wait_beside_timer(set, fd, timeout);
    case LOOKS: return look_and_wait(set, fd, timeout);
    case NESTED: return wait_in_another(set, timeout);
    default: return poll(&entry, 1, timeout);
    }
}

#endif
