/*
 * A signal that is sent once, after its thread's call has visibly begun, ends the call wherever it is: asleep, or awake on the
 * way to its next sleep.
 */
#include "common.h"

#include <sched.h>

/* More than all buffers on the way can hold. */
enum { ROUNDS = 400, MUCH = 256 << 20 };

struct call {
    pthread_t thread;
    int fd;
    ssize_t result;
};

static char bytes[MUCH], sink[1 << 20];

static void on_signal(int signal)
{
    (void)signal;
}

static void *send_much(void *argument)
{
    struct call *call = argument;
    struct sched_param none = {0};
    CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    call->result = send(call->fd, bytes, sizeof bytes, 0);
    return NULL;
}

static void *receive_all(void *argument)
{
    struct call *call = argument;
    char two[2];
    call->result = recv(call->fd, two, sizeof two, MSG_WAITALL);
    return NULL;
}

static void *await_readable(void *argument)
{
    struct call *call = argument;
    struct pollfd polled = {.fd = call->fd, .events = POLLIN};
    call->result = poll(&polled, 1, -1);
    return NULL;
}

static void begin_call(struct call *call, int fd, void *(*function)(void *))
{
    *call = (struct call){.fd = fd};
    CHECK(pthread_create(&call->thread, NULL, function, call) == 0);
}

/* Returns whether the signal has ended it. */
static void interrupt(struct call *call)
{
    struct timespec limit;
    CHECK(pthread_kill(call->thread, SIGUSR1) == 0);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    errno = pthread_timedjoin_np(call->thread, NULL, &limit);
    CHECK(errno == 0);
}

static int unread(int fd)
{
    int n;
    CHECK(ioctl(fd, FIONREAD, &n) == 0);
    return n;
}

/* Waits for a while, different in each round, so that the other thread gets to different points. */
static void linger(unsigned round)
{
    for (volatile unsigned i = 0; i < round * 97 % 40000; i++)
        ;
}

int main(void)
{
    int a, b;
    struct call call;
    int ended = 0, parts = 0;
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);

    /* On a single processor, with the lowest priority, the sender is found where it rings the doorbell or gives bytes to TCP. */
    cpu_set_t all, first;
    CPU_ZERO(&first);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int i = 0; CPU_COUNT(&first) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &first);
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
    pair(&a, &b);
    for (unsigned round = 0; round < ROUNDS; round++) {
        char one;
        begin_call(&call, a, send_much);
        read_all(b, &one, 1);
        linger(round % 4);
        interrupt(&call);
        parts += call.result > 0 && call.result < MUCH;
        for (ssize_t rest = call.result - 1; rest > 0;) {
            ssize_t n = recv(b, sink, rest < (ssize_t)sizeof sink ? (size_t)rest : sizeof sink, 0);
            CHECK(n > 0);
            rest -= n;
        }
    }
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    printf("sends of which a part was read: %d, ended by a signal: %d\n", ROUNDS, parts);

    for (unsigned round = 0; round < ROUNDS; round++) {
        write_all(a, "x", 1);
        while (unread(b) == 0)
            ;
        begin_call(&call, b, receive_all);
        while (unread(b) > 0)
            ;
        linger(round);
        interrupt(&call);
        ended += call.result == 1;
    }
    printf("receives that had a part: %d, ended by a signal: %d\n", ROUNDS, ended);
    close(a);
    close(b);

    /* As the JVM closes a socket: another file takes the number, and a signal wakes the sleeping thread. */
    int marker[2], over = 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, marker) == 0 && close(marker[1]) == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pair(&a, &b);
        begin_call(&call, b, round % 2 ? await_readable : receive_all);
        linger(round);
        CHECK(dup2(marker[0], b) == b);
        interrupt(&call);
        over++;
        close(a);
        close(b);
    }
    printf("calls on a number that was replaced: %d, over: %d\n", ROUNDS, over);
    return 0;
}
