/*
 * Another program gets a connection with unread bytes, and the sender does not send them again: it makes no call, has ended its
 * direction, has closed the socket, is gone, or has become another program. The new holder reads every byte, in order, and then
 * the end.
 */
#include "common.h"
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;

enum sender { SILENT, HALF, CLOSED, EXITED, KILLED, REPLACED, SENDERS };
static const char *const senders[SENDERS] = {"silent", "half-closed", "closed", "exited", "killed", "replaced"};

enum method { EXEC, EXEC_AS_INPUT, FORK, FORK_SAME_NUMBER, VFORK, SPAWN, PASSED, STREAM, METHODS };
static const char *const methods[METHODS] = {"exec", "exec as input", "fork", "fork, same number",
                                        "vfork", "posix_spawn", "passed", "fdopen"};

/* Number of bytes that can be sent before anybody reads. */
static const size_t fits = 100 << 10;

/* Pipes: `done` reports that the sender has come this far, `go` lets it continue. */
static int done[2], go[2];

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

/* Reads all and checks it; answers if the sender still reads. */
static int holder(int fd, size_t size, enum sender sender, int go_on)
{
    static char bytes[65536];
    size_t at = 0;
    for (;;) {
        if (at == size && sender == SILENT)
            write_all(go_on, "g", 1);
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n <= 0) {
            printf(", %zu bytes, end %s\n", at, n == 0 ? "clean" : strerrorname_np(errno));
            break;
        }
        for (ssize_t i = 0; i < n; i++)
            CHECK(bytes[i] == byte_at(at + i));
        at += n;
    }
    fflush(stdout);
    if (sender <= HALF)
        write_all(fd, "thanks", 6);
    return at == size + (sender == SILENT ? 4 : 0) ? 0 : 1;
}

static void send_and(struct sockaddr_in *address, size_t size, enum sender sender)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *bytes = malloc(size + 4), c;
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    warm_up_asking(fd);
    for (size_t at = 0; at < size + 4; at++)
        bytes[at] = byte_at(at);
    write_all(fd, bytes, size);
    if (sender == HALF)
        CHECK(shutdown(fd, SHUT_WR) == 0);
    if (sender == CLOSED)
        CHECK(close(fd) == 0);
    if (sender == REPLACED) {
        CHECK(dup2(go[0], 0) == 0 && dup2(done[1], 1) == 1);
        /* It reports through its standard output, and ends with its standard input. */
        execlp("sh", "sh", "-c", "echo done 2>/dev/null; exec cat >/dev/null", NULL);
        _exit(9);
    }
    if (sender == KILLED)
        raise(SIGKILL);
    if (sender == EXITED)
        exit(0);
    /* If more was sent than fits, nobody waits for it. */
    if (write(done[1], "d", 1) < 0)
        CHECK(errno == EPIPE);
    if (sender == SILENT) {
        CHECK(read(go[0], &c, 1) == 1);
        write_all(fd, bytes + size, 4);
        CHECK(shutdown(fd, SHUT_WR) == 0);
    }
    if (sender <= HALF) {
        char answer[8];
        read_all(fd, answer, 6);
        CHECK(read(fd, answer, 1) == 0 && close(fd) == 0);
    }
    exit(0);
}

static void pass_on(int fd, const char *program, enum method method, size_t size, enum sender sender)
{
    char number[16], length[32], kind[16], pipe_end[16];
    pid_t child = -1;
    int status, at = method == EXEC || method == FORK_SAME_NUMBER ? fd : 0;
    sprintf(number, "%d", at), sprintf(length, "%zu", size), sprintf(kind, "%d", sender), sprintf(pipe_end, "%d", go[1]);
    char *argv[] = {(char *)program, number, length, kind, pipe_end, NULL};
    switch (method) {
    case EXEC_AS_INPUT:
        CHECK(dup2(fd, 0) == 0 && close(fd) == 0);
        /* fallthrough */
    case EXEC:
        execv(program, argv);
        _exit(9);
    case FORK:
    case FORK_SAME_NUMBER:
    case VFORK:
        child = method == VFORK ? vfork() : fork();
        if (child == 0) {
            if (method != FORK_SAME_NUMBER)
                dup2(fd, 0);
            execv(program, argv);
            _exit(9);
        }
        break;
    case SPAWN: {
        posix_spawn_file_actions_t actions;
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
        CHECK(posix_spawn(&child, program, &actions, NULL, argv, environ) == 0);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
        break;
    }
    case PASSED: {
        int ends[2];
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        char c = 'p';
        struct iovec iov = {&c, 1};
        struct msghdr message = {NULL, 0, &iov, 1, &control, sizeof control, 0};
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        child = fork();
        if (child == 0) {
            close(fd), close(ends[0]);
            CHECK(recvmsg(ends[1], &message, 0) == 1);
            CHECK(dup2(*(int *)CMSG_DATA(CMSG_FIRSTHDR(&message)), 0) == 0);
            close(*(int *)CMSG_DATA(CMSG_FIRSTHDR(&message)));
            execv(program, argv);
            _exit(9);
        }
        control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
        CHECK(sendmsg(ends[0], &message, 0) == 1);
        close(ends[0]), close(ends[1]);
        break;
    }
    case STREAM: {
        FILE *file = fdopen(fd, "r+");
        size_t count = 0;
        int c;
        CHECK(file);
        for (;; count++) {
            if (count == size && sender == SILENT)
                write_all(go[1], "g", 1);
            if ((c = getc(file)) == EOF)
                break;
            CHECK((char)c == byte_at(count));
        }
        printf(", %zu bytes, end %s\n", count, ferror(file) ? strerrorname_np(errno) : "clean");
        fflush(stdout);
        if (sender <= HALF)
            write_all(fileno(file), "thanks", 6);
        exit(0);
    }
    default:
        abort();
    }
    CHECK(child > 0);
    close(fd), close(go[1]), close(go[0]);
    CHECK(waitpid(child, &status, 0) == child);
    exit(status != 0);
}

static void serve(int listener, const char *program, enum method method, size_t size, enum sender sender, pid_t client)
{
    int fd = accept(listener, NULL, NULL), status;
    char c;
    CHECK(fd > 2 && close(listener) == 0);
    warm_up_answering(fd);
    check_on_ring(fd);
    close(done[1]);
    /* Bytes that do not fit are sent while the new holder reads. */
    if (size <= fits) {
        if (sender == EXITED || sender == KILLED)
            CHECK(read(done[0], &c, 1) == 0);
        else
            CHECK(read(done[0], &c, 1) == 1);
    }
    (void)client, (void)status;
    pass_on(fd, program, method, size, sender);
}

static void try(const char *program, enum method method, size_t size, enum sender sender)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), status;
    printf("%s, %zu bytes, sender %s", methods[method], size, senders[sender]);
    fflush(stdout);
    CHECK(pipe(done) == 0 && pipe(go) == 0);
    fcntl(done[1], F_SETFD, FD_CLOEXEC);
    pid_t client = fork();
    if (client == 0) {
        close(listener), close(done[0]), close(go[1]);
        send_and(&address, size, sender);
    }
    pid_t server = fork();
    if (server == 0) {
        close(go[0]);
        go[0] = -1;
        serve(listener, program, method, size, sender, client);
    }
    close(listener), close(done[0]), close(done[1]), close(go[0]), close(go[1]);
    CHECK(waitpid(server, &status, 0) == server);
    if (status != 0)
        printf("holder: status %x\n", status);
    CHECK(waitpid(client, &status, 0) == client);
    if (sender == KILLED ? !WIFSIGNALED(status) : status != 0)
        printf("sender: status %x\n", status);
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &len) == 0 ? ntohs(address.sin_port) : -1;
}

/* A program without the library gets the socket for writing: no relay delays its writes. */
static void written_to(const char *program, int flags)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), status;
    char port[16], c;
    CHECK(pipe2(done, O_CLOEXEC) == 0);
    /* A relay would be a child of this process. */
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, flags != 0) == 0);
    pid_t client = fork();
    if (client == 0) {
        close(listener);
        send_and(&address, fits, HALF);
    }
    int fd = accept4(listener, NULL, NULL, flags);
    CHECK(fd > 2 && close(listener) == 0);
    warm_up_answering(fd);
    check_on_ring(fd);
    read_all(done[0], &c, 1);
    sprintf(port, "%d", port_of(fd));
    printf("written to, %s", flags ? "closed otherwise" : "kept");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 1);
        execl(program, program, port, NULL);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(holder(fd, fits, EXITED, -1) == 0);
    close(fd), close(done[0]), close(done[1]);
    CHECK(waitpid(client, &status, 0) == client && status == 0);
    CHECK(!flags || (wait(NULL) < 0 && errno == ECHILD));
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

/* A process gets a socket that is in an epoll set by two numbers in one message. */
static void passed_twice(void)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), ends[2], status;
    static char bytes[2000];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    char c = 'p';
    struct iovec iov = {&c, 1};
    struct msghdr message = {NULL, 0, &iov, 1, &control, sizeof control, 0};
    struct epoll_event event = {EPOLLIN, {0}};
    CHECK(pipe2(done, O_CLOEXEC) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t client = fork();
    if (client == 0) {
        close(listener), close(ends[0]), close(ends[1]);
        send_and(&address, sizeof bytes, HALF);
    }
    pid_t taker = fork();
    if (taker == 0) {
        int numbers[2];
        close(listener), close(ends[0]), close(done[0]), close(done[1]);
        CHECK(recvmsg(ends[1], &message, 0) == 1);
        memcpy(numbers, CMSG_DATA(&control.header), sizeof numbers);
        read_all(numbers[0], bytes, 1000);
        read_all(numbers[1], bytes + 1000, 1000);
        for (size_t at = 0; at < sizeof bytes; at++)
            CHECK(bytes[at] == byte_at(at));
        CHECK(read(numbers[0], &c, 1) == 0 && read(numbers[1], &c, 1) == 0);
        write_all(numbers[0], "tha", 3);
        write_all(numbers[1], "nks", 3);
        printf("all by two numbers\n");
        exit(0);
    }
    int numbers[2] = {accept(listener, NULL, NULL)}, set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(numbers[0] > 2 && close(listener) == 0);
    warm_up_answering(numbers[0]);
    check_on_ring(numbers[0]);
    read_all(done[0], &c, 1);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, numbers[0], &event) == 0 && (numbers[1] = dup(numbers[0])) > 2);
    control.header = (struct cmsghdr){CMSG_LEN(sizeof numbers), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), numbers, sizeof numbers);
    CHECK(sendmsg(ends[0], &message, 0) == 1);
    close(numbers[0]), close(numbers[1]), close(set), close(ends[0]), close(ends[1]), close(done[0]), close(done[1]);
    CHECK(waitpid(taker, &status, 0) == taker && status == 0);
    CHECK(waitpid(client, &status, 0) == client && status == 0);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        CHECK(port_of(1) == atoi(argv[1]));
        write_all(1, "thanks", 6);
        return 0;
    }
    static const size_t sizes[] = {1 << 10, 100 << 10, 1500 << 10, 20 << 20};
    if (argc == 5)
        return holder(atoi(argv[1]), atol(argv[2]), atoi(argv[3]), atoi(argv[4]));
    char self[PATH_MAX] = "", unaware[PATH_MAX + 16];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    sprintf(unaware, "%s.static", self);
    signal(SIGPIPE, SIG_IGN);
    if (argc == 1) {
        written_to(unaware, SOCK_CLOEXEC);
        written_to(unaware, 0);
        passed_twice();
    }
    for (int method = 0; method < METHODS; method++)
        for (int sender = 0; sender < SENDERS; sender++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                if (argc == 4 && (method != atoi(argv[1]) || sender != atoi(argv[2]) || i != (size_t)atoi(argv[3])))
                    continue;
                /* A program that may not know that it inherits it gets the unread bytes when the sender makes its next call,
                   if it does. */
                if (method == FORK_SAME_NUMBER && (sender == SILENT || (sender == KILLED && sizes[i] > fits)))
                    continue;
                /* Programs that load the library, and others that do not. */
                try(i % 2 ? unaware : self, method, sizes[i], sender);
            }
    return 0;
}
