/*
 * Message search through libfabric: the tcp provider's reliable datagrams, tagged.
 *
 *   fabricbench send PROCESSOR
 *   fabricbench receive PROCESSOR PORT SIZE SKIP
 *
 * The sender prints "ready PORT" and serves one TCP connection after the other, each of which stands for a connection of
 * the experiment: receiver and sender exchange the names of fresh endpoints over it, and then the messages go through
 * these, tag = number of the message. The receiver reads turns from standard input, one JSON object per line,
 *
 *   {"turn":1,"repetitions":10,"messages":1000}
 *
 * and prints what each cost. It asks for the message behind SKIP others and then for these, in order: they have come
 * unexpected and lie wherever the library keeps such messages. PROCESSOR is -1 for any.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define NAME_MAX_BYTES 256
/* Messages that the sender has under way. */
#define DEPTH 64

struct request {
    uint64_t size, messages, name_length;
    char name[NAME_MAX_BYTES];
};

struct reply {
    uint64_t name_length;
    char name[NAME_MAX_BYTES];
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

/* One end of a connection. */
static struct fid_ep *endpoint;
static struct fid_av *addresses;
static struct fid_cq *completions;

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("fabricbench: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void check(ssize_t result, const char *what)
{
    if (result < 0)
        die("%s: %s", what, fi_strerror((int)-result));
}

static void stay_on(int processor)
{
    cpu_set_t set;
    if (processor < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        die("cannot stay on processor %d: %s", processor, strerror(errno));
}

static void open_domain(void)
{
    static const char *providers[] = {"tcp", "tcp;ofi_rxm"};
    int result = -FI_ENODATA;
    for (size_t i = 0; i < sizeof providers / sizeof *providers && result; i++) {
        struct fi_info *hints = fi_allocinfo();
        if (!hints)
            die("out of memory");
        hints->caps = FI_TAGGED;
        hints->mode = FI_CONTEXT;
        hints->ep_attr->type = FI_EP_RDM;
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->fabric_attr->prov_name = strdup(providers[i]);
        result = fi_getinfo(FI_VERSION(1, 14), "127.0.0.1", NULL, FI_SOURCE, hints, &info);
        fi_freeinfo(hints);
    }
    check(result, "libfabric has no tcp provider with tagged messages");
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
}

static void open_endpoint(void)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .size = 4 * DEPTH};
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 1};
    check(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
    check(fi_cq_open(domain, &cq, &completions, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av, &addresses, NULL), "fi_av_open");
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(endpoint), "fi_enable");
}

static void close_endpoint(void)
{
    check(fi_close(&endpoint->fid), "fi_close of the endpoint");
    check(fi_close(&addresses->fid), "fi_close of the addresses");
    check(fi_close(&completions->fid), "fi_close of the completions");
}

static uint64_t own_name(char name[NAME_MAX_BYTES])
{
    size_t length = NAME_MAX_BYTES;
    memset(name, 0, NAME_MAX_BYTES);
    check(fi_getname(&endpoint->fid, name, &length), "fi_getname");
    return length;
}

static fi_addr_t insert(const char *name)
{
    fi_addr_t address;
    if (fi_av_insert(addresses, name, 1, &address, 0, NULL) != 1)
        die("fi_av_insert failed");
    return address;
}

/* Sleeps until something completes, at most `milliseconds`; its context, or NULL. */
static void *completed(int milliseconds)
{
    struct fi_cq_tagged_entry entry;
    ssize_t result = fi_cq_sread(completions, &entry, 1, NULL, milliseconds);
    if (result == 1)
        return entry.op_context;
    if (result == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(completions, &error, 0);
        die("a message failed: %s", fi_strerror(error.err));
    }
    if (result != -FI_EAGAIN && result != -FI_EINTR)
        check(result, "fi_cq_sread");
    return NULL;
}

static void transfer(int socket, void *bytes, size_t length, int receive)
{
    ssize_t moved = receive ? recv(socket, bytes, length, MSG_WAITALL) : send(socket, bytes, length, MSG_NOSIGNAL);
    if (moved != (ssize_t)length)
        die("the other end is gone");
}

/* ---- sender ---- */

static void send_messages(int socket)
{
    struct request request;
    struct reply reply;
    ssize_t got = recv(socket, &request, sizeof request, MSG_WAITALL);
    if (got != sizeof request || request.size == 0 || request.size > 1u << 30)
        return;
    open_endpoint();
    fi_addr_t receiver = insert(request.name);
    reply.name_length = own_name(reply.name);
    transfer(socket, &reply, sizeof reply, 0);

    /* A message must stay as it is until it is gone. */
    struct fi_context contexts[DEPTH], *free_contexts[DEPTH];
    int free_count = DEPTH;
    char *buffers = malloc(DEPTH * request.size);
    if (!buffers)
        die("out of memory");
    memset(buffers, 1, DEPTH * request.size);
    for (int i = 0; i < DEPTH; i++)
        free_contexts[i] = &contexts[i];

    for (uint64_t number = 0; number < request.messages;) {
        void *context = NULL;
        if (free_count > 0) {
            struct fi_context *slot = free_contexts[free_count - 1];
            char *buffer = buffers + (size_t)(slot - contexts) * request.size;
            size_t head = request.size < 8 ? request.size : 8;
            if (request.size >= 16)
                memcpy(buffer + request.size - 8, &number, 8);
            memcpy(buffer, &number, head);
            ssize_t result = fi_tsend(endpoint, buffer, request.size, NULL, receiver, number, slot);
            if (result == 0) {
                free_count--;
                number++;
                continue;
            }
            if (result != -FI_EAGAIN)
                check(result, "fi_tsend");
            /* Connecting, or no room: make progress. */
            context = completed(1);
        } else {
            context = completed(1000);
        }
        if (context)
            free_contexts[free_count++] = context;
    }
    /* Until all of them are gone and the receiver has confirmed them, this end has to make progress. */
    char done;
    while (free_count < DEPTH) {
        void *context = completed(100);
        if (context)
            free_contexts[free_count++] = context;
    }
    while (recv(socket, &done, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
        completed(1);
    close_endpoint();
    free(buffers);
}

static void serve(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) < 0)
        die("cannot listen: %s", strerror(errno));
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            die("cannot accept: %s", strerror(errno));
        send_messages(connection);
        close(connection);
    }
}

/* ---- receiver ---- */

struct usage {
    uint64_t user, system, clock;
};

static struct usage usage_now(void)
{
    struct rusage usage;
    struct timespec clock;
    getrusage(RUSAGE_SELF, &usage);
    clock_gettime(CLOCK_MONOTONIC, &clock);
    return (struct usage){
        .user = usage.ru_utime.tv_sec * 1000000000ull + usage.ru_utime.tv_usec * 1000ull,
        .system = usage.ru_stime.tv_sec * 1000000000ull + usage.ru_stime.tv_usec * 1000ull,
        .clock = clock.tv_sec * 1000000000ull + clock.tv_nsec,
    };
}

static void receive_message(char *message, uint64_t size, uint64_t number)
{
    struct fi_context context;
    ssize_t result;
    while ((result = fi_trecv(endpoint, message, size, NULL, FI_ADDR_UNSPEC, number, 0, &context)) == -FI_EAGAIN)
        completed(0);
    check(result, "fi_trecv");
    while (completed(1000) != &context) {
    }
    uint64_t head = 0;
    memcpy(&head, message, size < 8 ? size : 8);
    uint64_t expected = size < 8 ? number & ((1ull << 8 * size) - 1) : number;
    if (head != expected || (size >= 16 && memcmp(message + size - 8, &number, 8)))
        die("message %" PRIu64 " is not what was sent", number);
}

static void receive_all(char *message, uint64_t size, uint64_t skip, uint64_t messages)
{
    for (uint64_t first = 0; first < messages;) {
        uint64_t skipped = skip < messages - first - 1 ? skip : messages - first - 1;
        receive_message(message, size, first + skipped);
        for (uint64_t index = 0; index < skipped; index++)
            receive_message(message, size, first + index);
        first += skipped + 1;
    }
}

static void receive(int port, uint64_t size, uint64_t skip)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char *message = malloc(size);
    char line[256];
    if (!message)
        die("out of memory");
    memset(message, 1, size);
    while (fgets(line, sizeof line, stdin)) {
        uint64_t turn, repetitions, messages, user = 0, system = 0, inner = 0, elapsed = 0;
        if (sscanf(line, "{\"turn\":%" SCNu64 ",\"repetitions\":%" SCNu64 ",\"messages\":%" SCNu64 "}", &turn,
                   &repetitions, &messages) != 3)
            die("not a turn: %s", line);
        for (uint64_t repetition = 0; repetition < repetitions; repetition++) {
            struct request request = {.size = size, .messages = messages};
            struct reply reply;
            char done = 1;
            struct usage before = usage_now();
            int control = socket(AF_INET, SOCK_STREAM, 0);
            if (control < 0 || connect(control, (struct sockaddr *)&address, sizeof address) < 0)
                die("cannot connect: %s", strerror(errno));
            open_endpoint();
            request.name_length = own_name(request.name);
            transfer(control, &request, sizeof request, 0);
            transfer(control, &reply, sizeof reply, 1);
            insert(reply.name);
            struct usage opened = usage_now();
            receive_all(message, size, skip, messages);
            struct usage received = usage_now();
            transfer(control, &done, 1, 0);
            close_endpoint();
            close(control);
            struct usage closed = usage_now();
            user += closed.user - before.user;
            system += closed.system - before.system;
            inner += received.user + received.system - opened.user - opened.system;
            elapsed += received.clock - opened.clock;
        }
        printf("{\"turn\":%" PRIu64 ",\"messages\":%" PRIu64 ",\"user_ns\":%" PRIu64 ",\"system_ns\":%" PRIu64
               ",\"messages_ns\":%" PRIu64 ",\"elapsed_ns\":%" PRIu64 "}\n",
               turn, messages * repetitions, user, system, inner, elapsed);
        fflush(stdout);
    }
}

int main(int count, char **arguments)
{
    if (count == 3 && !strcmp(arguments[1], "send")) {
        stay_on(atoi(arguments[2]));
        open_domain();
        serve();
    } else if (count == 6 && !strcmp(arguments[1], "receive")) {
        stay_on(atoi(arguments[2]));
        open_domain();
        receive(atoi(arguments[3]), strtoull(arguments[4], NULL, 10), strtoull(arguments[5], NULL, 10));
    } else {
        die("usage: send PROCESSOR | receive PROCESSOR PORT SIZE SKIP");
    }
    return 0;
}
