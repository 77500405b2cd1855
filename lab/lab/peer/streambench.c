/*
 * streambench: an ordinary program that exchanges bytes over TCP or UNIX stream sockets and measures it.
 *
 *   streambench serve (--tcp ADDRESS:PORT | --unix PATH) [--wait block|spin|epoll]
 *   streambench drive (--tcp ADDRESS:PORT | --unix PATH) [--wait block|spin|epoll] [--barrier]
 *                     --test OPERATION:SIZE:MILLISECONDS ...
 *
 * It knows nothing of Seekwire: it is what the laboratory runs plain and accelerated to compare the two.
 *
 * serve prints "ready PORT" (0 for a UNIX socket) once it listens and serves one connection after the other until SIGTERM.
 * drive runs its tests in order, each on a connection of its own, and prints one JSON object per line and test. With
 * --barrier it prints "connected" after the warm-up of each test and goes on when it can read a line.
 *
 * Operations, for messages of SIZE bytes during MILLISECONDS:
 *   pingpong   the server sends each message back; a time for each round trip
 *   bandwidth  one way; the server receives whatever fits into the larger of SIZE and 64 KiB
 *   rate       one way; the server receives message by message
 *   short      connect, send a message, receive it back, close; a new connection each time
 *
 * A connection begins with a request of 24 bytes, big-endian: magic u32, operation u32, size u64, warm-up u64. The
 * one-way operations warm up with that many bytes, which the server acknowledges. A test ends when the client shuts its
 * direction down; the server then sends an acknowledgement: bytes received u64, processor time in nanoseconds u64.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum operation { PINGPONG = 1, BANDWIDTH = 2, RATE = 3, SHORT = 4 };
enum waiting { BLOCK, SPIN, EPOLL };

static const char *const operation_names[] = { NULL, "pingpong", "bandwidth", "rate", "short" };

#define MAGIC UINT32_C(0x53574231)
#define MAX_SIZE (UINT64_C(64) << 20)
#define MAX_SAMPLES ((size_t)1 << 21)
#define BULK_RECEIVE ((size_t)64 << 10)
#define BACKLOG 128

struct request {
	uint32_t magic;
	uint32_t operation;
	uint64_t size;
	uint64_t warm_up;
};

struct acknowledgement {
	uint64_t bytes;
	uint64_t cpu_ns;
};

/* One end of a connection. */
struct end {
	int fd;
	int epoll; /* -1 unless waiting by epoll */
	enum waiting waiting;
};

struct test {
	enum operation operation;
	uint64_t size;
	uint64_t milliseconds;
};

struct options {
	struct sockaddr_storage address;
	socklen_t address_length;
	enum waiting waiting;
	bool barrier;
};

static volatile sig_atomic_t stopping;

static void stop(int signal)
{
	(void)signal;
	stopping = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "streambench: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static void usage(const char *what)
{
	fprintf(stderr, "streambench: %s; see the head of streambench.c\n", what);
	exit(2);
}

static void *allocate(size_t size)
{
	void *memory = calloc(1, size);
	if (!memory)
		fail("allocate memory");
	return memory;
}

static uint64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static uint64_t cpu_ns(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * UINT64_C(1000000000) +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * UINT64_C(1000);
}

/* ---- one end of a connection ------------------------------------------------------------------------------------- */

static void open_end(struct end *end, int fd, enum waiting waiting)
{
	end->fd = fd;
	end->epoll = -1;
	end->waiting = waiting;
	if (waiting == BLOCK)
		return;
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		fail("make a socket non-blocking");
	if (waiting == EPOLL) {
		end->epoll = epoll_create1(EPOLL_CLOEXEC);
		struct epoll_event event = { .events = 0 };
		if (end->epoll < 0 || epoll_ctl(end->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
			fail("watch a socket");
	}
}

static void close_end(struct end *end)
{
	if (end->epoll >= 0)
		close(end->epoll);
	close(end->fd);
}

/* Called after EAGAIN: returns when it is worth trying again. */
static void await(const struct end *end, uint32_t events)
{
	if (end->waiting == SPIN) {
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#endif
		return;
	}
	struct epoll_event event = { .events = events };
	if (epoll_ctl(end->epoll, EPOLL_CTL_MOD, end->fd, &event) < 0)
		fail("change what a socket is watched for");
	while (epoll_wait(end->epoll, &event, 1, -1) < 0) {
		if (errno != EINTR)
			fail("wait for a socket");
	}
}

static void send_all(const struct end *end, const void *data, size_t length)
{
	const char *next = data;
	while (length > 0) {
		ssize_t n = send(end->fd, next, length, MSG_NOSIGNAL);
		if (n >= 0) {
			next += n;
			length -= (size_t)n;
		} else if (errno == EAGAIN) {
			await(end, EPOLLOUT);
		} else if (errno != EINTR) {
			fail("send");
		}
	}
}

/* Receives at least one byte; 0 at the end of the stream. */
static size_t receive_some(const struct end *end, void *data, size_t length)
{
	for (;;) {
		ssize_t n = recv(end->fd, data, length, 0);
		if (n >= 0)
			return (size_t)n;
		if (errno == EAGAIN)
			await(end, EPOLLIN);
		else if (errno != EINTR)
			fail("receive");
	}
}

/* Receives length bytes; false if the stream ends instead, which it may only do between messages. */
static bool receive_all(const struct end *end, void *data, size_t length)
{
	size_t have = 0;
	while (have < length) {
		size_t n = receive_some(end, (char *)data + have, length - have);
		if (n == 0) {
			if (have == 0)
				return false;
			errno = ECONNRESET;
			fail("receive the rest of a message");
		}
		have += n;
	}
	return true;
}

static void no_delay(int fd, const struct options *options)
{
	int on = 1;
	if (options->address.ss_family != AF_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
		fail("set TCP_NODELAY");
}

/* ---- server ------------------------------------------------------------------------------------------------------ */

static void acknowledge(const struct end *end, uint64_t bytes, uint64_t cpu)
{
	struct acknowledgement message = { htobe64(bytes), htobe64(cpu) };
	send_all(end, &message, sizeof message);
}

static void serve_one_way(const struct end *end, enum operation operation, size_t size, uint64_t warm_up, char *buffer)
{
	size_t bulk = size > BULK_RECEIVE ? size : BULK_RECEIVE;
	uint64_t bytes = 0, cpu = cpu_ns();
	bool warm = warm_up == 0;
	for (;;) {
		size_t n;
		if (operation == RATE) {
			n = receive_all(end, buffer, size) ? size : 0;
		} else {
			/* Not past the end of the warm-up: its acknowledgement must not wait for more. */
			uint64_t left = warm ? bulk : warm_up - bytes;
			n = receive_some(end, buffer, left < bulk ? (size_t)left : bulk);
		}
		if (n == 0)
			break;
		bytes += n;
		if (!warm && bytes >= warm_up) {
			acknowledge(end, bytes, 0);
			warm = true;
			bytes = 0;
			cpu = cpu_ns();
		}
	}
	acknowledge(end, bytes, cpu_ns() - cpu);
}

static void serve_pingpong(const struct end *end, size_t size, char *buffer)
{
	uint64_t bytes = 0, cpu = cpu_ns();
	while (receive_all(end, buffer, size)) {
		send_all(end, buffer, size);
		bytes += size;
	}
	acknowledge(end, bytes, cpu_ns() - cpu);
}

static void serve_connection(const struct end *end, const struct options *options)
{
	static char *buffer;
	static size_t capacity;
	struct request request;

	if (!receive_all(end, &request, sizeof request))
		return;
	enum operation operation = ntohl(request.operation);
	uint64_t size = be64toh(request.size), warm_up = be64toh(request.warm_up);
	if (ntohl(request.magic) != MAGIC || operation < PINGPONG || operation > SHORT || size == 0 || size > MAX_SIZE) {
		fprintf(stderr, "streambench: not a request\n");
		return;
	}
	size_t need = size > BULK_RECEIVE ? (size_t)size : BULK_RECEIVE;
	if (need > capacity) {
		free(buffer);
		buffer = allocate(need);
		capacity = need;
	}
	switch (operation) {
	case PINGPONG:
		no_delay(end->fd, options);
		serve_pingpong(end, (size_t)size, buffer);
		break;
	case BANDWIDTH:
	case RATE:
		serve_one_way(end, operation, (size_t)size, warm_up, buffer);
		break;
	case SHORT:
		if (receive_all(end, buffer, (size_t)size))
			send_all(end, buffer, (size_t)size);
		break;
	}
}

static int serve(const struct options *options)
{
	struct sigaction action = { .sa_handler = stop };
	sigaction(SIGTERM, &action, NULL);

	int on = 1, listener = socket(options->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0)
		fail("make a socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (const struct sockaddr *)&options->address, options->address_length) < 0)
		fail("bind");
	if (listen(listener, BACKLOG) < 0)
		fail("listen");
	struct sockaddr_storage bound = { 0 };
	socklen_t length = sizeof bound;
	if (getsockname(listener, (struct sockaddr *)&bound, &length) < 0)
		fail("learn the address");
	unsigned port = bound.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&bound)->sin_port) : 0;
	printf("ready %u\n", port);
	fflush(stdout);

	while (!stopping) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			fail("accept");
		}
		struct end end;
		open_end(&end, fd, options->waiting);
		serve_connection(&end, options);
		close_end(&end);
	}
	close(listener);
	return EXIT_SUCCESS;
}

/* ---- client ------------------------------------------------------------------------------------------------------ */

static void connect_end(struct end *end, const struct options *options)
{
	int fd = socket(options->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fail("make a socket");
	if (connect(fd, (const struct sockaddr *)&options->address, options->address_length) < 0)
		fail("connect");
	open_end(end, fd, options->waiting);
}

static void begin(const struct end *end, const struct test *test, uint64_t warm_up)
{
	struct request request = { htonl(MAGIC), htonl(test->operation), htobe64(test->size), htobe64(warm_up) };
	send_all(end, &request, sizeof request);
}

static struct acknowledgement receive_acknowledgement(const struct end *end)
{
	struct acknowledgement message;
	if (!receive_all(end, &message, sizeof message)) {
		errno = ECONNRESET;
		fail("receive the acknowledgement");
	}
	message.bytes = be64toh(message.bytes);
	message.cpu_ns = be64toh(message.cpu_ns);
	return message;
}

static struct acknowledgement finish(const struct end *end)
{
	if (shutdown(end->fd, SHUT_WR) < 0)
		fail("shut down");
	return receive_acknowledgement(end);
}

static void barrier(const struct options *options)
{
	if (!options->barrier)
		return;
	printf("connected\n");
	fflush(stdout);
	for (int c = getchar(); c != '\n'; c = getchar()) {
		if (c == EOF)
			exit(EXIT_FAILURE);
	}
}

static void check_bytes(uint64_t sent, uint64_t received)
{
	if (sent == received)
		return;
	fprintf(stderr, "streambench: sent %" PRIu64 " bytes, but %" PRIu64 " arrived\n", sent, received);
	exit(EXIT_FAILURE);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static uint64_t percentile(const uint64_t *ascending, size_t count, unsigned percent)
{
	return count ? ascending[(count - 1) * percent / 100] : 0;
}

static void report(const struct test *test, uint64_t messages, uint64_t elapsed, uint64_t cpu, uint64_t peer_cpu)
{
	printf("{\"operation\":\"%s\",\"size\":%" PRIu64 ",\"messages\":%" PRIu64
	       ",\"seconds\":%.9f,\"cpu_seconds\":%.6f,\"peer_cpu_seconds\":%.6f",
	       operation_names[test->operation], test->size, messages, (double)elapsed / 1e9, (double)cpu / 1e9,
	       (double)peer_cpu / 1e9);
}

static void drive_pingpong(const struct test *test, const struct options *options)
{
	enum { WARM_UP = 200 };
	size_t size = (size_t)test->size, count = 0;
	char *buffer = allocate(size);
	uint64_t *samples = allocate(MAX_SAMPLES * sizeof *samples);
	struct end end;

	connect_end(&end, options);
	no_delay(end.fd, options);
	begin(&end, test, 0);
	uint64_t begun = now_ns(), cpu = cpu_ns(), total = 0, warm_up_limit = begun + test->milliseconds * 1000000;
	for (unsigned i = 0; i < WARM_UP && now_ns() < warm_up_limit; i++, total++) {
		send_all(&end, buffer, size);
		receive_all(&end, buffer, size);
	}
	barrier(options);
	uint64_t start = now_ns(), before = start, end_at = start + test->milliseconds * 1000000;
	do {
		send_all(&end, buffer, size);
		if (!receive_all(&end, buffer, size)) {
			errno = ECONNRESET;
			fail("receive the answer");
		}
		uint64_t after = now_ns();
		samples[count++] = after - before;
		before = after;
	} while (before < end_at && count < MAX_SAMPLES);
	cpu = cpu_ns() - cpu;
	struct acknowledgement ack = finish(&end);
	check_bytes((total + count) * test->size, ack.bytes);
	close_end(&end);

	qsort(samples, count, sizeof *samples, compare);
	report(test, count, before - start, cpu, ack.cpu_ns);
	printf(",\"min_ns\":%" PRIu64 ",\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 ",\"max_ns\":%" PRIu64 "}\n",
	       samples[0], percentile(samples, count, 50), percentile(samples, count, 99), samples[count - 1]);
	free(samples);
	free(buffer);
}

static void drive_one_way(const struct test *test, const struct options *options)
{
	size_t size = (size_t)test->size;
	char *buffer = allocate(size);
	/* Enough messages to open windows and to get past any threshold, but not so many that small ones take long. */
	uint64_t warm_up = (UINT64_C(2) << 20) / size;
	warm_up = warm_up < 16 ? 16 : warm_up > 2000 ? 2000 : warm_up;
	/* The clock is read once in a while: reading it costs as much as a small message, in some virtual machines as one of 64 KiB. */
	uint64_t batch = (UINT64_C(1) << 20) / size;
	batch = batch < 1 ? 1 : batch > 256 ? 256 : batch;
	struct end end;

	connect_end(&end, options);
	begin(&end, test, warm_up * size);
	for (uint64_t i = 0; i < warm_up; i++)
		send_all(&end, buffer, size);
	check_bytes(warm_up * size, receive_acknowledgement(&end).bytes);
	barrier(options);

	uint64_t messages = 0, cpu = cpu_ns(), start = now_ns(), end_at = start + test->milliseconds * 1000000;
	do {
		for (uint64_t i = 0; i < batch; i++)
			send_all(&end, buffer, size);
		messages += batch;
	} while (now_ns() < end_at);
	struct acknowledgement ack = finish(&end);
	uint64_t elapsed = now_ns() - start;
	cpu = cpu_ns() - cpu;
	check_bytes(messages * size, ack.bytes);
	close_end(&end);
	report(test, messages, elapsed, cpu, ack.cpu_ns);
	printf("}\n");
	free(buffer);
}

static void drive_short(const struct test *test, const struct options *options)
{
	size_t size = (size_t)test->size;
	char *buffer = allocate(size), nothing;
	barrier(options);
	uint64_t messages = 0, cpu = cpu_ns(), start = now_ns(), end_at = start + test->milliseconds * 1000000, now;
	do {
		struct end end;
		connect_end(&end, options);
		no_delay(end.fd, options);
		begin(&end, test, 0);
		send_all(&end, buffer, size);
		if (!receive_all(&end, buffer, size)) {
			errno = ECONNRESET;
			fail("receive the answer");
		}
		/* The server closes first, so that TIME_WAIT does not eat up the ports of the client. */
		if (receive_some(&end, &nothing, 1) != 0) {
			errno = EPROTO;
			fail("receive the end of the stream");
		}
		close_end(&end);
		messages++;
		now = now_ns();
	} while (now < end_at);
	report(test, messages, now - start, cpu_ns() - cpu, 0);
	printf("}\n");
	free(buffer);
}

static void drive(const struct test *test, const struct options *options)
{
	switch (test->operation) {
	case PINGPONG:
		drive_pingpong(test, options);
		break;
	case BANDWIDTH:
	case RATE:
		drive_one_way(test, options);
		break;
	case SHORT:
		drive_short(test, options);
		break;
	}
	fflush(stdout);
}

/* ---- command line ------------------------------------------------------------------------------------------------ */

static void parse_tcp(const char *text, struct options *options)
{
	struct sockaddr_in *address = (struct sockaddr_in *)&options->address;
	char host[INET_ADDRSTRLEN];
	const char *colon = strrchr(text, ':');
	if (!colon || (size_t)(colon - text) >= sizeof host)
		usage("--tcp wants ADDRESS:PORT");
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	char *rest;
	unsigned long port = strtoul(colon + 1, &rest, 10);
	if (*rest || port > UINT16_MAX || inet_pton(AF_INET, host, &address->sin_addr) != 1)
		usage("--tcp wants ADDRESS:PORT");
	address->sin_family = AF_INET;
	address->sin_port = htons((uint16_t)port);
	options->address_length = sizeof *address;
}

static void parse_unix(const char *path, struct options *options)
{
	struct sockaddr_un *address = (struct sockaddr_un *)&options->address;
	if (strlen(path) >= sizeof address->sun_path)
		usage("the path is too long");
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path, path, strlen(path) + 1);
	options->address_length = sizeof *address;
}

static enum waiting parse_waiting(const char *text)
{
	if (!strcmp(text, "block"))
		return BLOCK;
	if (!strcmp(text, "spin"))
		return SPIN;
	if (!strcmp(text, "epoll"))
		return EPOLL;
	usage("--wait wants block, spin or epoll");
	return BLOCK;
}

static struct test parse_test(const char *text)
{
	struct test test = { 0 };
	size_t length = strcspn(text, ":");
	for (int i = PINGPONG; i <= SHORT; i++) {
		if (strlen(operation_names[i]) == length && !strncmp(text, operation_names[i], length))
			test.operation = (enum operation)i;
	}
	int used = 0;
	if (!test.operation ||
	    sscanf(text + length, ":%" SCNu64 ":%" SCNu64 "%n", &test.size, &test.milliseconds, &used) != 2 ||
	    text[length + (size_t)used] || test.size == 0 || test.size > MAX_SIZE)
		usage("--test wants OPERATION:SIZE:MILLISECONDS");
	return test;
}

int main(int argc, char **argv)
{
	struct options options = { .waiting = BLOCK };
	struct test *tests = allocate((size_t)argc * sizeof *tests);
	int count = 0;

	if (argc < 2)
		usage("say serve or drive");
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--barrier")) {
			options.barrier = true;
			continue;
		}
		if (i + 1 == argc)
			usage("an option lacks its value");
		const char *name = argv[i], *value = argv[++i];
		if (!strcmp(name, "--tcp"))
			parse_tcp(value, &options);
		else if (!strcmp(name, "--unix"))
			parse_unix(value, &options);
		else if (!strcmp(name, "--wait"))
			options.waiting = parse_waiting(value);
		else if (!strcmp(name, "--test"))
			tests[count++] = parse_test(value);
		else
			usage("unknown option");
	}
	if (!options.address_length)
		usage("say --tcp or --unix");
	if (!strcmp(argv[1], "serve"))
		return serve(&options);
	if (strcmp(argv[1], "drive") || count == 0)
		usage("say serve, or drive with at least one --test");
	for (int i = 0; i < count; i++)
		drive(&tests[i], &options);
	free(tests);
	return EXIT_SUCCESS;
}
