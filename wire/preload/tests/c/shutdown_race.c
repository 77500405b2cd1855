/* shutdown() at the same time as sends: bytes sent before it arrive, later sends fail. */
#include "common.h"
#include <sys/sendfile.h>

enum { CONNECTIONS = 60, MESSAGE = 100, LONG = 8 << 20, LOTS = 32 << 20 };

static int a, b;
static volatile long sent;
static volatile int pipes;

static void on_pipe(int signal)
{
    (void)signal;
    pipes++;
}

static void *send_on(void *argument)
{
    static char message[MESSAGE];
    (void)argument;
    for (ssize_t n; (n = send(a, message, sizeof message, MSG_NOSIGNAL)) > 0;)
        sent += n;
    CHECK(errno == EPIPE);
    return NULL;
}

/* Another thread ends the direction while this one sends on it. */
static void beside_sends(void)
{
    static char junk[65536];
    long lost = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        pthread_t sender;
        long received = 0;
        pair(&a, &b);
        sent = 0;
        CHECK(pthread_create(&sender, NULL, send_on, NULL) == 0);
        while (sent < 10 * MESSAGE)
            sched_yield();
        CHECK(shutdown(a, SHUT_WR) == 0);
        for (ssize_t n; (n = read(b, junk, sizeof junk)) != 0; received += n)
            CHECK(n > 0);
        pthread_join(sender, NULL);
        lost += received != sent;
        close(a);
        close(b);
    }
    say("connections that lost bytes", lost);
}

static void shut_writing(void *fd)
{
    CHECK(shutdown(*(int *)fd, SHUT_WR) == 0);
}

/* A send that waits for room when another thread ends its direction. */
static void of_a_blocked_send(void)
{
    char *bytes = calloc(1, 64 << 20);
    struct later later;
    pair(&a, &b);
    do_later(&later, shut_writing, &a);
    ssize_t n = send(a, bytes, 64 << 20, 0);
    pthread_join(later.thread, NULL);
    say("a blocked send has sent a part", n > 0 && n < 64 << 20);
    say("signals of it", pipes);
    say("the next one", send(a, "x", 1, 0));
    say("signals by then", pipes);
    say("one without a signal", send(a, "x", 1, MSG_NOSIGNAL));
    say("signals by then", pipes);
    drain(b, n);
    say("the end", read(b, bytes, 1));
    close(a);
    close(b);
    free(bytes);
}

/* Like the last one; a message that was sent in part is the last message. */
static void of_blocked_messages(void)
{
    char *bytes = calloc(1, LOTS);
    struct later later;
    struct iovec iov = {bytes, LOTS};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}}};
    int before = pipes;
    pair(&a, &b);
    do_later(&later, shut_writing, &a);
    say("blocked messages", sendmmsg(a, messages, 2, 0));
    pthread_join(later.thread, NULL);
    say("a part of one", messages[0].msg_len > 0 && messages[0].msg_len < LOTS);
    say("signals of them", pipes - before);
    say("the next ones", sendmmsg(a, messages, 2, 0));
    say("signals by then", pipes - before);
    close(a);
    close(b);
    free(bytes);
}

/* The same for bytes that the library sends from a file. A signal comes if the kernel was between two pieces of it. */
static void of_a_blocked_sendfile(void)
{
    char path[] = "/tmp/seekwire-shut-XXXXXX", byte;
    int file = mkstemp(path);
    struct later later;
    CHECK(file >= 0 && unlink(path) == 0 && ftruncate(file, LOTS) == 0);
    pair(&a, &b);
    do_later(&later, shut_writing, &a);
    ssize_t n = sendfile(a, file, NULL, LOTS);
    pthread_join(later.thread, NULL);
    say("a blocked sendfile has sent a part", n > 0 && n < LOTS);
    say("position", lseek(file, 0, SEEK_CUR) == n);
    drain(b, n);
    say("the end", read(b, &byte, 1));
    close(a), close(b), close(file);
}

static void *read_slowly(void *argument)
{
    static char junk[100000];
    long *received = argument;
    for (ssize_t n; (n = read(b, junk, sizeof junk)) > 0; *received += n)
        sched_yield();
    return NULL;
}

/* An end that receives nothing more still sends. */
static void of_reading_at_a_sender(void)
{
    char *bytes = calloc(1, LONG);
    long received = 0, done = 0;
    pthread_t reader;
    pair(&a, &b);
    set_nonblocking(a, 1);
    CHECK(shutdown(a, SHUT_RD) == 0);
    for (ssize_t n; done < LONG && (n = write(a, bytes, 100000)) > 0;)
        done += n;
    CHECK(pthread_create(&reader, NULL, read_slowly, &received) == 0);
    while (done < LONG) {
        struct pollfd entry = {.fd = a, .events = POLLOUT};
        ssize_t n = write(a, bytes, LONG - done < 100000 ? LONG - done : 100000);
        CHECK(n > 0 || errno == EAGAIN);
        done += n > 0 ? n : 0;
        CHECK(poll(&entry, 1, -1) == 1);
    }
    CHECK(close(a) == 0);
    pthread_join(reader, NULL);
    say("all has arrived", received == done);
    close(b);
    free(bytes);
}

int main(void)
{
    signal(SIGPIPE, on_pipe);
    beside_sends();
    of_a_blocked_send();
    of_blocked_messages();
    of_a_blocked_sendfile();
    of_reading_at_a_sender();
    return 0;
}
