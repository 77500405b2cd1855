/* TCP_CORK and MSG_MORE: sent bytes become visible when the rest of them has been sent, or after 200 ms. */
#include "common.h"

enum { LIMIT = 200 };

static void set(int fd, int option, int value)
{
    CHECK(setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value) == 0);
}

static long unread(int fd)
{
    int n = -1;
    CHECK(ioctl(fd, FIONREAD, &n) == 0);
    return n;
}

static int epoll_of(int fd, uint32_t events)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = events};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

/* The answers of all ways to query `fd`. */
struct seen {
    long peeked, unread, polled, selected, waited, nested;
};

static struct seen look(int fd, int set, int outer)
{
    char buf[64];
    struct seen seen;
    struct pollfd entry = {fd, POLLIN, 0};
    struct timeval now = {0, 0};
    struct epoll_event event;
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    seen.peeked = recv(fd, buf, sizeof buf, MSG_PEEK | MSG_DONTWAIT);
    CHECK(seen.peeked >= 0 || errno == EAGAIN);
    seen.unread = unread(fd);
    seen.polled = poll(&entry, 1, 0);
    seen.selected = select(fd + 1, &readable, NULL, NULL, &now);
    seen.waited = epoll_wait(set, &event, 1, 0);
    seen.nested = epoll_wait(outer, &event, 1, 0);
    return seen;
}

static void show(const char *what, struct seen seen)
{
    printf("%s: peeked %ld unread %ld polled %ld selected %ld waited %ld nested %ld\n", what, seen.peeked, seen.unread,
           seen.polled, seen.selected, seen.waited, seen.nested);
}

/* The sender, and what it sends. */
struct act {
    const char *name;
    void (*hold)(int fd);
    void (*release)(int fd);
    const char *all;
};

static void more(int fd) { CHECK(send(fd, "abc", 3, MSG_MORE) == 3); }
static void more_twice(int fd) { more(fd), more(fd); }
static void last(int fd) { CHECK(send(fd, "!", 1, 0) == 1); }
static void cork(int fd) { set(fd, TCP_CORK, 1), write_all(fd, "abc", 3); }
static void cork_twice(int fd) { cork(fd), cork(fd); }
static void cork_then_none(int fd) { cork(fd); CHECK(send(fd, "", 0, 0) == 0); }
static void cork_without_delay(int fd) { set(fd, TCP_NODELAY, 1), cork(fd); }
static void more_then_cork(int fd) { more(fd), set(fd, TCP_CORK, 1); }
static void end_of_record(int fd) { set(fd, TCP_CORK, 1); CHECK(send(fd, "abc", 3, MSG_EOR) == 3); }
static void next_record(int fd) { write_all(fd, "def", 3); }
static void uncork(int fd) { set(fd, TCP_CORK, 0); }
static void push(int fd) { set(fd, TCP_NODELAY, 1); }
static void end(int fd) { CHECK(shutdown(fd, SHUT_WR) == 0); }

static const struct act ACTS[] = {
    {"cork, uncork", cork, uncork, "abc"},
    {"cork twice, uncork", cork_twice, uncork, "abcabc"},
    {"cork, send nothing, uncork", cork_then_none, uncork, "abc"},
    {"cork, TCP_NODELAY", cork, push, "abc"},
    {"TCP_NODELAY, cork, uncork", cork_without_delay, uncork, "abc"},
    {"cork, end", cork, end, "abc"},
    {"the end of a record, another one", end_of_record, next_record, "abc"},
    {"more, the last", more, last, "abc!"},
    {"more twice, the last", more_twice, last, "abcabc!"},
    {"more, uncork", more, uncork, "abc"},
    {"more, cork, uncork", more_then_cork, uncork, "abc"},
};

/* Nothing is visible before the rest is sent. If the machine was so slow that the limit expired, returns no result. */
static int hidden_then_seen(const struct act *act)
{
    int a, b, set_of_b, outer;
    char buf[64] = "";
    pair(&a, &b);
    set_of_b = epoll_of(b, EPOLLIN);
    outer = epoll_of(set_of_b, EPOLLIN);
    long begin = milliseconds();
    act->hold(a);
    struct seen before = look(b, set_of_b, outer);
    act->release(a);
    CHECK(recv(b, buf, strlen(act->all), MSG_PEEK | MSG_WAITALL) == (ssize_t)strlen(act->all));
    struct seen after = look(b, set_of_b, outer);
    ssize_t received = recv(b, buf, sizeof buf, 0);
    int in_time = milliseconds() - begin < LIMIT / 2;
    if (in_time) {
        printf("%s\n", act->name);
        show("before", before);
        show("after", after);
        say("received", received);
        printf("%s\n", buf);
    }
    CHECK(close(a) == 0 && close(b) == 0 && close(set_of_b) == 0 && close(outer) == 0);
    return in_time;
}

/* A receiver that sleeps, or waits again and again without ever sleeping, is told when the limit expires, and not before. */
enum sleep { RECV, WAITALL, PEEK, POLL, SELECT, EPOLL, EDGE, NESTED, AWAKE, BUSY, SLEEPS };
static const char *SLEEP[] = {"recv", "recv all", "peek", "poll", "select", "epoll", "edge-triggered", "nested", "awake", "busy"};

struct sleeper {
    int fd, set, how;
    long ended;
    struct later later;
};

static void sleep_by(struct sleeper *sleeper)
{
    char buf[64];
    int fd = sleeper->fd;
    struct pollfd entry = {fd, POLLIN, 0};
    struct epoll_event event, both[2];
    int others[2];
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    switch (sleeper->how) {
    case AWAKE:
        while (epoll_wait(sleeper->set, &event, 1, 0) == 0)
            sched_yield();
        break;
    case BUSY:
        CHECK(pipe(others) == 0);
        write_all(others[1], "!", 1);
        event = (struct epoll_event){.events = EPOLLIN};
        CHECK(epoll_ctl(sleeper->set, EPOLL_CTL_ADD, others[0], &event) == 0);
        while (epoll_wait(sleeper->set, both, 2, -1) < 2)
            sched_yield();
        CHECK(close(others[0]) == 0 && close(others[1]) == 0);
        break;
    case RECV:
        CHECK(recv(fd, buf, sizeof buf, 0) == 3);
        break;
    case WAITALL:
        CHECK(recv(fd, buf, 3, MSG_WAITALL) == 3);
        break;
    case PEEK:
        CHECK(recv(fd, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
        break;
    case POLL:
        CHECK(poll(&entry, 1, -1) == 1 && entry.revents == POLLIN);
        break;
    case SELECT:
        CHECK(select(fd + 1, &readable, NULL, NULL, NULL) == 1);
        break;
    default:
        CHECK(epoll_wait(sleeper->set, &event, 1, -1) == 1);
    }
    sleeper->ended = milliseconds();
}

static void cork_later(void *argument)
{
    cork(*(int *)argument);
}

static void time_over(int how)
{
    int a, b, set_of_b = -1, outer = -1;
    pair(&a, &b);
    if (how >= EPOLL)
        set_of_b = epoll_of(b, EPOLLIN | (how == EDGE ? EPOLLET : 0));
    if (how == NESTED)
        outer = epoll_of(set_of_b, EPOLLIN);
    struct sleeper sleeper = {.fd = b, .set = how == NESTED ? outer : set_of_b, .how = how};
    /* Once with bytes that are held when the sleep begins, once with bytes that come during it, if there is one. */
    for (int during = 0; during < (how >= AWAKE ? 1 : 2); during++) {
        long begin = milliseconds();
        if (during)
            do_later(&sleeper.later, cork_later, &a);
        else
            cork(a);
        sleep_by(&sleeper);
        printf("%s, corked %s: %s\n", SLEEP[how], during ? "during it" : "before it",
               sleeper.ended - begin < LIMIT * 3 / 4 ? "too early" : "later");
        if (during)
            CHECK(pthread_join(sleeper.later.thread, NULL) == 0);
        if (how >= PEEK)
            drain(b, 3);
        say("left", unread(b));
    }
    CHECK(close(a) == 0 && close(b) == 0 && (set_of_b < 0 || close(set_of_b) == 0) && (outer < 0 || close(outer) == 0));
}

static void uncork_later(void *argument)
{
    uncork(*(int *)argument);
}

/* Uncorking wakes a sleeping receiver: otherwise the first bytes alone would not end a sleep for more. */
static void woken(void)
{
    int a, b;
    char buf[8] = "";
    struct later later;
    pair(&a, &b);
    for (int i = 0; i < 20; i++) {
        cork(a);
        do_later(&later, uncork_later, &a);
        say("recv", recv(b, buf, sizeof buf, 0));
        CHECK(pthread_join(later.thread, NULL) == 0);
    }
    CHECK(close(a) == 0 && close(b) == 0);
}

/* Full segments do not wait for the uncorking. */
static void full_segments(void)
{
    static char bytes[1 << 20];
    int a, b, segment = 0;
    socklen_t len = sizeof segment;
    pair(&a, &b);
    CHECK(getsockopt(a, IPPROTO_TCP, TCP_MAXSEG, &segment, &len) == 0 && segment > 100);
    set(a, TCP_CORK, 1);
    write_all(a, bytes, 50);
    write_all(a, bytes, segment);
    CHECK(recv(b, bytes, segment, MSG_WAITALL) == segment);
    uncork(a);
    drain(b, 50);
    say("left", unread(b));
    /* Many small sends, which fill a ring. */
    set(a, TCP_CORK, 1);
    for (int i = 0; i < 5000; i++)
        write_all(a, "x", 1);
    uncork(a);
    drain(b, 5000);
    say("left", unread(b));
    CHECK(close(a) == 0 && close(b) == 0);
}

/* Held bytes come before the end, however the sender ends. */
static void gone(int how)
{
    struct sockaddr_in address;
    char buf[64] = "";
    int listener = listener_on(&address), ready[2], status;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0);
        for (int i = 0; i < 64; i++) {
            char c = 'w';
            write_all(fd, &c, 1);
            read_all(fd, &c, 1);
        }
        cork(fd);
        write_all(ready[1], "!", 1);
        if (how == 0)
            raise(SIGKILL);
        if (how == 1)
            _exit(0);
        if (how == 2)
            execlp("true", "true", NULL);
        _exit(1);
    }
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    for (int i = 0; i < 64; i++) {
        char c;
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    read_all(ready[0], buf, 1);
    CHECK(waitpid(child, &status, 0) == child);
    struct pollfd entry = {fd, POLLIN | POLLRDHUP, 0};
    CHECK(poll(&entry, 1, -1) == 1);
    /* The kernel reports the end, perhaps later than the held bytes. */
    while (!(entry.revents & POLLRDHUP))
        CHECK(poll(&entry, 1, -1) == 1);
    say("unread", unread(fd));
    say("received", recv(fd, buf, sizeof buf, 0));
    say("the end", recv(fd, buf, sizeof buf, 0));
    CHECK(close(fd) == 0 && close(ready[0]) == 0 && close(ready[1]) == 0);
}

/* The holder to which the socket is handed over gets the held bytes, in order. */
static void handed_over(void)
{
    int a, b, status;
    pair(&a, &b);
    write_all(a, "first ", 6);
    cork(a);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(b, 0) == 0);
        execlp("head", "head", "-c", "14", NULL);
        _exit(1);
    }
    write_all(a, "last\n", 5);
    uncork(a);
    CHECK(waitpid(child, &status, 0) == child);
    printf("status %d\n", status);
    CHECK(close(a) == 0 && close(b) == 0);
}

/* The other process of a fork uncorks. */
static void shared(void)
{
    int a, b, status;
    char buf[16] = "";
    pair(&a, &b);
    for (int i = 0; i < 5; i++) {
        cork(a);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            write_all(a, "def", 3);
            uncork(a);
            _exit(0);
        }
        say("received", recv(b, buf, 6, MSG_WAITALL));
        printf("%s\n", buf);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(close(a) == 0 && close(b) == 0);
}

/* Visible bytes are not hidden again: TCP may show held bytes early when it gets an acknowledgement. */
static void not_hidden(void)
{
    int a, b;
    char c;
    pair(&a, &b);
    more(a);
    write_all(b, "?", 1);
    read_all(a, &c, 1);
    long before = unread(b);
    set(a, TCP_CORK, 1);
    printf("hidden by a cork: %d\n", unread(b) < before);
    drain(b, 3);
    CHECK(close(a) == 0 && close(b) == 0);
}

int main(void)
{
    for (size_t i = 0; i < sizeof ACTS / sizeof *ACTS; i++)
        while (!hidden_then_seen(&ACTS[i]))
            ;
    for (int how = 0; how < SLEEPS; how++)
        time_over(how);
    woken();
    not_hidden();
    full_segments();
    for (int how = 0; how < 3; how++)
        gone(how);
    handed_over();
    shared();
    return 0;
}
