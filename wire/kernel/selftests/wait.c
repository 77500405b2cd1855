// SPDX-License-Identifier: GPL-2.0-only
/* Sleeping and waking: readers, seekers, poll, signals, time limits. */
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "net.h"

struct sleeper {
	pthread_t thread;
	int fd;
	size_t len;
	uint64_t at;
	uint32_t flags;
	bool plain;		/* recv() instead of a seek */
	int recv_flags;
	pid_t id;
	ssize_t result;
	int error;
	struct tcp_seek_recv out;
	uint8_t buf[20000];
};

static void *sleep_in_call(void *arg)
{
	struct sleeper *s = arg;

	__atomic_store_n(&s->id, gettid(), __ATOMIC_RELEASE);
	if (s->plain)
		s->result = recv(s->fd, s->buf, s->len, s->recv_flags);
	else
		s->result = seek_recv_out(s->fd, s->buf, s->len, s->flags,
					  s->at, &s->out);
	s->error = errno;
	return NULL;
}

static void start(struct sleeper *s)
{
	ASSERT_EQ(pthread_create(&s->thread, NULL, sleep_in_call, s), 0);
	while (!__atomic_load_n(&s->id, __ATOMIC_ACQUIRE))
		sched_yield();
	await_sleep(s->id);
}

static void join(struct sleeper *s)
{
	ASSERT_EQ(pthread_join(s->thread, NULL), 0);
}

TEST(wait_seeker)
{
	struct pair pair = pair_default();
	static struct sleeper s = { .len = 50, .at = 100 };

	s.fd = pair.rx;
	start(&s);
	send_stream(pair.tx, 0, 120);
	await_arrived(pair.rx, 120);
	ASSERT_EQ(unread(pair.rx), 120);
	send_stream(pair.tx, 120, 80);
	join(&s);
	ASSERT_EQ(s.result, 50);
	ASSERT_STREAM(s.buf, 100, 50);
	pair_close(pair);
}

/* A reader and a seeker of the same socket sleep; each gets its own. */
TEST(wait_reader_and_seeker)
{
	for (int i = 0; i < 100; i++) {
		struct pair pair = pair_default();
		static struct sleeper reader, seeker;

		reader = (struct sleeper){ .fd = pair.rx, .plain = true, .len = 100, .recv_flags = MSG_WAITALL };
		seeker = (struct sleeper){ .fd = pair.rx, .len = 50, .at = 200, .flags = TCP_SEEK_POSITION };
		start(&reader);
		start(&seeker);
		if (i & 1) {
			send_stream(pair.tx, 0, 300);
		} else {
			for (int at = 0; at < 300; at += 30)
				send_stream(pair.tx, at, 30);
		}
		join(&reader);
		join(&seeker);
		ASSERT_EQ(reader.result, 100);
		ASSERT_STREAM(reader.buf, 0, 100);
		ASSERT_EQ(seeker.result, 50);
		ASSERT_STREAM(seeker.buf, 200, 50);
		ASSERT_EQ(recv(pair.rx, reader.buf, 300, 0), 150);
		ASSERT_EQ(rmem(pair.rx), 0);
		pair_close(pair);
	}
}

/* The bytes that a seeker waits for are received by another thread. */
TEST(wait_range_taken)
{
	struct pair pair = pair_default();
	static struct sleeper s = { .len = 100, .at = 50 };
	uint8_t buf[100];

	s.fd = pair.rx;
	start(&s);
	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(recv(pair.rx, buf, 70, 0), 70);
	join(&s);
	ASSERT_EQ(s.result, -1);
	ASSERT_EQ(s.error, ENXIO);
	pair_close(pair);

	/* By another seek. */
	pair = pair_default();
	s = (struct sleeper){ .fd = pair.rx, .len = 100, .at = 50 };
	start(&s);
	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 99), 1);
	join(&s);
	ASSERT_EQ(s.error, ENXIO);
	pair_close(pair);
}

/* A reader that slept still sees bytes that a seeker has moved. */
TEST(wait_peek_and_trunc)
{
	struct pair pair = pair_default();
	static struct sleeper s = { .plain = true, .len = 100, .recv_flags = MSG_PEEK | MSG_WAITALL };
	uint8_t buf[100];

	s.fd = pair.rx;
	start(&s);
	send_stream(pair.tx, 0, 60);
	await_arrived(pair.rx, 60);
	ASSERT_EQ(seek_recv(pair.rx, buf, 10, 0, 40), 10);
	send_stream(pair.tx, 60, 40);
	await_arrived(pair.rx, 100);
	ASSERT_EQ(recv(pair.rx, NULL, 5, MSG_TRUNC), 5);
	send_stream(pair.tx, 100, 50);
	join(&s);
	ASSERT_EQ(s.result, 100);
	ASSERT_STREAM(s.buf, 5, 35);
	ASSERT_STREAM(s.buf + 35, 50, 65);
	ASSERT_EQ(recv(pair.rx, buf, 100, MSG_PEEK), 100);
	pair_close(pair);
}

/*
 * A reader that slept when the socket was attached is inside TCP. Whatever it
 * gets, nothing is lost and nothing comes twice.
 */
TEST(wait_reader_from_before)
{
	for (int i = 0; i < 100; i++) {
		struct pair pair = pair_open(&(struct pair_options){ .plain = true });
		static struct sleeper s;
		uint8_t buf[100];
		ssize_t n;

		s = (struct sleeper){ .fd = pair.rx, .plain = true, .len = 10,
				      .recv_flags = i & 1 ? MSG_PEEK : 0 };
		start(&s);
		ASSERT_EQ(attach(pair.rx), 0);
		send_stream(pair.tx, 0, 50);
		n = seek_recv(pair.rx, buf, 10, 0, 30);
		if (n < 0)
			ASSERT_EQ(errno, ENXIO);
		send_stream(pair.tx, 50, 50);
		join(&s);
		ASSERT_EQ(s.result, 10);
		await_arrived(pair.rx, 100);
		ASSERT_EQ(unread(pair.rx), 100 - (i & 1 ? 0 : 10) - (n > 0 ? n : 0));
		while (unread(pair.rx))
			ASSERT(recv(pair.rx, buf, 7, 0) > 0);
		ASSERT_EQ(extent(pair.rx).head, 100);
		ASSERT_EQ(rmem(pair.rx), 0);
		pair_close(pair);
	}
}

TEST(wait_time_limits)
{
	struct pair pair = pair_default();
	struct tcp_seek_recv call = {
		.version = TCP_SEEK_VERSION, .len = 1,
		.flags = TCP_SEEK_TRUNC | TCP_SEEK_TIMEOUT, .timeout = 30000000,
	};
	socklen_t size = sizeof(call);
	uint8_t buf[10];

	set_timeout(pair.rx, 30);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, 0, 0), EAGAIN);
	ASSERT_ERRNO(recv(pair.rx, buf, 1, 0), EAGAIN);
	set_timeout(pair.rx, 100000);
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), EAGAIN);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, TCP_SEEK_DONTWAIT, 0), EAGAIN);
	set_nonblocking(pair.rx);
	ASSERT_ERRNO(seek_recv(pair.rx, buf, 1, 0, 0), EAGAIN);
	ASSERT_ERRNO(recv(pair.rx, buf, 1, 0), EAGAIN);
	pair_close(pair);
}

static void nothing(int signal)
{
}

TEST(wait_signals)
{
	struct pair pair = pair_default();
	static struct sleeper s;
	struct sigaction action = { .sa_handler = nothing };

	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &action, NULL);

	s = (struct sleeper){ .fd = pair.rx, .len = 10, .at = 10 };
	start(&s);
	pthread_kill(s.thread, SIGUSR1);
	join(&s);
	ASSERT_EQ(s.result, -1);
	ASSERT_EQ(s.error, EINTR);

	/* Restarted, and the offset is as the program passed it. */
	s = (struct sleeper){ .fd = pair.rx, .len = 10, .at = 10 };
	start(&s);
	for (int i = 0; i < 10; i++) {
		pthread_kill(s.thread, SIGUSR2);
		usleep(2000);
	}
	send_stream(pair.tx, 0, 20);
	join(&s);
	ASSERT_EQ(s.result, 10);
	ASSERT_STREAM(s.buf, 10, 10);

	/* With a time limit it is not. */
	set_timeout(pair.rx, 20000);
	s = (struct sleeper){ .fd = pair.rx, .plain = true, .len = 100, .recv_flags = MSG_WAITALL };
	start(&s);
	pthread_kill(s.thread, SIGUSR1);
	join(&s);
	ASSERT_EQ(s.result, 10);
	s = (struct sleeper){ .fd = pair.rx, .plain = true, .len = 100 };
	start(&s);
	pthread_kill(s.thread, SIGUSR1);
	join(&s);
	ASSERT_EQ(s.result, -1);
	ASSERT_EQ(s.error, EINTR);
	pair_close(pair);
}

static struct {
	int fd;
	ssize_t result;
	uint8_t buf[20];
} taker;

static void take_head(int signal)
{
	taker.result = recv(taker.fd, taker.buf, sizeof(taker.buf), 0);
}

/*
 * The head moves on between a signal and the restart of the interrupted call:
 * the offset counts from the head as it was at the call.
 */
TEST(wait_restart_behind_moved_head)
{
	struct sigaction action = { .sa_handler = take_head, .sa_flags = SA_RESTART };
	struct pair pair = pair_default();
	static struct sleeper s;

	sigaction(SIGUSR2, &action, NULL);
	taker.fd = pair.rx;
	send_stream(pair.tx, 0, 50);
	await_arrived(pair.rx, 50);
	s = (struct sleeper){ .fd = pair.rx, .len = 10, .at = 60 };
	start(&s);
	for (uint64_t head = 20; head <= 40; head += 20) {
		pthread_kill(s.thread, SIGUSR2);
		while (extent(pair.rx).head < head)
			sched_yield();
		await_sleep(s.id);
	}
	send_stream(pair.tx, 50, 100);
	join(&s);
	ASSERT_EQ(s.result, 10);
	ASSERT_EQ(s.out.position, 60);
	ASSERT_STREAM(s.buf, 60, 10);
	/* As the program filled it in. */
	ASSERT_EQ(s.out.at, 60);
	ASSERT_EQ(s.out.flags, 0);

	/* Bytes that another thread has taken in the meantime are gone. */
	ASSERT_EQ(recv(pair.rx, s.buf, 20, 0), 20);
	s = (struct sleeper){ .fd = pair.rx, .len = 100 };
	start(&s);
	pthread_kill(s.thread, SIGUSR2);
	join(&s);
	ASSERT_EQ(s.result, -1);
	ASSERT_EQ(s.error, ENXIO);
	pair_close(pair);
}

/* A program that repeats the call continues it; a different call is new. */
TEST(wait_call_again)
{
	struct sigaction action = { .sa_handler = take_head };
	struct pair pair = pair_default(), other = pair_default();
	static struct sleeper s;
	struct tcp_seek_recv call;
	socklen_t size = sizeof(call);

	sigaction(SIGUSR1, &action, NULL);
	taker.fd = pair.rx;
	send_stream(pair.tx, 0, 50);
	send_stream(other.tx, 0, 200);
	await_arrived(pair.rx, 50);
	await_arrived(other.rx, 200);
	ASSERT_EQ(recv(other.rx, s.buf, 5, 0), 5);
	s = (struct sleeper){ .fd = pair.rx, .len = 10, .at = 60 };
	start(&s);
	pthread_kill(s.thread, SIGUSR1);
	join(&s);
	ASSERT_EQ(s.result, -1);
	ASSERT_EQ(s.error, EINTR);
	ASSERT_EQ(s.out.at, 60);
	ASSERT(s.out.flags & TCP_SEEK_RESUME);
	ASSERT_EQ(extent(pair.rx).head, 20);
	send_stream(pair.tx, 50, 150);
	await_arrived(pair.rx, 200);

	call = s.out;
	ASSERT_EQ(getsockopt(other.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), 0);
	ASSERT_EQ(call.position, 65);
	call = s.out;
	call.at = 61;
	call.flags |= TCP_SEEK_PEEK;
	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), 0);
	ASSERT_EQ(call.position, 81);
	call = s.out;
	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), 0);
	ASSERT_EQ(call.position, 60);
	ASSERT_STREAM(s.buf, 60, 10);
	ASSERT_EQ(call.flags, 0);
	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, &call, &size), 0);
	ASSERT_EQ(call.position, 80);
	pair_close(pair);
	pair_close(other);
}

TEST(wait_poll)
{
	struct pair pair = pair_default();
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(0);
	uint8_t buf[100];

	ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pair.rx, &event), 0);
	ASSERT(!wait_for(pair.rx, POLLIN, 0));
	send_stream(pair.tx, 0, 100);
	await_arrived(pair.rx, 100);
	ASSERT(wait_for(pair.rx, POLLIN, 0));

	/* All of it in segments: still readable. */
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 99), 1);
	ASSERT(wait_for(pair.rx, POLLIN, 0));
	ASSERT_EQ(epoll_wait(set, &event, 1, 0), 1);
	ASSERT_EQ(unread(pair.rx), 99);
	/* Nothing but holes: not readable. */
	ASSERT_EQ(seek_recv(pair.rx, buf, 49, 0, 50), 49);
	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 50);
	ASSERT(!wait_for(pair.rx, POLLIN, 0));
	ASSERT_EQ(epoll_wait(set, &event, 1, 0), 0);
	ASSERT_EQ(unread(pair.rx), 0);
	send_stream(pair.tx, 100, 1);
	ASSERT_EQ(epoll_wait(set, &event, 1, 5000), 1);
	ASSERT_EQ(recv(pair.rx, buf, 100, 0), 1);
	shutdown(pair.tx, SHUT_WR);
	ASSERT_EQ(epoll_wait(set, &event, 1, 5000), 1);
	ASSERT(wait_for(pair.rx, POLLOUT, 0));
	close(set);
	pair_close(pair);
}

static void *poll_in(void *fd)
{
	return (void *)(intptr_t)wait_for((int)(intptr_t)fd, POLLIN, 20000);
}

/* While bytes move from TCP's queue to segments, poll() still sees them. */
TEST(wait_poll_during_seek)
{
	struct pair pair = pair_default();
	uint8_t buf[2];

	for (int i = 0; i < 1000; i++) {
		pthread_t poller;
		void *woken;

		pthread_create(&poller, NULL, poll_in, (void *)(intptr_t)pair.rx);
		send_stream(pair.tx, 2 * i, 2);
		ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 1), 1);
		pthread_join(poller, &woken);
		ASSERT(woken);
		ASSERT_EQ(recv(pair.rx, buf, 2, 0), 1);
		ASSERT_STREAM(buf, 2 * i, 1);
	}
	pair_close(pair);
}

TEST(wait_low_water)
{
	struct pair pair = pair_default();
	static struct sleeper s;
	uint8_t buf[1000];

	set_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT, 100);
	ASSERT_EQ(get_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT), 100);
	send_stream(pair.tx, 0, 80);
	await_arrived(pair.rx, 80);
	ASSERT(!wait_for(pair.rx, POLLIN, 0));
	/* 79 bytes in segments and 21 in TCP's queue are 100. */
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 79), 1);
	ASSERT(!wait_for(pair.rx, POLLIN, 0));
	s = (struct sleeper){ .fd = pair.rx, .plain = true, .len = 1000 };
	start(&s);
	send_stream(pair.tx, 80, 20);
	await_arrived(pair.rx, 100);
	ASSERT(!wait_for(pair.rx, POLLIN, 0));
	send_stream(pair.tx, 100, 1);
	join(&s);
	ASSERT_EQ(s.result, 100);

	/* A poller is also woken for the sum. */
	send_stream(pair.tx, 101, 80);
	await_arrived(pair.rx, 181);
	ASSERT_EQ(seek_recv(pair.rx, buf, 1, 0, 79), 1);
	ASSERT_EQ(get_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT), 21);
	send_stream(pair.tx, 181, 21);
	ASSERT(wait_for(pair.rx, POLLIN, 5000));
	ASSERT_EQ(recv(pair.rx, buf, 1000, 0), 100);
	ASSERT_EQ(get_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT), 100);

	/* It does not delay a seeker. */
	s = (struct sleeper){ .fd = pair.rx, .len = 10 };
	start(&s);
	send_stream(pair.tx, 202, 10);
	join(&s);
	ASSERT_EQ(s.result, 10);
	/* When lowered, it lets a poller continue. */
	send_stream(pair.tx, 212, 10);
	await_arrived(pair.rx, 222);
	ASSERT(!wait_for(pair.rx, POLLIN, 0));
	set_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT, 1);
	ASSERT(wait_for(pair.rx, POLLIN, 0));
	pair_close(pair);
}

/* Moves all that has arrived to segments, and takes nothing. */
static void skip_all(int fd)
{
	uint8_t byte;

	ASSERT_ERRNO(seek_recv(fd, &byte, 1, TCP_SEEK_DONTWAIT, 1000000000), ENOBUFS);
}

/* A reader whose memory ends has still taken something. */
TEST(wait_range_taken_in_part)
{
	struct pair pair = pair_default();
	static struct sleeper s = { .len = 4000, .at = 1500 };
	uint8_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT(page != MAP_FAILED);
	ASSERT_EQ(munmap(page + 4096, 4096), 0);
	s.fd = pair.rx;
	send_stream(pair.tx, 0, 3000);
	await_arrived(pair.rx, 3000);
	skip_all(pair.rx);
	send_stream(pair.tx, 3000, 100);
	await_arrived(pair.rx, 3100);
	start(&s);
	ASSERT_EQ(recv(pair.rx, page + 4096 - 3050, 3100, 0), 3000);
	join(&s);
	ASSERT_EQ(s.result, -1);
	ASSERT_EQ(s.error, ENXIO);
	pair_close(pair);
}

/* A failed call may have moved bytes; sleepers that need more are woken. */
TEST(wait_low_water_after_failure)
{
	for (int i = 0; i < 2; i++) {
		struct pair pair = pair_default();
		struct epoll_event event = { .events = EPOLLIN };
		int set = epoll_create1(0);

		set_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT, 1000);
		ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pair.rx, &event), 0);
		send_stream(pair.tx, 0, 800);
		await_arrived(pair.rx, 800);
		if (i)
			skip_all(pair.rx);
		else
			ASSERT_ERRNO(seek_recv(pair.rx, (void *)16, 1, 0, 799), EFAULT);
		send_stream(pair.tx, 800, 300);
		ASSERT_EQ(epoll_wait(set, &event, 1, 5000), 1);
		close(set);
		pair_close(pair);
	}
}

struct watcher {
	pthread_t thread;
	int fd;
	bool stop;
	unsigned long looks, missed;
};

static void *watch(void *arg)
{
	struct watcher *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		w->looks++;
		w->missed += !wait_for(w->fd, POLLIN, 0);
	}
	return NULL;
}

/* Bytes that stay remain visible while others are taken. */
TEST(wait_poll_steady)
{
	struct watcher w = {};

	for (int i = 0; i < 3; i++) {
		struct pair pair = pair_default();
		uint8_t buf[2];

		send_stream(pair.tx, 0, 15000);
		await_arrived(pair.rx, 15000);
		set_option(pair.rx, SOL_SOCKET, SO_RCVLOWAT, 10000);
		ASSERT(wait_for(pair.rx, POLLIN, 5000));
		w.fd = pair.rx;
		w.stop = false;
		ASSERT_EQ(pthread_create(&w.thread, NULL, watch, &w), 0);
		for (uint64_t at = 1; at < 2000; at += 2)
			ASSERT_EQ(seek_recv(pair.rx, buf, 1, TCP_SEEK_POSITION, at), 1);
		__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
		pthread_join(w.thread, NULL);
		pair_close(pair);
	}
	printf("# %lu looks\n", w.looks);
	ASSERT_EQ(w.missed, 0);
}
