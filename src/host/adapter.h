/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_ADAPTER_H
#define HOST_ADAPTER_H

/*
 * What the kernel reports about RDMA adapters, read from sysfs. Opens no device and needs no verbs,
 * so a build without rdma-core returns the same. root replaces /sys in tests; NULL: /sys. A number
 * that the kernel does not report is 0, a text "".
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/address.h"

enum {
	ADAPTERS_MAX = 64, /* most ports examined on one host */
	ADAPTER_TEXT = 64,
	ADAPTER_GIDS_MAX = 64, /* most GIDs examined on one port */
};

enum adapter_kind { ADAPTER_OTHER, ADAPTER_INFINIBAND, ADAPTER_ROCE, ADAPTER_IWARP };

/* The kernel's numbers. */
enum port_state { PORT_UNKNOWN, PORT_DOWN, PORT_INIT, PORT_ARMED, PORT_ACTIVE };

/* One side of a PCIe link. */
struct pcie_link {
	unsigned mtransfers; /* million transfers per second and PCIe lane: 8000 is "8.0 GT/s" */
	unsigned width; /* PCIe lanes */
};

/* One port of an adapter; an adapter with two ports is two of these. */
struct adapter {
	char device[ADAPTER_TEXT]; /* "mlx5_0" */
	unsigned port; /* counted from 1 */
	enum adapter_kind kind;
	enum port_state state;
	char state_text[ADAPTER_TEXT]; /* "ACTIVE" */
	char physical[ADAPTER_TEXT]; /* "LinkUp" */
	char link_layer[ADAPTER_TEXT]; /* "InfiniBand", "Ethernet" */
	unsigned rate_mbits; /* 100000; software adapters: the rate that their netdev reports */
	char rate_text[ADAPTER_TEXT]; /* "100 Gb/sec (4X EDR)" */
	unsigned width; /* lanes of the cable: 4 */
	char netdev[ADAPTER_TEXT]; /* network device of this port: "eth2", "ib0" */
	unsigned netdev_mtu;

	char driver[ADAPTER_TEXT]; /* "mlx5_core"; software adapters: "rdma_rxe" or "siw" */
	char model[ADAPTER_TEXT]; /* "MT4119" */
	char board[ADAPTER_TEXT];
	char firmware[ADAPTER_TEXT];
	char node_guid[ADAPTER_TEXT];
	bool software; /* no hardware: rates are fictitious, there is no NUMA node */
	char pci[ADAPTER_TEXT]; /* "0000:3b:00.0" */
	/* negotiated; the maximum of each side */
	struct pcie_link pcie_now, pcie_adapter, pcie_slot;
	int numa_node; /* -1: none */
};

/* All ports of all adapters, sorted by name and port. The caller frees *out. Without an adapter, or
 * with a kernel without RDMA, *count is 0. Returns -1 only if memory ran out. */
int adapters_list(const char *root, struct adapter **out, unsigned *count);

/* "RoCE", for messages. */
const char *adapter_kind_text(enum adapter_kind kind);

/* Data rate of a PCIe link in Mbit/s, without encoding and packet headers; 0: unknown. */
unsigned pcie_mbits(const struct pcie_link *link);

/* The port below a network device: the device is the port's own, or a VLAN or bond on top of it.
 * False: none. */
bool adapter_at_netdev(const char *root, const char *netdev, struct adapter *out);
/* The port that has a local address (ports don't count), as far as sysfs reports it;
 * librdmacm decides (verbs_behind()). False: no port, or this host does not have the address. */
bool adapter_behind(const char *root, const union address *local, struct adapter *out);
/* The network device with a local address. */
bool netdev_of_address(const union address *local, char *to, size_t size);
/* MTU of the network device with a local address; 0: unknown. */
unsigned netdev_mtu(const union address *local);
/* The rate in Mbit/s that a network device of this host reports; 0: unknown. */
unsigned netdev_mbits(const char *netdev);

/*
 * RoCE: the ToS of connections for which no program chooses one (default_roce_tos of the kernel's
 * configfs). -1: unknown, as configfs is not mounted there, or nobody made the adapter's directory.
 */
int adapter_default_tos(const char *root, const struct adapter *a);
/* What mlx5 puts in its place, as it reports it ("Global tclass=106"; only NVIDIA's own driver).
 * False: it reports none. */
bool adapter_traffic_class(const char *root, const struct adapter *a, char to[static ADAPTER_TEXT]);
/* RoCE: the priorities (bit n) for which the adapter reports congestion to the sender, and for
 * which it slows down when told so. False: unknown. Only NVIDIA's own driver reports it. */
bool adapter_ecn(const char *root, const struct adapter *a, uint8_t *notifies, uint8_t *reacts);

/* Whether the adapter may mark its PCIe writes as free to overtake each other. */
enum pcie_ordering { PCIE_ORDER_UNKNOWN, PCIE_ORDER_STRICT, PCIE_ORDER_RELAXED };
enum pcie_ordering adapter_ordering(const char *root, const struct adapter *a);

enum gid_type { GID_IB, GID_ROCE_1, GID_ROCE_2 };

struct adapter_gid {
	unsigned index;
	uint8_t raw[16];
	enum gid_type type;
	char netdev[ADAPTER_TEXT]; /* RoCE only */
};
/* The valid GIDs of a port, in order, at most max. Returns their number. */
unsigned adapter_gids(const char *root, const struct adapter *a, struct adapter_gid *to,
		      unsigned max);
/* RoCE: the GID that librdmacm uses for a connection from a local address. False: none. */
bool adapter_gid_for(const char *root, const struct adapter *a, const union address *local,
		     struct adapter_gid *out);
/* RoCE: the GID type that connections of this port use, if the port has one. */
enum gid_type adapter_gid_type(const char *root, const struct adapter *a);

#endif
