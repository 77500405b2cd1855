// SPDX-License-Identifier: GPL-2.0-only
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "peer.h"

#define OUR_ADDRESS	0x0a090001u	/* 10.9.0.1 */
#define PEER_ADDRESS	0x0a090002u

struct packet {
	struct iphdr ip;
	struct tcphdr tcp;
	uint8_t rest[1500];
} __attribute__((packed));

static uint32_t sum(const void *data, size_t len, uint32_t sum)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? bytes[i] : bytes[i] << 8;
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

static void transmit(struct peer *peer, uint32_t seq, const void *options,
		     size_t options_len, const void *data, size_t len,
		     uint8_t flags, uint16_t urgent)
{
	size_t tcp_len = sizeof(struct tcphdr) + options_len + len;
	struct packet packet = {
		.ip = {
			.version = 4, .ihl = 5, .ttl = 64,
			.protocol = IPPROTO_TCP,
			.tot_len = htons(sizeof(struct iphdr) + tcp_len),
			.saddr = htonl(PEER_ADDRESS),
			.daddr = htonl(OUR_ADDRESS),
		},
		.tcp = {
			.source = htons(peer->port),
			.dest = htons(peer->local_port),
			.seq = htonl(seq), .ack_seq = htonl(peer->their_next),
			.doff = 5 + options_len / 4, .window = htons(65535),
			.urg_ptr = htons(urgent),
		},
	};

	packet.tcp.th_flags = flags;
	memcpy(packet.rest, options, options_len);
	memcpy(packet.rest + options_len, data, len);
	packet.ip.check = fold(sum(&packet.ip, sizeof(packet.ip), 0));
	packet.tcp.check = fold(sum(&packet.tcp, tcp_len,
				    sum(&packet.ip.saddr, 8,
					IPPROTO_TCP + tcp_len)));
	ASSERT(write(peer->tun, &packet, sizeof(struct iphdr) + tcp_len) > 0);
}

void peer_send(struct peer *peer, uint64_t at, size_t len, uint8_t flags,
	       uint16_t urgent)
{
	uint8_t data[1460];

	ASSERT(len <= sizeof(data));
	for (size_t i = 0; i < len; i++)
		data[i] = stream_byte(at + i);
	transmit(peer, peer->isn + 1 + at, NULL, 0, data, len, flags, urgent);
}

/* The scale of our TCP's windows is in its SYN. */
static uint8_t find_scale(const struct packet *packet)
{
	const uint8_t *option = packet->rest;
	const uint8_t *end = (const uint8_t *)&packet->tcp + packet->tcp.doff * 4;

	while (option + 2 < end && *option) {
		if (*option == 3)
			return option[2];
		option += *option == 1 ? 1 : option[1];
	}
	return 0;
}

static void hear_one(struct peer *peer, const struct packet *packet)
{
	size_t headers = packet->ip.ihl * 4 + packet->tcp.doff * 4;
	uint32_t len = ntohs(packet->ip.tot_len) - headers;
	uint32_t ack = ntohl(packet->tcp.ack_seq) - (peer->isn + 1);

	/* Connections of earlier tests may still be sending. */
	if (packet->ip.protocol != IPPROTO_TCP ||
	    ntohs(packet->tcp.dest) != peer->port ||
	    ntohs(packet->tcp.source) != peer->local_port || packet->tcp.rst)
		return;
	peer->their_next = ntohl(packet->tcp.seq) + len + packet->tcp.syn + packet->tcp.fin;
	if (packet->tcp.syn) {
		peer->scale = find_scale(packet);
	} else if (packet->tcp.ack && ack < 1u << 30) {
		peer->acked = ack;
		peer->allowed = ack + (ntohs(packet->tcp.window) << peer->scale);
	}
}

void peer_hear(struct peer *peer)
{
	struct packet packet;

	while (read(peer->tun, &packet, sizeof(packet)) > 0)
		if (packet.ip.version == 4)
			hear_one(peer, &packet);
}

static void configure(const char *name)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(OUR_ADDRESS),
	};
	struct ifreq request = {};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	memcpy(&request.ifr_addr, &address, sizeof(address));
	ASSERT_EQ(ioctl(fd, SIOCSIFADDR, &request), 0);
	address.sin_addr.s_addr = htonl(0xffffff00);
	memcpy(&request.ifr_netmask, &address, sizeof(address));
	ASSERT_EQ(ioctl(fd, SIOCSIFNETMASK, &request), 0);
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	ASSERT_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

/* Maximum segment size 1460, window scale. */
static const uint8_t syn_options[] = { 2, 4, 1460 >> 8, 1460 & 255, 3, 3, 7, 1 };

/* The device, and a socket that listens. */
static int peer_prepare(struct peer *peer, int rcvbuf)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	int listener;

	*peer = (struct peer){ .port = 7777, .isn = 0xfffff000 };
	peer->tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
	if (peer->tun < 0)
		test_skip("/dev/net/tun: %m");
	strcpy(request.ifr_name, "peer0");
	ASSERT_EQ(ioctl(peer->tun, TUNSETIFF, &request), 0);
	configure("peer0");

	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (rcvbuf)
		set_option(listener, SOL_SOCKET, SO_RCVBUF, rcvbuf);
	address.sin_addr.s_addr = htonl(OUR_ADDRESS);
	ASSERT_EQ(bind(listener, (void *)&address, size), 0);
	ASSERT_EQ(listen(listener, 1), 0);
	ASSERT_EQ(getsockname(listener, (void *)&address, &size), 0);
	peer->local_port = ntohs(address.sin_port);
	return listener;
}

static void peer_connect(struct peer *peer, const void *data, size_t len)
{
	transmit(peer, peer->isn, syn_options, sizeof(syn_options), data, len, PEER_SYN, 0);
	while (!peer->their_next)
		peer_hear(peer);
}

static void peer_accept(struct peer *peer, int listener)
{
	peer->socket = accept(listener, NULL, NULL);
	ASSERT(peer->socket >= 0);
	close(listener);
}

void peer_open(struct peer *peer, int rcvbuf)
{
	int listener = peer_prepare(peer, rcvbuf);

	peer_connect(peer, NULL, 0);
	peer_send(peer, 0, 0, PEER_ACK, 0);
	peer_accept(peer, listener);
	ASSERT_EQ(attach(peer->socket), 0);
}

void peer_open_fast(struct peer *peer, size_t len)
{
	int listener = peer_prepare(peer, 0);
	uint8_t data[1460];

	ASSERT(len <= sizeof(data));
	for (size_t i = 0; i < len; i++)
		data[i] = stream_byte(i);
	/* Without a cookie. */
	set_sysctl("net/ipv4/tcp_fastopen", "515");
	set_option(listener, SOL_TCP, TCP_FASTOPEN, 1);
	peer_connect(peer, data, len);
	peer_accept(peer, listener);
}

void peer_close(struct peer *peer)
{
	close(peer->socket);
	close(peer->tun);
}
