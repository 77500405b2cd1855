// SPDX-License-Identifier: GPL-2.0-only
/*
 * Receiving at the head: recv() and read(), which skip holes, and the calls
 * that report readiness. Like tcp_recvmsg(), tcp_poll() and tcp_ioctl(), except
 * for the bytes in segments. A reader must not sleep in tcp_recvmsg(), which
 * does not know that others may move the bytes it waits for.
 */
#include <linux/sched/signal.h>
#include <net/busy_poll.h>
#include "stream.h"

/*
 * TCP wakes nobody before sk_rcvlowat bytes are in its queue. The bytes in
 * segments also count, so they lower it. While a thread sleeps it is 1, because
 * the sleeper may need less than a reader in order.
 */
void seek_set_lowat(struct sock *sk, struct seek_stream *st)
{
	int lowat = st->sleepers ? 1 : st->lowat - (int)st->bytes;

	WRITE_ONCE(sk->sk_rcvlowat, max(lowat, 1));
}

/* Sleeps once. Everything may have changed afterwards. */
int seek_wait(struct sock *sk, struct seek_stream *st, long *timeo)
{
	int err;

	st->sleepers++;
	seek_set_lowat(sk, st);
	err = sk_wait_data(sk, timeo, skb_peek_tail(&sk->sk_receive_queue));
	st->sleepers--;
	seek_set_lowat(sk, st);
	seek_sync(sk, st);
	return err;
}

/* Bytes were taken: wakes sleepers, which may have waited for them. */
void seek_taken(struct sock *sk, struct seek_stream *st)
{
	seek_set_lowat(sk, st);
	if (st->sleepers)
		sk->sk_data_ready(sk);
}

static u32 unread(const struct sock *sk, const struct seek_stream *st)
{
	return seek_queued(sk) + st->bytes;
}

/*
 * Whether a reader gets no more: because it would have to wait and may not, or
 * the stream ends. *err has the reason, unless the reader has bytes to return
 * (have).
 */
static bool is_stopped(struct sock *sk, struct seek_stream *st, long timeo,
		       bool have, int *err)
{
	if (have)
		return !timeo || sk->sk_err || sk->sk_state == TCP_CLOSE ||
		       sk->sk_shutdown & RCV_SHUTDOWN ||
		       signal_pending(current);
	if (sock_flag(sk, SOCK_DONE)) {
		seek_eat_fin(sk, st);
		return true;
	}
	if (sk->sk_err)
		*err = sock_error(sk);
	else if (sk->sk_shutdown & RCV_SHUTDOWN)
		return true;
	else if (sk->sk_state == TCP_CLOSE)
		*err = -ENOTCONN;
	else if (!timeo)
		*err = -EAGAIN;
	else if (signal_pending(current))
		*err = sock_intr_errno(timeo);
	return *err;
}

/* Position of the first byte that can be received, at or after pos. */
static u64 next_live(const struct seek_stream *st, u64 pos)
{
	const struct seek_segment *seg = seek_find(st, pos);

	return max(pos, seg ? seg->pos : st->front);
}

/* Up to len bytes from the head on; -EFAULT if not one could be copied. */
static ssize_t receive(struct sock *sk, struct seek_stream *st, size_t len,
		       struct iov_iter *to, bool peek)
{
	u64 pos = seek_head(st);
	size_t done = 0;
	int err = 0;

	while (done < len) {
		u64 end = seek_contiguous(sk, st, pos);
		size_t want = min_t(u64, len - done, end - pos), n;

		if (!want)
			break;
		n = seek_copy(sk, st, pos, want, to);
		if (n && !peek) {
			struct seek_segment *none = NULL;

			seek_take(sk, st, pos, pos + n, &none);
		}
		done += n;
		if (n < want) {
			err = -EFAULT;
			break;
		}
		pos = next_live(st, pos + n);
	}
	if (done && !peek)
		seek_taken(sk, st);
	return done ?: err;
}

static int receive_locked(struct sock *sk, struct seek_stream *st,
			  struct msghdr *msg, size_t len, int flags)
{
	struct iov_iter *to = flags & MSG_TRUNC ? NULL : &msg->msg_iter;
	long timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	bool peek = flags & MSG_PEEK;
	size_t target = flags & MSG_WAITALL ? len :
			min_t(size_t, st->lowat, len);
	size_t copied = 0;
	int err = 0;

	if (sk->sk_state == TCP_LISTEN)
		return -ENOTCONN;
	target = max_t(size_t, target, 1);
	seek_sync(sk, st);
	do {
		size_t there = unread(sk, st);
		ssize_t n;

		if (there && !peek) {
			n = receive(sk, st, len - copied, to, false);
			if (n < 0) {
				err = n;
				break;
			}
			copied += n;
			if (copied == len)
				break;
			there = copied;
		}
		if (there >= target ||
		    is_stopped(sk, st, timeo, there, &err)) {
			if (peek && there) {
				n = receive(sk, st, len, to, true);
				if (n < 0)
					err = n;
				else
					copied = n;
			}
			break;
		}
		err = seek_wait(sk, st, &timeo);
		if (err < 0)
			break;
		err = 0;
	} while (copied < len);

	return copied ?: err;
}

static int inq_hint(struct sock *sk)
{
	int inq = seek_unread(sk);

	/* At the end of the stream 1, as TCP reports it: read on to see it. */
	return inq ?: sock_flag(sk, SOCK_DONE);
}

/* recvmsg() */
int seek_receive(struct sock *sk, struct msghdr *msg, size_t len, int flags)
{
	struct seek_stream *st = seek_stream(sk);
	int ret;

	/* The urgent byte is part of the stream. */
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;

	if (sk_can_busy_loop(sk) &&
	    skb_queue_empty_lockless(&sk->sk_receive_queue) &&
	    !READ_ONCE(st->bytes) && sk->sk_state == TCP_ESTABLISHED)
		sk_busy_loop(sk, flags & MSG_DONTWAIT);

	len = min_t(size_t, len, INT_MAX);
	lock_sock(sk);
	ret = receive_locked(sk, st, msg, len, flags);
	release_sock(sk);

	if (ret >= 0 && (msg->msg_get_inq || tcp_sk(sk)->recvmsg_inq)) {
		msg->msg_inq = inq_hint(sk);
		if (tcp_sk(sk)->recvmsg_inq)
			put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(msg->msg_inq),
				 &msg->msg_inq);
	}
	return ret;
}

/*
 * Does not lock. Bytes that seek_drain() is moving from the queue to a segment
 * may be counted twice, but not missed. After a FIN the answer does not matter:
 * tcp_poll() reports that the socket is readable.
 */
static bool is_readable(const struct sock *sk)
{
	const struct seek_stream *st = seek_stream(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 n = READ_ONCE(tp->rcv_nxt) - READ_ONCE(tp->copied_seq);

	/* copied_seq was read later, and may have passed this rcv_nxt. */
	if ((s32)n < 0)
		n = 0;
	/* Pairs with seek_drain(). */
	smp_rmb();
	n += READ_ONCE(st->bytes);
	if (!n)
		return false;
	/* If there is no room for more, the program must not wait for more. */
	return n >= READ_ONCE(st->lowat) || tcp_rmem_pressure(sk) ||
	       tcp_receive_window(tp) <= inet_csk(sk)->icsk_ack.rcv_mss;
}

__poll_t seek_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct sock *sk = sock->sk;
	__poll_t mask = tcp_poll(file, sock, wait);

	/* TCP counts its own queue only, and with a lowered SO_RCVLOWAT. */
	if (!(READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN)) {
		mask &= ~(EPOLLIN | EPOLLRDNORM);
		if (is_readable(sk))
			mask |= EPOLLIN | EPOLLRDNORM;
	}
	return mask;
}

/* FIONREAD */
int seek_unread(struct sock *sk)
{
	const struct seek_stream *st = seek_stream(sk);
	int n;

	lock_sock(sk);
	n = unread(sk, st);
	release_sock(sk);
	return n;
}

/* SO_RCVLOWAT; the lock is held. */
int seek_set_rcvlowat(struct sock *sk, int val)
{
	struct seek_stream *st = seek_stream(sk);
	int err = st->ops->set_rcvlowat(sk, val);

	if (err)
		return err;
	/* TCP has limited it to half of the buffer. */
	WRITE_ONCE(st->lowat, sk->sk_rcvlowat);
	seek_set_lowat(sk, st);
	if (is_readable(sk))
		sk->sk_data_ready(sk);
	return 0;
}
