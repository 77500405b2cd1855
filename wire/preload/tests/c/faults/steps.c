/* Faults at each system call of a traced victim. */
#include "faults.h"

#include <fcntl.h>
#include <linux/ptrace.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/user.h>

static volatile sig_atomic_t late;
void too_late(int signal)
{
    (void)signal;
    late = 1;
}

static long trace(int request, pid_t pid, long address, void *data)
{
    return raw6(SYS_ptrace, request, pid, address, (long)data, 0, 0);
}

/* The errors of scarcity that a system call can return, one after the other; 0 when there are no more. */
static int want(const struct ptrace_syscall_info *call, int which)
{
    static const struct {
        long number;
        int errors[4];
    } wants[] = {
        {SYS_openat, {EMFILE, ENFILE, ENOENT, EACCES}},
        {SYS_socket, {EMFILE, ENFILE, ENOBUFS}},
        {SYS_connect, {EADDRNOTAVAIL, EAGAIN, ENETUNREACH}},
        {SYS_accept, {EMFILE, ENFILE, ENOBUFS, ECONNABORTED}},
        {SYS_socketpair, {EMFILE, ENFILE}},
        {SYS_epoll_create1, {EMFILE, ENOMEM}},
        {SYS_eventfd2, {EMFILE, ENODEV}},
        {SYS_memfd_create, {EMFILE, ENOMEM, EFBIG}},
        {SYS_pidfd_open, {EMFILE, ESRCH}},
        {SYS_kcmp, {EPERM, ENOSYS}},
        {SYS_mmap, {ENOMEM, EPERM}},
        {SYS_mprotect, {ENOMEM}},
        {SYS_ftruncate, {ENOSPC, EFBIG}},
        {SYS_fallocate, {ENOSPC, EOPNOTSUPP}},
        {SYS_sendmsg, {ENOBUFS, EAGAIN, ETOOMANYREFS, ECONNREFUSED}},
        {SYS_recvmsg, {ENOMEM, EAGAIN}},
        {SYS_epoll_ctl, {ENOMEM, ENOSPC}},
        {SYS_bind, {EACCES, ENOSPC, EADDRINUSE}},
        {SYS_getdents64, {EIO}},
        {SYS_mkdirat, {ENOSPC, EACCES}},
        {SYS_getrandom, {EAGAIN}},
    };
    if (call->entry.nr == SYS_fcntl)
        return which == 0 && (call->entry.args[1] == F_DUPFD_CLOEXEC || call->entry.args[1] == F_DUPFD) ? EMFILE : 0;
    for (size_t at = 0; at < sizeof wants / sizeof *wants; at++)
        if (wants[at].number == (long)call->entry.nr)
            return which < 4 ? wants[at].errors[which] : 0;
    return 0;
}

/* Whether all threads of a process sleep. */
static int sleeps(pid_t pid)
{
    char path[64], text[512];
    sprintf(path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 1;
    text[n] = 0;
    char *state = strrchr(text, ')');
    return state != NULL && state[2] == 'S';
}

struct step {
    enum cut cut;
    /* Number of the system call; then whether the cut is after it, or the index of the error. */
    int number, which;
    /* The system call at the cut. */
    long call;
    int error, reached;
};

/* Follows the traced victim to the end of its round, or of its life. */
static void follow(pid_t victim, pid_t other, struct step *step)
{
    int status, inside = 0, number = 0, entered = 0, failing = 0;
    while (waitpid(victim, &status, __WALL) == victim && !late) {
        int deliver = 0;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && step->reached && step->cut == KILL) && status != 0)
                complain(shared->victim, "the victim ended with status %#x", status);
            return;
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            struct ptrace_syscall_info call;
            memset(&call, 0, sizeof call);
            trace(0x420e /* PTRACE_GET_SYSCALL_INFO */, victim, sizeof call, &call);
            if (call.op == PTRACE_SYSCALL_INFO_ENTRY) {
                if ((int)call.entry.nr == BEGIN)
                    inside = 1;
                number += inside;
                entered = inside && number == step->number;
                if (entered) {
                    step->call = call.entry.nr;
                    if (step->cut == FAIL && (step->error = want(&call, step->which)) != 0) {
#if defined(__x86_64__)
                        trace(0x6 /* PTRACE_POKEUSER */, victim, offsetof(struct user_regs_struct, orig_rax), (void *)-1L);
                        failing = 1;
#endif
                    }
                    step->reached = 1;
                    if (step->cut == KILL && step->which == 0)
                        kill(victim, SIGKILL);
                    for (int looks = 0; step->cut == STOP && looks < 20; looks += sleeps(other) ? 5 : 1)
                        nap(500);
                }
            } else if (call.op == PTRACE_SYSCALL_INFO_EXIT && entered) {
                entered = 0;
                if (step->cut == KILL)
                    kill(victim, SIGKILL);
#if defined(__x86_64__)
                if (failing)
                    trace(0x6, victim, offsetof(struct user_regs_struct, rax), (void *)(long)-step->error);
#endif
                failing = 0;
            }
        } else if (WSTOPSIG(status) == SIGTRAP) {
            trace(0x4200 /* PTRACE_SETOPTIONS */, victim, 0, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
        } else {
            deliver = WSTOPSIG(status);
        }
        trace(24 /* PTRACE_SYSCALL */, victim, 0, (void *)(long)deliver);
    }
}

static const char *call_name(long number)
{
    static char text[32];
    sprintf(text, "call %ld", number);
    return text;
}

void by_steps(enum cut cut, uint64_t seed)
{
    static const char *const names[] = {"killed at", "stopped at", "failing"};
    shared->connections = 1, shared->forks[0] = shared->forks[1] = 0, shared->style[0] = TURN_BY_TURN;
    shared->total[0][0] = shared->total[1][0] = TURNS * 100;
    for (int run = 0; run < (library == NULL ? 2 : 4); run++) {
        int victim = run % 2;
        shared->alone = run / 2;
        struct step step = {.cut = cut, .number = 1};
        shared->round = 0;
        pid_t other = 0;
        for (int round = 1;; round++) {
            char what[100];
            put_round(victim, seed + round);
            if (other == 0) {
                shared->round = 0;
                round = 1;
                shared->connected[0] = shared->connected[1] = shared->done[0] = shared->done[1] = 0;
                if (victim == 0)
                    other = start(1, 1, INT_MAX / 2, 0);
            }
            step.reached = 0, step.error = 0;
            pid_t traced = start(victim, round, 1, 1);
            if (other == 0)
                other = start(0, 1, INT_MAX / 2, 0);
            /* The connecting process starts once the port is known. */
            if (victim == 1)
                shared->port = 0;
            late = 0;
            alarm(HANG_SECONDS);
            shared->round = round;
            follow(traced, other, &step);
            alarm(0);
            snprintf(what, sizeof what, "%s step %d.%d (%s, error %d)", names[cut], step.number, step.which, call_name(step.call), step.error);
            if (late)
                complain(victim, "hangs");
            kill(traced, SIGKILL);
            waitpid(traced, NULL, __WALL);
            shared->done[victim] = shared->done[victim] == round ? round : -round;
            if (!await_other(what, 1 - victim, round, other)) {
                kill(-other, SIGKILL);
                waitpid(other, NULL, 0);
                other = 0;
            }
            judge(what, cut == KILL && step.reached);
            count_left(what, 1 - victim, round);
            moments += step.reached;
            if (!step.reached)
                break;
            if ((cut == KILL && step.which == 0) || (cut == FAIL && step.error != 0))
                step.which++;
            else
                step.number++, step.which = 0;
        }
        printf("%s: %d system calls, victim %s%s\n", names[cut], step.number - 1, victim ? "accepts" : "connects",
               shared->alone ? ", alone with the library" : "");
        if (other != 0)
            finish(other);
    }
    shared->alone = 0;
}
