/* An object that is opened at run time, and makes a ring with the liburing that is linked into it or that it depends on. */
struct ring;

int io_uring_queue_init(unsigned entries, struct ring *ring, unsigned flags);
int make(struct ring *ring);

int make(struct ring *ring)
{
    return io_uring_queue_init(8, ring, 0);
}
