/* Work of the stages of the experiment `flow-peers` on blocks, in C and C++, as lab/lab/src/pipeline
 * does it in Rust. Orders are eight numbers, the report is a line of JSON. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 2, LOOK = 32 };

/* See `Order` there. */
static struct {
    uint64_t size, milliseconds, interval_ns, limit, copies, sink_ns, service_ns, pause_ms;
} order;

static int parse_order(int count, char **arguments) {
    uint64_t *fields[] = {&order.size, &order.milliseconds, &order.interval_ns, &order.limit,
                          &order.copies, &order.sink_ns, &order.service_ns, &order.pause_ms};
    if (count != 9) {
        fprintf(stderr, "an order has eight numbers\n");
        return -1;
    }
    for (int at = 0; at < 8; at++)
        *fields[at] = strtoull(arguments[at + 1], NULL, 10);
    return order.size >= 64 && order.size % 8 == 0 && order.copies > 0 ? 0 : -1;
}

static inline uint64_t room_in_blocks(void) {
    uint64_t room = order.limit / order.size;
    return room > 0 ? room : 1;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ns(uint64_t ns) {
    struct timespec left;
    left.tv_sec = (time_t)(ns / 1000000000u);
    left.tv_nsec = (long)(ns % 1000000000u);
    nanosleep(&left, NULL);
}

/* A number of /proc/self/status that is in kB, in bytes. */
static uint64_t status_bytes(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    uint64_t found = 0;
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            found = strtoull(line + strlen(name) + 1, NULL, 10) << 10;
    fclose(file);
    return found;
}

static uint64_t memory_before;

/* Before the first block. */
static void begin_memory(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file) {
        fputs("5", file);
        fclose(file);
    }
    memory_before = status_bytes("VmRSS");
}

/* The source. */

static uint64_t source_begun, source_next;

/* Waits until the next block is due; 0: there are no more. */
static int source_goes_on(void) {
    if (source_begun == 0)
        source_begun = now_ns();
    if (order.interval_ns > 0) {
        uint64_t due = source_begun + source_next * order.interval_ns, now = now_ns();
        if (due > now)
            sleep_ns(due - now);
    }
    if (order.interval_ns > 0 || source_next % LOOK == 0)
        return now_ns() - source_begun < order.milliseconds * 1000000u;
    return 1;
}

/* The moment at which the next block is made, or 0: taken before its memory is. */
static uint64_t source_moment(void) {
    return order.interval_ns > 0 || source_next == 0 ? now_ns() : 0;
}

static void source_fill(uint64_t *words, uint64_t moment) {
    for (uint64_t place = 0; place < order.size / 8; place++)
        words[place] = source_next + place;
    words[1] = moment;
    source_next++;
}

/* Reading. */

static uint64_t sum_words(const uint64_t *words) {
    uint64_t sum = 0;
    for (uint64_t place = 0; place < order.size / 8; place++)
        sum += words[place];
    return sum - words[1];
}

/* The sink. */

static uint64_t sink_blocks, sink_sum, sink_begun, sink_slow_until;
static uint64_t *sink_latencies;
static size_t sink_count, sink_room;

static void sink_take(const uint64_t *words) {
    sink_sum += sum_words(words);
    sink_blocks++;
    if (words[1] > 0) {
        if (words[0] == 0)
            sink_begun = words[1];
        if (order.interval_ns > 0) {
            if (sink_count == sink_room) {
                sink_room = sink_room ? 2 * sink_room : 1024;
                sink_latencies = (uint64_t *)realloc(sink_latencies, sink_room * sizeof *sink_latencies);
                if (!sink_latencies)
                    abort();
            }
            sink_latencies[sink_count++] = now_ns() - words[1];
        }
    }
    if (order.sink_ns > 0) {
        uint64_t now = now_ns();
        if (sink_slow_until == 0)
            sink_slow_until = now + order.milliseconds * 1000000u;
        if (now < sink_slow_until)
            sleep_ns(order.sink_ns);
    }
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* `sums`: the sums of the steps. `end`: when the sink knew that no more blocks would come. */
static void print_report(const uint64_t sums[STEPS], uint64_t end) {
    printf("{\"blocks\":%" PRIu64 ",\"seconds\":%.9f,\"sums\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", sink_blocks,
           (double)(end - sink_begun) / 1e9, sums[0], sums[1], sink_sum);
    if (sink_count > 0) {
        qsort(sink_latencies, sink_count, sizeof *sink_latencies, ascending);
        printf(",\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64, sink_latencies[(size_t)(0.5 * (double)(sink_count - 1))],
               sink_latencies[(size_t)(0.99 * (double)(sink_count - 1))]);
    }
    printf(",\"resident\":{\"before\":%" PRIu64 ",\"peak\":%" PRIu64 "}}\n", memory_before, status_bytes("VmHWM"));
    fflush(stdout);
}
