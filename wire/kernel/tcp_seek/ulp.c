// SPDX-License-Identifier: GPL-2.0-only
/*
 * Seekable sockets for unmodified kernels: an upper-layer protocol of TCP
 * (Douglas and Pai, "Seekable sockets", have them as a socket type).
 *
 *	setsockopt(fd, SOL_TCP, TCP_ULP, "seek", sizeof("seek"));
 *
 * A socket with it gets struct proto and struct proto_ops from us, which are
 * TCP's except for the calls that receive.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <net/inet_common.h>
#include <net/tcp.h>
#include <asm/ioctls.h>
#include "stream.h"

unsigned int seek_max_holes = 1024;
module_param_named(max_holes, seek_max_holes, uint, 0644);
MODULE_PARM_DESC(max_holes, "Holes that one socket may have (1024)");

enum { FAMILY_INET, FAMILY_INET6, FAMILIES };

/* TCP's tables for a family, and ours made from them. */
static struct seek_family {
	struct proto *tcp_proto;
	const struct proto_ops *tcp_ops;
	struct proto proto;
	struct proto_ops ops;
} families[FAMILIES];

static DEFINE_MUTEX(families_lock);

static atomic64_t ids;

static void seek_close(struct sock *sk, long timeout)
{
	struct seek_stream *st = seek_stream(sk);
	struct proto *proto = st->proto;

	lock_sock(sk);
	/*
	 * TCP sends a reset when unread data is thrown away (RFC 2525, 2.17).
	 * To it, ours was read; a close without lingering does the same.
	 */
	if (st->bytes && (1 << sk->sk_state) &
	    (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT | TCPF_FIN_WAIT1 |
	     TCPF_FIN_WAIT2)) {
		sock_set_flag(sk, SOCK_LINGER);
		sk->sk_lingertime = 0;
	}
	seek_purge(st);
	WRITE_ONCE(sk->sk_prot, proto);
	release_sock(sk);
	proto->close(sk, timeout);
}

/* Refused: afterwards the socket could be connected to another stream. */
static int seek_disconnect(struct sock *sk, int flags)
{
	return -EOPNOTSUPP;
}

/* Corrects TCP's answer from its own queue; false: its answer is right. */
static bool answer_ioctl(struct sock *sk, int cmd, int *answer)
{
	switch (cmd) {
	case SIOCINQ:
		*answer = seek_unread(sk);
		return true;
	case SIOCATMARK:
		/* The mark is after the bytes in segments. */
		*answer = 0;
		return READ_ONCE(seek_stream(sk)->bytes);
	default:
		return false;
	}
}

#ifdef SEEK_IOCTL_KARG
static int seek_ioctl(struct sock *sk, int cmd, int *karg)
{
	if (answer_ioctl(sk, cmd, karg))
		return 0;
	return seek_stream(sk)->proto->ioctl(sk, cmd, karg);
}
#else
static int seek_ioctl(struct sock *sk, int cmd, unsigned long arg)
{
	int answer;

	if (answer_ioctl(sk, cmd, &answer))
		return put_user(answer, (int __user *)arg);
	return seek_stream(sk)->proto->ioctl(sk, cmd, arg);
}
#endif

#ifdef SEEK_RECVMSG_ADDR_LEN
static int seek_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			int flags, int *addr_len)
{
	if (unlikely(flags & MSG_ERRQUEUE))
		return seek_stream(sk)->proto->recvmsg(sk, msg, len, flags,
						       addr_len);
	return seek_receive(sk, msg, len, flags);
}
#else
static int seek_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
			int flags)
{
	if (unlikely(flags & MSG_ERRQUEUE))
		return seek_stream(sk)->proto->recvmsg(sk, msg, len, flags);
	return seek_receive(sk, msg, len, flags);
}
#endif

/*
 * The socket layer drops the reference to the owner of the operations after
 * this, so that our code cannot go away during close().
 */
static int seek_release(struct socket *sock)
{
	const struct proto_ops *ops = seek_stream(sock->sk)->ops;
	int err = ops->release(sock);

	module_put(ops->owner);
	return err;
}

static void build_family(struct seek_family *family, struct proto *proto,
			 const struct proto_ops *ops)
{
	family->tcp_ops = ops;
	family->proto = *proto;
	family->proto.close = seek_close;
	family->proto.disconnect = seek_disconnect;
	family->proto.ioctl = seek_ioctl;
	family->proto.getsockopt = seek_getsockopt;
	family->proto.setsockopt = seek_setsockopt;
	family->proto.bpf_bypass_getsockopt = seek_bypass_bpf;
	family->proto.recvmsg = seek_recvmsg;

	family->ops = *ops;
	family->ops.owner = THIS_MODULE;
	family->ops.release = seek_release;
	family->ops.poll = seek_poll;
	family->ops.set_rcvlowat = seek_set_rcvlowat;
	/* recvmsg() does it then. */
	family->ops.splice_read = NULL;
	/* These read sk_receive_queue; without them callers refuse. */
	family->ops.set_peek_off = NULL;
	family->ops.peek_len = NULL;
	family->ops.read_sock = NULL;
	family->ops.read_skb = NULL;
	family->ops.mmap = sock_no_mmap;
	/* Pairs with find_family(). */
	smp_store_release(&family->tcp_proto, proto);
}

/*
 * TCP's tables for IPv6 are known only when a socket comes with them. A socket
 * with other ones belongs to another user (sockmap, SMC).
 */
static struct seek_family *find_family(struct sock *sk)
{
	bool inet6 = sk->sk_family == AF_INET6;
	struct seek_family *family =
		&families[inet6 ? FAMILY_INET6 : FAMILY_INET];
	struct proto *proto = READ_ONCE(sk->sk_prot);
	const struct proto_ops *ops = READ_ONCE(sk->sk_socket->ops);

	/* Pairs with build_family(). */
	if (unlikely(!smp_load_acquire(&family->tcp_proto))) {
		if (proto->recvmsg != tcp_prot.recvmsg ||
		    proto->close != tcp_prot.close ||
		    proto->getsockopt != tcp_prot.getsockopt ||
		    proto->sock_is_readable ||
		    ops->poll != tcp_poll || ops->family != sk->sk_family)
			return NULL;
		mutex_lock(&families_lock);
		if (!family->tcp_proto)
			build_family(family, proto, ops);
		mutex_unlock(&families_lock);
	}
	return proto == family->tcp_proto && ops == family->tcp_ops ?
	       family : NULL;
}

static bool is_connected(const struct sock *sk)
{
	switch (sk->sk_state) {
	case TCP_ESTABLISHED:
	case TCP_FIN_WAIT1:
	case TCP_FIN_WAIT2:
	case TCP_CLOSE_WAIT:
	case TCP_CLOSING:
	case TCP_LAST_ACK:
		return true;
	case TCP_CLOSE:
		/* Both ends are closed, but it cannot be connected again. */
		return sk->sk_socket->state == SS_CONNECTED;
	default:
		return false;
	}
}

static int seek_init(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	struct seek_family *family;
	struct seek_stream *st;

	if (!sk->sk_socket || !is_connected(sk))
		return -ENOTCONN;
	if (tp->repair || READ_ONCE(sk->sk_peek_off) >= 0)
		return -EBUSY;
	family = find_family(sk);
	if (!family)
		return -EBUSY;

	st = kzalloc(sizeof(*st), GFP_KERNEL_ACCOUNT);
	if (!st)
		return -ENOMEM;
	INIT_LIST_HEAD(&st->segments);
	st->tree = RB_ROOT;
	st->id = atomic64_inc_return(&ids);
	st->front_seq = tp->copied_seq;
	st->lowat = sk->sk_rcvlowat;
	st->proto = family->tcp_proto;
	st->ops = family->tcp_ops;

#ifdef SOCK_SUPPORT_ZC
	/* TCP clears it for a protocol; sending is unchanged here. */
	set_bit(SOCK_SUPPORT_ZC, &sk->sk_socket->flags);
#endif
	/* Urgent bytes stay in the stream, so that no position shifts. */
	sock_set_flag(sk, SOCK_URGINLINE);

	/* Dropped by the socket layer: see seek_release(). */
	__module_get(THIS_MODULE);
	rcu_assign_pointer(icsk->icsk_ulp_data, (__force void __rcu *)st);
	/* Code that sees the new operations also sees the stream. */
	smp_wmb();
	WRITE_ONCE(sk->sk_prot, &family->proto);
	WRITE_ONCE(sk->sk_socket->ops, &family->ops);
	return 0;
}

/* The socket is being destroyed; nothing else uses it. */
static void seek_destroy(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct seek_stream *st = seek_stream(sk);

	if (!st)
		return;
	seek_purge(st);
	WRITE_ONCE(sk->sk_prot, st->proto);
	rcu_assign_pointer(icsk->icsk_ulp_data, NULL);
	kfree(st);
}

static struct tcp_ulp_ops seek_ulp = {
	.name = "seek",
	.owner = THIS_MODULE,
	.init = seek_init,
	.release = seek_destroy,
	/* No clone: a listener cannot have it. */
};

static int __init seek_module_init(void)
{
	int err = seek_segments_init();

	if (err)
		return err;
	build_family(&families[FAMILY_INET], &tcp_prot, &inet_stream_ops);
	err = tcp_register_ulp(&seek_ulp);
	if (err)
		seek_segments_exit();
	return err;
}

static void __exit seek_module_exit(void)
{
	tcp_unregister_ulp(&seek_ulp);
	seek_segments_exit();
}

module_init(seek_module_init);
module_exit(seek_module_exit);

MODULE_DESCRIPTION("Seekable receive for TCP");
MODULE_LICENSE("GPL");
MODULE_ALIAS_TCP_ULP("seek");
