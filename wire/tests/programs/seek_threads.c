/* Several threads on one stream; signals and cancellation in calls that sleep. */
#include "seeking.h"

static char buf[1 << 20];

/* Waits until a thread of this process sleeps. */
static void await_sleep(pid_t id)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)id);
    for (;;) {
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
        REQUIRE(n > 0 && close(fd) == 0);
        line[n] = 0;
        if (strrchr(line, ')')[2] == 'S')
            return;
        sched_yield();
    }
}

struct seeker {
    pthread_t thread;
    int fd, flags;
    /* The offset or position is that of the pattern's byte `at`, and this. */
    size_t base;
    size_t at, len;
    ssize_t result;
    int error;
    pid_t id;
    char bytes[4096];
};

static void *seek(void *argument)
{
    struct seeker *seeker = argument;
    __atomic_store_n(&seeker->id, gettid(), __ATOMIC_RELEASE);
    seeker->result = seek_recv(seeker->fd, seeker->bytes, seeker->len, seeker->flags, seeker->base + seeker->at);
    seeker->error = errno;
    return NULL;
}

static void start(struct seeker *seeker)
{
    REQUIRE(pthread_create(&seeker->thread, NULL, seek, seeker) == 0);
    while (__atomic_load_n(&seeker->id, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
}

static void start_seeker(struct seeker *seeker, int fd, size_t at, size_t len)
{
    *seeker = (struct seeker){ .fd = fd, .flags = SEEKWIRE_POSITION, .base = FIRST, .at = at, .len = len };
    start(seeker);
}

static void many_wait_for_ranges_of_their_own(void)
{
    enum { SEEKERS = 8 };
    static struct seeker seekers[SEEKERS];
    struct sender sender;
    int fd = connected(&sender, 0);
    for (int i = 0; i < SEEKERS; i++)
        start_seeker(&seekers[i], fd, (SEEKERS - i) * 10000, 4000);
    for (int i = 0; i < SEEKERS; i++)
        await_sleep(seekers[i].id);
    for (int i = 0; i < 10; i++)
        tell(&sender, "send 10000");
    for (int i = 0; i < SEEKERS; i++) {
        REQUIRE(pthread_join(seekers[i].thread, NULL) == 0);
        REQUIRE(seekers[i].result == 4000 && is_pattern(seekers[i].bytes, 4000, seekers[i].at));
    }
    REQUIRE(recv(fd, buf, 100000 - SEEKERS * 4000, MSG_WAITALL) == 100000 - SEEKERS * 4000);
    finish(fd, &sender);
}

static void *receive(void *argument)
{
    struct seeker *reader = argument;
    __atomic_store_n(&reader->id, gettid(), __ATOMIC_RELEASE);
    reader->result = recv(reader->fd, reader->bytes, sizeof reader->bytes, 0);
    return NULL;
}

/* It sleeps in the kernel, perhaps, and gets the first bytes; no seek overtakes it. */
static void a_receive_that_began_before_the_first_seek_is_over_first(void)
{
    static struct seeker reader, seeker;
    struct sender sender;
    int fd = connected(&sender, 0);
    reader = (struct seeker){ .fd = fd };
    REQUIRE(pthread_create(&reader.thread, NULL, receive, &reader) == 0);
    while (__atomic_load_n(&reader.id, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    await_sleep(reader.id);
    start_seeker(&seeker, fd, 5000, 1000);
    await_sleep(seeker.id);
    tell(&sender, "send 6000");
    REQUIRE(pthread_join(reader.thread, NULL) == 0 && pthread_join(seeker.thread, NULL) == 0);
    REQUIRE(reader.result > 0 && is_pattern(reader.bytes, reader.result, 0));
    REQUIRE(seeker.result == 1000 && is_pattern(seeker.bytes, 1000, 5000));
    size_t rest = 5000 - reader.result;
    REQUIRE(recv(fd, buf, rest, MSG_WAITALL) == (ssize_t)rest && is_pattern(buf, rest, reader.result));
    finish(fd, &sender);
}

static int shared_fd;

enum { BLOCK = 4096, BLOCKS = 500 };

static void *take_every_third_block(void *argument)
{
    uint64_t *sum = argument;
    static char block[BLOCK];
    for (size_t at = 0; at + BLOCK <= (size_t)BLOCK * BLOCKS; at += 3 * BLOCK) {
        if (seek_recv(shared_fd, block, BLOCK, SEEKWIRE_POSITION, FIRST + at) < 0) {
            /* The reader was here before. */
            REQUIRE(errno == ENXIO);
            continue;
        }
        REQUIRE(is_pattern(block, BLOCK, at));
        for (size_t i = 0; i < BLOCK; i++)
            *sum += (unsigned char)block[i];
    }
    return NULL;
}

static void one_seeks_and_one_reads(void)
{
    struct sender sender;
    uint64_t expected = 0, by_seek = 0, received = 0;
    pthread_t thread;
    shared_fd = connected(&sender, 0);
    REQUIRE(seek_recv(shared_fd, buf, 0, 0, 0) == 0);
    REQUIRE(pthread_create(&thread, NULL, take_every_third_block, &by_seek) == 0);
    REQUIRE(fprintf(sender.commands, "start %d\nfin\n", BLOCK * BLOCKS) > 0 && fflush(sender.commands) == 0);
    for (ssize_t n; (n = recv(shared_fd, buf, 10000, 0)) != 0;) {
        REQUIRE(n > 0);
        for (ssize_t i = 0; i < n; i++)
            received += (unsigned char)buf[i];
    }
    REQUIRE(pthread_join(thread, NULL) == 0);
    for (size_t at = 0; at < (size_t)BLOCK * BLOCKS; at++)
        expected += pattern(at);
    REQUIRE(by_seek + received == expected);
    finish(shared_fd, &sender);
}

static int signals;

static void count(int signal)
{
    (void)signal;
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELEASE);
}

static void handle(int flags)
{
    struct sigaction action = { .sa_handler = count, .sa_flags = flags };
    REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void signals_end_a_call_or_start_it_again(void)
{
    static struct seeker seeker;
    struct sender sender;
    int fd = connected(&sender, 0);
    handle(0);
    start_seeker(&seeker, fd, 5000, 1000);
    await_sleep(seeker.id);
    REQUIRE(pthread_kill(seeker.thread, SIGUSR1) == 0 && pthread_join(seeker.thread, NULL) == 0);
    REQUIRE(seeker.result == -1 && seeker.error == EINTR);
    handle(SA_RESTART);
    start_seeker(&seeker, fd, 5000, 1000);
    for (int i = 0; i < 3; i++) {
        await_sleep(seeker.id);
        REQUIRE(pthread_kill(seeker.thread, SIGUSR1) == 0);
    }
    tell(&sender, "send 6000");
    REQUIRE(pthread_join(seeker.thread, NULL) == 0);
    REQUIRE(seeker.result == 1000 && is_pattern(seeker.bytes, 1000, 5000));
    finish(fd, &sender);
}

/* Another thread receives while it sleeps, and moves the head from which offsets count. */
static void what_starts_again_means_the_same_bytes(void)
{
    static struct seeker seeker;
    struct sender sender;
    int fd = connected(&sender, 0);
    handle(SA_RESTART);
    tell(&sender, "send 1000");
    await(fd, 1000);
    seeker = (struct seeker){ .fd = fd, .at = 5000, .len = 1000 };
    start(&seeker);
    await_sleep(seeker.id);
    REQUIRE(recv(fd, buf, 1000, MSG_WAITALL) == 1000 && is_pattern(buf, 1000, 0));
    await_sleep(seeker.id);
    int before = __atomic_load_n(&signals, __ATOMIC_ACQUIRE);
    REQUIRE(pthread_kill(seeker.thread, SIGUSR1) == 0);
    while (__atomic_load_n(&signals, __ATOMIC_ACQUIRE) == before)
        sched_yield();
    await_sleep(seeker.id);
    tell(&sender, "send 7000");
    REQUIRE(pthread_join(seeker.thread, NULL) == 0);
    REQUIRE(seeker.result == 1000 && is_pattern(seeker.bytes, 1000, 5000));
    finish(fd, &sender);
}

static void *borrow(void *argument)
{
    struct seeker *seeker = argument;
    struct iovec pieces[4];
    __atomic_store_n(&seeker->id, gettid(), __ATOMIC_RELEASE);
    seeker->result = seekwire_recv_borrow(seeker->fd, pieces, 4, seeker->len, seeker->flags, seeker->at);
    for (size_t done = 0, i = 0; i < 4; done += pieces[i++].iov_len)
        memcpy(seeker->bytes + done, pieces[i].iov_base, pieces[i].iov_len);
    REQUIRE(seekwire_recv_return(seeker->fd, pieces, 4) == 0);
    return NULL;
}

static void what_is_borrowed_or_thrown_away_after_a_signal_is_the_same(void)
{
    static struct seeker seeker;
    for (int kind = 0; kind < 5; kind++) {
        struct sender sender;
        int fd = connected(&sender, 0);
        static const int flags[] = { MSG_TRUNC, MSG_TRUNC | SEEKWIRE_PARTIAL, MSG_TRUNC | MSG_PEEK, 0, SEEKWIRE_PARTIAL };
        handle(SA_RESTART);
        tell(&sender, "send 1000");
        await(fd, 1000);
        seeker = (struct seeker){ .fd = fd, .at = 5000, .len = 1000, .flags = flags[kind] };
        REQUIRE(pthread_create(&seeker.thread, NULL, kind < 3 ? seek : borrow, &seeker) == 0);
        while (__atomic_load_n(&seeker.id, __ATOMIC_ACQUIRE) == 0)
            sched_yield();
        await_sleep(seeker.id);
        REQUIRE(recv(fd, buf, 1000, MSG_WAITALL) == 1000 && is_pattern(buf, 1000, 0));
        await_sleep(seeker.id);
        int before = __atomic_load_n(&signals, __ATOMIC_ACQUIRE);
        REQUIRE(pthread_kill(seeker.thread, SIGUSR1) == 0);
        while (__atomic_load_n(&signals, __ATOMIC_ACQUIRE) == before)
            sched_yield();
        await_sleep(seeker.id);
        tell(&sender, "send 7000");
        REQUIRE(pthread_join(seeker.thread, NULL) == 0);
        REQUIRE(seeker.result > 0 && (seeker.result == 1000 || flags[kind] & SEEKWIRE_PARTIAL));
        if (kind >= 3)
            REQUIRE(is_pattern(seeker.bytes, seeker.result, 5000));
        /* What is left begins behind what was received, and lacks just that. */
        size_t hole = flags[kind] & MSG_PEEK ? 0 : seeker.result, behind = 7000 - 4000 - hole;
        REQUIRE(recv(fd, buf, 7000 - hole, MSG_WAITALL) == (ssize_t)(7000 - hole));
        REQUIRE(is_pattern(buf, 4000, 1000) && is_pattern(buf + 4000, behind, 5000 + hole));
        finish(fd, &sender);
    }
}

static void a_thread_that_sleeps_can_be_cancelled(void)
{
    static struct seeker seeker;
    struct sender sender;
    void *end;
    int fd = connected(&sender, 0);
    start_seeker(&seeker, fd, 5000, 1000);
    await_sleep(seeker.id);
    REQUIRE(pthread_cancel(seeker.thread) == 0 && pthread_join(seeker.thread, &end) == 0 && end == PTHREAD_CANCELED);
    tell(&sender, "send 6000");
    REQUIRE(seek_recv(fd, buf, 1000, 0, 5000) == 1000 && is_pattern(buf, 1000, 5000));
    finish(fd, &sender);
}

static void shutdown_wakes_who_waits(void)
{
    static struct seeker seeker;
    struct sender sender;
    int fd = connected(&sender, 0);
    start_seeker(&seeker, fd, 5000, 1000);
    await_sleep(seeker.id);
    REQUIRE(shutdown(fd, SHUT_RD) == 0 && pthread_join(seeker.thread, NULL) == 0 && seeker.result == 0);
    finish(fd, &sender);
}

RUN(CASE(many_wait_for_ranges_of_their_own), CASE(a_receive_that_began_before_the_first_seek_is_over_first),
    CASE(one_seeks_and_one_reads), CASE(signals_end_a_call_or_start_it_again),
    CASE(what_starts_again_means_the_same_bytes),
    CASE(what_is_borrowed_or_thrown_away_after_a_signal_is_the_same), CASE(a_thread_that_sleeps_can_be_cancelled),
    CASE(shutdown_wakes_who_waits))
