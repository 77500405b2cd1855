/* Starts a program with one of many calls: `exec_methods METHOD PROGRAM`. Passes on its output and its exit status. */
#include "common.h"

#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

static char *program, *name;
/* No memory is mapped there, which is hidden from the compiler. */
static void *volatile nothing = (void *)8;
static int status;

static void *wait_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void await(pid_t child)
{
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
}

static void spawn(int by_name)
{
    char *arguments[] = {program, NULL};
    pid_t child;
    int error = by_name ? posix_spawnp(&child, name, NULL, NULL, arguments, environ)
                        : posix_spawn(&child, program, NULL, NULL, arguments, environ);
    errno = error;
    CHECK(error == 0);
    await(child);
}

static void copy_and_close(FILE *from)
{
    for (int c; (c = getc(from)) != EOF;)
        putchar(c);
    status = pclose(from);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    char *method = words[1], *arguments[] = {words[2], NULL}, *slash = strrchr(words[2], '/');
    program = words[2];
    /* PATH contains its directory. */
    name = slash + 1;
    pthread_t thread;
    pid_t child;
    if (!strcmp(method, "execve"))
        execve(program, arguments, environ);
    else if (!strcmp(method, "execv"))
        execv(program, arguments);
    else if (!strcmp(method, "execvp"))
        execvp(name, arguments);
    else if (!strcmp(method, "execvpe"))
        execvpe(name, arguments, environ);
    else if (!strcmp(method, "execl"))
        execl(program, program, NULL);
    else if (!strcmp(method, "execlp"))
        execlp(name, program, NULL);
    else if (!strcmp(method, "execle"))
        execle(program, program, NULL, environ);
    else if (!strcmp(method, "fexecve"))
        fexecve(open(program, O_RDONLY), arguments, environ);
    else if (!strcmp(method, "fexecve-path"))
        fexecve(open(program, O_PATH), arguments, environ);
    else if (!strcmp(method, "execveat")) {
        *slash = 0;
        execveat(open(program, O_PATH), name, arguments, environ, 0);
    } else if (!strcmp(method, "syscall"))
        syscall(SYS_execve, program, arguments, environ);
    else if (!strcmp(method, "posix_spawn"))
        spawn(0);
    else if (!strcmp(method, "posix_spawnp"))
        spawn(1);
    else if (!strcmp(method, "vfork")) {
        if ((child = vfork()) == 0) {
            execve(program, arguments, environ);
            _exit(255);
        }
        await(child);
    } else if (!strcmp(method, "fork-of-threads")) {
        CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
        if ((child = fork()) == 0) {
            execve(program, arguments, environ);
            _exit(255);
        }
        await(child);
    } else if (!strcmp(method, "system")) {
        status = system(program);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
    } else if (!strcmp(method, "popen"))
        copy_and_close(popen(program, "r"));
    else if (!strcmp(method, "after-a-failure")) {
        CHECK(execve("/nowhere", arguments, environ) == -1 && errno == ENOENT);
        CHECK(execve(nothing, arguments, environ) == -1 && errno == EFAULT);
        CHECK(execve(program, arguments, nothing) == -1 && errno == EFAULT);
        execve(program, arguments, environ);
    }
    perror(method);
    return 254;
}
