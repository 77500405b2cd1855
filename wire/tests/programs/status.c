/*
 * Two processes exchange messages and look at their connection through seekwire.h: attached, bytes through the ring,
 * back to TCP on request, errors as documented. Exit status 0: everything was as it should be. Without Seekwire at the
 * other end (`plain` as argument), the connection must be reported as plain TCP.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <seekwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 1000

static void require(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "not so: %s (errno %d)\n", what, errno);
        exit(1);
    }
}

static struct seekwire_status status_of(int fd)
{
    struct seekwire_status st = { .size = sizeof st };
    require(seekwire_status(fd, &st) == 0, "status of a TCP connection");
    return st;
}

static void exchange(int fd, int first)
{
    char message[256];
    for (int round = 0; round < ROUNDS; round++) {
        memset(message, round, sizeof message);
        if (first)
            require(send(fd, message, sizeof message, 0) == sizeof message, "send");
        require(recv(fd, message, sizeof message, MSG_WAITALL) == sizeof message, "recv");
        require(message[0] == (char)round && message[255] == (char)round, "the message is the one that was sent");
        if (!first)
            require(send(fd, message, sizeof message, 0) == sizeof message, "send");
    }
}

static void check_errors(int connection)
{
    struct seekwire_status st = { .size = sizeof st };
    int pipes[2], udp = socket(AF_INET, SOCK_DGRAM, 0);
    require(pipe(pipes) == 0 && udp >= 0, "a pipe and a UDP socket");
    require(seekwire_status(9999, &st) == -1 && errno == EBADF, "EBADF for a closed descriptor");
    require(seekwire_status(pipes[0], &st) == -1 && errno == ENOTSOCK, "ENOTSOCK for a pipe");
    require(seekwire_status(udp, &st) == -1 && errno == EINVAL, "EINVAL for UDP");
    require(seekwire_status(connection, NULL) == -1 && errno == EINVAL, "EINVAL for NULL");
    st.size = 4;
    require(seekwire_status(connection, &st) == -1 && errno == EINVAL, "EINVAL for a struct too small");
    require(seekwire_fall_back(9999) == -1 && errno == EBADF, "fall_back: EBADF for a closed descriptor");
    require(seekwire_fall_back(pipes[0]) == -1 && errno == ENOTSOCK, "fall_back: ENOTSOCK for a pipe");
    require(seekwire_fall_back(udp) == -1 && errno == EINVAL, "fall_back: EINVAL for UDP");
}

int main(int argc, char **argv)
{
    int plain = argc > 1 && strcmp(argv[1], "plain") == 0;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    require(strlen(seekwire_version()) >= 5, "a version");
    require(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0, "listen");
    require(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");

    pid_t child = fork();
    require(child >= 0, "fork");
    int fd;
    if (child == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        require(connect(fd, (struct sockaddr *)&address, length) == 0, "connect");
    } else {
        fd = accept(listener, NULL, NULL);
        require(fd >= 0, "accept");
    }
    close(listener);

    exchange(fd, child == 0);
    struct seekwire_status before = status_of(fd);
    require(before.attached == !plain, "attached when it should be");
    require((before.tx_ring > 0 && before.rx_ring > 0) == !plain, "bytes through the ring when there should be");
    if (!plain) {
        uint64_t total = (uint64_t)ROUNDS * 256;
        require(before.tx_tcp + before.tx_ring == total && before.rx_tcp + before.rx_ring == total, "every byte counted");
    }
    check_errors(fd);

    if (child != 0)
        require(seekwire_fall_back(fd) == 0 || errno == EAGAIN, "fall back");
    exchange(fd, child == 0);
    exchange(fd, child == 0);
    struct seekwire_status after = status_of(fd);
    require(after.tx_carrier == SEEKWIRE_CARRIER_TCP && after.rx_carrier == SEEKWIRE_CARRIER_TCP, "back on TCP");

    close(fd);
    if (child != 0) {
        int ended;
        require(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "the child agrees");
    }
    return 0;
}
