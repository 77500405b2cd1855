/*
 * The connection ends when its last holder has closed it, and not before: a relay's program has holders beside it, which may
 * have been forked after the relay began.
 */
#include "common.h"
#include <spawn.h>

extern char **environ;

enum { UNREAD = 1000 };

/* Forks a holder of the accepted end, which has bytes unread when it is told to go on. Returns the peer's end. */
static int hold(int turn[2], pid_t *holder, int *fd)
{
    static char bytes[UNREAD];
    struct sockaddr_in address;
    char c;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, turn) == 0);
    int listener = listener_on(&address);
    fflush(stdout);
    *holder = fork();
    CHECK(*holder >= 0);
    if (*holder == 0) {
        *fd = accept(listener, NULL, NULL);
        CHECK(close(listener) == 0 && close(turn[1]) == 0);
        warm_up_answering(*fd);
        read_all(turn[0], &c, 1);
        return -1;
    }
    int peer = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(peer, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0 && close(turn[0]) == 0);
    warm_up_asking(peer);
    write_all(peer, bytes, sizeof bytes);
    write_all(turn[1], "s", 1);
    return peer;
}

/* Starts a program with the socket as its standard input, and then a holder that goes on with it: a child or a program. */
static void later(int is_program, int reads)
{
    int turn[2], fd;
    pid_t holder, started;
    char c, word[6] = "", number[2][12];
    int peer = hold(turn, &holder, &fd);
    if (peer < 0) {
        posix_spawn_file_actions_t actions;
        char *reading[] = {"sh", "-c", "head -c 1000 >/dev/null", NULL}, *other[] = {"true", NULL};
        CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
        CHECK(posix_spawnp(&started, reads ? "sh" : "true", &actions, NULL, reads ? reading : other, environ) == 0);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && waitpid(started, NULL, 0) == started);
        CHECK(!is_program || fcntl(fd, F_SETFD, 0) == 0);
        snprintf(number[0], sizeof number[0], "%d", fd);
        snprintf(number[1], sizeof number[1], "%d", turn[0]);
        if (fork() == 0) {
            if (is_program)
                execl("/proc/self/exe", "last_holder", number[0], number[1], NULL);
            read_all(turn[0], &c, 1);
            write_all(fd, "hello", 5);
        }
        _exit(0);
    }
    CHECK(waitpid(holder, NULL, 0) == holder);
    /* A relay may end it now, if it ends it too early. */
    struct pollfd early = {peer, POLLIN, 0};
    CHECK(poll(&early, 1, 200) == 0);
    write_all(turn[1], "g", 1);
    ssize_t n = recv(peer, word, 5, MSG_WAITALL);
    printf("program %d, reads %d: %zd, %s\n", is_program, reads, n, word);
    close(peer), close(turn[1]);
}

/* A shell inherits the socket with the unread bytes, and gives it to a program that reads a part of them or none. */
static void inherited(const char *command)
{
    int turn[2], fd;
    pid_t holder;
    int peer = hold(turn, &holder, &fd);
    if (peer < 0) {
        CHECK(dup2(fd, 9) == 9 && close(fd) == 0);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(9);
    }
    CHECK(waitpid(holder, NULL, 0) == holder);
    char rest[64];
    ssize_t n, total = 0;
    while ((n = recv(peer, rest, sizeof rest, 0)) > 0)
        total += n;
    /* In order or with a reset: a program that ends before it has received what it inherited does not reset it. */
    printf("%s: %zd and then no more\n", command, total);
    close(peer), close(turn[1]);
}

int main(int argc, char **argv)
{
    char c;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        read_all(atoi(argv[2]), &c, 1);
        write_all(atoi(argv[1]), "hello", 5);
        return 0;
    }
    for (int is_program = 0; is_program < 2; is_program++)
        for (int reads = 0; reads < 2; reads++)
            later(is_program, reads);
    inherited("true <&9");
    inherited("head -c 10 <&9 >/dev/null");
    return 0;
}
