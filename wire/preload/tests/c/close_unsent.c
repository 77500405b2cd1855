/*
 * How the peer sees it when a connection is closed that others have had as well: with bytes unread, and with bytes that wait
 * for room since the peer has given its end to another program.
 */
#include "common.h"
#include <dirent.h>
#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

enum { UNREAD = 20000, MUCH = 100000 };

static void start(int how)
{
    pid_t child = -1;
    char *arguments[] = {"true", NULL};
    FILE *stream;
    switch (how) {
    case 0:
        child = fork();
        if (child == 0)
            pause();
        /* Mostly before it has begun. */
        CHECK(kill(child, SIGKILL) == 0);
        break;
    case 1:
        CHECK(system("true") == 0);
        break;
    case 2:
        stream = popen("true", "r");
        CHECK(stream && pclose(stream) == 0);
        break;
    case 3:
        CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
        break;
    default:
        child = how == 4 ? vfork() : fork();
        if (child == 0) {
            execvp("true", arguments);
            _exit(9);
        }
    }
    if (child > 0)
        CHECK(waitpid(child, NULL, 0) == child);
}

static void take_end(const char *what, int fd)
{
    char c;
    ssize_t n = read(fd, &c, 1);
    printf("%s: %s\n", what, n < 0 ? strerrorname_np(errno) : n == 0 ? "the end" : "a byte");
    close(fd);
}

/* In a process of its own: this one is the peer. */
static pid_t hold(int *peer, int *fd)
{
    pair(peer, fd);
    fflush(stdout);
    pid_t holder = fork();
    CHECK(holder >= 0);
    close(holder == 0 ? *peer : *fd);
    return holder;
}

static void unread(int how, size_t taken)
{
    static char bytes[UNREAD];
    int peer, fd, sent[2];
    CHECK(pipe(sent) == 0);
    pid_t holder = hold(&peer, &fd);
    if (holder == 0) {
        read_all(sent[0], bytes, 1);
        start(how);
        read_all(fd, bytes, taken);
        close(fd);
        _exit(0);
    }
    write_all(peer, bytes, sizeof bytes);
    write_all(sent[1], "s", 1);
    printf("%d, %zu: ", how, taken);
    take_end("closed", peer);
    CHECK(waitpid(holder, NULL, 0) == holder);
    close(sent[0]), close(sent[1]);
}

/* The holder becomes a program that does not have it. */
static void unread_by_successor(void)
{
    static char bytes[UNREAD];
    int peer, fd, sent[2], life[2];
    CHECK(pipe(sent) == 0 && pipe(life) == 0);
    pid_t holder = hold(&peer, &fd);
    if (holder == 0) {
        read_all(sent[0], bytes, 1);
        CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && dup2(life[0], 0) == 0 && close(life[1]) == 0);
        execlp("cat", "cat", NULL);
        _exit(9);
    }
    write_all(peer, bytes, sizeof bytes);
    write_all(sent[1], "s", 1);
    take_end("another program", peer);
    close(life[0]), close(life[1]);
    CHECK(waitpid(holder, NULL, 0) == holder);
    close(sent[0]), close(sent[1]);
}

/* A child gives it to a program that is gone soon, closes it, and lives on: the last one to close it does not know that it is. The
   sender makes no call before. */
static void unread_by_the_last(void)
{
    static char bytes[UNREAD];
    int peer, fd, sent[2], closed[2], over[2], life[2];
    char c, *arguments[] = {"true", NULL}, *nothing[] = {NULL};
    CHECK(pipe(sent) == 0 && pipe(closed) == 0 && pipe(over) == 0 && pipe(life) == 0);
    pid_t holder = hold(&peer, &fd), giver;
    if (holder == 0) {
        close(life[1]);
        giver = fork();
        if (giver == 0) {
            pid_t program;
            read_all(sent[0], &c, 1);
            CHECK(posix_spawnp(&program, "true", NULL, NULL, arguments, nothing) == 0);
            CHECK(waitpid(program, NULL, 0) == program && close(fd) == 0);
            write_all(closed[1], "c", 1);
            _exit(read(life[0], &c, 1));
        }
        read_all(closed[0], &c, 1);
        close(fd);
        write_all(over[1], "o", 1);
        CHECK(waitpid(giver, NULL, 0) == giver);
        _exit(0);
    }
    write_all(peer, bytes, sizeof bytes);
    write_all(sent[1], "s", 1);
    read_all(over[0], &c, 1);
    take_end("the last one", peer);
    close(life[0]), close(life[1]), close(over[0]), close(over[1]);
    CHECK(waitpid(holder, NULL, 0) == holder);
    close(sent[0]), close(sent[1]), close(closed[0]), close(closed[1]);
}

/* Gives `fd` to another process, which takes all that the sender has sent. */
static pid_t give(int fd, int go, int expected)
{
    int ends[2];
    char c = 'p', space[CMSG_SPACE(sizeof fd)] = {0};
    static char bytes[MUCH];
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t taker = fork();
    if (taker == 0) {
        close(fd), close(ends[0]);
        CHECK(recvmsg(ends[1], &message, 0) == 1);
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        write_all(fd, "g", 1);
        /* The other end is closed, or waits for room. */
        struct pollfd closed = {go, POLLIN, 0};
        poll(&closed, 1, 100);
        read_all(fd, bytes, expected);
        for (int at = 0; at < expected; at++)
            CHECK(bytes[at] == (char)(at * 2654435761u >> 24));
        printf("all has come\n");
        fflush(stdout);
        _exit(0);
    }
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    CHECK(sendmsg(ends[0], &message, 0) == 1);
    close(ends[0]), close(ends[1]);
    return taker;
}

/* The sender closes what waits for room. Another process may hold it that makes no call. */
static void unsent(int is_held)
{
    static char bytes[MUCH];
    struct sockaddr_in address;
    int listener = listener_on(&address), small = 4608, counts[2], gone[2], life[2], total = 0;
    char c;
    ssize_t n;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(pipe2(counts, O_CLOEXEC) == 0 && pipe2(gone, O_CLOEXEC) == 0 && pipe2(life, O_CLOEXEC) == 0);
    printf("%s:\n", is_held ? "held by another process" : "inherited by a program");
    fflush(stdout);
    pid_t sender = fork();
    if (sender == 0) {
        int fd = accept(listener, NULL, NULL);
        close(life[1]), close(gone[0]);
        warm_up_answering(fd);
        if (is_held && fork() == 0)
            _exit(read(life[0], &c, 1));
        for (int at = 0; at < MUCH; at++)
            bytes[at] = (char)(at * 2654435761u >> 24);
        while (total < MUCH && (n = send(fd, bytes + total, MUCH - total, MSG_DONTWAIT)) > 0)
            total += n;
        write_all(counts[1], &total, sizeof total);
        read_all(fd, &c, 1);
        if (!is_held)
            CHECK(system("true") == 0);
        close(fd);
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    small = 2304;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0 && close(gone[1]) == 0);
    warm_up_asking(fd);
    read_all(counts[0], &total, sizeof total);
    pid_t taker = give(fd, gone[0], total);
    close(fd);
    CHECK(waitpid(taker, NULL, 0) == taker);
    close(life[0]), close(life[1]), close(counts[0]), close(counts[1]), close(gone[0]);
    CHECK(waitpid(sender, NULL, 0) == sender);
}

static void *stay(void *unused)
{
    pause();
    return unused;
}

/* A process that lists no descriptors, because its first thread has ended. It has nothing to do with the connections. */
static pid_t start_without_first_thread(void)
{
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, stay, NULL) == 0);
        syscall(SYS_exit, 0);
    }
    char name[40];
    snprintf(name, sizeof name, "/proc/%d/fd", process);
    for (int listed = 3; listed > 2;) {
        DIR *numbers = opendir(name);
        CHECK(numbers);
        for (listed = 0; readdir(numbers); listed++)
            ;
        closedir(numbers);
    }
    return process;
}

/* A program puts the connection at its standard input for the next one, and closes the other number: it still has it, while the
   peer has bytes to send again for which TCP has no room. */
static void kept_at_another_number(void)
{
    static char bytes[MUCH];
    struct sockaddr_in address;
    int listener = listener_on(&address), small = 4608, counts[2], total = 0;
    ssize_t n;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0 && pipe2(counts, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t sender = fork();
    if (sender == 0) {
        int fd = accept(listener, NULL, NULL);
        warm_up_answering(fd);
        for (int at = 0; at < MUCH; at++)
            bytes[at] = (char)(at * 2654435761u >> 24);
        while (total < MUCH && (n = send(fd, bytes + total, MUCH - total, MSG_DONTWAIT)) > 0)
            total += n;
        write_all(counts[1], &total, sizeof total);
        take_end("the sender", fd);
        fflush(stdout);
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    small = 2304;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0);
    warm_up_asking(fd);
    read_all(counts[0], &total, sizeof total);
    pid_t holder = fork();
    if (holder == 0) {
        CHECK(dup2(fd, 0) == 0 && close(fd) == 0);
        read_all(0, bytes, total);
        for (int at = 0; at < total; at++)
            CHECK(bytes[at] == (char)(at * 2654435761u >> 24));
        _exit(0);
    }
    close(fd);
    CHECK(waitpid(holder, NULL, 0) == holder && waitpid(sender, NULL, 0) == sender);
    close(counts[0]), close(counts[1]);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    pid_t bystander = start_without_first_thread();
    for (int how = 0; how < 6; how++) {
        unread(how, 0);
        unread(how, 100);
        unread(how, UNREAD);
    }
    unread_by_successor();
    unread_by_the_last();
    unsent(1);
    unsent(0);
    kept_at_another_number();
    CHECK(kill(bystander, SIGKILL) == 0 && waitpid(bystander, NULL, 0) == bystander);
    return 0;
}
