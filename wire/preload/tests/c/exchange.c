/* Two processes that exchange bytes: the child has connected, the parent accepts. */
#include "common.h"

enum { ROUNDS = 100, LARGE = 20000 };

static char bytes[LARGE];

static void ask(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = round % 2 ? LARGE : 64;
        memset(bytes, round, len);
        write_all(fd, bytes, len);
        memset(bytes, ~round, len);
        read_all(fd, bytes, len);
        for (size_t at = 0; at < len; at++)
            CHECK(bytes[at] == (char)round);
    }
    CHECK(close(fd) == 0);
}

int main(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(listener) == 0);
        ask(&address);
        exit(0);
    }
    send_back(listener);
    CHECK(waitpid(child, &status, 0) == child);
    say("the child's status", status);
    return 0;
}
