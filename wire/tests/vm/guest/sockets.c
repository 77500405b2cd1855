/*
 * Uses of TCP that carriers between machines often get wrong.
 *
 *   sockets answer ADDRESS PORT WORD        listens, writes "listening ADDRESS PORT", gives WORD to everyone
 *   sockets ask ADDRESS PORT                writes what it gets, or the error of its call
 *   sockets echo ADDRESS PORT               listens, writes "listening ADDRESS PORT", sends back what comes
 *   sockets hold ADDRESS PORT MS FIFO       talks with such a one, writes "talked"; when a line comes out of FIFO,
 *                                           talks again and writes how that ended. What is not acknowledged for
 *                                           MS milliseconds is lost (TCP_USER_TIMEOUT)
 *   sockets wait ADDRESS PORT               as hold, but waits for bytes
 *   sockets gather ADDRESS PORT             as echo, but one process has all connections, and ends with the last one
 *   sockets crowd ADDRESS PORT N FIFO       has N connections with such a one; talks by all of them, again and again,
 *                                           until a line comes out of FIFO; writes "connected", and how often it was
 *   sockets fork ADDRESS PORT               talks with such a one, writes "talked"; has a child do so by the same
 *                                           connection, then talks again
 *   sockets interrupted ADDRESS PORT N      exchanges with such a one, then waits N times in vain until a signal comes, and
 *                                           exchanges again; writes how many of them the first signal has ended
 *   sockets during_accept                   asks for the name of a listener while another thread accepts there
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* More exchanges than after which a connection is taken to be worth something. */
#define EXCHANGES 50

static struct sockaddr_in address(const char *host, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};

    if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
        errx(2, "no address: %s", host);
    return a;
}

static struct sockaddr_in name_of(int fd)
{
    struct sockaddr_in a;
    socklen_t size = sizeof(a);

    if (getsockname(fd, (struct sockaddr *)&a, &size))
        err(1, "getsockname");
    return a;
}

static int listener(const char *host, const char *port)
{
    struct sockaddr_in a = address(host, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* Connections of a server before it may be remembered. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) || bind(fd, (struct sockaddr *)&a, sizeof(a)))
        err(1, "bind");
    struct sockaddr_in bound = name_of(fd);
    if (listen(fd, SOMAXCONN))
        err(1, "listen");
    a = name_of(fd);
    if (a.sin_port != bound.sin_port || a.sin_port == 0)
        errx(1, "port %d after bind, %d after listen", ntohs(bound.sin_port), ntohs(a.sin_port));
    printf("listening %s %d\n", host, ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

/* Ends the program with the name of the error, as output. */
static void ended(const char *call)
{
    printf("%s: %s\n", call, strerrorname_np(errno));
    exit(0);
}

static int connected(const char *host, const char *port)
{
    struct sockaddr_in a = address(host, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        err(1, "socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)))
        ended("connect");
    return fd;
}

/* Each connection in a process of its own. */
static void serve(int fd, const char *word)
{
    char bytes[4096];

    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int one = accept(fd, NULL, NULL);
        if (one < 0)
            err(1, "accept");
        if (fork() == 0) {
            if (word)
                exit(send(one, word, strlen(word), MSG_NOSIGNAL) < 0);
            ssize_t n;
            while ((n = recv(one, bytes, sizeof(bytes), 0)) > 0)
                if (send(one, bytes, n, MSG_NOSIGNAL) != n)
                    break;
            exit(0);
        }
        close(one);
    }
}

/* All connections in this process. */
static void gather(int listening)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening};
    int set = epoll_create1(EPOLL_CLOEXEC), there = 0;
    char bytes[4096];

    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, listening, &event))
        err(1, "epoll");
    for (;;) {
        int count = epoll_wait(set, &event, 1, -1);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            break;
        int fd = event.data.fd;
        if (fd == listening) {
            event.data.fd = accept(listening, NULL, NULL);
            if (event.data.fd < 0 || epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event))
                err(1, "accept");
            there++;
            continue;
        }
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        if (n > 0 && send(fd, bytes, n, MSG_NOSIGNAL) == n)
            continue;
        close(fd);
        if (--there == 0)
            return;
    }
    err(1, "epoll_wait");
}

static void ask(const char *host, const char *port)
{
    int fd = connected(host, port);
    char bytes[256];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        fwrite(bytes, 1, n, stdout);
    if (n < 0)
        ended("recv");
    puts("");
}

static void receive(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    if (n < 0)
        ended("recv");
    if (n == 0) {
        puts("recv: end");
        exit(0);
    }
}

static void exchange(int fd)
{
    if (send(fd, "x", 1, MSG_NOSIGNAL) != 1)
        ended("send");
    receive(fd);
}

static int talked(const char *host, const char *port)
{
    int fd = connected(host, port);

    for (int i = 0; i < EXCHANGES; i++)
        exchange(fd);
    puts("talked");
    fflush(stdout);
    return fd;
}

static void hold(const char *host, const char *port, unsigned int ms, const char *fifo)
{
    int fd = talked(host, port);

    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)))
        err(1, "TCP_USER_TIMEOUT");
    FILE *go = fopen(fifo, "re");
    if (!go || fgetc(go) == EOF)
        err(1, "%s", fifo);
    exchange(fd);
    puts("talked again");
}

static void crowd(const char *host, const char *port, int count, const char *fifo)
{
    struct pollfd go = {.fd = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC), .events = POLLIN};
    int *fds = calloc(count, sizeof(*fds));
    unsigned int rounds = 0;

    if (go.fd < 0 || !fds)
        err(1, "%s", fifo);
    for (int i = 0; i < count; i++)
        fds[i] = connected(host, port);
    puts("connected");
    fflush(stdout);
    while (poll(&go, 1, 0) == 0) {
        /* All of them are asked before the first one is answered. */
        for (int i = 0; i < count; i++)
            if (send(fds[i], "x", 1, MSG_NOSIGNAL) != 1)
                ended("send");
        for (int i = 0; i < count; i++)
            receive(fds[i]);
        rounds++;
    }
    printf("%u answers by each of %d\n", rounds, count);
}

static void talk_after_fork(int fd)
{
    int status;
    pid_t child = fork();

    for (int i = 0; child == 0 && i < EXCHANGES; i++)
        exchange(fd);
    if (child == 0)
        exit(3);
    if (child < 0 || waitpid(child, &status, 0) != child)
        err(1, "fork");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
        errx(1, "the child has ended with status %d", status);
    for (int i = 0; i < EXCHANGES; i++)
        exchange(fd);
    puts("talked after a fork");
}

static void heard(int signal)
{
    (void)signal;
}

static void interrupted(int fd, int times)
{
    const struct sigaction action = {.sa_handler = heard};
    const struct itimerval never = {0};
    int at_once = 0;
    char byte;

    if (sigaction(SIGALRM, &action, NULL))
        err(1, "sigaction");
    for (int i = 0; i < times; i++) {
        struct timespec before, after;
        /* One that comes before recv() is followed by another one, much later. */
        struct itimerval timer = {.it_value.tv_usec = 1000 + i % 8 * 500, .it_interval.tv_sec = 2};
        clock_gettime(CLOCK_MONOTONIC, &before);
        if (setitimer(ITIMER_REAL, &timer, NULL))
            err(1, "setitimer");
        if (recv(fd, &byte, 1, 0) != -1 || errno != EINTR)
            err(1, "a signal did not end recv()");
        clock_gettime(CLOCK_MONOTONIC, &after);
        setitimer(ITIMER_REAL, &never, NULL);
        at_once += after.tv_sec - before.tv_sec < 2;
        exchange(fd);
    }
    printf("%d of %d waits ended by the first signal\n", at_once, times);
}

static volatile long accepting;

static void *accept_one(void *fd)
{
    accepting = syscall(SYS_gettid);
    return (void *)(intptr_t)accept((int)(intptr_t)fd, NULL, NULL);
}

/* The state of a thread, as in /proc. */
static char state(long thread)
{
    char path[64], letter = '?';

    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", thread);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &letter) != 1)
        err(1, "%s", path);
    fclose(file);
    return letter;
}

static void during_accept(void)
{
    int fd = listener("0.0.0.0", "0");
    pthread_t thread;
    void *accepted;
    char port[16];

    if (pthread_create(&thread, NULL, accept_one, (void *)(intptr_t)fd))
        errx(1, "no thread");
    while (!accepting || state(accepting) != 'S')
        sched_yield();
    snprintf(port, sizeof(port), "%d", ntohs(name_of(fd).sin_port));
    printf("named %s\n", port);
    int client = connected("127.0.0.1", port);
    pthread_join(thread, &accepted);
    struct sockaddr_in a = name_of((int)(intptr_t)accepted);
    printf("accepted %d\n", ntohs(a.sin_port));
    close(client);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "answer") && argc == 5)
        serve(listener(argv[2], argv[3]), argv[4]);
    else if (!strcmp(what, "echo") && argc == 4)
        serve(listener(argv[2], argv[3]), NULL);
    else if (!strcmp(what, "gather") && argc == 4)
        gather(listener(argv[2], argv[3]));
    else if (!strcmp(what, "crowd") && argc == 6)
        crowd(argv[2], argv[3], atoi(argv[4]), argv[5]);
    else if (!strcmp(what, "ask") && argc == 4)
        ask(argv[2], argv[3]);
    else if (!strcmp(what, "hold") && argc == 6)
        hold(argv[2], argv[3], atoi(argv[4]), argv[5]);
    else if (!strcmp(what, "wait") && argc == 4)
        receive(talked(argv[2], argv[3]));
    else if (!strcmp(what, "fork") && argc == 4)
        talk_after_fork(talked(argv[2], argv[3]));
    else if (!strcmp(what, "interrupted") && argc == 5)
        interrupted(talked(argv[2], argv[3]), atoi(argv[4]));
    else if (!strcmp(what, "during_accept"))
        during_accept();
    else
        errx(2, "no such command");
    return 0;
}
