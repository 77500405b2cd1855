// SPDX-License-Identifier: GPL-2.0-only
/* Memory: bytes taken out of the middle make room for the sender. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <linux/sockios.h>

#include "net.h"

/* Writes until there is no room; returns the total number of bytes. */
static uint64_t fill(struct pair pair, size_t piece)
{
	uint8_t buf[65536];
	uint64_t sent = 0, before = 0;

	set_nonblocking(pair.tx);
	while (true) {
		ssize_t n;

		for (size_t i = 0; i < piece; i++)
			buf[i] = stream_byte(sent + i);
		n = send(pair.tx, buf, piece, 0);
		if (n > 0) {
			sent += n;
			continue;
		}
		ASSERT_EQ(errno, EAGAIN);
		/* Full, and the receiver makes no progress. */
		if (!wait_for(pair.tx, POLLOUT, 300) &&
		    extent(pair.rx).arrived == before)
			return sent;
		before = extent(pair.rx).arrived;
	}
}

static void await_more(struct pair pair, uint64_t than)
{
	for (int i = 0; i < 10000; i++) {
		if (extent(pair.rx).arrived > than)
			return;
		usleep(1000);
	}
	FAIL("the sender is stuck at %llu", (unsigned long long)than);
}

static void drink(struct pair pair, uint64_t sent)
{
	static uint8_t buf[65536];

	set_timeout(pair.rx, 10000);
	while (extent(pair.rx).head < sent)
		ASSERT(recv(pair.rx, buf, sizeof(buf), 0) > 0);
	ASSERT_EQ(rmem(pair.rx), 0);
}

/* The middle of a full buffer is taken, and the blocked sender goes on. */
static void reopens(int rcvbuf, size_t piece)
{
	struct pair pair = pair_open(&(struct pair_options){ .rcvbuf = rcvbuf });
	uint64_t sent = fill(pair, piece), arrived = extent(pair.rx).arrived;
	size_t len = arrived * 9 / 10;
	uint32_t before = rmem(pair.rx);
	uint8_t *buf = malloc(len);

	ASSERT(arrived > 1000);
	ASSERT_EQ(seek_recv(pair.rx, buf, len, 0, arrived / 20), len);
	ASSERT_STREAM(buf, arrived / 20, len);
	printf("# rcvbuf %d, writes of %zu: %llu arrived; memory %u, then %u\n",
	       rcvbuf, piece, (unsigned long long)arrived, before,
	       rmem(pair.rx));
	await_more(pair, arrived);
	drink(pair, sent);
	free(buf);
	pair_close(pair);
}

TEST(window_reopens)
{
	reopens(65536, 65536);
	reopens(65536, 1000);
	reopens(16384, 100);
	reopens(200000, 30000);
}

/* One buffer of 64 KiB, of which little is left: its memory is freed. */
TEST(window_pinned_memory)
{
	struct pair pair = pair_default();
	static uint8_t buf[65000];
	uint32_t before;

	send_stream(pair.tx, 0, 16000);
	await_arrived(pair.rx, 16000);
	before = rmem(pair.rx);
	ASSERT_EQ(seek_recv(pair.rx, buf, 15800, 0, 100), 15800);
	ASSERT_STREAM(buf, 100, 15800);
	ASSERT(rmem(pair.rx) < before / 4);
	ASSERT_EQ(recv(pair.rx, buf, 1000, 0), 200);
	ASSERT_STREAM(buf, 0, 100);
	ASSERT_STREAM(buf + 100, 15900, 100);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

/* Bytes left here and there do not keep much more than themselves. */
TEST(window_scattered)
{
	struct pair pair = pair_open(&(struct pair_options){ .rcvbuf = 400000 });
	static uint8_t buf[1000];
	uint32_t all;

	send_stream(pair.tx, 0, 100000);
	await_arrived(pair.rx, 100000);
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(seek_recv(pair.rx, buf, 990, TCP_SEEK_POSITION, i * 1000 + 5), 990);
		ASSERT_STREAM(buf, i * 1000 + 5, 990);
	}
	all = rmem(pair.rx);
	printf("# 1000 of 100000 bytes left in 101 pieces: memory %u\n", all);
	ASSERT(all < 101 * 1500);
	ASSERT_EQ(extent(pair.rx).holes, 100);
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(recv(pair.rx, buf, i ? 10 : 5, 0), i ? 10 : 5);
		ASSERT_STREAM(buf + (i ? 5 : 0), i * 1000, 5);
	}
	ASSERT_EQ(recv(pair.rx, buf, 10, 0), 5);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

static void *flood(void *fd)
{
	static const uint8_t zeros[4096];

	while (send((int)(intptr_t)fd, zeros, sizeof(zeros), 0) > 0)
		;
	return NULL;
}

/* A range that cannot arrive gives an error at once, not a hang. */
TEST(window_enobufs)
{
	static const int rcvbufs[] = { 2304, 8192, 65536 };

	for (int i = 0; i < 3; i++) {
		struct pair pair = pair_open(&(struct pair_options){ .rcvbuf = rcvbufs[i] });
		static uint8_t buf[200000];
		pthread_t sender;

		pthread_create(&sender, NULL, flood, (void *)(intptr_t)pair.tx);
		ASSERT_ERRNO(seek_recv(pair.rx, buf, 10, 0, 1000000), ENOBUFS);
		ASSERT_ERRNO(seek_recv(pair.rx, buf, 10, 0, 150000), ENOBUFS);
		ASSERT_ERRNO(seek_recv(pair.rx, buf, 150000, 0, 0), ENOBUFS);
		ASSERT_ERRNO(seek_recv(pair.rx, buf, 10, TCP_SEEK_PARTIAL, 150000), ENOBUFS);
		ASSERT_ERRNO(seek_recv(pair.rx, buf, 10, TCP_SEEK_DONTWAIT, 150000), ENOBUFS);
		/* After some bytes were taken out, more come. */
		for (int j = 0; j < 200000; ) {
			ssize_t n = recv(pair.rx, buf, 5000, 0);

			ASSERT(n > 0);
			j += n;
		}
		pair_close(pair);
		pthread_join(sender, NULL);
	}
}

/* Without a limit of the program's own, a range far ahead makes the buffer grow. */
TEST(window_grows)
{
	struct pair pair = pair_default();
	pthread_t sender;
	uint8_t byte;

	pthread_create(&sender, NULL, flood, (void *)(intptr_t)pair.tx);
	ASSERT_EQ(seek_recv(pair.rx, &byte, 1, 0, 1500000), 1);
	ASSERT_EQ(extent(pair.rx).holes, 1);
	ASSERT_ERRNO(seek_recv(pair.rx, &byte, 1, 0, 100000000), ENOBUFS);
	pair_close(pair);
	pthread_join(sender, NULL);
}

static void *drip(void *arg)
{
	struct pair *pair = arg;

	for (uint64_t at = 0; at < 5000; at++) {
		uint8_t byte = stream_byte(at);

		if (send(pair->tx, &byte, 1, 0) != 1)
			break;
	}
	shutdown(pair->tx, SHUT_WR);
	return NULL;
}

/* Segments of one byte cost much more memory than they carry. */
TEST(window_tiny_segments)
{
	static const int rcvbufs[] = { 2304, 20000, 0 };

	for (int i = 0; i < 3; i++) {
		struct pair pair = pair_open(&(struct pair_options){ .rcvbuf = rcvbufs[i] });
		uint64_t taken = 0, refused = 0;
		uint32_t most = 0;
		uint8_t buf[100];
		pthread_t sender;

		pthread_create(&sender, NULL, drip, &pair);
		for (int n = 0; n < 10000; n++) {
			struct tcp_seek_extent e = extent(pair.rx);
			uint64_t at = e.arrived + 20;
			ssize_t got = seek_recv(pair.rx, buf, 10, TCP_SEEK_POSITION, at);

			if (got < 0) {
				ASSERT(errno == ENOBUFS);
				refused++;
				got = recv(pair.rx, buf, 100, MSG_DONTWAIT);
				ASSERT(got > 0 || errno == EAGAIN);
				continue;
			}
			if (got < 10)
				break;
			ASSERT_STREAM(buf, at, 10);
			taken++;
			if (rmem(pair.rx) > most)
				most = rmem(pair.rx);
		}
		printf("# rcvbuf %d: %llu taken, %llu refused, memory up to %u\n",
		       rcvbufs[i], (unsigned long long)taken,
		       (unsigned long long)refused, most);
		set_timeout(pair.rx, 10000);
		while (recv(pair.rx, buf, sizeof(buf), 0) > 0)
			;
		pthread_join(sender, NULL);
		ASSERT_EQ(rmem(pair.rx), 0);
		pair_close(pair);
	}
}

/* The number of holes has a limit; seeks that make no new one still work. */
TEST(window_too_many_holes)
{
	struct pair pair = pair_default();
	uint8_t buf[4096];

	send_stream(pair.tx, 0, 4096);
	await_arrived(pair.rx, 4096);
	for (int i = 0; i < 1024; i++)
		ASSERT_EQ(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION, 2 * i + 1), 1);
	ASSERT_EQ(extent(pair.rx).holes, 1024);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION, 3000), ENOBUFS);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION | TCP_SEEK_PEEK, 3000), 1);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION, 2048), 1);
	ASSERT_EQ(extent(pair.rx).holes, 1024);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION, 4), 1);
	ASSERT_EQ(extent(pair.rx).holes, 1023);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION, 3000), 1);
	ASSERT_EQ(recv(pair.rx, buf, sizeof(buf), 0), 4096 - 1024 - 3);
	ASSERT_EQ(extent(pair.rx).holes, 0);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

static long pages(void)
{
	FILE *file = fopen("/proc/net/sockstat", "r");
	char line[256];
	long n = -1;

	ASSERT(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "TCP: inuse %*d orphan %*d tw %*d alloc %*d mem %ld", &n);
	fclose(file);
	ASSERT(n >= 0);
	return n;
}

enum { CROWD = 200, LIMIT = 1024 };

/* Sends as much as possible to many sockets; returns the peak memory of TCP. */
static long crowd(bool seeking)
{
	struct pair pairs[CROWD];
	static uint8_t buf[3000];
	long most = 0;

	for (int i = 0; i < CROWD; i++) {
		pairs[i] = pair_default();
		set_nonblocking(pairs[i].tx);
	}
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < CROWD; i++) {
			struct tcp_seek_extent e;

			send(pairs[i].tx, buf, sizeof(buf), 0);
			e = extent(pairs[i].rx);
			if (seeking && e.arrived > e.head + 1)
				seek_recv(pairs[i].rx, buf, 1, TCP_SEEK_DONTWAIT | TCP_SEEK_POSITION, e.arrived - 1);
		}
		if (pages() > most)
			most = pages();
	}
	for (int i = 0; i < CROWD; i++)
		pair_close(pairs[i]);
	return most;
}

/*
 * TCP accepts segments for an empty queue whatever its memory; ours is not
 * empty. Without a limit all sent bytes would be here, 8000 pages. Each
 * processor counts up to 256 pages separately, so equal amounts can look
 * different.
 */
TEST_SECONDS(window_memory_of_all, 60)
{
	struct tcp_mem before = get_tcp_mem();
	long plain, seeking;

	set_tcp_mem((struct tcp_mem){ { LIMIT / 2, LIMIT / 4 * 3, LIMIT } });
	plain = crowd(false);
	seeking = crowd(true);
	set_tcp_mem(before);
	printf("# limit %d pages; without seeking %ld, with %ld\n", LIMIT, plain, seeking);
	ASSERT(seeking < plain + 2 * LIMIT);
}
