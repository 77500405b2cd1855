/* The kernel's information besides the bytes: control messages, and options that control them. */
#include "common.h"
#include <linux/sockios.h>

#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef TCP_ZEROCOPY_RECEIVE
#define TCP_ZEROCOPY_RECEIVE 35
#endif
#ifndef TCP_INQ
#define TCP_INQ 36
#endif

static char control[256];

/* Receives, and prints the messages that came along; returns the type of the last one. */
static int receive(int fd, size_t len, int flags, size_t room)
{
    char buf[64];
    struct iovec iov = {buf, len};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room ? control : NULL, .msg_controllen = room, .msg_flags = 99};
    int type = -1;
    memset(control, 0x55, sizeof control);
    say("recvmsg", recvmsg(fd, &message, flags));
    printf("flags %x, %d bytes of control messages\n", (unsigned)message.msg_flags, (int)message.msg_controllen);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        int value = -1;
        if (at->cmsg_len >= CMSG_LEN(sizeof value))
            memcpy(&value, CMSG_DATA(at), sizeof value);
        if (at->cmsg_level == IPPROTO_TCP)
            printf("level %d type %d length %d: %d\n", at->cmsg_level, at->cmsg_type, (int)at->cmsg_len, value);
        type = at->cmsg_type;
    }
    return type;
}

static void unread(int a, int b)
{
    int on = 1;
    char buf[16];
    write_all(a, "0123456789", 10);
    CHECK(recv(b, buf, 10, MSG_PEEK | MSG_WAITALL) == 10);
    say("TCP_INQ of three", setsockopt(b, IPPROTO_TCP, TCP_INQ, &(int){3}, sizeof on));
    say("TCP_INQ", setsockopt(b, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
    receive(b, 3, 0, sizeof control);
    receive(b, 2, MSG_PEEK, sizeof control);
    receive(b, 1, MSG_TRUNC, sizeof control);
    for (size_t room = 0; room < CMSG_SPACE(sizeof(int)) + 2; room++) {
        printf("room for %d\n", (int)room);
        receive(b, 1, MSG_PEEK, room);
    }
    receive(b, 6, 0, sizeof control);
    receive(b, 6, MSG_DONTWAIT, sizeof control);
    on = 0;
    say("no TCP_INQ", setsockopt(b, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
    write_all(a, "ab", 2);
    receive(b, 2, MSG_WAITALL, sizeof control);
    on = 1;
    CHECK(setsockopt(b, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    write_all(a, "cde", 3);
    CHECK(shutdown(a, SHUT_WR) == 0);
    struct pollfd entry = {b, POLLRDHUP, 0};
    CHECK(poll(&entry, 1, -1) == 1 && recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
    receive(b, 2, 0, sizeof control);
    receive(b, 1, 0, sizeof control);
    receive(b, 1, 0, sizeof control);
}

/* The kernel begins to take time stamps some time later. */
static void times(int a, int b, const char *what)
{
    char c;
    int type;
    say(what, setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &(int){1}, sizeof(int)));
    do {
        struct iovec iov = {&c, 1};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        write_all(a, "x", 1);
        CHECK(recvmsg(b, &message, 0) == 1 && c == 'x');
        type = -1;
        for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
            type = at->cmsg_level == SOL_SOCKET ? at->cmsg_type : type;
    } while (type < 0);
    printf("type %d\n", type);
    write_all(b, "y", 1);
    read_all(a, &c, 1);
}

static void late(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    write_all(a, "01234", 5);
    CHECK(recv(b, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    CHECK(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &(int){1}, sizeof(int)) == 0);
    say("what had come before", recv(b, buf, sizeof buf, 0));
    times(a, b, "SO_TIMESTAMP");
    CHECK(close(a) == 0 && close(b) == 0);
}

/* Options of the listener, set before and after it begins to listen. */
static void inherited(void)
{
    struct sockaddr_in address;
    int fd = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){1}, sizeof(int)) == 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    int b = accept(fd, NULL, NULL);
    CHECK(b >= 0);
    warm_up(a, b);
    write_all(a, "0123456789", 10);
    receive(b, 10, MSG_WAITALL, sizeof control);
    CHECK(close(a) == 0 && close(b) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &(int){1}, sizeof(int)) == 0);
    a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    b = accept(fd, NULL, NULL);
    CHECK(b >= 0 && close(fd) == 0);
    warm_up(a, b);
    times(a, b, "asked for again");
    CHECK(close(a) == 0 && close(b) == 0);
}

/* The kernel checks the control messages of a send. */
static void sent(int a, int b)
{
    char buf[16], data[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {"abc", 3};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = data, .msg_controllen = sizeof data};
    struct cmsghdr *at = CMSG_FIRSTHDR(&message);
    *at = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = 9999};
    say("an unknown message", sendmsg(a, &message, 0));
    at->cmsg_type = SO_TIMESTAMPING;
    say("a known one", sendmsg(a, &message, 0));
    say("received", recv(b, buf, 3, MSG_WAITALL));
    message.msg_control = (void *)1;
    say("a bad one", sendmsg(a, &message, 0));
    say("nothing came", recv(b, buf, 3, MSG_DONTWAIT));
}

/* Makes the kernel transform the bytes, if it can; earlier bytes are not affected. */
static void upper(int a, int b)
{
    char buf[16] = "";
    write_all(a, "01234", 5);
    CHECK(recv(b, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    /* Whether it can depends on the kernel. */
    setsockopt(b, IPPROTO_TCP, TCP_ULP, "tls", 3);
    say("before", recv(b, buf, 5, MSG_WAITALL));
    for (int i = 0; i < 3; i++) {
        write_all(a, "abc", 3);
        say("there", recv(b, buf, 3, MSG_WAITALL));
        write_all(b, "de", 2);
        say("and back", recv(a, buf, 2, MSG_WAITALL));
    }
    say("no such thing", setsockopt(b, IPPROTO_TCP, TCP_ULP, "nothing", 7));
}

/* From linux/tcp.h. */
struct mapped {
    uint64_t address;
    uint32_t length, recv_skip_hint, inq;
    int32_t err;
    uint64_t copybuf_address;
    int32_t copybuf_len;
    uint32_t flags;
};

static void mapped(int a, int b)
{
    char buf[16] = "";
    struct mapped ask = {.length = 65536};
    socklen_t len = sizeof ask;
    write_all(a, "01234", 5);
    CHECK(recv(b, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    say("TCP_ZEROCOPY_RECEIVE", getsockopt(b, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &ask, &len));
    printf("%u mapped, %u to be received, %u there\n", ask.length, ask.recv_skip_hint, ask.inq);
    len = 4;
    say("too small", getsockopt(b, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &ask, &len));
    len = sizeof ask;
    say("nowhere", getsockopt(b, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, (void *)1, &len));
    say("no length", getsockopt(b, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &ask, (void *)1));
    say("received", recv(b, buf, sizeof buf, 0));
    printf("%s\n", buf);
}

/* Asks whether the urgent byte is the next one. */
static void mark(void)
{
    int a, b, at = -1;
    char buf[16] = "";
    pair(&a, &b);
    write_all(a, "01234", 5);
    CHECK(recv(b, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    CHECK(send(a, "u", 1, MSG_OOB) == 1);
    struct pollfd entry = {b, POLLPRI, 0};
    CHECK(poll(&entry, 1, -1) == 1);
    say("SIOCATMARK before", ioctl(b, SIOCATMARK, &at));
    printf("%d\n", at);
    say("before", recv(b, buf, sizeof buf, 0));
    say("SIOCATMARK", ioctl(b, SIOCATMARK, &at));
    printf("%d\n", at);
    say("urgent", recv(b, buf, 1, MSG_OOB));
    CHECK(close(a) == 0 && close(b) == 0);
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    unread(a, b);
    CHECK(close(a) == 0 && close(b) == 0);
    late();
    inherited();
    mark();
    pair(&a, &b);
    sent(a, b);
    CHECK(close(a) == 0 && close(b) == 0);
    pair(&a, &b);
    mapped(a, b);
    upper(a, b);
    return 0;
}
