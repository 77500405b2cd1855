/* Epoll sets that another program gets, or would get if the exec did not fail: they report the same events as before. */
#include "common.h"

static int next_of(int set, int timeout)
{
    struct epoll_event event = {.data.u32 = 0};
    int n = epoll_wait(set, &event, 1, timeout);
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
    /* A byte that was there before, and is not received. */
    write_all(a, "x", 1);
    try_to_leave();
    say("unread", next_of(set, 60000));
    read_all(b, &c, 1);
    if (!(how & EPOLLONESHOT)) {
        pthread_t thread;
        void *ready;
        sleeper = 0;
        CHECK(pthread_create(&thread, NULL, await, &set) == 0);
        while (sleeper == 0)
            sched_yield();
        await_sleep(sleeper);
        try_to_leave();
        write_all(a, "z", 1);
        CHECK(pthread_join(thread, &ready) == 0);
        say("asleep", (int)(long)ready);
    }
    close(a), close(b), close(set);
}

/* A connection without traffic so far: it is watched only later. */
static void try_fresh(unsigned how, const char *name)
{
    struct sockaddr_in address;
    int fd = listener_on(&address), set = epoll_create1(0), a = socket(AF_INET, SOCK_STREAM, 0);
    char c;
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    int b = accept(fd, NULL, NULL);
    struct epoll_event event = {.events = EPOLLIN | how, .data.u32 = 7};
    CHECK(b >= 0 && close(fd) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    CHECK(next_of(set, 0) == 0);
    try_to_leave();
    warm_up(a, b);
    check_on_ring(a);
    check_on_ring(b);
    say("fresh, nothing", next_of(set, 0));
    for (int round = 0; round < 3; round++) {
        write_all(a, "x", 1);
        say(name, next_of(set, 60000));
        read_all(b, &c, 1);
        if (how & EPOLLONESHOT) {
            write_all(a, "y", 1);
            say("fired", next_of(set, 0));
            read_all(b, &c, 1);
        }
        event.data.u32++;
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, b, &event) == 0);
        say("nothing", next_of(set, 0));
    }
    close(a), close(b), close(set);
}

static void end_both(int a, int b)
{
    CHECK(shutdown(a, SHUT_WR) == 0 && shutdown(b, SHUT_WR) == 0);
    CHECK(poll(&(struct pollfd){b, 0, 0}, 1, -1) == 1);
}

/* A one-shot registration that waits only for events that are always reported, and one that has fired: the kernel has nothing
   else of either. */
static void try_end(unsigned events)
{
    int a, b, set = epoll_create1(0);
    pair(&a, &b);
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.u32 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    if (events & EPOLLIN) {
        write_all(a, "x", 1);
        say("shot", next_of(set, -1));
        read_all(b, &(char){0}, 1);
    } else {
        say("armed", next_of(set, 0));
    }
    try_to_leave();
    say("stayed", next_of(set, 0));
    end_both(a, b);
    say("ended", next_of(set, events & EPOLLIN ? 0 : -1));
    close(a), close(b), close(set);
}

/* The registered number is closed, and a duplicate is not. */
static void try_closed(unsigned how, const char *name)
{
    int a, b, set = epoll_create1(0);
    char c;
    pair(&a, &b);
    struct epoll_event event = {.events = EPOLLIN | how, .data.u32 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    int other = dup(b), number = b;
    CHECK(other >= 0 && close(b) == 0);
    for (int round = 0; round < 3; round++) {
        try_to_leave();
        write_all(a, "x", 1);
        say(name, next_of(set, 60000));
        read_all(other, &c, 1);
        say("closed, nothing", next_of(set, 0));
        CHECK(dup2(other, number) == number);
        event.data.u32++;
        say("closed, changed", epoll_ctl(set, EPOLL_CTL_MOD, number, &event));
        CHECK(close(number) == 0);
    }
    try_to_leave();
    CHECK(dup2(other, number) == number);
    say("closed, removed", epoll_ctl(set, EPOLL_CTL_DEL, number, NULL));
    write_all(a, "x", 1);
    CHECK(poll(&(struct pollfd){other, POLLIN, 0}, 1, -1) == 1);
    say("closed, nothing", next_of(set, 0));
    close(a), close(other), close(number), close(set);
}

static void try_exclusive(void)
{
    int a, b, set = epoll_create1(0);
    char c;
    pair(&a, &b);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.u32 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    try_to_leave();
    write_all(a, "x", 1);
    say("exclusive", next_of(set, 60000));
    read_all(b, &c, 1);
    event.events = EPOLLIN;
    say("exclusive, changed", epoll_ctl(set, EPOLL_CTL_MOD, b, &event));
    say("exclusive, added", epoll_ctl(set, EPOLL_CTL_ADD, b, &event));
    say("exclusive, removed", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    close(a), close(b), close(set);
}

/* A child that leaves, or closes its files, changes no set of its parent, in which connections come and go. */
static void try_in_child(int leaves)
{
    int a, b, status, set = epoll_create1(0);
    char c;
    pair(&a, &b);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    for (int round = 0; round < 3; round++) {
        struct later later;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
        do_later(&later, write_byte, &a);
        say(leaves ? "child leaves" : "child closes", next_of(set, 60000));
        pthread_join(later.thread, NULL);
        read_all(b, &c, 1);
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
        pid_t child = fork();
        if (child == 0) {
            if (leaves)
                try_to_leave();
            else
                close(b), close(a), close(set);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    close(a), close(b), close(set);
}

/* The set also reports bytes that come through `from` in another program, although the registered number is closed. */
static void try_kept(void)
{
    int a, b, status;
    char from[16], in[16];
    pid_t child = fork();
    if (child != 0) {
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        return;
    }
    int set = epoll_create1(0);
    pair(&a, &b);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0 && dup(b) >= 0 && close(b) == 0);
    snprintf(from, sizeof from, "%d", a);
    snprintf(in, sizeof in, "%d", set);
    execv("/proc/self/exe", (char *[]){"epoll_across_exec", from, in, NULL});
    _exit(9);
}

int main(int count, char **arguments)
{
    if (count == 3) {
        write_all(atoi(arguments[1]), "x", 1);
        say("kept", next_of(atoi(arguments[2]), 60000));
        return 0;
    }
    static const struct {
        unsigned how;
        const char *name;
    } modes[] = {{0, "level"}, {EPOLLET, "edge"}, {EPOLLONESHOT, "one shot"}};
    for (int i = 0; i < 3; i++) {
        try_with(modes[i].how, modes[i].name);
        try_fresh(modes[i].how, modes[i].name);
        try_closed(modes[i].how, modes[i].name);
    }
    try_end(0);
    try_end(EPOLLPRI);
    try_end(EPOLLIN);
    try_exclusive();
    try_in_child(0);
    try_in_child(1);
    try_kept();
    return 0;
}
