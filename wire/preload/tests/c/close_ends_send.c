/* A send that waits for room ends when the other end is closed: it returns what it has sent, or an error, and the next one
   fails. */
#include "common.h"

struct sender {
    pthread_t thread;
    int fd;
    size_t len;
    _Atomic pid_t id;
};

static char junk[64 << 20];

/* Sends until it has failed twice. */
static void *send_in_vain(void *argument)
{
    struct sender *sender = argument;
    int parts = 0;
    sender->id = gettid();
    for (int failed = 0; failed < 2;) {
        ssize_t n = send(sender->fd, junk, sender->len, MSG_NOSIGNAL);
        CHECK(n != (ssize_t)sender->len);
        if (n > 0) {
            parts++;
        } else {
            say("send", n);
            failed++;
        }
    }
    /* Even without room at first, some may have appeared. */
    printf("a part at most: %d\n", parts <= 1);
    return NULL;
}

/* The buffers are small; `full`: there is no room anywhere when the first send begins. */
static void closes(int full)
{
    int a, b, size = 8 << 10;
    struct sender sender = {.len = sizeof junk};
    pair(&a, &b);
    CHECK(setsockopt(a, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    if (full)
        fill(a);
    sender.fd = a;
    CHECK(pthread_create(&sender.thread, NULL, send_in_vain, &sender) == 0);
    while (sender.id == 0)
        sched_yield();
    await_sleep(sender.id);
    printf("full %d\n", full);
    CHECK(close(b) == 0 && pthread_join(sender.thread, NULL) == 0 && close(a) == 0);
}

int main(void)
{
    closes(0);
    closes(1);
    return 0;
}
