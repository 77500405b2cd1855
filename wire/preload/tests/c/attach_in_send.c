/* A connection comes to the ring in a long send: a thread that waits for it in a set is woken by an early answer. */
#include "common.h"

enum { LOTS = 8 << 20, TIMES = 24 };

struct peer {
    int fd, rounds;
};

static int woken[2];

/* Answers early, and takes the rest only when the answer was seen. */
static void *answers(void *argument)
{
    struct peer *peer = argument;
    char c;
    for (int i = 0; i < peer->rounds; i++) {
        read_all(peer->fd, &c, 1);
        write_all(peer->fd, &c, 1);
    }
    drain(peer->fd, 1 << 20);
    write_all(peer->fd, "!", 1);
    read_all(woken[0], &c, 1);
    drain(peer->fd, LOTS - (1 << 20));
    return NULL;
}

static void *sends(void *fd)
{
    static char lots[LOTS];
    CHECK(send(*(int *)fd, lots, LOTS, 0) == LOTS);
    return NULL;
}

int main(void)
{
    CHECK(pipe(woken) == 0);
    for (int i = 0; i < TIMES; i++) {
        struct sockaddr_in address;
        struct epoll_event event = {EPOLLIN, {.u32 = 1}};
        struct peer peer = {.rounds = i % 12};
        pthread_t threads[2];
        int listener = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
        char c;
        CHECK(a >= 0 && connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        CHECK((peer.fd = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
        CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
        CHECK(pthread_create(&threads[0], NULL, answers, &peer) == 0);
        for (int j = 0; j < peer.rounds; j++) {
            write_all(a, "x", 1);
            read_all(a, &c, 1);
        }
        CHECK(pthread_create(&threads[1], NULL, sends, &a) == 0);
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        read_all(a, &c, 1);
        CHECK(c == '!');
        write_all(woken[1], "x", 1);
        CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
        close(a), close(peer.fd), close(set);
    }
    printf("woken each time\n");
    return 0;
}
