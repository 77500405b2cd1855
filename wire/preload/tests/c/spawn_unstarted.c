/* Programs that were to get a socket with unread bytes, and never begin. */
#include "common.h"
#include <spawn.h>

enum { LEN = 100000 };

int main(void)
{
    static char bytes[LEN];
    char *arguments[] = {"nothing", NULL};
    extern char **environ;
    for (int begins = 0; begins < 2; begins++) {
        int a, b;
        pid_t child;
        posix_spawn_file_actions_t actions;
        pair(&a, &b);
        write_all(a, bytes, LEN);
        CHECK(shutdown(a, SHUT_WR) == 0);
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, b, 0) == 0);
        if (begins)
            CHECK(posix_spawn(&child, "/proc/nothing", &actions, NULL, arguments, environ) == ENOENT);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
        read_all(b, bytes, LEN);
        say("then", read(b, bytes, 1));
        write_all(b, "answer", 6);
        close(b);
        read_all(a, bytes, 6);
        say("after the answer", read(a, bytes, 1));
        close(a);
    }
    return 0;
}
