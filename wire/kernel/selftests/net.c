// SPDX-License-Identifier: GPL-2.0-only
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <linux/sock_diag.h>
#include <time.h>

#include "net.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

int attach(int fd)
{
	return setsockopt(fd, SOL_TCP, TCP_ULP, "seek", sizeof("seek"));
}

struct pair pair_open(const struct pair_options *options)
{
	int family = options->family ? options->family : AF_INET;
	struct sockaddr_storage address = { .ss_family = family };
	struct pair pair;
	socklen_t size;
	int listener;

	if (family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)&address;

		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		size = sizeof(*in);
	} else {
		((struct sockaddr_in6 *)&address)->sin6_addr = in6addr_loopback;
		size = sizeof(struct sockaddr_in6);
	}
	listener = socket(family, SOCK_STREAM, 0);
	ASSERT(listener >= 0);
	/* The window scale is chosen when the connection is made. */
	if (options->rcvbuf)
		set_option(listener, SOL_SOCKET, SO_RCVBUF, options->rcvbuf);
	if (options->mss)
		set_option(listener, SOL_TCP, TCP_MAXSEG, options->mss);
	ASSERT_EQ(bind(listener, (void *)&address, size), 0);
	ASSERT_EQ(listen(listener, 1), 0);
	ASSERT_EQ(getsockname(listener, (void *)&address, &size), 0);

	pair.tx = socket(family, SOCK_STREAM, 0);
	ASSERT(pair.tx >= 0);
	ASSERT_EQ(connect(pair.tx, (void *)&address, size), 0);
	pair.rx = accept(listener, NULL, NULL);
	ASSERT(pair.rx >= 0);
	close(listener);
	set_option(pair.tx, SOL_TCP, TCP_NODELAY, 1);
	if (!options->plain)
		ASSERT_EQ(attach(pair.rx), 0);
	return pair;
}

struct pair pair_default(void)
{
	return pair_open(&(struct pair_options){ .family = AF_INET });
}

void pair_close(struct pair pair)
{
	close(pair.tx);
	close(pair.rx);
}

void send_all(int fd, const void *buf, size_t len)
{
	while (len) {
		ssize_t n = send(fd, buf, len, 0);

		ASSERT(n > 0);
		buf = (const char *)buf + n;
		len -= n;
	}
}

/* Differs between positions that are close together or a power of two apart. */
uint8_t stream_byte(uint64_t at)
{
	return (at * 0x9e3779b97f4a7c15ull) >> 56 ^ (at >> 13);
}

void send_stream(int fd, uint64_t at, size_t len)
{
	uint8_t buf[16384];

	while (len) {
		size_t n = len < sizeof(buf) ? len : sizeof(buf);

		for (size_t i = 0; i < n; i++)
			buf[i] = stream_byte(at + i);
		send_all(fd, buf, n);
		at += n;
		len -= n;
	}
}

void assert_stream(const uint8_t *buf, uint64_t at, size_t len,
		   const char *file, int line)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != stream_byte(at + i))
			test_fail(file, line,
				  "byte %zu of %zu at %llu is %#x, not %#x",
				  i, len, (unsigned long long)at, buf[i],
				  stream_byte(at + i));
}

ssize_t seek_recv_out(int fd, void *buf, size_t len, uint32_t flags,
		      uint64_t at, struct tcp_seek_recv *out)
{
	socklen_t size = sizeof(*out);

	*out = (struct tcp_seek_recv) {
		.version = TCP_SEEK_VERSION, .flags = flags, .at = at,
		.buf = (uintptr_t)buf, .len = len,
	};
	if (getsockopt(fd, SOL_TCP_SEEK, TCP_SEEK_RECV, out, &size))
		return -1;
	return out->received;
}

ssize_t seek_recv(int fd, void *buf, size_t len, uint32_t flags, uint64_t at)
{
	struct tcp_seek_recv out;

	return seek_recv_out(fd, buf, len, flags, at, &out);
}

struct tcp_seek_extent extent(int fd)
{
	struct tcp_seek_extent extent = { .version = TCP_SEEK_VERSION };
	socklen_t size = sizeof(extent);

	ASSERT_EQ(getsockopt(fd, SOL_TCP_SEEK, TCP_SEEK_EXTENT, &extent, &size),
		  0);
	return extent;
}

int unread(int fd)
{
	int n;

	ASSERT_EQ(ioctl(fd, FIONREAD, &n), 0);
	return n;
}

void await_arrived(int fd, uint64_t position)
{
	while (extent(fd).arrived < position)
		sched_yield();
}

uint32_t rmem(int fd)
{
	uint32_t info[SK_MEMINFO_VARS];
	socklen_t size = sizeof(info);

	ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size), 0);
	return info[SK_MEMINFO_RMEM_ALLOC];
}

struct tcp_mem get_tcp_mem(void)
{
	FILE *file = fopen("/proc/sys/net/ipv4/tcp_mem", "r");
	struct tcp_mem mem;

	ASSERT(file);
	ASSERT_EQ(fscanf(file, "%ld %ld %ld", &mem.limits[0], &mem.limits[1], &mem.limits[2]), 3);
	fclose(file);
	return mem;
}

void set_sysctl(const char *name, const char *value)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	file = fopen(path, "w");
	ASSERT(file);
	fputs(value, file);
	ASSERT_EQ(fclose(file), 0);
}

void set_tcp_mem(struct tcp_mem mem)
{
	char value[64];

	snprintf(value, sizeof(value), "%ld %ld %ld", mem.limits[0], mem.limits[1], mem.limits[2]);
	set_sysctl("net/ipv4/tcp_mem", value);
}

int get_option(int fd, int level, int name)
{
	int value;
	socklen_t size = sizeof(value);

	ASSERT_EQ(getsockopt(fd, level, name, &value, &size), 0);
	return value;
}

void set_option(int fd, int level, int name, int value)
{
	ASSERT_EQ(setsockopt(fd, level, name, &value, sizeof(value)), 0);
}

bool wait_for(int fd, short events, int timeout)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };

	return poll(&poll_fd, 1, timeout) == 1 && poll_fd.revents & events;
}

void set_timeout(int fd, int milliseconds)
{
	struct timeval limit = {
		.tv_sec = milliseconds / 1000,
		.tv_usec = milliseconds % 1000 * 1000,
	};

	ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)),
		  0);
}

void set_nonblocking(int fd)
{
	ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

void await_sleep(pid_t id)
{
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%d/stat", id);
	while (true) {
		FILE *file = fopen(path, "r");
		const char *state = NULL;

		if (!file)
			return;
		if (fgets(line, sizeof(line), file))
			state = strrchr(line, ')');
		fclose(file);
		if (state && state[2] == 'S')
			return;
		sched_yield();
	}
}
