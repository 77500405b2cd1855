/*
 * A program inherits a connection with unread bytes, without being given it, while the program that has started it also holds it.
 * Its sender has ended its direction, is gone, was killed, or makes no call. All bytes arrive, at whichever of the two asks
 * first, and then the end.
 */
#include "common.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>

extern char **environ;

enum sender { HALF, EXITED, KILLED, SILENT, SENDERS };
static const char *const senders[SENDERS] = {"half-closed", "exited", "killed", "silent"};

enum method { SYSTEM, POPEN, SPAWN, FORK, CLEARED, VFORK, CLOSING, EXEC, METHODS };
static const char *const methods[METHODS] = {"system", "popen", "posix_spawn", "fork", "fork, then inheritable",
                                        "vfork", "vfork, all others closed", "exec"};

/* Number of bytes that can be sent before anybody reads. */
static const size_t fits = 100 << 10;

static char program[PATH_MAX];

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

/* A sender: `reports` carries its reports, and it continues when `go` is closed. */
struct peer {
    pid_t pid;
    int reports, go;
};

static void send_and(struct sockaddr_in *address, size_t size, enum sender sender, int reports, int go)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *bytes = malloc(size), answer[64], c;
    ssize_t n;
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    warm_up_asking(fd);
    for (size_t at = 0; at < size; at++)
        bytes[at] = byte_at(at);
    write_all(fd, bytes, size);
    if (sender == HALF)
        CHECK(shutdown(fd, SHUT_WR) == 0);
    if (sender == KILLED)
        raise(SIGKILL);
    if (sender == EXITED)
        exit(0);
    /* If more was sent than fits, nobody waits for it. */
    if (write(reports, "s", 1) < 0)
        CHECK(errno == EPIPE);
    if (sender == SILENT) {
        CHECK(read(go, &c, 1) == 0);
        raise(SIGKILL);
    }
    while ((n = read(fd, answer, sizeof answer)) > 0)
        dprintf(reports, "%.*s", (int)n, answer);
    exit(0);
}

/* Returns the connection, with unread bytes if they fit. */
static int begin_peer(struct peer *peer, size_t size, enum sender sender, int flags)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), reports[2], go[2];
    char c;
    CHECK(pipe2(reports, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
    fflush(stdout);
    peer->pid = fork();
    if (peer->pid == 0) {
        close(listener), close(reports[0]), close(go[1]);
        send_and(&address, size, sender, reports[1], go[0]);
    }
    int fd = accept4(listener, NULL, NULL, flags);
    CHECK(fd >= 0 && close(listener) == 0 && close(reports[1]) == 0 && close(go[0]) == 0);
    warm_up_answering(fd);
    check_on_ring(fd);
    peer->reports = reports[0], peer->go = go[1];
    /* Waits until it has come this far, or is gone. */
    if (size <= fits)
        CHECK(read(peer->reports, &c, 1) == (sender == HALF || sender == SILENT));
    return fd;
}

static void end_peer(struct peer *peer, int shows)
{
    char text[64] = "";
    if (shows) {
        while (read(peer->reports, text, sizeof text - 1) > 0)
            printf("the peer got %s\n", text);
    }
    close(peer->reports), close(peer->go);
    CHECK(waitpid(peer->pid, NULL, 0) == peer->pid);
}

/* Reads until the end. The end of a killed or silent sender is that of TCP, which depends on what it has read. */
static void read_rest(const char *who, int fd, size_t from, size_t size)
{
    static char bytes[65536];
    ssize_t n;
    while (from < size && (n = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < n; i++)
            CHECK(bytes[i] == byte_at(from++));
    printf("%s: up to %zu of %zu\n", who, from, size);
    fflush(stdout);
}

static void end_of(int fd)
{
    char c;
    ssize_t n = read(fd, &c, 1);
    printf("then %s\n", n == 0 ? "the end" : n > 0 ? "more" : "an error");
    fflush(stdout);
}

static void join(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("it ended with %d\n", status);
}

static void sum_up(int fd, unsigned long *len, unsigned long *sum)
{
    unsigned char some[777];
    ssize_t n;
    while ((n = read(fd, some, sizeof some)) > 0) {
        *len += n;
        for (ssize_t i = 0; i < n; i++)
            *sum += some[i];
    }
}

/* The actions of the new program. */
static int successor(char **argv)
{
    const char *what = argv[1];
    int fd = atoi(argv[2]);
    size_t from = strtoul(argv[3], NULL, 10), size = strtoul(argv[4], NULL, 10);
    if (!strcmp(what, "read"))
        read_rest("the new program", fd, from, size);
    if (!strcmp(what, "end")) {
        read_rest("the new program", fd, from, size);
        end_of(fd);
    }
    if (!strcmp(what, "silent")) {
        /* The sender is killed once this program has started. */
        close(atoi(argv[5]));
        read_rest("the new program", fd, from, size);
    }
    if (!strcmp(what, "part")) {
        char some[300], next[16];
        read_all(fd, some, sizeof some);
        for (size_t at = 0; at < sizeof some; at++)
            CHECK(some[at] == byte_at(from + at));
        sprintf(next, "%zu", from + sizeof some);
        /* Another program that a shell becomes, and one that is started beside it. */
        char command[PATH_MAX + 128];
        sprintf(command, "exec %s read-some %d %s %zu", argv[0], fd, next, size);
        CHECK(system(command) == 0);
        sprintf(next, "%zu", from + 2 * sizeof some);
        execl(argv[0], argv[0], "end", argv[2], next, argv[4], NULL);
        return 9;
    }
    if (!strcmp(what, "read-some")) {
        char some[300];
        CHECK(recv(fd, some, sizeof some, MSG_WAITALL) == sizeof some);
        for (size_t at = 0; at < sizeof some; at++)
            CHECK(some[at] == byte_at(from + at));
    }
    if (!strcmp(what, "look")) {
        static char bytes[4096];
        int unread;
        struct pollfd entry = {fd, POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        CHECK(poll(&entry, 1, -1) == 1 && (entry.revents & POLLIN));
        CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set));
        CHECK(ioctl(fd, FIONREAD, &unread) == 0);
        printf("unread: %d\n", unread);
        CHECK(recv(fd, bytes, 100, MSG_PEEK) == 100);
        for (size_t at = 0; at < 100; at++)
            CHECK(bytes[at] == byte_at(from + at));
        struct iovec pieces[] = {{bytes, 10}, {bytes + 10, 190}};
        CHECK(readv(fd, pieces, 2) == 200);
        for (size_t at = 0; at < 200; at++)
            CHECK(bytes[at] == byte_at(from + at));
        CHECK(recv(fd, bytes, size, MSG_WAITALL) == (ssize_t)(size - 200));
        for (size_t at = 200; at < size; at++)
            CHECK(bytes[at - 200] == byte_at(from + at));
        end_of(fd);
        CHECK(poll(&entry, 1, -1) == 1 && (entry.revents & POLLIN));
    }
    if (!strcmp(what, "watch")) {
        struct epoll_event event = {EPOLLIN, {.fd = fd}};
        int set = epoll_create1(0);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.fd == fd && (event.events & EPOLLIN));
        read_rest("in a set", fd, from, size);
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && (event.events & EPOLLIN));
        end_of(fd);
    }
    if (!strcmp(what, "stream")) {
        static char bytes[65536];
        FILE *stream = fdopen(fd, "r");
        CHECK(stream && size <= sizeof bytes && fread(bytes, 1, sizeof bytes, stream) == size && feof(stream));
        for (size_t at = 0; at < size; at++)
            CHECK(bytes[at] == byte_at(from + at));
        printf("as a stream: %zu\n", size);
    }
    if (!strcmp(what, "close"))
        for (int number = 3; number < 20000; number++)
            close(number);
    if (!strcmp(what, "range"))
        CHECK(close_range(3, ~0u, 0) == 0);
    if (!strcmp(what, "write"))
        write_all(fd, "hello from the new program", 26);
    if (!strcmp(what, "leave")) {
        /* A program without the library. */
        execle("/bin/true", "true", NULL, (char *[]){NULL});
        return 9;
    }
    if (!strcmp(what, "sum")) {
        unsigned long len = 0, sum = 0;
        sum_up(fd, &len, &sum);
        printf("%lu %lu\n", len, sum);
    }
    if (!strcmp(what, "turns")) {
        int to = atoi(argv[5]), by = atoi(argv[6]);
        char some[1000], c;
        for (size_t at = from; at < size; at += 2 * sizeof some) {
            CHECK(read(by, &c, 1) == 1);
            CHECK(recv(fd, some, sizeof some, MSG_WAITALL) == sizeof some);
            for (size_t i = 0; i < sizeof some; i++)
                CHECK(some[i] == byte_at(at + i));
            write_all(to, "t", 1);
        }
    }
    return 0;
}

static void inherit(enum method method, enum sender sender, size_t size)
{
    struct peer peer;
    char command[PATH_MAX + 128], line[256], number[16], length[32], go[16];
    int flags = method == CLEARED || method == CLOSING ? SOCK_CLOEXEC : 0, status;
    printf("%s, %s, %zu\n", methods[method], senders[sender], size);
    fflush(stdout);
    pid_t giver = fork();
    if (giver > 0) {
        join(giver);
        return;
    }
    int fd = begin_peer(&peer, size, sender, flags);
    if (sender == SILENT)
        CHECK(fcntl(peer.go, F_SETFD, 0) == 0);
    sprintf(number, "%d", fd), sprintf(length, "%zu", size), sprintf(go, "%d", peer.go);
    char *argv[] = {program, sender == HALF ? "end" : sender == SILENT ? "silent" : "read", number, "0", length, go, NULL};
    sprintf(command, "%s %s %s 0 %s %s", program, argv[1], number, length, go);
    pid_t child = -1;
    switch (method) {
    case SYSTEM:
        CHECK(system(command) == 0);
        break;
    case POPEN: {
        FILE *stream = popen(command, "r");
        while (fgets(line, sizeof line, stream))
            printf("%s", line);
        CHECK(pclose(stream) == 0);
        break;
    }
    case SPAWN:
        CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
        break;
    case EXEC:
        execv(program, argv);
        _exit(9);
    case VFORK:
    case CLOSING:
        child = vfork();
        if (child == 0) {
            if (method == CLOSING) {
                fcntl(fd, F_SETFD, 0);
                close_range((fd > peer.go ? fd : peer.go) + 1, ~0u, 0);
            }
            execv(program, argv);
            _exit(9);
        }
        break;
    default:
        child = fork();
        if (child == 0) {
            if (method == CLEARED)
                fcntl(fd, F_SETFD, 0);
            execv(program, argv);
            _exit(9);
        }
        break;
    }
    if (child > 0)
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    fflush(stdout);
    close(fd);
    end_peer(&peer, 0);
    exit(0);
}

/* The new program uses the connection that it inherits in another way. */
static void with(const char *what, size_t size, int forks)
{
    struct peer peer;
    char number[16], length[32];
    int fd = begin_peer(&peer, size, HALF, 0);
    printf("%s\n", what);
    fflush(stdout);
    sprintf(number, "%d", fd), sprintf(length, "%zu", size);
    char *argv[] = {program, (char *)what, number, "0", length, NULL};
    pid_t child;
    if (!forks) {
        CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
    } else if ((child = fork()) == 0) {
        execv(program, argv);
        _exit(9);
    }
    join(child);
    if (!strcmp(what, "close") || !strcmp(what, "range") || !strcmp(what, "write") || !strcmp(what, "leave"))
        read_rest("this one", fd, 0, size);
    end_of(fd);
    close(fd);
    end_peer(&peer, 1);
}

/* Both receive in turns, 1000 bytes each. */
static void in_turns(int forks)
{
    enum { size = 60000 };
    struct peer peer;
    int fd = begin_peer(&peer, size, HALF, 0), there[2], back[2];
    char number[16], to[16], by[16], some[1000], c;
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    sprintf(number, "%d", fd), sprintf(to, "%d", back[1]), sprintf(by, "%d", there[0]);
    char *argv[] = {program, "turns", number, "0", "60000", to, by, NULL};
    pid_t child;
    if (!forks) {
        CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
    } else if ((child = fork()) == 0) {
        execv(program, argv);
        _exit(9);
    }
    for (size_t at = 0; at < size; at += 2 * sizeof some) {
        write_all(there[1], "t", 1);
        CHECK(read(back[0], &c, 1) == 1);
        CHECK(recv(fd, some, sizeof some, MSG_WAITALL) == sizeof some);
        for (size_t i = 0; i < sizeof some; i++)
            CHECK(some[i] == byte_at(at + sizeof some + i));
    }
    printf("in turns: %d\n", size);
    end_of(fd);
    join(child);
    close(fd), close(there[0]), close(there[1]), close(back[0]), close(back[1]);
    end_peer(&peer, 1);
}

static int count_numbers(void)
{
    int count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* No program is started: this one continues unchanged. */
static void failed(void)
{
    struct peer peer;
    int fd = begin_peer(&peer, 3000, HALF, 0), before = count_numbers();
    pid_t child;
    char *argv[] = {"nothing", NULL};
    say("execv", execv("/nonexistent/nothing", argv));
    printf("posix_spawn: %s\n", strerror(posix_spawn(&child, "/nonexistent/nothing", NULL, NULL, argv, environ)));
    CHECK(before == count_numbers() && fcntl(fd, F_GETFD) == 0);
    if ((child = vfork()) == 0) {
        execv("/nonexistent/nothing", argv);
        _exit(3);
    }
    join(child);
    CHECK(before == count_numbers() && fcntl(fd, F_GETFD) == 0);
    read_rest("this one", fd, 0, 3000);
    end_of(fd);
    close(fd);
    end_peer(&peer, 1);
}

/* Once everything has been received, a program that starts later gets nothing besides the socket. */
static void nothing_left(void)
{
    struct peer peer;
    int fd = begin_peer(&peer, 3000, HALF, 0);
    pid_t child;
    char *argv[] = {"ls", "/proc/self/fd", NULL}, *nothing[] = {NULL};
    CHECK(system("true") == 0);
    read_rest("this one", fd, 0, 3000);
    CHECK(posix_spawnp(&child, "ls", NULL, NULL, argv, nothing) == 0);
    join(child);
    close(fd);
    end_peer(&peer, 1);
}

static void *shells(void *argument)
{
    (void)argument;
    for (int i = 0; i < 20; i++)
        CHECK(system("true") == 0);
    return NULL;
}

/* Threads start programs while this one reads. */
static void meanwhile(void)
{
    pthread_t threads[3];
    for (int round = 0; round < 5; round++) {
        struct peer peer;
        int fd = begin_peer(&peer, 1 << 20, HALF, 0);
        for (int i = 0; i < 3; i++)
            CHECK(pthread_create(&threads[i], NULL, shells, NULL) == 0);
        read_rest("beside threads", fd, 0, 1 << 20);
        end_of(fd);
        for (int i = 0; i < 3; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        close(fd);
        end_peer(&peer, 1);
    }
}

struct reader {
    int fd;
    unsigned long len, sum;
};

static void *start_reader(void *argument)
{
    struct reader *reader = argument;
    char command[PATH_MAX + 64];
    sprintf(command, "%s sum %d 0 0", program, reader->fd);
    FILE *stream = popen(command, "r");
    CHECK(stream && fscanf(stream, "%lu %lu", &reader->len, &reader->sum) == 2 && pclose(stream) == 0);
    return NULL;
}

/* Threads start programs that receive at the same time as this one, while the sender continues: each byte comes once. */
static void all_at_once(void)
{
    enum { size = 1 << 20, READERS = 4 };
    for (int round = 0; round < 10; round++) {
        struct peer peer;
        struct reader readers[READERS];
        pthread_t threads[READERS];
        int fd = begin_peer(&peer, size, round % 2 ? HALF : KILLED, 0);
        unsigned long len = 0, sum = 0, right = 0;
        for (int i = 0; i < READERS; i++) {
            readers[i] = (struct reader){fd, 0, 0};
            CHECK(pthread_create(&threads[i], NULL, start_reader, &readers[i]) == 0);
        }
        sum_up(fd, &len, &sum);
        for (int i = 0; i < READERS; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
            len += readers[i].len;
            sum += readers[i].sum;
        }
        for (size_t at = 0; at < size; at++)
            right += (unsigned char)byte_at(at);
        printf("at once: %lu bytes, %s\n", len, sum == right ? "the right ones" : "others");
        close(fd);
        end_peer(&peer, 1);
    }
}

/* Files that are not rests, whatever they contain, change nothing. */
static void forged(int how)
{
    struct {
        char magic[16];
        uint64_t cookie, len;
        char bytes[64];
    } file = {"seekwire rest 1\n", 0, 64, "these were never sent"};
    struct peer peer;
    int fd = begin_peer(&peer, 500, HALF, 0), seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
    socklen_t len = sizeof file.cookie;
    char number[16];
    CHECK(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &file.cookie, &len) == 0);
    int forged = memfd_create("seekwire-rest", MFD_ALLOW_SEALING);
    if (how == 0)
        seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
    if (how == 1)
        file.len = 65;
    if (how == 2)
        file.len = UINT64_MAX - 31;
    if (how == 3)
        file.cookie++;
    if (how == 4)
        file.magic[9]++;
    CHECK(write(forged, &file, how == 5 ? 20 : sizeof file) > 0 && fcntl(forged, F_ADD_SEALS, seals) == 0);
    sprintf(number, "%d", fd);
    char *argv[] = {program, "end", number, "0", "500", NULL};
    pid_t child;
    CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
    join(child);
    close(forged), close(fd);
    end_peer(&peer, 1);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1 << 10, 100 << 10, 3 << 19};
    if (argc > 1)
        return successor(argv);
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    signal(SIGPIPE, SIG_IGN);
    for (enum method method = 0; method < METHODS; method++)
        for (enum sender sender = 0; sender < SENDERS; sender++)
            for (int i = 0; i < 3; i++)
                if (sender != SILENT || sizes[i] <= fits)
                    inherit(method, sender, sizes[i]);
    for (int forks = 0; forks < 2; forks++) {
        with("part", 5000, forks);
        with("look", 3000, forks);
        with("watch", 30000, forks);
        with("stream", 30000, forks);
        with("close", 30000, forks);
        with("range", 30000, forks);
        with("write", 30000, forks);
        with("leave", 30000, forks);
        in_turns(forks);
    }
    failed();
    nothing_left();
    meanwhile();
    all_at_once();
    for (int how = 0; how < 6; how++)
        forged(how);
    return 0;
}
