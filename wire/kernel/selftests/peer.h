/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other end of a TCP connection, without a TCP: it sends the segments that
 * a test asks for, through a tun device.
 */
#ifndef PEER_H
#define PEER_H

#include "net.h"

enum { PEER_FIN = 1, PEER_SYN = 2, PEER_RST = 4, PEER_PSH = 8, PEER_ACK = 16, PEER_URG = 32 };

struct peer {
	int tun;
	int socket;		/* our end, attached */
	uint16_t port;
	uint16_t local_port;
	uint32_t isn;		/* the first byte is isn + 1 */
	uint32_t their_next;
	uint64_t acked;		/* bytes that our TCP has acknowledged */
	uint64_t allowed;	/* and up to where its window goes */
	uint8_t scale;
};

/* Skips the test if there is no tun device. */
void peer_open(struct peer *peer, int rcvbuf);
/*
 * The peer sends stream bytes [0, len) with its SYN (TCP Fast Open), and has not
 * completed the handshake; not attached.
 */
void peer_open_fast(struct peer *peer, size_t len);
void peer_close(struct peer *peer);
/* Sends stream bytes [at, at + len). */
void peer_send(struct peer *peer, uint64_t at, size_t len, uint8_t flags, uint16_t urgent);
/* Processes the segments that our TCP has sent. */
void peer_hear(struct peer *peer);

#endif
