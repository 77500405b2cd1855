/* Calls with a small stack: in a thread with the minimum, and in a handler with an alternate stack. */
#include "common.h"
#include <sys/mman.h>

/* The additional stack of a build without optimisation. */
#ifndef MORE
#define MORE 0
#endif

static int a, b, set;
static char large[1 << 16];
static atomic_int caller;

static void plainly(void) { say("read", read(a, large, 1)); }

static void into_vector(void)
{
    struct iovec vector = {large, 2};
    say("readv", readv(a, &vector, 1));
}

static void with_message(void)
{
    struct iovec vector = {large, 2};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    say("recvmsg", recvmsg(a, &message, 0));
}

static void with_messages(void)
{
    struct iovec vector = {large, 2};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
    say("recvmmsg", recvmmsg(a, &message, 1, 0, NULL));
}

static void peek(void) { say("peek", recv(a, large, 2, MSG_PEEK)); }
static void skip(void) { say("skip", recv(a, NULL, 3, MSG_TRUNC)); }
static void count(void) { say("count", recv(a, NULL, 3, MSG_TRUNC | MSG_PEEK)); }
static void send_one(void) { say("write", write(a, "x", 1)); }
static void send_many(void) { say("send", send(a, large, 8192, 0)); }

static void send_message(void)
{
    struct iovec vector = {large, 2};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    say("sendmsg", sendmsg(a, &message, 0));
}

static void look(void)
{
    struct pollfd entry = {a, POLLIN, 0};
    say("poll", poll(&entry, 1, -1));
}

static void look_at_set(void)
{
    fd_set read;
    FD_ZERO(&read);
    FD_SET(a, &read);
    say("select", select(a + 1, &read, NULL, NULL, NULL));
}

static void look_at_events(void)
{
    struct epoll_event event;
    say("epoll_wait", epoll_wait(set, &event, 1, -1));
}

static void set_an_option(void)
{
    int one = 1;
    say("cork", setsockopt(a, IPPROTO_TCP, TCP_CORK, &one, sizeof one));
}

static void end(void) { say("shutdown", shutdown(a, SHUT_WR)); }

static const struct {
    void (*call)(void);
    /* Whether an event has to come before it returns. */
    int waits;
} calls[] = {
    {plainly, 1}, {into_vector, 1}, {with_message, 1}, {with_messages, 1}, {peek, 1}, {skip, 1}, {count, 1},
    {look, 1}, {look_at_set, 1}, {look_at_events, 1}, {send_one, 0}, {send_message, 0}, {send_many, 0},
    {set_an_option, 0}, {end, 0},
};

/* Memory with an inaccessible page below. */
static void *room(size_t size)
{
    size_t guard = 1 << 16;
    char *place = mmap(NULL, guard + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED && mprotect(place, guard, PROT_NONE) == 0);
    return place + guard;
}

static void *in_thread(void *call)
{
    atomic_store(&caller, gettid());
    calls[(intptr_t)call].call();
    return NULL;
}

/* With bytes that arrived before, or while the thread sleeps. */
static void try(int which, int asleep)
{
    pthread_attr_t attributes;
    pthread_t thread;
    size_t size = sysconf(_SC_THREAD_STACK_MIN) + MORE;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, room(size), size) == 0);
    if (!asleep) {
        write_all(b, "abc", 3);
        struct pollfd entry = {a, POLLIN, 0};
        CHECK(poll(&entry, 1, -1) == 1);
    }
    atomic_store(&caller, 0);
    CHECK(pthread_create(&thread, &attributes, in_thread, (void *)(intptr_t)which) == 0);
    if (asleep) {
        while (atomic_load(&caller) == 0)
            sched_yield();
        await_sleep(atomic_load(&caller));
        write_all(b, "abc", 3);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    /* Any bytes that the call has left. */
    while (recv(a, large, 3, MSG_DONTWAIT) > 0)
        ;
}

static volatile ssize_t received, sent;

static void handle(int signal)
{
    (void)signal;
    received = read(a, large, 3);
    sent = write(a, large, 1);
}

int main(void)
{
    pair(&a, &b);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);

    size_t size = sysconf(_SC_MINSIGSTKSZ) + 4096 + MORE;
    stack_t stack = {.ss_sp = room(size), .ss_size = size};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    write_all(b, "abc", 3);
    struct pollfd entry = {a, POLLIN, 0};
    CHECK(poll(&entry, 1, -1) == 1 && raise(SIGUSR1) == 0);
    say("received in a handler", received);
    say("sent in a handler", sent);

    for (int which = 0; which < (int)(sizeof calls / sizeof *calls); which++)
        for (int asleep = 0; asleep <= calls[which].waits; asleep++)
            try(which, asleep);
    return 0;
}
