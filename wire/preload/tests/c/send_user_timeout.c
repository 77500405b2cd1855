/* TCP_USER_TIMEOUT: how long a send waits for a peer that is alive and takes nothing. */
#include "common.h"

static void send_in_vain(int blocks, int size)
{
    static char bytes[65536];
    int a, b, limit = 300, error = 0;
    socklen_t len = sizeof error;
    pair(&a, &b);
    CHECK(setsockopt(a, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit) == 0);
    set_nonblocking(a, !blocks);
    for (;;) {
        struct pollfd entry = {.fd = a, .events = POLLOUT};
        if (!blocks)
            CHECK(poll(&entry, 1, -1) == 1);
        if (send(a, bytes, size, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            break;
    }
    say("a send to one who takes nothing", -1);
    CHECK(getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    say("and after it", error);
    close(a);
    close(b);
}

int main(void)
{
    send_in_vain(1, 65536);
    send_in_vain(0, 65536);
    send_in_vain(1, 1000);
    send_in_vain(0, 1000);
    return 0;
}
