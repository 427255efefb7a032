/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/bench.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include "host/adapter.h"
#include "host/own_address.h"
#include "host/sysfs.h"

static double mbits_to_bytes(double mbits)
{
	return mbits * 1e6 / 8;
}

/* The rate of the fastest active port of this device; 0: unknown, or emulated. */
static double find_device_rate(const struct adapter *all, unsigned count, const char *name,
			       size_t len)
{
	double most = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct adapter *a = &all[i];

		if (strlen(a->device) == len && memcmp(a->device, name, len) == 0 && !a->software &&
		    a->state == PORT_ACTIVE && mbits_to_bytes(a->rate_mbits) > most)
			most = mbits_to_bytes(a->rate_mbits);
	}
	return most;
}

/* how: "mlx5_0 10.0.0.1:7000", or "mlx5_0, mlx5_1" for several rails, whose rates are added. */
static void sum_adapter_rates(const char *root, const char *how, struct nic_limit *out)
{
	const char *at = how;
	struct adapter *all;
	unsigned count;
	size_t len;
	bool more;

	if (adapters_list(root, &all, &count))
		return;
	do {
		double rate;

		len = strcspn(at, " ,");
		rate = find_device_rate(all, count, at, len);
		/* The limit is known only if all rates are. */
		if (rate <= 0) {
			out->rate = 0;
			break;
		}
		out->rate += rate;
		more = at[len] == ',';
		at += len;
		snprintf(out->name, sizeof out->name, "%.*s", (int)(at - how), how);
		at += strspn(at, ", ");
	} while (more && *at);
	free(all);
}

/* The address in "10.0.0.1:7000" or "[fe80::1%eth0]:7000". */
static bool parse_peer_address(const char *text, union address *a)
{
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 2], *zone;
	bool six = text[0] == '[';
	size_t len = strcspn(text + six, six ? "]" : ":");

	*a = (union address){0};
	if (len >= sizeof host)
		return false;
	memcpy(host, text + six, len);
	host[len] = '\0';
	if (!six) {
		a->in4.sin_family = AF_INET;
		return inet_pton(AF_INET, host, &a->in4.sin_addr) == 1;
	}
	zone = strchr(host, '%');
	if (zone)
		*zone++ = '\0';
	a->in6.sin6_family = AF_INET6;
	a->in6.sin6_scope_id = zone ? if_nametoindex(zone) : 0;
	return inet_pton(AF_INET6, host, &a->in6.sin6_addr) == 1;
}

/* Whether the device, or one below it, is hardware. Virtual devices report meaningless speeds. */
static bool is_hardware_netdev(const char *dev)
{
	struct dirent **names;
	int count = sysfs_names(&names, "/sys/class/net/%s", dev);
	bool real = false;

	for (int i = 0; i < count && !real; i++)
		real = strcmp(names[i]->d_name, "device") == 0 ||
		       strncmp(names[i]->d_name, "lower_", 6) == 0;
	sysfs_names_free(names, count);
	return real;
}

static void read_netdev_rate(const char *how, struct nic_limit *out)
{
	union address to, local;
	char dev[ADAPTER_TEXT];
	unsigned rate;

	if (!parse_peer_address(how, &to) || own_address_toward(&to, &local) ||
	    !netdev_of_address(&local, dev, sizeof dev))
		return;
	/* Traffic to an address of this host does not pass through its device. */
	if (address_same(&to, &local) || !is_hardware_netdev(dev))
		return;
	rate = netdev_mbits(dev);
	if (!rate)
		return;
	out->rate = mbits_to_bytes(rate);
	snprintf(out->name, sizeof out->name, "%s", dev);
}

void nic_limit_find(const char *root, const char *how, struct nic_limit *out)
{
	*out = (struct nic_limit){0};
	if (strncmp(how, "rdma ", 5) == 0)
		sum_adapter_rates(root, how + 5, out);
	else if (strncmp(how, "tcp ", 4) == 0)
		read_netdev_rate(how + 4, out);
}
