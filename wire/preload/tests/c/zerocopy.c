/* SO_ZEROCOPY, which some programs set in advance, and MSG_ZEROCOPY, whose completions the kernel reports in its error queue. */
#include "common.h"
#include <linux/errqueue.h>

/* Reads the kernel's reports until they cover the sends from `next` to `last`. */
static void await_reports(int fd, unsigned next, unsigned last)
{
    for (;;) {
        char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        struct pollfd entry = {.fd = fd, .events = 0};
        CHECK(poll(&entry, 1, -1) == 1 && entry.revents & POLLERR);
        ssize_t n = recvmsg(fd, &message, MSG_ERRQUEUE);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        struct cmsghdr *at = CMSG_FIRSTHDR(&message);
        struct sock_extended_err error;
        CHECK(n == 0 && at && at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR);
        memcpy(&error, CMSG_DATA(at), sizeof error);
        /* One after another, or several at a time. */
        CHECK(error.ee_errno == 0 && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY);
        CHECK(error.ee_info == next && error.ee_data >= next && error.ee_data <= last);
        next = error.ee_data + 1;
        if (error.ee_data == last)
            break;
    }
    printf("reports of %u sends\n", last + 1);
}

static void talk(int a, int b)
{
    char buf[64] = "";
    write_all(a, "ask", 3);
    read_all(b, buf, 3);
    write_all(b, "answer", 6);
    read_all(a, buf, 6);
    printf("%s\n", buf);
}

/* A report that was not read ends no receive, and keeps none from its time limit. */
static void unread_report(int a, int b)
{
    char byte;
    struct pollfd entry = {.fd = a, .events = 0};
    struct timeval limit = {.tv_usec = 20000};
    struct later later;
    CHECK(send(a, "x", 1, MSG_ZEROCOPY) == 1);
    read_all(b, &byte, 1);
    CHECK(poll(&entry, 1, -1) == 1 && entry.revents & POLLERR);
    CHECK(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    say("nothing in time", recv(a, &byte, 1, 0));
    say("nothing to see", recv(a, &byte, 1, MSG_PEEK));
    limit.tv_usec = 0;
    CHECK(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    do_later(&later, write_byte, &b);
    say("a byte", recv(a, &byte, 1, 0));
    CHECK(pthread_join(later.thread, NULL) == 0);
}

static void no_copy(int a, int b, int first)
{
    static char big[100000];
    char buf[64] = "";
    write_all(a, "first ", 6);
    say("no copy", send(a, "second ", 7, MSG_ZEROCOPY));
    struct iovec iov = {"third ", 6};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    say("message", sendmsg(a, &message, MSG_ZEROCOPY));
    write_all(a, "fourth", 6);
    read_all(b, buf, 25);
    printf("%s\n", buf);
    say("large", send(a, big, sizeof big, MSG_ZEROCOPY));
    read_all(b, big, sizeof big);
    await_reports(a, first, first + 2);
    talk(a, b);
}

int main(void)
{
    int a, b, on = -1;
    socklen_t len = sizeof on;
    /* The option alone has no effect. */
    pair(&a, &b);
    say("flag alone", send(a, "x", 1, MSG_ZEROCOPY));
    read_all(b, &(char){0}, 1);
    struct pollfd entry = {.fd = a, .events = 0};
    say("nothing to report", poll(&entry, 1, 0));
    say("not a boolean", setsockopt(a, SOL_SOCKET, SO_ZEROCOPY, &(int){2}, sizeof(int)));
    CHECK(setsockopt(a, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)) == 0);
    for (int i = 0; i < 20; i++)
        talk(a, b);
    check_on_ring(a);
    CHECK(getsockopt(a, SOL_SOCKET, SO_ZEROCOPY, &on, &len) == 0);
    printf("SO_ZEROCOPY is %d\n", on);
    no_copy(a, b, 0);
    no_copy(a, b, 3);
    unread_report(a, b);
    close(a);
    close(b);

    /* A listener passes its options on, which does not keep connections from shared memory. */
    struct sockaddr_in address;
    int fd = listener_on(&address);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)) == 0);
    a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    b = accept(fd, NULL, NULL);
    CHECK(b >= 0);
    close(fd);
    warm_up(a, b);
    check_on_ring(a);
    check_on_ring(b);
    no_copy(b, a, 0);
    close(a);
    close(b);
    return 0;
}
