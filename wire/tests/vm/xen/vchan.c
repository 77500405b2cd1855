/*
 * libxenvchan between two domains: Xen's own carrier, with which others are compared.
 *
 *   vchan echo DOMAIN NAME [SIZE]        offers NAME to that domain, writes "listening", sends back what comes until the
 *                                        other end closes; with SIZE, whole messages of so many bytes
 *   vchan ask DOMAIN NAME COUNT SIZE     COUNT times sends SIZE bytes to such a one and compares what comes back
 *   vchan sink DOMAIN NAME SIZE          offers NAME, writes "listening", takes messages of SIZE bytes until the other
 *                                        end closes; answers each that begins with another byte than 0 by a byte
 *   vchan pingpong DOMAIN NAME SIZE MS   measures round trips with an echo for MS milliseconds
 *   vchan send DOMAIN NAME SIZE MS       measures how much goes to a sink in that time
 *
 * pingpong and send write what the laboratory's programs write: an object of JSON (lab/lab/peer/streambench.c).
 * An offer is where Xen's own programs have theirs: data/NAME below a domain in xenstore, which every domain may write
 * for itself.
 */
#include <err.h>
#include <inttypes.h>
#include <libxenvchan.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of a ring, in each direction. */
#define RING 65536
/* The most that the library takes: what is measured is to be its best. */
#define LARGE_RING 1048576
/* One way, the clock is read after so many bytes or messages, as the laboratory's program does: domains ask the kernel for it. */
#define BATCH_BYTES 1048576
#define MOST_OF_A_BATCH 256
/* Messages before anything is measured. */
#define WARM_UP 50
#define SAMPLES 1000000

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Processor time of this process, in seconds. */
static double used(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void *memory(size_t size)
{
    void *bytes = calloc(1, size);

    if (!bytes)
        errx(1, "no memory");
    return bytes;
}

/* Whole messages, which may be larger than a ring. */
static void send_all(struct libxenvchan *channel, const char *bytes, size_t size)
{
    while (size > 0) {
        int n = libxenvchan_write(channel, bytes, size);
        if (n <= 0)
            errx(1, "the other end is gone");
        bytes += n;
        size -= n;
    }
}

static void receive_all(struct libxenvchan *channel, char *bytes, size_t size)
{
    while (size > 0) {
        int n = libxenvchan_read(channel, bytes, size);
        if (n <= 0)
            errx(1, "the other end is gone");
        bytes += n;
        size -= n;
    }
}

/* Offers a channel, and waits until somebody has come. */
static struct libxenvchan *offered(int domain, const char *path, size_t ring)
{
    struct libxenvchan *channel = libxenvchan_server_init(NULL, domain, path, ring, ring);

    if (!channel)
        err(1, "libxenvchan_server_init");
    channel->blocking = 1;
    puts("listening");
    fflush(stdout);
    /* A read waits only while somebody is there. */
    while (libxenvchan_is_open(channel) == 2)
        if (libxenvchan_wait(channel) < 0)
            err(1, "libxenvchan_wait");
    return channel;
}

static struct libxenvchan *taken(int domain, const char *path)
{
    struct libxenvchan *channel = libxenvchan_client_init(NULL, domain, path);

    if (!channel)
        err(1, "libxenvchan_client_init");
    channel->blocking = 1;
    return channel;
}

static void sink(int domain, const char *path, size_t size)
{
    struct libxenvchan *channel = offered(domain, path, LARGE_RING);
    char *bytes = memory(size);
    int n;

    while ((n = libxenvchan_read(channel, bytes, size)) > 0) {
        receive_all(channel, bytes + n, size - n);
        if (bytes[0])
            send_all(channel, bytes, 1);
    }
    libxenvchan_close(channel);
}

/* The other end may send a message whole before it takes anything, and it may be larger than both rings. */
static void echo_messages(int domain, const char *path, size_t size)
{
    struct libxenvchan *channel = offered(domain, path, LARGE_RING);
    char *bytes = memory(size);
    int n;

    while ((n = libxenvchan_read(channel, bytes, size)) > 0) {
        receive_all(channel, bytes + n, size - n);
        send_all(channel, bytes, size);
    }
    libxenvchan_close(channel);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void report(const char *operation, size_t size, uint64_t messages, uint64_t ns, double cpu)
{
    printf("{\"operation\":\"%s\",\"size\":%zu,\"messages\":%" PRIu64 ",\"seconds\":%.9f,\"cpu_seconds\":%.6f,\"peer_cpu_seconds\":0",
           operation, size, messages, ns / 1e9, cpu);
}

static void pingpong(int domain, const char *path, size_t size, uint64_t ms)
{
    struct libxenvchan *channel = taken(domain, path);
    uint64_t *samples = memory(SAMPLES * sizeof(*samples)), count = 0, start = 0, before = now();
    char *bytes = memory(size);
    double cpu = 0;

    for (int i = 0; i < WARM_UP; i++) {
        send_all(channel, bytes, size);
        receive_all(channel, bytes, size);
    }
    cpu = used();
    start = before = now();
    do {
        send_all(channel, bytes, size);
        receive_all(channel, bytes, size);
        uint64_t after = now();
        samples[count++] = after - before;
        before = after;
    } while (before - start < ms * 1000000 && count < SAMPLES);
    cpu = used() - cpu;
    libxenvchan_close(channel);
    qsort(samples, count, sizeof(*samples), compare);
    report("pingpong", size, count, before - start, cpu);
    printf(",\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 "}\n", samples[(count - 1) / 2], samples[(count - 1) * 99 / 100]);
}

/* A last message, to a sink: all has arrived when it is answered. */
static void ask_for_answer(struct libxenvchan *channel, char *bytes, size_t size)
{
    char answer;

    bytes[0] = 1;
    send_all(channel, bytes, size);
    receive_all(channel, &answer, 1);
    bytes[0] = 0;
}

static void send_for(int domain, const char *path, size_t size, uint64_t ms)
{
    struct libxenvchan *channel = taken(domain, path);
    char *bytes = memory(size);
    uint64_t messages = 0, start, batch = BATCH_BYTES / size;
    double cpu;

    batch = batch < 1 ? 1 : batch > MOST_OF_A_BATCH ? MOST_OF_A_BATCH : batch;

    for (int i = 0; i < WARM_UP; i++)
        send_all(channel, bytes, size);
    ask_for_answer(channel, bytes, size);
    cpu = used();
    start = now();
    do {
        for (uint64_t i = 0; i < batch; i++)
            send_all(channel, bytes, size);
        messages += batch;
    } while (now() - start < ms * 1000000);
    ask_for_answer(channel, bytes, size);
    messages++;
    uint64_t ns = now() - start;
    cpu = used() - cpu;
    libxenvchan_close(channel);
    report("bandwidth", size, messages, ns, cpu);
    puts("}");
}

static void echo(int domain, const char *path)
{
    static char bytes[RING];
    struct libxenvchan *channel = offered(domain, path, RING);
    int n;

    while ((n = libxenvchan_read(channel, bytes, sizeof(bytes))) > 0)
        if (libxenvchan_send(channel, bytes, n) != n)
            break;
    libxenvchan_close(channel);
}

static void ask(int domain, const char *path, int count, size_t size)
{
    struct libxenvchan *channel = taken(domain, path);
    char *sent = memory(size), *back = memory(size);

    if (size > RING)
        errx(2, "more than %d bytes", RING);
    for (int i = 0; i < count; i++) {
        memset(sent, i, size);
        if (libxenvchan_send(channel, sent, size) != (int)size || libxenvchan_recv(channel, back, size) != (int)size)
            errx(1, "the other end is gone after %d times", i);
        if (memcmp(sent, back, size))
            errx(1, "other bytes came back the %dth time", i);
    }
    printf("%d times %zu bytes came back\n", count, size);
    libxenvchan_close(channel);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int domain = argc > 2 ? atoi(argv[2]) : 0, given = argc - 4;
    long first = argc > 4 ? atol(argv[4]) : 0, second = argc > 5 ? atol(argv[5]) : 0;
    char own[64], other[96];

    snprintf(own, sizeof(own), "data/%s", argc > 3 ? argv[3] : "");
    snprintf(other, sizeof(other), "/local/domain/%d/%s", domain, own);
    if (!strcmp(what, "echo") && given == 0)
        echo(domain, own);
    else if (!strcmp(what, "echo") && given == 1 && first > 0)
        echo_messages(domain, own, first);
    else if (!strcmp(what, "ask") && given == 2)
        ask(domain, other, first, second);
    else if (!strcmp(what, "sink") && given == 1)
        sink(domain, own, first);
    else if (!strcmp(what, "pingpong") && given == 2 && first > 0)
        pingpong(domain, other, first, second);
    else if (!strcmp(what, "send") && given == 2 && first > 0)
        send_for(domain, other, first, second);
    else
        errx(2, "no such command");
    return 0;
}
