/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Seekwire: query and control the connections of this process, and receive out of the middle of a
 * stream.
 *
 * Seekwire accelerates programs without any of this; `seekwire run PROGRAM` is enough. To use these
 * functions, link with -lseekwire (pkg-config seekwire). Or look them up with dlsym(3), and do
 * without them if they are absent.
 *
 * All functions are thread-safe. None is async-signal-safe.
 *
 * Every name begins with seekwire_ or SEEKWIRE_, except seek_recv() and SOCK_SEEK_STREAM. These two
 * come from the paper, and programs written after it use them.
 *
 * Positions and offsets in a stream are uint64_t, whatever size_t and off_t are. Only seek_recv()
 * has an offset of type size_t, as in the paper.
 *
 * Structs that can grow begin with their size in bytes. The caller sets it to sizeof before the
 * call. The library sets it to the number of bytes that it has filled in: never more, and fewer if
 * the library is older than the header. Later versions only append members. A struct without a size
 * never changes.
 */
#ifndef SEEKWIRE_H
#define SEEKWIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The carrier of one direction of a connection. */
#define SEEKWIRE_CARRIER_TCP 0u
#define SEEKWIRE_CARRIER_RING 1u

/* State of one connection. */
struct seekwire_status {
    uint32_t size;       /* bytes in this struct: see above */
    uint32_t attached;   /* 1: both ends share memory; 0: plain TCP */
    uint32_t tx_carrier; /* SEEKWIRE_CARRIER_*: the next byte sent */
    uint32_t rx_carrier; /* SEEKWIRE_CARRIER_*: the next byte received */
    uint64_t tx_tcp;     /* bytes sent by TCP so far */
    uint64_t tx_ring;    /* bytes sent through shared memory so far */
    uint64_t rx_tcp;     /* bytes received by TCP so far */
    uint64_t rx_ring;    /* bytes received through shared memory so far */
};

/*
 * Returns the version of the library, such as "0.1.0": a static string, never NULL.
 */
const char *seekwire_version(void);

/*
 * Fills *st for the TCP connection `fd`. A TCP socket that the library leaves alone counts as a
 * connection that is not attached, with zero bytes.
 *
 * Returns 0, or -1 with errno:
 *   EBADF     fd is not open
 *   ENOTSOCK  fd is not a socket
 *   EINVAL    fd is not a TCP stream socket, st is NULL, or st->size is too small
 *   EFAULT    st does not point to writable memory
 *   EIO       the library failed; its log says why
 */
int seekwire_status(int fd, struct seekwire_status *st);

/*
 * Moves both directions of the TCP connection `fd` back to TCP, permanently. The direction of this
 * process changes at once. The peer changes its direction at its next send; the call does not wait
 * for that. Nothing is lost, and the order is kept. A connection that is not attached stays on TCP
 * from then on.
 *
 * Returns 0, or -1 with errno:
 *   EBADF     fd is not open
 *   ENOTSOCK  fd is not a socket
 *   EINVAL    fd is not a TCP stream socket
 *   EIO       the library failed; its log says why
 */
int seekwire_fall_back(int fd);

/*
 * Receiving out of the middle of a stream, after "Seekable sockets" by Douglas and Pai. See
 * seek_recv(3).
 *
 * This works on any connected TCP socket, with any peer. Offsets count from the head: the first
 * byte of the stream that was neither received nor taken. Bytes taken past the head leave a hole,
 * and offsets count its bytes, too. recv(2), read(2) and the like go on at the head and skip holes.
 * poll(2), select(2), epoll_wait(2) and FIONREAD do not count holes. A hole at the head vanishes.
 *
 * Once a program has called seek_recv() on a socket, every receive from it must come through this
 * library. While there are holes, or seekwire_avail() shows bytes to receive, do not receive by raw
 * system calls, by io_uring or in another program.
 */

/* Type for socket(2): a TCP socket for seek_recv(). Without this library, this is EINVAL. */
#define SOCK_SEEK_STREAM 15

/*
 * Flags of the functions below, in addition to MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC and MSG_WAITALL
 * (which is implied). PARTIAL: take the bytes that have arrived, at least one, up to the next hole.
 * POSITION: the offset is a position; the first byte of the stream has position 0.
 */
#define SEEKWIRE_PARTIAL 0x00400000
#define SEEKWIRE_POSITION 0x00800000

/*
 * Takes the `len` bytes that begin `offset` bytes after the head, all or none. Waits until they
 * have arrived, unless the call is nonblocking (O_NONBLOCK, MSG_DONTWAIT) or SO_RCVTIMEO expires.
 * MSG_PEEK leaves them in the stream. MSG_TRUNC takes them without storing them, and `buf` may be
 * NULL.
 *
 * Returns the number of bytes: `len`; fewer only at the end of the stream or with SEEKWIRE_PARTIAL;
 * 0 past the end of the stream. Or returns -1 with errno:
 *   EAGAIN      they have not all arrived, and the call is nonblocking or the timeout has expired
 *   ENXIO       some of them were already taken or received (with SEEKWIRE_PARTIAL: the first)
 *   ENOBUFS     they cannot arrive until something is received, because the memory for the bytes
 *               before them is used up (SEEKWIRE_SEEK_MEMORY); or there would be more than 1024
 *               holes; or `len` is more than a call can take (0x7ffff000), or more than there is
 *               memory for
 *   EINVAL      a flag is unknown; `len` is more than SSIZE_MAX; `offset` is more than 2^63 - 1;
 *               the range ends beyond position 2^64 - 1
 *   EINTR       a signal handler without SA_RESTART ran; nothing was taken
 *   EBUSY       after a fork(2), another process goes on with this stream
 *   EMFILE      the library has to register the socket first, and has no room for its number
 *   EIO         the library failed; its log says why
 *   ECONNRESET and other errors of the connection, as recv(2)
 *   EBADF, EFAULT, ENOTSOCK, ENOTCONN; EOPNOTSUPP: not a TCP socket, or a child of vfork(2)
 */
ssize_t seek_recv(int fd, void *buf, size_t len, int flags, size_t offset);

/*
 * Like seek_recv(), but stores the bytes in the buffers of msg->msg_iov. Sets msg_flags, and sets
 * msg_namelen and msg_controllen to 0, as TCP does. The flag MSG_CMSG_CLOEXEC is allowed, but has
 * no effect.
 *
 * Errors: as seek_recv(); EMSGSIZE: msg_iovlen is more than IOV_MAX.
 */
ssize_t seekwire_recvmsg(int fd, struct msghdr *msg, int flags, uint64_t offset);

/*
 * Like seek_recv(), but lends the bytes in place, without a copy if they came through shared
 * memory. Fills in up to `count` pieces, in order, and clears the others. The bytes are taken from
 * the stream. The sender can use their memory again when all pieces of a segment were returned by
 * seekwire_recv_return(). A program may hold several loans, and return them in any order and from
 * any thread. The close() of the last descriptor ends all loans; the program must not touch their
 * memory after that.
 *
 * The memory is read-only. It may belong to the peer, and a hostile peer can change it at any time:
 * read each byte only once, or copy bytes that have to stay unchanged.
 *
 * Returns the number of bytes, or -1 with errno: as seek_recv(); EINVAL also for MSG_PEEK,
 * MSG_TRUNC and count < 1.
 */
ssize_t seekwire_recv_borrow(int fd, struct iovec *pieces, int count, size_t len, int flags,
                             uint64_t offset);

/*
 * Returns pieces, exactly as seekwire_recv_borrow() filled them in. Empty pieces are ignored.
 *
 * Returns 0, or -1 with errno; in that case no piece was returned:
 *   EINVAL    a piece is not on loan, or is listed twice; count < 0
 *   EBADF, EFAULT, EIO, EMFILE, ENOTSOCK, ENOTCONN, EOPNOTSUPP: as seek_recv()
 */
int seekwire_recv_return(int fd, const struct iovec *pieces, int count);

/* Bytes of the stream, by position: from `start` on, `end` not included. */
struct seekwire_span {
    uint64_t start;
    uint64_t end;
};

/* The range of bytes that can be received. */
struct seekwire_extent {
    uint32_t size;     /* bytes in this struct: see above */
    uint32_t holes;    /* number of holes */
    uint64_t head;     /* position of the first byte neither received nor taken: offset 0 */
    uint64_t readable; /* bytes from the head on that have arrived, up to the first hole */
    uint64_t arrived;  /* position after the last byte that has arrived */
};

/*
 * Fills *st, and stores the first `count` holes in `holes`, in order. `holes` may be NULL. Takes
 * nothing and does not wait.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL    st is NULL, or st->size is too small
 *   EFAULT    st, or a part of `holes` that is used, does not point to writable memory
 *   EBUSY     after a fork(2), another process goes on with this stream
 *   EIO       the library failed; its log says why
 *   EBADF, ENOTSOCK, ENOTCONN; EOPNOTSUPP: not a TCP socket
 */
int seekwire_avail(int fd, struct seekwire_extent *st, struct seekwire_span *holes, size_t count);

/*
 * Does socket(domain, SOCK_SEEK_STREAM | type_flags, protocol), which makes a TCP socket for
 * seek_recv(). Sockets accepted from it are also of this kind. Any other connected TCP socket works
 * with seek_recv() as well, but its first seek waits for receives that other threads began before.
 * `type_flags` is 0, or a combination of SOCK_NONBLOCK and SOCK_CLOEXEC.
 *
 * Returns a descriptor, or -1 with errno: EINVAL, also if this is not TCP, or an error of
 * socket(2).
 */
int seekwire_socket(int domain, int type_flags, int protocol);

#ifdef __cplusplus
}
#endif

#endif /* SEEKWIRE_H */
