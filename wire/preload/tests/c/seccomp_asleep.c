/*
 * A system call filter for all threads at once, while they sleep in calls on connections: seccomp_asleep ACTION. Each of these
 * calls ends as it would without the filter, which allows exactly the calls that the program itself makes.
 */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* The calls of the program from then on, and those of the C library for it. */
static const int allowed[] = {
    SYS_read,       SYS_write,    SYS_readv,       SYS_recvfrom,   SYS_sendto,     SYS_recvmsg,      SYS_recvmmsg,
    SYS_poll,       SYS_ppoll,    SYS_select,      SYS_pselect6,   SYS_epoll_wait, SYS_epoll_pwait,  SYS_epoll_pwait2,
    SYS_accept,     SYS_connect,  SYS_futex,       SYS_munmap,     SYS_madvise,    SYS_rt_sigreturn, SYS_rt_sigprocmask,
    SYS_exit,       SYS_exit_group, SYS_restart_syscall, SYS_close, SYS_set_robust_list, SYS_rseq,
};

static const struct {
    const char *name;
    uint32_t value;
} actions[] = {
    {"kill", SECCOMP_RET_KILL_PROCESS},
    {"errno", SECCOMP_RET_ERRNO | EPERM},
};

static void forbid(const char *what)
{
    struct sock_filter program[2 + 2 * sizeof allowed / sizeof *allowed];
    unsigned len = 0;
    uint32_t action = 0;
    for (size_t at = 0; at < sizeof actions / sizeof *actions; at++)
        if (strcmp(actions[at].name, what) == 0)
            action = actions[at].value;
    CHECK(action != 0);
    program[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t at = 0; at < sizeof allowed / sizeof *allowed; at++) {
        program[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], 0, 1);
        program[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    program[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    struct sock_fprog all = {.len = len, .filter = program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all) == 0);
}

/* One thread, asleep in one call. */
struct sleeper {
    const char *name;
    /* Returns the result to compare. */
    long (*call)(struct sleeper *);
    /* No event comes: the call ends by itself. */
    int ends;
    pthread_t thread;
    volatile pid_t id;
    int fd, far, set;
    long result;
};

/* LARGE: more than a connection takes. */
enum { LONG = 100 * 1000, SHORT = 5 * 1000, LARGE = 32 << 20 };
static const struct timespec some_time = {.tv_sec = 100};
static char large[LARGE];

static long in_read(struct sleeper *self)
{
    char c;
    return read(self->fd, &c, 1) == 1 ? c : -1;
}

static long in_readv(struct sleeper *self)
{
    char c;
    struct iovec vector = {&c, 1};
    return readv(self->fd, &vector, 1) == 1 ? c : -1;
}

static long in_recv(struct sleeper *self)
{
    char c;
    return recv(self->fd, &c, 1, 0) == 1 ? c : -1;
}

static long in_recvmsg(struct sleeper *self)
{
    char c;
    struct iovec vector = {&c, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    return recvmsg(self->fd, &message, 0) == 1 ? c : -1;
}

static long in_recvmmsg(struct sleeper *self)
{
    char c;
    struct iovec vector = {&c, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
    return recvmmsg(self->fd, &message, 1, 0, NULL) == 1 ? c : -1;
}

static long in_peek(struct sleeper *self)
{
    char c;
    return recv(self->fd, &c, 1, MSG_PEEK) == 1 ? in_read(self) : -1;
}

static long polled(struct sleeper *self, int timeout)
{
    struct pollfd entry = {.fd = self->fd, .events = POLLIN};
    int ready = poll(&entry, 1, timeout);
    return ready == 1 && entry.revents == POLLIN ? in_read(self) : ready;
}

static long in_poll(struct sleeper *self)
{
    return polled(self, -1);
}

static long in_poll_for_long(struct sleeper *self)
{
    return polled(self, LONG);
}

static long in_poll_in_vain(struct sleeper *self)
{
    return polled(self, SHORT);
}

static long in_ppoll(struct sleeper *self)
{
    struct pollfd entry = {.fd = self->fd, .events = POLLIN};
    return ppoll(&entry, 1, &some_time, NULL) == 1 && entry.revents == POLLIN ? in_read(self) : -1;
}

static long in_poll_of_set(struct sleeper *self)
{
    struct pollfd entry = {.fd = self->set, .events = POLLIN};
    return poll(&entry, 1, -1) == 1 && entry.revents == POLLIN ? in_read(self) : -1;
}

static long in_select(struct sleeper *self)
{
    struct timeval limit = {.tv_sec = 100};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(self->fd, &set);
    return select(self->fd + 1, &set, NULL, NULL, &limit) == 1 && FD_ISSET(self->fd, &set) && limit.tv_sec > 0
               ? in_read(self)
               : -1;
}

static long in_select_in_vain(struct sleeper *self)
{
    struct timeval limit = {.tv_sec = SHORT / 1000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(self->fd, &set);
    return select(self->fd + 1, &set, NULL, NULL, &limit) + FD_ISSET(self->fd, &set) + limit.tv_sec + limit.tv_usec;
}

static long in_pselect(struct sleeper *self)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(self->fd, &set);
    return pselect(self->fd + 1, &set, NULL, NULL, &some_time, NULL) == 1 && FD_ISSET(self->fd, &set) ? in_read(self)
                                                                                                       : -1;
}

static long reported(struct sleeper *self, int ready, const struct epoll_event *event)
{
    return ready == 1 && event->events == EPOLLIN && event->data.ptr == self ? in_read(self) : ready;
}

static long in_epoll_wait(struct sleeper *self)
{
    struct epoll_event event;
    return reported(self, epoll_wait(self->set, &event, 1, -1), &event);
}

static long in_epoll_wait_for_long(struct sleeper *self)
{
    struct epoll_event events[4];
    return reported(self, epoll_wait(self->set, events, 4, LONG), events);
}

static long in_epoll_wait_in_vain(struct sleeper *self)
{
    struct epoll_event event;
    return reported(self, epoll_wait(self->set, &event, 1, SHORT), &event);
}

static long in_epoll_pwait(struct sleeper *self)
{
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    return reported(self, epoll_pwait(self->set, &event, 1, -1, &none), &event);
}

static long in_epoll_pwait2(struct sleeper *self)
{
    struct epoll_event event;
    return reported(self, epoll_pwait2(self->set, &event, 1, &some_time, NULL), &event);
}

static long in_write(struct sleeper *self)
{
    ssize_t sent = 0, n;
    /* If the connection leaves the ring, the call may return what it has sent so far. */
    while (sent < LARGE && (n = write(self->fd, large + sent, LARGE - sent)) > 0)
        sent += n;
    return sent;
}

static struct sleeper sleepers[] = {
    {.name = "read", .call = in_read},
    {.name = "readv", .call = in_readv},
    {.name = "recv", .call = in_recv},
    {.name = "recvmsg", .call = in_recvmsg},
    {.name = "recvmmsg", .call = in_recvmmsg},
    {.name = "peek", .call = in_peek},
    {.name = "poll", .call = in_poll},
    {.name = "poll for long", .call = in_poll_for_long},
    {.name = "poll in vain", .call = in_poll_in_vain, .ends = 1},
    {.name = "ppoll", .call = in_ppoll},
    {.name = "poll of a set", .call = in_poll_of_set},
    {.name = "select", .call = in_select},
    {.name = "select in vain", .call = in_select_in_vain, .ends = 1},
    {.name = "pselect", .call = in_pselect},
    {.name = "epoll_wait", .call = in_epoll_wait},
    {.name = "epoll_wait for long", .call = in_epoll_wait_for_long},
    {.name = "epoll_wait in vain", .call = in_epoll_wait_in_vain, .ends = 1},
    {.name = "epoll_pwait", .call = in_epoll_pwait},
    {.name = "epoll_pwait2", .call = in_epoll_pwait2},
    {.name = "write", .call = in_write},
};
enum { SLEEPERS = sizeof sleepers / sizeof *sleepers };

static void *sleeps(void *argument)
{
    struct sleeper *self = argument;
    self->id = gettid();
    self->result = self->call(self);
    return NULL;
}

static volatile int is_over;

/* Checks its set all the time, although no event comes. */
static void *looks(void *argument)
{
    struct sleeper *self = argument;
    struct pollfd entry = {.fd = self->set, .events = POLLIN};
    struct epoll_event event;
    self->id = gettid();
    while (!is_over)
        self->result += (epoll_wait(self->set, &event, 1, 0) != 0) + (poll(&entry, 1, 0) != 0);
    return NULL;
}

static void *accepts(void *listener)
{
    int fd = accept(*(int *)listener, NULL, NULL);
    char c;
    CHECK(fd >= 0 && read(fd, &c, 1) == 1 && c == '!');
    return NULL;
}

static void connect_to(struct sleeper *one)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    pair(&one->far, &one->fd);
    CHECK((one->set = epoll_create1(0)) >= 0 && epoll_ctl(one->set, EPOLL_CTL_ADD, one->fd, &event) == 0);
}

int main(int argc, char **argv)
{
    enum { LOOKING = 8 };
    struct sleeper looking[LOOKING] = {0}, *last = &sleepers[SLEEPERS - 1];
    struct sockaddr_in address;
    pthread_t accepting;
    size_t filled = 0;
    CHECK(argc > 1);
    int listener = listener_on(&address), late = socket(AF_INET, SOCK_STREAM, 0);
    for (struct sleeper *one = sleepers; one <= last; one++)
        connect_to(one);
    for (struct sleeper *one = looking; one < looking + LOOKING; one++)
        connect_to(one);
    filled = fill(last->fd);
    for (struct sleeper *one = sleepers; one <= last; one++)
        CHECK(pthread_create(&one->thread, NULL, sleeps, one) == 0);
    CHECK(pthread_create(&accepting, NULL, accepts, &listener) == 0);
    for (struct sleeper *one = looking; one < looking + LOOKING; one++)
        CHECK(pthread_create(&one->thread, NULL, looks, one) == 0);
    for (struct sleeper *one = looking; one < looking + LOOKING; one++)
        while (one->id == 0)
            sched_yield();
    for (struct sleeper *one = sleepers; one <= last; one++) {
        while (one->id == 0)
            sched_yield();
        await_sleep(one->id);
    }

    say("all are asleep", SLEEPERS);
    forbid(argv[1]);
    for (struct sleeper *one = sleepers; one < last; one++) {
        if (!one->ends)
            write_all(one->far, "!", 1);
        CHECK(pthread_join(one->thread, NULL) == 0);
        say(one->name, one->result);
    }
    is_over = 1;
    for (struct sleeper *one = looking; one < looking + LOOKING; one++) {
        CHECK(pthread_join(one->thread, NULL) == 0);
        say("looks in vain", one->result);
    }
    drain(last->far, filled + LARGE);
    CHECK(pthread_join(last->thread, NULL) == 0);
    say(last->name, last->result);
    CHECK(connect(late, (struct sockaddr *)&address, sizeof address) == 0);
    write_all(late, "!", 1);
    CHECK(pthread_join(accepting, NULL) == 0);
    say("ends", 0);
    return 0;
}
