/* A sleeping call continues with its connection when another thread closes its descriptor, whatever file gets the number next. */
#include "common.h"
#include <sys/sendfile.h>

enum { LOTS = 64 << 20, SOME = 16 << 20, MANY = 40000, ROUNDS = 200 };

static int a, b, listener;
static struct sockaddr_in address;
static ssize_t result;
static char got[16];

static void *receive(void *argument)
{
    *(volatile pid_t *)argument = gettid();
    memset(got, 0, sizeof got);
    result = recv(b, got, sizeof got - 1, 0);
    return NULL;
}

static void *send_lots(void *argument)
{
    char *bytes = calloc(1, LOTS);
    *(volatile pid_t *)argument = gettid();
    result = send(b, bytes, LOTS, MSG_NOSIGNAL);
    free(bytes);
    return NULL;
}

/* Calls for which the library makes several. */
static void *send_file(void *argument)
{
    char path[] = "/tmp/seekwire-number-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && ftruncate(file, SOME) == 0);
    *(volatile pid_t *)argument = gettid();
    result = sendfile(b, file, NULL, SOME);
    close(file);
    return NULL;
}

static void *send_messages(void *argument)
{
    char *bytes = calloc(1, SOME);
    struct iovec first = {bytes, SOME - 100}, second = {bytes, 100};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &first, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &second, .msg_iovlen = 1}}};
    *(volatile pid_t *)argument = gettid();
    int n = sendmmsg(b, messages, 2, MSG_NOSIGNAL);
    result = n == 2 ? (ssize_t)messages[0].msg_len + messages[1].msg_len : n;
    free(bytes);
    return NULL;
}

static void *receive_messages(void *argument)
{
    char bytes[2][MANY / 2];
    struct iovec first = {bytes[0], MANY / 2}, second = {bytes[1], MANY / 2};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &first, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &second, .msg_iovlen = 1}}};
    *(volatile pid_t *)argument = gettid();
    int n = recvmmsg(b, messages, 2, MSG_WAITALL, NULL);
    result = n == 2 ? (ssize_t)messages[0].msg_len + messages[1].msg_len : n;
    return NULL;
}

static void *throw_away(void *argument)
{
    *(volatile pid_t *)argument = gettid();
    result = recv(b, NULL, MANY, MSG_TRUNC | MSG_WAITALL);
    return NULL;
}

static pthread_t start(void *(*call)(void *))
{
    volatile pid_t id = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call, (void *)&id) == 0);
    while (id == 0)
        sched_yield();
    await_sleep(id);
    return thread;
}

/* A new connection, whose accepted end gets the closed number. */
static int connect_anew(int number)
{
    int other = socket(AF_INET, SOCK_STREAM, 0);
    if (other == number) {
        other = dup(other);
        close(number);
    }
    CHECK(connect(other, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(accept(listener, NULL, NULL) == number);
    return other;
}

static void ask(int from, int to, const char *what)
{
    char answer[8] = "";
    write_all(from, what, 3);
    read_all(to, answer, 3);
    if (strcmp(answer, what) != 0)
        say(answer, -1);
}

static void interrupt(int signal)
{
    (void)signal;
}

/* As runtimes end a receive of another thread: another file takes the number, and a signal ends the sleep on the old one. */
static void interrupted(void)
{
    struct sigaction action = {.sa_handler = interrupt};
    int wrong = 0, marker[2];
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, marker) == 0);
    CHECK(close(marker[1]) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec limit;
        pair(&a, &b);
        pthread_t thread = start(receive);
        CHECK(shutdown(b, SHUT_WR) == 0 && dup2(marker[0], b) == b && pthread_kill(thread, SIGUSR1) == 0);
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 10;
        if (pthread_timedjoin_np(thread, NULL, &limit) != 0) {
            /* It continues to sleep, and blocks all that follows. */
            say("not interrupted in round", round);
            _exit(1);
        }
        wrong += result != -1;
        close(a), close(b);
    }
    say("receives that were not interrupted", wrong);
    close(marker[0]);
}

int main(void)
{
    char c;
    int wrong = 0;
    listener = listener_on(&address);
    for (int round = 0; round < ROUNDS; round++) {
        pair(&a, &b);
        pthread_t thread = start(receive);
        int shut = round % 2;
        if (shut)
            CHECK(shutdown(b, SHUT_RDWR) == 0);
        CHECK(close(b) == 0);
        int other = connect_anew(b);
        if (!shut)
            write_all(a, "old", 3);
        warm_up(other, b);
        pthread_join(thread, NULL);
        wrong += shut ? result != 0 : result != 3 || strcmp(got, "old") != 0;
        ask(other, b, "one");
        ask(b, other, "two");
        /* The call has ended, and with it the connection. */
        wrong += read(a, &c, 1) != 0;
        close(a);
        close(b);
        wrong += read(other, &c, 1) != 0;
        close(other);
    }
    say("receives that went wrong", wrong);
    wrong = 0;
    for (int round = 0; round < 4; round++) {
        pair(&a, &b);
        pthread_t thread = start(send_lots);
        CHECK(close(b) == 0);
        int other = connect_anew(b);
        warm_up(other, b);
        drain(a, LOTS);
        pthread_join(thread, NULL);
        wrong += result != LOTS;
        ask(other, b, "one");
        wrong += read(a, &c, 1) != 0;
        close(a);
        close(b);
        close(other);
    }
    say("sends that went wrong", wrong);
    wrong = 0;
    for (int round = 0; round < 10; round++) {
        pair(&a, &b);
        pthread_t thread = start(round % 2 ? send_file : send_messages);
        CHECK(close(b) == 0);
        int other = connect_anew(b);
        warm_up(other, b);
        drain(a, SOME);
        pthread_join(thread, NULL);
        wrong += result != SOME;
        ask(other, b, "one");
        wrong += read(a, &c, 1) != 0;
        close(a), close(b), close(other);
    }
    say("sends of many pieces that went wrong", wrong);
    wrong = 0;
    for (int round = 0; round < 10; round++) {
        static char many[MANY];
        pair(&a, &b);
        pthread_t thread = start(round % 2 ? receive_messages : throw_away);
        CHECK(close(b) == 0);
        int other = connect_anew(b);
        warm_up(other, b);
        for (int piece = 0; piece < 4; piece++) {
            write_all(a, many, MANY / 4);
            warm_up(b, other);
        }
        pthread_join(thread, NULL);
        wrong += result != MANY;
        ask(b, other, "two");
        wrong += read(a, &c, 1) != 0;
        close(a), close(b), close(other);
    }
    say("receives of many pieces that went wrong", wrong);
    interrupted();
    return 0;
}
