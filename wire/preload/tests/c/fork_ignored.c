/*
 * An ignored signal does not end an epoll_wait, even if it arrives while another thread forks. It arrives during the fork because
 * a prepare handler sends it, which runs last because it was registered first.
 */
#include "common.h"
#include <sys/eventfd.h>

static const int ignored[] = {SIGCHLD, SIGURG, SIGWINCH};
static volatile sig_atomic_t armed;
static _Atomic int waiter;

static void prepare(void)
{
    /* Sent to the process, but this is its first thread: the kernel checks whether that one blocks the signal. */
    if (armed)
        CHECK(kill(getpid(), armed) == 0);
}

static void register_first(void)
{
    CHECK(pthread_atfork(prepare, NULL, NULL) == 0);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = register_first;

static void *wait_for_events(void *set)
{
    struct epoll_event event;
    waiter = gettid();
    int count = epoll_wait(*(int *)set, &event, 1, -1);
    say("epoll_wait", count);
    return NULL;
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    warm_up(a, b);
    for (size_t at = 0; at < sizeof ignored / sizeof *ignored; at++) {
        struct epoll_event event = {EPOLLIN, {.u64 = 1}};
        int set = epoll_create1(EPOLL_CLOEXEC), bell = eventfd(0, EFD_CLOEXEC), status;
        pthread_t thread;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, bell, &event) == 0);
        CHECK(pthread_create(&thread, NULL, wait_for_events, &set) == 0);
        while (!waiter)
            sched_yield();
        await_sleep(waiter);
        waiter = 0;
        armed = ignored[at];
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        armed = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(eventfd_write(bell, 1) == 0 && pthread_join(thread, NULL) == 0);
        close(set);
        close(bell);
    }
    return 0;
}
