/*
 * A signal handler makes the very calls that it interrupted. That it runs in their midst is certain because the buffer
 * cannot be touched before it has run: the copy itself raises the signal.
 */
#include "common.h"
#include <sys/mman.h>

static int a, b, c, d, says_no;
static char *page;
static void (*in_the_handler)(void);

static void expect_again(ssize_t result)
{
    says_no += result == -1 && errno == EAGAIN;
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    char *at = info->si_addr;
    CHECK(page <= at && at < page + 4096);
    in_the_handler();
    CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

static void during_send(void)
{
    char c = 'x';
    expect_again(send(a, &c, 1, 0));
    expect_again(send(a, &c, 1, MSG_DONTWAIT));
    expect_again(write(a, &c, 1));
    /* The other half is free. */
    CHECK(recv(a, &c, 1, 0) == 1 && c == 'r');
    expect_again(recv(a, &c, 1, MSG_DONTWAIT));
}

static void during_recv(void)
{
    char c = 'x';
    struct pollfd readable = {.fd = b, .events = POLLIN};
    expect_again(recv(b, &c, 1, 0));
    expect_again(recv(b, &c, 1, MSG_PEEK));
    expect_again(read(b, &c, 1));
    CHECK(poll(&readable, 1, 0) >= 0);
    CHECK(send(b, &c, 1, 0) == 1);
}

static void during_the_last_send(void)
{
    CHECK(shutdown(a, SHUT_WR) == 0);
}

static void protect(void (*handler)(void))
{
    in_the_handler = handler;
    says_no = 0;
    CHECK(mprotect(page, 4096, PROT_NONE) == 0);
}

static void during_wait(void)
{
    struct pollfd entry = {.fd = b, .events = POLLIN | POLLOUT};
    CHECK(shutdown(b, SHUT_WR) == 0);
    CHECK(poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN));
    CHECK(close(d) == 0);
}

/* One connection of a set is shut down while a wait looks at the set, and another one closed. */
static void in_the_midst_of_a_wait(void)
{
    struct epoll_event event = {EPOLLIN | EPOLLRDHUP, {0}};
    char buf[8];
    int set = epoll_create1(0);
    pair(&a, &b);
    pair(&c, &d);
    event.data.fd = b;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    event.data.fd = d;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, d, &event) == 0);
    struct epoll_event *events = (struct epoll_event *)page;
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    write_all(a, "x", 1);
    protect(during_wait);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.fd == b);
    CHECK(read(a, buf, 1) == 0 && read(c, buf, 1) == 0);

    /* The set goes on, also with who has the number now. */
    read_all(b, buf, 1);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    close(c);
    pair(&c, &d);
    event.data.fd = d;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, d, &event) == 0);
    write_all(c, "y", 1);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.fd == d);
    read_all(d, buf, 1);
    write_all(a, "z", 1);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.fd == b);
    CHECK(close(set) == 0 && close(b) == 0 && close(c) == 0);
}

int main(void)
{
    char buf[3000];
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    pair(&a, &b);

    for (size_t len = 300; len <= 3000; len *= 10) {
        write_all(b, "r", 1);
        protect(during_send);
        CHECK(send(a, page, len, 0) == (ssize_t)len && says_no == 4);
        read_all(b, buf, len);

        memset(buf, 'q', len);
        write_all(a, buf, len);
        protect(during_recv);
        CHECK(recv(b, page, len, MSG_WAITALL) == (ssize_t)len && says_no == 3 && memcmp(page, buf, len) == 0);
        read_all(a, buf, 1);
    }

    protect(during_the_last_send);
    CHECK(send(a, page, 300, 0) == 300);
    CHECK(send(a, buf, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    read_all(b, buf, 300);
    CHECK(recv(b, buf, 1, 0) == 0);
    write_all(b, "back", 4);
    read_all(a, buf, 4);
    in_the_midst_of_a_wait();
    return 0;
}
