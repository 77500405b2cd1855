/*
 * Programs that wait with system calls of their own, bypassing the C library: each connection gets all of its bytes, no wait
 * reports data that the program has not set, and only connections whose waits are seen come to the ring.
 */
#include "common.h"
#include "raw.h"
#include <sys/mman.h>

/* Not a tag of the library, and not an address of the program. */
#define DATA(fd) (0xabcd000000000000 | (uint64_t)(fd) << 8)
#define ROUNDS 200
#define CONNECTIONS 100

static int set;

static void no_foreign_data(const struct epoll_event *events, long n)
{
    CHECK(n >= 0);
    for (long i = 0; i < n; i++)
        CHECK(events[i].data.u64 >> 48 == 0xabcd && events[i].data.u64 << 56 == 0);
}

static void by_epoll_wait(int fd)
{
    struct epoll_event events[4];
    long n;
    (void)fd;
#ifdef SYS_epoll_wait
    n = raw6(SYS_epoll_wait, set, (long)events, 4, -1, 0, 0);
#else
    n = raw6(SYS_epoll_pwait, set, (long)events, 4, -1, 0, 8);
#endif
    no_foreign_data(events, n);
}

static void by_epoll_pwait(int fd)
{
    struct epoll_event events[4];
    (void)fd;
    no_foreign_data(events, raw6(SYS_epoll_pwait, set, (long)events, 4, -1, 0, 8));
}

static void by_epoll_pwait2(int fd)
{
    struct epoll_event events[4];
    (void)fd;
    no_foreign_data(events, raw6(SYS_epoll_pwait2, set, (long)events, 4, 0, 0, 8));
}

static void by_poll(int fd)
{
    struct pollfd entry = {fd, POLLIN, 0};
#ifdef SYS_poll
    CHECK(raw(SYS_poll, (long)&entry, 1, -1) == 1);
#else
    CHECK(raw6(SYS_ppoll, (long)&entry, 1, 0, 0, 8, 0) == 1);
#endif
}

static void by_ppoll(int fd)
{
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(raw6(SYS_ppoll, (long)&entry, 1, 0, 0, 8, 0) == 1);
}

static void by_select(int fd)
{
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
#ifdef SYS_select
    CHECK(raw6(SYS_select, fd + 1, (long)&read, 0, 0, 0, 0) == 1);
#else
    CHECK(raw6(SYS_pselect6, fd + 1, (long)&read, 0, 0, 0, 0) == 1);
#endif
}

static void by_pselect6(int fd)
{
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    CHECK(raw6(SYS_pselect6, fd + 1, (long)&read, 0, 0, 0, 0) == 1);
}

static void by_libc_epoll(int fd)
{
    struct epoll_event events[4];
    (void)fd;
    no_foreign_data(events, epoll_wait(set, events, 4, -1));
}

/* In the set for one wait only. */
static void by_libc_epoll_once(int fd)
{
    struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = DATA(fd)}};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == DATA(fd));
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
}

static void by_libc_poll(int fd)
{
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, -1) == 1);
}

static void by_libc_select(int fd)
{
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    CHECK(select(fd + 1, &read, NULL, NULL, NULL) == 1);
}

static const struct method {
    const char *name;
    void (*wait)(int);
    /* Whether the connections are in a set all the time, and whether the wait is a call of libc. */
    int has_set, is_seen;
} methods[] = {
    {"epoll_wait", by_epoll_wait, 1, 0},    {"epoll_pwait", by_epoll_pwait, 1, 0}, {"epoll_pwait2", by_epoll_pwait2, 1, 0},
    {"poll", by_poll, 0, 0},                {"ppoll", by_ppoll, 0, 0},             {"select", by_select, 0, 0},
    {"pselect6", by_pselect6, 0, 0},        {"libc's epoll", by_libc_epoll, 1, 1}, {"libc's poll", by_libc_poll, 0, 1},
    {"libc's select", by_libc_select, 0, 1}, {"libc's epoll once", by_libc_epoll_once, 0, 1},
};

static void enter(int fd)
{
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.u64 = DATA(fd)}}) == 0);
}

static void open_pair(int *a, int *b, int nonblocking)
{
    struct sockaddr_in address;
    int listener = listener_on(&address);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(*a >= 0 && connect(*a, (struct sockaddr *)&address, sizeof address) == 0);
    *b = accept(listener, NULL, NULL);
    CHECK(*b >= 0 && close(listener) == 0);
    set_nonblocking(*a, nonblocking);
    set_nonblocking(*b, nonblocking);
}

/* Receives exactly `len` bytes that begin with `first`. */
static void take(const struct method *method, int fd, char first, size_t len)
{
    char bytes[8192], more;
    size_t done = 0;
    while (done < len) {
        ssize_t n = read(fd, bytes + done, len - done);
        if (n < 0 && errno == EAGAIN) {
            method->wait(fd);
            continue;
        }
        CHECK(n > 0);
        done += n;
    }
    for (size_t i = 0; i < len; i++)
        CHECK(bytes[i] == (char)(first + i));
    CHECK(read(fd, &more, 1) == -1 && errno == EAGAIN);
}

static void give(int fd, char first, size_t len)
{
    char bytes[8192];
    for (size_t i = 0; i < len; i++)
        bytes[i] = first + i;
    write_all(fd, bytes, len);
}

static void talk(const struct method *method, int a, int b, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        size_t len = 1 + i * 37 % 5000;
        give(a, i, len);
        method->wait(b);
        take(method, b, i, len);
        give(b, ~i, len);
        method->wait(a);
        take(method, a, ~i, len);
    }
}

static int is_on_ring(int fd)
{
    struct seekwire_status status = {.size = sizeof status};
    return seekwire_status && seekwire_status(fd, &status) == 0 && status.tx_ring > 0;
}

/* Whether connections whose waits are seen come to the ring here. */
static int has_ring(void)
{
    return seekwire_status && !getenv("SEEKWIRE") && !getenv("SEEKWIRE_FALLBACK_AFTER");
}

static void try(const struct method *method)
{
    int a, b;
    set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    open_pair(&a, &b, 1);
    if (method->has_set) {
        enter(a);
        enter(b);
    }
    talk(method, a, b, ROUNDS);
    if (!method->is_seen)
        CHECK(!is_on_ring(a) && !is_on_ring(b));
    else if (has_ring())
        CHECK(is_on_ring(a) && is_on_ring(b));
    printf("%s: %d rounds\n", method->name, ROUNDS);
    CHECK(close(a) == 0 && read(b, &(char){0}, 1) == 0 && close(b) == 0);
    CHECK(close(set) == 0);
}

/* Connections that block, and so come to the ring, and are then waited for with raw system calls. */
static void switched(const struct method *method)
{
    int a, b;
    set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    open_pair(&a, &b, 0);
    warm_up(a, b);
    check_on_ring(a);
    check_on_ring(b);
    set_nonblocking(a, 1);
    set_nonblocking(b, 1);
    if (method->has_set) {
        enter(a);
        enter(b);
    }
    CHECK(read(a, &(char){0}, 1) == -1 && errno == EAGAIN);
    CHECK(read(b, &(char){0}, 1) == -1 && errno == EAGAIN);
    talk(method, a, b, ROUNDS);
    printf("%s, after it blocked: %d rounds\n", method->name, ROUNDS);
    CHECK(close(a) == 0 && close(b) == 0);
    CHECK(close(set) == 0);
}

/* A wait with a timeout, as for a connect, does not count as the program's way of waiting. */
static void connected_by_libc(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), b;
    struct pollfd entry = {a, POLLOUT, 0};
    set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    CHECK(poll(&entry, 1, -1) == 1);
    b = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    CHECK(b >= 0 && close(listener) == 0);
    talk(&methods[3], a, b, ROUNDS);
    CHECK(!is_on_ring(a) && !is_on_ring(b));
    printf("connected by libc's poll, then poll: %d rounds\n", ROUNDS);
    CHECK(close(a) == 0 && close(b) == 0 && close(set) == 0);
}

/* An earlier set of the connections was closed, and nobody has waited on it. */
static void after_another_set(void)
{
    const struct method *libc_epoll = &methods[7];
    int a, b, first = epoll_create1(EPOLL_CLOEXEC), second = epoll_create1(EPOLL_CLOEXEC);
    open_pair(&a, &b, 1);
    set = first;
    enter(a);
    enter(b);
    CHECK(close(first) == 0);
    set = second;
    enter(a);
    enter(b);
    talk(libc_epoll, a, b, ROUNDS);
    CHECK(!has_ring() || (is_on_ring(a) && is_on_ring(b)));
    printf("%s, after a set without a wait: %d rounds\n", libc_epoll->name, ROUNDS);
    CHECK(close(a) == 0 && close(b) == 0 && close(second) == 0);
}

static char spin(int fd)
{
    char c;
    ssize_t n;
    while ((n = read(fd, &c, 1)) < 0)
        CHECK(errno == EAGAIN);
    CHECK(n == 1);
    return c;
}

/* Two processes that never wait, until they have come to the ring. */
static void by_spinning(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address);
    if (fork() == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        set_nonblocking(fd, 1);
        for (char c = 'x'; c != 'e';) {
            c = spin(fd);
            write_all(fd, &c, 1);
        }
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL), status;
    CHECK(fd >= 0 && close(listener) == 0);
    set_nonblocking(fd, 1);
    for (int i = 0; i < ROUNDS || (has_ring() && !is_on_ring(fd)); i++) {
        write_all(fd, "x", 1);
        spin(fd);
    }
    write_all(fd, "e", 1);
    spin(fd);
    CHECK(wait(&status) > 0 && status == 0 && close(fd) == 0);
    printf("spinning: done\n");
}

/* A byte arrives while a receive finds none and leaves the ring; the wait for it is not seen. */
static void arrives_meanwhile(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), status;
    atomic_int *rounds = mmap(NULL, 2 * sizeof *rounds, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct method *poll = &methods[3];
    char c;
    CHECK(rounds != MAP_FAILED);
    pid_t peer = fork();
    for (int i = 1; i <= CONNECTIONS; i++) {
        int fd = peer == 0 ? socket(AF_INET, SOCK_STREAM, 0) : accept(listener, NULL, NULL);
        if (peer == 0)
            CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        for (int j = 0; j < 32; j++) {
            if (peer == 0)
                write_all(fd, "x", 1);
            read_all(fd, &c, 1);
            if (peer > 0)
                write_all(fd, "x", 1);
        }
        if (peer > 0) {
            check_on_ring(fd);
            set_nonblocking(fd, 1);
        }
        atomic_store(&rounds[peer == 0], i);
        await_round(&rounds[peer > 0], i);
        if (peer == 0) {
            /* About as long as the receive takes. */
            for (volatile int delay = 2000 + i * 37 % 4000; delay > 0; delay--)
                ;
            write_all(fd, "y", 1);
            /* Without a call that could still fetch the byte. */
            poll->wait(fd);
        } else {
            ssize_t n = read(fd, &c, 1);
            if (n < 0) {
                CHECK(errno == EAGAIN);
                poll->wait(fd);
                n = read(fd, &c, 1);
            }
            CHECK(n == 1 && c == 'y');
            write_all(fd, "z", 1);
        }
        CHECK(close(fd) == 0);
    }
    if (peer == 0)
        _exit(0);
    CHECK(waitpid(peer, &status, 0) == peer && status == 0 && close(listener) == 0);
    CHECK(munmap(rounds, 2 * sizeof *rounds) == 0);
    printf("arriving meanwhile: %d connections\n", CONNECTIONS);
}

int main(void)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        switched(&methods[i]);
        try(&methods[i]);
    }
    connected_by_libc();
    after_another_set();
    by_spinning();
    arrives_meanwhile();
    return 0;
}
