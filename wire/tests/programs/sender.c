/*
 * The peer of the programs that seek: connects to the port in its arguments, and runs the commands that it reads, one a line:
 *
 *   warm        answers 64 single bytes with one each
 *   send N      sends N bytes; says so when all are with the kernel or on the ring
 *   start N     says so at once, then sends N bytes
 *   fin         ends its direction
 *   rst         resets the connection
 *
 * The byte at position p of what it sends after `warm` is pattern(p). Knows nothing of seeking.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pattern.h"

static int fd;

static void require(int condition, const char *what)
{
    if (!condition) {
        perror(what);
        _exit(1);
    }
}

static void send_pattern(size_t len)
{
    static uint64_t position;
    static char block[1 << 16];
    while (len > 0) {
        size_t want = len < sizeof block ? len : sizeof block;
        for (size_t i = 0; i < want; i++)
            block[i] = pattern(position + i);
        ssize_t n = send(fd, block, want, MSG_NOSIGNAL);
        /* A receiver that has seen enough may end the connection. */
        if (n < 0)
            _exit(0);
        position += n;
        len -= n;
    }
}

static void say(const char *answer)
{
    require(printf("%s\n", answer) > 0 && fflush(stdout) == 0, "answer");
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    address.sin_port = htons(argc > 1 ? atoi(argv[1]) : 0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        size_t number = strtoul(line + strcspn(line, " \n"), NULL, 10);
        if (strncmp(line, "warm", 4) == 0) {
            for (char c, i = 0; i < 64; i++)
                require(recv(fd, &c, 1, 0) == 1 && send(fd, &c, 1, 0) == 1, "warm");
        } else if (strncmp(line, "start", 5) == 0) {
            say("ok");
            send_pattern(number);
            continue;
        } else if (strncmp(line, "send", 4) == 0) {
            send_pattern(number);
        } else if (strncmp(line, "fin", 3) == 0) {
            shutdown(fd, SHUT_WR);
        } else if (strncmp(line, "rst", 3) == 0) {
            struct linger now = { .l_onoff = 1, .l_linger = 0 };
            require(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(fd) == 0, "reset");
        }
        say("ok");
    }
    return 0;
}
