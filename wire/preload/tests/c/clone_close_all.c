/*
 * A child of clone(2), without fork handlers, closes all its descriptors: that does not affect the parent, which sleeps on its
 * epoll set at the same time.
 */
#include "common.h"
#include <sched.h>
#include <sys/syscall.h>

static void *memory;

static int close_all(void *argument)
{
    (void)argument;
    closefrom(3);
    return 0;
}

static void by_number(void)
{
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        closefrom(3);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
}

static void by_function(void)
{
    enum { SIZE = 1 << 18 };
    memory = malloc(SIZE);
    pid_t child = clone(close_all, (char *)memory + SIZE, SIGCHLD, NULL);
    CHECK(child >= 0 && waitpid(child, NULL, 0) == child);
    free(memory);
}

static void (*const methods[])(void) = {by_number, by_function};

struct work {
    void (*method)(void);
    int fd;
};

static void clone_and_write(void *argument)
{
    struct work *work = argument;
    work->method();
    write_all(work->fd, "!", 1);
}

int main(void)
{
    for (int method = 0; method < 2; method++) {
        int a, b, set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = 77};
        struct later later;
        char c;
        pair(&a, &b);
        CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
        for (int round = 0; round < 20; round++) {
            struct work work = {methods[method], a};
            do_later(&later, clone_and_write, &work);
            event.data.u32 = 0;
            CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLIN && event.data.u32 == 77);
            read_all(b, &c, 1);
            CHECK(c == '!' && pthread_join(later.thread, NULL) == 0);
            check_on_ring(b);
        }
        say("rounds of a method", 20);
        CHECK(close(set) == 0 && close(a) == 0 && read(b, &c, 1) == 0 && close(b) == 0);
    }
    return 0;
}
