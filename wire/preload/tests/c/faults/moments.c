/* Faults at random moments, under load. */
#include "faults.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void set_limit(pid_t pid, int which, rlim_t soft)
{
    struct rlimit limit;
    prlimit(pid, which, NULL, &limit);
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    prlimit(pid, which, &limit, NULL);
}

static void remove_registry(void)
{
    char command[LONGEST + 40];
    /* Processes that use it may create another one in the meantime. */
    snprintf(command, sizeof command, "rm -rf '%s' 2>/dev/null", directory);
    if (system(command) != 0)
        return;
}

static void disturb_registry(uint64_t *random)
{
    static int moved;
    char path[PATH_MAX];
    switch (roll(random, 4)) {
    case 0:
        snprintf(path, sizeof path, "%s-%d", directory, ++moved % 8);
        rename(directory, path);
        break;
    case 1:
        chmod(directory, 0);
        nap(1000);
        chmod(directory, 0700);
        break;
    case 2:
        for (int at = 0; at < 50; at++) {
            snprintf(path, sizeof path, "%s/%d-%d.sock", directory, at, at);
            close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        }
        break;
    default:
        remove_registry();
    }
}

static void disturb_place(uint64_t *random)
{
    switch (roll(random, 3)) {
    case 0:
        /* There is less room than a registry needs. */
        empty_place();
        fill_place();
        leave_room(roll(random, 4 << 20));
        break;
    case 1:
        /* The next process creates another one. */
        remove_registry();
        fill_place();
        break;
    default:
        fill_place();
    }
    nap(roll(random, 10000));
    if (roll(random, 2) == 0)
        empty_place();
}

static void disturb(enum fault fault, pid_t victim, uint64_t *random)
{
    switch (fault) {
    case KILLED:
        kill(-victim, SIGKILL);
        break;
    case STOPPED:
        kill(-victim, SIGSTOP);
        nap(roll(random, 20000));
        kill(-victim, SIGCONT);
        break;
    case DESCRIPTORS:
        set_limit(victim, RLIMIT_NOFILE, 2 + roll(random, 24));
        nap(roll(random, 5000));
        set_limit(victim, RLIMIT_NOFILE, 1024);
        break;
    case MEMORY:
        set_limit(victim, RLIMIT_AS, 1 << 20);
        nap(roll(random, 5000));
        set_limit(victim, RLIMIT_AS, RLIM_INFINITY);
        break;
    case REGISTRY:
        disturb_registry(random);
        break;
    case FULL:
    case SPARSE:
    case COW:
        disturb_place(random);
        break;
    case GROUP:
        limit_group(random);
        nap(roll(random, 5000));
        free_group();
        break;
    case CLOCK:
        kill(-victim, SIGUSR1);
        break;
    case NONE:
    case FAULTS:
        break;
    }
}

void at_moments(const char *name, enum fault fault, uint64_t seed, int wanted)
{
    uint64_t random = seed;
    shared->fault = fault;
    for (int victim = 0; victim < 2; victim++) {
        pid_t other = 0;
        for (int count = 0, round = 1; count < wanted / 2; count++, round++) {
            char what[100];
            put_round(victim, roll(&random, 1 << 30));
            if (other == 0) {
                shared->round = 0;
                round = 1;
                shared->connected[0] = shared->connected[1] = shared->done[0] = shared->done[1] = 0;
                other = start(1 - victim, 1, INT_MAX / 2, 0);
            }
            shared->connections = 1 + roll(&random, MOST);
            /* A fork without memory is the C library's concern. */
            int forks = roll(&random, 3) == 0 && fault != MEMORY;
            shared->forks[0] = fault == CLOCK && victim == 0;
            shared->forks[1] = forks || (fault == CLOCK && victim == 1);
            for (int at = 0; at < shared->connections; at++) {
                shared->style[at] = roll(&random, STYLES);
                int one_way = roll(&random, 3);
                for (int who = 0; who < 2; who++)
                    shared->total[who][at] = shared->style[at] == TURN_BY_TURN ? TURNS * (1 + shared->seed % 5000)
                                             : one_way == who                 ? 0
                                                                              : 1 + roll(&random, 4000000);
            }
            sprintf(what, "%s, seed %lu, round %d", name, seed, count + victim * wanted / 2);
            if (victim == 1)
                shared->port = 0;
            shared->connected[0] = shared->connected[1] = 0;
            shared->round = round;
            pid_t process = start(victim, round, 1, 0);
            int times = fault == KILLED ? 1 : 1 + roll(&random, 8), status = 0, gone = 0;
            for (int looks = 0; (fault == DESCRIPTORS || fault == MEMORY || roll(&random, 8) != 0) && shared->connected[victim] != round && looks < 10000; looks++)
                nap(100);
            for (int at = 0; at < times && !gone; at++, moments++) {
                nap(roll(&random, (uint64_t)1 << (1 + roll(&random, 15))));
                disturb(fault, process, &random);
                gone = fault != KILLED && waitpid(process, &status, WNOHANG) == process;
            }
            if (fault == KILLED) {
                waitpid(process, &status, 0);
                shared->done[victim] = -round;
            }
            for (int looks = 0; !gone && fault != KILLED && !(gone = waitpid(process, &status, WNOHANG) == process); looks++) {
                nap(1000);
                if (looks > HANG_SECONDS * 1000) {
                    complain(victim, "hangs (%d)", process);
                    if (getenv("FAULTS_KEEP") != NULL) {
                        printf("%s: %s\n", what, shared->complaint[victim]);
                        pause();
                    }
                    kill(-process, SIGKILL);
                    waitpid(process, &status, 0);
                    break;
                }
            }
            if (fault == GROUP && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
                kill(-process, SIGKILL);
                shared->done[victim] = -round;
            } else if (fault != KILLED && status != 0)
                complain(victim, "ended with status %#x", status);
            if (!await_other(what, 1 - victim, round, other)) {
                kill(-other, SIGKILL);
                waitpid(other, NULL, 0);
                other = 0;
            }
            judge(what, fault == KILLED || fault == GROUP);
            count_left(what, 1 - victim, round);
        }
        if (other != 0)
            finish(other);
    }
    shared->fault = NONE;
    if (fault == FULL || fault == SPARSE || fault == COW)
        empty_place();
}
