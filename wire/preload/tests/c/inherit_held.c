/* A program inherits a socket while the sender holds back the beginning of a message. */
#include "common.h"

/* Prints all that standard input has. */
static int rest(void)
{
    char bytes[64];
    ssize_t n;
    size_t len = 0;
    while ((n = read(0, bytes + len, sizeof bytes - 1 - len)) > 0)
        len += n;
    CHECK(n == 0);
    bytes[len] = 0;
    printf("the program has: %s\n", bytes);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return rest();
    for (int unread = 0; unread < 2; unread++) {
        int a, b, started[2], may_begin[2];
        char c;
        pair(&a, &b);
        /* The program does not get this one. */
        CHECK(fcntl(a, F_SETFD, FD_CLOEXEC) == 0);
        CHECK(pipe2(started, O_CLOEXEC) == 0 && pipe(may_begin) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(a);
            read_all(may_begin[0], &c, 1);
            CHECK(dup2(b, 0) == 0 && close(b) == 0);
            execl("/proc/self/exe", argv[0], "rest", NULL);
            _exit(1);
        }
        CHECK(child > 0 && close(b) == 0 && close(started[1]) == 0);
        if (unread)
            write_all(a, "unread ", 7);
        CHECK(send(a, "head ", 5, MSG_MORE) == 5);
        write_all(may_begin[1], "g", 1);
        /* Its end is closed by the exec. */
        CHECK(read(started[0], &c, 1) == 0);
        write_all(a, "body", 4);
        close(a), close(started[0]), close(may_begin[0]), close(may_begin[1]);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    return 0;
}
