/* Two real-time processes that are killed if they never sleep: a receive from a socket sleeps. */
#include "common.h"
#include <sched.h>
#include <sys/resource.h>

enum { MOST = 100000 /* microseconds */, ROUNDS = 5000 };

static void ask(const struct sockaddr_in *address)
{
    char bytes[64] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        write_all(fd, bytes, sizeof bytes);
        read_all(fd, bytes, sizeof bytes);
    }
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    /* An answer may arrive before a receive sleeps. A spinning receiver would sleep in none. */
    say("it slept in one of a hundred receives", usage.ru_nvcsw >= ROUNDS / 100);
    CHECK(close(fd) == 0);
}

int main(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), status;
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 })) {
        say("this needs CAP_SYS_NICE", 0);
        return 77;
    }
    CHECK(setrlimit(RLIMIT_RTTIME, &(struct rlimit){ MOST, MOST }) == 0);
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
