// SPDX-License-Identifier: GPL-2.0-only
/* Taking a range (seek_recv() of Douglas and Pai, "Seekable sockets"). */
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include "stream.h"

/* 0: more bytes can come. 1: the stream ends here. Else an error. */
static int is_over(struct sock *sk, struct seek_stream *st)
{
	if (sock_flag(sk, SOCK_DONE)) {
		seek_eat_fin(sk, st);
		return 1;
	}
	if (sk->sk_err)
		return sock_error(sk);
	if (sk->sk_shutdown & RCV_SHUTDOWN)
		return 1;
	if (sk->sk_state == TCP_CLOSE)
		return -ENOTCONN;
	return 0;
}

/* -ENXIO if bytes of the range are gone; with partial, shortens the range. */
static int find_range(const struct sock *sk, const struct seek_stream *st,
		      u64 start, u64 *end, bool partial)
{
	u64 live;

	if (start < seek_head(st))
		return -ENXIO;
	live = seek_contiguous(sk, st, start);
	if (live >= *end || live >= st->front)
		return 0;
	if (!partial || live == start)
		return -ENXIO;
	*end = live;
	return 0;
}

static int take_range(struct sock *sk, struct seek_stream *st, u64 end,
		      struct seek_request *req)
{
	struct seek_segment *spare = NULL;
	u64 start = req->start;
	size_t len = end - start;
	int err;

	if (!req->peek) {
		if (seek_holes(st) >= READ_ONCE(seek_max_holes) &&
		    !seek_touches_hole(st, start, end))
			return -ENOBUFS;
		err = seek_drain(sk, st, start);
		if (!err)
			err = seek_split_ready(st, start, end, &spare,
					       seek_gfp(sk));
		if (err)
			return err;
	}
	if (seek_copy(sk, st, start, len, req->to) != len) {
		seek_segment_free(spare);
		return -EFAULT;
	}
	if (!req->peek) {
		seek_take(sk, st, start, end, &spare);
		seek_segment_free(spare);
		seek_taken(sk, st);
	}
	return 0;
}

/* The lock is held, and released only while asleep. */
ssize_t seek_range(struct sock *sk, struct seek_stream *st,
		   struct seek_request *req)
{
	u64 start = req->at, end;
	int err;

	seek_sync(sk, st);
	/* A relative offset counts from the head as it was at the call. */
	if (!req->position && check_add_overflow(seek_head(st), start, &start))
		return -EINVAL;
	if (check_add_overflow(start, (u64)req->len, &end))
		return -EINVAL;
	req->start = start;
	if (!req->len)
		return 0;

	while (true) {
		u64 arrived = seek_arrived(sk, st), limit = end;

		err = find_range(sk, st, start, &limit, req->partial);
		if (err)
			return err;
		if (limit <= arrived || (req->partial && start < arrived)) {
			limit = min(limit, arrived);
			err = take_range(sk, st, limit, req);
			return err ?: limit - start;
		}

		err = is_over(sk, st);
		if (err < 0)
			return err;
		if (err) {
			if (start >= arrived)
				return 0;
			err = take_range(sk, st, arrived, req);
			return err ?: arrived - start;
		}
		err = seek_make_room(sk, st, req->partial ? start + 1 : end);
		if (err)
			return err;
		if (!req->timeo)
			return -EAGAIN;
		if (signal_pending(current))
			return sock_intr_errno(req->timeo);
		err = seek_wait(sk, st, &req->timeo);
		if (err < 0)
			return err;
	}
}
