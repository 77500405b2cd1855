/* Two threads that take turns by a connection, which is all that keeps them apart. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS = 200 };

static int ends[2], turns;

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void *answer(void *argument)
{
    char byte;
    for (int round = 0; round < ROUNDS; round++) {
        expect(read(ends[1], &byte, 1) == 1);
        turns++;
        expect(write(ends[1], &byte, 1) == 1);
    }
    return argument;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 1;
    pthread_t thread;
    expect(bind(listener, (struct sockaddr *)&address, len) == 0 && listen(listener, 1) == 0);
    expect(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    expect(connect(ends[0], (struct sockaddr *)&address, len) == 0);
    ends[1] = accept(listener, NULL, NULL);
    expect(ends[1] >= 0 && pthread_create(&thread, NULL, answer, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        turns++;
        expect(write(ends[0], &byte, 1) == 1);
        expect(read(ends[0], &byte, 1) == 1);
    }
    expect(pthread_join(thread, NULL) == 0);
    expect(close(ends[0]) == 0 && close(ends[1]) == 0 && close(listener) == 0);
    printf("%d turns\n", turns);
    return 0;
}
