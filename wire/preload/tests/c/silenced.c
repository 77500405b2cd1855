/* A poll may silence what an epoll set has not looked at yet. The set reports what comes after that all the same. */
#include "common.h"

enum { MOMENT = 10 };

static int set_with(int fd, uint32_t events)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = events, .data.fd = fd};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

static int wait_on(int set, int timeout)
{
    struct epoll_event event;
    return epoll_wait(set, &event, 1, timeout);
}

static int poll_for(int fd, short events)
{
    struct pollfd entry = {fd, events, 0};
    return poll(&entry, 1, MOMENT);
}

/* A send finds no room while the set sleeps for nothing but an edge. */
static void room(void)
{
    int writer, reader;
    pair(&writer, &reader);
    int set = set_with(writer, EPOLLOUT | EPOLLET);
    say("room", wait_on(set, -1));
    say("the same room", wait_on(set, MOMENT));
    size_t sent = fill(writer);
    poll_for(writer, POLLOUT);
    drain(reader, sent);
    say("room again", wait_on(set, -1));
    CHECK(close(set) == 0 && close(writer) == 0 && close(reader) == 0);
}

/* The program receives bytes of which the set has been told, but not asked. */
static void bytes(uint32_t mode)
{
    int from, to;
    char c;
    pair(&from, &to);
    int set = set_with(to, EPOLLIN | mode);
    say("bytes", wait_on(set, MOMENT));
    for (int i = 0; i < 3; i++) {
        write_all(from, "a", 1);
        read_all(to, &c, 1);
        say("end", poll_for(to, POLLRDHUP));
    }
    write_all(from, "b", 1);
    say("bytes", wait_on(set, -1));
    CHECK(close(set) == 0 && close(from) == 0 && close(to) == 0);
}

int main(void)
{
    room();
    bytes(0);
    bytes(EPOLLET);

    int a, b;
    pair(&a, &b);
    say("priority", poll_for(a, POLLWRBAND));
    return 0;
}
