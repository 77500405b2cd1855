/* send and its relatives: everything arrives once and in order, whichever call sent it. */
#include "common.h"
#include <linux/sockios.h>
#include <sys/sendfile.h>

static uint64_t position_out, position_in;

/* Byte number n of the stream. */
static unsigned char byte_at(uint64_t n)
{
    return (n * 2654435761u) >> 13;
}

static void produce(void *buf, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((unsigned char *)buf)[i] = byte_at(position_out + i);
}

static void consume(int fd)
{
    static unsigned char buf[65536];
    while (position_in < position_out) {
        ssize_t n = read(fd, buf, sizeof buf);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            CHECK(buf[i] == byte_at(position_in + i));
        position_in += n;
    }
}

static void sent(const char *what, int b, ssize_t n)
{
    say(what, n);
    if (n > 0)
        position_out += n;
    consume(b);
}

static void calls(int a, int b)
{
    char buf[1000];
    struct iovec iov[3] = {{buf, 10}, {NULL, 0}, {buf + 10, 990}};
    struct msghdr message = {NULL, 0, iov, 3, NULL, 0, 0};
    produce(buf, 1000), sent("write", b, write(a, buf, 1000));
    produce(buf, 1000), sent("writev", b, writev(a, iov, 3));
    produce(buf, 1000), sent("pwritev2", b, pwritev2(a, iov, 3, -1, 0));
    produce(buf, 1000), sent("send", b, send(a, buf, 1000, 0));
    produce(buf, 1000), sent("send, more follows", b, send(a, buf, 1, MSG_MORE));
    produce(buf, 1000), sent("sendto", b, sendto(a, buf, 1000, MSG_NOSIGNAL, NULL, 0));
    produce(buf, 1000), sent("sendmsg", b, sendmsg(a, &message, 0));
    struct mmsghdr many[2] = {{{NULL, 0, iov, 1, NULL, 0, 0}, 0}, {{NULL, 0, iov + 2, 1, NULL, 0, 0}, 0}};
    produce(buf, 1000);
    say("sendmmsg", sendmmsg(a, many, 2, 0));
    printf("%u %u\n", many[0].msg_len, many[1].msg_len);
    position_out += 1000;
    consume(b);
    say("nothing", send(a, buf, 0, 0));
    say("from nowhere", send(a, NULL, 1, 0));
    say("writev of too many", writev(a, iov, too_many));
    say("writev of none", writev(a, iov, 0));
}

/* Lengths that no memory has. Nothing is sent. */
static void impossible(int a, int b)
{
    static volatile size_t lengths[] = {SSIZE_MAX, (size_t)SSIZE_MAX + 1, SIZE_MAX, 1ul << 62};
    static struct iovec many[IOV_MAX + 1];
    char buf[16] = "";
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int which = 0; which < 2; which++) {
            struct iovec iov[2] = {{buf, 4}, {buf, 4}};
            struct msghdr message = {NULL, 0, iov, 2, NULL, 0, 0};
            iov[which].iov_len = lengths[i];
            printf("%zx in piece %d\n", lengths[i], which);
            say("writev", writev(a, iov, 2));
            say("sendmsg", sendmsg(a, &message, 0));
            iov[1 - which].iov_len = lengths[i];
            say("writev, both", writev(a, iov, 2));
            say("sendmsg, both", sendmsg(a, &message, 0));
        }
        say("write", write(a, buf, lengths[i]));
    }
    for (int i = 0; i < IOV_MAX + 1; i++)
        many[i] = (struct iovec){buf, 1};
    struct msghdr message = {NULL, 0, many, too_many, NULL, 0, 0};
    say("writev of too many", writev(a, many, too_many));
    say("sendmsg of too many", sendmsg(a, &message, 0));
    message.msg_iovlen = negative;
    say("sendmsg of a negative number", sendmsg(a, &message, 0));
    say("what arrived", recv(b, buf, sizeof buf, MSG_DONTWAIT));
}

static void files(int a, int b)
{
    static char buf[300000];
    char path[] = "/tmp/seekwire-test-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0);
    produce(buf, sizeof buf);
    write_all(file, buf, sizeof buf);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    set_nonblocking(a, 0);
    sent("sendfile by position", b, sendfile(a, file, NULL, 1000));
    say("position", lseek(file, 0, SEEK_CUR));
    off_t offset = 1000;
    sent("sendfile by offset", b, sendfile(a, file, &offset, 500));
    say("offset", offset);
    say("position", lseek(file, 0, SEEK_CUR));
    say("sendfile at the end", sendfile(a, file, &(off_t){sizeof buf}, 500));
    say("sendfile before the beginning", sendfile(a, file, &(off_t){-1}, 500));
    set_nonblocking(a, 1);
    size_t already = 0;
    while (position_out < sizeof buf + position_in && offset < (off_t)sizeof buf) {
        ssize_t n = sendfile(a, file, &offset, sizeof buf);
        CHECK(n > 0 || errno == EAGAIN);
        if (n > 0)
            position_out += n, already += n;
        consume(b);
    }
    set_nonblocking(a, 0);
    printf("sendfile without waiting: %zu\n", already);
    int ends[2];
    CHECK(pipe(ends) == 0);
    produce(buf, 100);
    write_all(ends[1], buf, 100);
    sent("splice from a pipe", b, splice(ends[0], NULL, a, NULL, 100, 0));
    close(ends[0]), close(ends[1]), close(file);
}

static void no_room(int a, int b)
{
    int queued = -1;
    size_t filled = fill(a);
    printf("something was taken: %d\n", filled > 4096);
    CHECK(ioctl(a, SIOCOUTQ, &queued) == 0);
    printf("and more than the peer's buffer takes is queued: %d\n", queued > 100000);
    drain(b, filled);
    /* The last acknowledgement may be on its way. */
    while (queued > 0)
        CHECK(ioctl(a, SIOCOUTQ, &queued) == 0);
    char unread[1000] = {0};
    write_all(a, unread, sizeof unread);
    do
        CHECK(ioctl(a, SIOCOUTQ, &queued) == 0);
    while (queued > 0);
    printf("nothing is queued, though %zu bytes are unread\n", sizeof unread);
    drain(b, sizeof unread);
    set_nonblocking(a, 1);
    filled = fill(a);
    set_nonblocking(a, 0);
    drain(b, filled);
}

static void *reader(void *argument)
{
    consume(*(int *)argument);
    return NULL;
}

/* Larger than anything that fits, so the sender has to wait. */
static void large(int a, int b)
{
    static char buf[8 << 20];
    pthread_t thread;
    produce(buf, sizeof buf);
    position_out += sizeof buf;
    CHECK(pthread_create(&thread, NULL, reader, &b) == 0);
    say("one large write", write(a, buf, sizeof buf));
    pthread_join(thread, NULL);
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    calls(a, b);
    impossible(a, b);
    no_room(a, b);
    large(a, b);
    calls(b, a);
    check_on_ring(b);
    files(a, b);
    return 0;
}
