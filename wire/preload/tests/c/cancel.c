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

int main(void)
{
    for (int way = 0; way < 2; way++) {
        type = way ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
        full = 0;
        round_of("recv", sleeper, 100);
        round_of("poll", poller, 100);
        round_of("epoll", waiter, 50);
        full = 1;
        round_of("send", sleeper, 50);
    }
    return 0;
}
