/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Seekable sockets (Douglas and Pai, "Seekable sockets: a mechanism to reduce
 * copy overheads in TCP-based messaging"; Melnyk, "Direct message search").
 *
 *   ulp.c	the protocol seen by the socket layer, attach and detach
 *   sockopt.c	the interface: TCP_SEEK_RECV, TCP_SEEK_EXTENT
 *   seek.c	taking a range		recv.c	taking at the head, poll, FIONREAD
 *   take.c	copying and taking arrived bytes
 *   queue.c	moving skipped bytes off TCP's receive queue
 *   segments.c	the list of that		memory.c	its buffers
 *   window.c	the receive window: window updates, ENOBUFS
 *
 *   head                      front                       arrived
 *    | segments and gaps       | sk_receive_queue          |
 *    [seg][seg]....[seg][seg]..[skb][skb][skb][skb][skb][skb]
 *               hole         hole
 *
 * Everything in struct seek_stream is protected by lock_sock(); values that
 * poll reads without it are read and written once.
 */
#ifndef _TCP_SEEK_STREAM_H
#define _TCP_SEEK_STREAM_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <net/tcp.h>

/* Bytes [pos, pos + len) of the stream lie at off in skb. */
struct seek_segment {
	struct list_head node;
	struct rb_node tree;
	u64 pos;
	struct sk_buff *skb;
	u32 off;
	u32 len;
	u32 gaps;			/* in its part of the tree */
	bool gap;			/* it does not follow its neighbour */
	/* We have made skb, and nobody else refers to it. */
	bool own;
};

struct seek_stream {
	u64 id;				/* no other socket has it */
	struct list_head segments;	/* by position */
	struct rb_root tree;		/* the same, for finding one */
	u64 front;			/* position of TCP's next byte */
	u32 front_seq;			/* copied_seq when the front was set */
	u32 end_seq;			/* of the FIN, if ended */
	bool ended;
	u64 squeezed;			/* see seek_squeeze() */
	u32 bytes;			/* in segments */
	u32 sleepers;
	int lowat;			/* the user's SO_RCVLOWAT */
	struct proto *proto;		/* of TCP itself */
	const struct proto_ops *ops;
};

static inline struct seek_stream *seek_stream(const struct sock *sk)
{
	return (__force void *)inet_csk(sk)->icsk_ulp_data;
}

static inline gfp_t seek_gfp(const struct sock *sk)
{
	return sk->sk_allocation | __GFP_NOWARN;
}

static inline u64 seek_end(const struct seek_segment *seg)
{
	return seg->pos + seg->len;
}

static inline struct seek_segment *seek_first(const struct seek_stream *st)
{
	return list_empty(&st->segments) ? NULL :
	       list_first_entry(&st->segments, struct seek_segment, node);
}

static inline struct seek_segment *seek_last(const struct seek_stream *st)
{
	return list_empty(&st->segments) ? NULL :
	       list_last_entry(&st->segments, struct seek_segment, node);
}

static inline u64 seek_head(const struct seek_stream *st)
{
	const struct seek_segment *first = seek_first(st);

	return first ? first->pos : st->front;
}

/* Whether the bytes right before the front were taken. */
static inline bool seek_tail_gap(const struct seek_stream *st)
{
	const struct seek_segment *last = seek_last(st);

	return last && seek_end(last) != st->front;
}

/* segments.c */
int seek_segments_init(void);
void seek_segments_exit(void);
struct seek_segment *seek_segment_alloc(gfp_t gfp);
void seek_segment_free(struct seek_segment *seg);
void seek_link(struct seek_stream *st, struct seek_segment *seg,
	       struct list_head *before);
void seek_unlink(struct seek_stream *st, struct seek_segment *seg);
void seek_resize(struct seek_stream *st, struct seek_segment *seg, u32 skip,
		 u32 len);
void seek_purge(struct seek_stream *st);
struct seek_segment *seek_find(const struct seek_stream *st, u64 pos);
struct seek_segment *seek_next_gap(const struct seek_segment *seg);
u32 seek_holes(const struct seek_stream *st);
u64 seek_contiguous(const struct sock *sk, const struct seek_stream *st,
		    u64 from);
bool seek_touches_hole(const struct seek_stream *st, u64 start, u64 end);

/* memory.c: less than truesize >> this of a buffer is left */
#define SEEK_WASTE_USUAL	2
#define SEEK_WASTE_SQUEEZED	1

bool seek_is_wasteful(const struct sk_buff *skb, u32 live, int shift);
bool seek_merge(struct sock *sk, struct seek_segment *seg,
		const struct sk_buff *skb, u32 off, u32 len, int shift);
bool seek_same_buffer(const struct seek_stream *st,
		      const struct list_head *node, const struct sk_buff *skb);
void seek_compact(struct sock *sk, struct seek_stream *st,
		  struct seek_segment *seg, int shift);
void seek_squeeze(struct sock *sk, struct seek_stream *st);

/* queue.c */
u32 seek_queued(const struct sock *sk);
u64 seek_arrived(const struct sock *sk, const struct seek_stream *st);
void seek_sync(struct sock *sk, struct seek_stream *st);
void seek_eat_fin(struct sock *sk, struct seek_stream *st);
int seek_drain(struct sock *sk, struct seek_stream *st, u64 limit);
size_t seek_queue_copy(struct sock *sk, u32 seq, size_t len,
		       struct iov_iter *to);
void seek_queue_take(struct sock *sk, struct seek_stream *st, u64 end);

/* take.c */
size_t seek_copy(struct sock *sk, const struct seek_stream *st, u64 pos,
		 size_t len, struct iov_iter *to);
int seek_split_ready(const struct seek_stream *st, u64 start, u64 end,
		     struct seek_segment **spare, gfp_t gfp);
void seek_take(struct sock *sk, struct seek_stream *st, u64 start, u64 end,
	       struct seek_segment **spare);

/* window.c */
void seek_window_update(struct sock *sk);
int seek_make_room(struct sock *sk, struct seek_stream *st, u64 end);

/* seek.c */
struct seek_request {
	u64 at;
	bool position;
	bool peek;
	bool partial;
	long timeo;
	struct iov_iter *to;		/* NULL: the bytes are not stored */
	size_t len;
	u64 start;			/* out */
};

ssize_t seek_range(struct sock *sk, struct seek_stream *st,
		   struct seek_request *req);

/* recv.c */
void seek_set_lowat(struct sock *sk, struct seek_stream *st);
int seek_wait(struct sock *sk, struct seek_stream *st, long *timeo);
void seek_taken(struct sock *sk, struct seek_stream *st);
int seek_receive(struct sock *sk, struct msghdr *msg, size_t len, int flags);
__poll_t seek_poll(struct file *file, struct socket *sock, poll_table *wait);
int seek_unread(struct sock *sk);
int seek_set_rcvlowat(struct sock *sk, int val);

/* sockopt.c */
int seek_getsockopt(struct sock *sk, int level, int optname,
		    char __user *optval, int __user *optlen);
int seek_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
		    unsigned int optlen);
bool seek_bypass_bpf(int level, int optname);

/* ulp.c */
extern unsigned int seek_max_holes;

#endif /* _TCP_SEEK_STREAM_H */
