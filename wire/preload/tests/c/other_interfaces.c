/* Access to a socket without the socket functions: kernel requests, a thread's own descriptor table, remote procedure calls. */
#include "common.h"
#include "waiting.h"
#include <linux/aio_abi.h>
#include <sched.h>
#include <sys/pidfd.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

static void submitted(void)
{
    struct waiting waiting;
    aio_context_t context = 0;
    char buf[16] = "";
    int a, b;
    pair(&a, &b);
    struct iocb in = {.aio_fildes = b, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)buf, .aio_nbytes = 3};
    struct iocb out = {.aio_fildes = b, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)"xyz", .aio_nbytes = 3};
    struct iocb *requests[] = {&in, &out};
    struct io_event events[2];
    CHECK(syscall(SYS_io_setup, 4, &context) == 0);
    write_all(a, "abc", 3);
    begin_waiting(&waiting, a, 3);
    long n = syscall(SYS_io_submit, context, 2, requests);
    say("io_submit", n);
    CHECK(syscall(SYS_io_getevents, context, n, 2, events, NULL) == n);
    show("answer", &waiting);
    printf("%s\n", buf);
    CHECK(syscall(SYS_io_destroy, context) == 0);
    close(a), close(b);
}

static void sent_to_a_pipe(void)
{
    char buf[16] = "";
    int a, b, ends[2];
    pair(&a, &b);
    CHECK(pipe(ends) == 0);
    write_all(a, "abc", 3);
    CHECK(recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
    say("sendfile", sendfile(ends[1], b, NULL, 16));
    read_all(ends[0], buf, 3);
    write_all(a, "def", 3);
    CHECK(recv(b, buf + 3, 3, MSG_PEEK | MSG_WAITALL) == 3);
    say("by number", syscall(SYS_sendfile, ends[1], b, NULL, 3));
    read_all(ends[0], buf + 3, 3);
    printf("%s\n", buf);
    off_t offset = 0;
    write_all(a, "ghi", 3);
    CHECK(recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
    say("splice from somewhere", splice(b, &offset, ends[1], NULL, 3, 0));
    say("splice to somewhere", splice(b, NULL, ends[1], &offset, 3, 0));
    say("splice with a flag", splice(b, NULL, ends[1], NULL, 3, 0x100));
    say("nothing was moved", recv(b, buf, sizeof buf, MSG_DONTWAIT));
    say("from somewhere", sendfile(ends[1], b, &offset, 3));
    int file = open("/dev/null", O_WRONLY);
    say("to a device", sendfile(file, b, NULL, 3));
    write_all(a, "jkl", 3);
    CHECK(recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
    set_nonblocking(ends[1], 1);
    while (write(ends[1], buf, sizeof buf) > 0)
        ;
    say("to a full pipe that does not block", splice(b, NULL, ends[1], NULL, 3, 0));
    say("that neither", sendfile(ends[1], b, NULL, 3));
    close(a), close(b), close(file), close(ends[0]), close(ends[1]);
}

static void *parted(void *argument)
{
    CHECK(unshare(CLONE_FILES) == 0);
    CHECK(close(*(int *)argument) == 0);
    int other = open("/dev/null", O_RDWR);
    CHECK(other >= 0 && dup2(other, *(int *)argument) == *(int *)argument);
    CHECK(write(*(int *)argument, "nowhere", 7) == 7);
    return NULL;
}

static void duplicated(void)
{
    char buf[16] = "";
    int a, b;
    pair(&a, &b);
    int self = pidfd_open(getpid(), 0);
    CHECK(self >= 0);
    int other = pidfd_getfd(self, b, 0);
    write_all(a, "abc", 3);
    if (other < 0) {
        /* A sandbox without it. */
        other = dup(b);
    }
    CHECK(read(other, buf, 3) == 3 && close(b) == 0 && write(other, "def", 3) == 3);
    printf("%s\n", buf);
    read_all(a, buf, 3);
    printf("%s\n", buf);
    close(other);
    say("end", read(a, buf, 1));
    close(a), close(self);
}

#if defined(__x86_64__) && defined(__GLIBC__)
struct client {
    void *auth;
    struct {
        int (*call)(struct client *, unsigned long, int (*)(), void *, int (*)(), void *, struct timeval);
        void *others[4];
        void (*destroy)(struct client *);
    } *does;
};
extern struct client *clnttcp_create(struct sockaddr_in *, unsigned long, unsigned long, int *, unsigned, unsigned);
extern int xdr_void();
__asm__(".symver clnttcp_create, clnttcp_create@GLIBC_2.2.5");
__asm__(".symver xdr_void, xdr_void@GLIBC_2.2.5");

static void *serve(void *argument)
{
    int fd = *(int *)argument;
    uint32_t length, call[64], answer[7] = {htonl(0x80000018), 0, htonl(1)};
    read_all(fd, &length, 4);
    length = ntohl(length) & 0x7fffffff;
    CHECK(length <= sizeof call);
    read_all(fd, call, length);
    answer[1] = call[0];
    write_all(fd, answer, sizeof answer);
    return NULL;
}

static void remote_call(void)
{
    pthread_t thread;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = 1};
    int a, b;
    pair(&a, &b);
    CHECK(pthread_create(&thread, NULL, serve, &b) == 0);
    struct client *client = clnttcp_create(&address, 100000, 2, &a, 0, 0);
    CHECK(client != NULL);
    say("remote call", client->does->call(client, 0, xdr_void, NULL, xdr_void, NULL, (struct timeval){20, 0}));
    pthread_join(thread, NULL);
    client->does->destroy(client);
    close(a), close(b);
}
#else
static void remote_call(void)
{
}
#endif

static void numbers_of_a_thread(void)
{
    struct waiting waiting;
    pthread_t thread;
    char byte;
    int a, b;
    pair(&a, &b);
    begin_waiting(&waiting, a, 3);
    CHECK(pthread_create(&thread, NULL, parted, &b) == 0 && pthread_join(thread, NULL) == 0);
    write_all(b, "xyz", 3);
    show("still there", &waiting);
    write_all(a, "!", 1);
    read_all(b, &byte, 1);
    printf("%c\n", byte);
    close(a), close(b);
}

int main(void)
{
    submitted();
    sent_to_a_pipe();
    duplicated();
    remote_call();
    /* Last, because the library does nothing more in such a process. */
    numbers_of_a_thread();
    return 0;
}
