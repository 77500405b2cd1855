// SPDX-License-Identifier: GPL-2.0-only
/* What the papers promise: of messages A, B, C, B is received first. */
#include <netinet/tcp.h>

#include "net.h"

TEST(basic_attach)
{
	struct pair pair = pair_open(&(struct pair_options){ .plain = true });
	struct tcp_seek_recv out;
	char name[16], buf[4];
	socklen_t size = sizeof(name);

	ASSERT_ERRNO(seek_recv_out(pair.rx, buf, 1, 0, 0, &out), EOPNOTSUPP);
	ASSERT_EQ(attach(pair.rx), 0);
	ASSERT_ERRNO(attach(pair.rx), EEXIST);
	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP, TCP_ULP, name, &size), 0);
	ASSERT(!strcmp(name, "seek"));
	pair_close(pair);
}

TEST(basic_not_connected)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ASSERT_ERRNO(attach(fd), ENOTCONN);
	ASSERT_EQ(listen(fd, 1), 0);
	ASSERT_ERRNO(attach(fd), ENOTCONN);
	close(fd);
}

static void scenario(int family, size_t a, size_t b, size_t c)
{
	struct pair pair = pair_open(&(struct pair_options){ .family = family });
	uint8_t *buf = malloc(a + b + c);
	struct tcp_seek_recv out;

	send_stream(pair.tx, 0, a + b + c);
	ASSERT_EQ(seek_recv_out(pair.rx, buf, b, 0, a, &out), b);
	ASSERT_STREAM(buf, a, b);
	ASSERT_EQ(out.position, a);
	ASSERT_EQ(out.head, 0);
	await_arrived(pair.rx, a + b + c);
	ASSERT_EQ(unread(pair.rx), a + c);
	ASSERT_EQ(extent(pair.rx).holes, 1);
	ASSERT_EQ(extent(pair.rx).contiguous, a);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, 0, a), ENXIO);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, 0, a + b - 1), ENXIO);

	ASSERT_EQ(recv(pair.rx, buf, a, MSG_WAITALL), a);
	ASSERT_STREAM(buf, 0, a);
	ASSERT_EQ(extent(pair.rx).head, a + b);
	ASSERT_EQ(extent(pair.rx).holes, 0);
	ASSERT_EQ(recv(pair.rx, buf, c, MSG_WAITALL), c);
	ASSERT_STREAM(buf, a + b, c);
	ASSERT_EQ(unread(pair.rx), 0);
	ASSERT_EQ(rmem(pair.rx), 0);
	free(buf);
	pair_close(pair);
}

TEST(basic_scenario)
{
	static const size_t sizes[] = { 1, 10, 100, 1000, 1448, 5000, 20000 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (size_t j = 0; j < sizeof(sizes) / sizeof(*sizes); j++)
			scenario(AF_INET, sizes[i], sizes[j], sizes[i]);
}

TEST(basic_scenario_ipv6)
{
	scenario(AF_INET6, 1000, 1000, 1000);
	scenario(AF_INET6, 1, 1, 1);
}

/* recv() gets A and C with one call: the hole between them is skipped. */
TEST(basic_recv_across_holes)
{
	struct pair pair = pair_default();
	uint8_t buf[300];

	send_stream(pair.tx, 0, 300);
	await_arrived(pair.rx, 300);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 50), 50);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 150), 50);
	ASSERT_EQ(extent(pair.rx).holes, 2);
	memset(buf, 0, sizeof(buf));
	ASSERT_EQ(recv(pair.rx, buf, 300, MSG_PEEK), 200);
	ASSERT_STREAM(buf, 0, 50);
	ASSERT_STREAM(buf + 50, 100, 50);
	ASSERT_STREAM(buf + 100, 200, 100);
	memset(buf, 0, sizeof(buf));
	ASSERT_EQ(recv(pair.rx, buf, 300, 0), 200);
	ASSERT_STREAM(buf, 0, 50);
	ASSERT_STREAM(buf + 50, 100, 50);
	ASSERT_STREAM(buf + 100, 200, 100);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

/* Holes grow, merge and vanish. */
TEST(basic_holes)
{
	struct pair pair = pair_default();
	struct tcp_seek_span spans[4];
	struct tcp_seek_extent e = {
		.version = TCP_SEEK_VERSION, .capacity = 4,
		.spans = (uintptr_t)spans,
	};
	socklen_t size = sizeof(e);
	uint8_t buf[100];

	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 20), 10);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 40), 10);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 90), 10);
	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_EXTENT, &e, &size), 0);
	ASSERT_EQ(e.holes, 3);
	ASSERT(spans[0].start == 20 && spans[0].end == 30);
	ASSERT(spans[1].start == 40 && spans[1].end == 50);
	ASSERT(spans[2].start == 90 && spans[2].end == 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 30), 10);
	ASSERT_STREAM(buf, 30, 10);
	ASSERT_EQ(extent(pair.rx).holes, 2);
	ASSERT_EQ(seek_recv(pair.rx, buf, 20, 0, 0), 20);
	ASSERT_EQ(extent(pair.rx).head, 50);
	ASSERT_EQ(extent(pair.rx).holes, 1);
	/* The last bytes are gone; the next ones are not. */
	send_stream(pair.tx, 100, 10);
	await_arrived(pair.rx, 110);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 50), 10);
	ASSERT_STREAM(buf, 100, 10);
	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 40);
	ASSERT_STREAM(buf, 50, 40);
	ASSERT_EQ(extent(pair.rx).head, 110);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

TEST(basic_flags)
{
	struct pair pair = pair_default();
	struct tcp_seek_recv call = { .version = TCP_SEEK_VERSION };
	struct { struct tcp_seek_recv recv; uint64_t more; } large = {};
	static struct { struct tcp_seek_recv recv; uint8_t more[65536]; } long_call;
	socklen_t size = sizeof(call);
	struct iovec iov[2];
	uint8_t buf[100], other[100];
	static uint8_t low[100];

	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);

	/* Peek, and without storing. */
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, TCP_SEEK_PEEK, 30), 10);
	ASSERT_STREAM(buf, 30, 10);
	ASSERT_EQ(extent(pair.rx).holes, 0);
	ASSERT_EQ(seek_recv(pair.rx, NULL, 10, TCP_SEEK_TRUNC, 30), 10);
	ASSERT_EQ(extent(pair.rx).holes, 1);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 10, TCP_SEEK_PEEK, 30), ENXIO);

	/* Parts: up to a hole, up to the last byte, not into a hole. */
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 40, TCP_SEEK_PEEK, 20), ENXIO);
	ASSERT_EQ(seek_recv(pair.rx, buf, 40, TCP_SEEK_PEEK | TCP_SEEK_PARTIAL, 20), 10);
	ASSERT_STREAM(buf, 20, 10);
	ASSERT_EQ(seek_recv(pair.rx, buf, 40, TCP_SEEK_PARTIAL, 90), 10);
	ASSERT_STREAM(buf, 90, 10);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 40, TCP_SEEK_PARTIAL, 35), ENXIO);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 40, TCP_SEEK_PARTIAL | TCP_SEEK_DONTWAIT, 100), EAGAIN);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 40, TCP_SEEK_DONTWAIT, 95), ENXIO);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, TCP_SEEK_DONTWAIT, 100), EAGAIN);

	/* Positions do not move with the head. */
	ASSERT_EQ(recv(pair.rx, buf, 10, 0), 10);
	ASSERT_EQ(seek_recv(pair.rx, buf, 5, TCP_SEEK_POSITION | TCP_SEEK_WAITALL, 20), 5);
	ASSERT_STREAM(buf, 20, 5);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 5, TCP_SEEK_POSITION, 5), ENXIO);

	iov[0] = (struct iovec){ buf, 3 };
	iov[1] = (struct iovec){ other, 7 };
	ASSERT_EQ(seek_recv(pair.rx, iov, 2, TCP_SEEK_IOVEC | TCP_SEEK_POSITION, 50), 10);
	ASSERT_STREAM(buf, 50, 3);
	ASSERT_STREAM(other, 53, 7);
	ASSERT_ERRNO(seek_recv(pair.rx, iov, 1025, TCP_SEEK_IOVEC, 0), EMSGSIZE);

	ASSERT_EQ(seek_recv(pair.rx, buf, 0, 0, 1000), 0);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, 0x200, 0), EINVAL);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, 0, UINT64_MAX), EINVAL);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 2, TCP_SEEK_POSITION, UINT64_MAX - 1), EINVAL);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, SIZE_MAX, 0, 0), EINVAL);
	ASSERT_ERRNO(seek_recv(pair.rx, NULL, SIZE_MAX, TCP_SEEK_TRUNC, 0), EINVAL);
	/* More than one call can move: the part that exists, or never. */
	ASSERT_EQ(seek_recv(pair.rx, low, 3ull << 30, TCP_SEEK_PARTIAL | TCP_SEEK_PEEK, 0), 10);
	ASSERT_ERRNO(seek_recv(pair.rx, low, 3ull << 30, TCP_SEEK_DONTWAIT | TCP_SEEK_POSITION, 100), ENOBUFS);
	ASSERT_ERRNO(seek_recv(pair.rx, (void *)8, 5, TCP_SEEK_POSITION, 60), EFAULT);
	ASSERT_EQ(extent(pair.rx).head, 10);

	call.version = 2;
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), EPROTONOSUPPORT);
	call.version = TCP_SEEK_VERSION;
	call.reserved = 1;
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), EINVAL);
	call.reserved = 0;
	size--;
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), EINVAL);
	size = -1;
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), EINVAL);
	large.recv.version = TCP_SEEK_VERSION;
	size = sizeof(large);
	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &large, &size), 0);
	large.more = 1;
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &large, &size), E2BIG);
	long_call.recv.version = TCP_SEEK_VERSION;
	size = sizeof(long_call);
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &long_call, &size), E2BIG);
	size = sizeof(call);
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, 77, &call, &size), ENOPROTOOPT);
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, (void *)8, &size), EFAULT);
	ASSERT_ERRNO(setsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, size), ENOPROTOOPT);

	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 55);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}
