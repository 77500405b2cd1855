/*
 * A receiver that stays inside a read of TCP, where the kernel copies. Its sender, which was back on the ring in the meantime,
 * may not send by TCP before the read has ended. The kernel has room all the time, and the end of the read comes without a
 * notification: the sender sleeps until then, in any way of waiting, and continues afterwards.
 */
#include "common.h"
#include "room.h"
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* More than a ring and the kernel's buffers take. */
#define TOTAL (32 << 20)
/* How long, in ms, nothing has to happen until the test concludes that nothing will. */
#define PAUSE 150

static char message[TOTAL];

/* A page that is missing, and the pipe that reports a fault on it. */
struct fault {
    int faults, reports, go;
    char *page;
};

static void *provide(void *arg)
{
    struct fault *fault = arg;
    struct uffd_msg what;
    char c = '!';
    CHECK(read(fault->faults, &what, sizeof what) == sizeof what && what.event == UFFD_EVENT_PAGEFAULT);
    write_all(fault->reports, &c, 1);
    read_all(fault->go, &c, 1);
    struct uffdio_zeropage zero = {.range = {.start = (uintptr_t)fault->page, .len = getpagesize()}};
    CHECK(ioctl(fault->faults, UFFDIO_ZEROPAGE, &zero) == 0);
    return NULL;
}

static void serve(int listener, int reports, int go)
{
    int fd = accept(listener, NULL, NULL);
    size_t page = getpagesize(), got = 0, first;
    char c, *received = malloc(TOTAL);
    CHECK(fd >= 0 && received != NULL);
    for (int i = 0; i < 32; i++) {
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    struct fault fault = {.faults = syscall(SYS_userfaultfd, O_CLOEXEC), .reports = reports, .go = go};
    fault.page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(fault.faults >= 0 && fault.page != MAP_FAILED && ioctl(fault.faults, UFFDIO_API, &api) == 0);
    range.range = (struct uffdio_range){.start = (uintptr_t)fault.page, .len = page};
    CHECK(ioctl(fault.faults, UFFDIO_REGISTER, &range) == 0);
    pthread_t provider;
    CHECK(pthread_create(&provider, NULL, provide, &fault) == 0);
    /* All but the last byte, which the kernel has. */
    read_all(go, &first, sizeof first);
    CHECK(recv(fd, received, first - 1, MSG_WAITALL) == (ssize_t)first - 1);
    ssize_t n = read(fd, fault.page, page);
    CHECK(n > 0 && pthread_join(provider, NULL) == 0);
    memcpy(received + first - 1, fault.page, n);
    for (got = first - 1 + n; (n = read(fd, received + got, TOTAL - got)) > 0;)
        got += n;
    printf("received: %zu, %s\n", got, memcmp(received, message, TOTAL) == 0 ? "as sent" : "something else");
    exit(0);
}

/* Sends until there has been no room for a while, or everything is sent; returns how often room was reported. */
static int send_what_fits(enum how how, int set, int fd, size_t *sent)
{
    int said = 0;
    while (*sent < TOTAL) {
        size_t left = TOTAL - *sent, most = 100000;
        ssize_t n = send(fd, message + *sent, left < most ? left : most, how == BLOCK ? 0 : MSG_DONTWAIT);
        CHECK(n > 0 || errno == EAGAIN);
        *sent += n > 0 ? n : 0;
        if (n > 0)
            continue;
        if (how == BLOCK || wait_for_room(how, set, fd, PAUSE) == 0)
            break;
        said++;
    }
    return said;
}

static void send_to_one_inside(enum how how)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), reports[2], go[2];
    CHECK(pipe(reports) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(reports[0]);
        close(go[1]);
        serve(listener, reports[1], go[0]);
    }
    CHECK(close(reports[1]) == 0 && close(go[0]) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    char c;
    for (int i = 0; i < 32; i++) {
        write_all(fd, "x", 1);
        read_all(fd, &c, 1);
    }
    struct timeval limit = {0, PAUSE * 1000};
    int set = set_with(how, fd);
    CHECK(how != BLOCK || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    size_t sent = 0;
    send_what_fits(how, set, fd, &sent);
    CHECK(sent < TOTAL);
    write_all(go[1], &sent, sizeof sent);
    read_all(reports[0], &c, 1);
    /* The receiver is inside the read: there may be room, but not for ever. */
    int said = send_what_fits(how, set, fd, &sent);
    printf("%s: %s, %s\n", names[how], sent < TOTAL ? "waits" : "all sent", said < 1000 ? "asleep" : "awake");
    write_all(go[1], "!", 1);
    while (sent < TOTAL) {
        if (how != BLOCK)
            CHECK(wait_for_room(how, set, fd, -1) == 1);
        size_t left = TOTAL - sent, most = 100000;
        ssize_t n = send(fd, message + sent, left < most ? left : most, how == BLOCK ? 0 : MSG_DONTWAIT);
        CHECK(n > 0 || errno == EAGAIN);
        while (n > 0) {
            sent += n;
            left = TOTAL - sent;
            n = left > 0 ? send(fd, message + sent, left < most ? left : most, MSG_DONTWAIT) : 0;
        }
    }
    CHECK(close(fd) == 0 && close(set) == 0 && close(listener) == 0 && close(reports[0]) == 0 && close(go[1]) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    for (size_t i = 0; i < TOTAL; i++)
        message[i] = i * 2654435761u >> 24;
    for (enum how how = BLOCK; how < HOWS; how++)
        send_to_one_inside(how);
    return 0;
}
