/*
 * Shared code of the test programs. Each prints what it observes; the harness compares the output of a plain run with those of
 * accelerated runs. A program that hangs is killed by its alarm.
 */
#ifndef COMMON_H
#define COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "seekwire.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));                               \
            fflush(stdout);                                                                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Numbers hidden from the compiler, which would see that they are wrong. */
__attribute__((unused)) static volatile int too_many = IOV_MAX + 1, negative = -1;

/* Prints a result, with the name of the error if it is one. */
__attribute__((unused)) static void say(const char *what, long result)
{
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
    fflush(stdout);
}

__attribute__((constructor)) static void begin(void)
{
    /* A loaded machine is slow. */
    alarm(300);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

__attribute__((unused)) static void write_all(int fd, const void *buf, size_t len)
{
    const char *at = buf;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        CHECK(n > 0);
        at += n;
        len -= n;
    }
}

__attribute__((unused)) static void read_all(int fd, void *buf, size_t len)
{
    char *at = buf;
    while (len > 0) {
        ssize_t n = read(fd, at, len);
        CHECK(n > 0);
        at += n;
        len -= n;
    }
}

__attribute__((unused)) static int listener_on(struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof *address;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof *address) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &len) == 0);
    return fd;
}

/* Exchanges messages until the connection no longer counts as short. */
__attribute__((unused)) static void warm_up(int a, int b)
{
    for (int i = 0; i < 32; i++) {
        char c = i;
        write_all(a, &c, 1);
        read_all(b, &c, 1);
        write_all(b, &c, 1);
        read_all(a, &c, 1);
    }
}

/* The same between two processes: one asks, and the other answers. */
__attribute__((unused)) static void warm_up_asking(int fd)
{
    char c = 'w';
    for (int i = 0; i < 32; i++) {
        write_all(fd, &c, 1);
        read_all(fd, &c, 1);
    }
}

__attribute__((unused)) static void warm_up_answering(int fd)
{
    char c;
    for (int i = 0; i < 32; i++) {
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
}

/* A connection within this process: `a` has connected, `b` was accepted. */
__attribute__((unused)) static void pair_anywhere(int *a, int *b)
{
    struct sockaddr_in address;
    int fd = listener_on(&address);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(*a >= 0 && connect(*a, (struct sockaddr *)&address, sizeof address) == 0);
    *b = accept(fd, NULL, NULL);
    CHECK(*b >= 0 && close(fd) == 0);
    warm_up(*a, *b);
    /* Waits with calls that the library sees: otherwise the connection would leave the ring once it does not block. */
    struct pollfd entries[] = {{*a, POLLIN, 0}, {*b, POLLIN, 0}};
    CHECK(poll(entries, 2, 0) == 0);
}

extern int seekwire_status(int, struct seekwire_status *) __attribute__((weak));

/* Makes sure that the test uses the ring: accelerated, and unless it is sent back after some bytes, both directions are there. */
__attribute__((unused)) static void check_on_ring(int fd)
{
    struct seekwire_status status = {.size = sizeof status};
    if (!seekwire_status || getenv("SEEKWIRE") || getenv("SEEKWIRE_FALLBACK_AFTER"))
        return;
    CHECK(seekwire_status(fd, &status) == 0);
    CHECK(status.tx_carrier == SEEKWIRE_CARRIER_RING && status.rx_carrier == SEEKWIRE_CARRIER_RING);
}

/* Like pair_anywhere, but returns once the connection is on the ring. */
__attribute__((unused)) static void pair(int *a, int *b)
{
    pair_anywhere(a, b);
    check_on_ring(*a);
    check_on_ring(*b);
}

__attribute__((unused)) static void set_nonblocking(int fd, int on)
{
    int flags = fcntl(fd, F_GETFL);
    CHECK(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

/* Sends until there is no room; returns the number of bytes. */
__attribute__((unused)) static size_t fill(int fd)
{
    static char junk[65536];
    size_t total = 0;
    ssize_t n;
    for (size_t len = sizeof junk; len > 0; len /= 8) {
        while ((n = send(fd, junk, len, MSG_DONTWAIT)) > 0)
            total += n;
        CHECK(errno == EAGAIN);
    }
    return total;
}

__attribute__((unused)) static void drain(int fd, size_t len)
{
    static char junk[65536];
    while (len > 0) {
        ssize_t n = read(fd, junk, len < sizeof junk ? len : sizeof junk);
        if (n < 0 && errno == EAGAIN) {
            /* Sent bytes may still be on their way, and this end may not wait. */
            struct pollfd entry = {fd, POLLIN, 0};
            CHECK(poll(&entry, 1, -1) == 1);
            continue;
        }
        CHECK(n > 0);
        len -= n;
    }
}

/* Accepts one connection and echoes all bytes, until it ends. */
__attribute__((unused)) static void send_back(int listener)
{
    static char bytes[65536];
    int fd = accept(listener, NULL, NULL);
    ssize_t n;
    CHECK(fd >= 0);
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        write_all(fd, bytes, n);
    CHECK(n == 0 && close(fd) == 0);
}

__attribute__((unused)) static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Spins, so that the waiter continues at once; if there is no processor for both, the other one gets it. */
__attribute__((unused)) static void await_round(atomic_int *rounds, int round)
{
    for (int turns = 0; atomic_load(rounds) < round; turns++)
        if (turns > 1000000)
            sched_yield();
}

/* A thread that does one thing when the other threads of this process are asleep in a system call. */
struct later {
    pthread_t thread;
    pid_t caller;
    void (*work)(void *);
    void *argument;
};

/* Waits until thread `id` of this process sleeps. */
__attribute__((unused)) static void await_sleep(pid_t id)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)id);
    for (;;) {
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
        CHECK(n > 0);
        close(fd);
        line[n] = 0;
        if (strrchr(line, ')')[2] == 'S')
            return;
        sched_yield();
    }
}

__attribute__((unused)) static void *run_later(void *argument)
{
    struct later *later = argument;
    await_sleep(later->caller);
    later->work(later->argument);
    return NULL;
}

__attribute__((unused)) static void do_later(struct later *later, void (*work)(void *), void *argument)
{
    later->caller = gettid();
    later->work = work;
    later->argument = argument;
    CHECK(pthread_create(&later->thread, NULL, run_later, later) == 0);
}

__attribute__((unused)) static void write_byte(void *argument)
{
    write_all(*(int *)argument, "!", 1);
}

#endif
