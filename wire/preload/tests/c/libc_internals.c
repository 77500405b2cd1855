/* The C library's own uses of a socket: streams at its number, and programs that it starts. */
#include "common.h"
#include "waiting.h"
#include <execinfo.h>
#include <stdio_ext.h>
#include <sys/eventfd.h>
#include <wordexp.h>

static void set_aside(int number, int *aside)
{
    fflush(NULL);
    CHECK((*aside = dup(number)) >= 0);
}

static void put_back(int number, int aside)
{
    CHECK(dup2(aside, number) == number && close(aside) == 0);
}

/* As inetd does it, and with a number that was closed before. */
static void standard_streams(int by_closing)
{
    struct waiting waiting;
    char line[32] = "", byte;
    int a, b, in, out;
    pair(&a, &b);
    begin_waiting(&waiting, a, 7);
    set_aside(0, &in), set_aside(1, &out);
    if (by_closing) {
        CHECK(close(0) == 0 && dup(b) == 0 && close(1) == 0 && dup(b) == 1);
    } else {
        CHECK(dup2(b, 0) == 0 && dup2(b, 1) == 1);
    }
    close(b);
    write_all(a, "a line\nmore", 11);
    char *got = fgets(line, sizeof line, stdin);
    int next = getchar();
    printf("answer\n");
    fflush(stdout);
    put_back(1, out), put_back(0, in);
    show("answer", &waiting);
    printf("%s%c\n", got ? got : "(nothing)", next);
    /* Bytes that it had read ahead belong to the old stream. */
    __fpurge(stdin);
    say("end", recv(a, &byte, 1, 0));
    close(a);
}

/* A stream of the program's own. */
static void own_stream(void)
{
    struct waiting waiting;
    int a, b;
    FILE *file = fopen("/dev/null", "r+");
    CHECK(file != NULL);
    pair(&a, &b);
    begin_waiting(&waiting, a, 6);
    CHECK(dup2(b, fileno(file)) == fileno(file));
    fprintf(file, "number");
    fflush(file);
    show("own stream", &waiting);
    fclose(file);
    write_all(b, "!", 1);
    begin_waiting(&waiting, a, 1);
    show("the other number", &waiting);
    close(a), close(b);
}

/* Programs that the C library starts inherit the connection. */
static void programs(int how)
{
    struct waiting waiting;
    char command[64], text[16] = "";
    wordexp_t words;
    int a, b;
    pair(&a, &b);
    begin_waiting(&waiting, a, 3);
    write_all(a, "abc", 3);
    snprintf(command, sizeof command, "head -c 3 <&%d; printf xyz >&%d", b, b);
    if (how == 0) {
        fflush(stdout);
        say("system", system(command));
    } else if (how == 1) {
        FILE *file = popen(command, "r");
        CHECK(file != NULL && fread(text, 1, 3, file) == 3);
        printf("popen: %s\n", text);
        say("pclose", pclose(file));
    } else {
        int in = dup(0);
        CHECK(in >= 0 && dup2(b, 0) == 0);
        CHECK(wordexp("`head -c 3`", &words, 0) == 0 && words.we_wordc == 1);
        put_back(0, in);
        printf("wordexp: %s\n", words.we_wordv[0]);
        wordfree(&words);
        write_all(b, "xyz", 3);
    }
    show("it", &waiting);
    close(a), close(b);
}

/* Functions that read and write the number by themselves. */
static void helpers(void)
{
    struct waiting waiting;
    void *frames[1] = {(void *)helpers};
    eventfd_t value = 0;
    char byte;
    int a, b;
    pair(&a, &b);
    write_all(a, "01234567", 8);
    say("eventfd_read", eventfd_read(b, &value));
    printf("%.8s\n", (char *)&value);
    say("eventfd_write", eventfd_write(b, value));
    begin_waiting(&waiting, a, 8);
    show("it", &waiting);
    begin_waiting(&waiting, a, 2);
    write_all(b, "[", 1);
    backtrace_symbols_fd(frames, 1, b);
    CHECK(pthread_join(waiting.thread, NULL) == 0);
    printf("backtrace_symbols_fd: %d\n", waiting.bytes[0] == '[' && strchr("./", waiting.bytes[1]) != NULL);
    do {
        CHECK(recv(a, &byte, 1, 0) == 1);
    } while (byte != '\n');
    write_all(b, "]", 1);
    read_all(a, &byte, 1);
    printf("%c\n", byte);
    close(a), close(b);
}

int main(void)
{
    standard_streams(0);
    standard_streams(1);
    own_stream();
    for (int how = 0; how < 3; how++)
        programs(how);
    helpers();
    return 0;
}
