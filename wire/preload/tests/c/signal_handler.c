/* All that a signal handler may do with sockets, in one that may have interrupted malloc: nothing calls malloc there. */
#include "common.h"

static volatile sig_atomic_t inside;
static volatile int calls;
static struct sockaddr_in address;
static int listener;

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);

static void count(void)
{
    if (inside)
        calls++;
}

void *malloc(size_t size) { return count(), __libc_malloc(size); }
void *calloc(size_t number, size_t size) { return count(), __libc_calloc(number, size); }
void *realloc(void *old, size_t size) { return count(), __libc_realloc(old, size); }
void free(void *old) { count(), __libc_free(old); }

/* The whole life of a connection, without calls that are not async-signal-safe. */
static void life(int signal)
{
    char bytes[3000] = {0};
    (void)signal;
    inside = 1;
    int a = socket(AF_INET, SOCK_STREAM, 0), b = -1;
    if (a < 0 || connect(a, (struct sockaddr *)&address, sizeof address) || (b = accept(listener, NULL, NULL)) < 0)
        _exit(2);
    for (int i = 0; i < 100; i++) {
        size_t size = i % 10 ? 1 : sizeof bytes;
        if (write(a, bytes, size) != (ssize_t)size || recv(b, bytes, size, MSG_WAITALL) != (ssize_t)size)
            _exit(3);
        if (send(b, bytes, size, 0) != (ssize_t)size || recv(a, bytes, size, MSG_WAITALL) != (ssize_t)size)
            _exit(4);
        struct pollfd entry = {a, POLLIN | POLLOUT, 0};
        if (poll(&entry, 1, -1) != 1)
            _exit(5);
    }
    if (shutdown(a, SHUT_WR) || read(b, bytes, 1) != 0 || close(a) || close(b))
        _exit(6);
    inside = 0;
}

static void *in_a_thread(void *nothing)
{
    CHECK(raise(SIGUSR1) == 0);
    return nothing;
}

int main(void)
{
    listener = listener_on(&address);
    CHECK(signal(SIGUSR1, life) != SIG_ERR);
    say("first", raise(SIGUSR1));
    say("again", raise(SIGUSR1));
    for (int i = 0; i < 70; i++)
        CHECK(raise(SIGUSR1) == 0);
    /* A thread that has called none of these functions before. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    say("calls of malloc", calls);
    close(listener);
    return 0;
}
