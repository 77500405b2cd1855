/* A stand-in for liburing: makes a ring with an instruction of its own. */
#include "raw.h"
#include <linux/io_uring.h>

/* Identifies the copy. */
#ifndef MARK
#define MARK 0
#endif

struct ring {
    int fd;
    struct io_uring_params params;
};

int io_uring_queue_init(unsigned entries, struct ring *ring, unsigned flags)
{
    ring->params.flags = flags;
    ring->fd = raw(__NR_io_uring_setup, entries, (long)&ring->params, 0);
    ring->params.resv[0] = MARK;
    return ring->fd < 0 ? ring->fd : 0;
}
