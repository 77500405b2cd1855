// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory runs out at each place that allocates some, one after the other (the
 * kernel's fail-nth): the call reports it or does without, and nothing is lost.
 */
#include <fcntl.h>
#include <sys/mount.h>

#include "net.h"

static int fail_nth = -1;

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	ASSERT(fd >= 0);
	ASSERT(write(fd, text, strlen(text)) > 0);
	close(fd);
}

static void prepare(void)
{
	fail_nth = open("/proc/self/fail-nth", O_RDWR);
	if (fail_nth < 0)
		test_skip("this kernel injects no faults");
	mount("debug", "/sys/kernel/debug", "debugfs", 0, NULL);
	/* Also for allocations that could wait; and without messages. */
	write_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	write_file("/sys/kernel/debug/failslab/verbose", "0");
}

static void fail_at(int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", n);
	ASSERT(pwrite(fail_nth, text, strlen(text), 0) > 0);
}

/* Returns whether the call allocated memory that often. */
static bool has_failed(void)
{
	char text[16] = {};

	ASSERT(pread(fail_nth, text, sizeof(text) - 1, 0) > 0);
	fail_at(0);
	return !atoi(text);
}

/* Some small buffers, some large; the middle is taken. */
static bool seek_without(int n)
{
	struct pair pair = pair_default();
	static uint8_t buf[60000];
	uint8_t gone[60000] = {};
	struct { uint64_t at; size_t len; } ranges[] = {
		{ 10, 5 }, { 3, 2 }, { 100, 15000 }, { 30000, 29000 },
		{ 25000, 2000 }, { 59500, 10 },
	};
	bool failed;
	ssize_t got;

	for (int i = 0; i < 20; i++)
		send_stream(pair.tx, i, 1);
	send_stream(pair.tx, 20, 20000 - 20);
	await_arrived(pair.rx, 20000);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 19), 1);
	gone[19] = 1;
	send_stream(pair.tx, 20000, 40000);
	await_arrived(pair.rx, 60000);

	fail_at(n);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		got = seek_recv(pair.rx, buf, ranges[i].len, TCP_SEEK_POSITION, ranges[i].at);
		if (got < 0) {
			ASSERT(errno == ENOMEM || errno == ENOBUFS);
			continue;
		}
		ASSERT_EQ(got, ranges[i].len);
		ASSERT_STREAM(buf, ranges[i].at, got);
		memset(gone + ranges[i].at, 1, got);
	}
	/* A call that has to wait makes room by all means. */
	got = seek_recv(pair.rx, buf, 1, TCP_SEEK_DONTWAIT, 90000);
	ASSERT(got == -1);
	failed = has_failed();

	for (size_t at = 0; at < 60000; ) {
		ssize_t len;

		if (gone[at]) {
			at++;
			continue;
		}
		len = recv(pair.rx, buf, 777, MSG_DONTWAIT);
		ASSERT(len > 0);
		for (ssize_t i = 0; i < len; i++) {
			while (gone[at])
				at++;
			ASSERT_EQ(buf[i], stream_byte(at));
			at++;
		}
	}
	ASSERT_EQ(unread(pair.rx), 0);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
	return failed;
}

TEST_SECONDS(fault_seek, 60)
{
	int n = 1;

	prepare();
	while (seek_without(n))
		n++;
	printf("# %d allocations failed\n", n - 1);
	ASSERT(n > 5);
}

TEST(fault_attach)
{
	int n = 1;

	prepare();
	for (bool failed = true; failed; n++) {
		struct pair pair = pair_open(&(struct pair_options){ .plain = true });
		int result;

		fail_at(n);
		result = attach(pair.rx);
		failed = has_failed();
		if (result)
			ASSERT(errno == ENOMEM && failed);
		pair_close(pair);
	}
	ASSERT(n > 1);
}
