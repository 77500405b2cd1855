/* Connections that fall back to TCP because they leave the library's sight: passed on, inherited, used by libc itself, or with
   operations that only the kernel has. */
#include "common.h"
#include <spawn.h>

extern char **environ;

/* Waits for an answer since before the other end is given away, and takes part in that while it waits. */
struct answer {
    pthread_t thread;
    int fd;
    size_t len;
    ssize_t got;
    char bytes[32];
};

static void *get_answer(void *argument)
{
    struct answer *answer = argument;
    answer->got = recv(answer->fd, answer->bytes, answer->len, MSG_WAITALL);
    return NULL;
}

static void await_answer(struct answer *answer, int fd, size_t len)
{
    *answer = (struct answer){.fd = fd, .len = len};
    CHECK(pthread_create(&answer->thread, NULL, get_answer, answer) == 0);
}

static void show_answer(struct answer *answer)
{
    pthread_join(answer->thread, NULL);
    say("answer", answer->got);
    printf("%s\n", answer->bytes);
}

static void passed(void)
{
    int a, b, ends[2];
    char buf[16];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    pair(&a, &b);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(a), close(b);
        struct iovec iov = {buf, 1};
        struct msghdr message = {NULL, 0, &iov, 1, &control, sizeof control, 0};
        CHECK(recvmsg(ends[1], &message, 0) == 1);
        int fd = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
        read_all(fd, buf, 4);
        write_all(fd, "pong", 4);
        exit(0);
    }
    struct iovec iov = {buf, 1};
    struct msghdr message = {NULL, 0, &iov, 1, &control, sizeof control, 0};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &b, sizeof b);
    write_all(a, "pi", 2);
    struct answer answer;
    await_answer(&answer, a, 4);
    say("passed", sendmsg(ends[0], &message, 0));
    close(b);
    write_all(a, "ng", 2);
    show_answer(&answer);
    say("end", read(a, buf, 4));
    CHECK(waitpid(child, NULL, 0) == child);
    close(a), close(ends[0]), close(ends[1]);
}

/* A program without the library gets the connection as its standard input and output. */
static void inherited(int how)
{
    int a, b;
    char buf[32] = "";
    pid_t child;
    pair(&a, &b);
    fcntl(a, F_SETFD, FD_CLOEXEC);
    fflush(stdout);
    write_all(a, "to a program ", 13);
    struct answer answer;
    await_answer(&answer, a, 21);
    if (how == 0) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, b, 0);
        posix_spawn_file_actions_adddup2(&actions, b, 1);
        posix_spawn_file_actions_addclose(&actions, b);
        CHECK(posix_spawnp(&child, "cat", &actions, NULL, (char *[]){"cat", NULL}, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
    } else {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        child = how == 1 ? fork() : vfork();
        if (child == 0) {
            dup2(b, 0), dup2(b, 1), close(b);
            if (how == 1)
                execlp("cat", "cat", "-", NULL);
            else
                execvp("cat", (char *[]){"cat", NULL});
            _exit(9);
        }
        /* Waits until it has become the other program. */
        close(ends[1]);
        CHECK(read(ends[0], buf, 1) == 0);
        close(ends[0]);
    }
    close(b);
    write_all(a, "and back", 8);
    show_answer(&answer);
    shutdown(a, SHUT_WR);
    say("end", read(a, buf, 1));
    CHECK(waitpid(child, NULL, 0) == child);
    close(a);
}

static void lists_of_arguments(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/echo", "echo", "1", "2", "3", "4", "5", "6", "7", "8", NULL);
        _exit(9);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    child = fork();
    if (child == 0) {
        char *environment[] = {"NAME=value", NULL};
        execle("/bin/sh", "sh", "-c", "echo $NAME $0 $1 $2 $3 $4", "a", "b", "c", "d", "e", NULL, environment);
        _exit(9);
    }
    CHECK(waitpid(child, NULL, 0) == child);
}

static void stdio(void)
{
    int a, b;
    char line[32];
    pair(&a, &b);
    dprintf(b, "%s %d %.2f\n", "printed", 1, 2.5);
    say("printed", recv(a, line, 15, MSG_WAITALL));
    printf("%.15s", line);
    FILE *file = fdopen(b, "r+");
    CHECK(file != NULL);
    write_all(a, "a line\nanother\n", 15);
    CHECK(fgets(line, sizeof line, file) != NULL);
    printf("%s", line);
    CHECK(fgets(line, sizeof line, file) != NULL);
    printf("%s", line);
    fprintf(file, "answer\n");
    fclose(file);
    say("answered", recv(a, line, 7, MSG_WAITALL));
    printf("%.7s", line);
    say("end", read(a, line, 1));
    close(a);
}

static void out_of_band(void)
{
    int a, b;
    char buf[16] = "";
    pair(&a, &b);
    write_all(a, "abc", 3);
    CHECK(send(a, "!", 1, MSG_OOB) == 1);
    write_all(a, "def", 3);
    struct pollfd entry = {b, POLLPRI, 0};
    say("poll", poll(&entry, 1, -1));
    say("before the mark", recv(b, buf, 3, MSG_WAITALL));
    say("out of band", recv(b, buf, 1, MSG_OOB));
    say("after the mark", recv(b, buf, 3, MSG_WAITALL));
    printf("%.3s\n", buf);
    close(a), close(b);
}

static void by_the_kernel(void)
{
    int a, b, ends[2];
    char buf[16] = "";
    pair(&a, &b);
    CHECK(pipe(ends) == 0);
    write_all(a, "before", 6);
    CHECK(recv(b, buf, 6, MSG_PEEK) == 6);
    size_t moved = 0;
    while (moved < 6) {
        ssize_t n = splice(b, NULL, ends[1], NULL, 6 - moved, 0);
        CHECK(n > 0);
        moved += n;
    }
    read_all(ends[0], buf, 6);
    printf("%.6s\n", buf);
    write_all(a, "after", 5);
    say("after splice", read(b, buf, sizeof buf));
    int on = 1;
    say("an option for the kernel", setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    write_all(a, "more", 4);
    say("and more", read(b, buf, sizeof buf));
    close(a), close(b), close(ends[0]), close(ends[1]);
}

int main(void)
{
    passed();
    inherited(0);
    inherited(1);
    inherited(2);
    lists_of_arguments();
    stdio();
    out_of_band();
    by_the_kernel();
    return 0;
}
