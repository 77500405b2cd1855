/* Ignored signals do not end the waits of a thread. */
#include "common.h"

static atomic_int has_ended;

static void *send_signals(void *nothing)
{
    while (!atomic_load(&has_ended))
        CHECK(kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0);
    return nothing;
}

static void *send_back_bytes(void *fd)
{
    char byte;
    while (read(*(int *)fd, &byte, 1) == 1)
        write_all(*(int *)fd, &byte, 1);
    return NULL;
}

int main(void)
{
    int a, b, set = epoll_create1(0), interrupted = 0;
    pthread_t sender, peer;
    char byte = 1;
    CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
    pair(&a, &b);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0 && epoll_wait(set, &event, 1, 1) == 0);
    /* Also after the library has waited. */
    struct sigaction action = {.sa_handler = SIG_IGN};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(pthread_create(&sender, NULL, send_signals, NULL) == 0);
    CHECK(pthread_create(&peer, NULL, send_back_bytes, &b) == 0);
    for (int round = 0; round < 3000; round++) {
        write_all(a, &byte, 1);
        while (epoll_wait(set, &event, 1, -1) < 0)
            interrupted++;
        read_all(a, &byte, 1);
    }
    atomic_store(&has_ended, 1);
    CHECK(pthread_join(sender, NULL) == 0 && shutdown(a, SHUT_WR) == 0 && pthread_join(peer, NULL) == 0);
    say("interrupted", interrupted);
    return 0;
}
