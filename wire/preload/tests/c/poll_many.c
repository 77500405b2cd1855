/* poll of as many descriptors as RLIMIT_NOFILE allows. */
#include "common.h"
#include <sys/resource.h>
#define N 10
int main(void)
{
    int a[N], b[N];
    struct pollfd fds[N];
    for (int i = 0; i < N; i++) {
        pair(&a[i], &b[i]);
        fds[i] = (struct pollfd){b[i], POLLIN, 0};
    }
    struct rlimit old, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = N;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    say("as many as the limit, for a moment", poll(fds, N, 1));
    struct later later;
    do_later(&later, write_byte, &a[3]);
    say("as many as the limit", poll(fds, N, -1));
    say("more", poll(fds, N, 0));
    /* Events of the kernel's socket are also reported. */
    struct pollfd end = {b[5], POLLRDHUP, 0};
    for (int i = 0; i < N; i++)
        fds[i].events = POLLRDHUP;
    CHECK(shutdown(a[5], SHUT_WR) == 0);
    say("an end", poll(fds, N, -1));
    CHECK(poll(&end, 1, -1) == 1);
    low.rlim_cur = N - 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    say("over the limit", poll(fds, N, 0));
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    pthread_join(later.thread, NULL);
    return 0;
}
