/* recv and its relatives: flags, limits, the sender's address, and errors. */
#include "common.h"

static void flags(int a, int b)
{
    char buf[64] = "";
    write_all(a, "abcdef", 6);
    say("peek", recv(b, buf, 3, MSG_PEEK));
    printf("%.3s\n", buf);
    say("peek again", recv(b, buf, sizeof buf, MSG_PEEK));
    say("discard", recv(b, NULL, 2, MSG_TRUNC));
    say("read", read(b, buf, sizeof buf));
    printf("%.4s\n", buf);
    say("don't wait", recv(b, buf, 1, MSG_DONTWAIT));
    say("nothing, don't wait", recv(b, buf, 0, MSG_DONTWAIT));
    say("read nothing", read(b, buf, 0));
    say("peek, don't wait", recv(b, buf, 1, MSG_DONTWAIT | MSG_PEEK));
    write_all(a, "gh", 2);
    say("nothing of something", recv(b, buf, 0, 0));
    struct later later;
    do_later(&later, write_byte, &a);
    say("wait for all", recv(b, buf, 3, MSG_WAITALL));
    printf("%.3s\n", buf);
    pthread_join(later.thread, NULL);
}

/* MSG_TRUNC: bytes that are received, or peeked at, are only counted. */
static void truncated(int a, int b)
{
    static char many[20000], none[20000];
    char buf[16] = "untouched", other[4] = "xyz";
    struct iovec iov[2] = {{buf, 2}, {other, 3}}, nowhere = {NULL, 4}, bad = {(void *)1, 5};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2}, no_memory = {.msg_iov = &nowhere, .msg_iovlen = 1};
    struct mmsghdr both[2] = {{no_memory, 0}, {message, 0}};
    say("nothing to count", recv(b, buf, 3, MSG_TRUNC | MSG_PEEK | MSG_DONTWAIT));
    write_all(a, "abcdefghij", 10);
    CHECK(recv(b, many, 10, MSG_PEEK | MSG_WAITALL) == 10);
    say("counted", recv(b, buf, 4, MSG_TRUNC | MSG_PEEK));
    say("counted without memory", recv(b, NULL, 4, MSG_TRUNC | MSG_PEEK));
    say("all counted", recv(b, many, sizeof many, MSG_TRUNC | MSG_PEEK));
    say("all counted, without waiting", recv(b, NULL, 50, MSG_TRUNC | MSG_PEEK | MSG_DONTWAIT));
    say("counted by a message", recvmsg(b, &message, MSG_TRUNC | MSG_PEEK));
    printf("%x\n", (unsigned)message.msg_flags);
    say("counted by a message without memory", recvmsg(b, &no_memory, MSG_TRUNC | MSG_PEEK));
    say("thrown away", recv(b, buf, 1, MSG_TRUNC));
    say("thrown away by a message", recvmsg(b, &message, MSG_TRUNC));
    printf("%x\n", (unsigned)message.msg_flags);
    no_memory.msg_iov = &bad;
    nowhere.iov_len = 1;
    say("thrown away by messages", recvmmsg(b, both, 1, MSG_TRUNC, NULL));
    printf("%u\n", both[0].msg_len);
    no_memory.msg_iovlen = 1;
    bad.iov_len = 2;
    say("thrown away nowhere", recvmsg(b, &no_memory, MSG_TRUNC));
    say("left", recv(b, many, sizeof many, 0));
    printf("%.9s %.3s %.1s\n", buf, other, many);
    struct later later;
    do_later(&later, write_byte, &a);
    say("waited for one", recv(b, NULL, 5, MSG_TRUNC | MSG_PEEK));
    pthread_join(later.thread, NULL);
    do_later(&later, write_byte, &a);
    say("waited for two", recv(b, NULL, 2, MSG_TRUNC | MSG_PEEK | MSG_WAITALL));
    pthread_join(later.thread, NULL);
    do_later(&later, write_byte, &a);
    say("three thrown away", recv(b, NULL, 3, MSG_TRUNC | MSG_WAITALL));
    pthread_join(later.thread, NULL);
    memset(many, 'm', sizeof many);
    write_all(a, many, 20000);
    say("many counted", recv(b, none, 20000, MSG_TRUNC | MSG_PEEK | MSG_WAITALL));
    say("many thrown away", recv(b, none, 20000, MSG_TRUNC | MSG_WAITALL));
    printf("%d\n", memchr(none, 'm', sizeof none) != NULL);
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, &(int){2}, sizeof(int)) == 0);
    write_all(a, "a", 1);
    do_later(&later, write_byte, &a);
    say("waited for a few", recv(b, NULL, 5, MSG_TRUNC | MSG_PEEK));
    pthread_join(later.thread, NULL);
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int)) == 0);
    drain(b, 2);
}

static void unread(int a, int b)
{
    int n = -1;
    char buf[16];
    say("FIONREAD of nothing", ioctl(b, FIONREAD, &n));
    printf("%d\n", n);
    write_all(a, "0123456789", 10);
    CHECK(recv(b, buf, 1, MSG_PEEK) == 1);
    say("FIONREAD", ioctl(b, FIONREAD, &n));
    printf("%d\n", n);
    drain(b, 10);

    /* The kernel accepts any address. */
    char room[2 * sizeof(int)] = {0};
    say("FIONBIO by an odd address", ioctl(b, FIONBIO, room + 1));
    write_all(a, "01234", 5);
    CHECK(recv(b, buf, 1, MSG_PEEK) == 1);
    say("FIONREAD to an odd address", ioctl(b, FIONREAD, room + 1));
    memcpy(&n, room + 1, sizeof n);
    printf("%d\n", n);
    drain(b, 5);
}

static void vectors(int a, int b)
{
    char one[2], two[5] = "", three[64];
    struct iovec iov[4] = {{one, 2}, {NULL, 0}, {two, 4}, {three, sizeof three}};
    write_all(a, "0123456789", 10);
    say("readv", readv(b, iov, 4));
    printf("%.2s %.4s %.4s\n", one, two, three);
    write_all(a, "0123456789", 10);
    say("preadv2", preadv2(b, iov, 4, -1, 0));
    say("preadv2, no wait", preadv2(b, iov, 4, -1, RWF_NOWAIT));
    say("preadv2 at an offset", preadv2(b, iov, 4, 0, 0));
    say("pread", pread(b, one, 2, 0));
    say("readv of a negative number", readv(b, iov, negative));
    say("readv of too many", readv(b, iov, too_many));
    say("readv of none", readv(b, iov, 0));
    iov[0].iov_len = (size_t)-1;
    say("readv of a negative length", readv(b, iov, 4));
}

/* Lengths that no memory has. No bytes are taken. */
static void impossible(int a, int b)
{
    static volatile size_t lengths[] = {SSIZE_MAX, (size_t)SSIZE_MAX + 1, SIZE_MAX, 1ul << 62};
    static struct iovec many[IOV_MAX + 1];
    char buf[16] = "";
    /* Of a size hidden from the compiler, whose checks come before the call. */
    char *volatile somewhere = buf;
    write_all(a, "0123456789", 10);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int which = 0; which < 2; which++) {
            struct iovec iov[2] = {{buf, 4}, {buf, 4}};
            struct msghdr message = {NULL, 0, iov, 2, NULL, 0, 0};
            iov[which].iov_len = lengths[i];
            printf("%zx in piece %d\n", lengths[i], which);
            say("readv", readv(b, iov, 2));
            say("recvmsg", recvmsg(b, &message, 0));
            iov[1 - which].iov_len = lengths[i];
            say("readv, both", readv(b, iov, 2));
            say("recvmsg, both", recvmsg(b, &message, 0));
        }
        say("read", read(b, somewhere, lengths[i]));
    }
    for (int i = 0; i < IOV_MAX + 1; i++)
        many[i] = (struct iovec){buf, 1};
    struct msghdr message = {NULL, 0, many, too_many, NULL, 0, 0};
    say("readv of too many", readv(b, many, too_many));
    say("recvmsg of too many", recvmsg(b, &message, 0));
    message.msg_iovlen = negative;
    say("recvmsg of a negative number", recvmsg(b, &message, 0));
    say("what is left", recv(b, buf, sizeof buf, MSG_DONTWAIT));
    printf("%.10s\n", buf);
}

static void messages(int a, int b)
{
    char buf[8], control[64];
    struct sockaddr_in address;
    struct iovec iov[2] = {{buf, 3}, {buf + 3, 5}};
    struct msghdr message = {&address, sizeof address, iov, 2, control, sizeof control, 99};
    write_all(a, "abcdefgh", 8);
    say("recvmsg", recvmsg(b, &message, 0));
    printf("%.8s name %d control %d flags %d\n", buf, (int)message.msg_namelen, (int)message.msg_controllen, message.msg_flags);
    message.msg_iovlen = too_many;
    say("recvmsg of too many", recvmsg(b, &message, 0));
    socklen_t len = sizeof address;
    write_all(a, "xy", 2);
    say("recvfrom", recvfrom(b, buf, sizeof buf, 0, (struct sockaddr *)&address, &len));
    printf("address length %d\n", (int)len);
    struct mmsghdr many[3] = {{{NULL, 0, &iov[0], 1, NULL, 0, 0}, 7}, {{NULL, 0, &iov[0], 1, NULL, 0, 0}, 7}, {{NULL, 0, &iov[0], 1, NULL, 0, 0}, 7}};
    write_all(a, "abcde", 5);
    say("recvmmsg", recvmmsg(b, many, 3, MSG_WAITFORONE, NULL));
    printf("%u %u\n", many[0].msg_len, many[1].msg_len);
    say("recvmmsg of nothing", recvmmsg(b, many, 3, MSG_DONTWAIT, NULL));
}

static void low_water(int a, int b)
{
    char buf[16];
    int bytes = 5;
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
    write_all(a, "1234", 4);
    CHECK(recv(b, buf, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
    struct pollfd entry = {b, POLLIN, 0};
    say("four are not enough", poll(&entry, 1, 20));
    say("unless one does not wait", recv(b, buf, sizeof buf, MSG_DONTWAIT));
    write_all(a, "12345", 5);
    say("five are", poll(&entry, 1, -1));
    say("at least five", recv(b, buf, sizeof buf, 0));
    bytes = 1;
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

static void timeouts(int a, int b)
{
    char buf[16];
    struct timeval limit = {0, 60000};
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    long begin = milliseconds();
    say("in vain", recv(b, buf, 1, 0));
    printf("not before its time: %d\n", milliseconds() - begin >= 55);
    write_all(a, "ab", 2);
    say("a part", recv(b, buf, 3, MSG_WAITALL));
    limit.tv_usec = 0;
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 60000}, sizeof limit) == 0);
    size_t sent = fill(a);
    ssize_t more;
    /* Bytes still on their way may make room. */
    while ((more = send(a, buf, 1, 0)) > 0)
        sent += more;
    say("no room in time", more);
    drain(b, sent);
    CHECK(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
}

/* The remainder of a timeout may be negative. */
static void no_time(int a, int b)
{
    static const struct timeval odd[] = {{-1, 0}, {-5, 999999}, {LONG_MIN, 0}, {0, -1}, {-1, -1}, {0, 1000000}};
    static const int names[] = {SO_RCVTIMEO, 66 /* SO_RCVTIMEO_NEW */};
    char buf[16];
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            struct timeval limit = {0, 0};
            socklen_t len = sizeof limit;
            printf("%ld s %ld us, option %d\n", (long)odd[i].tv_sec, (long)odd[i].tv_usec, names[n]);
            CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
            CHECK(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
            int result = setsockopt(b, SOL_SOCKET, names[n], &odd[i], sizeof *odd);
            say("for receives", result);
            say("for sends", setsockopt(a, SOL_SOCKET, names[n] + 1, &odd[i], sizeof *odd));
            CHECK(getsockopt(b, SOL_SOCKET, names[n], &limit, &len) == 0);
            printf("so it is %ld s %ld us\n", (long)limit.tv_sec, (long)limit.tv_usec);
            if (result < 0)
                continue;
            say("in vain", recv(b, buf, 1, 0));
            say("again", read(b, buf, 1));
            say("peeking", recv(b, buf, 1, MSG_PEEK));
            write_all(a, "ab", 2);
            CHECK(recv(b, buf, 2, MSG_PEEK | MSG_DONTWAIT) == 2);
            say("a part", recv(b, buf, 3, MSG_WAITALL));
            /* The amount of room changes. */
            size_t sent = fill(a);
            ssize_t moved;
            while ((moved = send(a, buf, 1, 0)) > 0)
                sent += moved;
            say("no room", moved);
            while ((moved = write(a, buf, 1)) > 0)
                sent += moved;
            say("still none", moved);
            drain(b, sent);
        }
    }
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 0}, sizeof *odd) == 0);
    CHECK(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0, 0}, sizeof *odd) == 0);
}

/* Set before the connection is accelerated, and inherited from the listener. */
static void no_time_from_the_beginning(void)
{
    struct timeval limit = {-1, 0};
    struct sockaddr_in address;
    char buf[16];
    int fd = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    int b = accept(fd, NULL, NULL);
    CHECK(b >= 0 && close(fd) == 0);
    for (int i = 0; i < 32; i++) {
        struct pollfd entry = {b, POLLIN, 0};
        write_all(a, "x", 1);
        CHECK(poll(&entry, 1, -1) == 1 && read(b, buf, 1) == 1);
        write_all(b, "y", 1);
        read_all(a, buf, 1);
    }
    say("inherited", recv(b, buf, 1, 0));
    CHECK(close(a) == 0);
    struct pollfd entry = {b, POLLIN, 0};
    CHECK(poll(&entry, 1, -1) == 1);
    say("the end", recv(b, buf, 1, 0));
    CHECK(close(b) == 0);
}

static void nonblocking(int a, int b)
{
    char buf[16];
    set_nonblocking(b, 1);
    say("empty", read(b, buf, 1));
    set_nonblocking(b, 0);
    int on = 1;
    CHECK(ioctl(b, FIONBIO, &on) == 0);
    say("empty by FIONBIO", recv(b, buf, 1, 0));
    say("all of it, empty", recv(b, buf, 4, MSG_WAITALL));
    write_all(a, "ab", 2);
    say("all of it, a part", recv(b, buf, 4, MSG_WAITALL));
    on = 0;
    CHECK(ioctl(b, FIONBIO, &on) == 0);
    struct later later;
    do_later(&later, write_byte, &a);
    say("waits again", read(b, buf, sizeof buf));
    pthread_join(later.thread, NULL);
}

/* recvmmsg returns an error before the bytes, and keeps one after some messages for the next call. */
static void many_and_an_error(void)
{
    int a, b;
    char bytes[4][8];
    struct iovec parts[4];
    struct mmsghdr messages[4] = {0};
    for (int at = 0; at < 4; at++) {
        parts[at] = (struct iovec){bytes[at], 8};
        messages[at].msg_hdr.msg_iov = &parts[at];
        messages[at].msg_hdr.msg_iovlen = 1;
    }
    pair(&a, &b);
    write_all(b, "x", 1);
    CHECK(poll(&(struct pollfd){a, POLLIN, 0}, 1, -1) == 1);
    write_all(a, "abcdefghij", 10);
    CHECK(poll(&(struct pollfd){b, POLLIN, 0}, 1, -1) == 1);
    CHECK(close(a) == 0 && poll(&(struct pollfd){b, 0, 0}, 1, -1) == 1);
    say("messages behind an error", recvmmsg(b, messages, 4, 0, NULL));
    say("then", recvmmsg(b, messages, 1, 0, NULL));
    say("then", recv(b, bytes, 8, 0));
    say("then", recvmmsg(b, messages, 2, 0, NULL));
    close(b);
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    flags(a, b);
    truncated(a, b);
    unread(a, b);
    vectors(a, b);
    impossible(a, b);
    messages(a, b);
    low_water(a, b);
    timeouts(a, b);
    no_time(a, b);
    no_time_from_the_beginning();
    nonblocking(a, b);
    write_all(a, "x", 1);
    say("no buffer for something", recv(b, NULL, 1, 0));
    say("bytes out of band, of which there are none", recv(b, &a, 1, MSG_OOB));
    many_and_an_error();
    return 0;
}
