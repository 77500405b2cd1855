/* A ring of liburing that is made when connections are already in use, and moves their bytes. */
#include "common.h"
#include "raw.h"
#include <linux/io_uring.h>
#include <sys/mman.h>

static struct ring {
    int fd;
    struct io_uring_params params;
} ring;
static char *words;
static struct io_uring_sqe *entries;

int io_uring_queue_init(unsigned number, struct ring *made, unsigned flags);

static unsigned *word(unsigned offset)
{
    return (unsigned *)(words + offset);
}

static void map(void)
{
    const struct io_uring_params *p = &ring.params;
    size_t of_sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t of_cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    words = mmap(NULL, of_sq > of_cq ? of_sq : of_cq, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    entries = mmap(NULL, p->sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
    CHECK(words != MAP_FAILED && entries != MAP_FAILED);
}

/* The result of an operation on `fd`. */
static int submit(int operation, int fd, void *place, unsigned len)
{
    unsigned *tail = word(ring.params.sq_off.tail), at = *tail, mask = *word(ring.params.sq_off.ring_mask);
    entries[at & mask] = (struct io_uring_sqe){.opcode = operation, .fd = fd, .addr = (uintptr_t)place, .len = len};
    word(ring.params.sq_off.array)[at & mask] = at & mask;
    __atomic_store_n(tail, at + 1, __ATOMIC_RELEASE);
    CHECK(raw6(__NR_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    unsigned *head = word(ring.params.cq_off.head), done = *word(ring.params.cq_off.ring_mask) & *head;
    int result = ((struct io_uring_cqe *)(words + ring.params.cq_off.cqes))[done].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(void)
{
    int a, b;
    char buf[64] = "";
    pair(&a, &b);
    write_all(a, "abc", 3);
    CHECK(recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3);
    if (io_uring_queue_init(8, &ring, 0) < 0) {
        /* A kernel or a sandbox without it. */
        return 0;
    }
    map();
    say("what had come", submit(IORING_OP_RECV, b, buf, sizeof buf));
    write_all(a, "defgh", 5);
    say("what comes", submit(IORING_OP_RECV, b, buf, sizeof buf));
    printf("%s\n", buf);
    say("send", submit(IORING_OP_SEND, b, "ij", 2));
    say("received", recv(a, buf, 2, MSG_WAITALL));
    say("sent after it", write(b, "klm", 3));
    say("received", recv(a, buf, 3, MSG_WAITALL));
    printf("%s\n", buf);
    close(a);
    say("the end", submit(IORING_OP_RECV, b, buf, sizeof buf));
    close(b);
    pair_anywhere(&a, &b);
    write_all(a, "n", 1);
    say("on another one", submit(IORING_OP_RECV, b, buf, sizeof buf));
    close(a), close(b);
    return 0;
}
