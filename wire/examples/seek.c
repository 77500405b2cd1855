/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Three messages A, B and C come in this order, and the receiver wants B first: it takes B out of the middle of the stream, which
 * leaves a hole, and reads on as if B had never been there.
 *
 *     cc seek.c $(pkg-config --cflags --libs seekwire) -o seek && ./seek
 *
 * The sender needs no Seekwire, and may be on another host.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <seekwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define A 1000
#define B 2000
#define C 3000

static void check(int done, const char *what)
{
    if (!done) {
        perror(what);
        exit(EXIT_FAILURE);
    }
}

static void send_message(int fd, char name, size_t len)
{
    char message[C];
    memset(message, name, len);
    check(send(fd, message, len, 0) == (ssize_t)len, "send");
}

static void show(const char *what, const char *message, ssize_t len)
{
    check(len > 0, what);
    printf("%-26s %zd bytes, %c to %c\n", what, len, message[0], message[len - 1]);
}

static void show_stream(int fd)
{
    struct seekwire_extent stream = { .size = sizeof stream };
    struct seekwire_span hole;
    check(seekwire_avail(fd, &stream, &hole, 1) == 0, "seekwire_avail");
    printf("  head %" PRIu64 ", %" PRIu64 " bytes readable", stream.head, stream.readable);
    if (stream.holes > 0)
        printf(", hole from %" PRIu64 " to %" PRIu64, hole.start, hole.end);
    printf("\n");
}

int main(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = seekwire_socket(AF_INET, SOCK_CLOEXEC, 0);
    check(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");

    pid_t sender = fork();
    check(sender >= 0, "fork");
    if (sender == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        check(connect(fd, (struct sockaddr *)&address, length) == 0, "connect");
        send_message(fd, 'A', A);
        send_message(fd, 'B', B);
        send_message(fd, 'C', C);
        return 0;
    }

    int fd = accept(listener, NULL, NULL);
    char message[A + C];
    check(fd >= 0, "accept");
    /* All of B, whether or not A has been received. */
    show("seek_recv, after A", message, seek_recv(fd, message, B, 0, A));
    show_stream(fd);
    show("recv", message, recv(fd, message, A + C, MSG_WAITALL));
    show_stream(fd);
    check(recv(fd, message, 1, 0) == 0 && close(fd) == 0, "the end of the stream");
    check(waitpid(sender, NULL, 0) == sender, "waitpid");
    return 0;
}
