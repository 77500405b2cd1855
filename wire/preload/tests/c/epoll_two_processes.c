/*
 * Two processes use an epoll set, and each adds sockets that the other does not have: each connection is reported with its own
 * data, even to a thread that was already asleep, and a fired one-shot registration stays fired.
 */
#include "common.h"

#include <sys/eventfd.h>

extern int seekwire_fall_back(int) __attribute__((weak));

enum { MANY = 8, FIRST = 100 };

static int to_parent[2], to_child[2];

static void notify(const int *ends)
{
    write_all(ends[1], "x", 1);
}

static void await_notice(const int *ends)
{
    char c;
    read_all(ends[0], &c, 1);
}

static int ctl(int set, int op, int fd, uint32_t events, uint64_t data)
{
    return epoll_ctl(set, op, fd, &(struct epoll_event){events, {.u64 = data}});
}

static void wait_for(const char *what, int set, int timeout)
{
    struct epoll_event events[4];
    int n = epoll_wait(set, events, 4, timeout);
    printf("%s: %d", what, n);
    for (int i = 0; i < n; i++)
        printf(" %lx %x", (long)events[i].data.u64, events[i].events);
    printf("\n");
}

static void end(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Each process has files of its own in the set with the same numbers as the other's. */
static void same_numbers(void)
{
    int set = epoll_create1(0), a[MANY], b;
    printf("same numbers\n");
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        await_notice(to_child);
        for (int i = 0; i < MANY; i++) {
            int quiet = eventfd(0, 0);
            CHECK(dup2(quiet, FIRST + i) == FIRST + i && close(quiet) == 0);
            CHECK(ctl(set, EPOLL_CTL_ADD, FIRST + i, EPOLLIN, 0x200 + i) == 0);
        }
        wait_for("the child's are quiet", set, 0);
        fflush(stdout);
        notify(to_parent);
        await_notice(to_child);
        _exit(0);
    }
    for (int i = 0; i < MANY; i++) {
        pair(&a[i], &b);
        CHECK(dup2(b, FIRST + i) == FIRST + i && close(b) == 0);
        CHECK(ctl(set, EPOLL_CTL_ADD, FIRST + i, EPOLLIN, 0x100 + i) == 0);
    }
    wait_for("the parent's are quiet", set, 0);
    fflush(stdout);
    notify(to_child);
    await_notice(to_parent);
    wait_for("both are quiet", set, 0);
    for (int i = 0; i < MANY; i++) {
        write_all(a[i], "x", 1);
        wait_for("one", set, -1);
        drain(FIRST + i, 1);
    }
    wait_for("quiet again", set, 0);
    notify(to_child);
    end(child);
    for (int i = 0; i < MANY; i++) {
        close(FIRST + i);
        close(a[i]);
    }
    close(set);
}

static int set_of_sleeper, fd_of_sleeper;

static void put_in(void *argument)
{
    (void)argument;
    CHECK(ctl(set_of_sleeper, EPOLL_CTL_ADD, fd_of_sleeper, EPOLLIN, 0x300) == 0);
}

/* A thread sleeps on the set when another one adds a connection with unread bytes, whose sender sleeps elsewhere. */
static void while_asleep(void)
{
    int a, b, set = epoll_create1(0);
    printf("while asleep\n");
    pair(&a, &b);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct later later;
        close(a);
        await_notice(to_child);
        set_of_sleeper = set;
        fd_of_sleeper = b;
        do_later(&later, put_in, NULL);
        wait_for("put in", set, -1);
        pthread_join(later.thread, NULL);
        drain(b, 1);
        wait_for("drained", set, 0);
        fflush(stdout);
        _exit(0);
    }
    close(b);
    write_all(a, "x", 1);
    notify(to_child);
    end(child);
    close(a);
    close(set);
}

/* A one-shot registration that fired before the fork. */
static void fired(void)
{
    int a, b, set = epoll_create1(0);
    printf("fired\n");
    pair(&a, &b);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLONESHOT, 0x400) == 0);
    write_all(a, "x", 1);
    wait_for("shot", set, -1);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        wait_for("fired", set, 0);
        CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLONESHOT, 0x401) == 0);
        wait_for("again", set, -1);
        wait_for("fired again", set, 0);
        fflush(stdout);
        _exit(0);
    }
    end(child);
    wait_for("fired here, too", set, 0);
    fflush(stdout);
    close(a);
    close(b);
    close(set);
}

/* The connection of a fired one-shot registration ends in both directions. Its number is closed here, and another process has
   it, or that process uses the set. */
static void fired_and_ended(int is_used)
{
    int a, b, set = epoll_create1(0);
    printf("fired and ended\n");
    pair(&a, &b);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLONESHOT, 0x480) == 0);
    write_all(a, "x", 1);
    wait_for("shot", set, -1);
    drain(b, 1);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        await_notice(to_child);
        if (is_used)
            wait_for("fired", set, 0);
        notify(to_parent);
        await_notice(to_child);
        if (is_used)
            wait_for("ended", set, 0);
        fflush(stdout);
        _exit(0);
    }
    if (is_used) {
        notify(to_child);
        await_notice(to_parent);
    }
    CHECK(shutdown(a, SHUT_WR) == 0 && shutdown(b, SHUT_WR) == 0);
    CHECK(poll(&(struct pollfd){b, 0, 0}, 1, -1) == 1);
    if (!is_used)
        CHECK(close(b) == 0);
    wait_for("ended here", set, 0);
    fflush(stdout);
    notify(to_child);
    if (!is_used) {
        notify(to_child);
        await_notice(to_parent);
    }
    end(child);
    wait_for("nobody else has it", set, 0);
    close(a), close(set);
    if (is_used)
        CHECK(close(b) == 0);
}

/* A process begins to use a set whose connection has left the ring with bytes on it, and whose sender makes no call. */
static void idle_sender(void)
{
    enum { ROUNDS = 10 };
    printf("idle sender\n");
    fflush(stdout);
    /* Each round ends immediately, unless it waits for the sender. */
    alarm(40);
    for (int round = 0; round < ROUNDS; round++) {
        int a, b, set = epoll_create1(0);
        pair(&a, &b);
        CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 0x500) == 0);
        pid_t sender = fork();
        CHECK(sender >= 0);
        if (sender == 0) {
            close(b), close(set);
            write_all(a, "x", 1);
            notify(to_parent);
            await_notice(to_child);
            write_all(a, "y", 1);
            notify(to_parent);
            pause();
        }
        close(a);
        await_notice(to_parent);
        if (seekwire_fall_back)
            CHECK(seekwire_fall_back(b) == 0);
        notify(to_child);
        await_notice(to_parent);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            wait_for("unread", set, -1);
            fflush(stdout);
            _exit(0);
        }
        end(child);
        drain(b, 2);
        CHECK(kill(sender, SIGKILL) == 0 && waitpid(sender, NULL, 0) == sender);
        close(b), close(set);
    }
    alarm(300);
}

static void write_one(void *argument)
{
    write_all(*(int *)argument, "x", 1);
}

/* A thread sleeps in poll on a set on which another process waits, with connections that only this process has. */
static void polled(void)
{
    enum { ROUNDS = 20 };
    int a, b, set = epoll_create1(0);
    printf("polled\n");
    fflush(stdout);
    alarm(60);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct epoll_event events[4];
        await_notice(to_child);
        for (;;)
            epoll_wait(set, events, 4, -1);
    }
    pair(&a, &b);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 0x600) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct later later;
        struct pollfd polled = {set, POLLIN, 0};
        if (round == 1)
            notify(to_child);
        do_later(&later, write_one, &a);
        say("poll", poll(&polled, 1, -1));
        pthread_join(later.thread, NULL);
        drain(b, 1);
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    close(a), close(b), close(set);
    alarm(300);
}

int main(void)
{
    CHECK(pipe(to_parent) == 0 && pipe(to_child) == 0);
    same_numbers();
    while_asleep();
    fired();
    fired_and_ended(0);
    fired_and_ended(1);
    idle_sender();
    polled();
    return 0;
}
