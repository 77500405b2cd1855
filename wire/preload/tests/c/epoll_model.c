/*
 * Random operations on streams of several kinds and on an epoll set that contains them, in one thread, compared with a model of
 * the kernel's possible answers: epoll_wait, poll and select report exactly what is readable, and no ready stream is passed over
 * for long.
 */
#include "common.h"

#include <sys/eventfd.h>

static unsigned long random_state;

static unsigned below(unsigned bound)
{
    random_state = random_state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(random_state >> 33) % bound;
}

#define STREAMS 9
#define ENTRIES 12

enum kind { RING, FRESH, PIPE, EVENT, LOCAL, KINDS };

/* Both ends of a stream of some kind. */
static struct stream {
    enum kind kind;
    int in, out;
    size_t bytes;
    int ended;
} streams[STREAMS];

/* A registration in the set. */
static struct entry {
    struct stream *stream;
    int fd;
    uint32_t events;
    uint64_t data;
    /* Edge-triggered: whether there is news. One-shot: whether it may fire. */
    int news, live;
    /* Number of others that were reported while it was ready and had to wait. */
    int passed_over;
} entries[ENTRIES];

static int set;
static long turn;
static unsigned seed;
static uint64_t serial;
static char last[128];

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("seed %u, turn %ld, after %s: %s\n", seed, turn, last, #condition);                                 \
            describe();                                                                                                \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static uint32_t ready(const struct entry *entry);

static struct epoll_event events[ENTRIES + 1];
static int reported;

static void describe(void)
{
    for (int i = 0; i < reported; i++)
        printf("  reported: %lx %x\n", (long)events[i].data.u64, events[i].events);
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++)
        if (entry->stream)
            printf("  kind %d, %zu bytes, ended %d: number %d, data %lx, events %x, news %d, live %d: ready %x\n",
                   entry->stream->kind, entry->stream->bytes, entry->stream->ended, entry->fd, entry->data,
                   entry->events, entry->news, entry->live, ready(entry));
}

static int is_connection(const struct stream *stream)
{
    return stream->kind == RING || stream->kind == FRESH;
}

/* The answer of poll. */
static uint32_t state(const struct stream *stream)
{
    uint32_t events = stream->bytes || stream->ended ? EPOLLIN : 0;
    if (stream->ended)
        events |= EPOLLRDHUP;
    if (stream->kind != PIPE)
        events |= EPOLLOUT;
    return events;
}

static uint32_t ready(const struct entry *entry)
{
    uint32_t events = state(entry->stream) & entry->events;
    if (!entry->live || ((entry->events & EPOLLET) && !entry->news))
        return 0;
    return events;
}

static struct entry *any(int used)
{
    struct entry *found = NULL;
    unsigned number = 0;
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++)
        if ((entry->stream != NULL) == used && below(++number) == 0)
            found = entry;
    return found;
}

static void open_stream(struct stream *stream)
{
    struct sockaddr_in address;
    int ends[2], fd;
    stream->kind = below(3) == 0 ? RING : below(KINDS);
    stream->bytes = stream->ended = 0;
    switch (stream->kind) {
    case RING:
        pair(&stream->out, &stream->in);
        break;
    case FRESH:
        fd = listener_on(&address);
        stream->out = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(stream->out >= 0 && connect(stream->out, (struct sockaddr *)&address, sizeof address) == 0);
        stream->in = accept(fd, NULL, NULL);
        CHECK(stream->in >= 0 && close(fd) == 0);
        break;
    case EVENT:
        stream->in = eventfd(0, 0);
        stream->out = dup(stream->in);
        CHECK(stream->in >= 0 && stream->out >= 0);
        break;
    case LOCAL:
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        stream->in = ends[0], stream->out = ends[1];
        break;
    default:
        CHECK(pipe(ends) == 0);
        stream->in = ends[0], stream->out = ends[1];
    }
    if (is_connection(stream))
        CHECK(setsockopt(stream->out, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
}

/* Notes an event that wakes readers. */
static void wake(struct stream *stream)
{
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++)
        if (entry->stream == stream)
            entry->news = 1;
}

static void write_some(struct stream *stream)
{
    static const uint64_t one[64] = {1};
    if (stream->ended || stream->bytes > 4000)
        return;
    size_t len = stream->kind == EVENT ? 8 : 1 + below(below(4) ? 16 : 400);
    snprintf(last, sizeof last, "writing %zu", len);
    write_all(stream->out, one, len);
    /* Waits until it has arrived. */
    CHECK(poll(&(struct pollfd){stream->in, POLLIN, 0}, 1, -1) == 1);
    wake(stream);
    stream->bytes += stream->kind == EVENT ? 1 : len;
}

static void read_some(struct stream *stream)
{
    char junk[4096];
    if (stream->bytes == 0)
        return;
    size_t len = stream->kind == EVENT ? 8 : below(2) ? stream->bytes : 1 + below(stream->bytes);
    snprintf(last, sizeof last, "reading %zu of %zu", len, stream->bytes);
    if (stream->kind == EVENT) {
        uint64_t count;
        CHECK(read(stream->in, &count, sizeof count) == sizeof count && count == stream->bytes);
        stream->bytes = 0;
    } else {
        len = len < sizeof junk ? len : sizeof junk;
        read_all(stream->in, junk, len);
        stream->bytes -= len;
    }
}

static void end(struct stream *stream)
{
    if (!is_connection(stream) || stream->ended)
        return;
    snprintf(last, sizeof last, "an end");
    CHECK(shutdown(stream->out, SHUT_WR) == 0);
    CHECK(poll(&(struct pollfd){stream->in, POLLRDHUP, 0}, 1, -1) == 1);
    wake(stream);
    stream->ended = 1;
}

static uint32_t some_events(void)
{
    uint32_t events = EPOLLIN | EPOLLRDHUP;
    switch (below(6)) {
    case 0:
        return events | EPOLLET;
    case 1:
        return events | EPOLLONESHOT;
    case 2:
        return events | EPOLLOUT;
    case 3:
        return events | EPOLLOUT | EPOLLONESHOT;
    default:
        return events;
    }
}

static void set_entry(struct entry *entry, int op)
{
    entry->events = some_events();
    entry->data = ++serial;
    entry->news = entry->live = 1;
    snprintf(last, sizeof last, "epoll_ctl %d of %d: %x", op, entry->fd, entry->events);
    CHECK(epoll_ctl(set, op, entry->fd, &(struct epoll_event){entry->events, {.u64 = entry->data}}) == 0);
}

static void add_entry(void)
{
    struct entry *entry = any(0);
    if (!entry)
        return;
    entry->stream = &streams[below(STREAMS)];
    entry->fd = entry->stream->in;
    for (struct entry *other = entries; other < entries + ENTRIES; other++)
        if (other != entry && other->stream && other->fd == entry->fd) {
            entry->fd = dup(entry->stream->in);
            CHECK(entry->fd >= 0);
            break;
        }
    set_entry(entry, EPOLL_CTL_ADD);
}

static void remove_entry(struct entry *entry)
{
    snprintf(last, sizeof last, "removing %d", entry->fd);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, entry->fd, NULL) == 0);
    if (entry->fd != entry->stream->in)
        CHECK(close(entry->fd) == 0);
    entry->stream = NULL;
}

static void replace(struct stream *stream)
{
    int by_close = below(2);
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++)
        if (entry->stream == stream) {
            if (!by_close)
                remove_entry(entry);
            else if (entry->fd != stream->in)
                /* It stays in the set until the last number is closed. */
                CHECK(close(entry->fd) == 0);
            entry->stream = NULL;
        }
    snprintf(last, sizeof last, "replacing");
    CHECK(close(stream->in) == 0 && close(stream->out) == 0);
    open_stream(stream);
}

static void wait_for_events(void)
{
    int max = below(3) ? ENTRIES + 1 : 1 + below(4), expected = 0;
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++)
        expected += entry->stream && ready(entry);
    expected = expected < max ? expected : max;
    int n = epoll_wait(set, events, max, expected && below(2) ? -1 : 0);
    reported = n;
    snprintf(last, sizeof last, "%d of at most %d events", n, max);
    EXPECT(n == expected);
    for (int i = 0; i < n; i++) {
        struct entry *entry = entries;
        while (entry < entries + ENTRIES && !(entry->stream && entry->data == events[i].data.u64))
            entry++;
        EXPECT(entry < entries + ENTRIES);
        EXPECT(events[i].events == ready(entry));
        entry->news = 0;
        entry->live = !(entry->events & EPOLLONESHOT);
        entry->passed_over = -n;
    }
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++) {
        entry->passed_over = entry->stream && ready(entry) ? entry->passed_over + n : 0;
        EXPECT(entry->passed_over <= 2 * ENTRIES);
    }
    turn++;
}

static void poll_all(void)
{
    struct pollfd fds[STREAMS];
    fd_set readable;
    int expected = 0, highest = 0, readers = 0;
    FD_ZERO(&readable);
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = (struct pollfd){streams[i].in, below(3) ? POLLIN : POLLIN | POLLOUT | POLLRDHUP, 0};
        expected += (state(&streams[i]) & fds[i].events) != 0;
        readers += (state(&streams[i]) & POLLIN) != 0;
        FD_SET(streams[i].in, &readable);
        highest = streams[i].in > highest ? streams[i].in : highest;
    }
    int n = poll(fds, STREAMS, expected && below(2) ? -1 : 0);
    snprintf(last, sizeof last, "%d of poll", n);
    EXPECT(n == expected);
    for (int i = 0; i < STREAMS; i++)
        EXPECT(fds[i].revents == (int)(state(&streams[i]) & fds[i].events));
    n = select(highest + 1, &readable, NULL, NULL, readers && below(2) ? NULL : &(struct timeval){0, 0});
    snprintf(last, sizeof last, "%d of select", n);
    EXPECT(n == readers);
    for (int i = 0; i < STREAMS; i++)
        EXPECT(!FD_ISSET(streams[i].in, &readable) == !(state(&streams[i]) & POLLIN));
}

static void run(void)
{
    set = epoll_create1(0);
    for (int i = 0; i < STREAMS; i++)
        open_stream(&streams[i]);
    for (int i = 0; i < 800; i++) {
        struct stream *stream = &streams[below(STREAMS)];
        struct entry *entry = any(1);
        switch (below(24)) {
        case 0 ... 5:
            write_some(stream);
            break;
        case 6 ... 10:
            read_some(stream);
            break;
        case 11 ... 12:
            add_entry();
            break;
        case 13:
            if (entry)
                remove_entry(entry);
            break;
        case 14 ... 15:
            if (entry)
                set_entry(entry, EPOLL_CTL_MOD);
            break;
        case 16:
            poll_all();
            break;
        case 17:
            if (below(6) == 0)
                end(stream);
            else if (below(8) == 0)
                replace(stream);
            break;
        default:
            wait_for_events();
        }
    }
    for (struct entry *entry = entries; entry < entries + ENTRIES; entry++)
        if (entry->stream)
            remove_entry(entry);
    for (int i = 0; i < STREAMS; i++)
        close(streams[i].in), close(streams[i].out);
    close(set);
}

int main(int argc, char **argv)
{
    unsigned first = argc > 1 ? atoi(argv[1]) : 1, number = argc > 2 ? atoi(argv[2]) : 25;
    for (seed = first; seed < first + number; seed++) {
        random_state = seed;
        turn = 0;
        run();
    }
    printf("as the model says, %u times\n", number);
    return 0;
}
