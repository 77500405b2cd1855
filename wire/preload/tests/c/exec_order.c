/*
 * A program that was started with a connection sends on it, while earlier bytes of its parent are unread. Then the peer becomes
 * another program, which receives them in the order in which they were sent.
 */
#include "common.h"
#include <spawn.h>

enum method { FORK, SPAWN, METHODS };
static const char *const methods[METHODS] = {"fork", "posix_spawn"};

enum { FIRST = 3000, SECOND = 500 };
static char program[PATH_MAX];

static void give(struct sockaddr_in *address, enum method method, int loads, int reports)
{
    static char bytes[FIRST];
    char number[16], *argv[] = {program, "send", number, NULL}, *nothing[] = {NULL}, c;
    int fd = socket(AF_INET, SOCK_STREAM, 0), status;
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    warm_up_asking(fd);
    memset(bytes, '1', sizeof bytes);
    write_all(fd, bytes, sizeof bytes);
    sprintf(number, "%d", fd);
    pid_t child = -1;
    if (method == SPAWN) {
        CHECK(posix_spawn(&child, program, NULL, NULL, argv, loads ? environ : nothing) == 0);
    } else if ((child = fork()) == 0) {
        execve(program, argv, loads ? environ : nothing);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    write_all(reports, "s", 1);
    /* It continues to use the connection. */
    CHECK(read(fd, &c, 1) == 1 && c == 'k');
    write_all(fd, "3", 1);
    exit(0);
}

static int send_some(int fd)
{
    char bytes[SECOND];
    memset(bytes, '2', sizeof bytes);
    write_all(fd, bytes, sizeof bytes);
    return 0;
}

static int receive_all(int fd)
{
    char bytes[FIRST + SECOND], c = 'k';
    read_all(fd, bytes, sizeof bytes);
    for (int at = 0; at < FIRST + SECOND; at++)
        CHECK(bytes[at] == (at < FIRST ? '1' : '2'));
    printf("all in order\n");
    write_all(fd, &c, 1);
    read_all(fd, &c, 1);
    CHECK(c == '3' && read(fd, &c, 1) == 0);
    return 0;
}

static void receive(enum method method, int loads)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), reports[2];
    char number[16], *argv[] = {program, "receive", number, NULL}, *nothing[] = {NULL}, c;
    CHECK(pipe2(reports, O_CLOEXEC) == 0);
    if (fork() == 0)
        give(&address, method, loads, reports[1]);
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    warm_up_answering(fd);
    check_on_ring(fd);
    CHECK(read(reports[0], &c, 1) == 1);
    sprintf(number, "%d", fd);
    execve(program, argv, nothing);
    _exit(9);
}

int main(int argc, char **argv)
{
    int status;
    if (argc > 1)
        return (strcmp(argv[1], "send") ? receive_all : send_some)(atoi(argv[2]));
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    for (enum method method = 0; method < METHODS; method++)
        for (int loads = 0; loads < 2; loads++) {
            printf("%s, %s\n", methods[method], loads ? "loads" : "does not load");
            fflush(stdout);
            pid_t child = fork();
            if (child == 0)
                receive(method, loads);
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        }
    return 0;
}
