// SPDX-License-Identifier: GPL-2.0-only
/* Bytes that have arrived: copying them to the program, and taking them out. */
#include "stream.h"

/*
 * Copies live bytes, wherever they are. Returns their number; fewer only when
 * the user's memory ends.
 */
size_t seek_copy(struct sock *sk, const struct seek_stream *st, u64 pos,
		 size_t len, struct iov_iter *to)
{
	struct seek_segment *seg = seek_find(st, pos);
	size_t done = 0;
	u32 seq;

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
	seq = st->front_seq + (u32)(pos + done - st->front);
	return done + seek_queue_copy(sk, seq, len - done, to);
}

/*
 * Taking a range out of the middle of a segment needs another one. Making it
 * before anything is copied keeps the call all or nothing.
 */
int seek_split_ready(const struct seek_stream *st, u64 start, u64 end,
		     struct seek_segment **spare, gfp_t gfp)
{
	const struct seek_segment *seg = seek_find(st, start);

	if (!seg || start <= seg->pos || end >= seek_end(seg))
		return 0;
	*spare = seek_segment_alloc(gfp);
	return *spare ? 0 : -ENOMEM;
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
	/* In this order, seek_poll() never counts too few. */
	seek_link(st, behind, &seg->node);
	seek_resize(st, seg, 0, start - seg->pos);
}

static void drop(struct sock *sk, struct seek_stream *st,
		 struct seek_segment *seg)
{
	struct list_head *rest = seg->node.prev;
	struct sk_buff *skb = seg->skb;

	seek_unlink(st, seg);
	/* Another segment of the same buffer would be a neighbour. */
	if (!seek_same_buffer(st, rest, skb))
		rest = rest->next;
	if (seek_same_buffer(st, rest, skb)) {
		consume_skb(skb);
		seek_compact(sk, st,
			     list_entry(rest, struct seek_segment, node),
			     SEEK_WASTE_USUAL);
	} else {
		consume_skb(skb);
	}
}

static void take_from(struct sock *sk, struct seek_stream *st,
		      struct seek_segment *seg, u64 start, u64 end,
		      struct seek_segment **spare)
{
	bool head = start == seg->pos;

	if (head && end == seek_end(seg)) {
		drop(sk, st, seg);
		return;
	}
	if (head) {
		seek_resize(st, seg, end - start, seek_end(seg) - end);
	} else if (end == seek_end(seg)) {
		seek_resize(st, seg, 0, start - seg->pos);
	} else {
		split(st, seg, *spare, start, end);
		*spare = NULL;
	}
	/* Not where a reader in order is: TCP also keeps such a buffer. */
	if (!head || seg != seek_first(st))
		seek_compact(sk, st, seg, SEEK_WASTE_USUAL);
}

/*
 * Takes the live bytes [start, end), which begin at or before front, and
 * frees their memory.
 */
void seek_take(struct sock *sk, struct seek_stream *st, u64 start, u64 end,
	       struct seek_segment **spare)
{
	struct seek_segment *seg = seek_find(st, start), *next;

	if (seg) {
		list_for_each_entry_safe_from(seg, next, &st->segments, node) {
			if (seg->pos >= end)
				break;
			take_from(sk, st, seg, max(start, seg->pos),
				  min(end, seek_end(seg)), spare);
		}
	}
	if (end > st->front)
		seek_queue_take(sk, st, end);
	else
		seek_window_update(sk);
	seek_eat_fin(sk, st);
}
