/*
 * Random bytes both ways over many connections at once, by random calls, each byte checked.
 *
 * usage: stress listen ADDRESS CONNECTIONS SEED BYTES | stress connect ADDRESS PORT CONNECTIONS SEED BYTES
 *
 * Both ends derive from SEED how much (at most BYTES) goes which way on each connection, and what. Each end serves its
 * connections in groups: with poll, select, epoll in three modes, two threads, or a forked child for one direction. One
 * connection in eight is given up by one end in the middle, and then only what has come must be right. `listen` prints its
 * port first. In the end each prints how many bytes it has checked; any fault ends it with a message and status 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGEST = 256 * 1024, PIECES = 5, GROUP = 4 };
enum style { POLL, SELECT, LEVEL, EDGE, ONE_SHOT, THREADS, FORK, STYLES };

static const char *const style_names[] = {"poll", "select", "level", "edge", "one-shot", "threads", "fork"};

/* One end of a connection. */
struct end {
    int fd, number;
    enum style style;
    /* Of the receiver and of the sender, which may be two threads. */
    uint64_t random[2];
    uint64_t in_key, out_key, in_total, out_total, in_done, out_done;
    /* This end gives up after so many bytes; or the other one may. */
    uint64_t quit_after;
    int quits, may_break, broken, ended, shut, registered;
    char *buffers[2];
};

static uint64_t checked;

#define FAIL(e, ...)                                                                                                   \
    do {                                                                                                               \
        fprintf(stderr, "connection %d (%s), %lu of %lu in, %lu of %lu out: ", (e)->number, style_names[(e)->style],   \
                (e)->in_done, (e)->in_total, (e)->out_done, (e)->out_total);                                           \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fprintf(stderr, "\n");                                                                                         \
        _exit(1);                                                                                                      \
    } while (0)
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) < 0) {                                                                                              \
            perror(#call);                                                                                             \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t roll(uint64_t *state, uint64_t below)
{
    *state = mix(*state);
    return *state % below;
}

/* Mostly small, sometimes large. */
static size_t some_size(uint64_t *state)
{
    return 1 + roll(state, (uint64_t)1 << (1 + roll(state, 18)));
}

/* The bytes of stream `key` from `offset` on. */
static void fill(uint64_t key, uint64_t offset, char *into, size_t len)
{
    while (len > 0) {
        uint64_t word = mix(key + offset / 8);
        size_t at = offset % 8, n = 8 - at < len ? 8 - at : len;
        memcpy(into, (char *)&word + at, n);
        into += n, offset += n, len -= n;
    }
}

static void check(struct end *e, const char *bytes, size_t len)
{
    uint64_t offset = e->in_done;
    if (len > e->in_total - e->in_done)
        FAIL(e, "%zu bytes came, more than there are", len);
    while (len > 0) {
        uint64_t word = mix(e->in_key + offset / 8);
        size_t at = offset % 8, n = 8 - at < len ? 8 - at : len;
        if (memcmp(bytes, (char *)&word + at, n) != 0)
            FAIL(e, "wrong byte at or after %lu", offset);
        bytes += n, offset += n, len -= n;
    }
}

static int cut(uint64_t *state, char *bytes, size_t len, struct iovec *pieces)
{
    int count = 0;
    while (len > 0) {
        size_t n = count == PIECES - 1 ? len : 1 + roll(state, len);
        pieces[count++] = (struct iovec){bytes, n};
        bytes += n, len -= n;
    }
    return count;
}

static void break_off(struct end *e, const char *call)
{
    if (!e->may_break || (errno != EPIPE && errno != ECONNRESET))
        FAIL(e, "%s: %s", call, strerror(errno));
    e->broken = 1;
}

/* One call that sends. 1: go on; 0: no room now; -1: there is nothing more to send. */
static int send_some(struct end *e)
{
    uint64_t *random = &e->random[1];
    if (e->broken || e->shut)
        return -1;
    if (e->out_done == e->out_total) {
        if (shutdown(e->fd, SHUT_WR) < 0 && errno != ENOTCONN)
            break_off(e, "shutdown");
        e->shut = 1;
        return -1;
    }
    size_t len = some_size(random);
    if (len > e->out_total - e->out_done)
        len = e->out_total - e->out_done;
    char *bytes = e->buffers[1];
    fill(e->out_key, e->out_done, bytes, len);
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces};
    ssize_t sent;
    switch (roll(random, 6)) {
    case 0:
        sent = write(e->fd, bytes, len);
        break;
    case 1:
        sent = writev(e->fd, pieces, cut(random, bytes, len, pieces));
        break;
    case 2:
        message.msg_iovlen = cut(random, bytes, len, pieces);
        sent = sendmsg(e->fd, &message, MSG_NOSIGNAL);
        break;
    case 3:
        sent = send(e->fd, bytes, len, MSG_DONTWAIT);
        break;
    case 4:
        sent = send(e->fd, bytes, len, roll(random, 16) == 0 ? MSG_MORE : 0);
        break;
    default:
        sent = sendto(e->fd, bytes, len, 0, NULL, 0);
    }
    if (sent < 0 && errno == EAGAIN)
        return 0;
    if (sent < 0) {
        break_off(e, "send");
        return -1;
    }
    e->out_done += sent;
    return 1;
}

/* One call that receives. 1: go on; 0: nothing there now; -1: the stream has ended. */
static int receive_some(struct end *e, int blocking)
{
    uint64_t *random = &e->random[0];
    if (e->broken || e->ended)
        return -1;
    size_t len = some_size(random);
    uint64_t left = e->in_total - e->in_done;
    char *bytes = e->buffers[0];
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces};
    struct pollfd ready = {.fd = e->fd, .events = POLLIN};
    int peeked = 0, discarded = 0, promised = 0, available = 0;
    ssize_t got;
    switch (roll(random, 11)) {
    case 0:
        got = read(e->fd, bytes, len);
        break;
    case 1:
        got = readv(e->fd, pieces, cut(random, bytes, len, pieces));
        break;
    case 2:
        message.msg_iovlen = cut(random, bytes, len, pieces);
        got = recvmsg(e->fd, &message, 0);
        break;
    case 3:
        peeked = 1;
        got = recv(e->fd, bytes, len, MSG_PEEK);
        break;
    case 4:
        if (blocking && !e->may_break && left > 0) {
            len = len < left ? len : left;
            got = recv(e->fd, bytes, len, MSG_WAITALL);
            if (got != (ssize_t)len)
                FAIL(e, "MSG_WAITALL of %zu gave %zd: %s", len, got, strerror(errno));
            break;
        }
        /* fall through */
    case 5:
        if (ioctl(e->fd, FIONREAD, &available) < 0)
            FAIL(e, "FIONREAD: %s", strerror(errno));
        promised = available > 0;
        got = recv(e->fd, bytes, len, MSG_DONTWAIT);
        break;
    case 6:
        promised = poll(&ready, 1, 0) == 1;
        got = recv(e->fd, bytes, len, MSG_DONTWAIT);
        break;
    case 7:
        discarded = 1;
        len = len < 300 ? len : 300;
        got = recv(e->fd, NULL, len, MSG_TRUNC);
        break;
    default:
        got = recv(e->fd, bytes, len, 0);
    }
    if (got < 0 && errno == EAGAIN) {
        if (promised)
            FAIL(e, "poll or FIONREAD (%d) promised bytes, and none were there", available);
        return 0;
    }
    if (got < 0) {
        break_off(e, "receive");
        return -1;
    }
    if (got == 0) {
        if (left > 0 && !e->may_break)
            FAIL(e, "the stream ended too early");
        e->ended = 1;
        return -1;
    }
    if (!discarded)
        check(e, bytes, got);
    if (!peeked) {
        if ((uint64_t)got > left)
            FAIL(e, "%zd bytes came, more than there are", got);
        e->in_done += got;
    }
    return 1;
}

/* A program may close the number that it has used so far, having made another one. */
static void renumber(struct end *e)
{
    if (roll(&e->random[0], 50) != 0)
        return;
    int other = dup(e->fd);
    MUST(other);
    if (roll(&e->random[0], 2) == 0) {
        close(e->fd);
        e->fd = other;
    } else {
        MUST(dup2(other, e->fd));
        close(other);
    }
}

static int is_over(struct end *e)
{
    if (e->quits && e->in_done + e->out_done >= e->quit_after)
        return 1;
    return e->broken || (e->ended && e->shut);
}

static void finish(struct end *e)
{
    if (e->quits && e->number % 16 == 0) {
        struct linger at_once = {1, 0};
        setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    __atomic_add_fetch(&checked, e->in_done, __ATOMIC_RELAXED);
    close(e->fd);
    e->fd = -1;
}

static uint32_t interest(struct end *e)
{
    return (e->ended ? 0 : EPOLLIN) | (e->shut ? 0 : EPOLLOUT);
}

/* What is done when the fd is ready for some of `events`. */
static void serve(struct end *e, uint32_t events)
{
    int all = e->style == EDGE;
    for (int turn = 0; all || turn < 3; turn++) {
        int received = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? receive_some(e, 0) : 0;
        int sent = events & (EPOLLOUT | EPOLLHUP | EPOLLERR) ? send_some(e) : 0;
        if (is_over(e) || (received <= 0 && sent <= 0))
            return;
    }
}

static void serve_with_epoll(struct end *ends, int count)
{
    enum style style = ends->style;
    int set = epoll_create1(EPOLL_CLOEXEC), left = count;
    MUST(set);
    for (int at = 0; at < count; at++) {
        uint32_t extra = style == EDGE ? EPOLLET : style == ONE_SHOT ? EPOLLONESHOT : 0;
        struct epoll_event event = {.events = interest(&ends[at]) | extra, .data.ptr = &ends[at]};
        MUST(epoll_ctl(set, EPOLL_CTL_ADD, ends[at].fd, &event));
    }
    while (left > 0) {
        struct epoll_event events[GROUP];
        int ready = epoll_wait(set, events, 1 + roll(&ends->random[0], GROUP), -1);
        MUST(ready);
        for (int at = 0; at < ready; at++) {
            struct end *e = events[at].data.ptr;
            /* Closed, but a forked child still has it. */
            if (e->fd < 0)
                continue;
            uint32_t before = interest(e);
            serve(e, style == EDGE ? EPOLLIN | EPOLLOUT : events[at].events);
            if (is_over(e)) {
                if (roll(&e->random[0], 2) == 0)
                    MUST(epoll_ctl(set, EPOLL_CTL_DEL, e->fd, NULL));
                finish(e);
                left--;
            } else if (style == ONE_SHOT || (style == LEVEL && before != interest(e))) {
                struct epoll_event event = {.events = interest(e), .data.ptr = e};
                event.events |= style == ONE_SHOT ? EPOLLONESHOT : 0;
                if (style == LEVEL && roll(&e->random[0], 2) == 0) {
                    MUST(epoll_ctl(set, EPOLL_CTL_DEL, e->fd, NULL));
                    MUST(epoll_ctl(set, EPOLL_CTL_ADD, e->fd, &event));
                } else {
                    MUST(epoll_ctl(set, EPOLL_CTL_MOD, e->fd, &event));
                }
            }
        }
    }
    close(set);
}

static void serve_with_poll(struct end *ends, int count)
{
    for (int left = count; left > 0;) {
        struct pollfd fds[GROUP];
        fd_set in, out;
        int most = -1;
        FD_ZERO(&in);
        FD_ZERO(&out);
        for (int at = 0; at < count; at++) {
            uint32_t wanted = ends[at].fd >= 0 ? interest(&ends[at]) : 0;
            fds[at] = (struct pollfd){.fd = ends[at].fd};
            fds[at].events = (wanted & EPOLLIN ? POLLIN : 0) | (wanted & EPOLLOUT ? POLLOUT : 0);
            if (wanted & EPOLLIN)
                FD_SET(ends[at].fd, &in);
            if (wanted & EPOLLOUT)
                FD_SET(ends[at].fd, &out);
            most = ends[at].fd > most ? ends[at].fd : most;
        }
        if (ends->style == POLL)
            MUST(poll(fds, count, -1));
        else
            MUST(select(most + 1, &in, &out, NULL, NULL));
        for (int at = 0; at < count; at++) {
            struct end *e = &ends[at];
            if (e->fd < 0)
                continue;
            uint32_t events = 0;
            if (ends->style == POLL) {
                if (fds[at].revents & (POLLERR | POLLHUP))
                    events = EPOLLIN | EPOLLOUT;
                events |= (fds[at].revents & POLLIN ? EPOLLIN : 0) | (fds[at].revents & POLLOUT ? EPOLLOUT : 0);
            } else {
                events = (FD_ISSET(e->fd, &in) ? EPOLLIN : 0) | (FD_ISSET(e->fd, &out) ? EPOLLOUT : 0);
            }
            serve(e, events);
            if (is_over(e)) {
                finish(e);
                left--;
            } else {
                renumber(e);
            }
        }
    }
}

static void *send_all(void *end)
{
    struct end *e = end;
    while (send_some(e) >= 0)
        continue;
    return NULL;
}

static void receive_all(struct end *e)
{
    while (receive_some(e, 1) >= 0)
        continue;
}

static void serve_with_threads(struct end *e)
{
    pthread_t sender;
    if (pthread_create(&sender, NULL, send_all, e) != 0)
        FAIL(e, "no thread");
    receive_all(e);
    pthread_join(sender, NULL);
    finish(e);
}

/* All ends of this process. */
static struct end *all;
static int connections;

/* In a child: no other connection is shared with it, and so kept off the ring. */
static void close_others(const struct end *e)
{
    for (int at = 0; at < connections; at++)
        if (&all[at] != e && all[at].fd >= 0)
            close(all[at].fd);
}

/* The child sends or receives, the parent does the other. */
static void serve_with_child(struct end *e)
{
    int child_sends = e->number % 2, status;
    uint64_t before = roll(&e->random[1], 50);
    /* The other end may not receive yet. */
    MUST(fcntl(e->fd, F_SETFL, O_NONBLOCK));
    while (before-- > 0 && send_some(e) == 1)
        continue;
    MUST(fcntl(e->fd, F_SETFL, 0));
    pid_t child = fork();
    MUST(child);
    if (child == 0)
        close_others(e);
    if ((child == 0) == child_sends)
        send_all(e);
    else
        receive_all(e);
    if (child == 0)
        _exit(0);
    MUST(waitpid(child, &status, 0));
    if (status != 0)
        FAIL(e, "the child ended with status %x", status);
    if (child_sends)
        finish(e);
    else
        close(e->fd);
}

struct group {
    struct end *ends;
    int count;
    pthread_t thread;
};

static void *serve_group(void *group)
{
    struct end *ends = ((struct group *)group)->ends;
    int count = ((struct group *)group)->count;
    for (int at = 0; at < count && ends->style < THREADS; at++)
        MUST(fcntl(ends[at].fd, F_SETFL, O_NONBLOCK));
    switch (ends->style) {
    case POLL:
    case SELECT:
        serve_with_poll(ends, count);
        break;
    case THREADS:
        for (int at = 0; at < count; at++)
            serve_with_threads(&ends[at]);
        break;
    case FORK:
        for (int at = 0; at < count; at++)
            serve_with_child(&ends[at]);
        break;
    default:
        serve_with_epoll(ends, count);
    }
    return NULL;
}

static void begin(struct end *e, int fd, int number, int accepted, uint64_t seed, uint64_t most)
{
    uint64_t key = mix(mix(seed) + number), lot = key, gone = roll(&lot, 16);
    uint64_t to[2] = {roll(&lot, most), roll(&lot, most)};
    *e = (struct end){.fd = fd, .number = number};
    e->random[0] = mix(key + 10 + accepted), e->random[1] = mix(key + 20 + accepted);
    e->out_key = mix(key + accepted), e->in_key = mix(key + !accepted);
    e->out_total = to[accepted], e->in_total = to[!accepted];
    e->may_break = gone < 2;
    e->buffers[0] = malloc(LARGEST), e->buffers[1] = malloc(LARGEST);
    lot = mix(seed + 100 + accepted + 2 * (number / GROUP));
    e->style = roll(&lot, STYLES);
    e->quits = gone == (uint64_t)accepted && e->style < THREADS;
    e->quit_after = roll(&e->random[0], to[0] + to[1] + 1);
}

static struct sockaddr_in address_of(const char *address, int port)
{
    struct sockaddr_in it = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, address, &it.sin_addr) != 1)
        exit(2);
    return it;
}

int main(int argc, char **argv)
{
    int accepted = argc == 6 && strcmp(argv[1], "listen") == 0;
    if (!accepted && (argc != 7 || strcmp(argv[1], "connect") != 0)) {
        fprintf(stderr, "usage: stress listen ADDRESS CONNECTIONS SEED BYTES | "
                        "stress connect ADDRESS PORT CONNECTIONS SEED BYTES\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address = address_of(argv[2], accepted ? 0 : atoi(argv[3]));
    char **numbers = argv + (accepted ? 3 : 4);
    int listener = -1;
    connections = atoi(numbers[0]);
    uint64_t seed = strtoull(numbers[1], NULL, 10), most = strtoull(numbers[2], NULL, 10);
    struct end *ends = all = calloc(connections, sizeof *ends);
    if (accepted) {
        socklen_t size = sizeof address;
        listener = socket(AF_INET, SOCK_STREAM, 0);
        MUST(bind(listener, (struct sockaddr *)&address, size));
        MUST(listen(listener, connections));
        MUST(getsockname(listener, (struct sockaddr *)&address, &size));
        printf("%d\n", ntohs(address.sin_port));
        fflush(stdout);
    }
    for (int at = 0; at < connections; at++) {
        int number = at;
        int fd = accepted ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
        MUST(fd);
        if (accepted) {
            if (recv(fd, &number, sizeof number, MSG_WAITALL) != sizeof number)
                return 1;
        } else {
            MUST(connect(fd, (struct sockaddr *)&address, sizeof address));
            if (send(fd, &number, sizeof number, 0) != sizeof number)
                return 1;
        }
        begin(&ends[number], fd, number, accepted, seed, most);
    }
    int count = (connections + GROUP - 1) / GROUP;
    struct group *groups = calloc(count, sizeof *groups);
    for (int at = 0; at < count; at++) {
        int left = connections - at * GROUP;
        groups[at] = (struct group){.ends = ends + at * GROUP, .count = left < GROUP ? left : GROUP};
        if (pthread_create(&groups[at].thread, NULL, serve_group, &groups[at]) != 0)
            return 1;
    }
    for (int at = 0; at < count; at++)
        pthread_join(groups[at].thread, NULL);
    printf("%lu\n", checked);
    return 0;
}
