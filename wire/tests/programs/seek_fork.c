/* Two processes seek in one stream: the one that receives first goes on with it. */
#include "seeking.h"

static char buf[10000];

/* What the child does; ends it. */
static pid_t in_child(void (*work)(int), int fd)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        work(fd);
        _exit(0);
    }
    return child;
}

static void require_end(pid_t child)
{
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void go_on(int fd)
{
    REQUIRE(seek_recv(fd, buf, 1000, 0, 3000) == 1000 && is_pattern(buf, 1000, 3000));
    REQUIRE(recv(fd, buf, 4000, MSG_WAITALL) == 4000);
    REQUIRE(is_pattern(buf, 1000, 0) && is_pattern(buf + 1000, 1000, 2000) && is_pattern(buf + 2000, 2000, 4000));
}

static void be_refused(int fd)
{
    FAILS(seek_recv(fd, buf, 1000, MSG_DONTWAIT, 0), EBUSY);
    FAILS(recv(fd, buf, 1, MSG_DONTWAIT), EBUSY);
}

static void nothing(int fd)
{
    REQUIRE(close(fd) == 0);
}

static int with_a_hole(struct sender *sender)
{
    int fd = connected(sender, 0);
    tell(sender, "send 6000");
    await(fd, 6000);
    REQUIRE(seek_recv(fd, buf, 1000, 0, 1000) == 1000 && is_pattern(buf, 1000, 1000));
    return fd;
}

static void the_child_goes_on(void)
{
    struct sender sender;
    int fd = with_a_hole(&sender);
    require_end(in_child(go_on, fd));
    be_refused(fd);
    finish(fd, &sender);
}

static void the_parent_goes_on(void)
{
    struct sender sender;
    int fd = with_a_hole(&sender), pipes[2];
    char go;
    REQUIRE(pipe(pipes) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(read(pipes[0], &go, 1) == 1);
        be_refused(fd);
        _exit(0);
    }
    go_on(fd);
    REQUIRE(write(pipes[1], "!", 1) == 1);
    require_end(child);
    close(pipes[0]), close(pipes[1]);
    finish(fd, &sender);
}

static void a_child_that_only_closes_does_no_harm(void)
{
    struct sender sender;
    int fd = with_a_hole(&sender);
    require_end(in_child(nothing, fd));
    go_on(fd);
    finish(fd, &sender);
}

/* Whatever changes nothing that the parent knows of. */
static void look(int fd)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    struct seekwire_extent st = extent(fd);
    REQUIRE(st.head == FIRST && st.arrived == FIRST + 6000 && st.holes == 1);
    REQUIRE(poll(&polled, 1, 0) == 1 && unread(fd) == 5000);
    FAILS(seek_recv(fd, buf, 1000, MSG_DONTWAIT, 5500), EAGAIN);
    FAILS(seek_recv(fd, buf, 1000, 0, 1500), ENXIO);
}

static void become_another(int fd)
{
    REQUIRE(fcntl(fd, F_SETFD, 0) == 0);
    execlp("true", "true", NULL);
    _exit(127);
}

static void a_child_that_only_looks_does_no_harm(void)
{
    struct sender sender;
    int fd = with_a_hole(&sender);
    require_end(in_child(look, fd));
    look(fd);
    require_end(in_child(look, fd));
    require_end(in_child(become_another, fd));
    go_on(fd);
    finish(fd, &sender);
}

/* What the parent received after the first fork is known to the second child, and not to the first. */
static void an_older_child_receives_nothing_twice(void)
{
    struct sender sender;
    int fd = with_a_hole(&sender), pipes[2];
    char go;
    REQUIRE(pipe(pipes) == 0);
    pid_t older = fork();
    REQUIRE(older >= 0);
    if (older == 0) {
        REQUIRE(read(pipes[0], &go, 1) == 1);
        be_refused(fd);
        _exit(0);
    }
    REQUIRE(seek_recv(fd, buf, 1000, 0, 3000) == 1000 && is_pattern(buf, 1000, 3000));
    REQUIRE(recv(fd, buf, 1000, MSG_WAITALL) == 1000 && is_pattern(buf, 1000, 0));
    pid_t younger = fork();
    REQUIRE(younger >= 0);
    if (younger == 0) {
        REQUIRE(read(pipes[0], &go, 1) == 1);
        REQUIRE(recv(fd, buf, 3000, MSG_WAITALL) == 3000);
        REQUIRE(is_pattern(buf, 1000, 2000) && is_pattern(buf + 1000, 2000, 4000));
        _exit(0);
    }
    /* In either order. */
    REQUIRE(write(pipes[1], "!!", 2) == 2);
    require_end(older);
    require_end(younger);
    be_refused(fd);
    close(pipes[0]), close(pipes[1]);
    finish(fd, &sender);
}

RUN(CASE(the_child_goes_on), CASE(the_parent_goes_on), CASE(a_child_that_only_closes_does_no_harm),
    CASE(a_child_that_only_looks_does_no_harm), CASE(an_older_child_receives_nothing_twice))
