/* Every bit of the flags, in both directions: its effect on a connection with unread bytes, and on an empty one. */
#include "common.h"

enum { BITS = 32 };

static int bit(int at)
{
    return (int)(1u << at);
}

/* Unread bytes are received, whatever ignored bits are set. */
static void receive(int a, int b)
{
    char buf[16], control[64];
    for (int at = 0; at < BITS; at++) {
        for (int peek = 0; peek < 2; peek++) {
            int flags = bit(at) | (peek ? MSG_PEEK : 0);
            struct iovec iov = {buf, sizeof buf};
            struct msghdr message = {NULL, 0, &iov, 1, control, sizeof control, 99};
            struct mmsghdr many = {message, 77};
            if (at == 0)
                continue;
            printf("receive with %#x\n", (unsigned)flags);
            write_all(a, "0123456", 7);
            CHECK(recv(b, buf, 7, MSG_PEEK | MSG_WAITALL) == 7);
            say("recv", recv(b, buf, 3, flags | MSG_DONTWAIT));
            say("recvfrom", recvfrom(b, buf, 1, flags | MSG_DONTWAIT, NULL, NULL));
            iov.iov_len = 1;
            say("recvmsg", recvmsg(b, &message, flags | MSG_DONTWAIT));
            printf("name %d control %d flags %x\n", (int)message.msg_namelen, (int)message.msg_controllen, message.msg_flags);
            say("recvmmsg", recvmmsg(b, &many, 1, flags | MSG_DONTWAIT, NULL));
            printf("length %u flags %x\n", many.msg_len, many.msg_hdr.msg_flags);
            say("the rest", recv(b, buf, sizeof buf, 0));
            printf("%.7s\n", buf);
            say("nothing", recv(b, buf, sizeof buf, flags | MSG_DONTWAIT));
            say("nothing of nothing", recv(b, buf, 0, flags | MSG_DONTWAIT));
            say("no message", recvmsg(b, &message, flags | MSG_DONTWAIT));
        }
    }
}

/* Waiting for bytes does not depend on ignored bits. */
static void sleeping(int a, int b)
{
    for (int at = 0; at < BITS; at++) {
        int flags = bit(at);
        char buf[4] = "";
        struct later later;
        if (flags & (MSG_OOB | MSG_ERRQUEUE | MSG_DONTWAIT))
            continue;
        printf("wait with %#x\n", (unsigned)flags);
        do_later(&later, write_byte, &a);
        say("recv", recv(b, buf, 1, flags));
        pthread_join(later.thread, NULL);
        if (flags & MSG_PEEK)
            drain(b, 1);
    }
}

static void transmit(int a, int b)
{
    for (int at = 0; at < BITS; at++) {
        int flags = bit(at) | MSG_NOSIGNAL, n = 0;
        struct iovec iov = {"klm", 3};
        struct msghdr message = {NULL, 0, &iov, 1, NULL, 0, 0};
        struct mmsghdr many = {message, 77};
        char buf[16] = "", expected[16] = "";
        if (flags & MSG_OOB)
            continue;
        printf("send with %#x\n", (unsigned)flags);
        long sent[4] = {send(a, "abcd", 4, flags), sendto(a, "ef", 2, flags, NULL, 0), sendmsg(a, &message, flags), 0};
        for (int i = 0; i < 3; i++)
            say("result", sent[i]);
        say("sendmmsg", sendmmsg(a, &many, 1, flags));
        printf("length %u\n", many.msg_len);
        /* The peer gets exactly the bytes that were reported as sent. */
        n = (sent[0] > 0 ? 4 : 0) + (sent[1] > 0 ? 2 : 0) + (sent[2] > 0 ? 3 : 0) + (many.msg_len == 3 ? 3 : 0);
        CHECK(send(a, "!", 1, 0) == 1);
        (void)expected;
        say("received", recv(b, buf, n + 1, MSG_WAITALL));
        printf("%.*s\n", n + 1, buf);
    }
}

/* The flags of preadv2 and pwritev2. */
static void of_files(int a, int b)
{
    for (int at = 0; at < BITS; at++) {
        int flags = bit(at);
        char buf[16] = "";
        struct iovec to = {buf, sizeof buf}, from = {"xyz", 3};
        write_all(a, "0123456", 7);
        CHECK(recv(b, buf, 7, MSG_PEEK | MSG_WAITALL) == 7);
        printf("files: %#x\n", (unsigned)flags);
        ssize_t n = preadv2(b, &to, 1, -1, flags);
        say("preadv2", n);
        if (n < 0)
            drain(b, 7);
        say("nothing", preadv2(b, &to, 1, -1, flags | RWF_NOWAIT));
        n = pwritev2(a, &from, 1, -1, flags);
        say("pwritev2", n);
        if (n > 0)
            drain(b, n);
        say("preadv2 at an offset", preadv2(b, &to, 1, 0, flags));
        say("pwritev2 before the beginning", pwritev2(a, &from, 1, -2, flags));
    }
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    receive(a, b);
    sleeping(a, b);
    check_on_ring(a), check_on_ring(b);
    transmit(a, b);
    check_on_ring(a), check_on_ring(b);
    of_files(a, b);
    check_on_ring(a), check_on_ring(b);
    return 0;
}
