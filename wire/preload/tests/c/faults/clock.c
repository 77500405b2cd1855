/* Processes with their own clocks: time namespaces, each of which has its own CLOCK_MONOTONIC. */
#include "faults.h"

#include <fcntl.h>
#include <sched.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* The namespaces between which the clock jumps. */
static int spaces[2];

/* From now on the children of this process have another clock, and so has this process after an exec. */
void other_clock(uint64_t *random)
{
    char text[64];
    int fd, backward = roll(random, 2);
    long seconds = 1 + roll(random, 100000);
    if (unshare(CLONE_NEWTIME) != 0 || (fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)) < 0)
        return;
    /* No clock goes back past its start. */
    do {
        int length = sprintf(text, "monotonic %s%ld 0\n", backward ? "-" : "", seconds);
        if (write(fd, text, length) == length)
            break;
        seconds /= 2;
    } while (seconds > 0);
    close(fd);
}

int clocks_differ(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(unshare(CLONE_NEWTIME) != 0);
    return waitpid(child, &status, 0) == child && status == 0;
}

static void jump(int signal)
{
    static int where;
    int error = errno;
    (void)signal;
    setns(spaces[where ^= 1], CLONE_NEWTIME);
    errno = error;
}

/* From now on SIGUSR1 makes the clock of this process, which has a single thread, jump. */
void let_clock_jump(void)
{
    char path[64];
    sprintf(path, "/proc/%d/ns/time", getppid());
    spaces[0] = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC);
    spaces[1] = open(path, O_RDONLY | O_CLOEXEC);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump, .sa_flags = SA_RESTART}, NULL);
}
