// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers keep their charge to the socket until their bytes are taken, so the
 * window is as if they were still in TCP's queue. A buffer of which little is
 * left is replaced by a small copy; otherwise one byte would occupy the 64 KiB
 * with which it came. Small buffers that follow each other become one, so that
 * tiny segments gain a peer nothing.
 */
#include <linux/log2.h>
#include "stream.h"

/* The largest buffer whose memory is one page. */
#define DENSE_MAX	((u32)SKB_MAX_ORDER(0, 0))

/* A buffer of our own, charged to the socket like a received one. */
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

/* Roughly the charge of dense_skb(size). */
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

bool seek_is_wasteful(const struct sk_buff *skb, u32 live, int shift)
{
	return live < skb->truesize >> shift;
}

/*
 * Copies bytes that follow those of seg into its buffer, or both into a larger
 * one. The caller resizes the segment if this is done.
 */
bool seek_merge(struct sock *sk, struct seek_segment *seg,
		const struct sk_buff *skb, u32 off, u32 len, int shift)
{
	u32 total = seg->len + len;
	struct sk_buff *larger;

	if (total > DENSE_MAX)
		return false;
	if (seg->own && seg->off + seg->len == seg->skb->len &&
	    skb_tailroom(seg->skb) >= len)
		return append(seg->skb, skb, off, len);
	if (!seg->own && !seek_is_wasteful(seg->skb, seg->len, shift))
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
		struct seek_segment *dense;
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
		dense = seek_segment_alloc(seek_gfp(sk));
		if (!dense) {
			kfree_skb(skb);
			return false;
		}
		*dense = (struct seek_segment) {
			.pos = seg->pos, .skb = skb, .len = n, .own = true,
		};
		/* In this order, seek_poll() never counts too few. */
		seek_link(st, dense, seg->node.prev);
		seek_resize(st, seg, n, seg->len - n);
	}
}

bool seek_same_buffer(const struct seek_stream *st,
		      const struct list_head *node, const struct sk_buff *skb)
{
	return node != &st->segments &&
	       list_entry(node, struct seek_segment, node)->skb == skb;
}

/*
 * Frees the memory of a buffer of which little is left. Segments of one buffer
 * are neighbours. Without memory for the copy, nothing changes.
 */
void seek_compact(struct sock *sk, struct seek_stream *st,
		  struct seek_segment *seg, int shift)
{
	const struct sk_buff *skb = seg->skb;
	u32 live = 0, cost = 0, truesize = skb->truesize;
	struct list_head *node = &seg->node, *next;

	while (seek_same_buffer(st, node->prev, skb))
		node = node->prev;
	for (next = node; seek_same_buffer(st, next, skb); next = next->next) {
		u32 len = list_entry(next, struct seek_segment, node)->len;

		live += len;
		cost += len / DENSE_MAX * dense_truesize(DENSE_MAX) +
			dense_truesize(len % DENSE_MAX);
		if (live >= truesize >> shift || cost >= truesize)
			return;
	}
	for (; seek_same_buffer(st, node, skb); node = next) {
		next = node->next;
		if (!make_dense(sk, st, list_entry(node, struct seek_segment,
						   node)))
			return;
	}
}

/*
 * Frees all memory that copying can free. Segments before squeezed have not
 * changed since: repeated calls walk only over new ones.
 */
void seek_squeeze(struct sock *sk, struct seek_stream *st)
{
	struct seek_segment *seg, *next, *prev = NULL;

	seek_drain(sk, st, seek_arrived(sk, st));
	seg = seek_find(st, st->squeezed);
	if (!seg)
		return;
	if (seg != seek_first(st))
		prev = list_prev_entry(seg, node);
	list_for_each_entry_safe_from(seg, next, &st->segments, node) {
		if (prev && seek_end(prev) == seg->pos &&
		    seek_is_wasteful(seg->skb, seg->len, SEEK_WASTE_SQUEEZED) &&
		    seek_merge(sk, prev, seg->skb, seg->off, seg->len,
			       SEEK_WASTE_SQUEEZED)) {
			u32 len = seg->len;

			consume_skb(seg->skb);
			seek_resize(st, prev, 0, prev->len + len);
			seek_unlink(st, seg);
			continue;
		}
		seek_compact(sk, st, seg, SEEK_WASTE_SQUEEZED);
		prev = seg;
	}
	st->squeezed = seek_last(st)->pos;
}
