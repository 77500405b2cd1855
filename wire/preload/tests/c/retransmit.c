/*
 * A sender whose peer hands its socket to libc, which does not know about the ring. The socket buffers are small, so the
 * retransmitted bytes go out while the sender waits for something else.
 */
#include "common.h"
#include <sys/prctl.h>

#define TOTAL 1200000
#define SMALL 100000

enum how { POLL, SELECT, LEVEL, EDGE, ONE_SHOT, RECEIVE, LEAVE, QUIT, HOWS };
static const char *const names[HOWS] = {"poll", "select", "level", "edge", "one shot", "receive", "leave", "quit"};

static char message[TOTAL];

/* Reads bytes from the ring until the client has done what it can without waiting, and the rest through libc. */
static void serve(enum how how, int listener, int go, int reports)
{
    int fd = accept(listener, NULL, NULL);
    char c;
    CHECK(fd >= 0);
    for (int i = 0; i < 32; i++) {
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    read_all(go, &c, 1);
    char *received = malloc(TOTAL);
    read_all(fd, received, 1000);
    FILE *file = fdopen(fd, "r+");
    CHECK(file != NULL);
    write_all(reports, "!", 1);
    size_t rest = fread(received + 1000, 1, TOTAL - 1000, file);
    printf("received: %zu, %s\n", rest + 1000, memcmp(received, message, TOTAL) == 0 ? "as sent" : "something else");
    if (how != LEAVE && how != QUIT) {
        fseek(file, 0, SEEK_CUR);
        CHECK(fputc('!', file) == '!' && fflush(file) == 0);
    }
    fclose(file);
    exit(0);
}

/* Waits for the answer, or also for room; returns what is ready. */
static int wait_for(enum how how, int set, int fd, int room)
{
    struct epoll_event event = {.events = EPOLLIN | (room ? EPOLLOUT : 0)};
    if (how == POLL) {
        struct pollfd entry = {.fd = fd, .events = POLLIN | (room ? POLLOUT : 0)};
        CHECK(poll(&entry, 1, -1) == 1);
        CHECK((entry.revents & ~entry.events) == 0);
        return entry.revents;
    }
    if (how == SELECT) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(fd, &in);
        if (room)
            FD_SET(fd, &out);
        CHECK(select(fd + 1, &in, &out, NULL, NULL) > 0);
        return (FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0);
    }
    event.events |= how == EDGE ? EPOLLET : how == ONE_SHOT ? EPOLLONESHOT : 0;
    uint32_t asked = event.events;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, -1) == 1);
    CHECK((event.events & ~asked) == 0);
    return event.events;
}

static void send_while_waiting(enum how how)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), go[2], reports[2], small = SMALL;
    CHECK(pipe(go) == 0 && pipe(reports) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    pid_t child = fork();
    if (child == 0)
        serve(how, listener, go[0], reports[1]);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    char c;
    for (int i = 0; i < 32; i++) {
        write_all(fd, "x", 1);
        read_all(fd, &c, 1);
    }
    int set = epoll_create1(0);
    struct epoll_event event = {.events = 0};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    size_t sent = 0;
    int has_told = 0, blocks = how == RECEIVE || how == LEAVE || how == QUIT;
    while (sent < TOTAL || !has_told) {
        ssize_t n = sent < TOTAL ? send(fd, message + sent, TOTAL - sent, MSG_DONTWAIT) : 0;
        if (n > 0)
            sent += n;
        if ((n <= 0 || sent == TOTAL) && !has_told) {
            write_all(go[1], "!", 1);
            has_told = 1;
        }
        if (n < 0) {
            CHECK(errno == EAGAIN);
            wait_for(blocks ? POLL : how, set, fd, 1);
        }
    }
    if (how == LEAVE || how == QUIT) {
        /* Closed when the peer has just handed over, with most bytes still to be sent again. */
        struct pollfd entries[] = {{.fd = fd, .events = POLLIN}, {.fd = reports[0], .events = POLLIN}};
        CHECK(poll(entries, 2, -1) > 0 && entries[1].revents == POLLIN);
        if (how == QUIT)
            quick_exit(0);
    } else {
        if (!blocks)
            CHECK(wait_for(how, set, fd, 0) & POLLIN);
        read_all(fd, &c, 1);
    }
    CHECK(close(fd) == 0 && close(set) == 0 && close(listener) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(close(go[i]) == 0 && close(reports[i]) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("%s: done\n", names[how]);
}

int main(void)
{
    for (size_t i = 0; i < TOTAL; i++)
        message[i] = i * 2654435761u >> 24;
    for (enum how how = POLL; how < QUIT; how++)
        send_while_waiting(how);
    /* A process that leaves in a hurry; the receiving process then becomes a child of this one. */
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t child = fork();
    if (child == 0)
        send_while_waiting(QUIT);
    for (int i = 0, status; i < 2; i++)
        CHECK(wait(&status) > 0 && status == 0);
    printf("%s: done\n", names[QUIT]);
    return 0;
}
