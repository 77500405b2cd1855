// SPDX-License-Identifier: GPL-2.0-only
/*
 * A peer that breaks every rule: tiny segments, any order, overlaps, repeats,
 * urgent pointers, flags, beyond the window. Whatever it does, the program gets
 * the right bytes, and memory stays bounded.
 */
#include <netinet/tcp.h>
#include <pthread.h>

#include "peer.h"

static uint32_t roll(uint64_t *state, uint32_t below)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (*state >> 33) % below;
}

/* Limit for the memory with this rcvbuf: twice as much as TCP itself allows. */
static uint32_t bound(int fd)
{
	return 2 * get_option(fd, SOL_SOCKET, SO_RCVBUF) + 1100 * 1024;
}

/*
 * In-place seeking would panic here: the queue has a gap, segments of one byte
 * drive the memory over the limit, and tcp_collapse() walks over the gap.
 */
static void tiny(int rcvbuf, uint32_t count)
{
	struct peer peer;
	uint64_t random = rcvbuf + 1, at = 0;
	uint32_t most = 0, seeks = 0;
	uint8_t buf[64];

	peer_open(&peer, rcvbuf);
	for (uint32_t i = 0; i < count; i++) {
		/* It ignores the window. */
		peer_send(&peer, at++, 1, PEER_ACK | PEER_PSH, 0);
		if (!(i % 64)) {
			peer_hear(&peer);
			at = peer.acked;
		}
		if (!(i % 16)) {
			struct tcp_seek_extent e = extent(peer.socket);
			uint64_t behind = e.arrived - e.head;
			uint64_t to = e.head + (behind ? roll(&random, behind) : 0);
			ssize_t n = seek_recv(peer.socket, buf, 1 + roll(&random, 8), TCP_SEEK_POSITION | TCP_SEEK_DONTWAIT | TCP_SEEK_PARTIAL, to);

			if (n > 0)
				ASSERT_STREAM(buf, to, n);
			seeks += n > 0;
		}
		if (rmem(peer.socket) > most)
			most = rmem(peer.socket);
		ASSERT(most < bound(peer.socket));
	}
	printf("# rcvbuf %d: %llu bytes in segments of one, %u seeks, memory up to %u\n",
	       rcvbuf, (unsigned long long)extent(peer.socket).arrived, seeks,
	       most);
	ASSERT(seeks);
	while (recv(peer.socket, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	ASSERT_EQ(rmem(peer.socket), 0);
	peer_close(&peer);
}

TEST_SECONDS(hostile_tiny_segments, 300)
{
	tiny(2304, 5000);
	tiny(16384, 10000);
	tiny(0, 20000);
}

enum { STREAM = 300000 };

/* Takes something; every byte is compared. */
static void take(struct peer *peer, uint64_t *random, uint8_t *gone)
{
	struct tcp_seek_extent e = extent(peer->socket);
	uint8_t buf[3000];
	uint32_t len = 1 + roll(random, roll(random, 4) ? 50 : sizeof(buf));
	struct tcp_seek_recv out;
	ssize_t n;

	if (roll(random, 3)) {
		uint64_t at = e.head + roll(random, e.arrived - e.head + 50);
		uint32_t flags = TCP_SEEK_POSITION | TCP_SEEK_DONTWAIT;

		if (roll(random, 2))
			flags |= TCP_SEEK_PARTIAL;
		n = seek_recv_out(peer->socket, buf, len, flags, at, &out);
		if (n < 0)
			ASSERT(errno == EAGAIN || errno == ENXIO || errno == ENOBUFS);
		else
			ASSERT_STREAM(buf, at, n);
		for (ssize_t i = 0; i < n; i++, at++) {
			ASSERT(!gone[at]);
			gone[at] = 1;
		}
		return;
	}
	n = recv(peer->socket, buf, len, MSG_DONTWAIT);
	if (n < 0)
		ASSERT_EQ(errno, EAGAIN);
	for (ssize_t i = 0, at = e.head; i < n; i++, at++) {
		while (gone[at])
			at++;
		ASSERT_EQ(buf[i], stream_byte(at));
		gone[at] = 1;
	}
}

static void disorder(int rcvbuf, uint64_t seed)
{
	struct peer peer;
	uint64_t random = seed, steps = 0;
	uint8_t *gone = calloc(STREAM + 1, 1), buf[3000];

	peer_open(&peer, rcvbuf);
	while (peer.acked < STREAM && steps++ < 40000) {
		uint64_t from = peer.acked, at, len;
		uint8_t flags = PEER_ACK;

		/* Old, next, ahead, beyond the window. */
		switch (roll(&random, 6)) {
		case 0:
			from -= from < 3000 ? from : roll(&random, 3000);
			break;
		case 1:
			from += roll(&random, 200000);
			break;
		case 2:
		case 3:
			from += roll(&random, 3000);
			break;
		}
		at = from;
		len = 1 + roll(&random, roll(&random, 2) ? 1460 : 20);
		if (at >= STREAM)
			continue;
		if (len > STREAM - at)
			len = STREAM - at;
		if (roll(&random, 2))
			flags |= PEER_PSH;
		if (!roll(&random, 20))
			flags |= PEER_URG;
		if (!roll(&random, 200))
			flags |= PEER_SYN;
		if (!roll(&random, 200))
			flags &= ~PEER_ACK;
		peer_send(&peer, at, len, flags, roll(&random, 2000));
		if (!roll(&random, 4))
			take(&peer, &random, gone);
		if (!roll(&random, 8))
			peer_hear(&peer);
		ASSERT(rmem(peer.socket) < bound(peer.socket));
	}
	printf("# rcvbuf %d: %llu bytes after %llu segments\n", rcvbuf,
	       (unsigned long long)peer.acked, (unsigned long long)steps);
	ASSERT(peer.acked > 2000);

	/* A FIN, first too early and then in time; the rest in order. */
	peer_send(&peer, STREAM, 0, PEER_FIN | PEER_ACK, 0);
	for (steps = 0; extent(peer.socket).arrived < STREAM; steps++) {
		uint64_t at = extent(peer.socket).arrived;
		size_t len = STREAM - at < 1000 ? STREAM - at : 1000;

		ASSERT(steps < 1000000);
		peer_send(&peer, at, len, PEER_ACK, 0);
		take(&peer, &random, gone);
		peer_hear(&peer);
	}
	while (!wait_for(peer.socket, POLLRDHUP, 1)) {
		peer_send(&peer, STREAM, 0, PEER_FIN | PEER_ACK, 0);
		take(&peer, &random, gone);
		peer_hear(&peer);
	}
	for (uint64_t at = extent(peer.socket).head;;) {
		ssize_t n = recv(peer.socket, buf, sizeof(buf), 0);

		ASSERT(n >= 0);
		if (!n)
			break;
		for (ssize_t i = 0; i < n; i++, at++) {
			while (gone[at])
				at++;
			ASSERT_EQ(buf[i], stream_byte(at));
			gone[at] = 1;
		}
	}
	for (uint64_t at = 0; at < STREAM; at++)
		ASSERT(gone[at]);
	ASSERT_EQ(rmem(peer.socket), 0);
	peer_close(&peer);
	free(gone);
}

TEST_SECONDS(hostile_disorder, 300)
{
	uint64_t seed = time(NULL);

	printf("# seed %llu\n", (unsigned long long)seed);
	disorder(0, seed);
	disorder(2304, seed + 1);
	disorder(20000, seed + 2);
}

/* Sends as much as the window allows; returns the total number of bytes. */
static uint64_t fill(struct peer *peer)
{
	uint64_t at = 100;

	peer_send(peer, 0, at, PEER_ACK, 0);
	while (true) {
		while (at + 1000 <= peer->allowed) {
			peer_send(peer, at, 1000, PEER_ACK | PEER_PSH, 0);
			at += 1000;
			peer_hear(peer);
		}
		while (peer->acked < at) {
			ASSERT(wait_for(peer->tun, POLLIN, 10000));
			peer_hear(peer);
		}
		if (at + 1000 > peer->allowed)
			return at;
	}
}

/*
 * Not hostile at all: the peer has filled the window and waits. When bytes are
 * taken out of the middle, the peer must get a window update, whether they were
 * in TCP's queue or had left it before.
 */
TEST(hostile_window_update)
{
	static const int rcvbufs[] = { 8192, 30000, 100000 };

	for (int i = 0; i < 6; i++) {
		static uint8_t buf[200000];
		struct peer peer;
		uint64_t full, before;

		peer_open(&peer, rcvbufs[i / 2]);
		full = fill(&peer);
		ASSERT(full < sizeof(buf));
		if (i & 1)
			ASSERT_EQ(seek_recv(peer.socket, buf, 1, 0, full - 1), 1);
		peer_hear(&peer);
		before = peer.allowed;
		ASSERT_EQ(seek_recv(peer.socket, buf, full / 2, 0, full / 4), full / 2);
		ASSERT_STREAM(buf, full / 4, full / 2);
		for (int tries = 0; peer.allowed < before + 1000; tries++) {
			ASSERT(tries < 10);
			wait_for(peer.tun, POLLIN, 1000);
			peer_hear(&peer);
		}
		printf("# rcvbuf %d: full at %llu, window to %llu, then to %llu\n",
		       rcvbufs[i / 2], (unsigned long long)full,
		       (unsigned long long)before,
		       (unsigned long long)peer.allowed);
		peer_close(&peer);
	}
}

struct waiter {
	int fd;
	uint64_t at;
	size_t len;
	ssize_t result;
	int error;
	bool done;
	uint8_t buf[40000];
};

static void *wait_for_range(void *arg)
{
	struct waiter *w = arg;

	w->result = seek_recv(w->fd, w->buf, w->len, 0, w->at);
	w->error = errno;
	__atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * A peer that obeys the window, and a seeker: the bytes come, or they cannot
 * and the call reports that. A window of some bytes that TCP does not open
 * further must not make both wait for each other.
 */
static bool arrives(int rcvbuf, uint32_t segment, uint64_t at, size_t len)
{
	static struct waiter w;
	struct peer peer;
	pthread_t thread;
	uint64_t sent = 0;

	peer_open(&peer, rcvbuf);
	set_timeout(peer.socket, 120000);
	w = (struct waiter){ .fd = peer.socket, .at = at, .len = len };
	peer_send(&peer, 0, 1, PEER_ACK, 0);
	sent = 1;
	pthread_create(&thread, NULL, wait_for_range, &w);
	while (!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE)) {
		peer_hear(&peer);
		if (sent < peer.allowed) {
			size_t n = peer.allowed - sent;

			n = n < segment ? n : segment;
			peer_send(&peer, sent, n, PEER_ACK, 0);
			sent += n;
		} else if (!wait_for(peer.tun, POLLIN, 5)) {
			/* Lost for lack of memory. */
			peer_hear(&peer);
			sent = peer.acked;
		}
	}
	pthread_join(thread, NULL);
	if (w.result < 0) {
		errno = w.error;
		ASSERT_EQ(w.error, ENOBUFS);
	} else {
		ASSERT_EQ(w.result, len);
		ASSERT_STREAM(w.buf, at, len);
	}
	peer_close(&peer);
	return w.result >= 0;
}

TEST_SECONDS(hostile_no_deadlock, 300)
{
	static const int rcvbufs[] = { 2304, 8192, 40000 };
	static const uint32_t segments[] = { 1, 40, 536, 1460 };
	uint64_t random = 99;
	int came = 0, refused = 0;

	for (int i = 0; i < 48; i++) {
		int rcvbuf = rcvbufs[i % 3];
		uint64_t at = roll(&random, 2 * rcvbuf);
		size_t len = 1 + roll(&random, i & 16 ? 100 : rcvbuf);

		if (arrives(rcvbuf, segments[i / 3 % 4], at, len))
			came++;
		else
			refused++;
	}
	printf("# %d arrived, %d refused\n", came, refused);
	ASSERT(came && refused);
}

/* The connection is torn down with segments in every place. */
TEST(hostile_reset_anywhere)
{
	uint64_t random = 42;
	uint8_t buf[2000];

	for (int i = 0; i < 40; i++) {
		struct peer peer;
		uint64_t at = 0;

		peer_open(&peer, i & 1 ? 4096 : 0);
		for (int j = roll(&random, 20); j >= 0; j--) {
			uint32_t len = 1 + roll(&random, 500);

			peer_send(&peer, at + (roll(&random, 4) ? 0 : 700), len, PEER_ACK, 0);
			peer_hear(&peer);
			at = peer.acked;
			if (at > 10)
				seek_recv(peer.socket, buf, 1 + roll(&random, 100), TCP_SEEK_DONTWAIT, roll(&random, at));
		}
		switch (i % 4) {
		case 0:
			peer_send(&peer, at, 0, PEER_RST, 0);
			break;
		case 1:
			peer_send(&peer, at, 0, PEER_FIN | PEER_ACK, 0);
			break;
		case 2:
			shutdown(peer.socket, SHUT_RDWR);
			peer_send(&peer, at, 10, PEER_ACK, 0);
			break;
		}
		if (i % 3)
			seek_recv(peer.socket, buf, 10, TCP_SEEK_DONTWAIT, roll(&random, 50));
		if (i % 5 == 0)
			while (recv(peer.socket, buf, sizeof(buf), MSG_DONTWAIT) > 0)
				;
		peer_close(&peer);
	}
}

/* Bytes after a FIN are not part of the stream, even with another FIN. */
TEST(hostile_behind_fin)
{
	for (int i = 0; i < 4; i++) {
		struct peer peer;
		uint8_t buf[200];
		ssize_t n;

		peer_open(&peer, 0);
		peer_send(&peer, 0, 100, PEER_FIN | PEER_ACK, 0);
		/* One octet more each: the one where the last FIN was. */
		for (int j = 0; j < 3; j++)
			peer_send(&peer, 100 + j, 1, PEER_FIN | PEER_ACK, 0);
		while (peer.acked < 104) {
			ASSERT(wait_for(peer.tun, POLLIN, 10000));
			peer_hear(&peer);
		}
		ASSERT_EQ(extent(peer.socket).arrived, 100);
		ASSERT_EQ(unread(peer.socket), 100);
		if (i == 1)
			ASSERT_EQ(seek_recv(peer.socket, buf, 200, 0, 90), 10);
		if (i == 2)
			ASSERT_EQ(seek_recv(peer.socket, buf, 10, 0, 20), 10);
		if (i == 3)
			ASSERT_EQ(seek_recv(peer.socket, buf, 10, 0, 100), 0);
		n = recv(peer.socket, buf, sizeof(buf), MSG_WAITALL);
		ASSERT_EQ(n, i == 1 || i == 2 ? 90 : 100);
		ASSERT_EQ(recv(peer.socket, buf, sizeof(buf), 0), 0);
		ASSERT_EQ(seek_recv(peer.socket, buf, 10, 0, 0), 0);
		ASSERT_EQ(extent(peer.socket).head, 100);
		ASSERT_EQ(rmem(peer.socket), 0);
		peer_close(&peer);
	}
}

/*
 * Other sockets have used up the memory of TCP, so that it drops segments for a
 * queue that is not empty: a seeker must not wait for them.
 */
TEST(hostile_memory_of_others)
{
	static uint8_t zeros[60000];
	static struct waiter w;
	struct pair others[30];
	struct tcp_mem before = get_tcp_mem();
	struct peer peer;
	pthread_t thread;

	peer_open(&peer, 0);
	for (int i = 0; i < 30; i++) {
		others[i] = pair_default();
		send_all(others[i].tx, zeros, sizeof(zeros));
		await_arrived(others[i].rx, sizeof(zeros));
	}
	set_tcp_mem((struct tcp_mem){ { 10, 20, 30 } });
	set_timeout(peer.socket, 10000);
	w = (struct waiter){ .fd = peer.socket, .at = 5000, .len = 10 };
	pthread_create(&thread, NULL, wait_for_range, &w);
	while (!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE)) {
		peer_send(&peer, peer.acked, 1000, PEER_ACK, 0);
		wait_for(peer.tun, POLLIN, 5);
		peer_hear(&peer);
	}
	pthread_join(thread, NULL);
	set_tcp_mem(before);
	ASSERT_EQ(w.result, -1);
	ASSERT_EQ(w.error, ENOBUFS);
	for (int i = 0; i < 30; i++)
		pair_close(others[i]);
	peer_close(&peer);
}
