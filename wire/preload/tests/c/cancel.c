/* Cancellation of a thread at any moment, and its cleanup handlers. */
#include "common.h"

static int cleaned, full, type, set;

static void clean(void *argument)
{
    *(int *)argument += 1;
}

static void *sleeper(void *argument)
{
    char c;
    CHECK(pthread_setcanceltype(type, NULL) == 0);
    pthread_cleanup_push(clean, &cleaned);
    if (full) {
        /* The kernel may find a little more room. */
        while (send(*(int *)argument, "x", 1, 0) == 1)
            ;
    } else {
        (void)!recv(*(int *)argument, &c, 1, 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *poller(void *argument)
{
    struct pollfd entry = {*(int *)argument, POLLIN, 0};
    CHECK(pthread_setcanceltype(type, NULL) == 0);
    pthread_cleanup_push(clean, &cleaned);
    (void)!poll(&entry, 1, -1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waiter(void *argument)
{
    struct epoll_event event = {EPOLLIN, {.u32 = 1}};
    CHECK(pthread_setcanceltype(type, NULL) == 0);
    (void)argument;
    pthread_cleanup_push(clean, &cleaned);
    (void)!epoll_wait(set, &event, 1, -1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void round_of(const char *what, void *(*work)(void *), int moments)
{
    int a, b, cancelled = 0;
    pair(&a, &b);
    if (full)
        CHECK(fill(b) > 0);
    struct epoll_event event = {EPOLLIN, {.u32 = 1}};
    CHECK((set = epoll_create1(0)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    cleaned = 0;
    for (int i = 0; i < moments; i++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, work, &b) == 0);
        for (int j = 0; j < i % 20; j++)
            sched_yield();
        pthread_cancel(thread);
        CHECK(pthread_join(thread, &result) == 0);
        cancelled += result == PTHREAD_CANCELED;
    }
    /* With asynchronous cancellation, a thread may be cancelled before it has a handler. */
    int right = type == PTHREAD_CANCEL_DEFERRED ? cleaned == cancelled : cleaned <= cancelled;
    printf("%s: %d of %d, %d\n", what, cancelled, moments, right);
    /* The number is unknown: a byte may have been sent when a thread was cancelled. */
    char junk[65536];
    set_nonblocking(a, 1);
    while (full && read(a, junk, sizeof junk) > 0)
        ;
    set_nonblocking(a, 0);
    write_all(a, "x", 1);
    say("and usable", read(b, &(char){0}, 1));
    write_all(b, "x", 1);
    say("and back", read(a, &(char){0}, 1));
    close(a), close(b), close(set);
}

/* Each call with nothing to wait for ends a thread that was cancelled before. */
enum call { POLL, PPOLL, SELECT, PSELECT, EPOLL, EPOLL_P, NOTHING_YET, CALLS };

static int ready, may_go[2];

static void *called(void *argument)
{
    enum call call = *(enum call *)argument;
    struct pollfd entry = {ready, POLLOUT, 0}, empty = {ready, POLLIN, 0};
    struct epoll_event event;
    struct timespec none = {0, 0};
    fd_set writable;
    char c;
    FD_ZERO(&writable);
    FD_SET(ready, &writable);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    read_all(may_go[0], &c, 1);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    switch (call) {
    case POLL: (void)!poll(&entry, 1, -1); break;
    case PPOLL: (void)!ppoll(&entry, 1, &none, NULL); break;
    case SELECT: (void)!select(ready + 1, NULL, &writable, NULL, NULL); break;
    case PSELECT: (void)!pselect(ready + 1, NULL, &writable, NULL, &none, NULL); break;
    case EPOLL: (void)!epoll_wait(set, &event, 1, -1); break;
    case EPOLL_P: (void)!epoll_pwait(set, &event, 1, -1, NULL); break;
    default: (void)!poll(&empty, 1, 0);
    }
    return NULL;
}

static void at_once(void)
{
    int peer;
    struct epoll_event event = {EPOLLOUT, {.u32 = 1}};
    pair(&peer, &ready);
    CHECK(pipe(may_go) == 0);
    CHECK((set = epoll_create1(0)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, ready, &event) == 0);
    for (enum call call = 0; call < CALLS; call++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, called, &call) == 0 && pthread_cancel(thread) == 0);
        write_all(may_go[1], "g", 1);
        CHECK(pthread_join(thread, &result) == 0);
        printf("call %d: %s\n", call, result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    }
    close(peer), close(ready), close(set), close(may_go[0]), close(may_go[1]);
}

enum { LOTS = 16 << 20, FEW = 100 };

static int shared, moved;
static atomic_int id;

static void *sender(void *lots)
{
    atomic_store(&id, gettid());
    moved = send(shared, lots, LOTS, 0);
    return NULL;
}

static void *receiver(void *few)
{
    atomic_store(&id, gettid());
    moved = recv(shared, few, FEW, MSG_WAITALL);
    return NULL;
}

static void *bystander(void *is_receiver)
{
    char c = 0;
    atomic_store(&id, gettid());
    /* The kernel may find a little more room. */
    while ((is_receiver ? recv(shared, &c, 1, 0) : send(shared, &c, 1, 0)) == 1)
        ;
    return NULL;
}

static pthread_t asleep(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    atomic_store(&id, 0);
    CHECK(pthread_create(&thread, NULL, work, argument) == 0);
    while (atomic_load(&id) == 0)
        sched_yield();
    await_sleep(atomic_load(&id));
    return thread;
}

/* Other threads' calls on the same socket go on. */
static void others_go_on(void)
{
    static char lots[LOTS];
    for (int receives = 0; receives < 2; receives++) {
        int peer;
        pthread_t other, cancelled;
        void *result;
        pair(&peer, &shared);
        if (receives) {
            CHECK(fill(shared) > 0);
            write_all(peer, lots, FEW / 2);
        }
        other = asleep(receives ? receiver : sender, lots);
        cancelled = asleep(bystander, receives ? NULL : &id);
        CHECK(pthread_cancel(cancelled) == 0 && pthread_join(cancelled, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        if (receives)
            write_all(peer, lots, FEW - FEW / 2);
        else
            drain(peer, LOTS);
        CHECK(pthread_join(other, NULL) == 0);
        printf("%s: %d bytes\n", receives ? "received" : "sent", moved);
        close(peer), close(shared);
    }
}

int main(void)
{
    at_once();
    others_go_on();
    for (int method = 0; method < 2; method++) {
        type = method ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
        full = 0;
        round_of("recv", sleeper, 100);
        round_of("poll", poller, 100);
        round_of("epoll", waiter, 50);
        full = 1;
        round_of("send", sleeper, 50);
    }
    return 0;
}
