/*
 * Either end of a conversation in which each byte is compared, while its surroundings change.
 *
 *   end server                    says "port N pid P", serves one client
 *   end client PORT               says "pid P"
 *   end filter FILTER PROGRAM...  becomes the program with a filter of system calls, as a sandbox starts one
 *
 * After ROUNDS rounds each end says "paused" and does what its standard input asks for, a line each:
 *
 *   limit RESOURCE VALUE          sets a limit for itself
 *   filter FILTER                 filters its own system calls
 *   alone                         no new connections from here on
 *   go                            the conversation goes on
 *
 * FILTER is ACTION:CALL,CALL... (these are not allowed) or ACTION:only (nothing but what the conversation itself needs is); the
 * action is kill, trap or errno. At the end it says "done". It allocates nothing after the pause.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROUNDS = 200, BLOCKS = 40, LARGEST = 100000, NEW_CONNECTIONS = 3 };

/* The beginning of a message. */
struct header {
    uint32_t length;
    /* Seed of its bytes. */
    uint32_t seed;
    uint32_t kind;
};
enum kind { ROUND, PAUSE, MORE, ALONE, BLOCK, LAST };

static unsigned char message[LARGEST];

static void fail(const char *what)
{
    char text[200];
    int length = snprintf(text, sizeof text, "%s: %s\n", what, strerror(errno));
    if (write(STDERR_FILENO, text, length) < 0)
        _exit(3);
    _exit(1);
}

/* Without stdio, which allocates its buffers at their first use. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (write(STDOUT_FILENO, text, length) != length)
        _exit(3);
}

/* Filters */

static const struct {
    const char *name;
    int number;
} calls[] = {
    { "memfd_create", SYS_memfd_create }, { "eventfd2", SYS_eventfd2 }, { "socketpair", SYS_socketpair },
    { "sendmsg", SYS_sendmsg }, { "recvmsg", SYS_recvmsg }, { "epoll_create1", SYS_epoll_create1 },
    { "epoll_ctl", SYS_epoll_ctl }, { "pidfd_open", SYS_pidfd_open }, { "openat", SYS_openat }, { "mmap", SYS_mmap },
    { "futex", SYS_futex }, { "fcntl", SYS_fcntl }, { "ftruncate", SYS_ftruncate }, { "fallocate", SYS_fallocate },
    { "bind", SYS_bind }, { "getdents64", SYS_getdents64 }, { "kcmp", SYS_kcmp }, { "getsockopt", SYS_getsockopt },
    { "getrandom", SYS_getrandom }, { "clone", SYS_clone }, { "ppoll", SYS_ppoll }, { "ioctl", SYS_ioctl },
    { "unlinkat", SYS_unlinkat }, { "rt_sigprocmask", SYS_rt_sigprocmask }, { "sched_getcpu", SYS_getcpu },
    { "readlinkat", SYS_readlinkat }, { "newfstatat", SYS_newfstatat }, { "prlimit64", SYS_prlimit64 },
    { "sched_yield", SYS_sched_yield }, { "clock_gettime", SYS_clock_gettime },
};

/* All calls of the conversation after the pause, without new connections. */
static const int needed[] = {
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_sendto, SYS_recvfrom, SYS_poll, SYS_epoll_wait,
    SYS_shutdown, SYS_close, SYS_exit_group, SYS_restart_syscall, SYS_rt_sigreturn, SYS_brk,
};

static int number_of(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name))
            return calls[i].number;
    fprintf(stderr, "no system call %s is known here\n", name);
    exit(2);
}

static void filter(char *text)
{
    static struct sock_filter program[128];
    int at = 0;
    char *list = strchr(text, ':');
    if (!list)
        exit(2);
    *list++ = 0;
    unsigned refuse = !strcmp(text, "kill") ? SECCOMP_RET_KILL_PROCESS : !strcmp(text, "trap") ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | EPERM;
    int only = !strcmp(list, "only");
    program[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    if (only) {
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
            program[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, needed[i], 0, 1);
            program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        }
    } else {
        for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
            program[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number_of(name), 0, 1);
            program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refuse);
        }
    }
    program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, only ? refuse : SECCOMP_RET_ALLOW);
    struct sock_fprog whole = { at, program };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole))
        fail("prctl");
}

/* The requests during the pause */

static void limit(const char *resource, const char *value)
{
    static const struct {
        const char *name;
        int number;
    } known[] = { { "fsize", RLIMIT_FSIZE }, { "nofile", RLIMIT_NOFILE }, { "as", RLIMIT_AS }, { "data", RLIMIT_DATA },
                  { "memlock", RLIMIT_MEMLOCK }, { "stack", RLIMIT_STACK }, { "nproc", RLIMIT_NPROC } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, resource)) {
            rlim_t bytes = strtoull(value, NULL, 10);
            if (setrlimit(known[i].number, &(struct rlimit){ bytes, bytes }))
                fail(resource);
            return;
        }
    exit(2);
}

/* Returns whether new connections may follow. */
static int pause_here(void)
{
    char line[300];
    int more = 1;
    say("paused\n");
    for (;;) {
        size_t length = 0;
        do {
            if (length == sizeof line || read(STDIN_FILENO, line + length, 1) != 1)
                fail("standard input");
        } while (line[length++] != '\n');
        line[length - 1] = 0;
        if (!strcmp(line, "go"))
            return more;
        if (!strcmp(line, "alone"))
            more = 0;
        else if (!strncmp(line, "filter ", 7))
            filter(line + 7);
        else if (!strncmp(line, "limit ", 6)) {
            char *value = strchr(line + 6, ' ');
            if (!value)
                exit(2);
            *value++ = 0;
            limit(line + 6, value);
        } else
            exit(2);
    }
}

/* The conversation. Each end waits with poll, with an epoll set, or asleep in the call, in turns. */

struct connection {
    int fd;
    int set;
};

static unsigned turn;

static void wait_readable(const struct connection *connection)
{
    struct pollfd polled = { connection->fd, POLLIN, 0 };
    struct epoll_event event;
    int ready;
    do {
        switch (turn % 3) {
        case 0: ready = poll(&polled, 1, -1); break;
        case 1: ready = epoll_wait(connection->set, &event, 1, -1); break;
        default: ready = 1;
        }
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        fail("wait");
}

/* Splits into two parts, of which one may be empty. */
static void halve(struct iovec parts[2], void *at, size_t length)
{
    parts[0] = (struct iovec){ at, length / 2 };
    parts[1] = (struct iovec){ (char *)at + length / 2, length - length / 2 };
}

static void take(const struct connection *connection, void *to, size_t length)
{
    struct iovec parts[2];
    for (size_t at = 0; at < length;) {
        turn++;
        wait_readable(connection);
        halve(parts, (char *)to + at, length - at);
        ssize_t count = turn % 2 ? recv(connection->fd, (char *)to + at, length - at, 0) : readv(connection->fd, parts, 2);
        if (count == 0)
            errno = 0;
        if (count == 0 || (count < 0 && errno != EINTR))
            fail(count ? "receive" : "the stream ended early");
        at += count > 0 ? count : 0;
    }
}

static void give(const struct connection *connection, void *from, size_t length)
{
    struct iovec parts[2];
    for (size_t at = 0; at < length;) {
        halve(parts, (char *)from + at, length - at);
        ssize_t count = ++turn % 2 ? send(connection->fd, (char *)from + at, length - at, MSG_NOSIGNAL) : writev(connection->fd, parts, 2);
        if (count < 0 && errno != EINTR)
            fail("send");
        at += count > 0 ? count : 0;
    }
}

static unsigned char byte_at(uint32_t seed, uint32_t place)
{
    return ((seed * 2654435761u) ^ (place * 40503u + (place >> 8))) >> 11;
}

static void send_message(const struct connection *connection, enum kind kind, uint32_t length, uint32_t seed)
{
    struct header header = { length, seed, kind };
    for (uint32_t i = 0; i < length; i++)
        message[i] = byte_at(seed, i);
    give(connection, &header, sizeof header);
    give(connection, message, length);
}

static struct header receive_message(const struct connection *connection)
{
    struct header header;
    take(connection, &header, sizeof header);
    errno = 0;
    if (header.length > LARGEST || header.kind > LAST)
        fail("a wrong header");
    take(connection, message, header.length);
    errno = 0;
    for (uint32_t i = 0; i < header.length; i++)
        if (message[i] != byte_at(header.seed, i))
            fail("a wrong byte");
    return header;
}

static void expect(const struct connection *connection, enum kind kind, uint32_t length, uint32_t seed)
{
    struct header header = receive_message(connection);
    errno = 0;
    if (header.kind != kind || header.length != length || header.seed != seed)
        fail("another message than was expected");
}

static void stream_ends(const struct connection *connection)
{
    char byte;
    if (recv(connection->fd, &byte, 1, 0))
        fail("bytes, or an error, where the stream ends");
}

static void leave(const struct connection *connection)
{
    close(connection->fd);
    close(connection->set);
}

static struct connection watched(int fd)
{
    struct epoll_event event = { EPOLLIN, { .fd = fd } };
    struct connection connection = { fd, epoll_create1(EPOLL_CLOEXEC) };
    int on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) || connection.set < 0 || epoll_ctl(connection.set, EPOLL_CTL_ADD, fd, &event))
        fail("a connection");
    return connection;
}

static struct connection connected(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    return watched(fd);
}

/* The largest messages fill more than one segment, the smallest fit into a descriptor. */
static void ask(const struct connection *connection, uint32_t seed)
{
    static const uint32_t lengths[] = { 1, 64, 1000, 1016, 1017, 4096, 64, 20000, 200, 0, LARGEST };
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t length = lengths[round % (sizeof lengths / sizeof *lengths)];
        send_message(connection, ROUND, length, seed + round);
        expect(connection, ROUND, length, ~(seed + round));
    }
}

static void client(int port)
{
    struct connection first = connected(port);
    say("pid %d\n", getpid());
    ask(&first, 0);
    send_message(&first, PAUSE, 0, 0);
    int more = pause_here();
    more &= receive_message(&first).kind == MORE;
    ask(&first, 1000);
    send_message(&first, more ? MORE : ALONE, 0, 0);
    for (uint32_t i = 1; i <= NEW_CONNECTIONS && more; i++) {
        struct connection other = connected(port);
        ask(&other, 10000 * i);
        send_message(&other, LAST, 0, 0);
        stream_ends(&other);
        leave(&other);
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        send_message(&first, BLOCK, LARGEST, i);
    send_message(&first, LAST, 0, 0);
    if (shutdown(first.fd, SHUT_WR))
        fail("shutdown");
    expect(&first, LAST, 0, BLOCKS);
    stream_ends(&first);
    leave(&first);
}

/* Answers until the other end has asked for something else. */
static struct header serve(const struct connection *connection)
{
    for (;;) {
        struct header header = receive_message(connection);
        if (header.kind != ROUND)
            return header;
        send_message(connection, ROUND, header.length, ~header.seed);
    }
}

static void server(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 8) ||
        getsockname(listening, (struct sockaddr *)&address, &length))
        fail("listen");
    say("port %d pid %d\n", ntohs(address.sin_port), getpid());
    struct connection first = watched(accept4(listening, NULL, NULL, SOCK_CLOEXEC));
    serve(&first);
    int more = pause_here();
    send_message(&first, more ? MORE : ALONE, 0, 0);
    more = serve(&first).kind == MORE;
    for (int i = 0; i < NEW_CONNECTIONS && more; i++) {
        struct connection other = watched(accept4(listening, NULL, NULL, SOCK_CLOEXEC));
        serve(&other);
        leave(&other);
    }
    uint32_t blocks = 0;
    while (receive_message(&first).kind == BLOCK)
        blocks++;
    stream_ends(&first);
    send_message(&first, LAST, 0, blocks);
    leave(&first);
}

int main(int count, char **arguments)
{
    const char *role = count > 1 ? arguments[1] : "";
    if (!strcmp(role, "filter") && count > 3) {
        filter(arguments[2]);
        execvp(arguments[3], arguments + 3);
        fail(arguments[3]);
    }
    if (!strcmp(role, "server") && count == 2)
        server();
    else if (!strcmp(role, "client") && count == 3)
        client(atoi(arguments[2]));
    else
        return 2;
    say("done\n");
    return 0;
}
