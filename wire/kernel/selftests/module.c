// SPDX-License-Identifier: GPL-2.0-only
/* The module unloads cleanly, but not while a socket lives. */
#include <fcntl.h>
#include <sys/syscall.h>

#include "net.h"

static long unload(void)
{
	return syscall(SYS_delete_module, "tcp_seek", O_NONBLOCK);
}

static void load(void)
{
	int fd = open("/modules/tcp_seek.ko", O_RDONLY | O_CLOEXEC);

	ASSERT(fd >= 0);
	ASSERT_EQ(syscall(SYS_finit_module, fd, "", 0), 0);
	close(fd);
}

/* Retries until the last sockets that close() leaves behind are gone. */
static void unload_soon(void)
{
	for (int i = 0; i < 10000; i++) {
		if (!unload())
			return;
		ASSERT_EQ(errno, EAGAIN);
		usleep(1000);
	}
	FAIL("the module cannot be unloaded");
}

TEST(module_unload)
{
	struct pair pair, other;
	uint8_t buf[10];

	if (access("/modules/tcp_seek.ko", R_OK))
		test_skip("the module is not at hand");
	unload_soon();
	pair = pair_open(&(struct pair_options){ .plain = true });
	ASSERT_ERRNO(attach(pair.rx), ENOENT);
	load();
	ASSERT_EQ(attach(pair.rx), 0);
	other = pair_open(&(struct pair_options){ .family = AF_INET6 });
	ASSERT_ERRNO(unload(), EAGAIN);
	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 50), 10);
	ASSERT_ERRNO(unload(), EAGAIN);
	pair_close(other);
	close(pair.tx);
	ASSERT_ERRNO(unload(), EAGAIN);
	close(pair.rx);
	for (int i = 0; i < 5; i++) {
		unload_soon();
		load();
		pair = pair_default();
		send_stream(pair.tx, 0, 100);
		await_arrived(pair.rx, 100);
		ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 50), 10);
		pair_close(pair);
	}
}
