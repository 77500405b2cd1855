// SPDX-License-Identifier: GPL-2.0-only
/* FIN, RST, shutdown() and close() in every order. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/wait.h>

#include "net.h"

static void reset(int fd)
{
	struct linger now = { .l_onoff = 1 };

	ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
}

TEST(order_fin)
{
	struct pair pair = pair_default();
	uint8_t buf[200];

	send_stream(pair.tx, 0, 100);
	shutdown(pair.tx, SHUT_WR);
	/* A range that the end of the stream cuts short. */
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, TCP_SEEK_PEEK, 50), 50);
	ASSERT_STREAM(buf, 50, 50);
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100), 0);
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100000), 0);
	ASSERT_EQ(seek_recv(pair.rx, buf, 20, 0, 40), 20);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 200, 0, 0), ENXIO);
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 60), 40);
	ASSERT_STREAM(buf, 60, 40);
	ASSERT(wait_for(pair.rx, POLLRDHUP, 0));
	ASSERT_EQ(unread(pair.rx), 40);
	ASSERT_EQ(recv(pair.rx, buf, 200, 0), 40);
	ASSERT_STREAM(buf, 0, 40);
	ASSERT_EQ(recv(pair.rx, buf, 200, 0), 0);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 0), 0);
	ASSERT_EQ(extent(pair.rx).arrived, 100);
	ASSERT_EQ(extent(pair.rx).head, 100);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

static void *seek_100(void *arg)
{
	uint8_t buf[100];
	ssize_t n = seek_recv((int)(intptr_t)arg, buf, 100, 0, 50);

	if (n > 0)
		ASSERT_STREAM(buf, 50, n);
	return (void *)(n < 0 ? -(ssize_t)errno : n);
}

/* A sleeping seeker learns about the end. */
static ssize_t ends_while_asleep(void (*end)(struct pair), int after)
{
	struct pair pair = pair_default();
	pthread_t thread;
	void *result;

	send_stream(pair.tx, 0, after);
	await_arrived(pair.rx, after);
	pthread_create(&thread, NULL, seek_100, (void *)(intptr_t)pair.rx);
	usleep(20000);
	end(pair);
	pthread_join(thread, &result);
	close(pair.rx);
	return (ssize_t)result;
}

static void by_fin(struct pair pair)
{
	close(pair.tx);
}

static void by_reset(struct pair pair)
{
	reset(pair.tx);
}

static void by_shutdown(struct pair pair)
{
	shutdown(pair.rx, SHUT_RD);
	close(pair.tx);
}

TEST(order_end_wakes_seeker)
{
	ASSERT_EQ(ends_while_asleep(by_fin, 10), 0);
	ASSERT_EQ(ends_while_asleep(by_fin, 80), 30);
	ASSERT_EQ(ends_while_asleep(by_reset, 10), -ECONNRESET);
	ASSERT_EQ(ends_while_asleep(by_reset, 80), -ECONNRESET);
	ASSERT_EQ(ends_while_asleep(by_shutdown, 10), 0);
	ASSERT_EQ(ends_while_asleep(by_shutdown, 80), 30);
}

/* Bytes that arrived before a reset can still be taken, as with plain TCP. */
TEST(order_reset)
{
	struct pair pair = pair_default();
	uint8_t buf[200];

	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 50), 10);
	reset(pair.tx);
	ASSERT(wait_for(pair.rx, POLLHUP, 5000));
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 20), 10);
	ASSERT_STREAM(buf, 20, 10);
	ASSERT_EQ(recv(pair.rx, buf, 20, 0), 20);
	ASSERT_EQ(recv(pair.rx, buf, 200, 0), 60);
	ASSERT_STREAM(buf, 30, 20);
	ASSERT_STREAM(buf + 20, 60, 40);
	ASSERT_ERRNO(recv(pair.rx, buf, 1, 0), ECONNRESET);
	ASSERT_EQ(recv(pair.rx, buf, 1, 0), 0);
	ASSERT_EQ(rmem(pair.rx), 0);
	close(pair.rx);
}

/* Discarding data resets the connection, wherever the data was. */
TEST(order_close_unread)
{
	struct pair pair = pair_default();
	uint8_t buf[100];

	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 50), 50);
	close(pair.rx);
	ASSERT(wait_for(pair.tx, POLLERR, 5000));
	ASSERT_ERRNO(recv(pair.tx, buf, 1, 0), ECONNRESET);
	close(pair.tx);

	pair = pair_default();
	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	close(pair.rx);
	ASSERT_ERRNO(recv(pair.tx, buf, 1, 0), ECONNRESET);
	close(pair.tx);

	/* Half-closed by the peer. */
	pair = pair_default();
	send_stream(pair.tx, 0, 100);
	shutdown(pair.tx, SHUT_WR);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 50), 50);
	close(pair.rx);
	ASSERT_ERRNO(recv(pair.tx, buf, 1, 0), ECONNRESET);
	close(pair.tx);

	/* Half-closed by us. */
	pair = pair_default();
	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	shutdown(pair.rx, SHUT_WR);
	ASSERT_EQ(recv(pair.tx, buf, 1, 0), 0);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 50), 50);
	close(pair.rx);
	ASSERT(wait_for(pair.tx, POLLHUP | POLLERR, 5000));
	close(pair.tx);
}

/* Nothing was discarded: an orderly end. */
TEST(order_close_read)
{
	struct pair pair = pair_default();
	uint8_t buf[100];

	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 50), 50);
	ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 0), 50);
	close(pair.rx);
	ASSERT_EQ(recv(pair.tx, buf, 1, 0), 0);
	close(pair.tx);
}

/* The process ends without calling close(). */
TEST(order_exit)
{
	for (int i = 0; i < 3; i++) {
		struct pair pair = pair_default();
		uint8_t buf[100];
		pid_t pid;

		send_stream(pair.tx, 0, 100);
		await_arrived(pair.rx, 100);
		pid = fork();
		if (!pid) {
			close(pair.tx);
			ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 40), 50);
			if (i == 1)
				abort();
			if (i == 2)
				seek_recv(pair.rx, buf, 50, 0, 200);
			_exit(0);
		}
		close(pair.rx);
		if (i == 2) {
			usleep(10000);
			kill(pid, SIGKILL);
		}
		ASSERT_EQ(waitpid(pid, NULL, 0), pid);
		ASSERT_ERRNO(recv(pair.tx, buf, 1, 0), ECONNRESET);
		close(pair.tx);
	}
}

/* Attached when both directions are closed and the data has arrived. */
TEST(order_attach_late)
{
	struct pair pair = pair_open(&(struct pair_options){ .plain = true });
	uint8_t buf[100];

	send_stream(pair.tx, 0, 100);
	ASSERT_EQ(recv(pair.rx, buf, 10, MSG_WAITALL), 10);
	shutdown(pair.rx, SHUT_WR);
	shutdown(pair.tx, SHUT_WR);
	ASSERT(wait_for(pair.rx, POLLHUP, 5000));
	ASSERT_EQ(attach(pair.rx), 0);
	ASSERT_EQ(extent(pair.rx).arrived, 90);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 40), 10);
	ASSERT_STREAM(buf, 50, 10);
	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 80);
	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 0);
	pair_close(pair);
}

TEST(order_disconnect)
{
	struct pair pair = pair_default();
	struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
	uint8_t buf[100];

	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 50), 10);
	ASSERT_ERRNO(connect(pair.rx, &nowhere, sizeof(nowhere)), EOPNOTSUPP);
	ASSERT_ERRNO(listen(pair.rx, 1), EINVAL);
	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 90);
	pair_close(pair);
}
