/* A process that may open nothing any more, by a limit of 0, receives, sends and sees ends as before. */
#include "common.h"
#include <sys/resource.h>

enum { ROUNDS = 300, LARGE = 300000 };

static int a, b;
static char sent[LARGE], received[LARGE];

static void *echo(void *unused)
{
    char c;
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        read_all(b, &c, 1);
        write_all(b, &c, 1);
    }
    read_all(b, received, LARGE);
    say("the end", read(b, &c, 1));
    CHECK(memcmp(sent, received, LARGE) == 0);
    CHECK(shutdown(b, SHUT_WR) == 0);
    return NULL;
}

int main(void)
{
    struct rlimit limit, none;
    pthread_t thread;
    char c;
    pair(&a, &b);
    for (int at = 0; at < LARGE; at++)
        sent[at] = at % 251;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = 0;
    CHECK(pthread_create(&thread, NULL, echo, NULL) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        c = round;
        write_all(a, &c, 1);
        read_all(a, &c, 1);
        CHECK(c == (char)round);
    }
    write_all(a, sent, LARGE);
    CHECK(shutdown(a, SHUT_WR) == 0);
    say("the other end", read(a, &c, 1));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return 0;
}
