/*
 * A connection of which bytes are unread, and whose sender has ended its direction, is given to another program, or would be,
 * and this one goes on with it: neither takes what is the other's, and the peer sees the end when the last of them leaves.
 */
#include "common.h"
#include <spawn.h>

extern char **environ;

static const size_t size = 100000;

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

/* Sends, ends its direction, and says on `told` how much came back until the end. */
static int begin_peer(int *told)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), sent[2], ends[2];
    char c;
    CHECK(pipe2(sent, O_CLOEXEC) == 0 && pipe2(ends, O_CLOEXEC) == 0);
    if (fork() == 0) {
        char *bytes = malloc(size), answer[64];
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), came = 0;
        ssize_t n;
        close(listener), close(sent[0]), close(ends[0]);
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        for (int i = 0; i < 32; i++) {
            write_all(fd, "w", 1);
            read_all(fd, &c, 1);
        }
        for (size_t at = 0; at < size; at++)
            bytes[at] = byte_at(at);
        write_all(fd, bytes, size);
        CHECK(shutdown(fd, SHUT_WR) == 0);
        write_all(sent[1], "s", 1);
        while ((n = read(fd, answer, sizeof answer)) > 0)
            came += n;
        dprintf(ends[1], "%d bytes, then %s", came, n == 0 ? "the end" : strerrorname_np(errno));
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0 && close(sent[1]) == 0 && close(ends[1]) == 0);
    for (int i = 0; i < 32; i++) {
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    check_on_ring(fd);
    read_all(sent[0], &c, 1);
    close(sent[0]);
    *told = ends[0];
    return fd;
}

static void show_peer(int told)
{
    char text[64] = "";
    CHECK(read(told, text, sizeof text - 1) > 0);
    printf("the peer got %s\n", text);
    close(told);
    while (wait(NULL) > 0)
        ;
}

static void show_rest(const char *who, int fd, size_t from)
{
    static char bytes[65536];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < n; i++)
            CHECK(bytes[i] == byte_at(from++));
    printf("%s got up to %zu, then %s\n", who, from, n == 0 ? "the end" : strerrorname_np(errno));
}

/* The message that is to pass it finds no room. */
static void not_passed(void)
{
    int told, fd = begin_peer(&told), ends[2];
    static char junk[4096];
    char c = 'p';
    struct iovec iov = {&c, 1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {NULL, 0, &iov, 1, &control, sizeof control, 0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    set_nonblocking(ends[0], 1);
    while (write(ends[0], junk, sizeof junk) > 0)
        ;
    while (write(ends[0], junk, 1) > 0)
        ;
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    say("passed", sendmsg(ends[0], &message, 0));
    show_rest("this one", fd, 0);
    close(fd), close(ends[0]), close(ends[1]);
    show_peer(told);
}

/* A child writes to it while this one reads on. */
static void written_to(int by_vfork)
{
    int told, fd = begin_peer(&told), status;
    char head[1000];
    read_all(fd, head, sizeof head);
    pid_t child = by_vfork ? vfork() : fork();
    if (child == 0) {
        dup2(fd, 1);
        execlp("sh", "sh", "-c", "echo from a child", NULL);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    show_rest("this one", fd, sizeof head);
    close(fd);
    show_peer(told);
}

/* The same memory serves for the actions of two, and is never given back. */
static void by_the_same_actions(posix_spawn_file_actions_t *actions)
{
    int told, fd = begin_peer(&told), status;
    pid_t child;
    CHECK(posix_spawn_file_actions_init(actions) == 0 && posix_spawn_file_actions_adddup2(actions, fd, 0) == 0);
    fflush(stdout);
    CHECK(posix_spawnp(&child, "sh", actions, NULL, (char *[]){"sh", "-c", "wc -c; echo done >&0", NULL}, environ) == 0);
    close(fd);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    show_peer(told);
}

/* This process becomes another program, and has it in an epoll set that ends with it. */
static void in_a_set(void)
{
    char number[16];
    int told;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = begin_peer(&told), set = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {EPOLLIN, {.fd = fd}};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, -1) == 1);
        sprintf(number, "%d", fd);
        execl("/proc/self/exe", "given", number, NULL);
        _exit(9);
    }
    CHECK(waitpid(child, NULL, 0) == child);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        show_rest("the new program", atoi(argv[1]), 0);
        return 0;
    }
    posix_spawn_file_actions_t actions;
    signal(SIGPIPE, SIG_IGN);
    not_passed();
    written_to(0);
    written_to(1);
    by_the_same_actions(&actions);
    by_the_same_actions(&actions);
    in_a_set();
    return 0;
}
