// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bytes that a seek skips leave sk_receive_queue (Douglas and Pai, "Seekable
 * sockets"): at its head only, in order, so that TCP never sees a gap there.
 * tcp_collapse() would panic.
 */
#include "stream.h"

/*
 * The sequence number after the last byte. The stream ends at a FIN: TCP lets a
 * peer repeat it one octet further on, with the octets before it, as often as
 * memory allows, but delivers them to nobody. All buffers after the first FIN
 * have one.
 */
static u32 end_of_queue(const struct sock *sk, struct seek_stream *st)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct sk_buff *skb;

	if (!sock_flag(sk, SOCK_DONE))
		return tp->rcv_nxt;
	if (!st->ended) {
		st->ended = true;
		st->end_seq = tp->rcv_nxt;
		skb_queue_reverse_walk(&sk->sk_receive_queue, skb) {
			if (!(TCP_SKB_CB(skb)->tcp_flags & TCPHDR_FIN))
				break;
			st->end_seq = TCP_SKB_CB(skb)->end_seq - 1;
		}
	}
	return st->end_seq;
}

/* Number of unread bytes in sk_receive_queue. */
u32 seek_queued(const struct sock *sk)
{
	u32 end = end_of_queue(sk, seek_stream(sk));
	u32 read = tcp_sk(sk)->copied_seq;

	return after(end, read) ? end - read : 0;
}

u64 seek_arrived(const struct sock *sk, const struct seek_stream *st)
{
	return st->front + seek_queued(sk);
}

/* TCP's own readers do this after each buffer. */
static void seek_advanced(struct sock *sk, struct seek_stream *st, u64 pos)
{
	struct tcp_sock *tp = tcp_sk(sk);

	st->front = pos;
	st->front_seq = tp->copied_seq;
	if (unlikely(tp->urg_data) && after(tp->copied_seq, tp->urg_seq)) {
		WRITE_ONCE(tp->urg_data, 0);
		tcp_fast_path_check(sk);
	}
}

/*
 * Others may have read from TCP: a call that began before we were attached, or
 * the kernel, which drops an urgent byte when a newer one comes.
 */
void seek_sync(struct sock *sk, struct seek_stream *st)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 read = tp->copied_seq - st->front_seq;

	if (likely(!read))
		return;
	if (sock_flag(sk, SOCK_DONE) && tp->copied_seq == tp->rcv_nxt)
		read--;
	st->front += read;
	st->front_seq = tp->copied_seq;
}

/* The FIN is consumed with the last byte before it. */
void seek_eat_fin(struct sock *sk, struct seek_stream *st)
{
	if (!sock_flag(sk, SOCK_DONE) || seek_queued(sk) ||
	    skb_queue_empty(&sk->sk_receive_queue))
		return;
	/* tcp_read_done() stops after each FIN. */
	while (!skb_queue_empty(&sk->sk_receive_queue))
		tcp_read_done(sk, 1);
	seek_advanced(sk, st, st->front);
}

/*
 * Stores [front, front + len), which lie at off in skb. *kept: the caller's
 * reference to skb now belongs to the segment; else the bytes were copied.
 */
static int adopt(struct sock *sk, struct seek_stream *st, struct sk_buff *skb,
		 u32 off, u32 len, bool *kept)
{
	struct seek_segment *last = seek_last(st), *seg;

	*kept = false;
	if (seek_is_wasteful(skb, len, SEEK_WASTE_USUAL) && last &&
	    seek_end(last) == st->front &&
	    seek_merge(sk, last, skb, off, len, SEEK_WASTE_USUAL)) {
		seek_resize(st, last, 0, last->len + len);
		return 0;
	}

	/*
	 * Into an empty queue TCP takes the next buffer whatever the limits of
	 * memory, of all sockets and of the cgroup, for its readers have freed
	 * what was there. This one stays, so there must be memory for another.
	 */
	if (!sk_rmem_schedule(sk, skb, skb->truesize))
		return -ENOBUFS;
	seg = seek_segment_alloc(seek_gfp(sk));
	if (!seg)
		return -ENOMEM;
	*seg = (struct seek_segment) {
		.pos = st->front, .skb = skb, .off = off, .len = len,
	};
	*kept = true;
	seek_link(st, seg, st->segments.prev);
	return 0;
}

/*
 * Moves buffers from TCP's queue until all bytes before limit are in segments;
 * the buffer with the last one moves as a whole.
 */
int seek_drain(struct sock *sk, struct seek_stream *st, u64 limit)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb;
	u64 from = st->front;
	int err = 0;
	u32 off;

	while (st->front < limit &&
	       (skb = tcp_recv_skb(sk, tp->copied_seq, &off))) {
		u32 len, fin;
		bool kept;

		/* Only a FIN, which stays in place. */
		if (off >= skb->len)
			break;
		len = skb->len - off;
		fin = !!(TCP_SKB_CB(skb)->tcp_flags & TCPHDR_FIN);
		err = adopt(sk, st, skb, off, len, &kept);
		if (err)
			break;
		__skb_unlink(skb, &sk->sk_receive_queue);
		/*
		 * Pairs with is_readable(), which does not lock: it may
		 * count these bytes twice, but never misses them.
		 */
		smp_wmb();
		WRITE_ONCE(tp->copied_seq, tp->copied_seq + len + fin);
		seek_advanced(sk, st, st->front + len);
		if (kept)
			seek_compact(sk, st, seek_last(st), SEEK_WASTE_USUAL);
		else
			consume_skb(skb);
	}
	if (st->front != from) {
		/* The caller may still fail, and take nothing. */
		seek_set_lowat(sk, st);
		/* As after a read, TCP may let the receive buffer grow. */
		tcp_read_done(sk, 0);
	}
	return err;
}

size_t seek_queue_copy(struct sock *sk, u32 seq, size_t len,
		       struct iov_iter *to)
{
	struct sk_buff *skb;
	size_t done = 0;

	skb_queue_walk(&sk->sk_receive_queue, skb) {
		u32 off = seq - TCP_SKB_CB(skb)->seq;
		size_t n;

		if (off >= skb->len)
			continue;
		n = min_t(size_t, len - done, skb->len - off);
		if (skb_copy_datagram_iter(skb, off, to, n))
			break;
		done += n;
		seq += n;
		if (done == len)
			break;
	}
	return done;
}

/*
 * The rest of the buffer at the head of TCP's queue can be made small only
 * after it has left the queue. A reader in order would soon need it.
 */
static void compact_head(struct sock *sk, struct seek_stream *st)
{
	const struct sk_buff *skb = skb_peek(&sk->sk_receive_queue);
	u32 off;

	if (list_empty(&st->segments) || !skb)
		return;
	off = st->front_seq - TCP_SKB_CB(skb)->seq;
	if (off && off < skb->len &&
	    seek_is_wasteful(skb, skb->len - off, SEEK_WASTE_USUAL)) {
		seek_drain(sk, st, st->front + 1);
		seek_window_update(sk);
	}
}

/* Takes the bytes [front, end) from the queue itself. */
void seek_queue_take(struct sock *sk, struct seek_stream *st, u64 end)
{
	tcp_read_done(sk, end - st->front);
	seek_advanced(sk, st, end);
	compact_head(sk, st);
}
