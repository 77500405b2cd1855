// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bytes that were moved off TCP's queue, in segments; holes are the gaps
 * between them. The peer decides how many segments there are, so a call walks
 * over those of its range at most: a tree finds the first one, and knows which
 * of its subtrees have gaps.
 */
#include <linux/rbtree_augmented.h>
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

static struct seek_segment *of_tree(const struct rb_node *node)
{
	return rb_entry_safe(node, struct seek_segment, tree);
}

static u32 gaps_below(const struct rb_node *node)
{
	return node ? of_tree(node)->gaps : 0;
}

/* For the tree: whether nothing changes further up. */
static bool count_gaps(struct seek_segment *seg, bool may_stop)
{
	u32 gaps = gaps_below(seg->tree.rb_left) + seg->gap +
		   gaps_below(seg->tree.rb_right);

	if (may_stop && seg->gaps == gaps)
		return true;
	seg->gaps = gaps;
	return false;
}

RB_DECLARE_CALLBACKS(static, gap_callbacks, struct seek_segment, tree, gaps,
		     count_gaps);

/* After a change of the neighbours of a place in the list. */
static void set_gap(struct seek_stream *st, struct list_head *node)
{
	struct seek_segment *seg = list_entry(node, struct seek_segment, node);
	bool gap;

	if (node == &st->segments)
		return;
	gap = seg != seek_first(st) &&
	      seek_end(list_prev_entry(seg, node)) != seg->pos;
	if (seg->gap == gap)
		return;
	seg->gap = gap;
	gap_callbacks.propagate(&seg->tree, NULL);
}

static void set_bytes(struct seek_stream *st, u32 bytes)
{
	/* Read by seek_poll(). */
	WRITE_ONCE(st->bytes, bytes);
}

static void changed(struct seek_stream *st, const struct seek_segment *seg)
{
	st->squeezed = min(st->squeezed, seg->pos);
}

/* Inserts directly after prev, or first. */
static void plant(struct seek_stream *st, struct seek_segment *seg,
		  struct rb_node *prev)
{
	struct rb_node *parent = prev;
	struct rb_node **link = prev ? &prev->rb_right : &st->tree.rb_node;

	while (*link) {
		parent = *link;
		link = &parent->rb_left;
	}
	rb_link_node(&seg->tree, parent, link);
	rb_insert_augmented(&seg->tree, &st->tree, &gap_callbacks);
}

void seek_link(struct seek_stream *st, struct seek_segment *seg,
	       struct list_head *before)
{
	seg->gap = false;
	seg->gaps = 0;
	plant(st, seg, before == &st->segments ? NULL :
	      &list_entry(before, struct seek_segment, node)->tree);
	list_add(&seg->node, before);
	set_gap(st, &seg->node);
	set_gap(st, seg->node.next);
	changed(st, seg);
	set_bytes(st, st->bytes + seg->len);
}

/* The caller has moved or dropped the reference to the skb. */
void seek_unlink(struct seek_stream *st, struct seek_segment *seg)
{
	struct list_head *next = seg->node.next;

	changed(st, seg);
	rb_erase_augmented(&seg->tree, &st->tree, &gap_callbacks);
	list_del(&seg->node);
	set_gap(st, next);
	set_bytes(st, st->bytes - seg->len);
	seek_segment_free(seg);
}

/* Leaves len bytes of it, from skip bytes after its beginning; or adds some. */
void seek_resize(struct seek_stream *st, struct seek_segment *seg, u32 skip,
		 u32 len)
{
	changed(st, seg);
	set_bytes(st, st->bytes - seg->len + len);
	seg->pos += skip;
	seg->off += skip;
	seg->len = len;
	set_gap(st, &seg->node);
	set_gap(st, seg->node.next);
}

void seek_purge(struct seek_stream *st)
{
	struct seek_segment *seg, *next;

	list_for_each_entry_safe(seg, next, &st->segments, node) {
		kfree_skb(seg->skb);
		seek_unlink(st, seg);
	}
}

u32 seek_holes(const struct seek_stream *st)
{
	return gaps_below(st->tree.rb_node) + seek_tail_gap(st);
}

/* The first segment that ends after pos; it may also begin after it. */
struct seek_segment *seek_find(const struct seek_stream *st, u64 pos)
{
	struct seek_segment *seg = of_tree(st->tree.rb_node), *found = NULL;

	while (seg) {
		if (pos < seek_end(seg)) {
			found = seg;
			seg = of_tree(seg->tree.rb_left);
		} else {
			seg = of_tree(seg->tree.rb_right);
		}
	}
	return found;
}

/* The first segment after this one that has a gap before it. */
struct seek_segment *seek_next_gap(const struct seek_segment *seg)
{
	const struct rb_node *node = &seg->tree, *parent;

	/* Up, until there is one on the right. */
	while (!gaps_below(node->rb_right)) {
		while ((parent = rb_parent(node)) && node == parent->rb_right)
			node = parent;
		if (!parent || of_tree(parent)->gap)
			return of_tree(parent);
		node = parent;
	}
	node = node->rb_right;
	while (true) {
		if (gaps_below(node->rb_left))
			node = node->rb_left;
		else if (of_tree(node)->gap)
			return of_tree(node);
		else
			node = node->rb_right;
	}
}

/* The first position at or after from whose byte cannot be received. */
u64 seek_contiguous(const struct sock *sk, const struct seek_stream *st,
		    u64 from)
{
	struct seek_segment *seg = seek_find(st, from), *next;

	if (seg) {
		if (seg->pos > from)
			return from;
		next = seek_next_gap(seg);
		from = seek_end(next ? list_prev_entry(next, node) :
				seek_last(st));
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
	if (seg->pos == start && seg->gap)
		return true;
	seg = seek_find(st, end - 1);
	if (!seg || end != seek_end(seg))
		return false;
	return seg == seek_last(st) ? end != st->front :
	       list_next_entry(seg, node)->gap;
}
