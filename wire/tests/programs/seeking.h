/*
 * Code shared by the programs that seek. Each is started as
 *
 *   PROGRAM plain|accelerated SENDER [ARGUMENT...]
 *
 * with the command that starts sender.c, and runs its cases, each with a connection of its own. `accelerated`: both ends share
 * memory, which each case requires before it begins. Prints the name of each case that was right; ends at the first that is not.
 */
#ifndef SEEKING_H
#define SEEKING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <seekwire.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pattern.h"

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno));             \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* A call that fails with this error. */
#define FAILS(call, error) REQUIRE((call) == -1 && errno == (error))

struct sender {
    pid_t pid;
    FILE *commands, *answers;
};

static int accelerated;
static char **sender_command;

__attribute__((unused)) static void tell(struct sender *sender, const char *command)
{
    char answer[16];
    REQUIRE(fprintf(sender->commands, "%s\n", command) > 0 && fflush(sender->commands) == 0);
    REQUIRE(fgets(answer, sizeof answer, sender->answers) && strcmp(answer, "ok\n") == 0);
}

static struct sender start_sender(int port)
{
    struct sender sender;
    int commands[2], answers[2], count = 0;
    char text[8], *arguments[16];
    REQUIRE(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    while (sender_command[count] && count < 14) {
        arguments[count] = sender_command[count];
        count++;
    }
    snprintf(text, sizeof text, "%d", port);
    arguments[count] = text;
    arguments[count + 1] = NULL;
    REQUIRE((sender.pid = fork()) >= 0);
    if (sender.pid == 0) {
        dup2(commands[0], 0);
        dup2(answers[1], 1);
        execvp(arguments[0], arguments);
        _exit(127);
    }
    close(commands[0]);
    close(answers[1]);
    sender.commands = fdopen(commands[1], "w");
    sender.answers = fdopen(answers[0], "r");
    REQUIRE(sender.commands && sender.answers);
    return sender;
}

static int listener_of(int fd, int *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 1) == 0);
    REQUIRE(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Enough calls to come to the ring, if there is one. */
static void warm_up(int fd, struct sender *sender)
{
    REQUIRE(fprintf(sender->commands, "warm\n") > 0 && fflush(sender->commands) == 0);
    for (char c = 0; c < 64; c++) {
        char back;
        REQUIRE(send(fd, &c, 1, 0) == 1 && recv(fd, &back, 1, 0) == 1 && back == c);
    }
    char answer[16];
    REQUIRE(fgets(answer, sizeof answer, sender->answers) && strcmp(answer, "ok\n") == 0);
}

/* Position of the first byte of the pattern. */
#define FIRST 64

/* A connection to a sender. `buffer`: bytes of SO_RCVBUF, or 0 for what the kernel chooses. */
__attribute__((unused)) static int connected(struct sender *sender, int buffer)
{
    int port, listener = listener_of(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), &port);
    REQUIRE(buffer == 0 || setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
    *sender = start_sender(port);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    REQUIRE(fd >= 0 && close(listener) == 0);
    warm_up(fd, sender);
    struct seekwire_status status = { .size = sizeof status };
    REQUIRE(seekwire_status(fd, &status) == 0 && status.attached == (uint32_t)accelerated);
    return fd;
}

__attribute__((unused)) static void finish(int fd, struct sender *sender)
{
    int status;
    close(fd);
    fclose(sender->commands);
    fclose(sender->answers);
    REQUIRE(waitpid(sender->pid, &status, 0) == sender->pid);
}

static struct seekwire_extent extent(int fd)
{
    struct seekwire_extent st = { .size = sizeof st };
    REQUIRE(seekwire_avail(fd, &st, NULL, 0) == 0);
    return st;
}

/* Waits until so many bytes of the pattern have arrived, received ones included. */
__attribute__((unused)) static void await(int fd, uint64_t bytes)
{
    while (extent(fd).arrived < FIRST + bytes)
        sched_yield();
}

/* Whether these are the bytes of the pattern from `position` on. */
__attribute__((unused)) static int is_pattern(const void *bytes, size_t len, uint64_t position)
{
    for (size_t i = 0; i < len; i++)
        if (((const unsigned char *)bytes)[i] != pattern(position + i))
            return 0;
    return 1;
}

__attribute__((unused)) static size_t unread(int fd)
{
    int bytes = -1;
    REQUIRE(ioctl(fd, FIONREAD, &bytes) == 0 && bytes >= 0);
    return bytes;
}

struct test {
    const char *name;
    void (*run)(void);
};

/* Runs all cases, or those that SEEKING_ONLY names. */
static int run_cases(int argc, char **argv, const struct test *cases, size_t count)
{
    REQUIRE(argc > 2);
    accelerated = strcmp(argv[1], "accelerated") == 0;
    sender_command = argv + 2;
    alarm(120);
    for (size_t i = 0; i < count; i++) {
        const char *only = getenv("SEEKING_ONLY");
        if (only && !strstr(only, cases[i].name))
            continue;
        cases[i].run();
        printf("%s\n", cases[i].name);
        fflush(stdout);
    }
    return 0;
}

#define CASE(name) { #name, name }
#define RUN(...)                                                                                                       \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const struct test cases[] = { __VA_ARGS__ };                                                            \
        return run_cases(argc, argv, cases, sizeof cases / sizeof *cases);                                             \
    }

#endif
