/*
 * The other process that has an epoll set gets events of a socket that was added after a fork, even if the process that added it
 * is killed; and events for bytes that are unread when a second process begins to use the set, although their sender makes no
 * call.
 */
#include "common.h"

static int to_parent[2], to_child[2], to_main[2];

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

/* A connection `a` - `b`, of which this process keeps `a`, and a child has only `b`. */
static pid_t split(int *a, int *b)
{
    pair(a, b);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(*a);
        check_on_ring(*b);
    } else {
        close(*b);
    }
    return child;
}

/* The child's change to the set that it shares with a child of its own, before it is killed. */
static void change(int which, int set, int b)
{
    int copy;
    switch (which) {
    case 0:
        CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 0x100) == 0);
        break;
    case 1:
        CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN, 0x101) == 0);
        break;
    case 2:
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
        break;
    case 3:
        CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLET, 0x103) == 0);
        break;
    case 4:
        CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLONESHOT, 0x104) == 0);
        wait_for("fired", set, -1);
        break;
    case 5:
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
        CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLOUT, 0x105) == 0);
        break;
    case 6:
        /* A number that the new process does not have. */
        copy = dup(b);
        CHECK(ctl(set, EPOLL_CTL_ADD, copy, EPOLLIN, 0x106) == 0);
        break;
    default:
        break;
    }
}

static void successor(int which)
{
    int a, b;
    printf("successor %d\n", which);
    pid_t parent = split(&a, &b);
    if (parent == 0) {
        int set = epoll_create1(0);
        await_notice(to_parent);
        if (which != 0 && which != 6)
            CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0);
        wait_for("before", set, 0);
        fflush(stdout);
        if (fork() == 0) {
            await_notice(to_child);
            wait_for("inherited", set, which == 2 || which == 4 ? 0 : -1);
            wait_for("again", set, 0);
            if (which == 4)
                CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLONESHOT, 0x204) == 0);
            drain(b, 3);
            wait_for("drained", set, 0);
            fflush(stdout);
            notify(to_main);
            await_notice(to_child);
            if (which == 5)
                CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN, 0x205) == 0);
            wait_for("more", set, which == 2 ? 0 : -1);
            say("taken out", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
            drain(b, 2);
            fflush(stdout);
            notify(to_main);
            _exit(0);
        }
        change(which, set, b);
        fflush(stdout);
        notify(to_main);
        pause();
    }
    write_all(a, "abc", 3);
    notify(to_parent);
    await_notice(to_main);
    CHECK(kill(parent, SIGKILL) == 0 && waitpid(parent, NULL, 0) == parent);
    notify(to_child);
    await_notice(to_main);
    write_all(a, "de", 2);
    notify(to_child);
    await_notice(to_main);
    close(a);
}

/* Both processes use the set, and the sender is asleep elsewhere. */
static void beside(uint32_t more, int polls)
{
    int a, b, status;
    printf("beside %x %d\n", more, polls);
    pid_t parent = split(&a, &b);
    if (parent == 0) {
        int set = epoll_create1(0);
        await_notice(to_parent);
        CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | more, 1) == 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (polls)
                say("poll", poll(&(struct pollfd){set, POLLIN, 0}, 1, -1));
            wait_for("unread", set, -1);
            wait_for("still", set, 0);
            CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | more, 2) == 0);
            wait_for("changed", set, -1);
            CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
            wait_for("out", set, 0);
            CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | more, 3) == 0);
            wait_for("in", set, -1);
            drain(b, 3);
            wait_for("drained", set, 0);
            fflush(stdout);
            notify(to_main);
            CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | more, 4) == 0);
            wait_for("more", set, -1);
            drain(b, 2);
            fflush(stdout);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        _exit(0);
    }
    write_all(a, "abc", 3);
    notify(to_parent);
    await_notice(to_main);
    write_all(a, "de", 2);
    CHECK(waitpid(parent, &status, 0) == parent && status == 0);
    close(a);
}

int main(void)
{
    CHECK(pipe(to_parent) == 0 && pipe(to_child) == 0 && pipe(to_main) == 0);
    for (int which = 0; which < 7; which++)
        successor(which);
    for (int polls = 0; polls < 2; polls++) {
        beside(0, polls);
        beside(EPOLLET, polls);
        beside(EPOLLONESHOT, polls);
    }
    return 0;
}
