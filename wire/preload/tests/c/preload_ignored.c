/*
 * A program inherits a connection with unread bytes, and does not load the library although LD_PRELOAD names it: it starts with different
 * real and effective users, a later LD_PRELOAD counts, or the path is invalid in its directory. All bytes arrive, and then the end.
 */
#include "common.h"

enum { SIZE = 50000 };
static char program[PATH_MAX], library[PATH_MAX + 64];

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

static void send_all(struct sockaddr_in *address, int reports)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    static char bytes[SIZE];
    char c;
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0);
    warm_up_asking(fd);
    for (size_t at = 0; at < SIZE; at++)
        bytes[at] = byte_at(at);
    write_all(fd, bytes, SIZE);
    CHECK(shutdown(fd, SHUT_WR) == 0 && write(reports, "s", 1) == 1);
    while (read(fd, &c, 1) > 0)
        ;
    exit(0);
}

static void read_to_end(int fd)
{
    static char bytes[4096];
    size_t from = 0;
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < n; i++)
            CHECK(bytes[i] == byte_at(from++));
    printf("%zu bytes, then %s\n", from, n == 0 ? "the end" : strerror(errno));
}

/* Becomes the program that reads. */
static void become_it(const char *variant, int fd)
{
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    char *arguments[] = {program, "read", number, NULL}, *twice[] = {library, "LD_PRELOAD=", NULL};
    if (!strcmp(variant, "twice"))
        execve(program, arguments, *library ? twice : environ);
    /* Files stay open to the effective user. */
    if (!strcmp(variant, "two users") && geteuid() == 0)
        CHECK(setresuid(65534, 0, 0) == 0);
    /* The loader complains. */
    if (!strcmp(variant, "elsewhere"))
        CHECK(chdir("/") == 0 && dup2(open("/dev/null", O_WRONLY), STDERR_FILENO) == STDERR_FILENO);
    execv(program, arguments);
    CHECK(!"it does not start");
}

static void try(const char *variant)
{
    struct sockaddr_in address;
    int listener = listener_on(&address), reports[2];
    char c;
    CHECK(pipe2(reports, O_CLOEXEC) == 0);
    pid_t sender = fork();
    if (sender == 0)
        send_all(&address, reports[1]);
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    warm_up_answering(fd);
    check_on_ring(fd);
    CHECK(read(reports[0], &c, 1) == 1);
    become_it(variant, fd);
}

int main(int argc, char **argv)
{
    const char *preload = getenv("LD_PRELOAD");
    CHECK(realpath(argv[0], program));
    if (preload)
        snprintf(library, sizeof library, "LD_PRELOAD=%s", preload);
    if (argc == 3 && !strcmp(argv[1], "read")) {
        read_to_end(atoi(argv[2]));
        return 0;
    }
    if (argc == 2)
        try(argv[1]);
    static const char *const variants[] = {"as it is", "twice", "two users", "elsewhere"};
    for (size_t at = 0; at < sizeof variants / sizeof *variants; at++) {
        printf("%s: ", variants[at]);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            char *slash = strrchr(library, '/'), relative[sizeof library + 16];
            if (!strcmp(variants[at], "elsewhere") && slash) {
                /* Loaded with a relative path. */
                snprintf(relative, sizeof relative, "./%s", slash + 1);
                *slash = 0;
                CHECK(chdir(library + strlen("LD_PRELOAD=")) == 0 && setenv("LD_PRELOAD", relative, 1) == 0);
            }
            execl(program, program, variants[at], NULL);
            CHECK(!"it does not start");
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (status)
            printf("it ended with %d\n", status);
    }
    return 0;
}
