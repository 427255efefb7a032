/* SPDX-License-Identifier: Apache-2.0 */

/* Ports of adapters: state, PCIe, MTU, GIDs, firmware, NUMA. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "cmd/check/survey.h"
#include "host/numa.h"
#include "lane/verbs/verbs_connect.h"
#include "lane/verbs/verbs_port.h"

enum { MTU_LEAST = 256, MTU_BEST = 4096, NETDEV_MTU_BEST = 4200 };
enum { GIDS_SHOWN = 6 };

struct port {
	const struct survey *s;
	const struct adapter *a;
	char name[ADAPTER_TEXT * 2];
};

/* ---- state ----------------------------------------------------------------------------------- */

static void state_remedy(const struct adapter *a, char *to, size_t size)
{
	bool infiniband = a->kind == ADAPTER_INFINIBAND, off = strstr(a->physical, "Disabled");

	if (infiniband && a->state >= PORT_INIT)
		snprintf(to, size,
			 "the link is up, but no subnet manager has configured it: start opensm "
			 "on one host of the fabric, or the subnet manager of the switch");
	else if (infiniband && off)
		snprintf(to, size, "it is switched off: ibportstate -C %s -D 0 %u enable",
			 a->device, a->port);
	else if (infiniband)
		snprintf(to, size,
			 "check that the cable is plugged in at both ends and the peer is "
			 "switched on");
	else if (off)
		snprintf(to, size, "it is switched off: ip link set dev %s up", a->netdev);
	else
		snprintf(to, size,
			 "check that the cable is plugged in at both ends, the peer is switched "
			 "on, and %s is up (ip link set dev %s up)",
			 a->netdev, a->netdev);
}

static void look_at_state(const struct port *p)
{
	const struct adapter *a = p->a;
	bool active = a->state == PORT_ACTIVE, known = a->kind != ADAPTER_OTHER;
	const char *link = a->state_text[0] ? a->state_text : "state unknown";
	char remedy[TEXT_MAX] = "";
	enum finding_state state = FINDING_OK;

	if (known && !survey_is_here(a)) {
		survey_found(p->s, FINDING_INFO, "port", p->name, NULL,
			     "%s, %s; its network device is in another network namespace", link,
			     adapter_kind_text(a->kind));
		return;
	}
	if (!known)
		state = FINDING_INFO;
	else if (!active)
		state = survey_has_active(p->s) ? FINDING_WARNING : FINDING_FAILURE;
	if (known && !active)
		state_remedy(a, remedy, sizeof remedy);
	survey_found(p->s, state, "port", p->name, remedy, "%s%s%s, %s%s%s%s%s%s%s%s", link,
		     a->physical[0] ? ", " : "", a->physical, adapter_kind_text(a->kind),
		     a->rate_text[0] ? ", " : "", a->rate_text,
		     a->software ? " (emulated in software: not faster than TCP)" : "",
		     a->netdev[0] ? ", " : "", a->netdev, a->driver[0] ? ", " : "", a->driver);
}

/* ---- PCIe ------------------------------------------------------------------------------------ */

static const char *pcie_link_text(const struct pcie_link *l, char *to, size_t size)
{
	snprintf(to, size, "%u.%u GT/s x%u", l->mtransfers / 1000, l->mtransfers % 1000 / 100,
		 l->width);
	return to;
}

/* narrow, slow: compared with what the adapter supports. */
static void pcie_remedy(const struct adapter *a, bool narrow, bool slow, char *to, size_t size)
{
	const struct pcie_link *now = &a->pcie_now, *slot = &a->pcie_slot;
	unsigned is = narrow ? now->width : now->mtransfers;
	unsigned most = narrow ? slot->width : slot->mtransfers;

	if (!narrow && !slow)
		snprintf(to, size,
			 "the port is faster than the adapter's own PCIe interface: only "
			 "another adapter helps");
	else if (!most)
		snprintf(to, size,
			 "compare with the slot (lspci -vv -s %s: LnkCap, LnkSta; the manual of "
			 "the host); if the slot supports more, reseat the adapter",
			 a->pci);
	else if (most <= is)
		snprintf(to, size,
			 "the slot does not support more: move the adapter to a wider or newer "
			 "slot");
	else
		snprintf(to, size,
			 "the slot supports more than was negotiated: reseat the adapter, and "
			 "check risers and the PCIe settings of the host's firmware");
}

static void look_at_pcie(const struct port *p)
{
	const struct adapter *a = p->a;
	const struct pcie_link *now = &a->pcie_now, *most = &a->pcie_adapter;
	unsigned mbits = pcie_mbits(now);
	bool short_of_rate = a->rate_mbits && mbits < a->rate_mbits;
	bool narrow = most->width && now->width < most->width;
	bool slow = most->mtransfers && now->mtransfers < most->mtransfers;
	char is[40], can[40], share[128] = "", remedy[TEXT_MAX];

	if (a->software)
		return;
	if (!mbits) {
		survey_found(p->s, FINDING_INFO, "pcie", p->name, NULL,
			     "the kernel does not report the speed and width of the link at %s",
			     a->pci);
		return;
	}
	pcie_link_text(now, is, sizeof is);
	pcie_link_text(most, can, sizeof can);
	if (short_of_rate)
		snprintf(share, sizeof share, ": at most %.0f Gbit/s, but the port has %.0f",
			 mbits / 1e3, a->rate_mbits / 1e3);
	if (!narrow && !slow && !short_of_rate) {
		survey_found(p->s, FINDING_OK, "pcie", p->name, NULL, "%s (%.0f Gbit/s) at %s", is,
			     mbits / 1e3, a->pci);
		return;
	}
	pcie_remedy(a, narrow, slow, remedy, sizeof remedy);
	survey_found(p->s, FINDING_WARNING, "pcie", p->name, remedy,
		     "%s at %s is %s the adapter supports (%s)%s", is, a->pci,
		     narrow ? "narrower than"
		     : slow ? "slower than"
			    : "all that",
		     can, share);
}

/* ---- MTU ------------------------------------------------------------------------------------- */

/* The largest RDMA MTU that fits, with its headers, into packets of the network device. */
static unsigned mtu_within(unsigned netdev_mtu)
{
	unsigned mtu = MTU_BEST;

	while (mtu > MTU_LEAST && mtu + 80 > netdev_mtu)
		mtu /= 2;
	return mtu;
}

static void look_at_mtu(const struct port *p, const struct adapter_verbs *v)
{
	const struct adapter *a = p->a;
	unsigned mtu = v->mtu;
	char remedy[TEXT_MAX] = "";

	if (!mtu && a->kind == ADAPTER_ROCE && a->netdev_mtu)
		mtu = mtu_within(a->netdev_mtu);
	if (!mtu && !a->netdev_mtu)
		return;
	if (a->kind == ADAPTER_ROCE && mtu < MTU_BEST && mtu_within(a->netdev_mtu) < MTU_BEST) {
		snprintf(remedy, sizeof remedy,
			 "ip link set dev %s mtu 9000 (%d is enough), on both hosts, and a "
			 "matching MTU on all switches between them",
			 a->netdev, NETDEV_MTU_BEST);
		survey_found(p->s, FINDING_WARNING, "mtu", p->name, remedy,
			     "RDMA packets carry %u bytes, since %s has an MTU of %u; packets of "
			     "4096 bytes have less overhead",
			     mtu, a->netdev, a->netdev_mtu);
	} else if (a->kind == ADAPTER_INFINIBAND && mtu && mtu < MTU_BEST &&
		   v->mtu_most >= MTU_BEST) {
		survey_found(p->s, FINDING_INFO, "mtu", p->name,
			     "the subnet manager sets the MTU: use mtu=5 (4096) in opensm's "
			     "partitions.conf",
			     "packets carry %u bytes, but the port supports %u", mtu, v->mtu_most);
	} else if (a->kind == ADAPTER_IWARP || !mtu) {
		survey_found(p->s, FINDING_OK, "mtu", p->name, NULL, "%s has an MTU of %u",
			     a->netdev, a->netdev_mtu);
	} else if (!a->netdev_mtu) {
		survey_found(p->s, FINDING_OK, "mtu", p->name, NULL, "%u, no network device", mtu);
	} else {
		survey_found(p->s, FINDING_OK, "mtu", p->name, NULL, "%u, %s %u", mtu, a->netdev,
			     a->netdev_mtu);
	}
}

/* ---- GIDs ------------------------------------------------------------------------------------ */

/* "::ffff:10.0.0.1" */
static const char *gid_text(const struct adapter_gid *g, char *to, size_t size)
{
	union address a = {.in6 = {.sin6_family = AF_INET6}};

	memcpy(&a.in6.sin6_addr, g->raw, sizeof g->raw);
	return address_text(&a, to, size);
}

/* Lists the first GIDs of a type, by index. Returns how many there are. */
static unsigned list_gids(const struct port *p, enum gid_type type, char *to, size_t size)
{
	struct adapter_gid gids[ADAPTER_GIDS_MAX];
	unsigned n = adapter_gids(p->s->sys, p->a, gids, ADAPTER_GIDS_MAX), count = 0;
	size_t used = 0;
	char text[80];

	to[0] = '\0';
	for (unsigned i = 0; i < n; i++) {
		if (gids[i].type != type || count++ >= GIDS_SHOWN)
			continue;
		used += (size_t)snprintf(to + used, size - used, "%s%u %s", used ? ", " : "",
					 gids[i].index, gid_text(&gids[i], text, sizeof text));
	}
	if (count > GIDS_SHOWN)
		snprintf(to + used, size - used, ", ...");
	return count;
}

static void look_at_gids_of_roce(const struct port *p)
{
	enum gid_type type = adapter_gid_type(p->s->sys, p->a);
	char list[TEXT_MAX / 2], remedy[TEXT_MAX];

	if (!list_gids(p, type, list, sizeof list)) {
		snprintf(remedy, sizeof remedy,
			 "give its network device an IP address: ip addr add ADDRESS/LENGTH dev %s",
			 p->a->netdev);
		survey_found(p->s, FINDING_WARNING, "gid", p->name, remedy,
			     "no GID of RoCE %s is set, so connections have no source address",
			     type == GID_ROCE_2 ? "v2" : "v1");
	} else if (type == GID_ROCE_2) {
		survey_found(p->s, FINDING_OK, "gid", p->name, NULL,
			     "connections use RoCE v2 (UDP port 4791); its GIDs: %s", list);
	} else {
		snprintf(remedy, sizeof remedy,
			 "RoCE v2 passes routers and is spread over links; if the adapter "
			 "supports it: cma_roce_mode -d %s -p %u -m 2",
			 p->a->device, p->a->port);
		survey_found(p->s, FINDING_WARNING, "gid", p->name, remedy,
			     "connections use RoCE v1, which is Ethernet without IP; its GIDs: %s",
			     list);
	}
}

static void look_at_gids(const struct port *p)
{
	char list[TEXT_MAX / 2];

	if (p->a->kind == ADAPTER_ROCE)
		look_at_gids_of_roce(p);
	else if (p->a->kind == ADAPTER_INFINIBAND && list_gids(p, GID_IB, list, sizeof list))
		survey_found(p->s, FINDING_OK, "gid", p->name, NULL, "its GIDs: %s", list);
}

/* ---- firmware, NUMA -------------------------------------------------------------------------- */

static void look_at_firmware(const struct port *p)
{
	const struct adapter *a = p->a;

	if (a->software)
		return;
	survey_found(p->s, FINDING_INFO, "firmware", p->name, NULL, "%s%s%s%s%s",
		     a->firmware[0] ? a->firmware : "unknown version",
		     a->model[0] ? ", model " : "", a->model, a->board[0] ? ", board " : "",
		     a->board);
}

static void look_at_node(const struct port *p)
{
	const struct adapter *a = p->a;
	cpu_set_t of_node, ours, both;
	char remedy[TEXT_MAX];

	if (a->software)
		return;
	if (a->numa_node < 0) {
		if (numa_node_cpus(p->s->sys, 1, &of_node))
			survey_found(p->s, FINDING_INFO, "numa", p->name, NULL,
				     "the host's firmware does not report its node");
		return;
	}
	if (!numa_node_cpus(p->s->sys, a->numa_node, &of_node) ||
	    sched_getaffinity(0, sizeof ours, &ours))
		return;
	CPU_AND(&both, &of_node, &ours);
	if (CPU_COUNT(&both)) {
		survey_found(p->s, FINDING_OK, "numa", p->name, NULL,
			     "node %d; this process may use %d of its %d processors", a->numa_node,
			     CPU_COUNT(&both), CPU_COUNT(&of_node));
		return;
	}
	snprintf(remedy, sizeof remedy,
		 "taskset, a cpuset or AllowedCPUs= excludes them; to run on the node: taskset "
		 "-c $(cat /sys/devices/system/node/node%d/cpulist) rdcp ...",
		 a->numa_node);
	survey_found(p->s, FINDING_WARNING, "numa", p->name, remedy,
		     "this process may use no processor of node %d: all data crosses between nodes",
		     a->numa_node);
}

/* ---- a port ---------------------------------------------------------------------------------- */

static void look_at_verbs(const struct port *p, struct adapter_verbs *v)
{
	*v = (struct adapter_verbs){0};
	/* In a test's tree there are no devices to query. */
	if (p->s->top[0] || !verbs_built() || verbs_port_query(p->a, v) == 0)
		return;
	survey_found(p->s, FINDING_FAILURE, "verbs", p->name,
		     "install the provider of the adapter for libibverbs: the package "
		     "ibverbs-providers (RPM: libibverbs), or the vendor's own",
		     "%s", failed()->text);
}

/* There may be RDMA devices, but none that connections can use. */
static void check_usable_ports(const struct survey *s)
{
	bool elsewhere = false;

	for (unsigned i = 0; i < s->port_count; i++) {
		const struct adapter *a = &s->ports[i];

		if (a->kind == ADAPTER_OTHER)
			continue;
		if (survey_is_here(a))
			return;
		elsewhere = true;
	}
	if (elsewhere)
		survey_found(s, FINDING_FAILURE, "adapter", "",
			     "for a container: start it with --network=host; for a namespace: ip "
			     "link set dev NETDEV netns NAME",
			     "the network devices of all RDMA adapters are in another network "
			     "namespace");
	else
		survey_found(
			s, FINDING_FAILURE, "adapter", "",
			"transfers use TCP; RDMA needs an adapter for InfiniBand, RoCE or "
			"iWARP; if this adapter should support one, look for messages about it "
			"in dmesg",
			"no RDMA device of this host supports InfiniBand, RoCE or iWARP");
}

void survey_ports(const struct survey *s)
{
	if (s->port_count)
		check_usable_ports(s);
	for (unsigned i = 0; i < s->port_count; i++) {
		struct port p = {.s = s, .a = &s->ports[i]};
		struct adapter_verbs v;

		survey_port_text(p.a, p.name, sizeof p.name);
		look_at_state(&p);
		if (p.a->kind == ADAPTER_OTHER || !survey_is_here(p.a))
			continue;
		look_at_verbs(&p, &v);
		look_at_pcie(&p);
		if (p.a->state == PORT_ACTIVE) {
			look_at_mtu(&p, &v);
			look_at_gids(&p);
			survey_traffic(s, p.a);
		}
		survey_ordering(s, p.a);
		look_at_firmware(&p);
		look_at_node(&p);
	}
}
