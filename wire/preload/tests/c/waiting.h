/* A thread that waits for bytes: the end that takes part when the other one leaves shared memory. */
struct waiting {
    pthread_t thread;
    int fd;
    size_t len;
    char bytes[64];
};

static void *await_bytes(void *argument)
{
    struct waiting *waiting = argument;
    ssize_t n = recv(waiting->fd, waiting->bytes, waiting->len, MSG_WAITALL);
    CHECK(n == (ssize_t)waiting->len);
    return NULL;
}

static void begin_waiting(struct waiting *waiting, int fd, size_t len)
{
    *waiting = (struct waiting){.fd = fd, .len = len};
    CHECK(pthread_create(&waiting->thread, NULL, await_bytes, waiting) == 0);
}

static void show(const char *what, struct waiting *waiting)
{
    CHECK(pthread_join(waiting->thread, NULL) == 0);
    printf("%s: %.*s\n", what, (int)waiting->len, waiting->bytes);
}
