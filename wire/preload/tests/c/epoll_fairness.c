/* The order and fairness with which an epoll set reports connections, pipes and eventfds that are ready together. */
#include "common.h"

#include <sys/eventfd.h>

static int add(int set, int fd, uint32_t events, uint64_t data)
{
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){events, {.u64 = data}});
}

/* Some connections and some pipes, all of them always readable. */
#define CONNECTIONS 5
#define PIPES 3
#define MEMBERS (CONNECTIONS + PIPES)

static void fair(int connections, int pipes, int max)
{
    int set = epoll_create1(0), ends[MEMBERS][2], members = connections + pipes;
    for (int i = 0; i < members; i++) {
        if (i < connections)
            pair(&ends[i][1], &ends[i][0]);
        else
            CHECK(pipe(ends[i]) == 0);
        CHECK(add(set, ends[i][0], EPOLLIN, i) == 0);
        write_all(ends[i][1], "x", 1);
    }
    int reports[MEMBERS] = {0}, last[MEMBERS] = {0}, at = 0, most = 0;
    for (int waits = 0; waits < 200; waits++) {
        struct epoll_event events[MEMBERS];
        int n = epoll_wait(set, events, max, waits % 2 ? -1 : 0);
        CHECK(n == (max < members ? max : members));
        for (int i = 0; i < n; i++) {
            int which = events[i].data.u64;
            CHECK(events[i].events == EPOLLIN);
            at++;
            reports[which]++;
            /* Number of others that were reported between two reports of one. */
            if (last[which] != 0 && at - last[which] > most)
                most = at - last[which];
            last[which] = at;
        }
    }
    int least = at;
    for (int i = 0; i < members; i++)
        least = reports[i] < least ? reports[i] : least;
    /* Reported members move behind all others; the order among those that a wait found together is unspecified. */
    printf("%d and %d, %d at a time: fair %d, in turn %d\n", connections, pipes, max, at / members - least <= 2,
           most < 2 * members);
    for (int i = 0; i < members; i++)
        close(ends[i][0]), close(ends[i][1]);
    close(set);
}

/* A pipe beside a busy connection, one event at a time: the connection is drained and written to before each wait. */
static void busy(int max)
{
    int set = epoll_create1(0), ends[2], a, b;
    pair(&a, &b);
    CHECK(pipe(ends) == 0);
    CHECK(add(set, b, EPOLLIN, 1) == 0 && add(set, ends[0], EPOLLIN, 2) == 0);
    int waits = 0, most = 0, since = 0;
    for (int i = 0; i < 500; i++) {
        struct epoll_event events[2];
        write_all(a, "xy", 2);
        if (i == 100)
            write_all(ends[1], "p", 1);
        int n = epoll_wait(set, events, max, -1);
        CHECK(n >= 1);
        waits++;
        since++;
        for (int j = 0; j < n; j++)
            if (events[j].data.u64 == 2) {
                most = since > most && i > 100 ? since : most;
                since = 0;
            }
        if (i <= 100)
            since = 0;
        drain(b, 2);
    }
    printf("beside a busy connection, %d at a time: %d\n", max, most <= 2 && since <= 2);
    close(a), close(b), close(ends[0]), close(ends[1]), close(set);
}

/* A thread writes to one member and then to another: a waiter that gets the second has also got the first. */
#define TRIES 120

struct writer {
    int first, second;
    int turn;
};

static void *write_in_order(void *argument)
{
    struct writer *writer = argument;
    for (int i = 1; i <= TRIES; i++) {
        while (__atomic_load_n(&writer->turn, __ATOMIC_ACQUIRE) != i)
            if (__atomic_load_n(&writer->turn, __ATOMIC_ACQUIRE) < i)
                sched_yield();
        /* Not always at the same moment of the other thread's wait. */
        for (volatile int wait = 0; wait < i % 97 * 13; wait++)
            ;
        write_all(writer->first, "abcdefgh", 8);
        write_all(writer->second, "abcdefgh", 8);
    }
    return NULL;
}

enum kind { CONNECTION, PIPE, EVENT };

static void open_member(enum kind kind, int ends[2])
{
    switch (kind) {
    case CONNECTION:
        pair(&ends[1], &ends[0]);
        /* Otherwise it waits until earlier bytes are acknowledged. */
        CHECK(setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
        break;
    case PIPE:
        CHECK(pipe(ends) == 0);
        break;
    case EVENT:
        ends[0] = ends[1] = eventfd(0, 0);
        CHECK(ends[0] >= 0);
    }
}

static void in_order(const char *what, enum kind first, enum kind second, int timeout, int backwards, int by_poll)
{
    int set = epoll_create1(0), ends[2][2], missing = 0;
    open_member(first, ends[0]);
    open_member(second, ends[1]);
    for (int i = 0; i < 2; i++)
        CHECK(add(set, ends[i ^ backwards][0], EPOLLIN, i ^ backwards) == 0);
    struct writer writer = {ends[0][1], ends[1][1], 0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_in_order, &writer) == 0);
    for (int i = 1; i <= TRIES; i++) {
        int seen = 0;
        struct epoll_event events[2];
        /* A member that is still in the ready list from the last time would be checked again, in its old position. */
        CHECK(epoll_wait(set, events, 2, 0) == 0);
        __atomic_store_n(&writer.turn, i, __ATOMIC_RELEASE);
        while (!(seen & 2)) {
            if (by_poll) {
                /* The kernel checks one after the other: the second comes first in the list. */
                struct pollfd fds[2] = {{ends[1][0], POLLIN, 0}, {ends[0][0], POLLIN, 0}};
                CHECK(poll(fds, 2, timeout) >= 0);
                seen |= (fds[1].revents ? 1 : 0) | (fds[0].revents ? 2 : 0);
                continue;
            }
            int n = epoll_wait(set, events, 2, timeout);
            CHECK(n >= 0);
            for (int j = 0; j < n; j++)
                seen |= 1 << events[j].data.u64;
        }
        missing += seen != 3;
        char junk[8];
        read_all(ends[0][0], junk, 8);
        read_all(ends[1][0], junk, 8);
    }
    pthread_join(thread, NULL);
    printf("%s, %d, %d, %d: without the first: %d\n", what, timeout, backwards, by_poll, missing);
    for (int i = 0; i < 2; i++) {
        close(ends[i][0]);
        if (ends[i][1] != ends[i][0])
            close(ends[i][1]);
    }
    close(set);
}

/* A new client of a server with a busy connection, one event at a time, as the kernel's socket reports it. */
static void newcomer(void)
{
    struct sockaddr_in address;
    int fd = listener_on(&address), set = epoll_create1(0), a, b, c, waits = 0;
    pair(&a, &b);
    CHECK(add(set, b, EPOLLIN, 1) == 0 && add(set, fd, EPOLLIN, 2) == 0);
    write_all(a, "x", 1);
    c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(c, (struct sockaddr *)&address, sizeof address) == 0);
    struct epoll_event event = {0};
    do {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
    } while (event.data.u64 != 2 && ++waits < 1000);
    printf("a newcomer is seen: %d\n", waits <= 2);
    close(a), close(b), close(c), close(fd), close(set);
}

int main(void)
{
    static const int rooms[] = {1, 2, 3, 5, 7, 8};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        fair(1, 1, rooms[i] > 2 ? 2 : rooms[i]);
        fair(CONNECTIONS, 0, rooms[i]);
        fair(CONNECTIONS, PIPES, rooms[i]);
        fair(1, PIPES, rooms[i]);
    }
    busy(1);
    busy(2);
    newcomer();
    for (int timeout = -1; timeout <= 0; timeout++)
        for (int by_poll = 0; by_poll <= 1; by_poll++) {
            in_order("a pipe and a connection", PIPE, CONNECTION, timeout, 0, by_poll);
            in_order("a connection and a pipe", CONNECTION, PIPE, timeout, 0, by_poll);
            in_order("an eventfd and a connection", EVENT, CONNECTION, timeout, 0, by_poll);
            in_order("two connections", CONNECTION, CONNECTION, timeout, 0, by_poll);
            in_order("two connections", CONNECTION, CONNECTION, timeout, 1, by_poll);
        }
    return 0;
}
