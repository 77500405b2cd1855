/* Epoll sets with connections in them. */
#include "common.h"

static int add(int set, int fd, uint32_t events, uint64_t data)
{
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){events, {.u64 = data}});
}

static int change(int set, int fd, uint32_t events, uint64_t data)
{
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &(struct epoll_event){events, {.u64 = data}});
}

static int by_data(const void *x, const void *y)
{
    const struct epoll_event *a = x, *b = y;
    return (a->data.u64 > b->data.u64) - (a->data.u64 < b->data.u64);
}

static void show(const char *what, int set, int timeout)
{
    struct epoll_event events[16];
    int n = epoll_wait(set, events, 16, timeout);
    say(what, n);
    if (n > 1)
        qsort(events, n, sizeof *events, by_data);
    for (int i = 0; i < n; i++)
        printf(" %llx:%x", (unsigned long long)events[i].data.u64, events[i].events);
    if (n > 0)
        printf("\n");
}

static void level(int a, int b)
{
    int set = epoll_create1(EPOLL_CLOEXEC), ends[2];
    CHECK(pipe(ends) == 0);
    say("add", add(set, b, EPOLLIN, 0xb));
    say("add again", add(set, b, EPOLLIN, 0xb));
    say("add a pipe", add(set, ends[0], EPOLLIN, 0xe));
    say("add for room", add(set, a, EPOLLOUT, 0xa));
    show("room", set, -1);
    say("change", change(set, a, EPOLLIN, 0xaa));
    show("idle", set, 0);
    long begin = milliseconds();
    show("time over", set, 30);
    printf("not before its time: %d\n", milliseconds() - begin >= 30);
    write_all(a, "xy", 2);
    show("readable", set, -1);
    drain(b, 1);
    show("still readable", set, -1);
    write_all(ends[1], "p", 1);
    write_all(b, "z", 1);
    CHECK(recv(a, &(char){0}, 1, MSG_PEEK) == 1);
    struct epoll_event two[2];
    int seen = 0;
    for (int i = 0; i < 64; i++) {
        int n = epoll_wait(set, two, 2, -1);
        CHECK(n == 1 || n == 2);
        for (int j = 0; j < n; j++)
            seen |= two[j].data.u64 == 0xb ? 1 : two[j].data.u64 == 0xe ? 2 : 4;
    }
    printf("nobody starves: %d\n", seen);
    drain(a, 1), drain(b, 1), drain(ends[0], 1);
    show("idle again", set, 0);
    struct later later;
    do_later(&later, write_byte, &a);
    show("woken", set, -1);
    pthread_join(later.thread, NULL);
    drain(b, 1);
    do_later(&later, write_byte, &ends[1]);
    show("woken by the pipe", set, -1);
    pthread_join(later.thread, NULL);
    drain(ends[0], 1);
    say("no room for events", epoll_wait(set, two, 0, 0));
    say("not a set", epoll_wait(b, two, 2, 0));
    say("delete", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    say("delete again", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    write_all(a, "x", 1);
    show("deleted", set, 0);
    drain(b, 1);
    say("change what is not there", change(set, b, EPOLLIN, 0));
    close(ends[0]), close(ends[1]), close(set);
}

static void edge(int a, int b)
{
    int set = epoll_create(1);
    CHECK(add(set, b, EPOLLIN | EPOLLET, 1) == 0);
    show("nothing yet", set, 0);
    write_all(a, "xx", 2);
    show("news", set, -1);
    show("no news", set, 20);
    drain(b, 1);
    show("no news after reading a part", set, 20);
    struct later later;
    do_later(&later, write_byte, &a);
    show("news while data lies there", set, -1);
    pthread_join(later.thread, NULL);
    CHECK(change(set, b, EPOLLIN | EPOLLET, 2) == 0);
    show("news because it was changed", set, -1);
    drain(b, 2);
    show("empty", set, 0);
    close(set);
}

static void drain_all(void *argument)
{
    size_t *work = argument;
    drain(work[0], work[1]);
}

static void room(int a, int b, uint32_t edge)
{
    int set = epoll_create1(0);
    CHECK(add(set, a, EPOLLOUT | EPOLLIN | edge, 0xa) == 0);
    show("room", set, 0);
    size_t work[2] = {b, 0}, more;
    struct epoll_event event;
    int n;
    /* A full ring whose receiver makes no progress is left for TCP, which has room. */
    do
        work[1] += more = fill(a);
    while ((n = epoll_wait(set, &event, 1, 20)) > 0 && more > 0);
    say("no room", n);
    struct later later;
    do_later(&later, drain_all, work);
    show("room again", set, -1);
    pthread_join(later.thread, NULL);
    close(set);
}

struct full {
    pid_t sleeper;
    int a, b;
};

static void fill_and_drain(void *argument)
{
    struct full *full = argument;
    size_t len = fill(full->a);
    await_sleep(full->sleeper);
    drain(full->b, len);
}

/* One thread sleeps from before, and other threads' sends find no room in the meantime. */
static void room_meanwhile(int a, int b)
{
    int set = epoll_create1(0);
    CHECK(add(set, a, EPOLLOUT | EPOLLIN | EPOLLET, 0xb) == 0);
    show("room at first", set, 0);
    struct full full = {gettid(), a, b};
    struct later later;
    for (int i = 0; i < 5; i++) {
        do_later(&later, fill_and_drain, &full);
        show("room after another thread found none", set, -1);
        pthread_join(later.thread, NULL);
        struct epoll_event twice;
        while (epoll_wait(set, &twice, 1, 0) > 0)
            ;
    }
    close(set);
}

static void one_shot(int a, int b)
{
    int set = epoll_create1(0);
    CHECK(add(set, b, EPOLLIN | EPOLLONESHOT, 1) == 0);
    write_all(a, "x", 1);
    show("one shot", set, -1);
    show("and no other", set, 20);
    CHECK(change(set, b, EPOLLIN | EPOLLONESHOT, 2) == 0);
    show("rearmed", set, -1);
    drain(b, 1);
    CHECK(change(set, b, EPOLLIN | EPOLLONESHOT, 3) == 0);
    show("rearmed, empty", set, 0);
    struct later later;
    do_later(&later, write_byte, &a);
    show("woken", set, -1);
    pthread_join(later.thread, NULL);
    drain(b, 1);
    close(set);
}

/* One that waits only for an urgent byte, or for events that are always reported. */
static void narrow_shot(uint32_t events)
{
    int a, b, set = epoll_create1(0);
    pair(&a, &b);
    CHECK(add(set, b, events, 1) == 0);
    show("narrow shot, idle", set, 0);
    if (events & EPOLLPRI) {
        CHECK(send(a, "!", 1, MSG_OOB) == 1);
        show("urgent", set, -1);
        CHECK(recv(b, &(char){0}, 1, MSG_OOB) == 1);
        CHECK(change(set, b, events, 2) == 0);
    }
    shutdown(a, SHUT_WR), shutdown(b, SHUT_WR);
    show("ended", set, -1);
    show("and no other", set, 0);
    close(a), close(b), close(set);
}

struct change {
    int set, fd;
};

static void rearm(void *argument)
{
    struct change *what = argument;
    CHECK(change(what->set, what->fd, EPOLLIN | EPOLLONESHOT, 5) == 0);
}

static void add_readable(void *argument)
{
    struct change *what = argument;
    CHECK(add(what->set, what->fd, EPOLLIN, 6) == 0);
}

static void by_another_thread(int a, int b)
{
    int set = epoll_create1(0);
    struct change what = {set, b};
    struct later later;
    CHECK(add(set, b, EPOLLIN | EPOLLONESHOT, 4) == 0);
    write_all(a, "x", 1);
    show("fired", set, -1);
    do_later(&later, rearm, &what);
    show("rearmed by another thread", set, -1);
    pthread_join(later.thread, NULL);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
    do_later(&later, add_readable, &what);
    show("added by another thread", set, -1);
    pthread_join(later.thread, NULL);
    drain(b, 1);
    close(set);
}

static void numbers(void)
{
    int a, b;
    pair(&a, &b);
    int set = epoll_create1(0), c = dup(b);
    CHECK(add(set, b, EPOLLIN, 1) == 0 && add(set, c, EPOLLIN | EPOLLOUT, 2) == 0);
    write_all(a, "x", 1);
    show("by two numbers", set, -1);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
    show("by one number", set, -1);
    CHECK(change(set, c, EPOLLIN, 3) == 0);
    drain(b, 1);
    struct later later;
    do_later(&later, write_byte, &a);
    show("woken by one number", set, -1);
    pthread_join(later.thread, NULL);
    int other = dup(set);
    close(set);
    show("by another number of the set", other, -1);
    close(b), close(c);
    show("closed", other, 20);
    close(other), close(a);
}

static void nested(int a, int b)
{
    int inner = epoll_create1(0), outer = epoll_create1(0);
    CHECK(add(inner, b, EPOLLIN, 1) == 0);
    show("inner, idle", inner, 0);
    CHECK(add(outer, inner, EPOLLIN, 2) == 0);
    show("outer, idle", outer, 0);
    struct later later;
    do_later(&later, write_byte, &a);
    show("outer, woken", outer, -1);
    pthread_join(later.thread, NULL);
    show("inner", inner, 0);
    show("outer, still ready", outer, 0);
    drain(b, 1);
    show("inner, idle", inner, 0);
    struct pollfd entry = {inner, POLLIN, 0};
    do_later(&later, write_byte, &a);
    say("poll of a set", poll(&entry, 1, -1));
    pthread_join(later.thread, NULL);
    show("inner", inner, 0);
    drain(b, 1);
    close(inner), close(outer);
}

/* Many waiters on one set; each message is taken by one of them. */
#define MESSAGES 2000

static int shared_set, shared_fd;
static int taken;

static void *waiter(void *argument)
{
    uint32_t mode = *(uint32_t *)argument;
    struct epoll_event event;
    while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) < MESSAGES) {
        CHECK(epoll_wait(shared_set, &event, 1, -1) == 1);
        if (event.data.u64 == 99)
            break;
        char c;
        while (recv(shared_fd, &c, 1, MSG_DONTWAIT) == 1)
            __atomic_fetch_add(&taken, 1, __ATOMIC_SEQ_CST);
        if (mode & EPOLLONESHOT)
            CHECK(change(shared_set, shared_fd, EPOLLIN | mode, 1) == 0);
    }
    return NULL;
}

static void waiters(int a, int b, uint32_t mode)
{
    pthread_t threads[3];
    int ends[2];
    CHECK(pipe(ends) == 0);
    taken = 0;
    shared_set = epoll_create1(0), shared_fd = b;
    CHECK(add(shared_set, b, EPOLLIN | mode, 1) == 0 && add(shared_set, ends[0], EPOLLIN, 99) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, waiter, &mode) == 0);
    for (int i = 0; i < MESSAGES; i++) {
        write_all(a, "m", 1);
        if (i % 16 == 0)
            while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) <= i)
                sched_yield();
    }
    while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) < MESSAGES)
        sched_yield();
    write_all(ends[1], "e", 1);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("taken by several: %d\n", taken);
    close(ends[0]), close(ends[1]), close(shared_set);
}

/* Registered before connecting, and accelerated while in the set. */
static void early(void)
{
    struct sockaddr_in address;
    int fd = listener_on(&address), set = epoll_create1(0);
    int a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(add(set, a, EPOLLIN | EPOLLOUT | EPOLLET, 1) == 0);
    show("not connected", set, 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    int b = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK(add(set, b, EPOLLIN, 2) == 0);
    set_nonblocking(a, 0);
    warm_up(a, b);
    struct epoll_event events[4];
    while (epoll_wait(set, events, 4, 0) > 0)
        ;
    struct later later;
    do_later(&later, write_byte, &a);
    show("woken", set, -1);
    pthread_join(later.thread, NULL);
    drain(b, 1);
    do_later(&later, write_byte, &b);
    say("woken the other way", epoll_pwait2(set, events, 4, NULL, NULL));
    printf("readable: %d\n", (events[0].events & EPOLLIN) != 0);
    pthread_join(later.thread, NULL);
    drain(a, 1);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, a, NULL) == 0);
    shutdown(a, SHUT_WR);
    show("half closed", set, -1);
    close(a), close(b), close(fd), close(set);
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    level(a, b);
    edge(a, b);
    room(a, b, 0);
    room(a, b, EPOLLET);
    room_meanwhile(a, b);
    one_shot(a, b);
    narrow_shot(EPOLLONESHOT);
    narrow_shot(EPOLLONESHOT | EPOLLPRI);
    narrow_shot(EPOLLONESHOT | EPOLLPRI | EPOLLET);
    by_another_thread(a, b);
    numbers();
    nested(a, b);
    waiters(a, b, 0);
    waiters(a, b, EPOLLET);
    waiters(a, b, EPOLLONESHOT);
    early();
    return 0;
}
