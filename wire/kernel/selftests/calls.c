// SPDX-License-Identifier: GPL-2.0-only
/* The other system calls of a socket that seeks. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "net.h"

#ifndef TCP_ZEROCOPY_RECEIVE
#define TCP_ZEROCOPY_RECEIVE 35
#endif
#ifndef TCP_INQ
#define TCP_INQ 36
#endif
#ifndef SO_PEEK_OFF
#define SO_PEEK_OFF 42
#endif

static struct pair with_hole(void)
{
	struct pair pair = pair_default();
	uint8_t buf[100];

	send_stream(pair.tx, 0, 300);
	await_arrived(pair.rx, 300);
	ASSERT_EQ(seek_recv(pair.rx, buf, 100, 0, 100), 100);
	return pair;
}

TEST(calls_splice)
{
	struct pair pair = with_hole();
	uint8_t buf[300];
	int fds[2];

	ASSERT_EQ(pipe(fds), 0);
	ASSERT_EQ(splice(pair.rx, NULL, fds[1], NULL, 150, 0), 150);
	ASSERT_EQ(read(fds[0], buf, sizeof(buf)), 150);
	ASSERT_STREAM(buf, 0, 100);
	ASSERT_STREAM(buf + 100, 200, 50);
	ASSERT_EQ(splice(pair.rx, NULL, fds[1], NULL, 1000, 0), 50);
	ASSERT_EQ(read(fds[0], buf, sizeof(buf)), 50);
	ASSERT_STREAM(buf, 250, 50);
	set_nonblocking(pair.rx);
	ASSERT_ERRNO(splice(pair.rx, NULL, fds[1], NULL, 1000, 0), EAGAIN);
	ASSERT_EQ(rmem(pair.rx), 0);
	shutdown(pair.tx, SHUT_WR);
	ASSERT(wait_for(pair.rx, POLLIN, 5000));
	ASSERT_EQ(splice(pair.rx, NULL, fds[1], NULL, 1000, 0), 0);
	pair_close(pair);
}

TEST(calls_readv_and_recvmsg)
{
	struct pair pair = with_hole();
	uint8_t a[60], b[60], control[64];
	struct iovec iov[2] = { { a, 60 }, { b, 60 } };
	struct sockaddr_in from;
	struct msghdr msg = {
		.msg_iov = iov, .msg_iovlen = 2, .msg_name = &from,
		.msg_namelen = sizeof(from), .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg;
	int left;

	ASSERT_EQ(readv(pair.rx, iov, 2), 120);
	ASSERT_STREAM(a, 0, 60);
	ASSERT_STREAM(b, 60, 40);
	ASSERT_STREAM(b + 40, 200, 20);
	set_option(pair.rx, SOL_TCP, TCP_INQ, 1);
	iov[1].iov_len = 10;
	ASSERT_EQ(recvmsg(pair.rx, &msg, 0), 70);
	ASSERT_STREAM(a, 220, 60);
	ASSERT_EQ(msg.msg_namelen, 0);
	cmsg = CMSG_FIRSTHDR(&msg);
	ASSERT(cmsg && cmsg->cmsg_type == TCP_INQ);
	memcpy(&left, CMSG_DATA(cmsg), sizeof(left));
	ASSERT_EQ(left, 10);
	ASSERT_EQ(read(pair.rx, a, 0), 0);
	ASSERT_EQ(recv(pair.rx, a, 0, 0), 0);
	ASSERT_EQ(recv(pair.rx, NULL, 10, MSG_TRUNC), 10);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

/* Memory that ends in the middle: nothing is lost. */
TEST(calls_bad_memory)
{
	struct pair pair = with_hole();
	uint8_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t buf[300];
	struct tcp_seek_recv *call;
	socklen_t size = sizeof(*call);

	ASSERT(page != MAP_FAILED);
	ASSERT_EQ(munmap(page + 4096, 4096), 0);
	ASSERT_ERRNO(recv(pair.rx, (void *)16, 10, 0), EFAULT);
	ASSERT_ERRNO(seek_recv(pair.rx, page + 4090, 20, 0, 0), EFAULT);
	ASSERT_ERRNO(seek_recv(pair.rx, page + 4090, 20, 0, 250), EFAULT);
	ASSERT_EQ(extent(pair.rx).head, 0);
	ASSERT_EQ(extent(pair.rx).holes, 1);
	call = (void *)page;
	*call = (struct tcp_seek_recv){
		.version = TCP_SEEK_VERSION, .buf = (uintptr_t)buf, .len = 10,
	};
	ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP_SEEK, TCP_SEEK_RECV, call, &size), EFAULT);
	ASSERT_EQ(recv(pair.rx, buf, 300, 0), 200);
	ASSERT_STREAM(buf, 0, 100);
	ASSERT_STREAM(buf + 100, 200, 100);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

/* The urgent byte stays in the stream, where positions count it. */
TEST(calls_urgent)
{
	struct pair pair = pair_default();
	uint8_t byte = stream_byte(50), buf[200];

	send_stream(pair.tx, 0, 50);
	ASSERT_EQ(send(pair.tx, &byte, 1, MSG_OOB), 1);
	send_stream(pair.tx, 51, 49);
	await_arrived(pair.rx, 100);
	ASSERT_ERRNO(recv(pair.rx, buf, 1, MSG_OOB), EOPNOTSUPP);
	ASSERT_EQ(sockatmark(pair.rx), 0);
	ASSERT_EQ(get_option(pair.rx, SOL_SOCKET, SO_OOBINLINE), 1);
	ASSERT_EQ(unread(pair.rx), 100);
	ASSERT_EQ(seek_recv(pair.rx, buf, 30, 0, 40), 30);
	ASSERT_STREAM(buf, 40, 30);
	ASSERT(!wait_for(pair.rx, POLLPRI, 0));
	ASSERT_EQ(sockatmark(pair.rx), 0);
	ASSERT_EQ(recv(pair.rx, buf, 200, 0), 70);
	ASSERT_STREAM(buf, 0, 40);
	ASSERT_STREAM(buf + 40, 70, 30);

	/* If a program switches it off nevertheless, it gets a hole at worst. */
	set_option(pair.rx, SOL_SOCKET, SO_OOBINLINE, 0);
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(send(pair.tx, "abc", 3, MSG_OOB), 3);
		ASSERT_EQ(send(pair.tx, "de", 2, 0), 2);
		await_arrived(pair.rx, 100 + 5 * (i + 1));
		seek_recv(pair.rx, buf, 1, TCP_SEEK_DONTWAIT, i % 7);
		if (i % 3)
			ASSERT(recv(pair.rx, buf, i % 4 + 1, MSG_DONTWAIT) != 0);
	}
	while (unread(pair.rx))
		ASSERT(recv(pair.rx, buf, 200, MSG_DONTWAIT) > 0);
	ASSERT_EQ(rmem(pair.rx), 0);
	pair_close(pair);
}

TEST(calls_refused)
{
	struct pair pair = with_hole();
	uint8_t zerocopy[64] = {};
	socklen_t size = sizeof(zerocopy);
	struct utsname name;
	int one = 1;

	ASSERT_ERRNO(getsockopt(pair.rx, SOL_TCP, TCP_ZEROCOPY_RECEIVE, zerocopy, &size), EOPNOTSUPP);
	ASSERT_ERRNO(setsockopt(pair.rx, SOL_TCP, TCP_REPAIR, &one, sizeof(one)), EOPNOTSUPP);
	ASSERT_ERRNO(setsockopt(pair.rx, SOL_SOCKET, SO_PEEK_OFF, &one, sizeof(one)), EOPNOTSUPP);
	ASSERT(mmap(NULL, 4096, PROT_READ, MAP_SHARED, pair.rx, 0) == MAP_FAILED);
	pair_close(pair);

	/* An offset of MSG_PEEK that was set before. */
	pair = pair_open(&(struct pair_options){ .plain = true });
	if (!setsockopt(pair.rx, SOL_SOCKET, SO_PEEK_OFF, &one, sizeof(one))) {
		ASSERT_ERRNO(attach(pair.rx), EBUSY);
	} else {
		uname(&name);
		printf("# %s has no SO_PEEK_OFF for TCP\n", name.release);
	}
	pair_close(pair);
}

static int sockmap_open(void)
{
	struct { uint32_t type, key, value, entries, flags; } create = {
		.type = 15, .key = 4, .value = 4, .entries = 1,
	};
	int fd = syscall(SYS_bpf, 0, &create, sizeof(create));

	if (fd < 0)
		test_skip("no sockmap: %m");
	return fd;
}

static int sockmap_put(int map, int fd)
{
	uint32_t key = 0;
	struct { uint64_t fd, key, value, flags; } update = {
		.fd = map, .key = (uintptr_t)&key, .value = (uintptr_t)&fd,
	};

	return syscall(SYS_bpf, 2, &update, sizeof(update));
}

/* Both need the receive queue; the first one has it. */
TEST(calls_sockmap)
{
	struct pair pair = with_hole();
	int map = sockmap_open();

	ASSERT_ERRNO(sockmap_put(map, pair.rx), EINVAL);
	pair_close(pair);
	pair = pair_open(&(struct pair_options){ .plain = true });
	ASSERT_EQ(sockmap_put(map, pair.rx), 0);
	ASSERT_ERRNO(attach(pair.rx), EBUSY);
	pair_close(pair);
	close(map);
}

#ifdef __x86_64__
/* getsockopt() as a 32-bit program calls it. */
static long getsockopt_32(int fd, int name, void *value, void *size)
{
	long result = 365;

	asm volatile("int $0x80"
		     : "+a" (result)
		     : "b" ((long)fd), "c" ((long)SOL_TCP_SEEK), "d" ((long)name),
		       "S" (value), "D" (size)
		     : "memory", "r8", "r9", "r10", "r11");
	return (int)result;
}

static void as_32_bit_program(int fd)
{
	struct low {
		struct tcp_seek_recv recv;
		socklen_t size;
		struct { uint32_t base, len; } iov[2];
		uint8_t buf[20];
	} *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	ASSERT(low != MAP_FAILED);
	if (getsockopt_32(fd, TCP_SEEK_RECV, &low->recv, &low->size) == -ENOSYS)
		raise(SIGKILL);
	low->size = sizeof(low->recv);
	low->iov[0].base = (uintptr_t)low->buf;
	low->iov[0].len = 5;
	low->iov[1].base = (uintptr_t)low->buf + 10;
	low->iov[1].len = 10;
	low->recv = (struct tcp_seek_recv){
		.version = TCP_SEEK_VERSION, .flags = TCP_SEEK_IOVEC, .at = 20,
		.buf = (uintptr_t)low->iov, .len = 2,
	};
	ASSERT_EQ(getsockopt_32(fd, TCP_SEEK_RECV, &low->recv, &low->size), 0);
	ASSERT_EQ(low->recv.received, 15);
	ASSERT_STREAM(low->buf, 20, 5);
	ASSERT_STREAM(low->buf + 10, 25, 10);
	ASSERT_EQ(getsockopt_32(fd, TCP_SEEK_RECV, &low->recv, &low->size), -ENXIO);
}

TEST(calls_32_bit)
{
	struct pair pair = with_hole();
	int status;
	pid_t pid = fork();

	if (!pid) {
		as_32_bit_program(pair.rx);
		_exit(0);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		test_skip("this kernel runs no 32-bit programs");
	ASSERT_EQ(status, 0);
	ASSERT_EQ(unread(pair.rx), 185);
	pair_close(pair);
}
#endif

TEST(calls_other_options)
{
	struct pair pair = with_hole();
	struct tcp_info info;
	socklen_t size = sizeof(info);
	struct sockaddr_in address;

	ASSERT_EQ(getsockopt(pair.rx, SOL_TCP, TCP_INFO, &info, &size), 0);
	ASSERT_EQ(info.tcpi_state, TCP_ESTABLISHED);
	set_option(pair.rx, SOL_TCP, TCP_NODELAY, 1);
	ASSERT_EQ(get_option(pair.rx, SOL_TCP, TCP_NODELAY), 1);
	set_option(pair.rx, SOL_TCP, TCP_QUICKACK, 1);
	set_option(pair.rx, SOL_SOCKET, SO_RCVBUF, 100000);
	set_option(pair.rx, SOL_SOCKET, SO_KEEPALIVE, 1);
	size = sizeof(address);
	ASSERT_EQ(getpeername(pair.rx, (void *)&address, &size), 0);
	/* Sending works as before. */
	send_stream(pair.rx, 0, 1000);
	{
		uint8_t buf[1000];

		ASSERT_EQ(recv(pair.tx, buf, 1000, MSG_WAITALL), 1000);
		ASSERT_STREAM(buf, 0, 1000);
	}
	pair_close(pair);
}

TEST(calls_ipv6_to_ipv4)
{
	struct pair pair = pair_open(&(struct pair_options){ .family = AF_INET6 });
	int family = AF_INET;

	ASSERT_EQ(setsockopt(pair.rx, SOL_IPV6, IPV6_ADDRFORM, &family, sizeof(family)), -1);
	pair_close(pair);
}

/* The stream belongs to the socket, not to the process. */
TEST(calls_fork)
{
	struct pair pair = with_hole();
	uint8_t buf[300];
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		ASSERT_ERRNO(seek_recv(pair.rx, buf, 10, 0, 150), ENXIO);
		ASSERT_EQ(seek_recv(pair.rx, buf, 50, 0, 200), 50);
		ASSERT_STREAM(buf, 200, 50);
		ASSERT_EQ(recv(pair.rx, buf, 20, 0), 20);
		ASSERT_STREAM(buf, 0, 20);
		_exit(0);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	ASSERT_EQ(recv(pair.rx, buf, 300, 0), 130);
	ASSERT_STREAM(buf, 20, 80);
	ASSERT_STREAM(buf + 80, 250, 50);
	pair_close(pair);
}
