/* io_uring beside sockets: registrations with epoll, closing, and the sockets themselves. */
#include "common.h"
#include "raw.h"
#include <linux/io_uring.h>
#include <sys/mman.h>

struct ring {
    int fd;
    struct io_uring_params params;
    char *ring;
    struct io_uring_sqe *entries;
    long (*call)(long, long, long, long, long, long, long);
};

static long by_libc(long number, long a, long b, long c, long d, long e, long f)
{
    long result = syscall(number, a, b, c, d, e, f);
    return result < 0 ? -errno : result;
}

static unsigned *word(struct ring *ring, unsigned offset)
{
    return (unsigned *)(ring->ring + offset);
}

/* Returns false if the kernel or a sandbox has none. */
static int open_ring(struct ring *ring, unsigned flags, long (*call)(long, long, long, long, long, long, long))
{
    memset(ring, 0, sizeof *ring);
    ring->params.flags = flags;
    ring->params.sq_thread_idle = 1;
    ring->call = call;
    ring->fd = call(__NR_io_uring_setup, 8, (long)&ring->params, 0, 0, 0, 0);
    if (ring->fd < 0)
        return 0;
    const struct io_uring_params *p = &ring->params;
    CHECK(p->flags == flags && p->features & IORING_FEAT_SINGLE_MMAP);
    size_t of_sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t of_cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    ring->ring = mmap(NULL, of_sq > of_cq ? of_sq : of_cq, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    ring->entries = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd,
                         IORING_OFF_SQES);
    CHECK(ring->ring != MAP_FAILED && ring->entries != MAP_FAILED);
    return 1;
}

/* Appends an entry. */
static void prepare(struct ring *ring, struct io_uring_sqe entry)
{
    unsigned *tail = word(ring, ring->params.sq_off.tail), at = *tail, mask = *word(ring, ring->params.sq_off.ring_mask);
    ring->entries[at & mask] = entry;
    word(ring, ring->params.sq_off.array)[at & mask] = at & mask;
    __atomic_store_n(tail, at + 1, __ATOMIC_RELEASE);
}

/* Submits all prepared entries and waits for the results; returns the last one. */
static long results(struct ring *ring, unsigned count)
{
    long result = 0;
    unsigned *head = word(ring, ring->params.cq_off.head), *tail = word(ring, ring->params.cq_off.tail);
    unsigned mask = *word(ring, ring->params.cq_off.ring_mask), flags = IORING_ENTER_GETEVENTS;
    struct io_uring_cqe *done = (struct io_uring_cqe *)(ring->ring + ring->params.cq_off.cqes);
    if (ring->params.flags & IORING_SETUP_SQPOLL)
        flags |= IORING_ENTER_SQ_WAKEUP;
    CHECK(ring->call(__NR_io_uring_enter, ring->fd, count, count, flags, 0, 0) == (long)count);
    while (count-- > 0) {
        CHECK(*head != __atomic_load_n(tail, __ATOMIC_ACQUIRE));
        CHECK(done[*head & mask].user_data == 17);
        result = done[*head & mask].res;
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    }
    return result;
}

static long submit(struct ring *ring, struct io_uring_sqe entry)
{
    prepare(ring, entry);
    return results(ring, 1);
}

/* Prints the result of an operation. */
static void show(const char *what, long result)
{
    if (result < 0)
        errno = -result, result = -1;
    say(what, result);
}

static struct io_uring_sqe control(int set, int how, int fd, struct epoll_event *event)
{
    return (struct io_uring_sqe){.opcode = IORING_OP_EPOLL_CTL, .fd = set, .off = fd, .len = how, .addr = (uintptr_t)event,
                                 .user_data = 17};
}

static struct io_uring_sqe move(int operation, int fd, void *place, unsigned len)
{
    return (struct io_uring_sqe){.opcode = operation, .fd = fd, .addr = (uintptr_t)place, .len = len, .user_data = 17};
}

/* As libuv does: sets are changed only through the ring. */
static void registrations(struct ring *ring, int early)
{
    struct epoll_event in = {.events = EPOLLIN, .data.u64 = 5}, both = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 6}, found;
    struct sockaddr_in address;
    int listener = listener_on(&address), set = epoll_create1(0), a = socket(AF_INET, SOCK_STREAM, 0), b;
    char byte;
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0 && (b = accept(listener, NULL, NULL)) >= 0);
    if (!early)
        warm_up(a, b);
    show("add", submit(ring, control(set, EPOLL_CTL_ADD, b, &in)));
    show("add again", submit(ring, control(set, EPOLL_CTL_ADD, b, &in)));
    if (early)
        warm_up(a, b);
    say("nothing yet", epoll_wait(set, &found, 1, 0));
    struct later later;
    do_later(&later, write_byte, &a);
    say("woken", epoll_wait(set, &found, 1, -1));
    pthread_join(later.thread, NULL);
    printf("%x %d\n", found.events, (int)found.data.u64);
    read_all(b, &byte, 1);
    show("change", submit(ring, control(set, EPOLL_CTL_MOD, b, &both)));
    say("room", epoll_wait(set, &found, 1, -1));
    printf("%x %d\n", found.events, (int)found.data.u64);
    show("remove", submit(ring, control(set, EPOLL_CTL_DEL, b, NULL)));
    say("nothing", epoll_wait(set, &found, 1, 0));
    show("remove again", submit(ring, control(set, EPOLL_CTL_DEL, b, NULL)));
    show("change what is not there", submit(ring, control(set, EPOLL_CTL_MOD, b, &in)));
    prepare(ring, control(set, EPOLL_CTL_ADD, a, &in));
    prepare(ring, control(set, EPOLL_CTL_ADD, b, &in));
    prepare(ring, control(set, EPOLL_CTL_DEL, a, NULL));
    show("three at once", results(ring, 3));
    write_all(b, "x", 1);
    say("a is not there", epoll_wait(set, &found, 1, 0));
    write_all(a, "x", 1);
    say("b is", epoll_wait(set, &found, 1, -1));
    show("not a set", submit(ring, control(a, EPOLL_CTL_ADD, b, &in)));
    close(a), close(b), close(set), close(listener);
}

/* The next file gets the number. */
static void closing(struct ring *ring)
{
    int a, b;
    char bytes[16] = "secret";
    pair(&a, &b);
    int filler = dup(ring->fd);
    show("close", submit(ring, (struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = a, .user_data = 17}));
    int file = open("/dev/null", O_RDWR);
    say("the same number", file == a);
    say("write", write(file, bytes, 6));
    say("the peer reads", read(b, bytes, sizeof bytes));
    close(b), close(file), close(filler);
    /* With unread bytes. */
    pair(&a, &b);
    write_all(b, bytes, 6);
    CHECK(recv(a, bytes, 6, MSG_PEEK | MSG_WAITALL) == 6);
    show("close", submit(ring, (struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = a, .user_data = 17}));
    CHECK(poll(&(struct pollfd){b, POLLRDHUP, 0}, 1, -1) == 1);
    say("the peer reads", read(b, bytes, sizeof bytes));
    close(b);
}

/* Bytes that the ring moves, between those that calls move. */
static void bytes(struct ring *ring)
{
    int a, b;
    char buf[16];
    pair_anywhere(&a, &b);
    if (ring->call == by_libc)
        check_on_ring(a);
    write_all(a, "one", 3);
    read_all(b, buf, 3);
    show("send", submit(ring, move(IORING_OP_SEND, a, "four", 4)));
    say("read", read(b, buf, sizeof buf));
    write_all(a, "after", 5);
    show("recv", submit(ring, move(IORING_OP_RECV, b, buf, sizeof buf)));
    say("write", write(b, "x", 1));
    show("read", submit(ring, move(IORING_OP_READ, a, buf, sizeof buf)));
    close(a), close(b);
}

/* What calls have left unread, of a peer that has ended. */
static void rests(struct ring *ring)
{
    for (int ends = 0; ends < 2; ends++) {
        int a, b;
        char buf[16] = "";
        pair_anywhere(&a, &b);
        write_all(a, "one two", 7);
        read_all(b, buf, 4);
        CHECK((ends ? close(a) : shutdown(a, SHUT_WR)) == 0);
        CHECK(poll(&(struct pollfd){b, POLLRDHUP, 0}, 1, -1) == 1);
        memset(buf, 0, sizeof buf);
        show("recv the rest", submit(ring, move(IORING_OP_RECV, b, buf, sizeof buf)));
        printf("%s\n", buf);
        show("the end", submit(ring, move(IORING_OP_RECV, b, buf, sizeof buf)));
        close(b);
        if (!ends)
            close(a);
    }
}

/* A set of sockets that the ring has as a registered file, and knows by no number. */
static void fixed_set(struct ring *ring)
{
    int a, b, set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u32 = 1}};
    struct later later;
    pair(&a, &b);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    CHECK(ring->call(__NR_io_uring_register, ring->fd, IORING_REGISTER_FILES, (long)&set, 1, 0, 0) == 0);
    say("nothing yet", epoll_wait(set, &event, 1, 0));
    do_later(&later, write_byte, &a);
    struct io_uring_sqe entry = {.opcode = IORING_OP_POLL_ADD, .flags = IOSQE_FIXED_FILE, .fd = 0, .user_data = 17};
    entry.poll32_events = POLLIN;
    say("the set is readable", submit(ring, entry));
    CHECK(pthread_join(later.thread, NULL) == 0);
    CHECK(ring->call(__NR_io_uring_register, ring->fd, IORING_UNREGISTER_FILES, 0, 0, 0, 0) == 0);
    close(a), close(b), close(set);
}

int main(void)
{
    struct ring ring;
    static const unsigned kinds[] = {0, IORING_SETUP_SQPOLL};
    int a, b;
    char byte;
    pair(&a, &b);
    write_all(a, "x", 1);
    read_all(b, &byte, 1);
    for (int kind = 0; kind < 2; kind++) {
        printf("kind %x\n", kinds[kind]);
        if (!open_ring(&ring, kinds[kind], by_libc))
            continue;
        registrations(&ring, 0);
        registrations(&ring, 1);
        closing(&ring);
        bytes(&ring);
        rests(&ring);
        fixed_set(&ring);
        close(ring.fd);
    }
    close(a), close(b);
    /* Made without the C library: its use is unknown. */
    if (open_ring(&ring, 0, raw6)) {
        registrations(&ring, 1);
        bytes(&ring);
        close(ring.fd);
    }
    return 0;
}
