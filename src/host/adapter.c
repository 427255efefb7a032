/* SPDX-License-Identifier: Apache-2.0 */
#include "host/adapter.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "host/sysfs.h"

/* ---- the device ------------------------------------------------------------------------------ */

/* "8.0 GT/s PCIe", "8 GT/s", "Unknown" */
static unsigned parse_mtransfers(const char *text)
{
	char *end;
	double gt = strtod(text, &end);

	return end == text || gt < 0 || gt > 1000 ? 0 : (unsigned)(gt * 1000 + 0.5);
}

/* which: "current" or "max". A device that does not know its width reports 255 lanes. */
static struct pcie_link read_pcie_link(const char *dir, const char *where, const char *which)
{
	char speed[ADAPTER_TEXT];
	struct pcie_link link = {0};
	long width = sysfs_number(0, "%s/%s/%s_link_width", dir, where, which);

	sysfs_text(speed, sizeof speed, "%s/%s/%s_link_speed", dir, where, which);
	link.mtransfers = parse_mtransfers(speed);
	link.width = width > 0 && width <= 32 ? (unsigned)width : 0;
	return link;
}

static void read_pci(const char *dir, struct adapter *a)
{
	char physical[ADAPTER_TEXT];
	/* A virtual function uses the link of its physical function. */
	bool is_virtual = sysfs_link(physical, sizeof physical, "%s/device/physfn", dir);
	const char *where = is_virtual ? "device/physfn" : "device";

	a->numa_node = (int)sysfs_number(-1, "%s/device/numa_node", dir);
	sysfs_link(a->driver, sizeof a->driver, "%s/device/driver", dir);
	sysfs_link(a->pci, sizeof a->pci, "%s/device", dir);
	a->pcie_now = read_pcie_link(dir, where, "current");
	a->pcie_adapter = read_pcie_link(dir, where, "max");
	a->pcie_slot = read_pcie_link(dir, is_virtual ? "device/physfn/.." : "device/..", "max");
}

static enum adapter_kind classify_adapter(const char *node_type, const char *link_layer)
{
	if (strncmp(node_type, "4:", 2) == 0)
		return ADAPTER_IWARP;
	if (strncmp(node_type, "1:", 2) != 0)
		return ADAPTER_OTHER;
	return strcmp(link_layer, "Ethernet") == 0 ? ADAPTER_ROCE : ADAPTER_INFINIBAND;
}

static void read_device(const char *dir, const char *name, struct adapter *a)
{
	snprintf(a->device, sizeof a->device, "%s", name);
	sysfs_text(a->model, sizeof a->model, "%s/hca_type", dir);
	sysfs_text(a->board, sizeof a->board, "%s/board_id", dir);
	sysfs_text(a->firmware, sizeof a->firmware, "%s/fw_ver", dir);
	sysfs_text(a->node_guid, sizeof a->node_guid, "%s/node_guid", dir);
	read_pci(dir, a);
	a->software = a->pci[0] == '\0' || strchr(a->pci, ':') == NULL;
	if (a->software)
		a->pci[0] = '\0';
}

/* ---- a port ---------------------------------------------------------------------------------- */

/* "4: ACTIVE" */
static unsigned parse_numbered(const char *text, char *to, size_t size)
{
	const char *colon = strchr(text, ':');

	snprintf(to, size, "%s", colon ? colon + 1 + (colon[1] == ' ') : text);
	return colon ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* "100 Gb/sec (4X EDR)" */
static void read_rate(struct adapter *a)
{
	const char *paren = strchr(a->rate_text, '(');
	double gbits = strtod(a->rate_text, NULL);

	if (gbits > 0 && gbits < 1000000)
		a->rate_mbits = (unsigned)(gbits * 1000 + 0.5);
	if (paren)
		a->width = (unsigned)strtoul(paren + 1, NULL, 10);
}

/* Finds the driver and network device of a software adapter. Only rxe has a file `parent', which
 * names its network device. siw derives its GUID from that device's address. */
static void read_software(const char *root, const char *dir, struct adapter *a)
{
	char parent[ADAPTER_TEXT];
	struct dirent **names;
	int count;

	if (sysfs_text(parent, sizeof parent, "%s/parent", dir)) {
		snprintf(a->netdev, sizeof a->netdev, "%s", parent);
		snprintf(a->driver, sizeof a->driver, "rdma_rxe");
		return;
	}
	if (a->kind == ADAPTER_IWARP)
		snprintf(a->driver, sizeof a->driver, "siw");
	count = sysfs_names(&names, "%s/class/net", root);
	for (int i = 0; i < count && !a->netdev[0]; i++) {
		unsigned m[6];
		char mac[ADAPTER_TEXT], guid[ADAPTER_TEXT];

		sysfs_text(mac, sizeof mac, "%s/class/net/%s/address", root, names[i]->d_name);
		if (sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x", m, m + 1, m + 2, m + 3, m + 4, m + 5) !=
		    6)
			continue;
		snprintf(guid, sizeof guid, "%02x%02x:%02xff:fe%02x:%02x%02x", m[0] ^ 2, m[1], m[2],
			 m[3], m[4], m[5]);
		if (strcmp(guid, a->node_guid) == 0)
			snprintf(a->netdev, sizeof a->netdev, "%.*s", ADAPTER_TEXT - 1,
				 names[i]->d_name);
	}
	sysfs_names_free(names, count);
}

/* Finds the network device of the same PCI function that reports this port in dev_port. */
static void read_netdev_of_function(const char *root, const char *dir, struct adapter *a)
{
	struct dirent **names;
	int count = sysfs_names(&names, "%s/device/net", dir);

	for (int i = 0; i < count && !a->netdev[0]; i++) {
		const char *name = names[i]->d_name;
		long at = sysfs_number(0, "%s/class/net/%s/dev_port", root, name);

		if (count == 1 || at == (long)a->port - 1)
			snprintf(a->netdev, sizeof a->netdev, "%.*s", ADAPTER_TEXT - 1, name);
	}
	sysfs_names_free(names, count);
}

static void read_netdev(const char *root, const char *dir, struct adapter *a)
{
	sysfs_text(a->netdev, sizeof a->netdev, "%s/ports/%u/gid_attrs/ndevs/0", dir, a->port);
	if (!a->netdev[0])
		read_netdev_of_function(root, dir, a);
	if (a->software && (!a->netdev[0] || !a->driver[0]))
		read_software(root, dir, a);
	if (a->netdev[0])
		a->netdev_mtu = (unsigned)sysfs_number(0, "%s/class/net/%s/mtu", root, a->netdev);
}

static void read_port(const char *root, const char *dir, const char *node_type, unsigned port,
		      struct adapter *a)
{
	char text[ADAPTER_TEXT];

	a->port = port;
	sysfs_text(a->link_layer, sizeof a->link_layer, "%s/ports/%u/link_layer", dir, port);
	a->kind = classify_adapter(node_type, a->link_layer);
	sysfs_text(text, sizeof text, "%s/ports/%u/state", dir, port);
	a->state = (enum port_state)parse_numbered(text, a->state_text, sizeof a->state_text);
	sysfs_text(text, sizeof text, "%s/ports/%u/phys_state", dir, port);
	parse_numbered(text, a->physical, sizeof a->physical);
	sysfs_text(a->rate_text, sizeof a->rate_text, "%s/ports/%u/rate", dir, port);
	read_rate(a);
	read_netdev(root, dir, a);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static unsigned read_ports(const char *root, const char *name, struct adapter *to, unsigned max)
{
	char dir[2 * PATH_MAX], node_type[ADAPTER_TEXT];
	struct adapter device = {.numa_node = -1};
	struct dirent **names;
	unsigned n = 0;
	int count;

	snprintf(dir, sizeof dir, "%s/class/infiniband/%s", root, name);
	sysfs_text(node_type, sizeof node_type, "%s/node_type", dir);
	read_device(dir, name, &device);
	count = sysfs_names(&names, "%s/ports", dir);
	for (int i = 0; i < count && n < max; i++) {
		unsigned port = (unsigned)strtoul(names[i]->d_name, NULL, 10);

		if (port == 0 || port > 255)
			continue;
		to[n] = device;
		read_port(root, dir, node_type, port, &to[n++]);
	}
	sysfs_names_free(names, count);
	return n;
}

int adapters_list(const char *root, struct adapter **out, unsigned *count)
{
	struct dirent **names;
	int devices;

	root = sysfs_root(root);
	*count = 0;
	*out = calloc(ADAPTERS_MAX, sizeof **out);
	if (!*out)
		return fail_as(OUT_MEMORY, "list adapters: %m");
	devices = sysfs_names(&names, "%s/class/infiniband", root);
	for (int i = 0; i < devices; i++)
		*count += read_ports(root, names[i]->d_name, *out + *count, ADAPTERS_MAX - *count);
	sysfs_names_free(names, devices);
	return 0;
}

const char *adapter_kind_text(enum adapter_kind kind)
{
	switch (kind) {
	case ADAPTER_INFINIBAND:
		return "InfiniBand";
	case ADAPTER_ROCE:
		return "RoCE";
	case ADAPTER_IWARP:
		return "iWARP";
	default:
		return "other";
	}
}

unsigned pcie_mbits(const struct pcie_link *link)
{
	/* 8b/10b up to 5 GT/s, 128b/130b above; a packet of 256 bytes has about 24 bytes of
	 * headers. */
	double coded = link->mtransfers <= 5000 ? 0.8 : 128.0 / 130;

	return (unsigned)((double)link->mtransfers * link->width * coded * 256 / 280);
}
