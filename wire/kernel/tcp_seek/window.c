// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receive window. TCP computes it from the memory charged to the socket, so
 * taking bytes out of the middle opens it; the peer must get a window update,
 * as TCP's readers send it.
 */
#include "stream.h"

/*
 * The bytes that the memory has room for, or 0 if so few that TCP would close
 * the window. Like __tcp_select_window(), but without the limits of the window
 * itself, which moves on while bytes arrive.
 */
static u32 room(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	int free = tcp_space(sk);
	int allowed = tcp_full_space(sk);
	int full = min_t(int, tp->window_clamp, allowed);
	int mss = min_t(int, inet_csk(sk)->icsk_ack.rcv_mss, full);

	if (mss <= 0)
		return 0;
	if (free < full >> 1) {
		free = round_down(free, 1 << tp->rx_opt.rcv_wscale);
		if (free < allowed >> 4 || free < mss)
			return 0;
	}
	return max(free, 0);
}

/* The window that TCP would offer now. */
static u32 window_next(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return min3(room(sk), tp->rcv_ssthresh, tp->window_clamp);
}

static void send_ack(struct sock *sk)
{
#ifdef SEEK_SEND_ACK_FLAGS
	__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
#else
	__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt);
#endif
}

static bool ack_is_due(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return inet_csk_ack_scheduled(sk) &&
	       tp->rcv_nxt - tp->rcv_wup > inet_csk(sk)->icsk_ack.rcv_mss;
}

/*
 * Called after bytes were taken that TCP already counts as read. Like
 * tcp_cleanup_rbuf(), which is not exported.
 */
void seek_window_update(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 now;

	if (sk->sk_shutdown & RCV_SHUTDOWN)
		return;
	now = tcp_receive_window(tp);
	if (ack_is_due(sk)) {
		send_ack(sk);
	} else if (2 * now <= tp->window_clamp) {
		u32 next = window_next(sk);

		if (next && next >= 2 * now)
			send_ack(sk);
	}
}

/*
 * A range that lies far ahead is a reason to grow the buffer, up to the limit
 * of tcp_rmem: TCP itself grows it for programs that read fast.
 */
static void grow(struct sock *sk, u64 need)
{
	const struct net *net = sock_net(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 rcvbuf = READ_ONCE(sk->sk_rcvbuf);
	u32 full = max(tcp_full_space(sk), 1);
	u32 limit;
	u64 want;

	if (sk->sk_userlocks & SOCK_RCVBUF_LOCK ||
	    !READ_ONCE(net->ipv4.sysctl_tcp_moderate_rcvbuf) ||
	    tcp_under_memory_pressure(sk))
		return;
	limit = READ_ONCE(net->ipv4.sysctl_tcp_rmem[2]);
	if (rcvbuf >= limit)
		return;

	/* With room to spare, or the window would close before the end. */
	want = min_t(u64, need, limit) * max(rcvbuf, full);
	want = div_u64(want, full) + 4 * SKB_TRUESIZE(tp->advmss);
	want += want >> 3;
	want += atomic_read(&sk->sk_rmem_alloc);
	want = min_t(u64, want, limit);
	if (want <= rcvbuf)
		return;
	WRITE_ONCE(sk->sk_rcvbuf, want);
	WRITE_ONCE(tp->window_clamp,
		   max_t(u32, tp->window_clamp, tcp_win_from_space(sk, want)));
}

/* Whether TCP drops segments, for lack of memory here or of all sockets. */
static bool is_overfull(struct sock *sk)
{
	struct sk_buff *last = skb_peek_tail(&sk->sk_receive_queue);

	return atomic_read(&sk->sk_rmem_alloc) > READ_ONCE(sk->sk_rcvbuf) ||
	       /* Segments for an empty queue are still accepted. */
	       (last && !sk_rmem_schedule(sk, last, PAGE_SIZE));
}

/* Whether the peer can send need more bytes if memory is used as TCP expects. */
static bool has_room(struct sock *sk, u64 need)
{
	return !is_overfull(sk) &&
	       (need <= tcp_receive_window(tcp_sk(sk)) || need <= room(sk));
}

/*
 * Whether the peer might: TCP assumes small buffers, and large ones take less
 * memory, which shows only when the bytes have arrived. So some must have room,
 * and all of them must not be more than the free memory.
 */
static bool may_have_room(struct sock *sk, u64 need)
{
	return has_room(sk, need) ||
	       (!is_overfull(sk) && room(sk) &&
		need <= READ_ONCE(sk->sk_rcvbuf) -
			atomic_read(&sk->sk_rmem_alloc));
}

/* Announces a larger window to the peer, which may be waiting for it. */
static void offer_window(struct sock *sk, u64 need)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 now = tcp_receive_window(tp), next = window_next(sk);
	u32 mss = inet_csk(sk)->icsk_ack.rcv_mss;

	/* An acknowledgement for each byte would be too many. */
	if (need > now && next > now && (next - now >= mss || next >= 2 * now))
		send_ack(sk);
}

/*
 * Called before waiting for bytes up to end that have not all arrived: -ENOBUFS
 * if they cannot, because earlier bytes have used up the memory.
 */
int seek_make_room(struct sock *sk, struct seek_stream *st, u64 end)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 need = end - seek_arrived(sk, st);

	if (likely(need <= tcp_receive_window(tp) && !is_overfull(sk)))
		return 0;
	if (!has_room(sk, need))
		grow(sk, need);
	if (!may_have_room(sk, need)) {
		seek_squeeze(sk, st);
		/*
		 * TCP drops out-of-order segments to make room for the
		 * missing ones before them, which the peer is sending:
		 * wait for those, and check again then.
		 */
		if (!may_have_room(sk, need) &&
		    RB_EMPTY_ROOT(&tp->out_of_order_queue))
			return -ENOBUFS;
	}
	offer_window(sk, need);
	return 0;
}
