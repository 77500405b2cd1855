/* Epoll sets that another program would get, when the exec fails: they tell what they told before. */
#include "common.h"

static int next_of(int set, int patience)
{
    struct epoll_event event = {.data.u32 = 0};
    int n = epoll_wait(set, &event, 1, patience);
    return n == 1 ? (int)event.data.u32 : n;
}

static void try_to_leave(void)
{
    char *arguments[] = {"nobody", NULL};
    CHECK(execv("/nonexistent/nobody", arguments) == -1 && errno == ENOENT);
}

static volatile pid_t sleeper;

static void *await(void *argument)
{
    sleeper = gettid();
    return (void *)(long)next_of(*(int *)argument, 60000);
}

static void try_with(unsigned how, const char *name)
{
    int a, b, set = epoll_create1(0);
    char c;
    pair(&a, &b);
    struct epoll_event event = {.events = EPOLLIN | how, .data.u32 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    for (int round = 0; round < 3; round++) {
        write_all(a, "x", 1);
        say(name, next_of(set, 60000));
        read_all(b, &c, 1);
        try_to_leave();
        if (how & EPOLLONESHOT) {
            write_all(a, "y", 1);
            say("fired", next_of(set, 0));
            read_all(b, &c, 1);
            CHECK(epoll_ctl(set, EPOLL_CTL_MOD, b, &event) == 0);
        }
    }
    /* One that was there before, and is not received. */
    write_all(a, "x", 1);
    try_to_leave();
    say("unread", next_of(set, 60000));
    read_all(b, &c, 1);
    if (!(how & EPOLLONESHOT)) {
        pthread_t thread;
        void *told;
        sleeper = 0;
        CHECK(pthread_create(&thread, NULL, await, &set) == 0);
        while (sleeper == 0)
            sched_yield();
        await_sleep(sleeper);
        try_to_leave();
        write_all(a, "z", 1);
        CHECK(pthread_join(thread, &told) == 0);
        say("asleep", (int)(long)told);
    }
    close(a), close(b), close(set);
}

int main(void)
{
    try_with(0, "level");
    try_with(EPOLLET, "edge");
    try_with(EPOLLONESHOT, "one shot");
    return 0;
}
