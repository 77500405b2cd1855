/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Seekwire: ask about, and steer, the connections of this process.
 *
 * A program needs none of this to be made faster; `seekwire run PROGRAM` is enough. Link with -lseekwire to use these
 * functions, or look them up with dlsym(3) and do without when they are absent.
 *
 * All functions are thread-safe. None of them is async-signal-safe.
 */
#ifndef SEEKWIRE_H
#define SEEKWIRE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What moves the bytes of one direction of a connection. */
#define SEEKWIRE_CARRIER_TCP 0u
#define SEEKWIRE_CARRIER_RING 1u

/*
 * State of one connection. The caller sets `size` to sizeof(struct seekwire_status) before the call; later versions
 * only append members, and fill no more than `size` bytes.
 */
struct seekwire_status {
    uint32_t size;       /* set by the caller: bytes in this struct */
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
 * Fills *st for the TCP connection `fd`. A TCP socket that the library leaves alone counts as a connection that is
 * not attached, with zero bytes.
 *
 * Returns 0, or -1 with errno:
 *   EBADF     fd is not open
 *   ENOTSOCK  fd is not a socket
 *   EINVAL    fd is not a TCP stream socket, st is NULL, or st->size is too small
 */
int seekwire_status(int fd, struct seekwire_status *st);

/*
 * Moves both directions of the TCP connection `fd` back to TCP, for good. Own sends change at once; the peer is asked
 * to change its own at its next send. Nothing is lost and the order is kept. A connection that is not attached stays
 * plain from now on.
 *
 * Returns 0, or -1 with errno:
 *   EBADF     fd is not open
 *   ENOTSOCK  fd is not a socket
 *   EINVAL    fd is not a TCP stream socket
 *   EAGAIN    the peer has not answered in time; the request stands and takes effect at its next send
 */
int seekwire_fall_back(int fd);

#ifdef __cplusplus
}
#endif

#endif /* SEEKWIRE_H */
