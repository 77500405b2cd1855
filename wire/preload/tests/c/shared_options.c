/*
 * O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT, TCP_INQ and SO_TIMESTAMP belong to the socket: another process that has it may set
 * them, and the next calls of this process follow them.
 */
#include "common.h"

/* Makes one call in a child, on a socket that it shares with this process; done when this returns. */
static void in_child(int fd, void (*work)(int))
{
    pid_t child = fork();
    int status;
    CHECK(child >= 0);
    if (child == 0) {
        work(fd);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void nonblocking(int fd)
{
    set_nonblocking(fd, 1);
}

static void blocking(int fd)
{
    set_nonblocking(fd, 0);
}

static void nonblocking_by_ioctl(int fd)
{
    CHECK(ioctl(fd, FIONBIO, &(int){1}) == 0);
}

static void set_timeouts(int fd, long microseconds)
{
    struct timeval limit = {0, microseconds};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
}

static void limited(int fd)
{
    set_timeouts(fd, 60000);
}

static void unlimited(int fd)
{
    set_timeouts(fd, 0);
}

static void many(int fd)
{
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){5}, sizeof(int)) == 0);
}

static void one(int fd)
{
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int)) == 0);
}

static void tells(int fd)
{
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){1}, sizeof(int)) == 0);
}

static void tells_not(int fd)
{
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){0}, sizeof(int)) == 0);
}

static void request_timestamps(int fd)
{
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &(int){1}, sizeof(int)) == 0);
}

/* Receives one byte; returns the type of the message that came with it, or -1. */
static int receive_control(int b, int *value)
{
    char buf[1], control[128];
    struct iovec iov = {buf, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(b, &message, 0) == 1);
    struct cmsghdr *at = CMSG_FIRSTHDR(&message);
    if (at)
        memcpy(value, CMSG_DATA(at), sizeof *value);
    return at ? at->cmsg_type : -1;
}

/* The messages that come with the bytes. */
static void messages(int a, int b)
{
    int unread = -1;
    write_all(a, "1234", 4);
    for (int there = 0; there < 4;)
        CHECK(ioctl(b, FIONREAD, &there) == 0);
    printf("nothing: %d\n", receive_control(b, &unread));
    in_child(b, tells);
    printf("TCP_INQ: %d\n", receive_control(b, &unread));
    printf("unread: %d\n", unread);
    in_child(b, tells_not);
    printf("nothing: %d\n", receive_control(b, &unread));
    printf("nothing: %d\n", receive_control(b, &unread));
    in_child(b, request_timestamps);
    /* The kernel begins to take time stamps some time later. */
    do
        write_all(a, "x", 1);
    while (receive_control(b, &unread) < 0);
    write_all(a, "x", 1);
    printf("SO_TIMESTAMP: %d\n", receive_control(b, &unread));
}

/* All calls that may wait, in vain. */
static void in_vain(int a, int b)
{
    char buf[16] = "";
    struct iovec iov = {buf, sizeof buf};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    say("recv", recv(b, buf, 1, 0));
    say("read", read(b, buf, 1));
    say("readv", readv(b, &iov, 1));
    say("recvmsg", recvmsg(b, &message, 0));
    say("peek", recv(b, buf, 1, MSG_PEEK));
    write_all(a, "ab", 2);
    for (int there = 0; there < 2;)
        CHECK(ioctl(b, FIONREAD, &there) == 0);
    say("a part", recv(b, buf, 3, MSG_WAITALL));
    /* The amount of room changes. */
    size_t room = fill(b);
    ssize_t n;
    while ((n = send(b, buf, 1, 0)) > 0)
        room += n;
    say("send", n);
    while ((n = write(b, buf, 1)) > 0)
        room += n;
    say("write", n);
    while ((n = sendmsg(b, &message, 0)) > 0)
        room += n;
    say("sendmsg", n);
    drain(a, room);
}

/* Another process answers once this one sleeps. */
static void waits(int a, int b, const char *what)
{
    char buf[4];
    struct later later;
    do_later(&later, write_byte, &a);
    say(what, recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);
}

int main(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    printf("O_NONBLOCK\n");
    in_child(b, nonblocking);
    in_vain(a, b);
    in_child(b, blocking);
    waits(a, b, "waits again");
    in_child(b, nonblocking_by_ioctl);
    in_vain(a, b);
    in_child(b, blocking);
    waits(a, b, "waits once more");
    CHECK(close(a) == 0 && close(b) == 0);
    pair(&a, &b);
    printf("time\n");
    in_child(b, limited);
    in_vain(a, b);
    in_child(b, unlimited);
    waits(a, b, "waits for ever");
    printf("low water\n");
    in_child(b, many);
    struct pollfd entry = {b, POLLIN, 0};
    write_all(a, "1234", 4);
    for (int there = 0; there < 4;)
        CHECK(ioctl(b, FIONREAD, &there) == 0);
    /* More bytes than this process has asked for. */
    char four[4];
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    int set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    say("poll for five", poll(&entry, 1, 0));
    say("epoll_wait for five", epoll_wait(set, &event, 1, 0));
    say("five at once", recv(b, four, 4, MSG_DONTWAIT | MSG_PEEK));
    close(set);
    in_child(b, one);
    say("poll", poll(&entry, 1, -1));
    /* Set by this process, so that it knows. */
    many(b);
    in_child(b, one);
    say("poll knows", poll(&entry, 1, -1));
    say("four are enough", recv(b, buf, sizeof buf, 0));
    many(b);
    in_child(b, one);
    waits(a, b, "one is enough");
    in_child(b, nonblocking);
    CHECK(close(a) == 0);
    CHECK(poll(&entry, 1, -1) == 1);
    say("the end", recv(b, buf, sizeof buf, 0));
    CHECK(close(b) == 0);
    pair(&a, &b);
    messages(a, b);
    return 0;
}
