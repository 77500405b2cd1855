/* An epoll set that two processes have after a fork: the changes of either apply to both, and no process misses an event. */
#include "common.h"

static int to_child[2], to_parent[2];

static void notify(const int *ends)
{
    write_all(ends[1], "x", 1);
}

static void await_notice(const int *ends)
{
    char c;
    read_all(ends[0], &c, 1);
}

static void await(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

/* Waits until the process sleeps. */
static void await_sleeping(pid_t id)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)id);
    do {
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
        CHECK(n > 0 && close(fd) == 0);
        line[n] = 0;
        sched_yield();
    } while (strrchr(line, ')')[2] != 'S');
}

static int ctl(int set, int op, int fd, uint64_t data)
{
    return epoll_ctl(set, op, fd, &(struct epoll_event){EPOLLIN, {.u64 = data}});
}

static void wait_for(const char *what, int set, int timeout)
{
    struct epoll_event event = {0, {.u64 = 0}};
    int n = epoll_wait(set, &event, 1, timeout);
    printf("%s: %d", what, n);
    if (n == 1)
        printf(" %lx", (long)event.data.u64);
    printf("\n");
}

/* The child continues with a connection that was in the set before, whatever the parent closes. */
static void parent_leaves(int closes_connection, int closes_set)
{
    int a, b, set = epoll_create1(0);
    printf("parent leaves %d %d\n", closes_connection, closes_set);
    pair(&a, &b);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, 1) == 0);
    wait_for("before", set, 0);
    pid_t child = fork();
    if (child == 0) {
        close(a);
        await_notice(to_child);
        wait_for("idle", set, 0);
        notify(to_parent);
        wait_for("woken", set, -1);
        drain(b, 3);
        wait_for("drained", set, 0);
        say("removed", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
        exit(0);
    }
    if (closes_connection == 1)
        close(b);
    if (closes_set)
        close(set);
    if (closes_connection == 2)
        close(b);
    notify(to_child);
    await_notice(to_parent);
    await_sleeping(child);
    write_all(a, "abc", 3);
    await(child);
    close(a);
    if (!closes_connection)
        close(b);
    if (!closes_set)
        close(set);
}

/* The child's changes to the set apply to the parent. */
static void child_changes(int op)
{
    int a, b, set = epoll_create1(0);
    printf("child changes %d\n", op);
    pair(&a, &b);
    if (op != EPOLL_CTL_ADD)
        CHECK(ctl(set, EPOLL_CTL_ADD, b, 1) == 0);
    wait_for("before", set, 0);
    pid_t child = fork();
    if (child == 0) {
        say("changed", ctl(set, op, b, 2));
        notify(to_parent);
        await_notice(to_child);
        exit(0);
    }
    await_notice(to_parent);
    write_all(a, "abc", 3);
    CHECK(poll(&(struct pollfd){b, POLLIN, 0}, 1, -1) == 1);
    wait_for("notified", set, op == EPOLL_CTL_DEL ? 0 : -1);
    drain(b, 3);
    wait_for("drained", set, 0);
    notify(to_child);
    await(child);
    close(a), close(b), close(set);
}

struct talk {
    int fd, rounds;
};

static void *ask(void *argument)
{
    struct talk *talk = argument;
    char c;
    await_notice(to_parent);
    for (int i = 0; i < talk->rounds; i++) {
        write_all(talk->fd, "q", 1);
        read_all(talk->fd, &c, 1);
    }
    return NULL;
}

/* The parent serves a connection that the child does not know, while the child takes events of the set. */
static void both_wait(void)
{
    int a, b, set = epoll_create1(0), served = 0;
    struct epoll_event event;
    struct talk talk = {-1, 200};
    pthread_t thread;
    char c;
    printf("both wait\n");
    fflush(stdout);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        await_notice(to_child);
        await_sleeping(parent);
        struct pollfd end = {to_child[0], POLLIN, 0};
        for (int notified = 0; poll(&end, 1, 0) == 0; notified = 1) {
            epoll_wait(set, &event, 1, 0);
            if (!notified)
                notify(to_parent);
        }
        await_notice(to_child);
        exit(0);
    }
    pair(&a, &b);
    talk.fd = a;
    CHECK(ctl(set, EPOLL_CTL_ADD, b, 1) == 0);
    wait_for("before", set, 0);
    CHECK(pthread_create(&thread, NULL, ask, &talk) == 0);
    notify(to_child);
    while (served < talk.rounds) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 1);
        if (recv(b, &c, 1, MSG_DONTWAIT) == 1) {
            served++;
            write_all(b, "a", 1);
        }
    }
    pthread_join(thread, NULL);
    notify(to_child);
    await(child);
    printf("served: %d\n", served);
    close(a), close(b), close(set);
}

/* The parent is gone, like that of a daemon: the child has the set to itself. */
static void parent_is_gone(void)
{
    int set = epoll_create1(0);
    printf("parent is gone\n");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        await_notice(to_child);
        for (int i = 0; i < 3; i++) {
            int a, b;
            pair(&a, &b);
            CHECK(ctl(set, EPOLL_CTL_ADD, b, i) == 0);
            struct later later;
            do_later(&later, write_byte, &a);
            wait_for("woken", set, -1);
            pthread_join(later.thread, NULL);
            drain(b, 1);
            wait_for("drained", set, 0);
            say("removed", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
            close(a), close(b);
        }
        exit(0);
    }
    close(set);
    notify(to_child);
    await(child);
}

int main(void)
{
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    for (int connection = 0; connection < 3; connection++)
        for (int set = 0; set < 2; set++)
            parent_leaves(connection, set);
    child_changes(EPOLL_CTL_ADD);
    child_changes(EPOLL_CTL_MOD);
    child_changes(EPOLL_CTL_DEL);
    both_wait();
    parent_is_gone();
    return 0;
}
