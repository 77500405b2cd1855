/*
 * A signal handler makes the very calls that it interrupted, or waits for a program that inherits the connection. It is certain
 * to run during the calls because the buffer is inaccessible before: the copy itself raises the signal.
 */
#include "common.h"
#include <spawn.h>
#include <sys/mman.h>

extern char **environ;

static int a, b, c, d, set, says_no;
static char *page;
static void (*in_the_handler)(void);

static void expect_again(ssize_t result)
{
    says_no += result == -1 && errno == EAGAIN;
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    char *at = info->si_addr;
    CHECK(page <= at && at < page + 4096);
    in_the_handler();
    CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

static void during_send(void)
{
    char c = 'x';
    expect_again(send(a, &c, 1, 0));
    expect_again(send(a, &c, 1, MSG_DONTWAIT));
    expect_again(write(a, &c, 1));
    /* The other half is free. */
    CHECK(recv(a, &c, 1, 0) == 1 && c == 'r');
    expect_again(recv(a, &c, 1, MSG_DONTWAIT));
}

static void during_recv(void)
{
    char c = 'x';
    struct pollfd readable = {.fd = b, .events = POLLIN};
    expect_again(recv(b, &c, 1, 0));
    expect_again(recv(b, &c, 1, MSG_PEEK));
    expect_again(read(b, &c, 1));
    CHECK(poll(&readable, 1, 0) >= 0);
    CHECK(send(b, &c, 1, 0) == 1);
}

static void during_the_last_send(void)
{
    CHECK(shutdown(a, SHUT_WR) == 0);
}

static void protect(void (*handler)(void))
{
    in_the_handler = handler;
    says_no = 0;
    CHECK(mprotect(page, 4096, PROT_NONE) == 0);
}

static void during_wait(void)
{
    struct pollfd entry = {.fd = b, .events = POLLIN | POLLOUT};
    struct epoll_event event = {EPOLLIN, {.fd = b}};
    expect_again(epoll_ctl(set, EPOLL_CTL_MOD, b, &event));
    expect_again(epoll_wait(set, &event, 1, -1));
    CHECK(shutdown(b, SHUT_WR) == 0);
    CHECK(poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN));
    CHECK(close(d) == 0);
}

/* During a wait on a set, one of its connections is shut down, and another one closed. The set itself is not to be had. */
static void in_the_midst_of_a_wait(void)
{
    struct epoll_event event = {EPOLLIN | EPOLLRDHUP, {0}};
    char buf[8];
    set = epoll_create1(0);
    pair(&a, &b);
    pair(&c, &d);
    event.data.fd = b;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    event.data.fd = d;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, d, &event) == 0);
    struct epoll_event *events = (struct epoll_event *)page;
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    write_all(a, "x", 1);
    protect(during_wait);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.fd == b && says_no == 2);
    CHECK(read(a, buf, 1) == 0 && read(c, buf, 1) == 0);

    /* The set continues, also for the new file at the number. */
    read_all(b, buf, 1);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    close(c);
    pair(&c, &d);
    event.data.fd = d;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, d, &event) == 0);
    write_all(c, "y", 1);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.fd == d);
    read_all(d, buf, 1);
    write_all(a, "z", 1);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.fd == b);
    CHECK(close(set) == 0 && close(b) == 0 && close(c) == 0);
}

enum method { FORK, UNLOADED, CLOSED, SPAWN, METHODS };

static enum method method;
static int fd;
static char program[PATH_MAX];

/* The program that inherits the connection gets an error, because the next bytes are unknown; it may not wait. */
static int successor(const char *number)
{
    char byte;
    return read(atoi(number), &byte, 1) == -1 && errno == (method == CLOSED ? EBADF : ENOTCONN) ? 0 : 3;
}

static void wait_for_a_program(void)
{
    char number[16], which[16];
    char *argv[] = {program, number, which, NULL}, *nothing[] = {NULL};
    int status;
    pid_t child;
    snprintf(number, sizeof number, "%d", fd);
    snprintf(which, sizeof which, "%d", method);
    CHECK(fcntl(fd, F_SETFD, method == CLOSED ? FD_CLOEXEC : 0) == 0);
    if (method == SPAWN) {
        argv[1] = NULL;
        CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
    } else if ((child = fork()) == 0) {
        execve(program, argv, method == UNLOADED ? nothing : environ);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

/* The interrupted call and its peer lose no bytes. */
static void wait_in_the_midst(int sends)
{
    char buf[3004];
    for (method = 0; method < METHODS; method++) {
        pair(&a, &b);
        fd = sends ? a : b;
        CHECK(fcntl(sends ? b : a, F_SETFD, FD_CLOEXEC) == 0);
        memset(buf, 'q', sizeof buf);
        memset(page, 'q', 3000);
        if (sends) {
            protect(wait_for_a_program);
            CHECK(send(a, page, 3000, 0) == 3000);
            write_all(a, "next", 4);
            read_all(b, buf, 3000);
        } else {
            write_all(a, buf, 3000);
            write_all(a, "next", 4);
            protect(wait_for_a_program);
            CHECK(recv(b, page, 3000, MSG_WAITALL) == 3000);
        }
        CHECK(memcmp(page, buf, 3000) == 0);
        read_all(b, buf, 4);
        CHECK(memcmp(buf, "next", 4) == 0);
        write_all(b, "back", 4);
        read_all(a, buf, 4);
        CHECK(close(a) == 0 && read(b, buf, 1) == 0 && close(b) == 0);
    }
}

int main(int argc, char **argv)
{
    char buf[3000];
    if (argc > 1) {
        method = atoi(argv[2]);
        return successor(argv[1]);
    }
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    pair(&a, &b);

    for (size_t len = 300; len <= 3000; len *= 10) {
        write_all(b, "r", 1);
        protect(during_send);
        CHECK(send(a, page, len, 0) == (ssize_t)len && says_no == 4);
        read_all(b, buf, len);

        memset(buf, 'q', len);
        write_all(a, buf, len);
        protect(during_recv);
        CHECK(recv(b, page, len, MSG_WAITALL) == (ssize_t)len && says_no == 3 && memcmp(page, buf, len) == 0);
        read_all(a, buf, 1);
    }

    protect(during_the_last_send);
    CHECK(send(a, page, 300, 0) == 300);
    CHECK(send(a, buf, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    read_all(b, buf, 300);
    CHECK(recv(b, buf, 1, 0) == 0);
    write_all(b, "back", 4);
    read_all(a, buf, 4);
    in_the_midst_of_a_wait();
    wait_in_the_midst(0);
    wait_in_the_midst(1);
    return 0;
}
