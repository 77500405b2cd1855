/*
 * A connection with unread bytes, whose sender has ended its direction, is handed to another program, or the attempt fails and this
 * program goes on with it: neither takes the other's bytes, and the peer sees the end when the last holder leaves.
 */
#include "common.h"
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

enum { size = 100000, FORKS = 100 };

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

/* Sends, ends its direction, and writes to `reports` how many bytes came back until the end. */
static int begin_peer(int *reports)
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
        warm_up_asking(fd);
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
    warm_up_answering(fd);
    check_on_ring(fd);
    read_all(sent[0], &c, 1);
    close(sent[0]);
    *reports = ends[0];
    return fd;
}

static void show_peer(int reports)
{
    char text[64] = "";
    CHECK(read(reports, text, sizeof text - 1) > 0);
    printf("the peer got %s\n", text);
    close(reports);
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

static ssize_t send_fd(int by, int fd)
{
    char c = 'p', space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    return sendmsg(by, &message, 0);
}

/* Returns -1 if the other side has left. */
static int receive_fd(int by)
{
    int fd;
    char c, space[CMSG_SPACE(sizeof fd)];
    struct iovec piece = {&c, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(by, &message, 0) != 1)
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* The message that would pass it finds no room. */
static void not_passed(void)
{
    int reports, fd = begin_peer(&reports), ends[2];
    static char junk[4096];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    set_nonblocking(ends[0], 1);
    while (write(ends[0], junk, sizeof junk) > 0)
        ;
    while (write(ends[0], junk, 1) > 0)
        ;
    say("passed", send_fd(ends[0], fd));
    show_rest("this one", fd, 0);
    close(fd), close(ends[0]), close(ends[1]);
    show_peer(reports);
}

/* A child writes to it while this process goes on reading. */
static void written_to(int by_vfork)
{
    int reports, fd = begin_peer(&reports), status;
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
    show_peer(reports);
}

static pid_t start(posix_spawn_file_actions_t *actions, char *command)
{
    pid_t child;
    fflush(stdout);
    CHECK(posix_spawnp(&child, "sh", actions, NULL, (char *[]){"sh", "-c", command, NULL}, environ) == 0);
    return child;
}

static void join(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* The same memory serves two rounds of actions, without being destroyed. */
static void by_the_same_actions(posix_spawn_file_actions_t *actions)
{
    int reports, fd = begin_peer(&reports);
    CHECK(posix_spawn_file_actions_init(actions) == 0 && posix_spawn_file_actions_adddup2(actions, fd, 0) == 0);
    pid_t child = start(actions, "wc -c; echo done >&0");
    close(fd);
    join(child);
    show_peer(reports);
}

/* The C library accepts for the actions no number above this limit, which is a common one. */
static void below_a_soft_limit(posix_spawn_file_actions_t *actions)
{
    struct rlimit before, low, after;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    if (low.rlim_cur > 1024)
        low.rlim_cur = 1024;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    by_the_same_actions(actions);
    CHECK(getrlimit(RLIMIT_NOFILE, &after) == 0 && after.rlim_cur == low.rlim_cur);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

/* The program gets it both for reading and for writing. */
static void by_two_actions(void)
{
    posix_spawn_file_actions_t actions;
    int reports, fd = begin_peer(&reports);
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    pid_t child = start(&actions, "wc -c");
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    join(child);
    write_all(fd, "and a word of this one", 22);
    close(fd);
    show_peer(reports);
}

/* The same in a child of vfork, which gets the second number when a relay has taken all unread bytes. */
static void by_two_numbers(void)
{
    struct stat ours, theirs;
    int reports, unread, fd = begin_peer(&reports);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, 0);
        fstat(fd, &ours), fstat(0, &theirs);
        while (theirs.st_ino != ours.st_ino && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0)
            ;
        dup2(fd, 1);
        execlp("wc", "wc", "-c", NULL);
        _exit(9);
    }
    close(fd);
    join(child);
    show_peer(reports);
}

/* A program first gets it as its standard output, and duplicates that to its standard input. */
static void by_its_output(const char *method)
{
    posix_spawn_file_actions_t actions;
    char command[64];
    int reports, fd = begin_peer(&reports), shown = fcntl(1, F_DUPFD_CLOEXEC, 3), is_shell = strcmp(method, "shell") == 0;
    pid_t child;
    /* A shell accepts only numbers of one digit. */
    CHECK(shown >= 0 && fd < 9 && fcntl(fd, F_SETFD, is_shell ? 0 : FD_CLOEXEC) == 0);
    printf("standard input from standard output, %s:\n", method);
    fflush(stdout);
    if (is_shell) {
        snprintf(command, sizeof command, "exec 9>&1 >&%d %d>&-; wc -c <&1 >&9", fd, fd);
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        child = start(&actions, command);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    } else if (strcmp(method, "posix_spawn") == 0) {
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, 1, 0) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, shown, 1) == 0);
        child = start(&actions, "wc -c");
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    } else if ((child = strcmp(method, "vfork") == 0 ? vfork() : fork()) == 0) {
        dup2(fd, 1);
        if (strcmp(method, "next program") == 0) {
            dup2(shown, 9);
            execlp("sh", "sh", "-c", "wc -c <&1 >&9", NULL);
        }
        dup2(1, 0);
        dup2(shown, 1);
        execlp("wc", "wc", "-c", NULL);
        _exit(9);
    }
    close(fd), close(shown);
    join(child);
    show_peer(reports);
}

enum other { DUPLICATED, OPENED, IN_PLACE };

/* Another file takes the number that stood for the socket, and is duplicated to the standard input. */
static void by_another_file(enum other other)
{
    posix_spawn_file_actions_t actions;
    int reports, fd = begin_peer(&reports), shown = fcntl(1, F_DUPFD_CLOEXEC, 3), nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(shown >= 0 && nothing >= 0 && posix_spawn_file_actions_init(&actions) == 0);
    int number = other == IN_PLACE ? fd : 1;
    if (number == 1)
        CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    if (other == OPENED)
        CHECK(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_RDWR, 0) == 0);
    else
        CHECK(posix_spawn_file_actions_adddup2(&actions, nothing, number) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, number, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, shown, 1) == 0);
    join(start(&actions, "wc -c"));
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    show_rest("this one", fd, 0);
    close(fd), close(shown), close(nothing);
    show_peer(reports);
}

/* More forked children have held it than a list has room for, and have ended without closing it. */
static void held_by_many(void)
{
    int reports, fd = begin_peer(&reports);
    fflush(stdout);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        join(child);
    }
    close(fd);
    show_peer(reports);
}

/* The last holder ends without closing it. */
static void ended_with_the_last(void)
{
    int reports, go[2], fd = begin_peer(&reports);
    char c;
    CHECK(pipe2(go, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        _exit(read(go[0], &c, 1) != 0);
    }
    close(fd), close(go[0]), close(go[1]);
    join(child);
    show_peer(reports);
}

/* A program has it as its output and, through a relay, as its input, of which it reads a byte. It answers when the input is closed. */
static void answered_after_the_input(void)
{
    int reports, fd = begin_peer(&reports);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 1), dup2(fd, 0), close(fd);
        execlp("sh", "sh", "-c", "dd bs=1 count=1 of=/dev/null 2>/dev/null; exec </dev/null; cat /proc/self/stat >/dev/null; echo answer",
               NULL);
        _exit(9);
    }
    close(fd);
    join(child);
    show_peer(reports);
}

/* The program ends with all but one byte unread, after this process has closed it. */
static void left_with_a_reset(void)
{
    posix_spawn_file_actions_t actions;
    int reports, go[2], fd = begin_peer(&reports);
    CHECK(pipe2(go, O_CLOEXEC) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, go[0], 5) == 0);
    pid_t child = start(&actions, "dd bs=1 count=1 >/dev/null 2>&1; read word <&5");
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    close(fd);
    write_all(go[1], "\n", 1);
    join(child);
    show_peer(reports);
    close(go[0]), close(go[1]);
}

static void *make_actions(void *enough)
{
    posix_spawn_file_actions_t actions;
    while (!atomic_load((atomic_int *)enough))
        CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_destroy(&actions) == 0);
    return NULL;
}

/* A thread is adding actions whenever a forked child, which closes the socket, starts. */
static void forked_meanwhile(void)
{
    posix_spawn_file_actions_t actions;
    atomic_int enough = 0;
    pthread_t thread;
    int reports, fd = begin_peer(&reports);
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
    join(start(&actions, "wc -c"));
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    CHECK(pthread_create(&thread, NULL, make_actions, &enough) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(close(fd));
        join(child);
    }
    atomic_store(&enough, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    close(fd);
    show_peer(reports);
}

/* Reads everything until the end, and answers. */
static void take_all(int fd, FILE *stream)
{
    static char bytes[size + 1];
    size_t len = 0;
    ssize_t n;
    while ((n = stream ? (ssize_t)fread(bytes + len, 1, 1000, stream) : read(fd, bytes + len, 1000)) > 0)
        CHECK((len += n) <= size);
    CHECK(n == 0 && len == size && (!stream || !ferror(stream)));
    for (size_t at = 0; at < size; at++)
        CHECK(bytes[at] == byte_at(at));
    write_all(fd, "answer", 6);
    close(fd);
}

enum giving { BY_MESSAGE, BY_STDIO, BY_STDIO_IN_A_SET };

/* No relay can begin without descriptors, or replace a socket that is in a set. Refused or not, all bytes come, either to the new holder or to this process. */
static void where_none_can_begin(enum giving how)
{
    int reports, ends[2];
    fflush(stdout);
    pid_t giver = fork();
    if (giver > 0) {
        join(giver);
        return;
    }
    CHECK(giver == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        close(ends[0]);
        int got = receive_fd(ends[1]);
        if (got >= 0)
            take_all(got, NULL);
        _exit(0);
    }
    int fd = begin_peer(&reports);
    struct rlimit none = {0, 0};
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    if (how == BY_STDIO_IN_A_SET) {
        int set = epoll_create1(EPOLL_CLOEXEC);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, -1) == 1);
    } else {
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    FILE *stream = how != BY_MESSAGE ? fdopen(fd, "r") : NULL;
    int is_given = how == BY_MESSAGE && send_fd(ends[0], fd) == 1;
    CHECK(stream || is_given || errno == EBUSY);
    if (is_given)
        close(fd);
    else
        take_all(fd, stream);
    close(ends[0]);
    printf("no relay, method %d: ", how);
    show_peer(reports);
    exit(0);
}

/* This process becomes another program, and has it in an epoll set that ends with it. */
static void in_a_set(void)
{
    char number[16];
    int reports;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = begin_peer(&reports), set = epoll_create1(EPOLL_CLOEXEC);
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
    below_a_soft_limit(&actions);
    where_none_can_begin(BY_MESSAGE);
    where_none_can_begin(BY_STDIO);
    where_none_can_begin(BY_STDIO_IN_A_SET);
    forked_meanwhile();
    by_two_actions();
    by_two_numbers();
    by_its_output("fork");
    by_its_output("vfork");
    by_its_output("posix_spawn");
    by_its_output("shell");
    by_its_output("next program");
    by_another_file(DUPLICATED);
    by_another_file(OPENED);
    by_another_file(IN_PLACE);
    held_by_many();
    ended_with_the_last();
    answered_after_the_input();
    left_with_a_reset();
    in_a_set();
    return 0;
}
