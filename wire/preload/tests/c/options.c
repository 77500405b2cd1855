/* Options that do not affect a byte stream keep no connection from the ring. */
#include "common.h"
#include <sched.h>

#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif

static const struct {
    const char *name;
    int number;
} options[] = {
    {"SO_TIMESTAMP", SO_TIMESTAMP}, {"SO_TIMESTAMPNS", SO_TIMESTAMPNS}, {"SO_OOBINLINE", SO_OOBINLINE},
    {"SO_RXQ_OVFL", SO_RXQ_OVFL},   {"SO_RCVMARK", SO_RCVMARK},
};

/* Receives without room for messages; returns the flags. */
static int plainly(int a, int b)
{
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    write_all(a, "x", 1);
    CHECK(recvmsg(b, &message, 0) == 1);
    return message.msg_flags;
}

/* The kernel begins to take time stamps some time later, and from then on reports that there was no room for them. */
static void stamps(int a, int b)
{
    while (plainly(a, b) != MSG_CTRUNC)
        ;
}

/* Before the connection comes to the ring, and afterwards. */
static void harmless(void)
{
    for (size_t at = 0; at < sizeof options / sizeof *options; at++)
        for (int late = 0; late < 2; late++) {
            struct sockaddr_in address;
            int on = 1, fd = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0);
            CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
            int b = accept(fd, NULL, NULL);
            CHECK(b >= 0 && close(fd) == 0);
            if (late)
                warm_up(a, b);
            say(options[at].name, setsockopt(b, SOL_SOCKET, options[at].number, &on, sizeof on));
            warm_up(a, b);
            check_on_ring(a);
            check_on_ring(b);
            /* A call that returns more than bytes returns no messages, or those of the kernel. */
            if (options[at].number == SO_TIMESTAMP || options[at].number == SO_TIMESTAMPNS)
                stamps(a, b);
            else
                CHECK(plainly(a, b) == 0);
            CHECK(close(a) == 0 && close(b) == 0);
        }
}

static void await_unread(int fd, int wanted)
{
    for (int unread = -1; unread < wanted; sched_yield())
        CHECK(ioctl(fd, FIONREAD, &unread) == 0);
}

/* A receive ends before the urgent byte, whichever carrier the bytes before it used. */
static void urgent(int in_line, int variant)
{
    char buf[16];
    int a, b, at_mark;
    struct iovec iov[] = {{buf, 3}, {buf + 3, sizeof buf - 3}};
    printf("urgent, in line %d, variant %d\n", in_line, variant);
    pair(&a, &b);
    CHECK(setsockopt(b, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line) == 0);
    check_on_ring(b);
    write_all(a, "abc", 3);
    await_unread(b, 3);
    CHECK(ioctl(b, SIOCATMARK, &at_mark) == 0 && at_mark == 0);
    CHECK(send(a, "d", 1, MSG_OOB) == 1);
    struct pollfd entry = {b, POLLPRI, 0};
    CHECK(poll(&entry, 1, -1) == 1 && entry.revents == POLLPRI);
    write_all(a, "ef", 2);
    for (int behind = 0; behind < 2; behind++) {
        /* Requests more bytes than there are before the mark. */
        size_t wanted = !behind ? 5 : in_line ? 3 : 2;
        switch (variant) {
        case 0:
            say("recv", recv(b, buf, sizeof buf, 0));
            break;
        case 1:
            say("readv", readv(b, iov, 2));
            break;
        default:
            say("peek", recv(b, buf, sizeof buf, MSG_PEEK));
            say("all", recv(b, buf, wanted, MSG_WAITALL));
        }
        CHECK(ioctl(b, SIOCATMARK, &at_mark) == 0);
        printf("%c, mark %d\n", buf[0], at_mark);
        if (in_line && !behind)
            await_unread(b, 3);
    }
    CHECK(close(a) == 0 && close(b) == 0);
}

int main(void)
{
    harmless();
    for (int in_line = 0; in_line < 2; in_line++)
        for (int variant = 0; variant < 3; variant++)
            urgent(in_line, variant);
    return 0;
}
