/* The members of an epoll set, their numbers, and how long they stay. */
#include "common.h"

/* Hidden from the compiler. */
static volatile int too_many_events = INT_MAX / (int)sizeof(struct epoll_event) + 1;

static int ctl(int set, int op, int fd, uint32_t events, uint64_t data)
{
    return epoll_ctl(set, op, fd, &(struct epoll_event){events, {.u64 = data}});
}

static int by_data(const void *a, const void *b)
{
    const struct epoll_event *x = a, *y = b;
    return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* The result of a wait that does not sleep, ordered by data. */
static void look(const char *what, int set)
{
    struct epoll_event events[16];
    int n = epoll_wait(set, events, 16, 0);
    printf("%s: ", what);
    if (n < 0) {
        printf("%s\n", strerrorname_np(errno));
        return;
    }
    qsort(events, n, sizeof *events, by_data);
    printf("%d", n);
    for (int i = 0; i < n; i++)
        printf(" %lx:%x", (long)events[i].data.u64, events[i].events);
    printf("\n");
}

/* A connection on which small messages travel at once. */
static void open_pair(int *a, int *b)
{
    pair(a, b);
    CHECK(setsockopt(*a, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
}

static void arrive(int fd, int at, const char *text)
{
    write_all(fd, text, strlen(text));
    CHECK(poll(&(struct pollfd){at, POLLIN, 0}, 1, -1) == 1);
}

/* The registered number is closed, a duplicate is not: the registration continues under the old number. */
static void closed_number(uint32_t how)
{
    int a, b, set = epoll_create1(0);
    open_pair(&a, &b);
    printf("closing the registered number, %x\n", how);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | how, 1) == 0);
    int other = dup(b), number = b;
    CHECK(close(b) == 0);
    look("before", set);
    arrive(a, other, "abc");
    look("closed", set);
    drain(other, 3);
    look("drained", set);
    arrive(a, other, "abc");
    look("again", set);
    drain(other, 3);
    say("DEL by the closed number", epoll_ctl(set, EPOLL_CTL_DEL, number, NULL));
    say("DEL by the other number", epoll_ctl(set, EPOLL_CTL_DEL, other, NULL));
    /* The number stands for the same file again. */
    CHECK(dup2(other, number) == number);
    say("MOD by the number again", ctl(set, EPOLL_CTL_MOD, number, EPOLLIN | how, 2));
    arrive(a, other, "abc");
    look("changed", set);
    say("DEL by the number again", epoll_ctl(set, EPOLL_CTL_DEL, number, NULL));
    look("removed", set);
    CHECK(ctl(set, EPOLL_CTL_ADD, number, EPOLLIN | how, 3) == 0);
    CHECK(close(number) == 0);
    look("added", set);
    CHECK(close(other) == 0);
    look("all closed", set);
    close(a), close(set);
}

/* Another file gets the number in the meantime. */
static void reused_number(void)
{
    int a, b, c, d, set = epoll_create1(0);
    open_pair(&a, &b);
    open_pair(&c, &d);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0);
    int other = dup(b);
    printf("reusing the registered number\n");
    CHECK(dup2(d, b) == b);
    arrive(a, other, "abc");
    look("over it", set);
    say("MOD of the new", ctl(set, EPOLL_CTL_MOD, b, EPOLLIN, 5));
    say("DEL of the new", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    say("ADD of the new", ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 2));
    arrive(c, d, "abc");
    look("both", set);
    say("DEL of the new", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    look("one", set);
    CHECK(close(other) == 0);
    look("none", set);
    close(a), close(b), close(c), close(d), close(set);
}

static void duplicates(uint32_t how)
{
    int a, b, set = epoll_create1(0), second = epoll_create1(0);
    open_pair(&a, &b);
    int other = dup(b);
    printf("duplicates and sets, %x\n", how);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | how, 1) == 0 && ctl(set, EPOLL_CTL_ADD, other, EPOLLIN | how, 2) == 0);
    CHECK(ctl(second, EPOLL_CTL_ADD, b, EPOLLIN | how, 3) == 0);
    say("ADD twice", ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 9));
    arrive(a, b, "abc");
    look("first", set);
    look("second", second);
    look("first again", set);
    CHECK(close(b) == 0);
    look("first, one closed", set);
    look("second, one closed", second);
    arrive(a, other, "abc");
    look("first, news", set);
    look("second, news", second);
    CHECK(close(a) == 0);
    CHECK(poll(&(struct pollfd){other, POLLRDHUP, 0}, 1, -1) == 1);
    look("first, end", set);
    look("second, end", second);
    close(other);
    look("first, closed", set);
    look("second, closed", second);
    close(set), close(second);
}

static void exclusive(void)
{
    int a, b, set = epoll_create1(0);
    open_pair(&a, &b);
    printf("exclusive\n");
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0);
    say("MOD to it", ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLEXCLUSIVE, 2));
    arrive(a, b, "abc");
    look("then", set);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL) == 0);
    say("MOD of none to it", ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLEXCLUSIVE, 2));
    say("ADD with one-shot", ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 2));
    look("then", set);
    say("ADD", ctl(set, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLEXCLUSIVE, 3));
    look("then", set);
    say("MOD of it", ctl(set, EPOLL_CTL_MOD, b, EPOLLIN, 4));
    say("ADD of it", ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 4));
    look("then", set);
    say("DEL", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    look("then", set);
    close(a), close(b), close(set);
}

static void strange(void)
{
    int a, b, set = epoll_create1(0);
    struct epoll_event event;
    open_pair(&a, &b);
    printf("strange\n");
    say("op", ctl(set, 7, b, EPOLLIN, 1));
    say("self", ctl(set, EPOLL_CTL_ADD, set, EPOLLIN, 1));
    say("not a set", ctl(a, EPOLL_CTL_ADD, b, EPOLLIN, 1));
    say("no set", ctl(-1, EPOLL_CTL_ADD, b, EPOLLIN, 1));
    say("no number", ctl(set, EPOLL_CTL_ADD, -1, EPOLLIN, 1));
    say("MOD of none", ctl(set, EPOLL_CTL_MOD, b, EPOLLIN, 1));
    say("DEL of none", epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    say("no event", epoll_ctl(set, EPOLL_CTL_ADD, b, NULL));
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0);
    arrive(a, b, "abc");
    say("no room", epoll_wait(set, &event, 0, 0));
    say("less than none", epoll_wait(set, &event, negative, 0));
    say("too much", epoll_wait(set, &event, too_many_events, 0));
    say("wait for a socket", epoll_wait(b, &event, 1, 0));
    say("wait for none", epoll_wait(-1, &event, 1, 0));
    say("nothing wanted", ctl(set, EPOLL_CTL_MOD, b, 0, 2));
    look("nothing wanted", set);
    say("bits of no meaning", ctl(set, EPOLL_CTL_MOD, b, EPOLLIN | 1u << 20, 3));
    look("bits of no meaning", set);
    say("all bits", ctl(set, EPOLL_CTL_MOD, b, ~0u & ~(EPOLLEXCLUSIVE | EPOLLONESHOT | EPOLLET), 4));
    look("all bits", set);
    shutdown(a, SHUT_WR);
    CHECK(poll(&(struct pollfd){b, POLLRDHUP, 0}, 1, -1) == 1);
    look("all bits, an end", set);
    say("RDNORM", ctl(set, EPOLL_CTL_MOD, b, EPOLLRDNORM, 5));
    look("RDNORM", set);
    say("WRNORM", ctl(set, EPOLL_CTL_MOD, b, EPOLLWRNORM, 5));
    look("WRNORM", set);
    say("WRBAND", ctl(set, EPOLL_CTL_MOD, b, EPOLLWRBAND | EPOLLRDBAND | EPOLLPRI, 5));
    look("WRBAND", set);
    shutdown(b, SHUT_WR);
    CHECK(poll(&(struct pollfd){b, 0, 0}, 1, -1) == 1);
    look("both ends", set);
    drain(b, 3);
    look("drained", set);
    close(a);
    look("closed", set);
    close(b), close(set);
}

/* The number was closed before the connection was accelerated. */
static void closed_early(void)
{
    struct sockaddr_in address;
    int fd = listener_on(&address), set = epoll_create1(0), a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (struct sockaddr *)&address, sizeof address) == 0);
    int b = accept(fd, NULL, NULL), other = dup(b);
    CHECK(other >= 0 && ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0 && close(b) == 0);
    printf("closing the registered number early\n");
    warm_up(a, other);
    for (int i = 0; i < 3; i++) {
        arrive(a, other, "abc");
        look("news", set);
        drain(other, 3);
        look("drained", set);
    }
    close(a), close(other), close(fd), close(set);
}

/* A poll of a set ignores connections that are not in it, or whose events are not wanted, on either carrier. */
static void unwanted(void)
{
    static const char text[] = "more than a hundred bytes, so that what follows them may have to come by TCP, which is the "
                               "reported by the kernel, if it was asked";
    int a, b, set = epoll_create1(0);
    char c;
    open_pair(&a, &b);
    CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0);
    for (int round = 0; round < 8; round++) {
        struct pollfd sets = {set, POLLIN, 0};
        if (round % 2)
            CHECK(ctl(set, EPOLL_CTL_MOD, b, 0, 1) == 0);
        else
            CHECK(ctl(set, EPOLL_CTL_DEL, b, 0, 0) == 0);
        arrive(a, b, text);
        printf("unwanted: %d", poll(&sets, 1, 0));
        if (round % 2)
            CHECK(ctl(set, EPOLL_CTL_MOD, b, EPOLLIN, 1) == 0);
        else
            CHECK(ctl(set, EPOLL_CTL_ADD, b, EPOLLIN, 1) == 0);
        int ready = poll(&sets, 1, 0);
        printf(", wanted: %d %x\n", ready, sets.revents);
        drain(b, sizeof text - 1);
        write_all(b, "x", 1);
        read_all(a, &c, 1);
    }
    close(a), close(b), close(set);
}

static atomic_int begun, arrived;
static int sender, duplicate;

static void *close_duplicates(void *rounds)
{
    for (int i = 1; i <= *(int *)rounds; i++) {
        await_round(&begun, i);
        for (volatile int delay = i * 53 % 4000; delay > 0; delay--)
            ;
        CHECK(close(duplicate) == 0);
        write_all(sender, "x", 1);
        atomic_store(&arrived, i);
    }
    return NULL;
}

/* Another thread closes the number in the set, but not the last number, as the first wait on the set begins. */
static void closed_meanwhile(void)
{
    int b, rounds = 400;
    char c;
    pthread_t thread;
    pair(&sender, &b);
    CHECK(pthread_create(&thread, NULL, close_duplicates, &rounds) == 0);
    for (int i = 1; i <= rounds; i++) {
        struct epoll_event event;
        int set = epoll_create1(0);
        duplicate = dup(b);
        CHECK(duplicate >= 0 && ctl(set, EPOLL_CTL_ADD, duplicate, EPOLLIN | EPOLLET, 7) == 0);
        atomic_store(&begun, i);
        for (volatile int delay = 4000; delay > 0; delay--)
            ;
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 7);
        await_round(&arrived, i);
        read_all(b, &c, 1);
        CHECK(close(set) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    printf("closed meanwhile: %d rounds\n", rounds);
    close(sender), close(b);
}

int main(void)
{
    static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    for (int i = 0; i < 4; i++) {
        closed_number(modes[i]);
        duplicates(modes[i]);
    }
    closed_early();
    reused_number();
    exclusive();
    strange();
    unwanted();
    closed_meanwhile();
    return 0;
}
