/*
 * A connection is handed over to a holder that does not know about the ring while the other end makes no call on it: the other
 * end belongs to this very thread, or its process does something else. Earlier bytes arrive nevertheless, and in order.
 */
#include "common.h"
#include <spawn.h>

extern char **environ;

static void send_fd(int by, int fd)
{
    char c = '!', space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    CHECK(sendmsg(by, &message, 0) == 1);
}

static int receive_fd(int by)
{
    int fd;
    char c, space[CMSG_SPACE(sizeof fd)];
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK(recvmsg(by, &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* A process that prints what it reads from the socket that it is given, until the stream ends. */
static pid_t reader(int by, int reports)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0)
        return child;
    char line[64];
    int fd = receive_fd(by);
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, line + len, len < 5 ? 5 - len : sizeof line - len)) > 0) {
        len += n;
        if (len == 5) {
            printf("the other process reads %.*s\n", (int)len, line);
            write_all(reports, "!", 1);
        }
    }
    printf("in all %.*s, then %zd\n", (int)len, line, n);
    exit(0);
}

static void join(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void to_a_message(void)
{
    int a, b, channel[2], reports[2];
    char c;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0 && pipe(reports) == 0);
    pid_t child = reader(channel[1], reports[1]);
    pair(&a, &b);
    write_all(a, "12345", 5);
    send_fd(channel[0], b);
    CHECK(close(b) == 0);
    read_all(reports[0], &c, 1);
    write_all(a, "678", 3);
    CHECK(close(a) == 0);
    join(child);
}

static void to_a_program(void)
{
    int a, b;
    pair(&a, &b);
    CHECK(fcntl(a, F_SETFD, FD_CLOEXEC) == 0);
    write_all(a, "12345\n", 6);
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, b, 0) == 0);
    char *arguments[] = {"head", "-n", "1", NULL};
    pid_t child;
    CHECK(posix_spawnp(&child, "head", &actions, NULL, arguments, environ) == 0);
    join(child);
    close(a);
    close(b);
}

enum leaving { SENDS, SHUTS, CLOSES, EXITS, LEAVINGS };
static const char *const names[LEAVINGS] = {"sends", "shuts", "closes", "exits"};

/* The other end is a process that waits for something else; then it makes one more call. */
static void from_a_process(enum leaving how)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), channel[2], reports[2], go[2];
    char c;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0 && pipe(reports) == 0 && pipe(go) == 0);
    pid_t second = reader(channel[1], reports[1]);
    pid_t client = fork();
    if (client == 0) {
        int a = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        for (int i = 0; i < 32; i++) {
            write_all(a, "x", 1);
            read_all(a, &c, 1);
        }
        write_all(a, how == EXITS ? "1234" : "12345", how == EXITS ? 4 : 5);
        write_all(reports[1], "!", 1);
        read_all(go[0], &c, 1);
        if (how == SENDS)
            write_all(a, "678", 3);
        if (how == SHUTS)
            CHECK(shutdown(a, SHUT_WR) == 0);
        if (how == CLOSES)
            CHECK(close(a) == 0);
        exit(0);
    }
    int b = accept(listener, NULL, NULL);
    for (int i = 0; i < 32; i++) {
        read_all(b, &c, 1);
        write_all(b, &c, 1);
    }
    read_all(reports[0], &c, 1);
    send_fd(channel[0], b);
    CHECK(close(b) == 0);
    write_all(go[1], "!", 1);
    join(client);
    join(second);
    printf("%s: done\n", names[how]);
}

/* This end reads some bytes after it has given the socket away; the new holder gets the others. */
static void both_read(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), channel[2], reports[2], go[2];
    char c, some[3];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0 && pipe(reports) == 0 && pipe(go) == 0);
    pid_t client = fork();
    if (client == 0) {
        int a = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        for (int i = 0; i < 32; i++) {
            write_all(a, "x", 1);
            read_all(a, &c, 1);
        }
        write_all(a, "12312345", 8);
        write_all(reports[1], "!", 1);
        read_all(go[0], &c, 1);
        exit(0);
    }
    int b = accept(listener, NULL, NULL);
    for (int i = 0; i < 32; i++) {
        read_all(b, &c, 1);
        write_all(b, &c, 1);
    }
    read_all(reports[0], &c, 1);
    send_fd(channel[0], b);
    struct pollfd entry = {.fd = b, .events = POLLIN};
    CHECK(poll(&entry, 1, -1) == 1 && entry.revents == POLLIN);
    read_all(b, some, 3);
    int unread = -1;
    CHECK(ioctl(b, FIONREAD, &unread) == 0);
    printf("this process reads %.3s and leaves %d\n", some, unread);
    pid_t second = reader(channel[1], reports[1]);
    CHECK(close(b) == 0);
    write_all(go[1], "!", 1);
    join(client);
    join(second);
}

/* The new holder is the process that has the other end, and waits there. */
static void back_to_its_peer(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), channel[2];
    char c, got[5];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pid_t client = fork();
    if (client == 0) {
        int a = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        for (int i = 0; i < 32; i++) {
            write_all(a, "x", 1);
            read_all(a, &c, 1);
        }
        write_all(a, "12345", 5);
        int b = receive_fd(channel[1]);
        read_all(b, got, 5);
        printf("its own %.5s\n", got);
        exit(0);
    }
    int b = accept(listener, NULL, NULL);
    for (int i = 0; i < 32; i++) {
        read_all(b, &c, 1);
        write_all(b, &c, 1);
    }
    int unread = 0;
    while (unread < 5)
        CHECK(ioctl(b, FIONREAD, &unread) == 0);
    send_fd(channel[0], b);
    join(client);
    close(b);
}

int main(void)
{
    to_a_message();
    to_a_program();
    for (enum leaving how = SENDS; how < LEAVINGS; how++)
        from_a_process(how);
    both_read();
    back_to_its_peer();
    return 0;
}
