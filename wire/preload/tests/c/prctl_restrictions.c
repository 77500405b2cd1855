/* prctl_restrictions clock | calls: during a conversation a program forbids itself to read the clock, or to make system calls from
   elsewhere than the C library. */
#include "common.h"
#include <sys/prctl.h>

#ifndef PR_SET_TSC
#define PR_SET_TSC 26
#endif
enum { ROUNDS = 100, CLOCK_ENDS_IT = 2, DISPATCH = 59, ON = 1 };

static char refuses = 1;

/* Allows calls from the C library. */
static void forbid_others_calls(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long first = -1ul, end = 0, from, to;
    char line[1000];
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        if (!strstr(line, "/libc.so") && !strstr(line, "/libc-"))
            continue;
        CHECK(sscanf(line, "%lx-%lx", &from, &to) == 2);
        first = from < first ? from : first;
        end = to > end ? to : end;
    }
    CHECK(fclose(maps) == 0 && end);
    CHECK(prctl(DISPATCH, ON, first, end - first, &refuses) == 0);
}

static void ask(int fd)
{
    char bytes[64] = "";
    for (int round = 0; round < ROUNDS; round++) {
        write_all(fd, bytes, sizeof bytes);
        read_all(fd, bytes, sizeof bytes);
    }
}

int main(int count, char **arguments)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), status;
    CHECK(count == 2);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        send_back(listener);
        exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    ask(fd);
    if (!strcmp(arguments[1], "calls"))
        forbid_others_calls();
    else
        CHECK(prctl(PR_SET_TSC, CLOCK_ENDS_IT) == 0);
    ask(fd);
    CHECK(close(fd) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    say("the child's status", status);
    _exit(0);
}
