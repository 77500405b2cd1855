// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a seek skips (Douglas and Pai, "Seekable sockets").
 *
 * Buffers leave sk_receive_queue at its head only, in order, so that TCP never
 * sees a gap there: tcp_collapse() would panic. They keep their charge to the
 * socket until their bytes are taken, so the window is as if they were still in
 * the queue. A buffer of which little is left is replaced by a small copy;
 * else one byte would keep the 64 KiB busy with which it came.
 */
#include <linux/log2.h>
#include <linux/slab.h>
#include "stream.h"

/* The largest buffer whose memory is one page. */
#define DENSE_MAX	((u32)SKB_MAX_ORDER(0, 0))

/* A buffer is replaced when fewer of its bytes live than truesize >> this. */
#define WASTE_USUAL	2
#define WASTE_SQUEEZED	1

static struct kmem_cache *segment_cache;

int seek_segments_init(void)
{
	segment_cache = KMEM_CACHE(seek_segment, SLAB_ACCOUNT);
	return segment_cache ? 0 : -ENOMEM;
}

void seek_segments_exit(void)
{
	kmem_cache_destroy(segment_cache);
}

static gfp_t seek_gfp(const struct sock *sk)
{
	return sk->sk_allocation | __GFP_NOWARN;
}

static u32 gap(const struct seek_stream *st, const struct list_head *before,
	       const struct list_head *after)
{
	if (before == &st->segments || after == &st->segments)
		return 0;
	return seek_end(list_entry(before, struct seek_segment, node)) !=
	       list_entry(after, struct seek_segment, node)->pos;
}

static u32 gaps_around(const struct seek_stream *st,
		       const struct seek_segment *seg)
{
	return gap(st, seg->node.prev, &seg->node) +
	       gap(st, &seg->node, seg->node.next);
}

static void set_bytes(struct seek_stream *st, u32 bytes)
{
	/* Read by seek_poll(). */
	WRITE_ONCE(st->bytes, bytes);
}

static void link_segment(struct seek_stream *st, struct seek_segment *seg,
			 struct list_head *before)
{
	st->gaps -= gap(st, before, before->next);
	list_add(&seg->node, before);
	st->gaps += gaps_around(st, seg);
	set_bytes(st, st->bytes + seg->len);
}

/* The caller has moved or dropped the reference to the skb. */
static void unlink_segment(struct seek_stream *st, struct seek_segment *seg)
{
	st->gaps -= gaps_around(st, seg);
	st->gaps += gap(st, seg->node.prev, seg->node.next);
	list_del(&seg->node);
	set_bytes(st, st->bytes - seg->len);
	kmem_cache_free(segment_cache, seg);
}

static void resize_segment(struct seek_stream *st, struct seek_segment *seg,
			   u32 skip, u32 len)
{
	st->gaps -= gaps_around(st, seg);
	set_bytes(st, st->bytes - seg->len + len);
	seg->pos += skip;
	seg->off += skip;
	seg->len = len;
	st->gaps += gaps_around(st, seg);
}

/* A buffer of our own, charged to the socket as a received one is. */
static struct sk_buff *dense_skb(struct sock *sk, u32 size)
{
	struct sk_buff *skb = alloc_skb(size, seek_gfp(sk));

	if (!skb)
		return NULL;
	if (!sk_rmem_schedule(sk, skb, skb->truesize)) {
		kfree_skb(skb);
		return NULL;
	}
	skb_set_owner_r(skb, sk);
	return skb;
}

/* What dense_skb(size) will be charged, about. */
static u32 dense_truesize(u32 size)
{
	return SKB_TRUESIZE(0) + roundup_pow_of_two(size + 1);
}

static bool append(struct sk_buff *to, const struct sk_buff *from, u32 off,
		   u32 len)
{
	u8 *data = skb_put(to, len);

	if (!skb_copy_bits(from, off, data, len))
		return true;
	skb_trim(to, to->len - len);
	return false;
}

static bool is_wasteful(const struct sk_buff *skb, u32 live, int shift)
{
	return live < skb->truesize >> shift;
}

/*
 * Copies bytes that follow those of seg into its buffer, or both into a larger
 * one. The caller resizes the segment if this is done.
 */
static bool merge(struct sock *sk, struct seek_segment *seg,
		  const struct sk_buff *skb, u32 off, u32 len, int shift)
{
	u32 total = seg->len + len;
	struct sk_buff *larger;

	if (total > DENSE_MAX)
		return false;
	if (seg->own && seg->off + seg->len == seg->skb->len &&
	    skb_tailroom(seg->skb) >= len)
		return append(seg->skb, skb, off, len);
	if (!seg->own && !is_wasteful(seg->skb, seg->len, shift))
		return false;

	larger = dense_skb(sk, min(2 * total, DENSE_MAX));
	if (!larger)
		return false;
	if (!append(larger, seg->skb, seg->off, seg->len) ||
	    !append(larger, skb, off, len)) {
		kfree_skb(larger);
		return false;
	}
	consume_skb(seg->skb);
	seg->skb = larger;
	seg->off = 0;
	seg->own = true;
	return true;
}

/* Moves the bytes of seg to memory of their size. */
static bool make_dense(struct sock *sk, struct seek_stream *st,
		       struct seek_segment *seg)
{
	while (true) {
		u32 n = min(seg->len, DENSE_MAX);
		struct seek_segment *front;
		struct sk_buff *skb;

		skb = dense_skb(sk, n);
		if (!skb)
			return false;
		if (!append(skb, seg->skb, seg->off, n)) {
			kfree_skb(skb);
			return false;
		}
		if (n == seg->len) {
			consume_skb(seg->skb);
			seg->skb = skb;
			seg->off = 0;
			seg->own = true;
			return true;
		}
		front = kmem_cache_alloc(segment_cache, seek_gfp(sk));
		if (!front) {
			kfree_skb(skb);
			return false;
		}
		*front = (struct seek_segment) {
			.pos = seg->pos, .skb = skb, .len = n, .own = true,
		};
		resize_segment(st, seg, n, seg->len - n);
		link_segment(st, front, seg->node.prev);
	}
}

static bool same_buffer(const struct seek_stream *st,
			const struct list_head *node,
			const struct sk_buff *skb)
{
	return node != &st->segments &&
	       list_entry(node, struct seek_segment, node)->skb == skb;
}

/*
 * Gives the memory of a buffer back of which little is left. Segments of one
 * buffer are neighbours. Without memory for the copy, all stays as it is.
 */
static void compact(struct sock *sk, struct seek_stream *st,
		    struct seek_segment *seg, int shift)
{
	const struct sk_buff *skb = seg->skb;
	u32 live = 0, cost = 0, truesize = skb->truesize;
	struct list_head *node = &seg->node, *next;

	while (same_buffer(st, node->prev, skb))
		node = node->prev;
	for (next = node; same_buffer(st, next, skb); next = next->next) {
		u32 len = list_entry(next, struct seek_segment, node)->len;

		live += len;
		cost += len / DENSE_MAX * dense_truesize(DENSE_MAX) +
			dense_truesize(len % DENSE_MAX);
		if (live >= truesize >> shift || cost >= truesize)
			return;
	}
	for (; same_buffer(st, node, skb); node = next) {
		next = node->next;
		if (!make_dense(sk, st, list_entry(node, struct seek_segment,
						   node)))
			return;
	}
}

/* TCP's own readers do this after each buffer. */
static void seek_advanced(struct sock *sk, struct seek_stream *st, u64 pos)
{
	struct tcp_sock *tp = tcp_sk(sk);

	st->tcp_pos = pos;
	st->tcp_seq = tp->copied_seq;
	if (unlikely(tp->urg_data) && after(tp->copied_seq, tp->urg_seq)) {
		WRITE_ONCE(tp->urg_data, 0);
		tcp_fast_path_check(sk);
	}
}

/*
 * Somebody else may have read from TCP: a call that began before we were
 * attached, or the kernel, which drops an urgent byte when a newer one comes.
 */
void seek_sync(struct sock *sk, struct seek_stream *st)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 read = tp->copied_seq - st->tcp_seq;

	if (likely(!read))
		return;
	if (sock_flag(sk, SOCK_DONE) && tp->copied_seq == tp->rcv_nxt)
		read--;
	st->tcp_pos += read;
	st->tcp_seq = tp->copied_seq;
}

/* The FIN is consumed with the last byte before it. */
void seek_eat_fin(struct sock *sk, struct seek_stream *st)
{
	if (!sock_flag(sk, SOCK_DONE) || seek_queued(sk) ||
	    skb_queue_empty(&sk->sk_receive_queue))
		return;
	tcp_read_done(sk, 1);
	seek_advanced(sk, st, st->tcp_pos);
}

/* Stores [tcp_pos, tcp_pos + len) from skb. *kept: the reference is ours now. */
static int adopt(struct sock *sk, struct seek_stream *st, struct sk_buff *skb,
		 u32 off, u32 len, bool *kept)
{
	struct seek_segment *last = seek_last(st), *seg;

	*kept = false;
	if (is_wasteful(skb, len, WASTE_USUAL) && last &&
	    seek_end(last) == st->tcp_pos &&
	    merge(sk, last, skb, off, len, WASTE_USUAL)) {
		resize_segment(st, last, 0, last->len + len);
		return 0;
	}

	seg = kmem_cache_alloc(segment_cache, seek_gfp(sk));
	if (!seg)
		return -ENOMEM;
	*seg = (struct seek_segment) {
		.pos = st->tcp_pos, .skb = skb, .off = off, .len = len,
	};
	*kept = true;
	link_segment(st, seg, st->segments.prev);
	return 0;
}

/*
 * Moves buffers from TCP's queue until all bytes before limit are in segments;
 * that which holds the last one moves as a whole.
 */
int seek_drain(struct sock *sk, struct seek_stream *st, u64 limit)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb;
	u64 from = st->tcp_pos;
	int err = 0;
	u32 off;

	while (st->tcp_pos < limit &&
	       (skb = tcp_recv_skb(sk, tp->copied_seq, &off))) {
		u32 len, fin;
		bool kept;

		/* Nothing but a FIN, which is left where it is. */
		if (off >= skb->len)
			break;
		len = skb->len - off;
		fin = !!(TCP_SKB_CB(skb)->tcp_flags & TCPHDR_FIN);
		err = adopt(sk, st, skb, off, len, &kept);
		if (err)
			break;
		__skb_unlink(skb, &sk->sk_receive_queue);
		/* Counted twice for a moment, but never missed. */
		smp_wmb();
		WRITE_ONCE(tp->copied_seq, tp->copied_seq + len + fin);
		seek_advanced(sk, st, st->tcp_pos + len);
		if (kept)
			compact(sk, st, seek_last(st), WASTE_USUAL);
		else
			consume_skb(skb);
	}
	/* To TCP this is a reader who keeps pace: the buffer may grow. */
	if (st->tcp_pos != from)
		tcp_read_done(sk, 0);
	return err;
}

/* Makes all memory free that can be had by copying. */
void seek_squeeze(struct sock *sk, struct seek_stream *st)
{
	struct seek_segment *seg, *next, *prev = NULL;

	seek_drain(sk, st, seek_arrived(sk, st));
	list_for_each_entry_safe(seg, next, &st->segments, node) {
		if (prev && seek_end(prev) == seg->pos &&
		    is_wasteful(seg->skb, seg->len, WASTE_SQUEEZED) &&
		    merge(sk, prev, seg->skb, seg->off, seg->len,
			  WASTE_SQUEEZED)) {
			u32 len = seg->len;

			consume_skb(seg->skb);
			unlink_segment(st, seg);
			resize_segment(st, prev, 0, prev->len + len);
			continue;
		}
		compact(sk, st, seg, WASTE_SQUEEZED);
		prev = seg;
	}
}

void seek_purge(struct seek_stream *st)
{
	struct seek_segment *seg, *next;

	list_for_each_entry_safe(seg, next, &st->segments, node) {
		kfree_skb(seg->skb);
		unlink_segment(st, seg);
	}
}

/* The first segment that ends behind pos; it may begin behind it, too. */
static struct seek_segment *find(const struct seek_stream *st, u64 pos)
{
	struct seek_segment *seg = seek_first(st), *found = NULL;

	if (seg && pos < seek_end(seg))
		return seg;
	list_for_each_entry_reverse(seg, &st->segments, node) {
		if (seek_end(seg) <= pos)
			break;
		found = seg;
	}
	return found;
}

/*
 * The first position at or behind from whose byte cannot be received. What lies
 * behind limit is not looked at.
 */
u64 seek_contiguous(const struct sock *sk, const struct seek_stream *st,
		    u64 from, u64 limit)
{
	struct seek_segment *seg = find(st, from);

	if (seg) {
		list_for_each_entry_from(seg, &st->segments, node) {
			if (seg->pos > from || from >= limit)
				return from;
			from = seek_end(seg);
		}
	}
	return from < st->tcp_pos ? from : max(from, seek_arrived(sk, st));
}

/* Whether taking the live bytes [start, end) makes no further hole. */
bool seek_touches_hole(const struct seek_stream *st, u64 start, u64 end)
{
	const struct seek_segment *seg = find(st, start);

	if (start <= seek_head(st))
		return true;
	if (!seg)
		return start == st->tcp_pos && seek_tail_gap(st);
	if (seg->pos == start &&
	    gap(st, seg->node.prev, &seg->node))
		return true;
	list_for_each_entry_from(seg, &st->segments, node) {
		if (end < seek_end(seg))
			return false;
		if (end == seek_end(seg))
			return gap(st, &seg->node, seg->node.next) ||
			       (list_is_last(&seg->node, &st->segments) &&
				end != st->tcp_pos);
	}
	return false;
}

static size_t copy_queue(struct sock *sk, u32 seq, size_t len,
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
 * Copies live bytes, wherever they are. Returns how many; fewer only when the
 * user's memory ends.
 */
size_t seek_copy(struct sock *sk, const struct seek_stream *st, u64 pos,
		 size_t len, struct iov_iter *to)
{
	struct seek_segment *seg = find(st, pos);
	size_t done = 0;

	if (!to)
		return len;
	if (seg) {
		list_for_each_entry_from(seg, &st->segments, node) {
			u32 skip = pos + done - seg->pos;
			size_t n = min_t(size_t, len - done, seg->len - skip);

			if (skb_copy_datagram_iter(seg->skb, seg->off + skip,
						   to, n))
				return done;
			done += n;
			if (done == len)
				return done;
		}
	}
	return done + copy_queue(sk, st->tcp_seq + (u32)(pos + done - st->tcp_pos),
				 len - done, to);
}

/*
 * Taking a range out of the middle of a segment needs another one. Making it
 * before anything is copied keeps the call all or nothing.
 */
int seek_split_ready(const struct seek_stream *st, u64 start, u64 end,
		     struct seek_segment **spare, gfp_t gfp)
{
	const struct seek_segment *seg = find(st, start);

	if (!seg || start <= seg->pos || end >= seek_end(seg))
		return 0;
	*spare = kmem_cache_alloc(segment_cache, gfp);
	return *spare ? 0 : -ENOMEM;
}

void seek_spare_free(struct seek_segment *spare)
{
	if (spare)
		kmem_cache_free(segment_cache, spare);
}

static void split(struct seek_stream *st, struct seek_segment *seg,
		  struct seek_segment *behind, u64 start, u64 end)
{
	u32 skip = end - seg->pos;

	*behind = (struct seek_segment) {
		.pos = end, .skb = skb_get(seg->skb),
		.off = seg->off + skip, .len = seg->len - skip,
	};
	seg->own = false;
	resize_segment(st, seg, 0, start - seg->pos);
	link_segment(st, behind, &seg->node);
}

/*
 * What is left of the buffer at the head of TCP's queue can be made small only
 * after it has left the queue. A reader in order would come back for it soon.
 */
static void compact_queue_head(struct sock *sk, struct seek_stream *st)
{
	const struct sk_buff *skb = skb_peek(&sk->sk_receive_queue);
	u32 off;

	if (list_empty(&st->segments) || !skb)
		return;
	off = st->tcp_seq - TCP_SKB_CB(skb)->seq;
	if (off && off < skb->len &&
	    is_wasteful(skb, skb->len - off, WASTE_USUAL))
		seek_drain(sk, st, st->tcp_pos + 1);
}

/*
 * Takes the live bytes [start, end), which begin at or before tcp_pos, and
 * frees their memory.
 */
void seek_take(struct sock *sk, struct seek_stream *st, u64 start, u64 end,
	       struct seek_segment **spare)
{
	struct seek_segment *seg = find(st, start), *next;
	u64 queue_end = end;

	if (seg) {
		list_for_each_entry_safe_from(seg, next, &st->segments, node) {
			u64 from = max(start, seg->pos);
			u64 limit = min(end, seek_end(seg));
			bool head = from == seg->pos;
			bool tail = limit == seek_end(seg);

			if (from >= limit)
				break;
			if (head && tail) {
				struct list_head *prev = seg->node.prev;
				struct sk_buff *skb = seg->skb;

				unlink_segment(st, seg);
				/* What is left of a shared buffer. */
				if (same_buffer(st, prev, skb) ||
				    same_buffer(st, prev->next, skb)) {
					if (!same_buffer(st, prev, skb))
						prev = prev->next;
					consume_skb(skb);
					seg = list_entry(prev,
							 struct seek_segment,
							 node);
					compact(sk, st, seg, WASTE_USUAL);
				} else {
					consume_skb(skb);
				}
				continue;
			}
			if (head) {
				resize_segment(st, seg, limit - from,
					       seek_end(seg) - limit);
			} else if (tail) {
				resize_segment(st, seg, 0, from - seg->pos);
			} else {
				split(st, seg, *spare, from, limit);
				*spare = NULL;
			}
			/* TCP keeps a buffer that is being read, too. */
			if (!head || seg != seek_first(st))
				compact(sk, st, seg, WASTE_USUAL);
		}
	}

	start = max(start, st->tcp_pos);
	if (start < queue_end) {
		tcp_read_done(sk, queue_end - start);
		seek_advanced(sk, st, queue_end);
		compact_queue_head(sk, st);
	} else {
		seek_window_update(sk);
	}
	seek_eat_fin(sk, st);
}
