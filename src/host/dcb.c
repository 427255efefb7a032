/* SPDX-License-Identifier: Apache-2.0 */
#include "host/dcb.h"

#include <errno.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "base/io.h"

enum { ANSWER_MAX = 8192, ANSWER_S = 2 };

/* ---- attributes ------------------------------------------------------------------------------ */

/* Takes the next attribute of `left' bytes at *at. Returns its type, -1 at the end. */
static int take_attribute(const uint8_t **at, size_t *left, const uint8_t **value, size_t *len)
{
	struct nlattr head;
	size_t whole;

	if (*left < sizeof head)
		return -1;
	memcpy(&head, *at, sizeof head);
	if (head.nla_len < sizeof head || head.nla_len > *left)
		return -1;
	*value = *at + sizeof head;
	*len = head.nla_len - sizeof head;
	whole = NLA_ALIGN(head.nla_len);
	if (whole > *left)
		whole = *left;
	*at += whole;
	*left -= whole;
	return head.nla_type & NLA_TYPE_MASK;
}

static void decode_pfc(const uint8_t *value, size_t len, struct dcb *out)
{
	if (len < offsetof(struct ieee_pfc, mbc))
		return;
	out->has_pfc = true;
	out->pfc = value[offsetof(struct ieee_pfc, pfc_en)];
}

/* Each entry maps something to a priority. Those of one selector map DSCPs, and Ethertype 0 stands
 * for packets that no entry maps (default-prio of dcb-app(8)). */
static void decode_priorities(const uint8_t *at, size_t left, struct dcb *out)
{
	const uint8_t *value;
	struct dcb_app app;
	size_t len;

	while (left > 0) {
		int type = take_attribute(&at, &left, &value, &len);

		if (type < 0)
			return;
		if (type != DCB_ATTR_IEEE_APP || len < sizeof app)
			continue;
		memcpy(&app, value, sizeof app);
		if (app.priority >= DCB_PRIORITIES)
			continue;
		if (app.selector == IEEE_8021QAZ_APP_SEL_ETHERTYPE && app.protocol == 0)
			out->default_priority = app.priority;
		if (app.selector != IEEE_8021QAZ_APP_SEL_DSCP || app.protocol >= DCB_DSCPS)
			continue;
		out->has_dscps = true;
		out->priority[app.protocol] = (int8_t)app.priority;
	}
}

static void decode_ieee(const uint8_t *at, size_t left, struct dcb *out)
{
	const uint8_t *value;
	size_t len;
	int type;

	while ((type = take_attribute(&at, &left, &value, &len)) >= 0) {
		if (type == DCB_ATTR_IEEE_PFC)
			decode_pfc(value, len, out);
		else if (type == DCB_ATTR_IEEE_APP_TABLE)
			decode_priorities(value, len, out);
	}
}

int dcb_decode(const void *message, size_t len, struct dcb *out)
{
	const uint8_t *at = message, *value;
	struct nlmsghdr head;
	struct nlmsgerr error;
	size_t left;
	int type;

	*out = (struct dcb){.has_pfc = false};
	memset(out->priority, -1, sizeof out->priority);
	errno = EBADMSG;
	if (len < sizeof head)
		return -1;
	memcpy(&head, at, sizeof head);
	if (head.nlmsg_len < sizeof head || head.nlmsg_len > len)
		return -1;
	if (head.nlmsg_type == NLMSG_ERROR && len >= sizeof head + sizeof error) {
		memcpy(&error, at + NLMSG_HDRLEN, sizeof error);
		errno = error.error < 0 ? -error.error : EBADMSG;
		return -1;
	}
	if (head.nlmsg_len < NLMSG_LENGTH(sizeof(struct dcbmsg)))
		return -1;
	left = head.nlmsg_len - NLMSG_LENGTH(sizeof(struct dcbmsg));
	at += NLMSG_LENGTH(sizeof(struct dcbmsg));
	while ((type = take_attribute(&at, &left, &value, &len)) >= 0)
		if (type == DCB_ATTR_IEEE)
			decode_ieee(value, len, out);
	return 0;
}

/* ---- the question ---------------------------------------------------------------------------- */

struct dcb_question {
	struct nlmsghdr head;
	struct dcbmsg dcb;
	struct nlattr name;
	char netdev[IFNAMSIZ];
};

static int open_netlink(void)
{
	const struct timeval patience = {.tv_sec = ANSWER_S};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0)
		return fd;
	close_fd(fd);
	return -1;
}

int dcb_query(const char *netdev, struct dcb *out)
{
	struct dcb_question q = {
		.head = {.nlmsg_len = sizeof q,
			 .nlmsg_type = RTM_GETDCB,
			 .nlmsg_flags = NLM_F_REQUEST},
		.dcb = {.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET},
		.name = {.nla_len = sizeof q.name + sizeof q.netdev, .nla_type = DCB_ATTR_IFNAME},
	};
	uint8_t answer[ANSWER_MAX];
	size_t len = strlen(netdev);
	ssize_t got = -1;
	int fd;

	errno = ENODEV;
	if (len >= sizeof q.netdev)
		return -1;
	memcpy(q.netdev, netdev, len);
	fd = open_netlink();
	if (fd < 0)
		return -1;
	if (send(fd, &q, sizeof q, 0) == (ssize_t)sizeof q)
		got = recv(fd, answer, sizeof answer, 0);
	close_fd(fd);
	return got < 0 ? -1 : dcb_decode(answer, (size_t)got, out);
}
