// SPDX-License-Identifier: GPL-2.0-only
/* Sockets that seek, along with the kernel's other uses of TCP sockets. */
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tls.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "peer.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef SOL_TLS
#define SOL_TLS 282
#endif

/*
 * A socket has one protocol on top of TCP. Next to a socket with kTLS, a seeker
 * takes a record out of the middle of that socket's output.
 */
TEST(beside_tls)
{
	struct pair pair = pair_default();
	struct tls12_crypto_info_aes_gcm_128 keys = {
		.info = { TLS_1_2_VERSION, TLS_CIPHER_AES_GCM_128 },
	};
	/* Header, explicit nonce, text, tag. */
	enum { TEXT = 100, RECORD = 5 + 8 + TEXT + 16 };
	uint8_t text[TEXT] = {}, records[3 * RECORD];

	if (setsockopt(pair.tx, SOL_TCP, TCP_ULP, "tls", sizeof("tls")))
		test_skip("no TLS in this kernel: %m");
	ASSERT_ERRNO(attach(pair.tx), EEXIST);
	ASSERT_ERRNO(setsockopt(pair.rx, SOL_TCP, TCP_ULP, "tls", sizeof("tls")), EEXIST);
	ASSERT_ERRNO(setsockopt(pair.rx, SOL_TLS, TLS_RX, &keys, sizeof(keys)), ENOPROTOOPT);
	ASSERT_EQ(setsockopt(pair.tx, SOL_TLS, TLS_TX, &keys, sizeof(keys)), 0);
	for (int i = 0; i < 3; i++)
		send_all(pair.tx, text, TEXT);
	await_arrived(pair.rx, sizeof(records));
	ASSERT_EQ(seek_recv(pair.rx, records + RECORD, RECORD, 0, RECORD), RECORD);
	ASSERT_EQ(recv(pair.rx, records, RECORD, 0), RECORD);
	ASSERT_EQ(recv(pair.rx, records + 2 * RECORD, RECORD, 0), RECORD);
	for (int i = 0; i < 3; i++) {
		static const uint8_t header[] = { 23, 3, 3, 0, RECORD - 5 };

		ASSERT(!memcmp(records + i * RECORD, header, sizeof(header)));
	}
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

static int mptcp_listener(struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	socklen_t size = sizeof(*address);

	if (fd < 0)
		test_skip("no MPTCP in this kernel: %m");
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	ASSERT_EQ(bind(fd, (void *)address, size), 0);
	ASSERT_EQ(listen(fd, 1), 0);
	ASSERT_EQ(getsockname(fd, (void *)address, &size), 0);
	return fd;
}

static struct pair connect_to(int listener, const struct sockaddr_in *address, int protocol)
{
	struct pair pair = { .tx = socket(AF_INET, SOCK_STREAM, protocol) };

	ASSERT(pair.tx >= 0);
	ASSERT_EQ(connect(pair.tx, (void *)address, sizeof(*address)), 0);
	pair.rx = accept(listener, NULL, NULL);
	ASSERT(pair.rx >= 0);
	return pair;
}

/*
 * An MPTCP socket refuses, and continues. From a TCP client its listener gets a
 * TCP socket, which seeks or refuses.
 */
TEST(beside_mptcp)
{
	struct sockaddr_in address;
	int listener = mptcp_listener(&address);
	struct pair pair = connect_to(listener, &address, IPPROTO_MPTCP);
	uint8_t buf[300];

	ASSERT(attach(pair.rx));
	ASSERT(attach(pair.tx));
	send_stream(pair.tx, 0, 300);
	ASSERT_EQ(recv(pair.rx, buf, 300, MSG_WAITALL), 300);
	ASSERT_STREAM(buf, 0, 300);
	pair_close(pair);

	pair = connect_to(listener, &address, IPPROTO_TCP);
	send_stream(pair.tx, 0, 300);
	if (!attach(pair.rx)) {
		printf("# attached\n");
		ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100), 100);
		ASSERT_STREAM(buf, 100, 100);
		ASSERT_EQ(recv(pair.rx, buf, 200, MSG_WAITALL), 200);
		ASSERT_STREAM(buf, 0, 100);
		ASSERT_STREAM(buf + 100, 200, 100);
	} else {
		ASSERT_EQ(recv(pair.rx, buf, 300, MSG_WAITALL), 300);
		ASSERT_STREAM(buf, 0, 300);
	}
	pair_close(pair);
	close(listener);
}

/* Aborts the connection of a socket, as `ss -K` does. */
static void destroy(int fd)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 request;
	} message = {
		.header = {
			.nlmsg_len = sizeof(message), .nlmsg_type = SOCK_DESTROY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
		.request = {
			.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP,
			.idiag_states = ~0u,
			.id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE },
		},
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		uint8_t rest[256];
	} answer;
	struct sockaddr_in ours, theirs;
	socklen_t size = sizeof(ours);
	int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);

	ASSERT(netlink >= 0);
	ASSERT_EQ(getsockname(fd, (void *)&ours, &size), 0);
	ASSERT_EQ(getpeername(fd, (void *)&theirs, &size), 0);
	message.request.id.idiag_sport = ours.sin_port;
	message.request.id.idiag_dport = theirs.sin_port;
	message.request.id.idiag_src[0] = ours.sin_addr.s_addr;
	message.request.id.idiag_dst[0] = theirs.sin_addr.s_addr;
	ASSERT_EQ(send(netlink, &message, sizeof(message), 0), sizeof(message));
	ASSERT(recv(netlink, &answer, sizeof(answer), 0) > 0);
	ASSERT_EQ(answer.header.nlmsg_type, NLMSG_ERROR);
	if (answer.error.error == -EOPNOTSUPP)
		test_skip("this kernel destroys no sockets");
	ASSERT_EQ(answer.error.error, 0);
	close(netlink);
}

struct seeker {
	int fd;
	pid_t id;
	ssize_t result;
	int error;
};

static void *seek_for_ever(void *arg)
{
	struct seeker *s = arg;
	uint8_t byte;

	__atomic_store_n(&s->id, gettid(), __ATOMIC_RELEASE);
	s->result = seek_recv(s->fd, &byte, 1, 0, 1000);
	s->error = errno;
	return NULL;
}

static pthread_t start_seeker(struct seeker *s)
{
	pthread_t thread;

	ASSERT_EQ(pthread_create(&thread, NULL, seek_for_ever, s), 0);
	while (!__atomic_load_n(&s->id, __ATOMIC_ACQUIRE))
		sched_yield();
	await_sleep(s->id);
	return thread;
}

/* A seeker sleeps, and there are holes. */
TEST(beside_destroy)
{
	for (int i = 0; i < 10; i++) {
		struct pair pair = pair_default();
		struct seeker seeker = { .fd = pair.rx };
		pthread_t thread;
		uint8_t buf[300];
		ssize_t n;

		send_stream(pair.tx, 0, 300);
		await_arrived(pair.rx, 300);
		ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100), 100);
		thread = start_seeker(&seeker);
		destroy(pair.rx);
		ASSERT_EQ(pthread_join(thread, NULL), 0);
		ASSERT_EQ(seeker.result, -1);
		ASSERT_EQ(seeker.error, ECONNABORTED);
		ASSERT(wait_for(pair.rx, POLLHUP, 5000));
		if (i & 1) {
			ASSERT_EQ(recv(pair.rx, buf, 300, 0), 200);
			ASSERT_STREAM(buf, 0, 100);
			ASSERT_STREAM(buf + 100, 200, 100);
			n = recv(pair.rx, buf, 300, 0);
			ASSERT(!n || (n < 0 && errno == ENOTCONN));
			ASSERT_EQ(rmem(pair.rx), 0);
		}
		pair_close(pair);
	}
}

struct ring {
	int fd;
	struct io_uring_params params;
	uint8_t *queues;
	struct io_uring_sqe *entries;
};

static void ring_open(struct ring *ring)
{
	*ring = (struct ring){};
	ring->fd = syscall(SYS_io_uring_setup, 8, &ring->params);
	if (ring->fd < 0)
		test_skip("no io_uring in this kernel: %m");
	ASSERT(ring->params.features & IORING_FEAT_SINGLE_MMAP);
	ring->queues = mmap(NULL, ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe) +
			    ring->params.sq_off.array + ring->params.sq_entries * sizeof(uint32_t),
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
	ASSERT(ring->queues != MAP_FAILED);
	ring->entries = mmap(NULL, ring->params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	ASSERT(ring->entries != MAP_FAILED);
}

static void ring_submit(struct ring *ring, struct io_uring_sqe entry)
{
	uint32_t *tail = (void *)(ring->queues + ring->params.sq_off.tail);
	uint32_t *array = (void *)(ring->queues + ring->params.sq_off.array);
	uint32_t slot = *tail & (ring->params.sq_entries - 1);

	ring->entries[slot] = entry;
	array[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	ASSERT_EQ(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0), 1);
}

static void ring_await(struct ring *ring, int *result, uint32_t *flags)
{
	uint32_t *head = (void *)(ring->queues + ring->params.cq_off.head);
	uint32_t *tail = (void *)(ring->queues + ring->params.cq_off.tail);
	const struct io_uring_cqe *done = (void *)(ring->queues + ring->params.cq_off.cqes);

	while (*head == __atomic_load_n(tail, __ATOMIC_ACQUIRE))
		ASSERT_EQ(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0), 0);
	done += *head & (ring->params.cq_entries - 1);
	*result = done->res;
	*flags = done->flags;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
}

/* Its receives skip holes, whether the bytes have arrived or not. */
TEST(beside_uring)
{
	struct pair pair = pair_default();
	struct ring ring;
	uint8_t buf[200], pool[4][100];
	struct io_uring_sqe receive = {
		.opcode = IORING_OP_RECV, .fd = pair.rx, .addr = (uintptr_t)buf, .len = sizeof(buf),
	};
	uint32_t flags;
	int result;

	ring_open(&ring);
	send_stream(pair.tx, 0, 300);
	await_arrived(pair.rx, 300);
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100), 100);
	ring_submit(&ring, receive);
	ring_await(&ring, &result, &flags);
	ASSERT_EQ(result, 200);
	ASSERT_STREAM(buf, 0, 100);
	ASSERT_STREAM(buf + 100, 200, 100);

	send_stream(pair.tx, 300, 100);
	await_arrived(pair.rx, 400);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, TCP_SEEK_POSITION, 350), 50);
	receive.len = 150;
	receive.msg_flags = MSG_WAITALL;
	ring_submit(&ring, receive);
	send_stream(pair.tx, 400, 100);
	ring_await(&ring, &result, &flags);
	ASSERT_EQ(result, 150);
	ASSERT_STREAM(buf, 300, 50);
	ASSERT_STREAM(buf + 50, 400, 100);

	/* One request for all bytes. */
	ring_submit(&ring, (struct io_uring_sqe){
		.opcode = IORING_OP_PROVIDE_BUFFERS, .fd = 4, .addr = (uintptr_t)pool,
		.len = sizeof(pool[0]), .buf_group = 7,
	});
	ring_await(&ring, &result, &flags);
	ASSERT(result >= 0);
	send_stream(pair.tx, 500, 100);
	await_arrived(pair.rx, 600);
	ASSERT_EQ(seek_recv(pair.rx, buf, 40, TCP_SEEK_POSITION, 520), 40);
	ring_submit(&ring, (struct io_uring_sqe){
		.opcode = IORING_OP_RECV, .fd = pair.rx, .ioprio = IORING_RECV_MULTISHOT,
		.flags = IOSQE_BUFFER_SELECT, .buf_group = 7,
	});
	ring_await(&ring, &result, &flags);
	ASSERT_EQ(result, 60);
	ASSERT(flags & IORING_CQE_F_MORE);
	ASSERT_STREAM(pool[flags >> IORING_CQE_BUFFER_SHIFT], 500, 20);
	ASSERT_STREAM(pool[flags >> IORING_CQE_BUFFER_SHIFT] + 20, 560, 40);
	send_stream(pair.tx, 600, 100);
	ring_await(&ring, &result, &flags);
	ASSERT_EQ(result, 100);
	ASSERT_STREAM(pool[flags >> IORING_CQE_BUFFER_SHIFT], 600, 100);
	shutdown(pair.tx, SHUT_WR);
	ring_await(&ring, &result, &flags);
	ASSERT_EQ(result, 0);
	ASSERT(!(flags & IORING_CQE_F_MORE));
	ASSERT_EQ(rmem(pair.rx), 0);
	close(ring.fd);
	pair_close(pair);
}

/* Bytes that came with the SYN are taken once the handshake is complete. */
TEST(beside_fast_open)
{
	struct peer peer;
	uint8_t buf[300];

	peer_open_fast(&peer, 300);
	ASSERT_ERRNO(attach(peer.socket), ENOTCONN);
	peer_send(&peer, 300, 0, PEER_ACK, 0);
	while (attach(peer.socket))
		ASSERT_EQ(errno, ENOTCONN);
	ASSERT_EQ(seek_recv(peer.socket, buf, 100, 0, 150), 100);
	ASSERT_STREAM(buf, 150, 100);
	peer_send(&peer, 300, 100, PEER_ACK, 0);
	ASSERT_EQ(seek_recv(peer.socket, buf, 20, 0, 340), 20);
	ASSERT_STREAM(buf, 340, 20);
	ASSERT_EQ(recv(peer.socket, buf, 280, MSG_WAITALL | MSG_PEEK), 280);
	ASSERT_EQ(recv(peer.socket, buf, 190, MSG_WAITALL), 190);
	ASSERT_STREAM(buf, 0, 150);
	ASSERT_STREAM(buf + 150, 250, 40);
	peer_close(&peer);
}

static int references(void)
{
	FILE *file = fopen("/sys/module/tcp_seek/refcnt", "r");
	int count;

	ASSERT(file);
	ASSERT_EQ(fscanf(file, "%d", &count), 1);
	fclose(file);
	return count;
}

static void set_loopback(short flags)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = flags };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	ASSERT_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

enum { ENDS = 5 };

/* The process leaves a socket with holes in a namespace of its own. */
static void leave_holes(int end)
{
	struct seeker seeker = {};
	struct pair pair;
	uint8_t buf[100];

	if (unshare(CLONE_NEWNET))
		test_skip("no network namespaces in this kernel: %m");
	set_loopback(IFF_UP);
	set_sysctl("net/ipv4/tcp_orphan_retries", "1");
	pair = pair_default();
	send_stream(pair.tx, 0, 300);
	await_arrived(pair.rx, 300);
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100), 100);
	switch (end) {
	case 0:
		close(pair.rx);
		break;
	case 1:
		close(pair.tx);
		ASSERT(wait_for(pair.rx, POLLRDHUP, 5000));
		break;
	case 2:
		/* An unanswered FIN keeps the socket for some time. */
		ASSERT_EQ(recv(pair.rx, NULL, 300, MSG_TRUNC), 200);
		set_loopback(0);
		close(pair.rx);
		break;
	case 3:
		seeker.fd = pair.rx;
		start_seeker(&seeker);
		raise(SIGKILL);
		break;
	}
}

TEST(beside_namespaces)
{
	int before = references();

	for (int i = 0; i < 4 * ENDS; i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			leave_holes(i % ENDS);
			_exit(0);
		}
		ASSERT_EQ(waitpid(child, &status, 0), child);
		if (WIFEXITED(status) && WEXITSTATUS(status))
			_exit(WEXITSTATUS(status));
	}
	for (int tries = 0; references() > before; tries++) {
		ASSERT(tries < 15000);
		usleep(1000);
	}
}
