/* Rings made in objects that have their own liburing. */
#include "common.h"
#include "raw.h"
#include <dlfcn.h>
#include <linux/io_uring.h>

struct ring {
    int fd;
    struct io_uring_params params;
};

static void *opened(const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL)
        printf("%s\n", dlerror());
    CHECK(object != NULL);
    return object;
}

/* Whether there is a ring. */
static int make(const char *name, void *object)
{
    struct ring ring = {0};
    int (*make)(struct ring *) = (int (*)(struct ring *))dlsym(object, "make");
    CHECK(make != NULL);
    printf("%s\n", name);
    say("made", make(&ring));
    say("by", ring.params.resv[0]);
    if (ring.fd < 0)
        return 0;
    close(ring.fd);
    return 1;
}

int main(void)
{
    int a, b;
    char buf[8] = "";
    pair(&a, &b);
    write_all(a, "abc", 3);
    CHECK(recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
    void *inside = opened(INSIDE);
    int is_allowed = make("linked in", inside);
    /* If there is a ring, its bytes come through the kernel. */
    if (is_allowed)
        say("from the kernel", raw6(SYS_recvfrom, b, (long)buf, sizeof buf, 0, 0, 0));
    void *needs = opened(NEEDS);
    make("needed", needs);
    make("linked in, beside it", inside);
    CHECK(dlclose(inside) == 0);
    make("needed, alone", needs);
    CHECK(dlclose(needs) == 0);
    inside = opened(INSIDE);
    make("linked in, opened again", inside);
    CHECK(dlclose(inside) == 0);
    void *jumps = opened(JUMPS);
    make("linked in, by a jump", jumps);
    CHECK(dlclose(jumps) == 0);
    close(a), close(b);
    return 0;
}
