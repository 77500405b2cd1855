/* Two ends of which neither can see whether the other's process lives: each is in a namespace of process numbers of its own. */
#include "common.h"
#include <sched.h>

enum { BYTES = 12 << 20, PIECE = 1 << 20 };

/* Says its end, and takes what comes so slowly that the sender stands still again and again. */
static void receive_slowly(const struct sockaddr_in *address)
{
    static char piece[PIECE];
    unsigned long total = 0, sum = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    for (int i = 0; i < 32; i++) {
        char c = i;
        write_all(fd, &c, 1);
        read_all(fd, &c, 1);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    for (;;) {
        ssize_t n = recv(fd, piece, sizeof piece, MSG_WAITALL);
        CHECK(n >= 0);
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            sum = sum * 31 + (unsigned char)piece[i];
        total += n;
        CHECK(poll(NULL, 0, 150) == 0);
    }
    printf("received: %lu, %lx\n", total, sum);
    fflush(stdout);
}

int main(void)
{
    static char bytes[BYTES];
    struct sockaddr_in address;
    char c;
    int listener = listener_on(&address), fd, status;
    /* Where it is not allowed, they see each other. */
    if (unshare(CLONE_NEWPID) != 0)
        CHECK(errno == EPERM);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(listener) == 0);
        receive_slowly(&address);
        exit(0);
    }
    fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    for (int i = 0; i < 32; i++) {
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    say("its end", recv(fd, &c, 1, 0));
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i * 2654435761u >> 11;
    write_all(fd, bytes, sizeof bytes);
    CHECK(close(fd) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    say("the receiver", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
