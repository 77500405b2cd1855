/*
 * Two processes exchange bytes over TCP while one of them meets a fault: it is killed, stopped, or a system call fails. Each byte
 * is checked by its position, and sent bytes against received ones; files left behind are counted.
 *
 * usage: faults [-l LIBRARY] [-d DIRECTORY] [-s SEED] [-n MOMENTS] FAULT...
 *
 * Without a LIBRARY to preload this is plain TCP, which also has to pass. DIRECTORY is that of the registry. Faults in steps come
 * at each system call of the victim, from the connect or accept to its end, once on each side, and once more with the other end
 * lacking the library, so that nothing comes to the ring:
 *
 *   kill-steps   it is killed before the call, and after it
 *   stop-steps   it stands still there until the other one sleeps
 *   fail-steps   the call fails for lack of descriptors, memory or room, if it can
 *
 * Faults at MOMENTS random moments (SEED is printed) come under the load of several connections, with threads, forked processes,
 * polling and sleeping, some of which only send one way:
 *
 *   kill         the victim and all its children are killed
 *   stop         they are stopped for a while, again and again
 *   descriptors  no descriptor is left, for a while, again and again
 *   memory       no address space is
 *   registry     the registry's directory is moved away, shut and filled
 *   full         its file system is full, for a while, again and again
 *   sparse       so is one that cannot promise room for a file
 *   cow          so is one that writes changes to another place: copy on write
 *   group        the memory of the victim's control group is used up: the kernel picks the process to kill
 *   clock        the victim's processes have each a clock of their own, which jumps forward and back
 *
 * The other end survives all of it; its descriptors and mappings are counted before and after. The last five need privileges that
 * not everybody has: without them, the reason is printed, and the fault is skipped.
 */
#include "faults.h"

#include <sys/mman.h>
#include <time.h>

static const char *const names[FAULTS] = {NULL,   "kill",   "stop",  "descriptors", "memory", "registry",
                                          "full", "sparse", "cow",   "group",       "clock"};
static const char *const cuts[CUTS] = {"kill-steps", "stop-steps", "fail-steps"};

/* NULL, or the reason why it is impossible. */
static const char *prepare(enum fault fault)
{
    switch (fault) {
    case FULL:
    case SPARSE:
    case COW:
        return enter_small_place(fault);
    case GROUP:
        return make_group();
    case CLOCK:
        return clocks_differ() ? NULL : "no time namespace is to be had";
    default:
        return NULL;
    }
}

static void run(const char *name, uint64_t seed, int wanted)
{
    int before = failures, kills = 0;
    enum fault fault = NONE;
    while (++fault < FAULTS && strcmp(name, names[fault]) != 0)
        continue;
    moments = resets = ends = most_late = 0, bytes = 0;
    if (fault < FAULTS) {
        const char *reason = prepare(fault);
        if (reason != NULL) {
            printf("%s: not run: %s\n", name, reason);
            return;
        }
        at_moments(name, fault, seed, wanted);
    } else {
        enum cut cut = 0;
        while (cut < CUTS && strcmp(name, cuts[cut]) != 0)
            cut++;
        if (cut == CUTS) {
            fprintf(stderr, "there is no fault %s\n", name);
            exit(2);
        }
        by_steps(cut, seed);
    }
    if (fault == GROUP)
        kills = remove_group();
    clear_up(name);
    if (fault == FULL || fault == SPARSE || fault == COW)
        leave_small_place();
    printf("%s: %d moments, %lu bytes checked, %d ends, %d resets, at most %d late sends, %d failures\n", name, moments, bytes,
           ends, resets, most_late, failures - before);
    if (fault == GROUP)
        printf("%s: the kernel killed %d processes\n", name, kills);
}

int main(int count, char **arguments)
{
    enum { PAGE_OF_BOTH = 1000 };
    int option, wanted = 100;
    uint64_t seed = time(NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    /* Until a process has a clock that can jump. */
    signal(SIGUSR1, SIG_IGN);
    if (count == 5 && strcmp(arguments[1], "end") == 0) {
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE_OF_BOTH, 0);
        close(PAGE_OF_BOTH);
        return shared == MAP_FAILED ? 97 : end(atoi(arguments[2]), atoi(arguments[3]), atoi(arguments[4]));
    }
    while ((option = getopt(count, arguments, "l:d:s:n:")) != -1) {
        switch (option) {
        case 'l': library = optarg; break;
        case 'd': snprintf(directory, sizeof directory, "%s", optarg); break;
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 'n': wanted = atoi(optarg); break;
        default: return 2;
        }
    }
    self = realpath("/proc/self/exe", NULL);
    int page = memfd_create("shared", 0);
    if (page < 0 || ftruncate(page, sizeof *shared) < 0 || dup2(page, PAGE_OF_BOTH) < 0)
        return 1;
    close(page);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE_OF_BOTH, 0);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = too_late}, NULL);
    printf("seed %lu\n", seed);
    for (int at = optind; at < count; at++)
        run(arguments[at], seed, wanted);
    return failures > 0;
}
