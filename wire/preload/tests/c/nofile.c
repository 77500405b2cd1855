/* A process that may open no more files, because of a limit of 0, receives, sends and sees ends as before. */
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

/* The limit bounds the list, whatever is ready. */
static void lists(void)
{
    struct rlimit limit, low;
    struct pollfd list[65];
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int at = 0; at < 65; at++)
        list[at] = (struct pollfd){at == 7 ? b : -1, POLLIN, 0};
    for (int ready = 0; ready < 2; ready++) {
        say("as many as the limit", poll(list, 64, 0));
        say("more", poll(list, 65, 0));
        say("more, with a time", ppoll(list, 65, &(struct timespec){0, 0}, NULL));
        write_all(a, "x", 1);
        CHECK(poll(&(struct pollfd){b, POLLIN, 0}, 1, -1) == 1);
    }
    drain(b, 2);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

int main(void)
{
    struct rlimit limit, none;
    pthread_t thread;
    char c;
    pair(&a, &b);
    lists();
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
