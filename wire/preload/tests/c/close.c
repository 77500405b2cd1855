/* The ends of a connection: half-close, resets, broken pipes, and duplicates of the fd. */
#include "common.h"
#include <linux/close_range.h>

static void half_close(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    write_all(a, "last words", 10);
    say("shutdown", shutdown(a, SHUT_WR));
    say("the last words", read(b, buf, sizeof buf));
    say("the end", read(b, buf, sizeof buf));
    say("the end again", recv(b, buf, sizeof buf, MSG_DONTWAIT));
    write_all(b, "answer", 6);
    say("the other direction", read(a, buf, sizeof buf));
    say("write after shutdown", send(a, "x", 1, MSG_NOSIGNAL));
    close(b);
    say("its end", read(a, buf, sizeof buf));
    close(a);
}

static void end_wakes(void *argument)
{
    CHECK(shutdown(*(int *)argument, SHUT_WR) == 0);
}

static void close_wakes(void *argument)
{
    CHECK(close(*(int *)argument) == 0);
}

static void wakes(void)
{
    int a, b;
    char c;
    struct later later;
    pair(&a, &b);
    do_later(&later, end_wakes, &a);
    say("shutdown wakes", read(b, &c, 1));
    pthread_join(later.thread, NULL);
    close(a), close(b);
    pair(&a, &b);
    do_later(&later, close_wakes, &b);
    say("close wakes", read(a, &c, 1));
    pthread_join(later.thread, NULL);
    close(a);
    pair(&a, &b);
    shutdown(b, SHUT_RD);
    say("read after shutdown of reading", read(b, &c, 1));
    close(a), close(b);
}

/* Waits until TCP has reported the end of `fd`'s peer. */
static void await_end(int fd)
{
    struct pollfd entry = {fd, POLLRDHUP, 0};
    CHECK(poll(&entry, 1, -1) == 1);
}

static void resets(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    write_all(a, "never read", 10);
    CHECK(recv(b, buf, 1, MSG_PEEK) == 1);
    close(b);
    await_end(a);
    say("the peer closed with unread data", read(a, buf, sizeof buf));
    close(a);
    pair(&a, &b);
    CHECK(setsockopt(b, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)) == 0);
    close(b);
    await_end(a);
    say("the peer closed with a linger time of zero", read(a, buf, sizeof buf));
    close(a);
    pair(&a, &b);
    write_all(b, "in order", 8);
    close(b);
    say("data", read(a, buf, sizeof buf));
    say("and the end", read(a, buf, sizeof buf));
    close(a);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
    (void)signal;
    pipes++;
}

static void broken_pipe(void)
{
    int a, b;
    pair(&a, &b);
    signal(SIGPIPE, on_pipe);
    close(b);
    await_end(a);
    while (send(a, "x", 1, MSG_NOSIGNAL) == 1)
        ;
    printf("broken: %d\n", errno == EPIPE || errno == ECONNRESET);
    say("quietly", send(a, "x", 1, MSG_NOSIGNAL));
    printf("signals: %d\n", (int)pipes);
    say("loudly", write(a, "x", 1));
    printf("signals: %d\n", (int)pipes);
    close(a);
    signal(SIGPIPE, SIG_DFL);
}

static void duplicates(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    int c = dup(a), d = fcntl(a, F_DUPFD_CLOEXEC, 50), e = dup2(a, 60), f = dup3(a, 61, O_CLOEXEC);
    CHECK(c >= 0 && d >= 50 && e == 60 && f == 61);
    close(a);
    write_all(c, "1", 1), write_all(d, "2", 1), write_all(e, "3", 1), write_all(f, "4", 1);
    say("by four numbers", recv(b, buf, 4, MSG_WAITALL));
    printf("%.4s\n", buf);
    close(c), close(d), close(e);
    say("still open", recv(b, buf, 1, MSG_DONTWAIT));
    write_all(b, "x", 1);
    say("by the last number", read(f, buf, sizeof buf));
    int null = open("/dev/null", O_RDWR);
    say("dup2 over the last", dup2(null, f) == f);
    say("so it is closed", read(b, buf, sizeof buf));
    say("dup2 of a closed number", dup2(null + 100, b));
    say("which closes nothing", recv(b, buf, 0, MSG_DONTWAIT) == 0);
    say("dup of a closed number", dup(null + 100));
    close(b), close(f), close(null);
    say("closed", read(b, buf, 1));
    say("closed twice", close(b));
}

static void ranges(void)
{
    int a, b;
    char buf[16];
    pair(&a, &b);
    int high = dup2(a, 200);
    close(a);
    say("close_range", close_range(high, high + 5, 0));
    say("closed it", read(b, buf, sizeof buf));
    close(b);
    pair(&a, &b);
    for (int fd = b + 1; fd < 4096; fd++)
        close(fd);
    closefrom(b + 1);
    write_all(a, "alive", 5);
    say("after a sweep", read(b, buf, sizeof buf));
    struct later later;
    do_later(&later, write_byte, &a);
    say("and it still wakes", read(b, buf, sizeof buf));
    pthread_join(later.thread, NULL);
    close(a), close(b);
}

int main(void)
{
    half_close();
    wakes();
    resets();
    broken_pipe();
    duplicates();
    ranges();
    return 0;
}
