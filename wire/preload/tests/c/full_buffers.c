/* Small buffers that are full stay full until the receiver takes something, or is gone. */
#include "common.h"
#include <sched.h>

enum variant { LEFT_ALONE, CLOSED, PEER_CLOSED, VARIANTS };
enum { TRIES = 20 };

static int a, b, error;
static volatile pid_t sender;

static void *send_one(void *unused)
{
    sender = gettid();
    error = send(a, "x", 1, 0) == 1 ? 0 : errno;
    sender = -1;
    return unused;
}

/* TCP itself finds some more room in its buffers after a while. */
static size_t fill_slowly(int fd)
{
    static char bytes[1 << 20];
    size_t total = 0;
    for (int refused = 0; refused < 4; refused++) {
        ssize_t n = send(fd, bytes, refused % 2 ? 1 : sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            total += n, refused = -1;
        else
            CHECK(errno == EAGAIN && poll(NULL, 0, 50) == 0);
    }
    return total;
}

/* Waits until the thread sleeps in its send, or has left it. */
static void await_sender(void)
{
    char path[64], line[512] = "";
    do {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)sender);
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        line[n > 0 ? n : 0] = 0;
        sched_yield();
    } while (sender >= 0 && (line[0] == 0 || strrchr(line, ')')[2] != 'S'));
}

/* Returns the error of a send that finds no room; 0 if it finds some. */
static int attempt(enum variant variant)
{
    int size = 1 << 18;
    char byte;
    pthread_t thread;
    struct timeval limit = {.tv_usec = 200000};
    pair(&a, &b);
    CHECK(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
    CHECK(setsockopt(a, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    size_t sent = fill_slowly(a);
    if (variant != PEER_CLOSED)
        CHECK(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    sender = 0;
    CHECK(pthread_create(&thread, NULL, send_one, NULL) == 0);
    await_sender();
    if (variant == CLOSED)
        CHECK(close(a) == 0);
    if (variant == PEER_CLOSED)
        CHECK(close(b) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* The ring holds more than TCP would. */
    if (variant == LEFT_ALONE)
        check_on_ring(a);
    if (variant != CLOSED)
        CHECK(close(a) == 0);
    if (variant != PEER_CLOSED) {
        drain(b, sent + (error == 0));
        CHECK(read(b, &byte, 1) == 0 && close(b) == 0);
    }
    return error;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (enum variant variant = LEFT_ALONE; variant < VARIANTS; variant++) {
        int error = 0;
        for (int tries = 0; tries < TRIES && error == 0; tries++)
            error = attempt(variant);
        printf("variant %d: %s\n", variant, strerrorname_np(error));
    }
    return 0;
}
