/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Receiving out of the middle of a TCP stream (Douglas and Pai, "Seekable
 * sockets"): the interface of the module tcp_seek.
 *
 *	setsockopt(fd, SOL_TCP, TCP_ULP, "seek", sizeof("seek"));
 *	getsockopt(fd, SOL_TCP_SEEK, TCP_SEEK_RECV, &recv, &size);
 *
 * Each byte of the stream has a position; that of the first byte received after
 * the first setsockopt() is 0. The head is the position of the first byte that
 * was neither received nor taken. Bytes taken past the head leave a hole. An
 * offset counts from the head, holes included.
 */
#ifndef _UAPI_TCP_SEEK_H
#define _UAPI_TCP_SEEK_H

#include <linux/types.h>

/* A level of getsockopt() that no protocol uses; "se". */
#define SOL_TCP_SEEK		0x7365

#define TCP_SEEK_RECV		1	/* struct tcp_seek_recv */
#define TCP_SEEK_EXTENT		2	/* struct tcp_seek_extent */

/* Value of the field version; another one gives EPROTONOSUPPORT. */
#define TCP_SEEK_VERSION	1

#define TCP_SEEK_PEEK		0x01	/* the bytes stay */
#define TCP_SEEK_DONTWAIT	0x02	/* EAGAIN instead of waiting */
#define TCP_SEEK_WAITALL	0x04	/* implied */
#define TCP_SEEK_PARTIAL	0x08	/* arrived bytes, up to a hole */
#define TCP_SEEK_TRUNC		0x10	/* the bytes are not stored */
#define TCP_SEEK_POSITION	0x20	/* at is a position, not an offset */
#define TCP_SEEK_IOVEC		0x40	/* buf and len are an array of iovec */
#define TCP_SEEK_TIMEOUT	0x80	/* timeout instead of SO_RCVTIMEO */
#define TCP_SEEK_RESUME		0x100	/* set by a call that a signal ended */
#define TCP_SEEK_FLAGS		0x1ff

/*
 * Takes the bytes [at, at + len), all or none, and waits for them; fewer only
 * at the end of the stream (0 past it) or with TCP_SEEK_PARTIAL. An offset
 * counts from the head as it was when the call began, even if the call waits
 * and the head moves on. A call that a signal ends leaves TCP_SEEK_RESUME in
 * flags, and in the fields marked "out" the position that it waited for: if the
 * call is repeated with this struct, it continues with that position. The flag
 * has no effect with another at or on another socket.
 *
 * On an error nothing is taken and the fields marked "out" are undefined:
 *
 * EAGAIN	not all have arrived (with TCP_SEEK_PARTIAL: not one), and the
 *		call does not wait, or no longer
 * ENXIO	some were received or taken before (with TCP_SEEK_PARTIAL: the
 *		first one)
 * ENOBUFS	they cannot arrive before something is taken out: the receive
 *		buffer has no room; or there would be too many holes; or TCP
 *		has used up its memory (tcp_mem, cgroup)
 * EINVAL	a flag is unknown, or TCP_SEEK_TRUNC and TCP_SEEK_IOVEC come
 *		together; len is more than SSIZE_MAX; the range ends past
 *		position 2^64 - 1; the struct is too short
 * E2BIG	the struct is longer than the module knows and the rest is not 0,
 *		or it is longer than a page
 * EFAULT	a pointer is not valid
 * EINTR	a signal came; a call with the same struct goes on
 * ECONNRESET and others as recv(2)
 */
struct tcp_seek_recv {
	__u32 version;
	__u32 flags;
	__u64 at;		/* offset from the head, or position */
	__u64 buf;		/* pointer */
	__u64 len;		/* bytes, or number of struct iovec */
	__u64 timeout;		/* nanoseconds */
	__u64 received;		/* out: number of bytes */
	__u64 position;		/* out: of the first of them */
	__u64 head;		/* out: as after the call */
	__u64 contiguous;	/* out: position of the first hole, or arrived */
	__u64 arrived;		/* out: position after the last byte */
	__u32 holes;		/* out: number of holes */
	__u32 reserved;		/* 0 */
};

struct tcp_seek_span {
	__u64 start;
	__u64 end;
};

/* The range of bytes that can be received. Takes nothing and does not wait. */
struct tcp_seek_extent {
	__u32 version;
	__u32 capacity;		/* number of spans that fit */
	__u64 spans;		/* pointer to struct tcp_seek_span */
	__u64 head;		/* out */
	__u64 contiguous;	/* out */
	__u64 arrived;		/* out */
	__u32 holes;		/* out: number of holes, stored or not */
	__u32 reserved;		/* 0 */
};

/* The layout is the same for 32-bit and 64-bit programs. */
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define TCP_SEEK_AT(type, field, offset)				\
	_Static_assert(__builtin_offsetof(struct type, field) == (offset), \
		       #type "." #field)

TCP_SEEK_AT(tcp_seek_recv, flags, 4);
TCP_SEEK_AT(tcp_seek_recv, at, 8);
TCP_SEEK_AT(tcp_seek_recv, buf, 16);
TCP_SEEK_AT(tcp_seek_recv, len, 24);
TCP_SEEK_AT(tcp_seek_recv, timeout, 32);
TCP_SEEK_AT(tcp_seek_recv, received, 40);
TCP_SEEK_AT(tcp_seek_recv, position, 48);
TCP_SEEK_AT(tcp_seek_recv, head, 56);
TCP_SEEK_AT(tcp_seek_recv, contiguous, 64);
TCP_SEEK_AT(tcp_seek_recv, arrived, 72);
TCP_SEEK_AT(tcp_seek_recv, holes, 80);
TCP_SEEK_AT(tcp_seek_recv, reserved, 84);
_Static_assert(sizeof(struct tcp_seek_recv) == 88, "tcp_seek_recv");

TCP_SEEK_AT(tcp_seek_span, end, 8);
_Static_assert(sizeof(struct tcp_seek_span) == 16, "tcp_seek_span");

TCP_SEEK_AT(tcp_seek_extent, capacity, 4);
TCP_SEEK_AT(tcp_seek_extent, spans, 8);
TCP_SEEK_AT(tcp_seek_extent, head, 16);
TCP_SEEK_AT(tcp_seek_extent, contiguous, 24);
TCP_SEEK_AT(tcp_seek_extent, arrived, 32);
TCP_SEEK_AT(tcp_seek_extent, holes, 40);
TCP_SEEK_AT(tcp_seek_extent, reserved, 44);
_Static_assert(sizeof(struct tcp_seek_extent) == 48, "tcp_seek_extent");

#undef TCP_SEEK_AT
#endif

#endif /* _UAPI_TCP_SEEK_H */
