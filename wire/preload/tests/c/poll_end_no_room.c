/* A poll that reports the end of one connection while another one, whose reader is slow, has room only by TCP. A program that
   sees the end and no room may drop bytes that it has yet to forward, as stunnel does. */
#include "common.h"

/* Each message takes a segment of the ring, which has 64. */
enum { MESSAGE = 5000, MOST = 100 };

static const int buffer = 400000;

/* Usually fills a ring; with buffers of this size, TCP has room for more. */
static int fill_ring(int fd)
{
    static char message[MESSAGE];
    int sent = 0;
    while (sent < MOST && send(fd, message, sizeof message, MSG_DONTWAIT) == sizeof message)
        sent++;
    return sent;
}

int main(void)
{
    int writer, reader, ended, peer;
    pair(&writer, &reader);
    pair(&ended, &peer);
    CHECK(setsockopt(writer, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0);
    CHECK(setsockopt(reader, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
    /* Both directions end, with a byte unread. */
    write_all(peer, "x", 1);
    CHECK(shutdown(peer, SHUT_WR) == 0 && shutdown(ended, SHUT_WR) == 0);
    struct pollfd alone = {.fd = ended};
    CHECK(poll(&alone, 1, -1) == 1 && alone.revents == POLLHUP);

    fill_ring(writer);
    struct pollfd both[] = {{.fd = writer, .events = POLLOUT}, {.fd = ended}};
    say("ready", poll(both, 2, -1));
    say("room", both[0].revents);
    say("end", both[1].revents);

    /* The message follows the others. */
    char last = 'y', got[MESSAGE];
    long received = 0;
    say("send", send(writer, &last, 1, MSG_DONTWAIT));
    CHECK(shutdown(writer, SHUT_WR) == 0);
    for (ssize_t n; (n = read(reader, got, sizeof got)) > 0; received += n)
        last = got[n - 1];
    printf("%ld byte behind whole messages, and it is %c\n", received % MESSAGE, last);
    return 0;
}
