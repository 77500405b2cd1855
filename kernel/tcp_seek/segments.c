// SPDX-License-Identifier: GPL-2.0-only
/* The list of what was moved off TCP's queue: holes are the gaps in it. */
#include <linux/slab.h>
#include "stream.h"

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

struct seek_segment *seek_segment_alloc(gfp_t gfp)
{
	return kmem_cache_alloc(segment_cache, gfp);
}

void seek_segment_free(struct seek_segment *seg)
{
	if (seg)
		kmem_cache_free(segment_cache, seg);
}

/* 1 if neighbours do not follow each other in the stream. */
u32 seek_gap(const struct seek_stream *st, const struct list_head *before,
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
	return seek_gap(st, seg->node.prev, &seg->node) +
	       seek_gap(st, &seg->node, seg->node.next);
}

static void set_bytes(struct seek_stream *st, u32 bytes)
{
	/* Read by seek_poll(). */
	WRITE_ONCE(st->bytes, bytes);
}

void seek_link(struct seek_stream *st, struct seek_segment *seg,
	       struct list_head *before)
{
	st->gaps -= seek_gap(st, before, before->next);
	list_add(&seg->node, before);
	st->gaps += gaps_around(st, seg);
	set_bytes(st, st->bytes + seg->len);
}

/* The caller has moved or dropped the reference to the skb. */
void seek_unlink(struct seek_stream *st, struct seek_segment *seg)
{
	st->gaps -= gaps_around(st, seg);
	st->gaps += seek_gap(st, seg->node.prev, seg->node.next);
	list_del(&seg->node);
	set_bytes(st, st->bytes - seg->len);
	seek_segment_free(seg);
}

/* Leaves len bytes of it, skip bytes behind its beginning; or adds some. */
void seek_resize(struct seek_stream *st, struct seek_segment *seg, u32 skip,
		 u32 len)
{
	st->gaps -= gaps_around(st, seg);
	set_bytes(st, st->bytes - seg->len + len);
	seg->pos += skip;
	seg->off += skip;
	seg->len = len;
	st->gaps += gaps_around(st, seg);
}

void seek_purge(struct seek_stream *st)
{
	struct seek_segment *seg, *next;

	list_for_each_entry_safe(seg, next, &st->segments, node) {
		kfree_skb(seg->skb);
		seek_unlink(st, seg);
	}
}

/* The first segment that ends behind pos; it may begin behind it, too. */
struct seek_segment *seek_find(const struct seek_stream *st, u64 pos)
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
	struct seek_segment *seg = seek_find(st, from);

	if (seg) {
		list_for_each_entry_from(seg, &st->segments, node) {
			if (seg->pos > from || from >= limit)
				return from;
			from = seek_end(seg);
		}
	}
	return from < st->front ? from : max(from, seek_arrived(sk, st));
}

/* Whether taking the live bytes [start, end) makes no further hole. */
bool seek_touches_hole(const struct seek_stream *st, u64 start, u64 end)
{
	const struct seek_segment *seg = seek_find(st, start);

	if (start <= seek_head(st))
		return true;
	if (!seg)
		return start == st->front && seek_tail_gap(st);
	if (seg->pos == start &&
	    seek_gap(st, seg->node.prev, &seg->node))
		return true;
	list_for_each_entry_from(seg, &st->segments, node) {
		if (end < seek_end(seg))
			return false;
		if (end == seek_end(seg))
			return seek_gap(st, &seg->node, seg->node.next) ||
			       (list_is_last(&seg->node, &st->segments) &&
				end != st->front);
	}
	return false;
}
