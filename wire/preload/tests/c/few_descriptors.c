/* A process whose low descriptor limit is fixed has all of them for itself. */
#include "common.h"
#include <sys/resource.h>

int main(void)
{
    struct rlimit limit;
    struct sockaddr_in address;
    int fd = listener_on(&address), pairs = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == limit.rlim_max);
    for (;; pairs++) {
        int a = socket(AF_INET, SOCK_STREAM, 0);
        if (a < 0)
            break;
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        int b = accept(fd, NULL, NULL);
        if (b < 0)
            break;
        warm_up(a, b);
    }
    printf("%d connections, and then %s\n", pairs, strerrorname_np(errno));
    /* Room for the counters. */
    CHECK(close(fd) == 0);
    return 0;
}
