/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/nics.h"

#include <string.h>
#include <unistd.h>
#include "base/cpu.h"
#include "base/fail.h"
#include "base/memory.h"
#include "lane/memlock.h"

/* ---- ports ------------------------------------------------------------------------------- */

int nics_find_port(struct port_list *l, const union address *local)
{
	struct adapter a;

	if (!adapter_behind(NULL, local, &a) || a.state != PORT_ACTIVE)
		return -1;
	for (unsigned i = 0; i < l->count; i++)
		if (l->ports[i].port == a.port && strcmp(l->ports[i].device, a.device) == 0)
			return (int)i;
	if (l->count == OFFER_MAX)
		return -1;
	l->ports[l->count] = a;
	return (int)l->count++;
}

/* ---- the survey ---------------------------------------------------------------------------- */

static void survey_nic_ports(const union address *at, unsigned count, unsigned rails,
			     struct sizing_for *out)
{
	unsigned best = 0, links = 0;
	struct port_list l = {.count = 0};

	for (unsigned i = 0; i < count; i++)
		nics_find_port(&l, &at[i]);
	for (unsigned i = 0; i < l.count; i++) {
		unsigned rate = l.ports[i].rate_mbits;

		if (rate > best)
			links = 0;
		if (rate >= best)
			links++;
		if (rate > best)
			best = rate;
	}
	if (rails && links > rails)
		links = rails;
	if (links == 0)
		links = 1;
	out->links = links;
	out->rate = (uint64_t)best * links;
}

static void survey_netdevs(const union address *at, unsigned count, struct sizing_for *out)
{
	out->links = 1;
	for (unsigned i = 0; i < count; i++) {
		char name[ADAPTER_TEXT];
		unsigned rate;

		if (address_is_loopback(&at[i]) || !netdev_of_address(&at[i], name, sizeof name))
			continue;
		rate = netdev_mbits(name);
		if (rate > out->rate)
			out->rate = rate;
	}
}

static unsigned count_cores(void)
{
	unsigned mine = cpu_count();
	long all;

	if (mine)
		return mine;
	all = sysconf(_SC_NPROCESSORS_ONLN);
	return all > 0 ? (unsigned)all : 1;
}

void nics_find_links(const struct offer_rules *rules, bool rdma, unsigned rails,
		     struct sizing_for *out)
{
	struct offer_rules mine = *rules;
	union address at[OFFER_MAX];
	unsigned count;

	*out = (struct sizing_for){
		.links = 1,
		.rdma = rdma,
		.cores = count_cores(),
		.lockable = rdma ? memlock_limit() : UINT64_MAX,
		.memory = memory_bytes(),
	};
	/* The listening end reports a wrong --address. */
	mine.rdma = rdma;
	if (offer_place_find_own(&mine, at, OFFER_MAX, &count) < 0) {
		fail_clear();
		return;
	}
	if (rdma)
		survey_nic_ports(at, count, rails, out);
	else
		survey_netdevs(at, count, out);
}
