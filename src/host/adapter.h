/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_ADAPTER_H
#define HOST_ADAPTER_H

/*
 * What the kernel tells of RDMA adapters, read from sysfs: nothing is opened, no verbs are
 * needed, and a build without rdma-core tells the same.  root takes the place of /sys in tests;
 * NULL: /sys.  Numbers are 0, texts "" where the kernel does not tell.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/address.h"

enum {
	ADAPTERS_MAX = 64, /* ports of one host that are looked at */
	ADAPTER_TEXT = 64,
	ADAPTER_GIDS_MAX = 64, /* GIDs of one port that are looked at */
};

enum adapter_kind { ADAPTER_OTHER, ADAPTER_INFINIBAND, ADAPTER_ROCE, ADAPTER_IWARP };

/* As the kernel counts them. */
enum port_state { PORT_UNKNOWN, PORT_DOWN, PORT_INIT, PORT_ARMED, PORT_ACTIVE };

/* One side of a PCIe link. */
struct pcie_link {
	unsigned mtransfers; /* million transfers a second and PCIe lane: 8000 is "8.0 GT/s" */
	unsigned width; /* PCIe lanes */
};

/* One port of an adapter; an adapter with two ports is two of these. */
struct adapter {
	char device[ADAPTER_TEXT]; /* "mlx5_0" */
	unsigned port; /* from 1 */
	enum adapter_kind kind;
	enum port_state state;
	char state_text[ADAPTER_TEXT]; /* "ACTIVE" */
	char physical[ADAPTER_TEXT]; /* "LinkUp" */
	char link_layer[ADAPTER_TEXT]; /* "InfiniBand", "Ethernet" */
	unsigned rate_mbits; /* 100000; of software adapters what their netdev says */
	char rate_text[ADAPTER_TEXT]; /* "100 Gb/sec (4X EDR)" */
	unsigned width; /* lanes of the cable: 4 */
	char netdev[ADAPTER_TEXT]; /* the network device at this port: "eth2", "ib0" */
	unsigned netdev_mtu;

	char driver[ADAPTER_TEXT]; /* "mlx5_core"; of software adapters "rdma_rxe" or "siw" */
	char model[ADAPTER_TEXT]; /* "MT4119" */
	char board[ADAPTER_TEXT];
	char firmware[ADAPTER_TEXT];
	char node_guid[ADAPTER_TEXT];
	bool software; /* no hardware: rates are made up, there is no NUMA node */
	char pci[ADAPTER_TEXT]; /* "0000:3b:00.0" */
	struct pcie_link pcie_now, pcie_adapter, pcie_slot; /* negotiated; the most of each */
	int numa_node; /* -1: none */
};

/* All ports of all adapters, sorted by name and port; free() *out.  No adapter, or a kernel without
 * RDMA, is a count of 0.  -1 only when memory ran out. */
int adapters_list(const char *root, struct adapter **out, unsigned *count);

/* "RoCE", for people. */
const char *adapter_kind_text(enum adapter_kind kind);

/* Data that a PCIe link can carry, Mbit/s: encoding and packets' heads taken off; 0: unknown. */
unsigned pcie_mbits(const struct pcie_link *link);

/* The port at which a network device is: its own, a VLAN's or a bond's.  False: none. */
bool adapter_at_netdev(const char *root, const char *netdev, struct adapter *out);
/* The port behind a local address (ports and zones don't count), as far as sysfs tells:
 * librdmacm has the last word (verbs_behind()).  False: none, or nobody has this address. */
bool adapter_behind(const char *root, const union address *local, struct adapter *out);
/* The network device that has a local address. */
bool netdev_of_address(const union address *local, char *to, size_t size);
/* Its MTU; 0: not known. */
unsigned netdev_mtu(const union address *local);

/* The processors of a NUMA node; false when there is no such node. */
bool numa_node_cpus(const char *root, int node, cpu_set_t *out);

enum gid_type { GID_IB, GID_ROCE_1, GID_ROCE_2 };

struct adapter_gid {
	unsigned index;
	uint8_t raw[16];
	enum gid_type type;
	char netdev[ADAPTER_TEXT]; /* RoCE only */
};
/* The GIDs of a port that are set, in order, at most max. Returns how many. */
unsigned adapter_gids(const char *root, const struct adapter *a, struct adapter_gid *to,
		      unsigned max);
/* RoCE: the GID that librdmacm takes for a connection from a local address.  False: none. */
bool adapter_gid_for(const char *root, const struct adapter *a, const union address *local,
		     struct adapter_gid *out);
/* RoCE: the type of GID that connections of this port take, as far as there is one. */
enum gid_type adapter_gid_type(const char *root, const struct adapter *a);

#endif
