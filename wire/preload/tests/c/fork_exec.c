/*
 * A forked child becomes another program, which does not get its parent's connections, or closes them: they end as if the child
 * did not exist.
 */
#include "common.h"

enum { UNREAD = 5000 };

static char program[PATH_MAX];

/* The child's state, and the pipes to and from it. */
struct child {
    pid_t pid;
    int from, to;
};

static void notify(int fd)
{
    write_all(fd, "x", 1);
}

static void await(int fd)
{
    char c;
    read_all(fd, &c, 1);
}

/* The new program: closes or keeps what it was given, until it is asked to end. */
static int successor(char **argv)
{
    char c;
    if (atoi(argv[4]) >= 0)
        CHECK(close(atoi(argv[4])) == 0);
    notify(atoi(argv[2]));
    CHECK(read(atoi(argv[3]), &c, 1) == 0);
    return 0;
}

/* The child becomes another program; `loads`: one that also loads the library, if there is one. */
static void begin_child(struct child *child, int loads, int closes)
{
    int there[2], back[2];
    char from[16], to[16], fd[16], *nothing[] = {NULL};
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    CHECK(fcntl(there[1], F_SETFD, FD_CLOEXEC) == 0 && fcntl(back[0], F_SETFD, FD_CLOEXEC) == 0);
    sprintf(from, "%d", there[0]), sprintf(to, "%d", back[1]), sprintf(fd, "%d", closes);
    char *argv[] = {program, "successor", to, from, fd, NULL};
    fflush(stdout);
    child->pid = fork();
    if (child->pid == 0) {
        execve(program, argv, loads ? environ : nothing);
        _exit(9);
    }
    CHECK(close(there[0]) == 0 && close(back[1]) == 0);
    child->from = back[0], child->to = there[1];
    await(child->from);
}

static void end_child(struct child *child)
{
    int status;
    CHECK(close(child->to) == 0 && close(child->from) == 0);
    CHECK(waitpid(child->pid, &status, 0) == child->pid && status == 0);
}

/* How a connection with unread bytes ends. */
static void end_of(int fd)
{
    char c;
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, -1) == 1);
    say("end", recv(fd, &c, 1, 0));
}

static void close_unread(int loads, int inherits, int early)
{
    static char bytes[UNREAD];
    struct child child;
    int a, b;
    pair(&a, &b);
    CHECK(fcntl(a, F_SETFD, FD_CLOEXEC) == 0 && fcntl(b, F_SETFD, inherits ? 0 : FD_CLOEXEC) == 0);
    printf("%s, %s, %s\n", loads ? "loads" : "does not load", inherits ? "closes it" : "has none",
           early ? "unread before" : "unread since");
    if (early)
        write_all(a, bytes, sizeof bytes);
    begin_child(&child, loads, inherits ? b : -1);
    if (!early)
        write_all(a, bytes, sizeof bytes);
    /* All bytes have arrived. */
    CHECK(recv(b, bytes, sizeof bytes, MSG_PEEK | MSG_WAITALL) == sizeof bytes);
    CHECK(close(b) == 0);
    end_of(a);
    CHECK(close(a) == 0);
    end_child(&child);
}

/* A child that fails to become another program still holds the connection. */
static void fail_to_become(void)
{
    char byte, *argv[] = {"nothing", NULL};
    int a, b, reports[2], go[2], status;
    pair(&a, &b);
    CHECK(fcntl(a, F_SETFD, FD_CLOEXEC) == 0 && fcntl(b, F_SETFD, FD_CLOEXEC) == 0);
    CHECK(pipe(reports) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(a) == 0 && close(go[1]) == 0);
        say("execv", execv("/nonexistent/nothing", argv));
        notify(reports[1]);
        CHECK(read(go[0], &byte, 1) == 0);
        read_all(b, &byte, 1);
        write_all(b, &byte, 1);
        exit(0);
    }
    await(reports[0]);
    write_all(a, "x", 1);
    CHECK(close(b) == 0 && close(go[0]) == 0 && close(go[1]) == 0);
    read_all(a, &byte, 1);
    printf("answered: %c\n", byte);
    end_of(a);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(a) == 0 && close(reports[0]) == 0 && close(reports[1]) == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return successor(argv);
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    for (int which = 0; which < 8; which++)
        close_unread(which & 1, which & 2, which & 4);
    fail_to_become();
    return 0;
}
