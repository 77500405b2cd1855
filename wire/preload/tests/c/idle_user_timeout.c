/* TCP_USER_TIMEOUT ends a connection whose receiver takes nothing, even though the sender makes no call that moves bytes. */
#include "common.h"

int main(void)
{
    int a, b, error = 0;
    unsigned limit = 500;
    pair(&a, &b);
    CHECK(setsockopt(a, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit) == 0);
    CHECK(fill(a) > 0);
    /* Waits only for an end. */
    struct pollfd entry = {a, 0, 0};
    say("poll", poll(&entry, 1, -1));
    printf("error %d, hangup %d\n", (entry.revents & POLLERR) != 0, (entry.revents & POLLHUP) != 0);
    CHECK(getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
    printf("%s\n", strerrorname_np(error));
    return 0;
}
