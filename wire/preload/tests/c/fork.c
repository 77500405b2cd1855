/* Processes that share a connection. */
#include "common.h"

#include <sys/syscall.h>

#define LINES 500

extern pid_t _Fork(void);

enum way { LIBC, WITHOUT_HANDLERS, FORK, CLONE, CLONE3, WAYS };
static enum way way;

static pid_t fork_by_way(void)
{
    unsigned long long words[11] = {[4] = SIGCHLD};
    switch (way) {
    case WITHOUT_HANDLERS:
        return _Fork();
#ifdef SYS_fork
    case FORK:
        return syscall(SYS_fork);
#endif
    case CLONE:
        return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    case CLONE3:
        return syscall(SYS_clone3, words, sizeof words);
    default:
        return fork();
    }
}

/* Whole lines of both processes arrive, in order for each process. */
static void count_lines(int fd)
{
    char line[16];
    int next[2] = {0, 0};
    for (int i = 0; i < 2 * LINES; i++) {
        read_all(fd, line, 8);
        line[8] = 0;
        int who = line[0] == 'c', number = atoi(line + 1);
        CHECK(number == next[who]++);
    }
    printf("lines: %d %d\n", next[0], next[1]);
}

static void say_lines(int fd, char who)
{
    char line[16];
    for (int i = 0; i < LINES; i++) {
        snprintf(line, sizeof line, "%c%06d\n", who, i);
        write_all(fd, line, 8);
    }
}

static void *counter(void *argument)
{
    count_lines(*(int *)argument);
    return NULL;
}

static void await(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void both_write(void)
{
    int a, b;
    pthread_t thread;
    pair(&a, &b);
    fflush(stdout);
    pid_t child = fork_by_way();
    if (child == 0) {
        close(b);
        say_lines(a, 'c');
        exit(0);
    }
    CHECK(pthread_create(&thread, NULL, counter, &b) == 0);
    say_lines(a, 'p');
    pthread_join(thread, NULL);
    await(child);
    write_all(a, "x", 1);
    drain(b, 1);
    say("still open", recv(b, &(char){0}, 1, MSG_DONTWAIT));
    close(a);
    say("closed", read(b, &(char){0}, 1));
    close(b);
}

/* The parent passes its connection on to the child, as servers do. */
static void handed_over(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    pid_t child = fork_by_way();
    if (child == 0) {
        close(a);
        for (int i = 0; i < 100; i++) {
            read_all(b, buf, 4);
            write_all(b, buf, 4);
        }
        exit(7);
    }
    close(b);
    for (int i = 0; i < 100; i++) {
        write_all(a, "ping", 4);
        read_all(a, buf, 4);
    }
    say("the child ends", read(a, buf, 1));
    await(child);
    close(a);
}

/* The child inherits an epoll set and closes everything, which must not affect the parent. */
static void closed_by_child(void)
{
    int a, b, set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    pair(&a, &b);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
    pid_t child = fork_by_way();
    if (child == 0) {
        close(b), close(a), close(set);
        exit(0);
    }
    await(child);
    struct later later;
    do_later(&later, write_byte, &a);
    say("woken", epoll_wait(set, &event, 1, -1));
    pthread_join(later.thread, NULL);
    drain(b, 1);
    child = vfork();
    if (child == 0) {
        close(a), close(b);
        _exit(3);
    }
    await(child);
    write_all(a, "x", 1);
    say("after vfork", read(b, &(char){0}, 1));
    close(a), close(b), close(set);
}

/* Client and server are two processes from the beginning. */
static void two_processes(void)
{
    struct sockaddr_in address;
    int fd = listener_on(&address);
    static char buf[1 << 20];
    fflush(stdout);
    pid_t child = fork_by_way();
    if (child == 0) {
        int a = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        for (int i = 0; i < 200; i++) {
            write_all(a, "ping", 4);
            read_all(a, buf, 4);
        }
        for (int i = 0; i < 8; i++) {
            memset(buf, i, sizeof buf);
            write_all(a, buf, sizeof buf);
        }
        shutdown(a, SHUT_WR);
        CHECK(read(a, buf, 1) == 0);
        exit(0);
    }
    int b = accept(fd, NULL, NULL);
    for (int i = 0; i < 200; i++) {
        read_all(b, buf, 4);
        write_all(b, buf, 4);
    }
    for (int i = 0; i < 8; i++) {
        read_all(b, buf, sizeof buf);
        for (size_t j = 0; j < sizeof buf; j++)
            CHECK(buf[j] == i);
    }
    say("the end", read(b, buf, 1));
    close(b), close(fd);
    await(child);
}

/* What the child has taken is gone, and what it has not is there. */
static void unread_by_child(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    write_all(a, "first and last", 14);
    fflush(stdout);
    pid_t child = fork_by_way();
    if (child == 0) {
        read_all(b, buf, 6);
        exit(memcmp(buf, "first ", 6) != 0);
    }
    await(child);
    read_all(b, buf, 8);
    printf("%.8s\n", buf);
    close(a), close(b);
}

int main(void)
{
    for (way = LIBC; way < WAYS; way++) {
        two_processes();
        both_write();
        handed_over();
        unread_by_child();
        closed_by_child();
    }
    return 0;
}
