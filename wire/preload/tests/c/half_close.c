/* A connection of which one direction ends before it counts as long, while the other continues. */
#include "common.h"

enum { PERIOD = 251, ROUNDS = 40 };

static char pattern[1 << 20];

int main(void)
{
    static char buf[300000];
    struct sockaddr_in address;
    size_t sent = 0, received = 0;
    int turns = 0, available, listener = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    int b = accept(listener, NULL, NULL);
    CHECK(b >= 0);
    for (size_t at = 0; at < sizeof pattern; at++)
        pattern[at] = at % PERIOD;
    write_all(a, "question", 8);
    say("shutdown", shutdown(a, SHUT_WR));
    read_all(b, buf, 8);
    say("end of the question", read(b, buf, 1));
    set_nonblocking(b, 1);
    /* Until there is no room, over and over. */
    for (int round = 0; round < ROUNDS; round++) {
        ssize_t n;
        while ((n = send(b, pattern + sent % PERIOD, 1 + sent % 100000, 0)) > 0)
            sent += n;
        CHECK(errno == EAGAIN);
        CHECK(ioctl(a, FIONREAD, &available) == 0 && available > 0);
        for (int reads = 0; reads < 10; reads++) {
            n = recv(a, buf, 1 + turns++ * 977 % sizeof buf, reads > 0 ? MSG_DONTWAIT : 0);
            if (n < 0 && errno == EAGAIN)
                break;
            CHECK(n > 0 && memcmp(buf, pattern + received % PERIOD, n) == 0);
            received += n;
        }
    }
    CHECK(close(b) == 0);
    for (ssize_t n; (n = recv(a, buf, sizeof buf, 0)) > 0; received += n)
        CHECK(memcmp(buf, pattern + received % PERIOD, n) == 0);
    say("all of the answer", sent == received);
    /* A direction that was shut down before stays shut down. */
    int c, d;
    c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(c, (struct sockaddr *)&address, sizeof address) == 0);
    d = accept(listener, NULL, NULL);
    CHECK(d >= 0 && shutdown(c, SHUT_RD) == 0);
    for (int round = 0; round < 50; round++) {
        write_all(c, "x", 1);
        read_all(d, buf, 1);
    }
    say("shut for reading", recv(c, buf, 1, 0));
    return 0;
}
