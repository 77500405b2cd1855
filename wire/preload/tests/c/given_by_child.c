/*
 * A child gives a connection to a program and ends. The process that it has the connection from closes it next: the program
 * receives what was unread, and ends while the peer has no room for all of its answer, whether it got the connection by exec or
 * in a message that it has not received yet. A program that ends its own direction goes on receiving.
 */
#include "common.h"

enum { UNREAD = 20000, ANSWER = 150000 };
enum way { BY_EXEC, BY_VFORK, IN_MESSAGE, WAYS };

/* Waits until it is told to go on. */
static char *arguments[] = {
    "sh", "-c", "{ read word <&8; head -c $0 <&9 | wc -c >&8; head -c 150000 /dev/zero >&9; } &", NULL, NULL};

static void send_fd(int mailbox, int fd)
{
    char c = 'p', space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    CHECK(sendmsg(mailbox, &message, 0) == 1);
}

static int receive_fd(int mailbox)
{
    char c, space[CMSG_SPACE(sizeof(int))];
    int fd;
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK(recvmsg(mailbox, &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void give(enum way way, int fd, int mailbox)
{
    pid_t child = way == BY_VFORK ? vfork() : fork();
    if (child == 0) {
        if (way == IN_MESSAGE) {
            send_fd(mailbox, fd);
            _exit(0);
        }
        execv("/bin/sh", arguments);
        _exit(9);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Receives the connection once it is told to go on. */
static void take(int mailbox, int job, size_t unread)
{
    static char bytes[ANSWER];
    char c;
    read_all(job, &c, 1);
    int fd = receive_fd(mailbox);
    read_all(fd, bytes, unread);
    dprintf(job, "%zu\n", unread);
    write_all(fd, bytes, sizeof bytes);
    _exit(0);
}

static void go_on(enum way way, size_t before, size_t later)
{
    static char bytes[UNREAD];
    struct sockaddr_in address;
    int peer, mailbox[2], job[2], turn[2], small = 2304, large = 200000;
    char text[16] = "", c;
    size_t total = 0;
    ssize_t n;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, job) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, turn) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, mailbox) == 0);
    int listener = listener_on(&address);
    CHECK(job[0] < 8 && mailbox[0] < 8);
    fflush(stdout);
    pid_t taker = fork();
    if (taker == 0) {
        close(job[1]);
        if (way == IN_MESSAGE)
            take(mailbox[1], job[0], before + later);
        _exit(0);
    }
    pid_t holder = fork();
    if (holder == 0) {
        int fd = accept(listener, NULL, NULL);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large) == 0);
        warm_up_answering(fd);
        read_all(turn[0], &c, 1);
        CHECK(dup2(job[0], 8) == 8 && dup2(fd, 9) == 9 && close(fd) == 0);
        snprintf(text, sizeof text, "%zu", before + later);
        arguments[3] = text;
        give(way, 9, mailbox[0]);
        write_all(turn[0], "g", 1);
        read_all(turn[0], &c, 1);
        /* If bytes were unread before, the program may take them first. */
        for (int unread = 0; before == 0 && (size_t)unread < later; sched_yield())
            CHECK(ioctl(9, FIONREAD, &unread) == 0);
        CHECK(close(9) == 0);
        _exit(0);
    }
    peer = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(connect(peer, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0);
    warm_up_asking(peer);
    CHECK(taker > 0 && holder > 0 && close(job[0]) == 0 && close(mailbox[1]) == 0);
    write_all(peer, bytes, before);
    write_all(turn[1], "s", 1);
    read_all(turn[1], &c, 1);
    write_all(peer, bytes, later);
    write_all(turn[1], "s", 1);
    CHECK(waitpid(holder, NULL, 0) == holder);
    write_all(job[1], "\n", 1);
    CHECK(read(job[1], text, sizeof text) > 0 && read(job[1], &c, 1) == 0);
    while ((n = read(peer, bytes, sizeof bytes)) > 0)
        total += n;
    printf("way %d: %zu unread and %zu later, the job received %sthe peer received %zu and %s\n", way, before, later, text,
           total, n == 0 ? "the end" : strerrorname_np(errno));
    CHECK(waitpid(taker, NULL, 0) == taker);
    close(peer), close(mailbox[0]), close(job[1]), close(turn[0]), close(turn[1]);
}

struct sender {
    int fd;
    size_t size;
};

static void *send_zeros(void *argument)
{
    struct sender *sender = argument;
    char *bytes = calloc(1, sender->size);
    write_all(sender->fd, bytes, sender->size);
    free(bytes);
    return NULL;
}

/* The process that gave the connection away is gone when the program ends its direction, and the peer has not sent everything again yet. */
static void ended_but_still_read(void)
{
    static char bytes[65536];
    struct sockaddr_in address;
    int mailbox[2], job[2], gone[2], small = 20000, unread = 0;
    char text[32] = "", c;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, job) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, mailbox) == 0 && pipe(gone) == 0);
    int listener = listener_on(&address);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    fflush(stdout);
    pid_t taker = fork();
    if (taker == 0) {
        size_t total = 0;
        ssize_t n;
        close(gone[1]), close(listener);
        int fd = receive_fd(mailbox[1]);
        CHECK(read(gone[0], &c, 1) == 0 && shutdown(fd, SHUT_WR) == 0);
        read_all(job[0], &c, 1);
        while ((n = read(fd, bytes, sizeof bytes)) > 0)
            total += n;
        dprintf(job[0], "%zu, %s", total, n == 0 ? "the end" : strerrorname_np(errno));
        _exit(0);
    }
    pid_t holder = fork();
    if (holder == 0) {
        int fd = accept(listener, NULL, NULL);
        warm_up_answering(fd);
        for (; unread < 1000; sched_yield())
            CHECK(ioctl(fd, FIONREAD, &unread) == 0);
        send_fd(mailbox[0], fd);
        _exit(0);
    }
    struct sender sender = {socket(AF_INET, SOCK_STREAM, 0), 400000};
    pthread_t thread;
    CHECK(taker > 0 && holder > 0 && close(gone[1]) == 0);
    CHECK(setsockopt(sender.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(connect(sender.fd, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0);
    warm_up_asking(sender.fd);
    CHECK(pthread_create(&thread, NULL, send_zeros, &sender) == 0);
    say("the program has ended its direction", read(sender.fd, &c, 1));
    write_all(job[1], "g", 1);
    CHECK(pthread_join(thread, NULL) == 0 && close(sender.fd) == 0);
    CHECK(read(job[1], text, sizeof text - 1) > 0);
    printf("it received %s\n", text);
    CHECK(waitpid(taker, NULL, 0) == taker && waitpid(holder, NULL, 0) == holder);
    close(job[0]), close(job[1]), close(mailbox[0]), close(mailbox[1]), close(gone[0]);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (enum way way = 0; way < WAYS; way++) {
        go_on(way, 0, 0);
        go_on(way, 0, UNREAD);
        go_on(way, UNREAD, UNREAD);
    }
    ended_but_still_read();
    return 0;
}
