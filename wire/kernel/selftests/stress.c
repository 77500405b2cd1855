// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random sequences compared with a model: one flag for each byte of the stream,
 * set when it was received. Every received byte is compared, and at the end
 * nothing is charged to the socket.
 */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>

#include "stress.h"

enum { STREAM = 400000, LARGEST = 30000 };

struct model {
	struct pair pair;
	uint64_t random;
	uint8_t *gone;
	uint64_t sent;
	uint64_t head;
	uint64_t steps;
	uint32_t largest;	/* write */
	uint32_t ahead;		/* bytes in flight */
};

static uint32_t roll(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 32) % below;
}

/* Mostly small, sometimes large. */
static uint32_t roll_size(struct model *m)
{
	switch (roll(&m->random, 8)) {
	case 0:
		return 1 + roll(&m->random, LARGEST);
	case 1:
	case 2:
	case 3:
		return 1 + roll(&m->random, 5000);
	default:
		return 1 + roll(&m->random, 100);
	}
}

static void move_head(struct model *m)
{
	while (m->head < m->sent && m->gone[m->head])
		m->head++;
}

static void step_send(struct model *m)
{
	uint8_t buf[LARGEST];
	uint32_t len = roll_size(m);
	ssize_t n;

	if (len > m->largest)
		len = m->largest;
	if (len > STREAM - m->sent)
		len = STREAM - m->sent;
	if (!len || m->sent - m->head > m->ahead)
		return;
	for (uint32_t i = 0; i < len; i++)
		buf[i] = stream_byte(m->sent + i);
	n = send(m->pair.tx, buf, len, MSG_DONTWAIT);
	if (n < 0)
		ASSERT_EQ(errno, EAGAIN);
	else
		m->sent += n;
}

static void step_seek(struct model *m)
{
	static uint8_t buf[LARGEST];
	uint64_t before = extent(m->pair.rx).arrived, after, end, hole;
	uint32_t offset = roll(&m->random, 4) ? roll_size(m) : 0;
	uint32_t len = roll_size(m), flags = TCP_SEEK_DONTWAIT;
	uint64_t start = m->head + offset;
	struct tcp_seek_recv out;
	struct iovec iov[2];
	ssize_t n;
	int error;

	if (!roll(&m->random, 4))
		flags |= TCP_SEEK_PEEK;
	if (roll(&m->random, 2))
		flags |= TCP_SEEK_PARTIAL;
	if (roll(&m->random, 2))
		flags |= TCP_SEEK_POSITION;
	memset(buf, 0, len);
	if (roll(&m->random, 8)) {
		n = seek_recv_out(m->pair.rx, buf, len, flags,
				  flags & TCP_SEEK_POSITION ? start : offset,
				  &out);
	} else {
		uint32_t first = roll(&m->random, len + 1);

		iov[0] = (struct iovec){ buf, first };
		iov[1] = (struct iovec){ buf + first, len - first };
		n = seek_recv_out(m->pair.rx, iov, 2, flags | TCP_SEEK_IOVEC,
				  flags & TCP_SEEK_POSITION ? start : offset,
				  &out);
	}
	error = errno;
	after = extent(m->pair.rx).arrived;

	end = start + len;
	for (hole = start; hole < end && hole < m->sent; hole++)
		if (m->gone[hole])
			break;
	if (hole < end && hole < m->sent) {
		if (hole == start || !(flags & TCP_SEEK_PARTIAL)) {
			if (n != -1 || error != ENXIO)
				FAIL("%zd, %s: [%llu, %llu) was taken at %llu",
				     n, strerror(error),
				     (unsigned long long)start,
				     (unsigned long long)end,
				     (unsigned long long)hole);
			return;
		}
		end = hole;
	}
	if (n < 0) {
		uint64_t needed = flags & TCP_SEEK_PARTIAL ? start + 1 : end;

		if (needed <= before || (error != EAGAIN && error != ENOBUFS))
			FAIL("[%llu, %llu): %s, but %llu had arrived",
			     (unsigned long long)start,
			     (unsigned long long)end, strerror(error),
			     (unsigned long long)before);
		return;
	}
	ASSERT_EQ(out.position, start);
	ASSERT(start + n <= after && start + n <= end);
	if (flags & TCP_SEEK_PARTIAL)
		ASSERT(start + n == end || start + n >= before);
	else
		ASSERT_EQ(n, len);
	ASSERT_STREAM(buf, start, n);
	if (flags & TCP_SEEK_PEEK)
		return;
	memset(m->gone + start, 1, n);
	move_head(m);
	ASSERT_EQ(out.head, m->head);
}

static void step_recv(struct model *m)
{
	static uint8_t buf[LARGEST];
	uint64_t before = extent(m->pair.rx).arrived, at = m->head;
	bool peek = !roll(&m->random, 3), trunc = !roll(&m->random, 6);
	uint32_t len = roll_size(m);
	ssize_t n;

	memset(buf, 0, len);
	n = recv(m->pair.rx, buf, len, MSG_DONTWAIT | (peek ? MSG_PEEK : 0) |
		 (trunc ? MSG_TRUNC : 0));
	if (n < 0)
		ASSERT_EQ(errno, EAGAIN);
	for (ssize_t i = 0; i < n; i++, at++) {
		while (m->gone[at])
			at++;
		if (!trunc)
			ASSERT_EQ(buf[i], stream_byte(at));
		if (!peek)
			m->gone[at] = 1;
	}
	/* All bytes that had arrived and fit. */
	if (n < (ssize_t)len)
		for (; at < before; at++)
			ASSERT(m->gone[at]);
	move_head(m);
}

static void check(struct model *m)
{
	struct tcp_seek_extent e = extent(m->pair.rx);
	uint64_t live = 0, contiguous = 0;
	uint32_t holes = 0;
	bool in_hole = true;

	ASSERT_EQ(e.head, m->head);
	for (uint64_t at = m->head; at < e.arrived; at++) {
		live += !m->gone[at];
		holes += m->gone[at] && !in_hole;
		if (m->gone[at] && !holes)
			FAIL("the head is in a hole");
		in_hole = m->gone[at];
		if (!holes)
			contiguous = at + 1;
	}
	ASSERT_EQ(e.holes, holes);
	if (live)
		ASSERT_EQ(e.contiguous, contiguous);
	ASSERT((uint64_t)unread(m->pair.rx) >= live);
}

static void finish(struct model *m)
{
	static uint8_t buf[LARGEST];

	shutdown(m->pair.tx, SHUT_WR);
	set_timeout(m->pair.rx, 10000);
	while (true) {
		ssize_t n = recv(m->pair.rx, buf, sizeof(buf), 0);

		ASSERT(n >= 0);
		if (!n)
			break;
		for (ssize_t i = 0; i < n; i++, m->head++) {
			while (m->gone[m->head])
				m->head++;
			ASSERT_EQ(buf[i], stream_byte(m->head));
			m->gone[m->head] = 1;
		}
	}
	move_head(m);
	ASSERT_EQ(m->head, m->sent);
	ASSERT_EQ(extent(m->pair.rx).head, m->sent);
	ASSERT_EQ(unread(m->pair.rx), 0);
	ASSERT_EQ(rmem(m->pair.rx), 0);
}

static uint64_t agree(const struct pair_options *options, uint32_t largest,
		      uint32_t ahead, uint64_t seed)
{
	struct model m = {
		.pair = pair_open(options), .random = seed * 2 + 1,
		.gone = calloc(STREAM + 1, 1), .largest = largest,
		.ahead = ahead,
	};

	printf("# rcvbuf %d, mss %d, writes to %u, %u ahead, seed %llu\n",
	       options->rcvbuf, options->mss, largest, ahead,
	       (unsigned long long)seed);
	while (m.sent < STREAM && m.steps < 6000) {
		switch (roll(&m.random, 20)) {
		case 0 ... 7:
			step_send(&m);
			break;
		case 8 ... 15:
			step_seek(&m);
			break;
		default:
			step_recv(&m);
		}
		if (!(m.steps++ % 16))
			check(&m);
	}
	finish(&m);
	pair_close(m.pair);
	free(m.gone);
	return m.steps;
}

TEST_SECONDS(stress_model, 60)
{
	static const int rcvbufs[] = { 0, 2304, 8192, 65536 };
	static const int sizes[][3] = {
		/* mss, write, ahead */
		{ 0, LARGEST, 100000 },
		{ 0, 100, 20000 },
		{ 100, 3000, 50000 },
		{ 1460, LARGEST, 60000 },
	};
	uint64_t steps = 0, seed = time(NULL);

	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < 4; j++) {
			struct pair_options options = {
				.rcvbuf = rcvbufs[i], .mss = sizes[j][0],
				.family = (i + j) % 3 ? AF_INET : AF_INET6,
			};

			steps += agree(&options, sizes[j][1], sizes[j][2],
				       seed++);
		}
	printf("# %llu operations\n", (unsigned long long)steps);
	ASSERT(steps > 16000);
}

/* Several threads take from one stream: each byte is received once. */
enum { SHARED = 2000000, SEEKERS = 3 };

static struct {
	struct pair pair;
	size_t total;
	uint8_t taken[SHARED];
	uint64_t plain_count[256];
	uint64_t plain;
	uint64_t by_seek;
	bool over;
} shared;

static void *shared_send(void *unused)
{
	uint64_t random = 7, at = 0;

	while (at < shared.total) {
		uint32_t n = 1 + roll(&random, 20000);

		if (n > shared.total - at)
			n = shared.total - at;
		send_stream(shared.pair.tx, at, n);
		at += n;
	}
	shutdown(shared.pair.tx, SHUT_WR);
	return NULL;
}

static void *shared_seek(void *number)
{
	uint64_t random = (uintptr_t)number + 12345;
	uint8_t buf[5000];
	struct tcp_seek_recv out;

	while (!__atomic_load_n(&shared.over, __ATOMIC_RELAXED)) {
		uint32_t flags = roll(&random, 2) ? TCP_SEEK_DONTWAIT : 0;
		uint64_t at = roll(&random, 30000);
		ssize_t n;

		if (roll(&random, 2)) {
			flags |= TCP_SEEK_POSITION;
			at += extent(shared.pair.rx).head;
		}
		if (roll(&random, 2))
			flags |= TCP_SEEK_PARTIAL;
		n = seek_recv_out(shared.pair.rx, buf, 1 + roll(&random, 4999),
				  flags, at, &out);
		if (n < 0) {
			ASSERT(errno == EAGAIN || errno == ENXIO ||
			       errno == ENOBUFS);
			continue;
		}
		ASSERT_STREAM(buf, out.position, n);
		for (ssize_t i = 0; i < n; i++)
			ASSERT_EQ(__atomic_exchange_n(&shared.taken[out.position + i],
						      1, __ATOMIC_RELAXED), 0);
		__atomic_fetch_add(&shared.by_seek, n, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *shared_recv(void *unused)
{
	uint8_t buf[3000];
	ssize_t n;

	while ((n = recv(shared.pair.rx, buf, sizeof(buf), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			shared.plain_count[buf[i]]++;
		shared.plain += n;
		/* Lets the others also get something. */
		usleep(200);
	}
	ASSERT_EQ(n, 0);
	__atomic_store_n(&shared.over, true, __ATOMIC_RELAXED);
	return NULL;
}

void stress_share(const struct pair_options *options, size_t total)
{
	pthread_t sender, reader, seekers[SEEKERS];
	uint64_t count[256] = {};

	memset(&shared, 0, sizeof(shared));
	shared.total = total;
	shared.pair = pair_open(options);
	pthread_create(&sender, NULL, shared_send, NULL);
	for (uintptr_t i = 0; i < SEEKERS; i++)
		pthread_create(&seekers[i], NULL, shared_seek, (void *)i);
	pthread_create(&reader, NULL, shared_recv, NULL);
	pthread_join(sender, NULL);
	pthread_join(reader, NULL);
	for (int i = 0; i < SEEKERS; i++)
		pthread_join(seekers[i], NULL);
	printf("# rcvbuf %d: %llu bytes by seeks, %llu received\n", options->rcvbuf,
	       (unsigned long long)shared.by_seek,
	       (unsigned long long)shared.plain);
	ASSERT_EQ(shared.by_seek + shared.plain, total);
	ASSERT(shared.by_seek);
	for (size_t i = 0; i < total; i++)
		if (!shared.taken[i])
			count[stream_byte(i)]++;
	ASSERT(!memcmp(count, shared.plain_count, sizeof(count)));
	ASSERT_EQ(rmem(shared.pair.rx), 0);
	pair_close(shared.pair);
}

TEST_SECONDS(stress_threads, 60)
{
	stress_share(&(struct pair_options){ .rcvbuf = 0 }, SHARED);
	stress_share(&(struct pair_options){ .rcvbuf = 16384 }, SHARED);
}
