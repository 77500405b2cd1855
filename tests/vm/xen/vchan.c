/*
 * libxenvchan between two domains: Xen's own carrier, with which others are compared.
 *
 *   vchan echo DOMAIN NAME               offers NAME to that domain, writes "listening", sends back what comes until the
 *                                        other end closes
 *   vchan ask DOMAIN NAME COUNT SIZE     COUNT times sends SIZE bytes to such a one and compares what comes back
 *
 * An offer is where Xen's own programs have theirs: data/NAME below a domain in xenstore, which every domain may write
 * for itself.
 */
#include <err.h>
#include <libxenvchan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a ring, in each direction. */
#define RING 65536

static void echo(int domain, const char *path)
{
    static char bytes[RING];
    struct libxenvchan *channel = libxenvchan_server_init(NULL, domain, path, RING, RING);
    int n;

    if (!channel)
        err(1, "libxenvchan_server_init");
    channel->blocking = 1;
    puts("listening");
    fflush(stdout);
    /* Nobody has come yet: a read waits only while somebody is there. */
    while (libxenvchan_is_open(channel) == 2)
        if (libxenvchan_wait(channel) < 0)
            err(1, "libxenvchan_wait");
    while ((n = libxenvchan_read(channel, bytes, sizeof(bytes))) > 0)
        if (libxenvchan_send(channel, bytes, n) != n)
            break;
    libxenvchan_close(channel);
}

static void ask(int domain, const char *path, int count, size_t size)
{
    struct libxenvchan *channel = libxenvchan_client_init(NULL, domain, path);
    char *sent = malloc(size), *back = malloc(size);

    if (!channel)
        err(1, "libxenvchan_client_init");
    if (!sent || !back || size > RING)
        errx(2, "more than %d bytes", RING);
    channel->blocking = 1;
    for (int i = 0; i < count; i++) {
        memset(sent, i, size);
        if (libxenvchan_send(channel, sent, size) != (int)size || libxenvchan_recv(channel, back, size) != (int)size)
            errx(1, "the other end is gone after %d times", i);
        if (memcmp(sent, back, size))
            errx(1, "other bytes came back the %dth time", i);
    }
    printf("%d times %zu bytes came back\n", count, size);
    libxenvchan_close(channel);
}

int main(int argc, char **argv)
{
    char path[64];

    if (argc == 4 && !strcmp(argv[1], "echo")) {
        snprintf(path, sizeof(path), "data/%s", argv[3]);
        echo(atoi(argv[2]), path);
    } else if (argc == 6 && !strcmp(argv[1], "ask")) {
        snprintf(path, sizeof(path), "/local/domain/%s/data/%s", argv[2], argv[3]);
        ask(atoi(argv[2]), path, atoi(argv[4]), atoi(argv[5]));
    } else {
        errx(2, "no such command");
    }
    return 0;
}
