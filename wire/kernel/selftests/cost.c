// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of calls in instructions, measured in a guest whose clock advances
 * by a nanosecond with each instruction (vmtest --count).
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>

#include "peer.h"

#ifndef SO_RCVBUFFORCE
#define SO_RCVBUFFORCE 33
#endif

static uint64_t instructions(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static bool is_counted(void)
{
	char line[4096] = {};
	FILE *file = fopen("/proc/cmdline", "r");

	ASSERT(file);
	ASSERT(fgets(line, sizeof(line), file));
	fclose(file);
	return strstr(line, " count ");
}

enum { SEGMENT = 600 };

/* Calls that look at one byte in the middle of as many buffers. */
static uint64_t cost(uint32_t buffers)
{
	struct pair pair = pair_open(&(struct pair_options){ .rcvbuf = 64 << 20 });
	uint64_t least = UINT64_MAX, end = (uint64_t)buffers * SEGMENT;
	uint8_t byte;

	for (uint32_t i = 0; i < buffers; i++)
		send_stream(pair.tx, (uint64_t)i * SEGMENT, SEGMENT);
	await_arrived(pair.rx, end);
	/* All of them leave TCP's queue. */
	ASSERT_EQ(seek_recv(pair.rx, &byte, 1, 0, end - 1), 1);
	for (int i = 0; i < 20; i++) {
		uint64_t before = instructions(), used;

		ASSERT_EQ(seek_recv(pair.rx, &byte, 1, TCP_SEEK_PEEK, end / 2), 1);
		ASSERT_EQ(byte, stream_byte(end / 2));
		ASSERT_EQ(extent(pair.rx).holes, 1);
		used = instructions() - before;
		least = used < least ? used : least;
	}
	printf("# %u buffers: %llu instructions\n", buffers, (unsigned long long)least);
	pair_close(pair);
	return least;
}

/* The peer decides how many buffers there are, but not what a call costs. */
TEST(cost_of_many_buffers)
{
	struct tcp_mem before = get_tcp_mem();
	int tap, size = 64 << 20;

	if (!is_counted())
		test_skip("the clock does not count instructions");
	/* TCP does not merge buffers of which others have a copy. */
	tap = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_IP));
	ASSERT(tap >= 0);
	ASSERT_EQ(setsockopt(tap, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)), 0);
	set_sysctl("net/core/rmem_max", "67108864");
	set_tcp_mem((struct tcp_mem){ { 40000, 50000, 60000 } });
	ASSERT(cost(4000) < 2 * cost(100));
	set_tcp_mem(before);
	close(tap);
}

/* A peer repeats its FIN one octet further on each time. */
static uint64_t cost_of_fins(uint32_t fins)
{
	uint64_t least = UINT64_MAX;
	struct peer peer;
	uint8_t byte;

	peer_open(&peer, 4 << 20);
	peer_send(&peer, 0, 100, PEER_FIN | PEER_ACK, 0);
	for (uint32_t i = 0; i < fins; i++)
		peer_send(&peer, 100 + i, 1, PEER_FIN | PEER_ACK, 0);
	while (peer.acked < 101 + fins) {
		ASSERT(wait_for(peer.tun, POLLIN, 10000));
		peer_hear(&peer);
	}
	for (int i = 0; i < 20; i++) {
		uint64_t before = instructions(), used;

		ASSERT_EQ(seek_recv(peer.socket, &byte, 1, TCP_SEEK_PEEK, 50), 1);
		ASSERT_EQ(unread(peer.socket), 100);
		used = instructions() - before;
		least = used < least ? used : least;
	}
	printf("# %u FINs: %llu instructions\n", fins, (unsigned long long)least);
	peer_close(&peer);
	return least;
}

TEST(cost_of_many_fins)
{
	if (!is_counted())
		test_skip("the clock does not count instructions");
	set_sysctl("net/core/rmem_max", "67108864");
	ASSERT(cost_of_fins(2000) < 2 * cost_of_fins(1));
}
