/* The effect of signals on sleeping calls. */
#include "common.h"
#include <sys/sendfile.h>

static volatile sig_atomic_t caught;
static int fd_to_write = -1;

static void on_signal(int signal)
{
    (void)signal;
    caught++;
    if (fd_to_write >= 0)
        (void)!write(fd_to_write, "s", 1);
}

static void install(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void kill_caller(void *argument)
{
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
}

static void new_pair(int *a, int *b)
{
    struct sockaddr_in address;
    int listener = listener_on(&address);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(*a, (struct sockaddr *)&address, sizeof address) == 0);
    *b = accept(listener, NULL, NULL);
    CHECK(*b >= 0 && close(listener) == 0);
}

#define MANY 1024
#define LENGTH 65536

/* Calls of several parts: once they have moved something, a signal ends them, with SA_RESTART as well. */
static void in_parts(pthread_t self)
{
    static char bytes[LENGTH];
    static struct mmsghdr messages[MANY];
    struct iovec piece = {bytes, sizeof bytes};
    struct later later;
    int a, b;
    FILE *file = tmpfile();
    CHECK(file && ftruncate(fileno(file), (off_t)MANY * LENGTH) == 0);
    pair(&a, &b);
    do_later(&later, kill_caller, &self);
    ssize_t n = sendfile(a, fileno(file), NULL, (size_t)MANY * LENGTH);
    pthread_join(later.thread, NULL);
    say("sendfile has sent a part", 0 < n && n < (ssize_t)MANY * LENGTH);
    say("and the file knows it", lseek(fileno(file), 0, SEEK_CUR) == n);
    fclose(file), close(a), close(b);

    for (int i = 0; i < MANY; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1};
    pair(&a, &b);
    do_later(&later, kill_caller, &self);
    n = sendmmsg(a, messages, MANY, 0);
    pthread_join(later.thread, NULL);
    say("sendmmsg has sent some", 0 < n && n < MANY);
    close(a), close(b);

    /* Also where nothing has come to the ring yet. */
    piece.iov_len = 5;
    for (int is_new = 0; is_new < 2; is_new++) {
        if (is_new)
            new_pair(&a, &b);
        else
            pair(&a, &b);
        write_all(a, bytes, 5);
        do_later(&later, kill_caller, &self);
        say("recvmmsg has received one", recvmmsg(b, messages, 2, 0, NULL));
        pthread_join(later.thread, NULL);
        close(a), close(b);
    }
}

struct full {
    pthread_t self;
    pid_t caller;
    int pipe;
};

static void kill_and_make_room(void *argument)
{
    struct full *full = argument;
    int before = caught;
    char bytes[4096];
    pthread_kill(full->self, SIGUSR1);
    while (caught == before)
        sched_yield();
    await_sleep(full->caller);
    read_all(full->pipe, bytes, sizeof bytes);
}

/* One that has moved nothing starts again, also where it waits for the pipe. */
static void into_a_full_pipe(pthread_t self)
{
    char bytes[4096] = "";
    int a, b, ends[2];
    struct later later;
    pair(&a, &b);
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, sizeof bytes) == sizeof bytes);
    write_all(ends[1], bytes, sizeof bytes);
    write_all(a, bytes, 5);
    do_later(&later, kill_and_make_room, &(struct full){self, gettid(), ends[0]});
    say("splice starts again", splice(b, NULL, ends[1], NULL, 5, 0));
    pthread_join(later.thread, NULL);
    close(a), close(b), close(ends[0]), close(ends[1]);
}

int main(void)
{
    int a, b;
    char buf[16];
    pthread_t self = pthread_self();
    struct later later;
    pair(&a, &b);

    install(0);
    do_later(&later, kill_caller, &self);
    say("recv is interrupted", recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);

    write_all(a, "xy", 2);
    do_later(&later, kill_caller, &self);
    say("a part is kept", recv(b, buf, 5, MSG_WAITALL));
    pthread_join(later.thread, NULL);

    install(SA_RESTART);
    fd_to_write = a;
    do_later(&later, kill_caller, &self);
    say("recv starts again and gets what the handler wrote", recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);
    fd_to_write = -1;

    struct timeval limit = {20, 0};
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    do_later(&later, kill_caller, &self);
    say("with a time limit it does not", recv(b, buf, 1, 0));
    pthread_join(later.thread, NULL);

    in_parts(self);
    into_a_full_pipe(self);

    install(0);
    size_t filled = fill(a);
    do_later(&later, kill_caller, &self);
    ssize_t sent;
    /* Bytes still on their way may make room. */
    while ((sent = send(a, buf, 1, 0)) > 0)
        filled += sent;
    say("send is interrupted", sent);
    pthread_join(later.thread, NULL);
    drain(b, filled);

    signal(SIGUSR1, SIG_IGN);
    printf("caught: %d\n", (int)caught);
    return 0;
}
