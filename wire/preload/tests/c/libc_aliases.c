/* Other names under which the C library offers its calls, and its own operations on a socket. */
#include "common.h"
#include <aio.h>

extern ssize_t __read(int, void *, size_t);
extern ssize_t __write(int, const void *, size_t);
extern ssize_t __send(int, const void *, size_t, int);
extern int __close(int);
extern int __dup2(int, int);
extern int __fcntl(int, int, ...);
extern int __poll(struct pollfd *, nfds_t, int);
extern int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);

static void names(int a, int b)
{
    char buf[16] = "";
    struct pollfd entry = {b, POLLIN, 0};
    fd_set set;
    say("__write", __write(a, "abc", 3));
    say("__send", __send(a, "de", 2, 0));
    say("__poll", __poll(&entry, 1, -1));
    FD_ZERO(&set);
    FD_SET(b, &set);
    say("__select", __select(b + 1, &set, NULL, NULL, NULL));
    CHECK(recv(b, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    say("__read", __read(b, buf, sizeof buf));
    printf("%s\n", buf);
    say("sockatmark", sockatmark(b));
    int flags = __fcntl(b, F_GETFL);
    CHECK(__fcntl(b, F_SETFL, flags | O_NONBLOCK) == 0);
    say("nothing", read(b, buf, 1));
    CHECK(__fcntl(b, F_SETFL, flags) == 0);
    int other = open("/dev/null", O_RDWR);
    CHECK(other >= 0 && __dup2(b, other) == other && __close(b) == 0);
    write_all(a, "fg", 2);
    read_all(other, buf, 2);
    printf("%.2s\n", buf);
    CHECK(__close(other) == 0);
    say("the end", recv(a, buf, 1, 0));
}

static ssize_t finish(struct aiocb *request)
{
    const struct aiocb *list[] = {request};
    while (aio_error(request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    return aio_return(request);
}

/* The other end is alive: when a socket is handed over, it sends again the bytes that it had put into shared memory. */
static void *live(void *argument)
{
    struct pollfd entry = {*(int *)argument, POLLIN, 0};
    while (poll(&entry, 1, 1) == 0)
        ;
    return NULL;
}

static void asynchronous(void)
{
    pthread_t other;
    int a, b;
    char buf[16] = "", more[16] = "";
    struct aiocb in = {.aio_buf = buf, .aio_nbytes = sizeof buf}, out = {.aio_buf = "0123456", .aio_nbytes = 7};
    struct aiocb last = {.aio_buf = more, .aio_nbytes = sizeof more, .aio_lio_opcode = LIO_READ}, *list[] = {&last};
    pair(&a, &b);
    write_all(a, "abcde", 5);
    CHECK(recv(b, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    in.aio_fildes = last.aio_fildes = b;
    out.aio_fildes = a;
    CHECK(pthread_create(&other, NULL, live, &a) == 0);
    say("aio_read", aio_read(&in));
    say("read", finish(&in));
    CHECK(shutdown(b, SHUT_WR) == 0 && pthread_join(other, NULL) == 0);
    printf("%.5s\n", buf);
    say("aio_write", aio_write(&out));
    say("written", finish(&out));
    say("lio_listio", lio_listio(LIO_WAIT, list, 1, NULL));
    say("read", finish(&last));
    printf("%s\n", more);
}

int main(void)
{
    int a, b;
    pair(&a, &b);
    names(a, b);
    asynchronous();
    return 0;
}
