/* Rounds of conversations, seen from outside: starts them, judges them, and counts what they leave behind. */
#include "faults.h"

#include <fcntl.h>
#include <sys/prctl.h>

pid_t start(int which, int number, int rounds, int traced)
{
    char text[4][20];
    sprintf(text[0], "%d", which), sprintf(text[1], "%d", number), sprintf(text[2], "%d", rounds);
    if (which == 1)
        shared->port = 0;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (library != NULL && !(shared->alone && which != shared->victim))
            setenv("LD_PRELOAD", library, 1);
        setenv("SEEKWIRE_DIR", directory, 1);
        sprintf(text[3], "%lu", 1 + shared->seed % 6);
        setenv("SEEKWIRE_THRESHOLD", traced ? "2" : text[3], 1);
        if (traced)
            setenv("SEEKWIRE_SPIN_US", "0", 1);
        if (shared->fault == GROUP && which == shared->victim)
            join_group();
        if (shared->fault == CLOCK && which == shared->victim) {
            uint64_t random = shared->seed;
            other_clock(&random);
        }
        if (traced && raw(SYS_ptrace, 0 /* PTRACE_TRACEME */, 0, 0) < 0)
            _exit(99);
        execl(self, "faults", "end", text[0], text[1], text[2], NULL);
        perror(self);
        _exit(98);
    }
    setpgid(child, child);
    while (which == 1 && !traced && shared->port == 0) {
        siginfo_t ended = {0};
        if (waitid(P_PID, child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child) {
            printf("FAILED: the end that accepts ended with status %d before it listened\n", ended.si_status);
            exit(1);
        }
        nap(100);
    }
    return child;
}

int failures, most_late, resets, ends, moments;
uint64_t bytes;
static int base_descriptors, base_mappings;

void put_round(int victim, uint64_t seed)
{
    memset(shared->flow, 0, sizeof shared->flow);
    memset(shared->complaint, 0, sizeof shared->complaint);
    shared->victim = victim;
    shared->seed = seed;
}

/* Checks the result of a round. `killed`: the victim was killed. */
void judge(const char *what, int killed)
{
    int victim = shared->victim, other = 1 - victim;
    for (int at = 0; at < shared->connections; at++) {
        struct flow *dead = &shared->flow[victim][at], *left = &shared->flow[other][at];
        bytes += dead->received + left->received;
        if (left->received > dead->sending)
            complain(other, "connection %d: %lu bytes came of %lu", at, (uint64_t)left->received, (uint64_t)dead->sending);
        if (killed && left->outcome != NOTHING) {
            int one_way = shared->total[other][at] == 0;
            if ((one_way || shared->style[at] == TURN_BY_TURN) && left->received < dead->sent)
                complain(other, "connection %d: %lu bytes came, and %lu were sent", at, (uint64_t)left->received, (uint64_t)dead->sent);
            /* Connections that were not accepted yet are reset. */
            if (one_way && left->outcome == RESET && shared->connected[victim] == shared->round)
                complain(other, "connection %d: reset, and nothing was unread", at);
            if (left->late > most_late)
                most_late = left->late;
            if (left->late > LATE)
                complain(other, "connection %d: %d sends to the dead succeeded", at, left->late);
            resets += left->outcome == RESET;
            ends += left->outcome == ENDED;
        }
    }
    for (int who = 0; who < 2; who++)
        if (shared->complaint[who][0] != 0) {
            printf("FAILED: %s, victim %s, the %s: %s\n", what, victim ? "accepts" : "connects",
                   who == victim ? "victim" : "other end", shared->complaint[who]);
            failures++;
        }
}

/* Waits until the other end has finished its round. Returns false if it hangs. */
int await_other(const char *what, int other, int number, pid_t pid)
{
    for (int looks = 0; shared->done[other] != number; looks++) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid) {
            printf("FAILED: %s: the other end ended with status %#x\n", what, status);
            failures++;
            return 0;
        }
        if (looks > HANG_SECONDS * 1000) {
            printf("FAILED: %s, victim %s: the other end (%d) hangs\n", what, shared->victim ? "accepts" : "connects", pid);
            if (getenv("FAULTS_KEEP") != NULL)
                pause();
            failures++;
            return 0;
        }
        nap(1000);
    }
    return 1;
}

void finish(pid_t pid)
{
    shared->round = -1;
    for (int looks = 0; looks < 1000; looks++) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        nap(1000);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A process keeps a few files open once it has needed them; files kept anew in each round are a leak. */
void count_left(const char *what, int other, int round)
{
    enum { ONCE = 6 };
    if (round == 1)
        base_descriptors = shared->descriptors[other], base_mappings = shared->mappings[other];
    if (shared->descriptors[other] > base_descriptors + ONCE || shared->mappings[other] > base_mappings) {
        printf("FAILED: %s: %d descriptors, %d before; %d mappings, %d before\n", what, shared->descriptors[other], base_descriptors,
               shared->mappings[other], base_mappings);
        base_descriptors = shared->descriptors[other], base_mappings = shared->mappings[other];
        failures++;
    }
}

/* Slots of the registry in use (wire/endpoint/src/registry.rs), and sockets beside it. */
static void count_registry(int *slots, int *sockets)
{
    enum { HEADER = 4096, SLOT = 256 };
    char path[PATH_MAX];
    uint64_t state;
    snprintf(path, sizeof path, "%s/registry-2", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *slots = 0;
    for (off_t at = HEADER; fd >= 0 && pread(fd, &state, sizeof state, at) == sizeof state; at += SLOT)
        *slots += state != 0;
    close(fd);
    *sockets = count_files(directory, ".sock");
}

/* Lets two more processes talk undisturbed; then nothing is left of earlier ones. */
void clear_up(const char *what)
{
    int slots, sockets;
    pid_t ends[2];
    put_round(2, 0);
    shared->round = 0;
    shared->connections = 1, shared->forks[0] = shared->forks[1] = 0, shared->style[0] = TURN_BY_TURN;
    shared->total[0][0] = shared->total[1][0] = TURNS * 100;
    shared->connected[0] = shared->connected[1] = shared->done[0] = shared->done[1] = 0;
    for (int which = 1; which >= 0; which--)
        ends[which] = start(which, 1, 1, 0);
    shared->round = 1;
    for (int which = 1; which >= 0; which--) {
        await_other(what, which, 1, 0);
        finish(ends[which]);
        if (shared->complaint[which][0] != 0) {
            printf("FAILED: after %s: %s\n", what, shared->complaint[which]);
            failures++;
        }
    }
    count_registry(&slots, &sockets);
    if (slots + sockets > 0) {
        printf("FAILED: after %s: %d slots and %d sockets are left\n", what, slots, sockets);
        failures++;
    }
}
