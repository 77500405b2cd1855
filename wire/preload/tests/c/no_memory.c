/* A process that gets no more memory from the kernel, and needs none. */
#include "common.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>

enum { PAIRS = 300, WATCHED = 130, STACK = 1 << 20, LARGE = 60000, AGAIN = 50 };

static int watched[2][WATCHED];

static void limit(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* The stack also grows. */
static void touch_stack(void)
{
    char pages[STACK];
    memset(pages, 1, sizeof pages);
    __asm__ volatile("" : : "r"(pages) : "memory");
}

/* Calls for which the library takes more memory than a page or two. */
static void need_much(int from, int to)
{
    static char bytes[LARGE];
    ssize_t (*seek)(int, void *, size_t, int, size_t) = dlsym(RTLD_DEFAULT, "seek_recv");
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ready = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    CHECK(file >= 0 && ready >= 0);
    for (int at = 0; at < 2 * WATCHED; at++) {
        event.events = EPOLLIN, event.data.u32 = at;
        CHECK(epoll_ctl(ready, EPOLL_CTL_ADD, at < WATCHED ? watched[0][at] : watched[1][at - WATCHED], &event) == 0);
    }
    for (int at = 0; at < WATCHED; at++) {
        write_all(watched[0][at], "!", 1);
        CHECK(epoll_wait(ready, &event, 1, -1) == 1 && event.data.u32 == (uint32_t)(at + WATCHED));
        read_all(watched[1][at], bytes, 1);
    }
    for (int at = 0; at < AGAIN; at++) {
        off_t begin = 0;
        /* As many bytes as there is room for. */
        set_nonblocking(from, 1);
        ssize_t n = sendfile(from, file, &begin, LARGE);
        CHECK(n > 0);
        set_nonblocking(from, 0);
        drain(to, n);
        write_all(from, bytes, LARGE);
        CHECK(recv(to, bytes, LARGE, MSG_PEEK) > 0);
        drain(to, LARGE);
    }
    for (int at = 0; at < AGAIN; at++) {
        size_t taken = 0;
        write_all(from, bytes, LARGE);
        if (seek != NULL) {
            ssize_t n = seek(to, bytes, 10, 0, 100);
            CHECK(n == 10 || errno == ENOBUFS);
            taken = n > 0 ? n : 0;
        }
        drain(to, LARGE - taken);
    }
    for (int at = 0; at < WATCHED; at++)
        CHECK(close(watched[0][at]) == 0 && close(watched[1][at]) == 0);
    CHECK(close(file) == 0 && close(ready) == 0);
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
    for (int at = 0; at < WATCHED; at++)
        pair_anywhere(&watched[0][at], &watched[1][at]);
    limit(1);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    need_much(first[0], first[1]);
    for (int at = 0; at < PAIRS; at++) {
        pair_anywhere(&a[at], &b[at]);
        warm_up(first[0], first[1]);
    }
    for (int at = 0; at < PAIRS; at++) {
        warm_up(b[at], a[at]);
        CHECK(close(a[at]) == 0 && read(b[at], &last, 1) == 0 && close(b[at]) == 0);
    }
    say("without memory", PAIRS);
    limit(RLIM_INFINITY);
    pair_anywhere(&last[0], &last[1]);
    warm_up(last[0], last[1]);
    say("with memory", 0);
    return 0;
}
