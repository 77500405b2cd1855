/* An end of the conversations: sends bytes, and checks those that it receives. */
#include "faults.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

static int role;

/* Generates the bytes of a stream from `offset` on, or with `check` compares them. */
static int stream(uint64_t key, uint64_t offset, char *bytes, size_t length, int check)
{
    while (length > 0) {
        uint64_t word = mix(key + offset / 8);
        size_t at = offset % 8, n = 8 - at < length ? 8 - at : length;
        if (!check)
            memcpy(bytes, (char *)&word + at, n);
        else if (memcmp(bytes, (char *)&word + at, n) != 0)
            return 0;
        bytes += n, offset += n, length -= n;
    }
    return 1;
}

static uint64_t key(int sender, int number)
{
    return shared->seed * 64 + sender * 8 + number;
}

static int is_end(int error)
{
    return error == ECONNRESET || error == EPIPE;
}

/* Whether this end may see the other one die. */
static int may_break(void)
{
    return shared->victim == 1 - role;
}

static ssize_t take(int fd, int number, char *buffer, size_t most, int flags)
{
    struct flow *flow = &shared->flow[role][number];
    uint64_t received = flow->received;
    flow->receiving = 1;
    ssize_t n = recv(fd, buffer, most, flags);
    if (n > 0) {
        if (!stream(key(1 - role, number), received, buffer, n, 1))
            complain(role, "connection %d: wrong bytes at or after %lu", number, received);
        flow->received = received + n;
    } else if (n == 0 && flow->outcome == NOTHING) {
        flow->outcome = received == shared->total[1 - role][number] ? WHOLE : ENDED;
    } else if (n < 0 && is_end(errno)) {
        flow->outcome = RESET;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        complain(role, "connection %d: recv: %s", number, strerror(errno));
        flow->outcome = RESET;
    }
    flow->receiving = 0;
    return n;
}

static ssize_t give(int fd, int number, char *buffer, size_t length, int flags)
{
    struct flow *flow = &shared->flow[role][number];
    uint64_t sent = flow->sent;
    stream(key(role, number), sent, buffer, length, 0);
    flow->sending = sent + length;
    ssize_t n = send(fd, buffer, length, flags | MSG_NOSIGNAL);
    if (n > 0)
        flow->sent = sent + n;
    else if (!is_end(errno) && errno != EAGAIN && errno != EINTR)
        complain(role, "connection %d: send: %s", number, strerror(errno));
    flow->sending = (uint64_t)flow->sent;
    return n;
}

/* Counts how many sends still succeed after the other end has gone. */
static void send_late(int fd, int number)
{
    struct flow *flow = &shared->flow[role][number];
    char byte = 0;
    for (int tries = 0; tries < 1000; tries++) {
        /* The reset is on its way. */
        if (flow->late >= LATE)
            poll(&(struct pollfd){fd, 0, 0}, 1, 1000);
        ssize_t n = send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return;
        if (n < 0)
            poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 1000);
        else if (++flow->late > 2 * LATE)
            break;
    }
    complain(role, "connection %d: sends to the dead succeed for ever", number);
}

static void receive_rest(int fd, int number, char *buffer)
{
    for (;;) {
        ssize_t n = take(fd, number, buffer, LARGEST, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return;
    }
}

/* One end sends, and the other answers with as many bytes. */
static void turn_by_turn(int fd, int number, char *buffer)
{
    size_t each = shared->total[0][number] / TURNS;
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        for (size_t done = 0; done < each;) {
            int mine = turn % 2 == role;
            ssize_t n = mine ? give(fd, number, buffer, each - done, 0) : take(fd, number, buffer, each - done, 0);
            if (n == 0 || (n < 0 && errno != EINTR)) {
                receive_rest(fd, number, buffer);
                return;
            }
            done += n < 0 ? 0 : n;
        }
    }
    shutdown(fd, SHUT_WR);
    receive_rest(fd, number, buffer);
}

static void polling(int fd, int number, char *buffer)
{
    struct flow *flow = &shared->flow[role][number];
    uint64_t random = shared->seed + number * 2 + role, total = shared->total[role][number];
    int sends = 1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (sends || flow->outcome == NOTHING) {
        if (sends && flow->sent == total) {
            shutdown(fd, SHUT_WR);
            sends = 0;
            continue;
        }
        struct pollfd wait = {fd, (sends ? POLLOUT : 0) | (flow->outcome == NOTHING ? POLLIN : 0), 0};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR)
            complain(role, "poll: %s", strerror(errno));
        if (wait.revents & (POLLIN | POLLHUP | POLLERR) && flow->outcome == NOTHING)
            take(fd, number, buffer, 1 + roll(&random, LARGEST), 0);
        if (wait.revents & (POLLOUT | POLLHUP | POLLERR) && sends) {
            uint64_t length = 1 + roll(&random, (uint64_t)1 << (1 + roll(&random, 16)));
            if (length > total - flow->sent)
                length = total - flow->sent;
            sends = give(fd, number, buffer, length, 0) >= 0 || errno == EAGAIN || errno == EINTR;
        }
    }
    fcntl(fd, F_SETFL, 0);
}

struct job {
    int fd, number;
};

/* Being out of memory for a while is the injected fault, not a finding. */
static char *some_memory(void)
{
    char *memory;
    while ((memory = malloc(LARGEST)) == NULL)
        nap(1000);
    return memory;
}

static void *sender(void *argument)
{
    struct job *job = argument;
    struct flow *flow = &shared->flow[role][job->number];
    uint64_t random = shared->seed + job->number * 2 + role, total = shared->total[role][job->number];
    char *buffer = some_memory();
    while (flow->sent < total) {
        uint64_t length = 1 + roll(&random, (uint64_t)1 << (1 + roll(&random, 16)));
        if (length > total - flow->sent)
            length = total - flow->sent;
        if (give(job->fd, job->number, buffer, length, 0) < 0 && errno != EINTR)
            break;
    }
    if (flow->sent == total)
        shutdown(job->fd, SHUT_WR);
    free(buffer);
    return NULL;
}

/* Likewise for threads. */
static void start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    while (pthread_create(thread, NULL, body, argument) != 0)
        nap(1000);
}

static void *serve(void *argument)
{
    struct job *job = argument;
    struct flow *flow = &shared->flow[role][job->number];
    static const struct linger none = {1, 0};
    char *buffer = some_memory();
    pthread_t thread;
    switch (shared->style[job->number]) {
    case TURN_BY_TURN:
        turn_by_turn(job->fd, job->number, buffer);
        break;
    case POLLING:
        polling(job->fd, job->number, buffer);
        break;
    default:
        start_thread(&thread, sender, job);
        receive_rest(job->fd, job->number, buffer);
        pthread_join(thread, NULL);
    }
    if (flow->outcome != WHOLE) {
        send_late(job->fd, job->number);
        if (!may_break())
            complain(role, "connection %d: ended after %lu bytes", job->number, (uint64_t)flow->received);
    }
    /* In TIME_WAIT, this many connections would leave no free port for a minute. */
    if (role == 1 && flow->outcome != WHOLE)
        setsockopt(job->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    free(buffer);
    close(job->fd);
    return NULL;
}

static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[PATH_MAX];
    int count = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:seekwire") != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

static int one_connection(int listener, int *fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (role == 1) {
        *fd = accept(listener, NULL, NULL);
        return *fd >= 0;
    }
    address.sin_port = htons(shared->port);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (*fd < 0)
        return 0;
    if (connect(*fd, (struct sockaddr *)&address, sizeof address) == 0)
        return 1;
    close(*fd);
    return 0;
}

static void round_of(int listener, int number)
{
    struct job jobs[MOST];
    pthread_t threads[MOST];
    int count = 0, traced = shared->victim == role;
    uint64_t random = shared->seed;
    if (traced)
        raw(BEGIN, 0, 0, 0);
    for (; count < shared->connections; count++) {
        jobs[count].number = count;
        for (;;) {
            /* The victim may be dead before it has connected; checked first, because a connection made by then is accepted. */
            int dead = shared->connected[1 - role] == -number || shared->done[1 - role] == -number;
            if (one_connection(listener, &jobs[count].fd))
                break;
            if (dead)
                goto all;
            if (role == 0 || errno != EAGAIN)
                nap(500);
            else
                poll(&(struct pollfd){listener, POLLIN, 0}, 1, 5);
        }
        fcntl(jobs[count].fd, F_SETFL, 0);
        setsockopt(jobs[count].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
all:
    shared->connected[role] = number;
    if (shared->connections == 1 && shared->style[0] == TURN_BY_TURN && !shared->forks[role] && count == 1) {
        serve(&jobs[0]);
    } else if (shared->forks[role]) {
        pid_t children[MOST];
        for (int at = 0; at < count; at++) {
            if (traced && shared->fault == CLOCK)
                other_clock(&random);
            while ((children[at] = fork()) < 0)
                nap(1000);
            if (children[at] == 0) {
                for (int other = at + 1; other < count; other++)
                    close(jobs[other].fd);
                if (traced && shared->fault == CLOCK)
                    let_clock_jump();
                serve(&jobs[at]);
                _exit(0);
            }
            close(jobs[at].fd);
        }
        for (int at = 0; at < count; at++) {
            int status;
            while (waitpid(children[at], &status, 0) < 0 && errno == EINTR)
                continue;
            /* A process killed by the kernel's out-of-memory killer is killed alone. */
            if (status != 0 && !(traced && shared->fault == GROUP && status == SIGKILL))
                complain(role, "a child ended with status %#x", status);
        }
    } else {
        for (int at = 0; at < count; at++)
            start_thread(&threads[at], serve, &jobs[at]);
        for (int at = 0; at < count; at++)
            pthread_join(threads[at], NULL);
    }
}

int end(int which, int number, int rounds)
{
    int listener = -1;
    role = which;
    if (role == 1) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof address;
        listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 64) < 0 ||
            getsockname(listener, (struct sockaddr *)&address, &length) < 0)
            return 1;
        shared->port = ntohs(address.sin_port);
    }
    for (int last = number + rounds; number < last; number++) {
        while (shared->round != number && shared->round != -1)
            nap(200);
        if (shared->round == -1)
            break;
        round_of(listener, number);
        if (shared->victim != role) {
            shared->descriptors[role] = count_files("/proc/self/fd", "");
            shared->mappings[role] = count_mappings();
        }
        shared->done[role] = number;
    }
    close(listener);
    return 0;
}
