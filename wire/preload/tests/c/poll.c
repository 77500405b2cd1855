/* poll, ppoll, select and pselect. */
#include "common.h"

static void show(const char *what, int result, const struct pollfd *fds, int count)
{
    say(what, result);
    for (int i = 0; i < count; i++)
        printf(" %d:%x", i, fds[i].revents);
    printf("\n");
}

static void polls(int a, int b)
{
    char buf[16];
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct pollfd fds[5] = {{b, POLLIN, 0}, {a, POLLIN | POLLOUT, 0}, {ends[0], POLLIN, 0}, {-1, POLLIN, 7}, {b, POLLIN | POLLRDNORM, 0}};
    show("idle", poll(fds, 5, 0), fds, 5);
    write_all(a, "x", 1);
    show("readable", poll(fds, 1, -1), fds, 1);
    show("still readable", poll(fds, 5, -1), fds, 5);
    write_all(ends[1], "p", 1);
    show("pipe too", poll(fds, 5, -1), fds, 5);
    drain(b, 1);
    fds[1].events = POLLIN;
    show("pipe only", poll(fds, 5, -1), fds, 5);
    drain(ends[0], 1);
    long begin = milliseconds();
    show("time over", poll(fds, 3, 50), fds, 3);
    printf("not before its time: %d\n", milliseconds() - begin >= 50);
    show("time over, exactly", ppoll(fds, 3, &(struct timespec){0, 20000000}, NULL), fds, 3);
    say("a time that is none", ppoll(fds, 3, &(struct timespec){0, -1}, NULL));
    struct later later;
    do_later(&later, write_byte, &a);
    show("woken", poll(fds, 3, -1), fds, 3);
    pthread_join(later.thread, NULL);
    drain(b, 1);
    do_later(&later, write_byte, &ends[1]);
    show("woken by the pipe", poll(fds, 3, 10000), fds, 3);
    pthread_join(later.thread, NULL);
    drain(ends[0], 1);
    close(ends[0]), close(ends[1]);
    show("closed number", poll(fds, 3, -1), fds, 3);
    show("nothing at all", poll(NULL, 0, 1), NULL, 0);
    (void)buf;
}

static void drain_all(void *argument)
{
    size_t *work = argument;
    drain(work[0], work[1]);
}

static void room(int a, int b)
{
    struct pollfd entry = {a, POLLOUT, 0};
    show("room", poll(&entry, 1, 0), &entry, 1);
    size_t filled = fill(a);
    show("no room", poll(&entry, 1, 0), &entry, 1);
    size_t work[2] = {b, filled};
    struct later later;
    do_later(&later, drain_all, work);
    show("room again", poll(&entry, 1, -1), &entry, 1);
    pthread_join(later.thread, NULL);
}

static void selects(int a, int b)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    int count = ends[1] + 1;
    fd_set in, out, except;
    struct timeval limit = {0, 30000};
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    FD_SET(b, &in), FD_SET(ends[0], &in), FD_SET(b, &except);
    say("select in vain", select(count, &in, &out, &except, &limit));
    printf("%d %d, left %ld %ld\n", FD_ISSET(b, &in), FD_ISSET(ends[0], &in), (long)limit.tv_sec, (long)limit.tv_usec);
    write_all(a, "x", 1);
    FD_SET(b, &in), FD_SET(ends[0], &in), FD_SET(a, &out), FD_SET(b, &except);
    limit = (struct timeval){5, 0};
    say("select", select(count, &in, &out, &except, &limit));
    printf("%d %d %d %d, time left: %d\n", FD_ISSET(b, &in), FD_ISSET(ends[0], &in), FD_ISSET(a, &out), FD_ISSET(b, &except), limit.tv_sec >= 4);
    drain(b, 1);
    FD_ZERO(&in);
    FD_SET(b, &in);
    struct later later;
    do_later(&later, write_byte, &a);
    say("pselect woken", pselect(count, &in, NULL, NULL, NULL, NULL));
    pthread_join(later.thread, NULL);
    drain(b, 1);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(a, &out);
    size_t filled = fill(a);
    say("select without room", select(count, NULL, &out, NULL, &(struct timeval){0, 0}));
    drain(b, filled);
    close(ends[0]), close(ends[1]);
    FD_SET(ends[0], &in);
    FD_SET(b, &in);
    say("select of a closed number", select(count, &in, NULL, NULL, &(struct timeval){0, 0}));
    say("select of a negative count", select(-1, &in, NULL, NULL, NULL));
}

static void on_signal(int signal)
{
    (void)signal;
}

static void kill_caller(void *argument)
{
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
}

static void signals(int b)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    struct pollfd entry = {b, POLLIN, 0};
    pthread_t self = pthread_self();
    struct later later;
    do_later(&later, kill_caller, &self);
    say("poll is never restarted", poll(&entry, 1, -1));
    pthread_join(later.thread, NULL);
    sigset_t blocked, open;
    sigemptyset(&blocked), sigemptyset(&open);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    say("the mask holds", ppoll(&entry, 1, &(struct timespec){0, 1000000}, NULL));
    say("the mask opens", ppoll(&entry, 1, NULL, &open));
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
}

static void ends(int a, int b)
{
    struct pollfd fds[2] = {{b, POLLIN | POLLRDHUP, 0}, {a, POLLIN, 0}};
    write_all(a, "x", 1);
    shutdown(a, SHUT_WR);
    struct pollfd end = {b, POLLRDHUP, 0};
    CHECK(poll(&end, 1, -1) == 1);
    show("half closed", poll(fds, 1, -1), fds, 1);
    drain(b, 1);
    show("half closed, empty", poll(fds, 1, -1), fds, 1);
    close(b);
    struct pollfd both = {a, 0, 0};
    CHECK(poll(&both, 1, -1) == 1);
    show("closed", poll(fds + 1, 1, -1), fds + 1, 1);
    close(a);
}

/* The peer closes while the sender waits for room, or has closed before. */
static void close_peer(void *argument)
{
    CHECK(close(*(int *)argument) == 0);
}

static void room_at_the_end(int full)
{
    int a, b, set = epoll_create1(0);
    struct later later;
    struct epoll_event event = {EPOLLOUT | EPOLLET, {.u64 = 1}};
    pair(&a, &b);
    struct pollfd entry = {a, POLLOUT, 0};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a, &event) == 0);
    if (full) {
        fill(a);
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
        do_later(&later, close_peer, &b);
    } else {
        close(b);
    }
    printf("room for nobody: %d\n", poll(&entry, 1, -1) == 1 && (entry.revents & POLLOUT));
    printf("in a set: %d\n", epoll_wait(set, &event, 1, -1) == 1 && (event.events & EPOLLOUT));
    if (full)
        pthread_join(later.thread, NULL);
    while (send(a, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
        ;
    printf("refused: %d\n", errno == EPIPE || errno == ECONNRESET);
    close(a), close(set);
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    polls(a, b);
    room(a, b);
    selects(a, b);
    signals(b);
    ends(a, b);
    room_at_the_end(0);
    room_at_the_end(1);
    return 0;
}
