/*
 * A program that forbids itself system calls: seccomp LIST ACTION METHOD [PROGRAM]. Its later calls are all allowed. With a
 * PROGRAM, it becomes that program under the filter instead.
 */
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { ROUNDS = 50, LARGE = 20000, MOST = 200 };

/* The calls of the program itself from then on, and those of the C library for it. */
#define LEAST                                                                                                          \
    SYS_read, SYS_write, SYS_close, SYS_epoll_wait, SYS_epoll_pwait, SYS_wait4, SYS_exit, SYS_exit_group, SYS_rt_sigreturn

static const struct list {
    const char *name;
    int numbers[MOST];
} lists[] = {
    {"least", {LEAST}},
    /* SystemCallFilter=@default @basic-io @network-io @io-event of systemd.exec(5), and waiting. */
    {"systemd",
     {LEAST, SYS_brk, SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_execve, SYS_futex, SYS_getegid,
      SYS_geteuid, SYS_getgid, SYS_getgroups, SYS_getpgid, SYS_getpid, SYS_getppid, SYS_getrandom, SYS_gettid,
      SYS_gettimeofday, SYS_getuid, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_nanosleep, SYS_prlimit64,
      SYS_restart_syscall, SYS_rseq, SYS_sched_getaffinity, SYS_sched_yield, SYS_set_robust_list, SYS_set_tid_address,
      SYS_dup, SYS_dup3, SYS_lseek, SYS_pread64, SYS_preadv, SYS_pwrite64, SYS_pwritev, SYS_readv, SYS_writev,
      SYS_accept, SYS_accept4, SYS_bind, SYS_connect, SYS_getpeername, SYS_getsockname, SYS_getsockopt, SYS_listen,
      SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_setsockopt, SYS_shutdown,
      SYS_socket, SYS_socketpair, SYS_epoll_create1, SYS_epoll_ctl, SYS_eventfd2, SYS_ppoll, SYS_pselect6}},
    /* Like file servers for a session that has logged in: no new descriptors. */
    {"session",
     {LEAST, SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_fcntl,
      SYS_getdents64, SYS_sendfile, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_recvmsg, SYS_sendmsg, SYS_shutdown,
      SYS_getpid, SYS_gettimeofday, SYS_clock_nanosleep, SYS_setsockopt}},
    /* Like programs for remote login before the login. */
    {"before-login",
     {LEAST, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_clock_gettime, SYS_clock_nanosleep,
      SYS_gettimeofday, SYS_futex, SYS_geteuid, SYS_getuid, SYS_getpid, SYS_getrandom, SYS_nanosleep, SYS_ppoll,
      SYS_pselect6, SYS_rt_sigprocmask, SYS_shutdown}},
};

static const struct {
    const char *name;
    uint32_t value;
} actions[] = {
    {"kill", SECCOMP_RET_KILL_PROCESS},
    {"kill-thread", SECCOMP_RET_KILL_THREAD},
    {"trap", SECCOMP_RET_TRAP},
    {"errno", SECCOMP_RET_ERRNO | EPERM},
};

#define STEP(...) program[len++] = (struct sock_filter)__VA_ARGS__

/* `numbers` get `listed`, all others `otherwise`. */
static unsigned compile(struct sock_filter *program, const int *numbers, uint32_t listed, uint32_t otherwise)
{
    unsigned len = 0, count = 0;
    while (count < MOST && (numbers[count] != 0 || count == 0))
        count++;
    STEP(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (unsigned at = 0; at < count; at++)
        STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[at], count - at, 0));
    STEP(BPF_STMT(BPF_RET | BPF_K, otherwise));
    STEP(BPF_STMT(BPF_RET | BPF_K, listed));
    return len;
}

static void forbid(const char *name, const char *what, const char *method)
{
    static struct sock_filter program[MOST + 3];
    struct sock_fprog all = {.filter = program};
    uint32_t action = 0;
    for (size_t at = 0; at < sizeof actions / sizeof *actions; at++)
        if (strcmp(actions[at].name, what) == 0)
            action = actions[at].value;
    if (strcmp(name, "harmless") == 0) {
        static const int forbidden[MOST] = {SYS_reboot, SYS_swapon, SYS_kexec_load};
        all.len = compile(program, forbidden, action, SECCOMP_RET_ALLOW);
    }
    if (strcmp(name, "needed") == 0) {
        static const int forbidden[MOST] = {SYS_memfd_create, SYS_eventfd2,  SYS_socketpair, SYS_sendmsg,
                                            SYS_membarrier,   SYS_ftruncate, SYS_fallocate,  SYS_madvise};
        all.len = compile(program, forbidden, action, SECCOMP_RET_ALLOW);
    }
    for (size_t at = 0; at < sizeof lists / sizeof *lists; at++)
        if (strcmp(lists[at].name, name) == 0)
            all.len = compile(program, lists[at].numbers, SECCOMP_RET_ALLOW, action);
    CHECK(all.len > 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (strcmp(method, "prctl") == 0)
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
    else if (strcmp(method, "prctl-number") == 0)
        CHECK(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
    else
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all) == 0);
}

static char bytes[LARGE];

static void exchange(int fd, int round)
{
    size_t len = round % 2 ? LARGE : 64;
    memset(bytes, round, len);
    write_all(fd, bytes, len);
    memset(bytes, ~round, len);
    read_all(fd, bytes, len);
    for (size_t at = 0; at < len; at++)
        CHECK(bytes[at] == (char)round);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 77};
    int a, b, c, d, status, listener, far, set = epoll_create1(0);
    CHECK(argc > 3 && set >= 0);
    if (argc > 4) {
        forbid(argv[1], argv[2], argv[3]);
        execv(argv[4], argv + 4);
        _exit(126);
    }
    say("begins", 0);
    /* A process that continues unchanged. */
    listener = listener_on(&address);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        send_back(listener), exit(0);
    CHECK(close(listener) == 0 && (far = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(far, (struct sockaddr *)&address, sizeof address) == 0);
    for (int round = 0; round < ROUNDS; round++)
        exchange(far, round);
    check_on_ring(far);
    pair(&a, &b);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b, &event) == 0);
    /* Bytes in flight are not lost. */
    write_all(a, "under way", 9);
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u32 == 77);
    memset(bytes, 5, LARGE);
    write_all(far, bytes, LARGE);
    /* Their sender has ended its direction, and cannot send them again. */
    pair(&c, &d);
    write_all(c, bytes, LARGE);
    CHECK(shutdown(c, SHUT_WR) == 0);

    forbid(argv[1], argv[2], argv[3]);
    if (strcmp(argv[1], "harmless") == 0)
        check_on_ring(a);

    event.data.u32 = 0;
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLIN && event.data.u32 == 77);
    read_all(b, bytes, 9);
    CHECK(memcmp(bytes, "under way", 9) == 0);
    read_all(far, bytes, LARGE);
    CHECK(bytes[0] == 5 && bytes[LARGE - 1] == 5);
    memset(bytes, 0, LARGE);
    read_all(d, bytes, LARGE);
    CHECK(bytes[0] == 5 && bytes[LARGE - 1] == 5 && read(d, bytes, 1) == 0);
    write_all(d, "answer", 6);
    CHECK(close(d) == 0);
    read_all(c, bytes, 6);
    CHECK(memcmp(bytes, "answer", 6) == 0 && read(c, bytes, 1) == 0 && close(c) == 0);
    for (int round = 0; round < ROUNDS; round++)
        exchange(far, round);
    warm_up(a, b);
    CHECK(close(far) == 0 && wait4(child, &status, 0, NULL) == child);
    say("the other's status", status);
    CHECK(close(a) == 0 && read(b, bytes, 1) == 0 && close(b) == 0 && close(set) == 0);
    say("ends", 0);
    return 0;
}
