// SPDX-License-Identifier: GPL-2.0-only
/*
 * The interface of uapi/tcp_seek.h. getsockopt() is the only call that carries
 * a struct in both directions to a protocol, with one layout for 32-bit and
 * 64-bit programs; TCP_ZEROCOPY_RECEIVE also uses it.
 */
#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/net.h>
#ifdef SEEK_NET_RPS_H
#include <net/rps.h>	/* else in net/sock.h */
#endif
#include "stream.h"
#include "../uapi/tcp_seek.h"

/* Copies *size bytes of a struct that may be longer or shorter than ours. */
static int get_struct(void *to, int known, const char __user *from, int given)
{
	int err;

	if (given < known)
		return -EINVAL;
	/* As in bpf(2): no program may make us compare gigabytes. */
	if (given > PAGE_SIZE)
		return -E2BIG;
	if (given > known) {
		err = check_zeroed_user(from + known, given - known);
		if (err <= 0)
			return err ?: -E2BIG;
	}
	return copy_from_user(to, from, known) ? -EFAULT : 0;
}

static long timeout_of(const struct sock *sk, const struct tcp_seek_recv *recv)
{
	const struct socket *sock = sk->sk_socket;
	u64 jiffies;

	if (recv->flags & TCP_SEEK_DONTWAIT ||
	    (sock->file && sock->file->f_flags & O_NONBLOCK))
		return 0;
	if (!(recv->flags & TCP_SEEK_TIMEOUT))
		return sock_rcvtimeo(sk, false);
	/* Never shorter than requested. */
	jiffies = nsecs_to_jiffies64(recv->timeout) + !!recv->timeout;
	return min_t(u64, jiffies, MAX_SCHEDULE_TIMEOUT - 1);
}

/* Whether this call repeats one that a signal has ended. */
static bool is_resumed(const struct seek_stream *st,
		       const struct tcp_seek_recv *recv)
{
	return recv->flags & TCP_SEEK_RESUME &&
	       !(recv->flags & TCP_SEEK_POSITION) &&
	       recv->position - recv->head == recv->at &&
	       recv->contiguous == st->id;
}

/*
 * A signal came, and the kernel or the program will repeat the call. The head
 * may have moved by then, so the program keeps the position.
 */
static int interrupt(const struct seek_stream *st,
		     struct tcp_seek_recv __user *user,
		     struct tcp_seek_recv *recv, u64 start, int err)
{
	if (recv->flags & TCP_SEEK_POSITION)
		return err;
	recv->flags |= TCP_SEEK_RESUME;
	recv->received = 0;
	recv->head = start - recv->at;
	recv->position = start;
	recv->contiguous = st->id;
	return copy_to_user(user, recv, sizeof(*recv)) ? -EINTR : err;
}

static int import_buffers(const struct tcp_seek_recv *recv,
			  struct iovec *single, struct iovec **iov,
			  struct iov_iter *to)
{
	void __user *buf = u64_to_user_ptr(recv->buf);
	/* No receive buffer holds more. */
	size_t len = min_t(u64, recv->len, MAX_RW_COUNT);
	ssize_t n;

	if (recv->flags & TCP_SEEK_IOVEC) {
		if (recv->len > UIO_MAXIOV)
			return -EMSGSIZE;
		n = import_iovec(ITER_DEST, buf, recv->len, UIO_FASTIOV, iov,
				 to);
		return n < 0 ? n : 0;
	}
	*iov = NULL;
	if (recv->len > SSIZE_MAX)
		return -EINVAL;
	if (!access_ok(buf, len))
		return -EFAULT;
	single->iov_base = buf;
	single->iov_len = len;
	iov_iter_init(to, ITER_DEST, single, 1, len);
	return 0;
}

static int do_recv(struct sock *sk, char __user *optval, int size)
{
	struct tcp_seek_recv __user *user = (void __user *)optval;
	struct iovec fast[UIO_FASTIOV], *iov = fast;
	struct seek_stream *st = seek_stream(sk);
	struct tcp_seek_recv recv;
	struct seek_request req = {};
	struct iov_iter to;
	bool resumed;
	ssize_t n;
	int err;

	err = get_struct(&recv, sizeof(recv), optval, size);
	if (err)
		return err;
	if (recv.version != TCP_SEEK_VERSION)
		return -EPROTONOSUPPORT;
	if (recv.flags & ~TCP_SEEK_FLAGS || recv.reserved)
		return -EINVAL;
	resumed = is_resumed(st, &recv);
	recv.flags &= ~TCP_SEEK_RESUME;
	/* The bytes must not be lost because this memory is read-only. */
	if (put_user(recv.flags, &user->flags) || put_user(0, &user->received))
		return -EFAULT;

	req.at = resumed ? recv.position : recv.at;
	req.position = resumed || recv.flags & TCP_SEEK_POSITION;
	req.peek = recv.flags & TCP_SEEK_PEEK;
	req.partial = recv.flags & TCP_SEEK_PARTIAL;
	req.timeo = timeout_of(sk, &recv);
	if (recv.flags & TCP_SEEK_TRUNC) {
		if (recv.flags & TCP_SEEK_IOVEC || recv.len > SSIZE_MAX)
			return -EINVAL;
		iov = NULL;
		req.len = recv.len;
	} else {
		err = import_buffers(&recv, fast, &iov, &to);
		if (err)
			return err;
		req.to = &to;
		req.len = recv.flags & TCP_SEEK_IOVEC ? iov_iter_count(&to) :
			  recv.len;
	}

	sock_rps_record_flow(sk);
	lock_sock(sk);
	n = seek_range(sk, st, &req);
	recv.received = n;
	recv.position = req.start;
	recv.head = seek_head(st);
	recv.contiguous = seek_contiguous(sk, st, recv.head);
	recv.arrived = seek_arrived(sk, st);
	recv.holes = seek_holes(st);
	release_sock(sk);

	kfree(iov);
	if (n == -ERESTARTSYS || n == -EINTR)
		return interrupt(st, user, &recv, req.start, n);
	if (n < 0)
		return n;
	return copy_to_user(user, &recv, sizeof(recv)) ? -EFAULT : 0;
}

/* Stores the holes, at most seek_max_holes. */
static int put_spans(const struct seek_stream *st,
		     struct tcp_seek_span __user *spans, u32 capacity)
{
	const struct seek_segment *seg = seek_first(st);
	struct tcp_seek_span span;
	u32 n;

	for (n = 0; seg && n < capacity; n++) {
		const struct seek_segment *before;

		seg = seek_next_gap(seg);
		before = seg ? list_prev_entry(seg, node) : seek_last(st);
		span.start = seek_end(before);
		span.end = seg ? seg->pos : st->front;
		if (span.start != span.end &&
		    copy_to_user(&spans[n], &span, sizeof(span)))
			return -EFAULT;
	}
	return 0;
}

static int do_extent(struct sock *sk, char __user *optval, int size)
{
	struct seek_stream *st = seek_stream(sk);
	struct tcp_seek_extent extent;
	int err;

	err = get_struct(&extent, sizeof(extent), optval, size);
	if (err)
		return err;
	if (extent.version != TCP_SEEK_VERSION)
		return -EPROTONOSUPPORT;
	if (extent.reserved)
		return -EINVAL;

	lock_sock(sk);
	seek_sync(sk, st);
	err = put_spans(st, u64_to_user_ptr(extent.spans), extent.capacity);
	extent.head = seek_head(st);
	extent.contiguous = seek_contiguous(sk, st, extent.head);
	extent.arrived = seek_arrived(sk, st);
	extent.holes = seek_holes(st);
	release_sock(sk);
	if (err)
		return err;
	return copy_to_user(optval, &extent, sizeof(extent)) ? -EFAULT : 0;
}

int seek_getsockopt(struct sock *sk, int level, int optname,
		    char __user *optval, int __user *optlen)
{
	int size;

	/* It would read TCP's queue without asking us. */
	if (level == SOL_TCP && optname == TCP_ZEROCOPY_RECEIVE)
		return -EOPNOTSUPP;
	if (level != SOL_TCP_SEEK)
		return seek_stream(sk)->proto->getsockopt(sk, level, optname,
							  optval, optlen);
	if (get_user(size, optlen))
		return -EFAULT;
	switch (optname) {
	case TCP_SEEK_RECV:
		return do_recv(sk, optval, size);
	case TCP_SEEK_EXTENT:
		return do_extent(sk, optval, size);
	default:
		return -ENOPROTOOPT;
	}
}

int seek_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
		    unsigned int optlen)
{
	/* It would replace the receive queue and its sequence numbers. */
	if (level == SOL_TCP && optname == TCP_REPAIR)
		return -EOPNOTSUPP;
	return seek_stream(sk)->proto->setsockopt(sk, level, optname, optval,
						  optlen);
}

/* A BPF program would look at each call. */
bool seek_bypass_bpf(int level, int optname)
{
	return level == SOL_TCP_SEEK ||
	       (level == SOL_TCP && optname == TCP_ZEROCOPY_RECEIVE);
}
