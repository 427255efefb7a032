/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/early.h"

#include <stdlib.h>
#include "base/fail.h"
#include "host/numa.h"
#include "host/sysfs.h"
#include "lane/memlock.h"
#include "lane/verbs/verbs_connect.h"
#include "session/connect/nics.h"

/* All addresses that an OFFER may have. */
static unsigned find_own(int family, union address at[static OFFER_MAX])
{
	const struct offer_rules rules = {
		.only = "", .same_host = true, .rdma = true, .family = family};
	unsigned count = 0;

	if (offer_place_find_own(&rules, at, OFFER_MAX, &count) < 0)
		fail_clear();
	return count;
}

/* Reads what sessions will ask about the adapters of this host. */
static void read_adapters(void)
{
	struct adapter *list;
	cpu_set_t cpus;
	unsigned count;

	if (adapters_list(NULL, &list, &count) < 0) {
		fail_clear();
		return;
	}
	for (unsigned i = 0; i < count; i++)
		numa_node_cpus(NULL, numa_node_of(NULL, list[i].device), &cpus);
	free(list);
}

static void read_addresses(void)
{
	union address at[OFFER_MAX];
	unsigned count = find_own(0, at);

	for (unsigned i = 0; i < count; i++) {
		struct adapter found;
		char name[ADAPTER_TEXT];

		adapter_behind(NULL, &at[i], &found);
		netdev_mtu(&at[i]);
		if (netdev_of_address(&at[i], name, sizeof name))
			netdev_mbits(name);
	}
}

bool early_read(void)
{
	char why[256];

	sysfs_keep();
	if (!verbs_present(why, sizeof why)) {
		sysfs_forget();
		return false;
	}
	read_adapters();
	read_addresses();
	(void)memlock_limit();
	verbs_load();
	return true;
}

void early_open(int family)
{
	union address at[OFFER_MAX];
	unsigned count = find_own(family, at);

	sysfs_freeze();
	verbs_reserve(at, count, EARLY_LANES);
}

void early_close(void)
{
	verbs_release();
}
