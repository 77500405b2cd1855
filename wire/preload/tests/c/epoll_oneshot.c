/* A one-shot registration fires while its connection comes to the ring: it is reported once. */
#include "common.h"
#include <sys/eventfd.h>

#define ROUNDS 400
#define TALK 40
/* To read what the kernel has in the set takes a while. */
#define OTHERS 800

static int set, b_end, a_end;
/* The send in which it comes to the ring, as the first round finds out. */
static int coming = TALK;
static atomic_int said, reports[ROUNDS + 1];

static void count(const struct epoll_event *event)
{
    atomic_fetch_add(&reports[event->data.u32], 1);
}

static void *wait_for_all(void *argument)
{
    struct epoll_event event;
    (void)argument;
    do {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        count(&event);
    } while (event.data.u32 != ROUNDS);
    return NULL;
}

static void *poke(void *argument)
{
    int round = *(int *)argument;
    await_round(&said, coming - round % 2);
    for (volatile int turns = 0; turns < round * 997 % 100000; turns++)
        ;
    write_all(a_end, "!", 1);
    return NULL;
}

static int is_attached(int fd)
{
    struct seekwire_status status = {.size = sizeof status};
    return seekwire_status && seekwire_status(fd, &status) == 0 && status.attached;
}

static void talk(int round)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = round};
    struct sockaddr_in address;
    int listener = listener_on(&address);
    pthread_t thread;
    char byte = 'x';
    a_end = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a_end, (struct sockaddr *)&address, sizeof address) == 0);
    b_end = accept(listener, NULL, NULL);
    CHECK(b_end >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, b_end, &event) == 0);
    atomic_store(&said, 0);
    CHECK(pthread_create(&thread, NULL, poke, &round) == 0);
    for (int i = 0; i < TALK; i++) {
        write_all(b_end, &byte, 1);
        if (coming == TALK && is_attached(b_end))
            coming = i;
        read_all(a_end, &byte, 1);
        atomic_fetch_add(&said, 1);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    close(listener);
}

int main(void)
{
    int wrong = 0, other = eventfd(0, 0), stop = eventfd(1, 0);
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t threads[2];
    char bytes[2];
    set = epoll_create1(0);
    for (int i = 0; i < OTHERS; i++) {
        int number = dup(other);
        if (number < 0)
            break;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, number, &event) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_all, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        talk(round);
        while (atomic_load(&reports[round]) == 0)
            sched_yield();
        /* Of what is unread, or comes now, no event is due. */
        write_all(a_end, "!", 1);
        while (epoll_wait(set, &event, 1, 0) == 1)
            count(&event);
        read_all(b_end, bytes, sizeof bytes);
        close(a_end), close(b_end);
    }
    event = (struct epoll_event){.events = EPOLLIN, .data.u32 = ROUNDS};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, stop, &event) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int round = 0; round < ROUNDS; round++)
        wrong += reports[round] != 1;
    say("reported more than once", wrong);
    return 0;
}
