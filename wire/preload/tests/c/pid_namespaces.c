/*
 * Two ends that cannot see whether the other's process is alive: each is in a PID namespace of its own. Before that, one end
 * whose holders are in two such namespaces, and one whose last holder ends in another one with bytes unread.
 */
#include "common.h"
#include <sched.h>

enum { BYTES = 12 << 20, PIECE = 1 << 20, UNREAD = 20000 };

static int talk_to(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    for (int i = 0; i < 32; i++) {
        char c = i;
        write_all(fd, &c, 1);
        read_all(fd, &c, 1);
    }
    check_on_ring(fd);
    return fd;
}

static int hear(int listener)
{
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    for (int i = 0; i < 32; i++) {
        char c;
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    check_on_ring(fd);
    return fd;
}

/* Passes a connection with unread bytes on to another program, which gets them from the kernel alone. */
static void hand_over(const struct sockaddr_in *address)
{
    int fd = talk_to(address);
    for (int there = 0; there < UNREAD;)
        CHECK(ioctl(fd, FIONREAD, &there) == 0);
    CHECK(dup2(fd, 0) == 0);
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", "head -c 20000 | cksum", NULL);
    _exit(127);
}

/* Ends its direction, and reads so slowly that the sender has to wait again and again. */
static void receive_slowly(const struct sockaddr_in *address)
{
    static char piece[PIECE];
    unsigned long total = 0, sum = 0;
    int fd = talk_to(address);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    for (;;) {
        ssize_t n = recv(fd, piece, sizeof piece, MSG_WAITALL);
        CHECK(n >= 0);
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            sum = sum * 31 + (unsigned char)piece[i];
        total += n;
        CHECK(poll(NULL, 0, 150) == 0);
    }
    printf("received: %lu, %lx\n", total, sum);
    close(fd);
}

/* A child in another namespace closes its copy, with bytes unread, and this process goes on. */
static void share(void)
{
    static char bytes[UNREAD];
    int a, b, status;
    pair(&a, &b);
    write_all(a, bytes, sizeof bytes);
    fflush(stdout);
    pid_t parent = fork();
    if (parent == 0) {
        close(a);
        if (unshare(CLONE_NEWPID) != 0)
            CHECK(errno == EPERM);
        pid_t child = fork();
        if (child == 0) {
            write_all(b, "child", 5);
            close(b);
            _exit(0);
        }
        CHECK(waitpid(child, NULL, 0) == child);
        read_all(b, bytes, sizeof bytes);
        write_all(b, "parent", 6);
        close(b);
        _exit(0);
    }
    close(b);
    read_all(a, bytes, 11);
    printf("both: %.11s\n", bytes);
    say("the end of both", read(a, bytes, 1));
    close(a);
    CHECK(waitpid(parent, &status, 0) == parent);
    say("the parent", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* A process in another namespace ends with bytes unread. */
static void leave_unread(void)
{
    static char bytes[UNREAD];
    int a, b, sent[2];
    char c;
    pair(&a, &b);
    CHECK(pipe(sent) == 0);
    fflush(stdout);
    pid_t parent = fork();
    if (parent == 0) {
        close(a);
        if (unshare(CLONE_NEWPID) != 0)
            CHECK(errno == EPERM);
        pid_t child = fork();
        if (child == 0)
            _exit(read(sent[0], &c, 1) != 1);
        CHECK(close(b) == 0 && waitpid(child, NULL, 0) == child);
        _exit(0);
    }
    close(b);
    write_all(a, bytes, sizeof bytes);
    write_all(sent[1], "s", 1);
    say("the end of unread bytes", read(a, &c, 1));
    CHECK(close(a) == 0 && close(sent[0]) == 0 && close(sent[1]) == 0 && waitpid(parent, NULL, 0) == parent);
}

int main(void)
{
    static char bytes[BYTES];
    struct sockaddr_in address;
    char c;
    share();
    leave_unread();
    int listener = listener_on(&address), fd, status;
    /* If this is not allowed, they see each other. */
    if (unshare(CLONE_NEWPID) != 0)
        CHECK(errno == EPERM);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(listener) == 0);
        receive_slowly(&address);
        hand_over(&address);
    }
    fd = hear(listener);
    say("its end", recv(fd, &c, 1, 0));
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i * 2654435761u >> 11;
    write_all(fd, bytes, sizeof bytes);
    CHECK(close(fd) == 0);
    fd = hear(listener);
    write_all(fd, bytes, UNREAD);
    /* The other end sends it again while this one waits. */
    say("the end of who took over", recv(fd, &c, 1, 0));
    CHECK(close(fd) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    say("the receiver", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
