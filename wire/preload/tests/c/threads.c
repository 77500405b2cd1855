/* Full duplex with several threads, close and cancellation while others sleep, and many connections at once. */
#include "common.h"

#define BYTES (16u << 20)

static void *sender(void *argument)
{
    static _Thread_local unsigned char buf[40000];
    uint32_t position = 0;
    while (position < BYTES) {
        size_t len = 1 + position * 7919u % sizeof buf;
        if (len > BYTES - position)
            len = BYTES - position;
        for (size_t i = 0; i < len; i++)
            buf[i] = (position + i) * 2654435761u >> 11;
        write_all(*(int *)argument, buf, len);
        position += len;
    }
    return NULL;
}

static void *receiver(void *argument)
{
    static _Thread_local unsigned char buf[50000];
    uint32_t position = 0;
    while (position < BYTES) {
        ssize_t n = recv(*(int *)argument, buf, sizeof buf, 0);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            CHECK(buf[i] == (unsigned char)((position + i) * 2654435761u >> 11));
        position += n;
    }
    return NULL;
}

static void full_duplex(void)
{
    int a, b;
    pthread_t threads[4];
    pair(&a, &b);
    CHECK(pthread_create(&threads[0], NULL, sender, &a) == 0 && pthread_create(&threads[1], NULL, receiver, &b) == 0);
    CHECK(pthread_create(&threads[2], NULL, sender, &b) == 0 && pthread_create(&threads[3], NULL, receiver, &a) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("both ways: %u\n", BYTES);
    close(a), close(b);
}

static void *sleeper(void *argument)
{
    char c;
    (void)!read(*(int *)argument, &c, 1);
    return NULL;
}

static void cancelled(int warm)
{
    int a, b;
    void *result;
    pthread_t thread;
    if (warm) {
        pair(&a, &b);
    } else {
        struct sockaddr_in address;
        int fd = listener_on(&address);
        a = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0 && (b = accept(fd, NULL, NULL)) >= 0);
        close(fd);
    }
    CHECK(pthread_create(&thread, NULL, sleeper, &b) == 0);
    pthread_cancel(thread);
    CHECK(pthread_join(thread, &result) == 0);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    write_all(a, "x", 1);
    say("and usable", read(b, &(char){0}, 1));
    close(a), close(b);
}

/* At every moment of a call. */
static void cancelled_often(void)
{
    int a, b, cancelled = 0;
    pair(&a, &b);
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, sleeper, &b) == 0);
        for (int j = 0; j < i % 20; j++)
            sched_yield();
        pthread_cancel(thread);
        CHECK(pthread_join(thread, &result) == 0);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled: %d\n", cancelled);
    write_all(a, "x", 1);
    say("and usable", read(b, &(char){0}, 1));
    close(a), close(b);
}

/* Fds are closed and reused while other threads send: nothing may be mixed up or crash. */
static void *churn(void *argument)
{
    (void)argument;
    for (int i = 0; i < 30; i++) {
        int a, b;
        char c = i;
        pair(&a, &b);
        write_all(a, &c, 1);
        read_all(b, &c, 1);
        CHECK(c == i);
        close(a), close(b);
    }
    return NULL;
}

static void many(void)
{
    static int ends[100][2];
    int set = epoll_create1(0), woken = 0;
    for (int i = 0; i < 100; i++) {
        pair(&ends[i][0], &ends[i][1]);
        struct epoll_event event = {EPOLLIN, {.u32 = i}};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[i][1], &event) == 0);
    }
    for (int i = 0; i < 100; i++)
        write_all(ends[i][0], "x", 1);
    while (woken < 100) {
        struct epoll_event events[7];
        int n = epoll_wait(set, events, 7, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++, woken++)
            drain(ends[events[i].data.u32][1], 1);
    }
    printf("woken: %d\n", woken);
    for (int i = 0; i < 100; i++)
        close(ends[i][0]), close(ends[i][1]);
    close(set);
}

int main(void)
{
    pthread_t threads[4];
    full_duplex();
    cancelled(0);
    cancelled(1);
    cancelled_often();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    many();
    return 0;
}
