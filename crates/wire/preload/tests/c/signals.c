/* The effect of signals on sleeping calls. */
#include "common.h"

static volatile sig_atomic_t caught;
static int fd_to_write = -1;

static void on_signal(int signal)
{
    (void)signal;
    caught++;
    if (fd_to_write >= 0)
        (void)!write(fd_to_write, "s", 1);
}

static void install(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void kill_caller(void *argument)
{
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
}

int main(void)
{
    int a, b;
    char buf[16];
    pthread_t self = pthread_self();
    struct later later;
    pair(&a, &b);

    install(0);
    do_later(&later, kill_caller, &self);
    say("recv is interrupted", recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);

    write_all(a, "xy", 2);
    do_later(&later, kill_caller, &self);
    say("a part is kept", recv(b, buf, 5, MSG_WAITALL));
    pthread_join(later.thread, NULL);

    install(SA_RESTART);
    fd_to_write = a;
    do_later(&later, kill_caller, &self);
    say("recv starts again and gets what the handler wrote", recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);
    fd_to_write = -1;

    struct timeval limit = {20, 0};
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    do_later(&later, kill_caller, &self);
    say("with a time limit it does not", recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);

    install(0);
    size_t filled = fill(a);
    do_later(&later, kill_caller, &self);
    ssize_t sent;
    /* Bytes still on their way may make room. */
    while ((sent = send(a, buf, 1, 0)) > 0)
        filled += sent;
    say("send is interrupted", sent);
    pthread_join(later.thread, NULL);
    drain(b, filled);

    signal(SIGUSR1, SIG_IGN);
    printf("caught: %d\n", (int)caught);
    return 0;
}
