/* Waits by number: unlike the functions of these names, they return the remaining time, and take the size of a mask. */
#include "common.h"
#include <sys/syscall.h>

static void handle(int signal) { (void)signal; }

static void interrupt(void *thread) { CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0); }

static const time_t LONG = 10000;
static struct timespec left;

static void begin_time(void) { left = (struct timespec){LONG, 0}; }

/* Some of the time has passed, but most of it is left. */
static void show(const char *what, long result)
{
    say(what, result);
    printf("left: %s\n", left.tv_sec == LONG ? "all" : left.tv_sec > LONG / 2 ? "most" : "other");
    begin_time();
}

int main(void)
{
    int a, b, set = epoll_create1(0);
    char byte;
    uint64_t mask = 0;
    struct {
        void *mask;
        size_t size;
    } right = {&mask, 8}, none = {NULL, 4}, wrong = {&mask, 4};
    fd_set read;
    struct later later;
    pthread_t self = pthread_self();
    struct sigaction action = {.sa_handler = handle};
    pair(&a, &b);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    struct pollfd entry = {a, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
    FD_ZERO(&read);
    FD_SET(a, &read);

    begin_time();
    do_later(&later, write_byte, &b);
    show("ppoll", syscall(SYS_ppoll, &entry, 1, &left, NULL, 8));
    CHECK(pthread_join(later.thread, NULL) == 0);
    read_all(a, &byte, 1);
    do_later(&later, write_byte, &b);
    show("pselect6", syscall(SYS_pselect6, a + 1, &read, NULL, NULL, &left, &right));
    CHECK(pthread_join(later.thread, NULL) == 0);
    show("ppoll, at once", syscall(SYS_ppoll, &entry, 1, &left, NULL, 8));
    show("pselect6, at once", syscall(SYS_pselect6, a + 1, &read, NULL, NULL, &left, &none));
    read_all(a, &byte, 1);

    do_later(&later, interrupt, &self);
    show("ppoll, interrupted", syscall(SYS_ppoll, &entry, 1, &left, &mask, 8));
    CHECK(pthread_join(later.thread, NULL) == 0);
    left = (struct timespec){0, 1};
    show("ppoll, to the end", syscall(SYS_ppoll, &entry, 1, &left, NULL, 8));
    left = (struct timespec){-1, 0};
    show("ppoll, less than nothing", syscall(SYS_ppoll, &entry, 1, &left, NULL, 8));

    say("ppoll, another size", syscall(SYS_ppoll, &entry, 1, &left, &mask, 4));
    say("pselect6, another size", syscall(SYS_pselect6, a + 1, &read, NULL, NULL, &left, &wrong));
    say("epoll_pwait, another size", syscall(SYS_epoll_pwait, set, &event, 1, 0, &mask, 4));
    say("epoll_pwait2, another size", syscall(SYS_epoll_pwait2, set, &event, 1, &left, &mask, 4));
    say("epoll_pwait, no mask", syscall(SYS_epoll_pwait, set, &event, 1, 0, NULL, 4));
    return 0;
}
