/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the adapter of an address; GIDs; network devices. */

#include <ifaddrs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host/adapter.h"
#include "host/sysfs.h"

enum { LOWER_MOST = 3 }; /* a VLAN on a bond on a port */

static bool parse_gid(const char *text, uint8_t raw[16])
{
	unsigned v[8];
	unsigned any = 0;

	if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", v, v + 1, v + 2, v + 3, v + 4, v + 5,
		   v + 6, v + 7) != 8)
		return false;
	for (unsigned i = 0; i < 8; i++) {
		raw[2 * i] = (uint8_t)(v[i] >> 8);
		raw[2 * i + 1] = (uint8_t)v[i];
		/* An unset GID has at most a prefix. */
		any |= i < 4 ? 0 : v[i];
	}
	return any != 0;
}

unsigned adapter_gids(const char *root, const struct adapter *a, struct adapter_gid *to,
		      unsigned max)
{
	char port[PATH_MAX], text[ADAPTER_TEXT];
	struct dirent **names;
	unsigned n = 0;
	int count;

	snprintf(port, sizeof port, "%s/class/infiniband/%s/ports/%u", sysfs_root(root), a->device,
		 a->port);
	count = sysfs_names(&names, "%s/gids", port);
	for (int i = 0; i < count && n < max; i++) {
		const char *index = names[i]->d_name;
		struct adapter_gid *g = &to[n];

		if (!sysfs_text(text, sizeof text, "%s/gids/%s", port, index) ||
		    !parse_gid(text, g->raw))
			continue;
		g->index = (unsigned)strtoul(index, NULL, 10);
		sysfs_text(text, sizeof text, "%s/gid_attrs/types/%s", port, index);
		g->type = strstr(text, "v2")        ? GID_ROCE_2
			  : a->kind == ADAPTER_ROCE ? GID_ROCE_1
						    : GID_IB;
		sysfs_text(g->netdev, sizeof g->netdev, "%s/gid_attrs/ndevs/%s", port, index);
		n++;
	}
	sysfs_names_free(names, count);
	return n;
}

/* The kernel prefers RoCE v2 unless the administrator configured the port otherwise. */
enum gid_type adapter_gid_type(const char *root, const struct adapter *a)
{
	struct adapter_gid gids[ADAPTER_GIDS_MAX];
	unsigned n = adapter_gids(root, a, gids, ADAPTER_GIDS_MAX);
	char mode[ADAPTER_TEXT];

	if (a->kind != ADAPTER_ROCE)
		return GID_IB;
	if (sysfs_text(mode, sizeof mode, "%s/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode",
		       sysfs_root(root), a->device, a->port))
		return strstr(mode, "v2") ? GID_ROCE_2 : GID_ROCE_1;
	for (unsigned i = 0; i < n; i++)
		if (gids[i].type == GID_ROCE_2)
			return GID_ROCE_2;
	return GID_ROCE_1;
}

bool adapter_gid_for(const char *root, const struct adapter *a, const union address *local,
		     struct adapter_gid *out)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct adapter_gid gids[ADAPTER_GIDS_MAX];
	unsigned n = adapter_gids(root, a, gids, ADAPTER_GIDS_MAX);
	enum gid_type type = adapter_gid_type(root, a);
	uint8_t raw[16];

	if (local->sa.sa_family == AF_INET) {
		memcpy(raw, mapped, sizeof mapped);
		memcpy(raw + 12, &local->in4.sin_addr, 4);
	} else {
		memcpy(raw, &local->in6.sin6_addr, 16);
	}
	for (unsigned i = 0; i < n; i++)
		if (gids[i].type == type && memcmp(gids[i].raw, raw, sizeof raw) == 0) {
			*out = gids[i];
			return true;
		}
	return false;
}

/* ---- network devices ------------------------------------------------------------------------- */

static bool has_gid_at(const char *root, const struct adapter *a, const char *netdev)
{
	struct adapter_gid gids[ADAPTER_GIDS_MAX];
	unsigned n = adapter_gids(root, a, gids, ADAPTER_GIDS_MAX);

	for (unsigned i = 0; i < n; i++)
		if (strcmp(gids[i].netdev, netdev) == 0)
			return true;
	return false;
}

/* Whether an IPoIB device belongs to this port. It reports its PCI function and port; so does a
 * child interface. */
static bool is_at_function(const char *root, const struct adapter *a, const char *netdev)
{
	char pci[ADAPTER_TEXT];

	return a->kind == ADAPTER_INFINIBAND && a->pci[0] &&
	       sysfs_link(pci, sizeof pci, "%s/class/net/%s/device", root, netdev) &&
	       strcmp(pci, a->pci) == 0 &&
	       sysfs_number(0, "%s/class/net/%s/dev_port", root, netdev) == (long)a->port - 1;
}

/* Finds the port of a network device. An active port is preferred. */
static const struct adapter *find_netdev_port(const char *root, const struct adapter *all,
					      unsigned count, const char *netdev)
{
	const struct adapter *found = NULL;

	for (unsigned i = 0; i < count; i++)
		if (strcmp(all[i].netdev, netdev) == 0 && (!found || found->state != PORT_ACTIVE))
			found = &all[i];
	for (unsigned i = 0; i < count && !found; i++)
		if (is_at_function(root, &all[i], netdev) || has_gid_at(root, &all[i], netdev))
			found = &all[i];
	return found;
}

/* Finds the port of netdev, or of a device below it. */
static const struct adapter *find_port_below(const char *root, const struct adapter *all,
					     unsigned count, const char *netdev, unsigned depth)
{
	const struct adapter *found = find_netdev_port(root, all, count, netdev);
	struct dirent **names;
	int n;

	if (found || depth == LOWER_MOST)
		return found;
	n = sysfs_names(&names, "%s/class/net/%s", root, netdev);
	for (int i = 0; i < n && !found; i++)
		if (strncmp(names[i]->d_name, "lower_", 6) == 0)
			found = find_port_below(root, all, count, names[i]->d_name + 6, depth + 1);
	sysfs_names_free(names, n);
	return found;
}

bool adapter_at_netdev(const char *root, const char *netdev, struct adapter *out)
{
	const struct adapter *found;
	struct adapter *all;
	unsigned count;

	if (adapters_list(root, &all, &count) < 0)
		return false;
	found = count ? find_port_below(sysfs_root(root), all, count, netdev, 0) : NULL;
	if (found)
		*out = *found;
	free(all);
	return found != NULL;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Several devices may have the same link-local address, as a VLAN's has that of the device below
 * it. The zone tells them apart, where it is known. */
static bool is_same_address(const struct sockaddr *sa, const union address *a)
{
	const struct sockaddr_in6 *in6;

	if (!sa || sa->sa_family != a->sa.sa_family)
		return false;
	if (sa->sa_family == AF_INET)
		return memcmp(&((const struct sockaddr_in *)(const void *)sa)->sin_addr,
			      &a->in4.sin_addr, sizeof a->in4.sin_addr) == 0;
	in6 = (const struct sockaddr_in6 *)(const void *)sa;
	return memcmp(&in6->sin6_addr, &a->in6.sin6_addr, sizeof a->in6.sin6_addr) == 0 &&
	       (!a->in6.sin6_scope_id || !in6->sin6_scope_id ||
		a->in6.sin6_scope_id == in6->sin6_scope_id);
}

bool netdev_of_address(const union address *local, char *to, size_t size)
{
	struct ifaddrs *all;
	bool found = false;

	to[0] = '\0';
	if (getifaddrs(&all) < 0)
		return false;
	for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
		found = is_same_address(i->ifa_addr, local);
		if (found)
			snprintf(to, size, "%s", i->ifa_name);
	}
	freeifaddrs(all);
	return found;
}

bool adapter_behind(const char *root, const union address *local, struct adapter *out)
{
	char netdev[ADAPTER_TEXT];

	if (!netdev_of_address(local, netdev, sizeof netdev))
		return false;
	/* getifaddrs(3) may return an address label ("eth0:1"), not the device. */
	netdev[strcspn(netdev, ":")] = '\0';
	return adapter_at_netdev(root, netdev, out);
}

unsigned netdev_mtu(const union address *local)
{
	char name[ADAPTER_TEXT];

	if (!netdev_of_address(local, name, sizeof name))
		return 0;
	return (unsigned)sysfs_number(0, "%s/class/net/%s/mtu", sysfs_root(NULL), name);
}

unsigned netdev_mbits(const char *netdev)
{
	/* -1 means unknown. */
	long rate = strchr(netdev, '/')
			    ? 0
			    : sysfs_number(0, "%s/class/net/%s/speed", sysfs_root(NULL), netdev);

	return rate > 0 && rate <= INT_MAX ? (unsigned)rate : 0;
}
