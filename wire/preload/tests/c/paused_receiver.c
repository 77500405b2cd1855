/*
 * A receiver that pauses until its sender leaves the full ring, and the kernel has taken all it can, with any way of waiting in
 * the sender. Nothing is lost if the receiver then continues, or hands its socket to libc, which does not know about the ring.
 */
#include "common.h"
#include "room.h"

#define TOTAL (16 << 20)
/* More than a ring takes, and less than the kernel does by default (tcp_wmem, 4 MiB). */
#define MOST_OF_TCP (3 << 20)

static char message[TOTAL];

static void serve(int listener, int go, int hands_over)
{
    int fd = accept(listener, NULL, NULL);
    char c;
    CHECK(fd >= 0);
    for (int i = 0; i < 32; i++) {
        read_all(fd, &c, 1);
        write_all(fd, &c, 1);
    }
    read_all(go, &c, 1);
    char *received = malloc(TOTAL);
    size_t got;
    if (hands_over) {
        FILE *file = fdopen(fd, "r");
        CHECK(file != NULL);
        got = fread(received, 1, TOTAL, file);
        CHECK(fgetc(file) == EOF);
    } else {
        got = recv(fd, received, TOTAL, MSG_WAITALL);
        CHECK(read(fd, &c, 1) == 0);
    }
    printf("received: %zu, %s\n", got, memcmp(received, message, TOTAL) == 0 ? "as sent" : "something else");
    exit(0);
}

static void send_to_nobody(enum how how, int hands_over)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), go[2], is_released = 0;
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0)
        serve(listener, go[0], hands_over);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    char c;
    for (int i = 0; i < 32; i++) {
        write_all(fd, "x", 1);
        read_all(fd, &c, 1);
    }
    struct timeval limit = {2, 0};
    int set = set_with(how, fd);
    CHECK(how != BLOCK || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    for (size_t sent = 0; sent < TOTAL;) {
        size_t left = TOTAL - sent, most = 100000;
        ssize_t n = send(fd, message + sent, left < most ? left : most, how == BLOCK ? 0 : MSG_DONTWAIT);
        CHECK(n > 0 || errno == EAGAIN);
        sent += n > 0 ? n : 0;
        if (n > 0)
            continue;
        int waits = how == BLOCK || wait_for_room(how, set, fd, is_released ? -1 : 2000) == 0;
        if (waits && !is_released) {
            printf("%s: %s\n", names[how], sent > MOST_OF_TCP ? "as much as TCP takes" : "less than TCP takes");
            write_all(go[1], "!", 1);
            is_released = 1;
        }
    }
    CHECK(is_released);
    CHECK(close(fd) == 0 && close(set) == 0 && close(listener) == 0 && close(go[0]) == 0 && close(go[1]) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("%s: done\n", names[how]);
}

/* Each waits for seconds, so all of them run at once; their output comes in order. */
int main(void)
{
    struct {
        pid_t child;
        FILE *says;
    } senders[2 * HOWS];
    for (size_t i = 0; i < TOTAL; i++)
        message[i] = i * 2654435761u >> 24;
    for (int i = 0; i < 2 * HOWS; i++) {
        CHECK((senders[i].says = tmpfile()) != NULL);
        senders[i].child = fork();
        if (senders[i].child == 0) {
            CHECK(dup2(fileno(senders[i].says), STDOUT_FILENO) >= 0);
            send_to_nobody(i / 2, i % 2);
            exit(0);
        }
    }
    for (int i = 0; i < 2 * HOWS; i++) {
        int status, c;
        CHECK(waitpid(senders[i].child, &status, 0) == senders[i].child && status == 0);
        rewind(senders[i].says);
        while ((c = getc(senders[i].says)) != EOF)
            putchar(c);
    }
    return 0;
}
