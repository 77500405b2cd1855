/*
 * A signal that comes while the program forks: its handler may do anything, even with sockets. It is certain to come during the fork
 * because a thread sends it at the request of a prepare handler, which runs last because it was registered first.
 */
#include "common.h"
#include <semaphore.h>

static sem_t wanted, sent;
static volatile sig_atomic_t armed, handled;
static pthread_t forking;
static int a, b;
static void (*in_the_handler)(void);

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        CHECK(errno == EINTR);
}

static void prepare(void)
{
    if (armed) {
        CHECK(sem_post(&wanted) == 0);
        wait_for(&sent);
    }
}

static void register_first(void)
{
    CHECK(pthread_atfork(prepare, NULL, NULL) == 0);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = register_first;

static void *send_signal(void *argument)
{
    (void)argument;
    wait_for(&wanted);
    CHECK(pthread_kill(forking, SIGUSR1) == 0);
    CHECK(sem_post(&sent) == 0);
    return NULL;
}

static void on_signal(int signal)
{
    (void)signal;
    in_the_handler();
    handled++;
}

static void fork_with(void (*handler)(void))
{
    pthread_t thread;
    int status;
    in_the_handler = handler;
    armed = 1;
    CHECK(pthread_create(&thread, NULL, send_signal, NULL) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(child > 0 && pthread_join(thread, NULL) == 0 && waitpid(child, &status, 0) == child);
    armed = 0;
    printf("handled: %d\n", (int)handled);
}

static void close_it(void)
{
    CHECK(close(a) == 0);
}

/* Enough calls for an upgrade. */
static void use_it(void)
{
    warm_up(a, b);
}

static void watch_it(void)
{
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    int set = epoll_create1(0), copy = dup(b);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
    CHECK(close(copy) == 0 && close(set) == 0);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sockaddr_in address;
    char c;
    forking = pthread_self();
    CHECK(sem_init(&wanted, 0, 0) == 0 && sem_init(&sent, 0, 0) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);

    pair(&a, &b);
    fork_with(watch_it);
    fork_with(use_it);
    fork_with(close_it);
    say("closed", fcntl(a, F_GETFL));
    say("end", recv(b, &c, 1, 0));
    close(b);

    int fd = listener_on(&address);
    a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    b = accept(fd, NULL, NULL);
    fork_with(use_it);
    fork_with(close_it);
    say("end", recv(b, &c, 1, 0));

    /* Signals that were blocked before still are, and no others. */
    sigset_t mask, after;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    CHECK(sigprocmask(SIG_SETMASK, &mask, NULL) == 0);
    pid_t child = fork();
    CHECK(sigprocmask(SIG_SETMASK, NULL, &after) == 0);
    int same = 1;
    for (int signal = 1; signal < 32; signal++)
        same &= sigismember(&after, signal) == (signal == SIGUSR2);
    if (child == 0)
        _exit(same);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("mask: %d %d\n", same, WEXITSTATUS(status));
    return 0;
}
