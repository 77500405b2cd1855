/* A child in a time namespace whose clock differs from its parent's: earlier or later. */
#include "common.h"
#include <sched.h>

enum { TIMES = 100 };

/* Sets the clock of the next child. Returns false if that is not allowed. */
static int set_clock(long seconds)
{
    char text[64];
    int fd, length = snprintf(text, sizeof text, "monotonic %ld 0\n", seconds);
    if (unshare(CLONE_NEWTIME) != 0)
        return 0;
    fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, text, length) == length && close(fd) == 0);
    return 1;
}

/* Each receive waits for its timeout, and no longer. */
static void wait_in_vain(int fd)
{
    char byte;
    for (int at = 0; at < TIMES; at++)
        CHECK(recv(fd, &byte, 1, 0) == -1 && errno == EAGAIN);
}

int main(void)
{
    struct timeval little = {0, 1000};
    long uptime = milliseconds() / 1000;
    int a, b, status;
    pair(&a, &b);
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &little, sizeof little) == 0);
    wait_in_vain(b);
    for (int later = 0; later < 2; later++) {
        int own = set_clock(later ? 1000000 : -uptime / 2);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            CHECK(!own || (later ? milliseconds() > 1000000000 : milliseconds() / 1000 < uptime));
            wait_in_vain(b);
            warm_up(a, b);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        say(later ? "a later clock" : "an earlier clock", status);
    }
    warm_up(a, b);
    return 0;
}
