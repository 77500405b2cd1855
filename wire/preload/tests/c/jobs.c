/*
 * A job inherits a connection of few calls, and outlives the program that it was started by. Its word reaches the peer, however
 * much this process has sent and received meanwhile.
 */
#include "common.h"
#include <spawn.h>

extern char **environ;

enum way { BY_SYSTEM, BY_FORK, BY_VFORK, BY_SPAWN, AS_OUTPUT, WAYS };

/* Answers each `p`, and says how many came and what else. */
static void answer(int listener, int told)
{
    int fd = accept(listener, NULL, NULL), asked = 0, others = 0;
    char other[16] = "", c;
    while (read(fd, &c, 1) == 1) {
        if (c == 'p') {
            asked++;
            write_all(fd, "a", 1);
        } else if (others < 15) {
            other[others++] = c;
        }
    }
    dprintf(told, "%d questions and '%s'", asked, other);
    _exit(0);
}

static void ask(int fd, int times)
{
    char c;
    for (int i = 0; i < times; i++) {
        write_all(fd, "p", 1);
        read_all(fd, &c, 1);
    }
}

/* Starts a shell that leaves the job behind. */
static void start(enum way way, int fd, char *command)
{
    pid_t child;
    int status = 0;
    char *arguments[] = {"sh", "-c", command, NULL};
    if (way == BY_SYSTEM) {
        CHECK(system(command) == 0);
        return;
    }
    if (way == BY_SPAWN) {
        CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    } else if ((child = way == BY_VFORK ? vfork() : fork()) == 0) {
        if (way == AS_OUTPUT)
            dup2(fd, 1);
        execv("/bin/sh", arguments);
        _exit(9);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void inherit(enum way way, int before)
{
    struct sockaddr_in address;
    int told[2], go[2], done[2], fd = socket(AF_INET, SOCK_STREAM, 0);
    char command[128], text[64] = "", c;
    CHECK(fd >= 0 && pipe(go) == 0 && pipe(done) == 0 && pipe2(told, O_CLOEXEC) == 0);
    int listener = listener_on(&address);
    fflush(stdout);
    pid_t peer = fork();
    if (peer == 0) {
        close(fd);
        answer(listener, told[1]);
    }
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && close(listener) == 0 && close(told[1]) == 0);
    ask(fd, before);
    /* Shells take numbers of one digit. */
    CHECK(fd < 10 && go[0] < 10 && done[1] < 10);
    snprintf(command, sizeof command, "{ read word <&%d; echo job >&%d; echo done >&%d; } &", go[0], way == AS_OUTPUT ? 1 : fd,
             done[1]);
    start(way, fd, command);
    ask(fd, 100);
    write_all(go[1], "\n", 1);
    read_all(done[0], &c, 1);
    ask(fd, 100);
    close(fd), close(go[0]), close(go[1]), close(done[0]), close(done[1]);
    CHECK(read(told[0], text, sizeof text - 1) > 0 && waitpid(peer, NULL, 0) == peer);
    printf("way %d after %d: %s\n", way, before, text);
    close(told[0]);
}

int main(void)
{
    int a, b;
    /* One that nobody inherits comes to the ring. */
    pair(&a, &b);
    CHECK(fcntl(a, F_SETFD, FD_CLOEXEC) == 0 && fcntl(b, F_SETFD, FD_CLOEXEC) == 0);
    for (enum way way = 0; way < WAYS; way++)
        for (int before = 0; before < 4; before += 3)
            inherit(way, before);
    warm_up(a, b);
    check_on_ring(a);
    return 0;
}
