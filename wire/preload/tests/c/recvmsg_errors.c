/* recvmsg with invalid arguments, and the value of errno with valid ones. */
#include "common.h"

static char bytes[64];
static struct iovec one = {bytes, sizeof bytes};

struct attempt {
    const char *what;
    void *name;
    unsigned name_length;
    struct iovec *vector;
    size_t count;
    void *base;
    int flags;
};

static void receive(int fd, const struct attempt *attempt)
{
    struct msghdr message = {
        .msg_name = attempt->name,
        .msg_namelen = attempt->name_length,
        .msg_iov = attempt->vector,
        .msg_iovlen = attempt->count,
    };
    one.iov_base = attempt->base;
    errno = 0;
    ssize_t n = recvmsg(fd, &message, attempt->flags);
    printf("%s: %zd, %s, name of %d, flags %x\n", attempt->what, n, strerrorname_np(errno), (int)message.msg_namelen,
           (unsigned)message.msg_flags);
}

/* A new connection for each, which has exchanged bytes before or not. */
static void each(int warm)
{
    static struct sockaddr_in from;
    static void *const nowhere = (void *)-1;
    const struct attempt attempts[] = {
        {"nothing wrong", &from, sizeof from, &one, 1, bytes, 0},
        {"a name nowhere", nowhere, sizeof from, &one, 1, bytes, 0},
        {"a name of a negative length", &from, -1, &one, 1, bytes, 0},
        {"bytes nowhere", &from, sizeof from, &one, 1, nowhere, 0},
        {"no vector", &from, sizeof from, NULL, 1, bytes, 0},
        {"a vector nowhere", &from, sizeof from, nowhere, 1, bytes, 0},
        {"a negative count", &from, sizeof from, &one, -1, bytes, 0},
        {"urgent", &from, sizeof from, &one, 1, bytes, MSG_OOB},
        {"of the error queue", &from, sizeof from, &one, 1, bytes, MSG_ERRQUEUE},
    };
    for (size_t at = 0; at < sizeof attempts / sizeof *attempts; at++) {
        struct sockaddr_in address;
        int listener = listener_on(&address), a = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
        int b = accept(listener, NULL, NULL);
        CHECK(b >= 0);
        if (warm) {
            warm_up(a, b);
            check_on_ring(a);
        }
        write_all(b, "hello", 5);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(a, &set);
        CHECK(select(a + 1, &set, NULL, NULL, NULL) == 1);
        receive(a, &attempts[at]);
        errno = 0;
        ssize_t n = recv(a, bytes, sizeof bytes, MSG_DONTWAIT);
        printf("then %zd, %s\n", n, strerrorname_np(errno));
        CHECK(close(a) == 0 && close(b) == 0 && close(listener) == 0);
    }
}

int main(void)
{
    for (int warm = 0; warm < 2; warm++)
        each(warm);
    return 0;
}
