/* Runs a program with the library, and reports whether the directory of its counters ever contains an empty file: the program
   might be killed between any two of its system calls. LIBRARY and SEEKWIRE_STATS name both. */
#include "common.h"
#include <dirent.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

static int converse(void)
{
    int a, b;
    pair(&a, &b);
    CHECK(close(a) == 0 && close(b) == 0);
    return 0;
}

static int empty_files(const char *path)
{
    int found = 0;
    struct stat stat;
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        found += fstatat(dirfd(directory), entry->d_name, &stat, 0) == 0 && S_ISREG(stat.st_mode) && stat.st_size == 0;
    closedir(directory);
    return found;
}

int main(int count, char **arguments)
{
    int status, stops = 0, empty = 0;
    if (count > 1)
        return converse();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && setenv("LD_PRELOAD", getenv("LIBRARY"), 1) == 0);
        execl(arguments[0], arguments[0], "converse", NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    while (!WIFEXITED(status)) {
        CHECK(WIFSTOPPED(status));
        int signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        CHECK(ptrace(PTRACE_SYSCALL, child, NULL, (void *)(long)signal) == 0);
        CHECK(waitpid(child, &status, 0) == child);
        empty += empty_files(getenv("SEEKWIRE_STATS"));
        stops++;
    }
    CHECK(stops > 100 && WEXITSTATUS(status) == 0);
    printf("empty at %d stops\n", empty);
    return 0;
}
