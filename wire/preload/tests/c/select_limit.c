/* select() with the maximum number of descriptors, more than a set has bits for: the kernel stops at the end of its table. */
#include "common.h"
#include <sys/resource.h>
#include <sys/select.h>

static struct {
    fd_set set;
    /* The memory after the set. */
    unsigned char behind[4096];
} sets;

static void only(int fd)
{
    memset(&sets.behind, 0xff, sizeof sets.behind);
    FD_ZERO(&sets.set);
    FD_SET(fd, &sets.set);
}

static void show(const char *what, int result, int fd)
{
    size_t changed = 0;
    say(what, result);
    for (size_t at = 0; at < sizeof sets.behind; at++)
        changed += sets.behind[at] != 0xff;
    printf("set: %d, changed after it: %zu\n", FD_ISSET(fd, &sets.set) != 0, changed);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    int a, b, ends[2];
    /* The library reserves its numbers when the program starts. */
    if (argc == 1) {
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= 2048);
        limit.rlim_cur = 2048;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        execl("/proc/self/exe", argv[0], "again", NULL);
        CHECK(0);
    }
    pair(&a, &b);
    int most = getdtablesize();
    printf("at most: %d\n", most);
    CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    write_all(b, "x", 1);
    struct timeval long_time = {20, 0};
    struct timespec time = {20, 0};
    int fds[] = {a, ends[0]};
    for (int at = 0; at < 2; at++) {
        only(fds[at]);
        show("select", select(most, &sets.set, NULL, NULL, &long_time), fds[at]);
        only(fds[at]);
        show("pselect", pselect(most, &sets.set, NULL, NULL, &time, NULL), fds[at]);
    }
    /* A number above those that a set has bits for: now the table is that long. */
    CHECK(dup2(a, 1030) == 1030);
    fd_set *large = calloc(1, 4096);
    unsigned long *words = (void *)large;
    words[1030 / 64] |= 1ul << 1030 % 64;
    say("a high one", select(most, large, NULL, NULL, &long_time));
    printf("set: %d\n", (words[1030 / 64] >> 1030 % 64 & 1) == 1);
    words[1100 / 64] |= 1ul << 1100 % 64;
    say("one that is closed", select(most, large, NULL, NULL, &long_time));
    return 0;
}
