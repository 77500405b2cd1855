/* SPDX-License-Identifier: GPL-2.0-only */
/* Connections, the calls of the module, and streams whose bytes are known. */
#ifndef NET_H
#define NET_H

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "../uapi/tcp_seek.h"
#include "harness.h"

#ifndef TCP_ULP
#define TCP_ULP 31
#endif

/* tx writes, rx reads and can seek. */
struct pair {
	int tx;
	int rx;
};

struct pair_options {
	int family;		/* 0: AF_INET */
	int rcvbuf;		/* 0: the system's */
	int mss;
	bool plain;		/* do not attach */
};

struct pair pair_open(const struct pair_options *options);
struct pair pair_default(void);
void pair_close(struct pair pair);
int attach(int fd);

/* Both end the test if not all of it can be sent. */
void send_all(int fd, const void *buf, size_t len);
/* Bytes [at, at + len) of the stream that stream_byte() defines. */
void send_stream(int fd, uint64_t at, size_t len);
uint8_t stream_byte(uint64_t at);
void assert_stream(const uint8_t *buf, uint64_t at, size_t len,
		   const char *file, int line);
#define ASSERT_STREAM(buf, at, len)					\
	assert_stream(buf, at, len, __FILE__, __LINE__)

/* Like seek_recv(3): flags are TCP_SEEK_*. */
ssize_t seek_recv(int fd, void *buf, size_t len, uint32_t flags, uint64_t at);
/* The same, and returns the struct after the call. */
ssize_t seek_recv_out(int fd, void *buf, size_t len, uint32_t flags,
		      uint64_t at, struct tcp_seek_recv *out);
struct tcp_seek_extent extent(int fd);

int unread(int fd);
/* Waits until position has arrived. */
void await_arrived(int fd, uint64_t position);
/* Memory charged to the socket's receive side. */
uint32_t rmem(int fd);
/* A file below /proc/sys. */
void set_sysctl(const char *name, const char *value);
/* Pages that all TCP sockets may have: low, under pressure, at most. */
struct tcp_mem {
	long limits[3];
};

struct tcp_mem get_tcp_mem(void);
void set_tcp_mem(struct tcp_mem mem);
int get_option(int fd, int level, int name);
void set_option(int fd, int level, int name, int value);
/* Timeout in milliseconds; for events that must not take for ever. */
bool wait_for(int fd, short events, int timeout);
void set_timeout(int fd, int milliseconds);
void set_nonblocking(int fd);
/* Waits until the thread or process with that id sleeps. */
void await_sleep(pid_t id);

#endif
