/* The view of the other end when a process is killed with unread bytes. */
#include "common.h"
#include <linux/sockios.h>
#include <sys/syscall.h>

/* Maximum number of sends that may succeed after a kill. TCP lets one through. */
enum { ROUNDS = 20, FEW = 2 };

/* The child sends `says` bytes that nobody receives, then reads `reads` bytes, and waits to be killed. */
static int connection_that_says(pid_t *child, int says, int reads, int shuts, int lingers)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), a, ready[2];
    char c;
    CHECK(pipe(ready) == 0);
    *child = fork();
    if (*child == 0) {
        int b = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(b, (struct sockaddr *)&address, sizeof address) == 0);
        for (int i = 0; i < 32; i++) {
            write_all(b, "x", 1);
            read_all(b, &c, 1);
        }
        for (; says > 0; says--)
            write_all(b, "x", 1);
        if (shuts)
            CHECK(shutdown(b, SHUT_WR) == 0);
        if (lingers)
            CHECK(setsockopt(b, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)) == 0);
        write_all(ready[1], "x", 1);
        for (; reads > 0; reads--)
            read_all(b, &c, 1);
        for (;;)
            pause();
    }
    a = accept(listener, NULL, NULL);
    CHECK(a >= 0 && close(listener) == 0);
    /* No bytes wait for an acknowledgement. */
    CHECK(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
    for (int i = 0; i < 32; i++) {
        read_all(a, &c, 1);
        write_all(a, "x", 1);
    }
    read_all(ready[0], &c, 1);
    close(ready[0]);
    close(ready[1]);
    return a;
}

static int connection(pid_t *child, int reads, int shuts, int lingers)
{
    return connection_that_says(child, 0, reads, shuts, lingers);
}

static void die(pid_t child)
{
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* After the end was reported, the sends get the error. */
static void after_the_end(void)
{
    char c;
    pid_t child;
    int a = connection(&child, 0, 0, 0);
    die(child);
    say("the end", read(a, &c, 1));
    say("a send after the end", write(a, "x", 1));
    say("the end", read(a, &c, 1));
    say("another send", write(a, "x", 1));
    say("the end", read(a, &c, 1));
    close(a);
}

/* Waits until the peer's kernel has responded to the bytes that TCP has sent, which takes a while on a busy machine. */
static void be_answered(int a)
{
    struct tcp_info info;
    int unanswered;
    do {
        CHECK(syscall(SYS_getsockopt, a, IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){sizeof info}) == 0);
        CHECK(syscall(SYS_ioctl, a, SIOCOUTQ, &unanswered) == 0);
    } while (info.tcpi_state != TCP_CLOSE && unanswered > 0);
}

/* After an end was reported, the second or at the latest the third send reports that the peer is gone. */
static void sends_after_the_end(void)
{
    char c;
    pid_t child;
    int sends = 0, a = connection(&child, 0, 0, 0);
    die(child);
    say("the end", read(a, &c, 1));
    for (; sends <= FEW && write(a, "x", 1) > 0; sends++)
        be_answered(a);
    printf("soon reported: %d\n", sends <= FEW);
    close(a);
}

/* It has forked more children than there are places for, and they have ended. */
static void after_children(void)
{
    enum { CHILDREN = 12 };
    struct sockaddr_in address;
    int listener = listener_on(&address), ready[2];
    char c;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        int b = socket(AF_INET, SOCK_STREAM, 0), go[2];
        CHECK(connect(b, (struct sockaddr *)&address, sizeof address) == 0 && pipe(go) == 0);
        warm_up_asking(b);
        for (int i = 0; i < CHILDREN; i++) {
            if (fork() == 0) {
                read_all(go[0], &c, 1);
                _exit(0);
            }
        }
        for (int i = 0; i < CHILDREN; i++)
            write_all(go[1], "x", 1);
        for (int i = 0; i < CHILDREN; i++)
            CHECK(wait(NULL) > 0);
        write_all(ready[1], "x", 1);
        for (;;)
            pause();
    }
    int a = accept(listener, NULL, NULL);
    CHECK(a >= 0 && close(listener) == 0);
    CHECK(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
    warm_up_answering(a);
    read_all(ready[0], &c, 1);
    write_all(a, "unread", 6);
    die(child);
    say("killed, after its children", read(a, &c, 1));
    close(a), close(ready[0]), close(ready[1]);
}

static void die_later(void *child)
{
    die(*(pid_t *)child);
}

/* A send that waits for room returns what it has sent; the next call gets the reset. */
static void blocked(void)
{
    enum { LOTS = 32 << 20 };
    char c, *lots = calloc(1, LOTS);
    pid_t child;
    struct later later;
    int a = connection(&child, 0, 0, 0);
    do_later(&later, die_later, &child);
    ssize_t sent = send(a, lots, LOTS, 0);
    printf("sent a part: %d\n", 0 < sent && sent < LOTS);
    pthread_join(later.thread, NULL);
    say("a receive", read(a, &c, 1));
    say("another", read(a, &c, 1));
    say("a send", write(a, "x", 1));
    close(a);
    free(lots);
}

enum heard { BY_POLL, BY_SELECT, BY_EPOLL, BY_OPTION, BY_RECEIVE, BY_SHUTDOWN, HOWS };

/* After an end has learned about a reset in any way, its next send fails. */
static void send_after_hearing(enum heard how)
{
    char c;
    pid_t child;
    int error = 0, set, a = connection(&child, 0, 0, 1);
    struct pollfd asked = {.fd = a, .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(a, &readable);
    die(child);
    switch (how) {
    case BY_POLL:
        say("poll", poll(&asked, 1, -1));
        break;
    case BY_SELECT:
        say("select", select(a + 1, &readable, NULL, NULL, NULL));
        break;
    case BY_EPOLL:
        set = epoll_create1(0);
        CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0);
        say("epoll_wait", epoll_wait(set, &event, 1, -1));
        close(set);
        break;
    case BY_OPTION:
        say("getsockopt", getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}));
        say("SO_ERROR", error);
        break;
    case BY_RECEIVE:
        say("a receive", read(a, &c, 1));
        break;
    default:
        say("shutdown", shutdown(a, SHUT_RD));
    }
    say("a send then", write(a, "x", 1));
    say("and another", write(a, "x", 1));
    close(a);
}

/* Number of sends that succeed after the kill, whatever was sent before. */
static int sends_after(pid_t child, int a)
{
    char message[100] = "";
    int sends = 0;
    die(child);
    for (; sends < 100000 && write(a, message, sizeof message) > 0; sends++)
        be_answered(a);
    CHECK(errno == EPIPE || errno == ECONNRESET);
    close(a);
    return sends;
}

/* A killed peer is noticed soon, whether it slept, read or was busy, and whether its bytes were received. */
static void sends_to_the_dead(void)
{
    enum { STREAM = 1000, TIMES = 5 };
    pid_t child;
    for (int shuts = 0; shuts < 2; shuts++)
        for (int says = 0; says < 2; says++) {
            int late = 0;
            for (int round = 0; round < TIMES; round++) {
                int a = connection_that_says(&child, says, 0, shuts, 0);
                late += sends_after(child, a) > FEW;
                a = connection_that_says(&child, says, 1, shuts, 0);
                late += sends_after(child, a) > FEW;
                a = connection_that_says(&child, says, 1, shuts, 0);
                write_all(a, "x", 1);
                late += sends_after(child, a) > FEW;
                a = connection_that_says(&child, says, STREAM, shuts, 0);
                for (int sent = 0; sent < STREAM; sent++)
                    write_all(a, "x", 1);
                late += sends_after(child, a) > FEW;
            }
            printf("shut %d, unread %d: %d were late\n", shuts, says, late);
        }
}

int main(void)
{
    after_children();
    char c;
    pid_t child;
    long resets = 0, ends = 0;
    signal(SIGPIPE, SIG_IGN);
    for (int round = 0; round < ROUNDS; round++) {
        int a = connection(&child, 0, 0, 0);
        write_all(a, "unread", 6);
        die(child);
        resets += read(a, &c, 1) < 0 && errno == ECONNRESET;
        say("then", read(a, &c, 1));
        say("a send", write(a, "x", 1));
        close(a);
    }
    say("resets", resets);
    /* Only the end of the stream had not been seen. */
    for (int round = 0; round < ROUNDS; round++) {
        int a = connection(&child, 0, 0, 0);
        CHECK(shutdown(a, SHUT_WR) == 0);
        die(child);
        ends += read(a, &c, 1) == 0;
        close(a);
    }
    say("ends", ends);
    after_the_end();
    sends_after_the_end();
    blocked();
    for (int how = 0; how < HOWS; how++)
        send_after_hearing(how);
    sends_to_the_dead();
    return 0;
}
