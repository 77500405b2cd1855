/* A process that gets no more memory from the kernel, and needs none. */
#include "common.h"
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAIRS = 300, STACK = 1 << 20 };

static void limit(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* The stack grows, too. */
static void touch_stack(void)
{
    char pages[STACK];
    memset(pages, 1, sizeof pages);
    __asm__ volatile("" : : "r"(pages) : "memory");
}

int main(void)
{
    static int a[PAIRS], b[PAIRS];
    struct rlimit limit_of_files = {1024, 1024};
    int first[2], last[2];
    CHECK(setrlimit(RLIMIT_NOFILE, &limit_of_files) == 0 || errno == EPERM);
    touch_stack();
    say("without a limit", 0);
    pair(&first[0], &first[1]);
    limit(1);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    for (int at = 0; at < PAIRS; at++) {
        pair(&a[at], &b[at]);
        warm_up(first[0], first[1]);
    }
    for (int at = 0; at < PAIRS; at++) {
        warm_up(b[at], a[at]);
        CHECK(close(a[at]) == 0 && read(b[at], &last, 1) == 0 && close(b[at]) == 0);
    }
    say("without memory", PAIRS);
    limit(RLIM_INFINITY);
    pair(&last[0], &last[1]);
    warm_up(last[0], last[1]);
    say("with memory", 0);
    return 0;
}
