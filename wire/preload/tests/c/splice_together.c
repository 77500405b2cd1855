/* Two threads splice from their sockets into one pipe that does not wait: no byte is lost. */
#include "common.h"

enum { LEN = 8 << 20 };

static int pipes[2];

static void *feeds(void *to)
{
    static char bytes[100000];
    for (size_t left = LEN; left > 0;) {
        size_t len = left < sizeof bytes ? left : sizeof bytes;
        write_all(*(int *)to, bytes, len);
        left -= len;
    }
    CHECK(shutdown(*(int *)to, SHUT_WR) == 0);
    return NULL;
}

static void *splices(void *from)
{
    struct pollfd room = {pipes[1], POLLOUT, 0};
    ssize_t n;
    while ((n = splice(*(int *)from, NULL, pipes[1], NULL, 1 << 20, 0)) != 0)
        CHECK(n > 0 || (errno == EAGAIN && poll(&room, 1, -1) == 1));
    return NULL;
}

int main(void)
{
    static char bytes[65536];
    int ends[2][2];
    size_t total = 0;
    ssize_t n;
    pthread_t threads[4];
    CHECK(pipe(pipes) == 0 && fcntl(pipes[1], F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; i < 2; i++) {
        pair(&ends[i][0], &ends[i][1]);
        CHECK(pthread_create(&threads[i], NULL, feeds, &ends[i][0]) == 0);
        CHECK(pthread_create(&threads[2 + i], NULL, splices, &ends[i][1]) == 0);
    }
    while (total < 2 * (size_t)LEN && (n = read(pipes[0], bytes, sizeof bytes)) > 0)
        total += n;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%zu bytes\n", total);
    return 0;
}
