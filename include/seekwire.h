/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Seekwire: ask about, and steer, the connections of this process; and receive out of the middle of
 * a stream.
 *
 * A program needs none of this to be made faster; `seekwire run PROGRAM` is enough. Link with
 * -lseekwire to use these functions (pkg-config seekwire), or look them up with dlsym(3) and do
 * without when they are absent.
 *
 * All functions are thread-safe. None of them is async-signal-safe.
 *
 * Names: every one begins with seekwire_ or SEEKWIRE_. The two exceptions are those of the paper,
 * seek_recv() and SOCK_SEEK_STREAM, which programs that were written after it use.
 *
 * Positions and offsets in a stream are uint64_t, whatever size_t and off_t are. The exception is
 * again seek_recv(), whose offset is the paper's size_t.
 *
 * Structs that can grow begin with their size, in bytes. The caller sets it to sizeof before the
 * call, and the library to what it has filled in: never more than the caller said, and less if the
 * library is older than the header. Later versions only append members. A struct without a size
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

/* What moves the bytes of one direction of a connection. */
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
 * Version of the library, such as "0.1.0". A static string; never NULL.
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
 *   EFAULT    st does not lead to memory that can be written
 *   EIO       the library has failed; its log says why
 */
int seekwire_status(int fd, struct seekwire_status *st);

/*
 * Moves both directions of the TCP connection `fd` back to TCP, for good. Own sends change at once;
 * the peer changes its own at its next send, which the call does not wait for. Nothing is lost and
 * the order is kept. A connection that is not attached stays plain from now on.
 *
 * Returns 0, or -1 with errno:
 *   EBADF     fd is not open
 *   ENOTSOCK  fd is not a socket
 *   EINVAL    fd is not a TCP stream socket
 *   EIO       the library has failed; its log says why
 */
int seekwire_fall_back(int fd);

/*
 * Receiving out of the middle of a stream, after "Seekable sockets" by Douglas and Pai. See
 * seek_recv(3).
 *
 * Works on any connected TCP socket, whatever the peer is. Offsets count from the head, the first
 * byte of the stream that was neither received nor taken; what was taken leaves a hole, which
 * counts, too. recv(2), read(2) and the like go on at the head and skip holes; poll(2), select(2),
 * epoll_wait(2) and FIONREAD know of them. A hole at the head vanishes.
 *
 * Once a program has called seek_recv() on a socket, every receive from it must come through this
 * library: not by raw system calls or io_uring, and not by another program, as long as there are
 * holes or seekwire_avail() shows bytes to receive.
 */

/* Type for socket(2): a TCP socket for seek_recv(). Without this library it is EINVAL. */
#define SOCK_SEEK_STREAM 15

/*
 * Flags of the functions below, beside MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC and MSG_WAITALL (which is
 * implied). PARTIAL: take what has arrived, at least one byte, up to the next hole. POSITION: the
 * offset is a position; the first byte of the stream has position 0.
 */
#define SEEKWIRE_PARTIAL 0x00400000
#define SEEKWIRE_POSITION 0x00800000

/*
 * Takes the `len` bytes that begin `offset` bytes behind the head, all or none; waits until they
 * have arrived unless the socket does not block (O_NONBLOCK, MSG_DONTWAIT) or its SO_RCVTIMEO is
 * over. With MSG_PEEK they stay; with MSG_TRUNC they are taken and not stored, and `buf` may be
 * NULL.
 *
 * Returns the number of bytes: `len`, fewer only where the stream ends or with SEEKWIRE_PARTIAL, 0
 * behind the end of the stream; or -1 with errno:
 *   EAGAIN      they have not all arrived, and the call does not wait, or no longer
 *   ENXIO       some of them were taken or received before (with SEEKWIRE_PARTIAL: the first)
 *   ENOBUFS     they cannot arrive before something is taken out, because the memory for what comes
 *               before them is used up (SEEKWIRE_SEEK_MEMORY); or there would be too many holes
 *               (1024); or `len` is more than a call can take, 0x7ffff000, or than there is memory
 *   EINVAL      a flag is unknown; `len` is more than SSIZE_MAX; `offset` is more than 2^63 - 1;
 *               the range ends beyond position 2^64 - 1
 *   EINTR       a signal handler without SA_RESTART ran; nothing was taken
 *   EBUSY       another process, forked since, goes on with this stream
 *   EMFILE      the library has to take up the socket first, and has no room for its number
 *   EIO         the library has failed; its log says why
 *   ECONNRESET and other errors of the connection, as recv(2)
 *   EBADF, EFAULT, ENOTSOCK, ENOTCONN; EOPNOTSUPP: not a TCP socket, or a child of vfork(2)
 */
ssize_t seek_recv(int fd, void *buf, size_t len, int flags, size_t offset);

/*
 * As seek_recv(), into the buffers of msg->msg_iov. Sets msg_namelen and msg_controllen to 0, as
 * TCP does, and msg_flags. The flag MSG_CMSG_CLOEXEC is allowed and means nothing.
 *
 * Errors: as seek_recv(); EMSGSIZE: msg_iovlen is more than IOV_MAX.
 */
ssize_t seekwire_recvmsg(int fd, struct msghdr *msg, int flags, uint64_t offset);

/*
 * As seek_recv(), but lends the bytes where they are, without a copy if they came through shared
 * memory: fills in up to `count` pieces, in order, and clears the others. The bytes are taken from
 * the stream; their memory is free for the sender again when all pieces of a segment were given to
 * seekwire_recv_return(). Several loans may be out at a time, and be returned in any order, by any
 * thread. Close() of the last descriptor ends all loans: the memory must not be touched from then
 * on.
 *
 * The memory is read-only. It may belong to the peer, which can change it at any time if it is
 * hostile: look at each byte once, or copy what has to stay as it was.
 *
 * Returns the number of bytes, or -1 with errno: as seek_recv(); EINVAL also for MSG_PEEK,
 * MSG_TRUNC and count < 1.
 */
ssize_t seekwire_recv_borrow(int fd, struct iovec *pieces, int count, size_t len, int flags,
                             uint64_t offset);

/*
 * Gives back pieces as seekwire_recv_borrow() has filled them in; empty ones are ignored.
 *
 * Returns 0, or -1 with errno, and then none was given back:
 *   EINVAL    a piece is not on loan, or stands there twice; count < 0
 *   EBADF, EFAULT, EIO, EMFILE, ENOTSOCK, ENOTCONN, EOPNOTSUPP: as seek_recv()
 */
int seekwire_recv_return(int fd, const struct iovec *pieces, int count);

/* Bytes of the stream, by position: from `start` on, `end` not included. */
struct seekwire_span {
    uint64_t start;
    uint64_t end;
};

/* What can be received. */
struct seekwire_extent {
    uint32_t size;     /* bytes in this struct: see above */
    uint32_t holes;    /* number of holes */
    uint64_t head;     /* position of the first byte neither received nor taken: offset 0 */
    uint64_t readable; /* bytes from the head on that have arrived, up to the first hole */
    uint64_t arrived;  /* position behind the last byte that has arrived */
};

/*
 * Fills *st, and the first `count` of `holes`, in order; `holes` may be NULL. Takes nothing and
 * does not wait.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL    st is NULL, or st->size is too small
 *   EFAULT    st, or a place of `holes` that is used, does not lead to memory that can be written
 *   EBUSY     another process, forked since, goes on with this stream
 *   EIO       the library has failed; its log says why
 *   EBADF, ENOTSOCK, ENOTCONN; EOPNOTSUPP: not a TCP socket
 */
int seekwire_avail(int fd, struct seekwire_extent *st, struct seekwire_span *holes, size_t count);

/*
 * socket(domain, SOCK_SEEK_STREAM | type_flags, protocol): a TCP socket for seek_recv(), as are
 * those that it accepts. Any connected TCP socket will do for seek_recv(), but the first seek in it
 * waits until the receives of other threads are over which began before. `type_flags` are
 * SOCK_NONBLOCK and SOCK_CLOEXEC, or 0.
 *
 * Returns a descriptor, or -1 with errno: EINVAL, also for what is not TCP, and those of socket(2).
 */
int seekwire_socket(int domain, int type_flags, int protocol);

#ifdef __cplusplus
}
#endif

#endif /* SEEKWIRE_H */
