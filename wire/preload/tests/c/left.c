/*
 * A connection is closed that others have had as well, with bytes that wait for room since the peer has given its end to
 * another program.
 */
#include "common.h"

enum { MUCH = 100000 };

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

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    unsent(1);
    unsent(0);
    return 0;
}
