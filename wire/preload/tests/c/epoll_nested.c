/* Sets inside sets, one to three levels deep: a message wakes the outermost one once, and received messages wake nobody. */
#include "common.h"

#define MESSAGES 200
#define FEW 4

/* Sends a message for each answer. */
static void *talk(void *argument)
{
    int fd = *(int *)argument;
    char bytes[64] = {0};
    for (int i = 0; i < MESSAGES; i++) {
        write_all(fd, bytes, sizeof bytes);
        read_all(fd, bytes, 1);
    }
    return NULL;
}

static void enter(int set, int fd, uint32_t events)
{
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){events, {.fd = fd}}) == 0);
}

/* Queries like a program, from the outermost set to the connection; returns whether that is ready. */
static int is_ready(const int *sets, int level, int fd, int timeout)
{
    struct epoll_event event;
    int n = epoll_wait(sets[level], &event, 1, timeout);
    CHECK(n >= 0);
    if (n == 0)
        return 0;
    if (level == 0) {
        CHECK(event.data.fd == fd);
        return 1;
    }
    CHECK(event.data.fd == sets[level - 1]);
    return is_ready(sets, level - 1, fd, 0);
}

static void try(int levels, uint32_t events, int nonblocking)
{
    int a, b, sets[4], wakes = 0, messages = 0;
    char bytes[64];
    pthread_t peer;
    pair(&a, &b);
    set_nonblocking(b, nonblocking);
    for (int level = 0; level <= levels; level++) {
        sets[level] = epoll_create1(EPOLL_CLOEXEC);
        CHECK(sets[level] >= 0);
    }
    enter(sets[0], b, events);
    for (int level = 1; level <= levels; level++)
        enter(sets[level], sets[level - 1], EPOLLIN);
    CHECK(pthread_create(&peer, NULL, talk, &a) == 0);
    while (messages < MESSAGES) {
        wakes++;
        if (is_ready(sets, levels, b, -1)) {
            read_all(b, bytes, sizeof bytes);
            messages++;
            write_all(b, bytes, 1);
        }
    }
    CHECK(pthread_join(peer, NULL) == 0);
    /* The peer may be stopped before it rings for a message that is received in the meantime. */
    if (wakes > MESSAGES + FEW)
        printf("%d wake-ups for %d messages\n", wakes, messages);
    printf("%d levels, events %x: %d messages, at rest %d\n", levels, events, messages, is_ready(sets, levels, b, 100));
    for (int level = 0; level <= levels; level++)
        CHECK(close(sets[level]) == 0);
    CHECK(close(a) == 0 && close(b) == 0);
}

static int connected, accepted, end_of_pipe;

static void take_and_tell(void *unused)
{
    char c;
    (void)unused;
    write_all(connected, "x", 1);
    read_all(accepted, &c, 1);
    write_all(end_of_pipe, "p", 1);
}

/* The two inner sets have the same data: after one message was received, the other set's event, reported only once, must not
   be hidden. */
static void one_word(void)
{
    int sets[3], tube[2], rounds = 100;
    char c;
    pair(&connected, &accepted);
    CHECK(pipe2(tube, O_NONBLOCK) == 0);
    end_of_pipe = tube[1];
    for (int i = 0; i < 3; i++)
        CHECK((sets[i] = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    enter(sets[1], accepted, EPOLLIN);
    enter(sets[2], tube[0], EPOLLIN);
    CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, sets[1], &(struct epoll_event){EPOLLIN, {.u64 = 0}}) == 0);
    CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, sets[2], &(struct epoll_event){EPOLLIN | EPOLLET, {.u64 = 0}}) == 0);
    for (int i = 0; i < rounds; i++) {
        struct later later;
        struct epoll_event events[4];
        do_later(&later, take_and_tell, NULL);
        do
            CHECK(epoll_wait(sets[0], events, 4, -1) > 0);
        while (read(tube[0], &c, 1) != 1);
        CHECK(pthread_join(later.thread, NULL) == 0);
    }
    printf("two sets with one word: %d rounds\n", rounds);
    for (int i = 0; i < 3; i++)
        CHECK(close(sets[i]) == 0);
    CHECK(close(connected) == 0 && close(accepted) == 0 && close(tube[0]) == 0 && close(tube[1]) == 0);
}

static void send_urgent(void *fd)
{
    CHECK(send(*(int *)fd, "!", 1, MSG_OOB) == 1);
}

/* The connection goes back to TCP, and there are no bytes to read. */
static void urgent(int levels)
{
    int a, b, sets[4];
    struct later later;
    pair(&a, &b);
    for (int level = 0; level <= levels; level++) {
        CHECK((sets[level] = epoll_create1(EPOLL_CLOEXEC)) >= 0);
        enter(sets[level], level ? sets[level - 1] : b, EPOLLIN);
    }
    CHECK(epoll_wait(sets[levels], &(struct epoll_event){0}, 1, 0) == 0);
    do_later(&later, send_urgent, &a);
    say("urgent", epoll_wait(sets[levels], &(struct epoll_event){0}, 1, 100));
    CHECK(pthread_join(later.thread, NULL) == 0);
    write_all(a, "x", 1);
    printf("readable: %d\n", is_ready(sets, levels, b, -1));
    for (int level = 0; level <= levels; level++)
        CHECK(close(sets[level]) == 0);
    CHECK(close(a) == 0 && close(b) == 0);
}

int main(void)
{
    for (int levels = 1; levels <= 3; levels++) {
        try(levels, EPOLLIN, 0);
        try(levels, EPOLLIN | EPOLLRDHUP, 1);
        try(levels, EPOLLIN | EPOLLET, 0);
    }
    for (int levels = 1; levels <= 3; levels++)
        urgent(levels);
    one_word();
    return 0;
}
