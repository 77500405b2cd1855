// SPDX-License-Identifier: GPL-2.0-only
/* Loss, repetition and disorder on the way, made by the kernel's emulator. */
#include <linux/ethtool.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include "stress.h"

struct request {
	struct nlmsghdr header;
	struct tcmsg tc;
	char attributes[256];
};

static void put(struct request *request, uint16_t type, const void *data,
		size_t len)
{
	struct rtattr *attribute =
		(void *)((char *)request + NLMSG_ALIGN(request->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = RTA_LENGTH(len);
	memcpy(RTA_DATA(attribute), data, len);
	request->header.nlmsg_len =
		NLMSG_ALIGN(request->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
}

static int ask(struct request *request)
{
	struct { struct nlmsghdr header; struct nlmsgerr error; } answer;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ASSERT(fd >= 0);
	ASSERT(send(fd, request, request->header.nlmsg_len, 0) > 0);
	ASSERT(recv(fd, &answer, sizeof(answer), 0) > 0);
	close(fd);
	return answer.error.error;
}

/* In percent; a varying delay changes the order. */
static void disturb(uint32_t loss, uint32_t duplicate)
{
	struct request request = {
		.header = {
			.nlmsg_len = NLMSG_LENGTH(sizeof(struct tcmsg)),
			.nlmsg_type = RTM_NEWQDISC,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
		},
		.tc = {
			.tcm_ifindex = if_nametoindex("lo"),
			.tcm_parent = TC_H_ROOT, .tcm_handle = 0x10000,
		},
	};
	struct tc_netem_qopt options = {
		.limit = 10000, .loss = UINT32_MAX / 100 * loss,
		.duplicate = UINT32_MAX / 100 * duplicate,
		/* In units of 64 ns: 1 ms, varying by 1 ms. */
		.latency = 15625, .jitter = 15625,
	};
	int error;

	put(&request, TCA_KIND, "netem", sizeof("netem"));
	put(&request, TCA_OPTIONS, &options, sizeof(options));
	error = ask(&request);
	if (error == -ENOENT)
		test_skip("this kernel has no netem");
	ASSERT_EQ(error, 0);
}

static void leave_alone(void)
{
	struct request request = {
		.header = {
			.nlmsg_len = NLMSG_LENGTH(sizeof(struct tcmsg)),
			.nlmsg_type = RTM_DELQDISC,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
		.tc = {
			.tcm_ifindex = if_nametoindex("lo"),
			.tcm_parent = TC_H_ROOT,
		},
	};

	ASSERT_EQ(ask(&request), 0);
}

/* Small packets, otherwise there is little to reorder. */
static void segmentation(uint32_t command, uint32_t on)
{
	struct ethtool_value value = { .cmd = command, .data = on };
	struct ifreq request = { .ifr_data = (void *)&value };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	strcpy(request.ifr_name, "lo");
	ASSERT_EQ(ioctl(fd, SIOCETHTOOL, &request), 0);
	close(fd);
}

static unsigned long retransmitted(void)
{
	FILE *file = fopen("/proc/net/snmp", "r");
	unsigned long n = 0;
	char line[512];

	ASSERT(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Tcp: %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %lu", &n) == 1)
			break;
	fclose(file);
	return n;
}

TEST_SECONDS(netem_loss_and_disorder, 90)
{
	unsigned long before = retransmitted();

	segmentation(ETHTOOL_STSO, 0);
	segmentation(ETHTOOL_SGSO, 0);
	disturb(2, 2);
	stress_share(&(struct pair_options){ .mss = 1000 }, 300000);
	stress_share(&(struct pair_options){ .mss = 1000, .rcvbuf = 30000 }, 200000);
	stress_share(&(struct pair_options){ .mss = 1400, .family = AF_INET6 }, 300000);
	leave_alone();
	printf("# %lu segments sent again\n", retransmitted() - before);
	ASSERT(retransmitted() > before);
	segmentation(ETHTOOL_STSO, 1);
	segmentation(ETHTOOL_SGSO, 1);
}
