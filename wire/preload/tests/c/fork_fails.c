/* A fork that fails for lack of resources leaves everything unchanged. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pty.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FAIL_IF(number)                                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN)

static void forbid_forks(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FAIL_IF(SYS_clone),
        FAIL_IF(SYS_clone3),
#ifdef SYS_fork
        FAIL_IF(SYS_fork),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void fail(void)
{
    int terminal;
    say("fork", fork());
    say("forkpty", forkpty(&terminal, NULL, NULL, NULL));
}

int main(void)
{
    int a, b;
    char buf[256] = "";
    forbid_forks();

    pair(&a, &b);
    fail();
    write_all(b, buf, 50);
    CHECK(recv(a, buf, 50, MSG_PEEK | MSG_WAITALL) == 50);
    close(a);
    CHECK(poll(&(struct pollfd){b, POLLRDHUP, 0}, 1, -1) == 1);
    say("unread bytes", recv(b, buf, sizeof buf, 0));
    close(b);

    pair(&a, &b);
    fail();
    write_all(a, buf, 50);
    close(a);
    say("rest", recv(b, buf, 50, MSG_WAITALL));
    say("end", recv(b, buf, 1, 0));
    close(b);
    return 0;
}
