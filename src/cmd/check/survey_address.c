/* SPDX-License-Identifier: Apache-2.0 */

/* The addresses at which this host can be reached, and which of them belong to an adapter. */

#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "cmd/check/survey.h"
#include "lane/verbs/verbs_connect.h"
#include "session/connect/offer_place.h"

struct addresses {
	unsigned count, usable; /* usable: those that librdmacm takes */
	union address at[OFFER_MAX];
	bool port_has[ADAPTERS_MAX]; /* by index: an address belongs to this port */
};

static const struct adapter *find_port_behind(const struct survey *s, const union address *at)
{
	struct adapter is;

	if (!adapter_behind(s->sys, at, &is))
		return NULL;
	for (unsigned i = 0; i < s->port_count; i++)
		if (strcmp(s->ports[i].device, is.device) == 0 && s->ports[i].port == is.port)
			return &s->ports[i];
	return NULL;
}

/* Like survey_found(), with the address in the finding. */
static void report_address(const struct survey *s, const union address *at, bool rdma,
			   enum finding_state state, const char *remedy, const char *what)
{
	struct offer_place place = offer_place_make(at, TRANSPORT_TCP, 1);
	struct msg_finding m = {.state = (uint8_t)state, .family = place.family, .rdma = rdma};

	memcpy(m.addr, place.addr, sizeof m.addr);
	snprintf(m.name, sizeof m.name, "address");
	address_text(at, m.subject, sizeof m.subject);
	snprintf(m.remedy, sizeof m.remedy, "%s", remedy);
	snprintf(m.what, sizeof m.what, "%s", what);
	s->found(s->ctx, &m);
}

/* The GID that a RoCE connection from this address uses. */
static void describe_gid(const struct survey *s, const struct adapter *a, const union address *at,
			 char *to, size_t size)
{
	struct adapter_gid g;

	to[0] = '\0';
	if (a->kind == ADAPTER_ROCE && adapter_gid_for(s->sys, a, at, &g))
		snprintf(to, size, ", GID %u of RoCE %s", g.index,
			 g.type == GID_ROCE_2 ? "v2" : "v1");
}

static void look_at_address(const struct survey *s, struct addresses *l, unsigned i)
{
	const union address *at = &l->at[i];
	const struct adapter *a = find_port_behind(s, at);
	char netdev[ADAPTER_TEXT], what[TEXT_MAX], gid[64];
	bool rdma = verbs_behind(at);

	/* Lanes use it over RDMA only. */
	if (address_is_link_local(at) && !rdma)
		return;
	netdev_of_address(at, netdev, sizeof netdev);
	if (a)
		l->port_has[a - s->ports] = true;
	if (rdma)
		l->usable++;
	if (rdma && a) {
		describe_gid(s, a, at, gid, sizeof gid);
		snprintf(what, sizeof what, "on %s, which belongs to %s port %u%s", netdev,
			 a->device, a->port, gid);
		report_address(s, at, true, FINDING_OK, "", what);
	} else if (rdma) {
		snprintf(what, sizeof what, "on %s, for which librdmacm finds an adapter", netdev);
		report_address(s, at, true, FINDING_OK, "", what);
	} else if (a) {
		snprintf(what, sizeof what,
			 "on %s, which belongs to %s port %u, but librdmacm cannot use it", netdev,
			 a->device, a->port);
		report_address(s, at, false, FINDING_WARNING,
			       "see the other findings: a missing module or device file, or a port "
			       "that is down",
			       what);
	} else {
		snprintf(what, sizeof what, "on %s, which has no RDMA adapter", netdev);
		report_address(s, at, false, FINDING_INFO, "", what);
	}
}

/* Connections are made by IP address, so a port without one is of no use. */
static void report_missing_address(const struct survey *s, const struct adapter *a)
{
	char port[ADAPTER_TEXT * 2], remedy[TEXT_MAX];

	survey_port_text(a, port, sizeof port);
	if (a->kind == ADAPTER_INFINIBAND && !a->netdev[0])
		snprintf(remedy, sizeof remedy,
			 "as root: modprobe ib_ipoib, then give its network device (ib0) an "
			 "address: ip addr add ADDRESS/LENGTH dev ib0");
	else
		snprintf(remedy, sizeof remedy,
			 "ip addr add ADDRESS/LENGTH dev %s; ip link set dev %s up",
			 a->netdev[0] ? a->netdev : "NETDEV", a->netdev[0] ? a->netdev : "NETDEV");
	survey_found(s, FINDING_WARNING, "address", port, remedy,
		     "its network device%s%s has no IP address, so no connection can use it",
		     a->netdev[0] ? " " : "", a->netdev);
}

void survey_addresses(const struct survey *s)
{
	struct offer_rules rules = {.only = "", .rdma = true};
	struct addresses l = {0};

	if (offer_place_find_own(&rules, l.at, OFFER_MAX, &l.count))
		return;
	for (unsigned i = 0; i < l.count; i++)
		look_at_address(s, &l, i);
	for (unsigned i = 0; i < s->port_count; i++) {
		const struct adapter *a = &s->ports[i];

		if (a->state == PORT_ACTIVE && survey_is_here(a) && a->kind != ADAPTER_OTHER &&
		    !l.port_has[i])
			report_missing_address(s, a);
	}
	if (survey_has_active(s) && !l.usable)
		survey_found(s, FINDING_FAILURE, "addresses", "",
			     "give the network device of the adapter an address, and use it to "
			     "reach this host",
			     "no address of this host belongs to a usable RDMA adapter");
	else if (!l.count)
		survey_found(s, FINDING_INFO, "addresses", "", NULL,
			     "this host has only loopback addresses");
}
