/* A socket is to raise SIGIO while both ends have agreed on the ring, and a receive of another thread is under way. */
#include "common.h"

static atomic_int id;

static void *receiver(void *fd)
{
    char c;
    atomic_store(&id, gettid());
    read_all(*(int *)fd, &c, 1);
    return NULL;
}

int main(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0), b, other, peer, signal;
    char c;
    pthread_t thread;
    sigset_t set;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGIO) == 0 && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(a >= 0 && connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK((b = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
    CHECK(pthread_create(&thread, NULL, receiver, &a) == 0);
    while (atomic_load(&id) == 0)
        sched_yield();
    await_sleep(atomic_load(&id));
    for (int i = 0; i < 100; i++) {
        write_all(a, "x", 1);
        read_all(b, &c, 1);
    }
    CHECK(fcntl(a, F_SETOWN, getpid()) == 0);
    CHECK(fcntl(a, F_SETFL, fcntl(a, F_GETFL) | O_ASYNC) == 0);
    write_all(b, "x", 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sigwait(&set, &signal) == 0);
    for (int i = 0; i < 10; i++) {
        write_all(b, "x", 1);
        CHECK(sigwait(&set, &signal) == 0);
        read_all(a, &c, 1);
    }
    printf("signalled each time: %d\n", signal == SIGIO);
    /* Others come to the ring. */
    pair(&other, &peer);
    return 0;
}
