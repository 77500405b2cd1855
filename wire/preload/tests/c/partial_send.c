/* A blocked send that ends because the peer closes with unread bytes: it returns how much it sent, and the next send fails. */
#include "common.h"

enum { TRIES = 100, MORE = 64 << 20 };

static char bytes[MORE], got[4096];
static int begun, next_error;

static void *send_twice(void *argument)
{
    int fd = *(int *)argument;
    ssize_t sent = send(fd, bytes, sizeof bytes, 0);
    begun += sent > 0 && sent < (ssize_t)sizeof bytes;
    if (send(fd, bytes, 10, MSG_NOSIGNAL) < 0)
        /* If the reset comes during the first send, that may have got ECONNRESET. */
        next_error += errno == ECONNRESET || errno == EPIPE;
    return NULL;
}

int main(void)
{
    for (int i = 0; i < TRIES; i++) {
        int sender, receiver;
        pthread_t thread;
        pair(&sender, &receiver);
        CHECK(pthread_create(&thread, NULL, send_twice, &sender) == 0);
        CHECK(read(receiver, got, sizeof got) > 0);
        CHECK(close(receiver) == 0 && pthread_join(thread, NULL) == 0 && close(sender) == 0);
    }
    say("sent in part", begun);
    say("next send failed", next_error);
    return 0;
}
