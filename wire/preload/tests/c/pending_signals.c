/* Waits with a signal mask of their own, some with a timeout of 0: whether a pending signal is let in. */
#include "common.h"

static volatile int handled;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

static sigset_t blocked, none;

/* Like `say`, and whether the handler has run; a signal that is still pending is consumed. */
static void show(const char *what, long result)
{
    struct timespec now = {0, 0};
    say(what, result);
    printf("handled: %d\n", handled);
    handled = 0;
    sigtimedwait(&blocked, NULL, &now);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        CHECK(raise(SIGUSR1) == 0);                                                                                    \
        show(#call, call);                                                                                             \
    } while (0)

int main(void)
{
    int a, b, set = epoll_create1(0);
    pair(&a, &b);
    struct sigaction action = {.sa_handler = handle};
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);

    struct pollfd entry = {a, POLLIN, 0};
    struct timespec at_once = {0, 0}, moment = {0, 1}, long_time = {20, 0};
    for (int ready = 0; ready <= 1; ready++) {
        fd_set read;
        if (ready) {
            write_all(b, "x", 1);
            CHECK(poll(&entry, 1, -1) == 1);
        }
        FD_ZERO(&read);
        FD_SET(a, &read);
        fd_set all = read;
        TRY(ppoll(&entry, 1, &at_once, &none));
        TRY(ppoll(&entry, 1, &at_once, &blocked));
        TRY(ppoll(&entry, 1, &at_once, NULL));
        TRY(ppoll(&entry, 1, &moment, &none));
        TRY(ppoll(&entry, 1, &long_time, &none));
        TRY(pselect(a + 1, &read, NULL, NULL, &at_once, &none));
        read = all;
        TRY(pselect(a + 1, &read, NULL, NULL, &moment, &none));
        read = all;
        TRY(pselect(a + 1, &read, NULL, NULL, &long_time, &none));
        TRY(epoll_pwait(set, &event, 1, 0, &none));
        TRY(epoll_pwait(set, &event, 1, 1, &none));
        TRY(epoll_pwait2(set, &event, 1, &at_once, &none));
        TRY(epoll_pwait2(set, &event, 1, &moment, &none));
        TRY(epoll_pwait2(set, &event, 1, &long_time, &none));
    }
    return 0;
}
