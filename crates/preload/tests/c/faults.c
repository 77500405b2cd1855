/*
 * Two processes exchange bytes over TCP while one of them meets a fault: it is killed, stopped, or a system call fails. Each
 * byte is checked by its position, and what was sent against what has come; what is left behind is counted.
 *
 * usage: faults [-l LIBRARY] [-d DIRECTORY] [-s SEED] [-n MOMENTS] FAULT...
 *
 * Without a LIBRARY to preload this is plain TCP, which has to pass, too. DIRECTORY is that of the registry. Faults by steps
 * come at each system call of the victim, from the moment in which it is connected, once on each side:
 *
 *   kill-steps   it is killed before the call, and after it
 *   stop-steps   it stands still there until the other one sleeps
 *   fail-steps   the call fails for want of descriptors, memory or room, if it is one that can
 *
 * Faults at MOMENTS random moments (SEED is printed) come under the load of several connections, by threads, forked processes,
 * polling and sleeping, some of which only send one way:
 *
 *   kill         the victim and all its children are killed
 *   stop         they are stopped for a while, again and again
 *   descriptors  no descriptor is left, for a while, again and again
 *   memory       no address space is
 *   registry     the registry's directory is moved away, shut and filled
 *
 * The other end lives through all of it; its descriptors and mappings are counted before and after.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/ptrace.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

enum { MOST = 4, LARGEST = 1 << 16, TURNS = 12, LATE = 17, PATIENCE = 20 };
/* Calls of no such number mark where the steps begin and end. */
enum { BEGIN = 0x7000001, END = 0x7000002 };
enum style { TURN_BY_TURN, POLLING, THREADS, STYLES };
enum outcome { NOTHING, WHOLE, ENDED, RESET };

/* What one end does on one connection, for the driver to see. */
struct flow {
    _Atomic uint64_t sending, sent, received;
    _Atomic int receiving, outcome, late;
};

struct shared {
    /* A round begins when its number is set here; 0 before the first, -1 after the last. */
    _Atomic int round;
    _Atomic int port, connected[2], done[2], descriptors[2], mappings[2];
    int victim, connections, forks;
    uint64_t seed;
    enum style style[MOST];
    /* Bytes that this end sends on this connection. */
    uint64_t total[2][MOST];
    struct flow flow[2][MOST];
    char complaint[2][200];
};

static struct shared *shared;
static int role;
static const char *self, *library, *directory = "/dev/shm/seekwire-faults";

static void complain(int who, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (shared->complaint[who][0] == 0)
        vsnprintf(shared->complaint[who], sizeof shared->complaint[who], format, list);
    va_end(list);
}

static void nap(long microseconds)
{
    nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000}, NULL);
}

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

/* ---- an end ---- */

/* The bytes of a stream from `offset` on; `check` compares instead. */
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

/* After the other end has gone: how many sends still succeed. */
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

/* One speaks, and the other one answers with as much. */
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

/* That there is none for a while is the fault, not the finding. */
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

/* So it is with threads. */
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
    /* So many connections would leave no port to others for a minute. */
    if (role == 1 && flow->outcome != WHOLE)
        setsockopt(job->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    free(buffer);
    close(job->fd);
    return NULL;
}

static int count_files(const char *path, const char *ending)
{
    DIR *files = opendir(path);
    int count = 0;
    for (struct dirent *file; files != NULL && (file = readdir(files)) != NULL;) {
        size_t length = strlen(file->d_name);
        count += file->d_name[0] != '.' && length >= strlen(ending) &&
                 strcmp(file->d_name + length - strlen(ending), ending) == 0;
    }
    if (files != NULL)
        closedir(files);
    return count;
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
    for (; count < shared->connections; count++) {
        jobs[count].number = count;
        while (!one_connection(listener, &jobs[count].fd)) {
            /* The victim may be dead before it has connected. */
            if (shared->connected[1 - role] == -number || shared->done[1 - role] == -number)
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
    if (traced)
        raw(BEGIN, 0, 0, 0);
    if (shared->connections == 1 && shared->style[0] == TURN_BY_TURN && !shared->forks && count == 1) {
        serve(&jobs[0]);
    } else if (shared->forks && role == 1) {
        pid_t children[MOST];
        for (int at = 0; at < count; at++) {
            while ((children[at] = fork()) < 0)
                nap(1000);
            if (children[at] == 0) {
                for (int other = at + 1; other < count; other++)
                    close(jobs[other].fd);
                serve(&jobs[at]);
                _exit(0);
            }
            close(jobs[at].fd);
        }
        for (int at = 0; at < count; at++) {
            int status;
            while (waitpid(children[at], &status, 0) < 0 && errno == EINTR)
                continue;
            if (status != 0)
                complain(role, "a child ended with status %#x", status);
        }
    } else {
        for (int at = 0; at < count; at++)
            start_thread(&threads[at], serve, &jobs[at]);
        for (int at = 0; at < count; at++)
            pthread_join(threads[at], NULL);
    }
    if (traced)
        raw(END, 0, 0, 0);
}

static int end(int number, int rounds)
{
    int listener = -1;
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
        shared->descriptors[role] = count_files("/proc/self/fd", "");
        shared->mappings[role] = count_mappings();
        shared->done[role] = number;
    }
    close(listener);
    return 0;
}

/* ---- the driver ---- */

static pid_t start(int which, int number, int rounds, int traced)
{
    char text[4][20];
    sprintf(text[0], "%d", which), sprintf(text[1], "%d", number), sprintf(text[2], "%d", rounds);
    if (which == 1)
        shared->port = 0;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (library != NULL)
            setenv("LD_PRELOAD", library, 1);
        setenv("SEEKWIRE_DIR", directory, 1);
        sprintf(text[3], "%lu", 1 + shared->seed % 6);
        setenv("SEEKWIRE_THRESHOLD", traced ? "2" : text[3], 1);
        if (traced)
            setenv("SEEKWIRE_SPIN_US", "0", 1);
        if (traced && raw(SYS_ptrace, 0 /* PTRACE_TRACEME */, 0, 0) < 0)
            _exit(99);
        execl(self, "faults", "end", text[0], text[1], text[2], NULL);
        _exit(98);
    }
    setpgid(child, child);
    while (which == 1 && !traced && shared->port == 0)
        nap(100);
    return child;
}

static volatile sig_atomic_t late;
static void too_late(int signal)
{
    (void)signal;
    late = 1;
}

static long trace(int request, pid_t pid, long address, void *data)
{
    return raw6(SYS_ptrace, request, pid, address, (long)data, 0, 0);
}

/* What a system call can be told: errors of want, each in turn; 0 when there are no more. */
static int want(const struct ptrace_syscall_info *call, int which)
{
    static const struct {
        long number;
        int errors[4];
    } wants[] = {
        {SYS_openat, {EMFILE, ENFILE, ENOENT, EACCES}},
        {SYS_socket, {EMFILE, ENFILE, ENOBUFS}},
        {SYS_socketpair, {EMFILE, ENFILE}},
        {SYS_epoll_create1, {EMFILE, ENOMEM}},
        {SYS_eventfd2, {EMFILE, ENODEV}},
        {SYS_memfd_create, {EMFILE, ENOMEM, EFBIG}},
        {SYS_pidfd_open, {EMFILE, ESRCH}},
        {SYS_kcmp, {EPERM, ENOSYS}},
        {SYS_mmap, {ENOMEM, EPERM}},
        {SYS_mprotect, {ENOMEM}},
        {SYS_ftruncate, {ENOSPC, EFBIG}},
        {SYS_fallocate, {ENOSPC, EOPNOTSUPP}},
        {SYS_sendmsg, {ENOBUFS, EAGAIN, ETOOMANYREFS, ECONNREFUSED}},
        {SYS_recvmsg, {ENOMEM, EAGAIN}},
        {SYS_epoll_ctl, {ENOMEM, ENOSPC}},
        {SYS_bind, {EACCES, ENOSPC, EADDRINUSE}},
        {SYS_getdents64, {EIO}},
        {SYS_mkdirat, {ENOSPC, EACCES}},
        {SYS_getrandom, {EAGAIN}},
    };
    if (call->entry.nr == SYS_fcntl)
        return which == 0 && (call->entry.args[1] == F_DUPFD_CLOEXEC || call->entry.args[1] == F_DUPFD) ? EMFILE : 0;
    for (size_t at = 0; at < sizeof wants / sizeof *wants; at++)
        if (wants[at].number == (long)call->entry.nr)
            return which < 4 ? wants[at].errors[which] : 0;
    return 0;
}

/* Whether all threads of a process sleep. */
static int sleeps(pid_t pid)
{
    char path[64], text[512];
    sprintf(path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 1;
    text[n] = 0;
    char *state = strrchr(text, ')');
    return state != NULL && state[2] == 'S';
}

enum cut { KILL, STOP, FAIL };
struct step {
    enum cut cut;
    /* Of the system call; whether after it, or with which error. */
    int number, which;
    /* What was cut. */
    long call;
    int error, reached;
};

/* Runs the traced victim to the end of its round, or of its life. */
static void follow(pid_t victim, pid_t other, struct step *step)
{
    int status, inside = 0, number = 0, entered = 0, failing = 0;
    while (waitpid(victim, &status, __WALL) == victim && !late) {
        int deliver = 0;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && step->reached && step->cut == KILL) && status != 0)
                complain(shared->victim, "the victim ended with status %#x", status);
            return;
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            struct ptrace_syscall_info call;
            memset(&call, 0, sizeof call);
            trace(0x420e /* PTRACE_GET_SYSCALL_INFO */, victim, sizeof call, &call);
            if (call.op == PTRACE_SYSCALL_INFO_ENTRY) {
                if ((int)call.entry.nr == BEGIN)
                    inside = 1;
                else if ((int)call.entry.nr == END)
                    inside = 0;
                number += inside;
                entered = inside && number == step->number;
                if (entered) {
                    step->call = call.entry.nr;
                    if (step->cut == FAIL && (step->error = want(&call, step->which)) != 0) {
#if defined(__x86_64__)
                        trace(0x6 /* PTRACE_POKEUSER */, victim, offsetof(struct user_regs_struct, orig_rax), (void *)-1L);
                        failing = 1;
#endif
                    }
                    step->reached = 1;
                    if (step->cut == KILL && step->which == 0)
                        kill(victim, SIGKILL);
                    for (int looks = 0; step->cut == STOP && looks < 20; looks += sleeps(other) ? 5 : 1)
                        nap(500);
                }
            } else if (call.op == PTRACE_SYSCALL_INFO_EXIT && entered) {
                entered = 0;
                if (step->cut == KILL)
                    kill(victim, SIGKILL);
#if defined(__x86_64__)
                if (failing)
                    trace(0x6, victim, offsetof(struct user_regs_struct, rax), (void *)(long)-step->error);
#endif
                failing = 0;
            }
        } else if (WSTOPSIG(status) == SIGTRAP) {
            trace(0x4200 /* PTRACE_SETOPTIONS */, victim, 0, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
        } else {
            deliver = WSTOPSIG(status);
        }
        trace(24 /* PTRACE_SYSCALL */, victim, 0, (void *)(long)deliver);
    }
}

static int base_descriptors, base_mappings, failures, most_late, resets, ends, moments;
static uint64_t bytes;

static void put_round(int victim, uint64_t seed)
{
    memset(shared->flow, 0, sizeof shared->flow);
    memset(shared->complaint, 0, sizeof shared->complaint);
    shared->victim = victim;
    shared->seed = seed;
}

/* Looks at what became of a round. `killed`: the victim was. */
static void judge(const char *what, int killed)
{
    int victim = shared->victim, other = 1 - victim;
    for (int at = 0; at < shared->connections; at++) {
        struct flow *dead = &shared->flow[victim][at], *left = &shared->flow[other][at];
        bytes += dead->received + left->received;
        if (left->received > dead->sending)
            complain(other, "connection %d: %lu bytes came of %lu", at, (uint64_t)left->received, (uint64_t)dead->sending);
        if (killed && left->outcome != NOTHING) {
            int one_way = shared->total[other][at] == 0;
            if ((one_way || shared->style[at] == TURN_BY_TURN) && left->received < dead->sent)
                complain(other, "connection %d: %lu bytes came, and %lu were sent", at, (uint64_t)left->received, (uint64_t)dead->sent);
            /* Whoever was not accepted yet is reset. */
            if (one_way && left->outcome == RESET && shared->connected[victim] == shared->round)
                complain(other, "connection %d: reset, and nothing was unread", at);
            if (left->late > most_late)
                most_late = left->late;
            if (left->late > LATE)
                complain(other, "connection %d: %d sends to the dead succeeded", at, left->late);
            resets += left->outcome == RESET;
            ends += left->outcome == ENDED;
        }
    }
    for (int who = 0; who < 2; who++)
        if (shared->complaint[who][0] != 0) {
            printf("FAILED: %s, victim %s, the %s: %s\n", what, victim ? "accepts" : "connects",
                   who == victim ? "victim" : "other end", shared->complaint[who]);
            failures++;
        }
}

/* The other end has to come to the end of its round. False when it hangs. */
static int await_other(const char *what, int other, int number, pid_t pid)
{
    for (int looks = 0; shared->done[other] != number; looks++) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid) {
            printf("FAILED: %s: the other end ended with status %#x\n", what, status);
            failures++;
            return 0;
        }
        if (looks > PATIENCE * 1000) {
            printf("FAILED: %s, victim %s: the other end (%d) hangs\n", what, shared->victim ? "accepts" : "connects", pid);
            if (getenv("FAULTS_KEEP") != NULL)
                pause();
            failures++;
            return 0;
        }
        nap(1000);
    }
    return 1;
}

static void finish(pid_t pid)
{
    shared->round = -1;
    for (int looks = 0; looks < 1000; looks++) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        nap(1000);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A process keeps a few files open once it has had a use for them; what is kept in each round is a leak. */
static void count_left(const char *what, int other, int round)
{
    enum { ONCE = 6 };
    if (round == 1)
        base_descriptors = shared->descriptors[other], base_mappings = shared->mappings[other];
    if (shared->descriptors[other] > base_descriptors + ONCE || shared->mappings[other] > base_mappings) {
        printf("FAILED: %s: %d descriptors, %d before; %d mappings, %d before\n", what, shared->descriptors[other], base_descriptors,
               shared->mappings[other], base_mappings);
        base_descriptors = shared->descriptors[other], base_mappings = shared->mappings[other];
        failures++;
    }
}

static const char *call_name(long number)
{
    static char text[32];
    sprintf(text, "call %ld", number);
    return text;
}

static void by_steps(enum cut cut, uint64_t seed)
{
    static const char *const names[] = {"killed at", "stopped at", "failing"};
    shared->connections = 1, shared->forks = 0, shared->style[0] = TURN_BY_TURN;
    shared->total[0][0] = shared->total[1][0] = TURNS * 100;
    for (int victim = 0; victim < 2; victim++) {
        struct step step = {.cut = cut, .number = 1};
        shared->round = 0;
        pid_t other = 0;
        for (int round = 1;; round++) {
            char what[100];
            put_round(victim, seed + round);
            if (other == 0) {
                shared->round = 0;
                round = 1;
                shared->connected[0] = shared->connected[1] = shared->done[0] = shared->done[1] = 0;
                if (victim == 0)
                    other = start(1, 1, INT_MAX / 2, 0);
            }
            step.reached = 0, step.error = 0;
            pid_t traced = start(victim, round, 1, 1);
            if (other == 0)
                other = start(0, 1, INT_MAX / 2, 0);
            /* The one who connects comes once the port is known. */
            if (victim == 1)
                shared->port = 0;
            late = 0;
            alarm(PATIENCE);
            shared->round = round;
            follow(traced, other, &step);
            alarm(0);
            sprintf(what, "%s step %d.%d (%s, error %d)", names[cut], step.number, step.which, call_name(step.call), step.error);
            if (late)
                complain(victim, "hangs");
            kill(traced, SIGKILL);
            waitpid(traced, NULL, __WALL);
            shared->done[victim] = shared->done[victim] == round ? round : -round;
            if (!await_other(what, 1 - victim, round, other)) {
                kill(-other, SIGKILL);
                waitpid(other, NULL, 0);
                other = 0;
            }
            judge(what, cut == KILL && step.reached);
            count_left(what, 1 - victim, round);
            moments += step.reached;
            if (!step.reached)
                break;
            if ((cut == KILL && step.which == 0) || (cut == FAIL && step.error != 0))
                step.which++;
            else
                step.number++, step.which = 0;
        }
        printf("%s: %d system calls, victim %s\n", names[cut], step.number - 1, victim ? "accepts" : "connects");
        if (other != 0)
            finish(other);
    }
}

enum fault { KILLED, STOPPED, DESCRIPTORS, MEMORY, REGISTRY };

static void set_limit(pid_t pid, int which, rlim_t soft)
{
    struct rlimit limit;
    prlimit(pid, which, NULL, &limit);
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    prlimit(pid, which, &limit, NULL);
}

static void disturb_registry(uint64_t *random)
{
    static int moved;
    char path[PATH_MAX];
    switch (roll(random, 4)) {
    case 0:
        snprintf(path, sizeof path, "%s-%d", directory, ++moved % 8);
        rename(directory, path);
        break;
    case 1:
        chmod(directory, 0);
        nap(1000);
        chmod(directory, 0700);
        break;
    case 2:
        for (int at = 0; at < 50; at++) {
            snprintf(path, sizeof path, "%s/%d-%d.sock", directory, at, at);
            close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        }
        break;
    default:
        snprintf(path, sizeof path, "rm -rf '%s'", directory);
        if (system(path) != 0)
            return;
    }
}

static void disturb(enum fault fault, pid_t victim, uint64_t *random)
{
    switch (fault) {
    case KILLED:
        kill(-victim, SIGKILL);
        break;
    case STOPPED:
        kill(-victim, SIGSTOP);
        nap(roll(random, 20000));
        kill(-victim, SIGCONT);
        break;
    case DESCRIPTORS:
        set_limit(victim, RLIMIT_NOFILE, 2 + roll(random, 24));
        nap(roll(random, 5000));
        set_limit(victim, RLIMIT_NOFILE, 1024);
        break;
    case MEMORY:
        set_limit(victim, RLIMIT_AS, 1 << 20);
        nap(roll(random, 5000));
        set_limit(victim, RLIMIT_AS, RLIM_INFINITY);
        break;
    case REGISTRY:
        disturb_registry(random);
        break;
    }
}

static void at_moments(const char *name, enum fault fault, uint64_t seed, int wanted)
{
    uint64_t random = seed;
    for (int victim = 0; victim < 2; victim++) {
        pid_t other = 0;
        for (int count = 0, round = 1; count < wanted / 2; count++, round++) {
            char what[100];
            put_round(victim, roll(&random, 1 << 30));
            if (other == 0) {
                shared->round = 0;
                round = 1;
                shared->connected[0] = shared->connected[1] = shared->done[0] = shared->done[1] = 0;
                other = start(1 - victim, 1, INT_MAX / 2, 0);
            }
            shared->connections = 1 + roll(&random, MOST);
            shared->forks = roll(&random, 3) == 0;
            for (int at = 0; at < shared->connections; at++) {
                shared->style[at] = roll(&random, STYLES);
                int one_way = roll(&random, 3);
                for (int who = 0; who < 2; who++)
                    shared->total[who][at] = shared->style[at] == TURN_BY_TURN ? TURNS * (1 + shared->seed % 5000)
                                             : one_way == who                 ? 0
                                                                              : 1 + roll(&random, 4000000);
            }
            sprintf(what, "%s, seed %lu, round %d", name, seed, count + victim * wanted / 2);
            if (victim == 1)
                shared->port = 0;
            shared->connected[0] = shared->connected[1] = 0;
            shared->round = round;
            pid_t process = start(victim, round, 1, 0);
            int times = fault == KILLED ? 1 : 1 + roll(&random, 8), status = 0, gone = 0;
            for (int looks = 0; (fault == DESCRIPTORS || fault == MEMORY || roll(&random, 8) != 0) && shared->connected[victim] != round && looks < 10000; looks++)
                nap(100);
            for (int at = 0; at < times && !gone; at++, moments++) {
                nap(roll(&random, (uint64_t)1 << (1 + roll(&random, 15))));
                disturb(fault, process, &random);
                gone = fault != KILLED && waitpid(process, &status, WNOHANG) == process;
            }
            if (fault == KILLED) {
                waitpid(process, &status, 0);
                shared->done[victim] = -round;
            }
            for (int looks = 0; !gone && fault != KILLED && !(gone = waitpid(process, &status, WNOHANG) == process); looks++) {
                nap(1000);
                if (looks > PATIENCE * 1000) {
                    complain(victim, "hangs (%d)", process);
                    if (getenv("FAULTS_KEEP") != NULL) {
                        printf("%s: %s\n", what, shared->complaint[victim]);
                        pause();
                    }
                    kill(-process, SIGKILL);
                    waitpid(process, &status, 0);
                    break;
                }
            }
            if (fault != KILLED && status != 0)
                complain(victim, "ended with status %#x", status);
            if (!await_other(what, 1 - victim, round, other)) {
                kill(-other, SIGKILL);
                waitpid(other, NULL, 0);
                other = 0;
            }
            judge(what, fault == KILLED);
            count_left(what, 1 - victim, round);
        }
        if (other != 0)
            finish(other);
    }
}

/* Slots of the registry in use (crates/seekwire/src/registry.rs), and sockets beside it. */
static void count_registry(int *slots, int *sockets)
{
    enum { HEADER = 4096, SLOT = 256 };
    char path[PATH_MAX];
    uint64_t state;
    snprintf(path, sizeof path, "%s/registry-2", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *slots = 0;
    for (off_t at = HEADER; fd >= 0 && pread(fd, &state, sizeof state, at) == sizeof state; at += SLOT)
        *slots += state != 0;
    close(fd);
    *sockets = count_files(directory, ".sock");
}

/* Two more processes talk, undisturbed, and then nothing is left of those before. */
static void clear_up(const char *what)
{
    int slots, sockets;
    pid_t ends[2];
    put_round(2, 0);
    shared->round = 0;
    shared->connections = 1, shared->forks = 0, shared->style[0] = TURN_BY_TURN;
    shared->total[0][0] = shared->total[1][0] = TURNS * 100;
    shared->connected[0] = shared->connected[1] = shared->done[0] = shared->done[1] = 0;
    for (int which = 1; which >= 0; which--)
        ends[which] = start(which, 1, 1, 0);
    shared->round = 1;
    for (int which = 1; which >= 0; which--) {
        await_other(what, which, 1, 0);
        finish(ends[which]);
        if (shared->complaint[which][0] != 0) {
            printf("FAILED: after %s: %s\n", what, shared->complaint[which]);
            failures++;
        }
    }
    count_registry(&slots, &sockets);
    if (slots + sockets > 0) {
        printf("FAILED: after %s: %d slots and %d sockets are left\n", what, slots, sockets);
        failures++;
    }
}

int main(int count, char **arguments)
{
    static const char *const faults[] = {"kill", "stop", "descriptors", "memory", "registry"};
    static const char *const cuts[] = {"kill-steps", "stop-steps", "fail-steps"};
    enum { PAGE_OF_BOTH = 1000 };
    int option, wanted = 100;
    uint64_t seed = time(NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    if (count == 5 && strcmp(arguments[1], "end") == 0) {
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE_OF_BOTH, 0);
        close(PAGE_OF_BOTH);
        if (shared == MAP_FAILED)
            return 97;
        role = atoi(arguments[2]);
        return end(atoi(arguments[3]), atoi(arguments[4]));
    }
    while ((option = getopt(count, arguments, "l:d:s:n:")) != -1) {
        switch (option) {
        case 'l': library = optarg; break;
        case 'd': directory = optarg; break;
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 'n': wanted = atoi(optarg); break;
        default: return 2;
        }
    }
    self = realpath("/proc/self/exe", NULL);
    int page = memfd_create("shared", 0);
    if (page < 0 || ftruncate(page, sizeof *shared) < 0 || dup2(page, PAGE_OF_BOTH) < 0)
        return 1;
    close(page);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE_OF_BOTH, 0);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = too_late}, NULL);
    printf("seed %lu\n", seed);
    for (int at = optind; at < count; at++) {
        int before = failures;
        moments = resets = ends = most_late = 0, bytes = 0;
        for (int which = 0; which < 3; which++)
            if (strcmp(arguments[at], cuts[which]) == 0)
                by_steps(which, seed);
        for (int which = 0; which < 5; which++)
            if (strcmp(arguments[at], faults[which]) == 0)
                at_moments(faults[which], which, seed, wanted);
        clear_up(arguments[at]);
        printf("%s: %d moments, %lu bytes checked, %d ends, %d resets, at most %d late sends, %d failures\n", arguments[at],
               moments, bytes, ends, resets, most_late, failures - before);
    }
    return failures > 0;
}
