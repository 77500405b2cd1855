/*
 * A program inherits a connection with unread bytes, and waits for it with epoll: the set reports them at once, other holders of
 * the socket still get the bytes that it leaves, and its shutdowns take effect.
 */
#include "common.h"
#include <spawn.h>

extern char **environ;

enum { SIZE = 13000, PART = 8000 };

static char program[PATH_MAX];
static int command, answer;

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

struct order {
    char what;
    int count;
};

/* Sends, ends its direction, and receives until the end, as instructed. */
static void peer(struct sockaddr_in *address, int from, int to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t at = 0;
    struct order order;
    static char bytes[SIZE];
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    warm_up_asking(fd);
    while (read(from, &order, sizeof order) == sizeof order) {
        long result = 0, n;
        if (order.what == 's') {
            for (int i = 0; i < order.count; i++)
                bytes[i] = byte_at(at++);
            write_all(fd, bytes, order.count);
        }
        if (order.what == 'w')
            CHECK(shutdown(fd, SHUT_WR) == 0);
        if (order.what == 'e') {
            while ((n = read(fd, bytes, sizeof bytes)) > 0)
                result += n;
            if (n < 0)
                result = -errno;
        }
        write_all(to, &result, sizeof result);
    }
    _exit(0);
}

static long ask(char what, int count)
{
    struct order order;
    long result;
    memset(&order, 0, sizeof order);
    order.what = what, order.count = count;
    write_all(command, &order, sizeof order);
    read_all(answer, &result, sizeof result);
    return result;
}

/* Returns a connection with SIZE unread bytes. */
static int begin_peer(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), there[2], back[2];
    CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0);
    fflush(stdout);
    if (fork() == 0) {
        close(listener), close(there[1]), close(back[0]);
        peer(&address, there[0], back[1]);
    }
    close(there[0]), close(back[1]);
    command = there[1], answer = back[0];
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    warm_up_answering(fd);
    check_on_ring(fd);
    CHECK(ask('s', SIZE) == 0);
    return fd;
}

static void receive(int fd, size_t from, size_t to)
{
    static char bytes[SIZE];
    read_all(fd, bytes, to - from);
    for (size_t at = from; at < to; at++)
        CHECK(bytes[at - from] == byte_at(at));
}

static int new_set(int fd, uint32_t events)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){events, {.fd = fd}}) == 0);
    return set;
}

static void change(int set, int fd, uint32_t events)
{
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &(struct epoll_event){events, {.fd = fd}}) == 0);
}

/* With a timeout of -1 an event is required. */
static void wait_for(const char *what, int set, int timeout)
{
    struct epoll_event event = {0};
    int n = epoll_wait(set, &event, 1, timeout);
    printf("%s: %d, %x\n", what, n, n == 1 ? event.events : 0);
    fflush(stdout);
}

static const uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLEXCLUSIVE};

/* Ends what it has inherited, in different ways, before or while it exits. */
static void heir_ends(int fd, const char *how, uint32_t events)
{
    char c;
    int set = new_set(fd, events);
    wait_for("in a set", set, -1);
    receive(fd, 0, SIZE);
    write_all(fd, "answer", 6);
    if (!strcmp(how, "shutdown"))
        CHECK(shutdown(fd, SHUT_WR) == 0);
    if (!strcmp(how, "close"))
        CHECK(close(fd) == 0);
    if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        CHECK(waitpid(child, NULL, 0) == child && close(fd) == 0);
    }
    if (!strcmp(how, "exit"))
        return;
    printf("the peer got %ld\n", ask('e', 0));
    if (!strcmp(how, "shutdown")) {
        CHECK(ask('s', 1) == 0 && ask('w', 0) == 0);
        CHECK(read(fd, &c, 1) == 1 && read(fd, &c, 1) == 0);
    }
}

/* Receives a part, and leaves the rest to the program that has started this one. */
static void heir_shares(int fd, const char *how, int to, int by)
{
    char c;
    int set = new_set(fd, EPOLLIN);
    wait_for("in a set", set, -1);
    if (!strcmp(how, "close"))
        CHECK(close(set) == 0);
    receive(fd, 0, PART);
    write_all(to, "r", 1);
    CHECK(read(by, &c, 1) == 1);
    /* By now the other has received all. */
    if (strcmp(how, "close"))
        wait_for("what others have received", set, 0);
}

static void heir_edges(int fd)
{
    char c;
    int set = new_set(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    wait_for("edge", set, -1);
    wait_for("again", set, 0);
    receive(fd, 0, 1000);
    wait_for("after a part", set, 0);
    change(set, fd, EPOLLIN | EPOLLET);
    wait_for("changed", set, -1);
    change(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    wait_for("changed again", set, -1);
    CHECK(ask('s', 10) == 0);
    wait_for("more", set, -1);
    receive(fd, 1000, SIZE + 10);
    wait_for("all", set, 0);
    CHECK(ask('s', 10) == 0);
    wait_for("more", set, -1);
    receive(fd, SIZE + 10, SIZE + 20);
    CHECK(ask('w', 0) == 0);
    wait_for("the end", set, -1);
    CHECK(read(fd, &c, 1) == 0);
}

static void heir_one_shot(int fd)
{
    int set = new_set(fd, EPOLLIN | EPOLLONESHOT);
    wait_for("shot", set, -1);
    wait_for("again", set, 0);
    change(set, fd, EPOLLIN | EPOLLONESHOT);
    wait_for("changed", set, -1);
    receive(fd, 0, SIZE);
    change(set, fd, EPOLLIN | EPOLLONESHOT);
    wait_for("all", set, 0);
    CHECK(ask('s', 1) == 0);
    wait_for("more", set, -1);
    CHECK(ask('s', 1) == 0);
    wait_for("again", set, 0);
}

/* In and out, through two numbers, with a change of the requested events. */
static void heir_level(int fd)
{
    int set = new_set(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP), other = dup(fd);
    struct epoll_event events[4];
    wait_for("level", set, -1);
    wait_for("level again", set, 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, other, &(struct epoll_event){EPOLLIN, {.fd = other}}) == 0);
    say("two numbers", epoll_wait(set, events, 4, -1));
    CHECK(close(fd) == 0);
    say("one of them closed", epoll_wait(set, events, 4, -1));
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, other, NULL) == 0);
    int outputs = epoll_wait(set, events, 4, 0);
    say("the other taken out", outputs);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, other, &(struct epoll_event){EPOLLIN, {.fd = other}}) == 0);
    say("and put back", epoll_wait(set, events, 4, -1));
    receive(other, 0, SIZE);
    change(set, other, EPOLLOUT);
    say("without them", epoll_wait(set, events, 4, -1));
    CHECK(close(set) == 0);
    set = new_set(other, EPOLLIN);
    wait_for("all", set, 0);
    CHECK(ask('s', 5) == 0);
    wait_for("more", set, -1);
    receive(other, SIZE, SIZE + 5);
    wait_for("all", set, 0);
}

static int slept_on;

static void *sleep_on(void *unused)
{
    (void)unused;
    wait_for("asleep", slept_on, -1);
    return NULL;
}

/* A thread sleeps, or is about to, while the socket is added to the set, or its events change. */
static void heir_asleep(int fd)
{
    pthread_t thread;
    slept_on = epoll_create1(EPOLL_CLOEXEC);
    CHECK(pthread_create(&thread, NULL, sleep_on, NULL) == 0);
    CHECK(epoll_ctl(slept_on, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}}) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    change(slept_on, fd, EPOLLRDHUP);
    wait_for("not asked for", slept_on, 0);
    CHECK(pthread_create(&thread, NULL, sleep_on, NULL) == 0);
    change(slept_on, fd, EPOLLIN | EPOLLET);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_on, NULL) == 0);
    CHECK(ask('s', 10) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    receive(fd, 0, SIZE + 10);
}

/* In a set that is inside another one, and is polled. */
static void heir_nested(int fd)
{
    int inner = new_set(fd, EPOLLIN), outer = new_set(inner, EPOLLIN);
    struct pollfd entry = {inner, POLLIN, 0};
    wait_for("outer", outer, -1);
    wait_for("inner", inner, 0);
    say("poll", poll(&entry, 1, -1));
    receive(fd, 0, PART);
    wait_for("outer", outer, -1);
    say("poll", poll(&entry, 1, -1));
    receive(fd, PART, SIZE);
    say("poll of nothing", poll(&entry, 1, 0));
    wait_for("outer of nothing", outer, 0);
    wait_for("inner of nothing", inner, 0);
    CHECK(ask('s', 5) == 0);
    say("poll of more", poll(&entry, 1, -1));
    wait_for("outer of more", outer, -1);
    wait_for("inner of more", inner, -1);
}

/* Parent and child use the set in turns. */
static void heir_forks(int fd)
{
    int set = new_set(fd, EPOLLIN), there[2], back[2];
    char c;
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    wait_for("parent", set, -1);
    pid_t child = fork();
    if (child == 0) {
        wait_for("child", set, -1);
        receive(fd, 0, PART);
        write_all(there[1], "c", 1);
        CHECK(read(back[0], &c, 1) == 1);
        wait_for("child of nothing", set, 0);
        _exit(0);
    }
    CHECK(read(there[0], &c, 1) == 1);
    wait_for("parent", set, -1);
    receive(fd, PART, SIZE);
    write_all(back[1], "p", 1);
    CHECK(waitpid(child, NULL, 0) == child);
    wait_for("parent of nothing", set, 0);
    CHECK(ask('s', 5) == 0);
    wait_for("parent of more", set, -1);
}

static int successor(char **argv)
{
    const char *what = argv[1];
    int fd = atoi(argv[4]);
    command = atoi(argv[2]), answer = atoi(argv[3]);
    CHECK(fcntl(command, F_SETFD, FD_CLOEXEC) == 0);
    if (!strcmp(what, "ends"))
        heir_ends(fd, argv[5], strtoul(argv[6], NULL, 10));
    if (!strcmp(what, "shares"))
        heir_shares(fd, argv[5], atoi(argv[6]), atoi(argv[7]));
    if (!strcmp(what, "edges"))
        heir_edges(fd);
    if (!strcmp(what, "one-shot"))
        heir_one_shot(fd);
    if (!strcmp(what, "level"))
        heir_level(fd);
    if (!strcmp(what, "asleep"))
        heir_asleep(fd);
    if (!strcmp(what, "nested"))
        heir_nested(fd);
    if (!strcmp(what, "forks"))
        heir_forks(fd);
    return 0;
}

static char numbers[6][16];

static char *number(int at, long value)
{
    sprintf(numbers[at], "%ld", value);
    return numbers[at];
}

static void end_peer(void)
{
    int status;
    close(command), close(answer);
    CHECK(wait(&status) > 0 && status == 0);
}

/* This program becomes the one that inherits the connection. */
static void becomes(const char *what, const char *how, uint32_t events)
{
    int fd, status, is_exit = !strcmp(how, "exit");
    printf("%s, %s %x\n", what, how, events);
    fflush(stdout);
    fd = begin_peer();
    pid_t giver = fork();
    if (giver == 0) {
        CHECK(fcntl(command, F_SETFD, 0) == 0 && fcntl(answer, F_SETFD, 0) == 0);
        char *argv[] = {program, (char *)what, number(0, command), number(1, answer), number(2, fd), (char *)how,
                        number(3, events), NULL};
        execv(program, argv);
        _exit(9);
    }
    CHECK(close(fd) == 0);
    CHECK(waitpid(giver, &status, 0) == giver && status == 0);
    if (is_exit)
        printf("the peer got %ld\n", ask('e', 0));
    end_peer();
}

/* A program is started beside this one. */
static void shares(const char *how, int ends)
{
    int fd = begin_peer(), there[2], back[2], unread, status;
    struct pollfd entry = {fd, POLLIN, 0};
    char c;
    pid_t child;
    printf("shares, %s, the end %s\n", how, ends ? "behind it" : "later");
    fflush(stdout);
    if (ends)
        CHECK(ask('w', 0) == 0);
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    char *argv[] = {program, "shares", number(0, command), number(1, answer), number(2, fd), (char *)how,
                    number(3, there[1]), number(4, back[0]), NULL};
    CHECK(fcntl(command, F_SETFD, 0) == 0 && fcntl(answer, F_SETFD, 0) == 0);
    CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
    CHECK(fcntl(command, F_SETFD, FD_CLOEXEC) == 0 && fcntl(answer, F_SETFD, FD_CLOEXEC) == 0);
    CHECK(read(there[0], &c, 1) == 1);
    CHECK(ioctl(fd, FIONREAD, &unread) == 0);
    printf("unread: %d, poll: %d\n", unread, poll(&entry, 1, -1));
    receive(fd, PART, SIZE);
    if (ends)
        CHECK(read(fd, &c, 1) == 0);
    write_all(back[1], "w", 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(fd) == 0);
    printf("the peer got %ld\n", ask('e', 0));
    close(there[0]), close(there[1]), close(back[0]), close(back[1]);
    end_peer();
}

int main(int argc, char **argv)
{
    static const char *const variants[] = {"shutdown", "close", "exit", "fork"};
    if (argc > 1)
        return successor(argv);
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    for (int variant = 0; variant < 4; variant++)
        for (int kind = 0; kind < 4; kind++)
            becomes("ends", variants[variant], kinds[kind]);
    for (int ends = 0; ends < 2; ends++) {
        shares("close", ends);
        shares("keep", ends);
    }
    becomes("edges", "", 0);
    becomes("one-shot", "", 0);
    becomes("level", "", 0);
    becomes("asleep", "", 0);
    becomes("nested", "", 0);
    becomes("forks", "", 0);
    return 0;
}
