/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_HOST_H
#define SIMVERBS_HOST_H

/*
 * The simulated host: SIMVERBS names a directory that ./make_host.py made.
 *
 *   personality   the first adapter, a file of ./personalities
 *   personality.1 the second one, and so on
 *   host          lines of words:
 *                   fabric NAME     NAME beginning with a slash: a directory, by which hosts in
 *                                   different network namespaces reach each other
 *                   port ADAPTER PORT LAYER [CABLE]    LAYER: ethernet or infiniband. Port 1 of an
 *                                              adapter is there without such a line. CABLE: the
 *                                              port reaches only the one at its other end
 *                   roce1 ADAPTER PORT         default_roce_mode of the port is RoCE v1
 *                   address IP[%NETDEV] [ADAPTER PORT [v1]]    the port has this address; v1: it
 *                                              has only a GID of RoCE v1 for it. Adapters count
 *                                              from 0, ports from 1; without them, it is the first
 *                                              port. NETDEV: of a link-local address
 *                   far IP CABLE               the port at the other end of that cable has it
 *                   flux yes                   any port of that host answers ARP requests for the
 *                                              addresses of all (arp_ignore 0, as Linux begins)
 *                   silent IP                  a neighbour that never answers
 *                   unlinked IP                a neighbour whose address does not resolve
 *                   bandwidth MBITS, latency US, loss N    delay.h
 *   sys, dev      take the place of /sys/class/infiniband* and /dev/infiniband
 *
 * Without SIMVERBS there is no adapter.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	HOST_ADDRESSES = 32,
	HOST_ADAPTERS = 4,
	HOST_PORTS = 2, /* of an adapter */
	HOST_NAME = 64,
	HOST_CABLE = 16,
	HOST_PATH = 512,
};

/* Numbers of one adapter. Each has its source in the file of ./personalities. */
struct personality {
	char device[HOST_NAME];
	char driver[HOST_NAME];
	uint32_t vendor_id;
	bool iwarp;
	bool ethernet;
	uint32_t max_qp_wr, max_sge, max_inline, max_cqe, max_mr;
	uint64_t max_mr_size, max_msg_size;
	/* Sizes that the adapter rounds up to a power of two, or a round_cqe above 1 to a multiple
	 * of that; the entries of it that it keeps for itself. */
	bool round_wr;
	uint32_t round_cqe;
	uint32_t send_reserved, recv_reserved, cqe_reserved;
	uint32_t inline_least; /* granted when less is requested; 0: what is requested */
	bool immediate; /* has WRITE WITH IMMEDIATE */
	/* Private data: the most that a caller may pass. With padded, the other end always gets
	 * that many bytes. */
	uint32_t req_private, rep_private, rej_private;
	bool padded;
	/* iWARP: the status of a call that the listener's program rejects; of one to a port where
	 * nobody listens. */
	uint32_t reject_errno, unheard_errno;
	uint32_t mtu, mtu_active;
	uint32_t ack_timeout; /* 4.096 us * 2^N */
	uint32_t cm_timeout; /* ms from a request to its repetition */
	uint32_t cm_retries;
	uint32_t comp_vectors;
	/* RLIMIT_MEMLOCK counts for processes with CAP_IPC_LOCK too. */
	bool memlock_always;
	/* The queues are user memory that is locked like a region. */
	bool queues_locked;
};

struct host_adapter {
	struct personality p;
	unsigned index; /* in host.adapters */
	unsigned ports;
	bool ethernet[HOST_PORTS + 1]; /* by port */
	bool roce1[HOST_PORTS + 1];
	char cable[HOST_PORTS + 1][HOST_CABLE]; /* "": of a network that reaches all others */
};

struct host_address {
	union {
		struct sockaddr sa;
		struct sockaddr_in in4;
		struct sockaddr_in6 in6;
	} at;
	enum { ADDRESS_OWN, ADDRESS_SILENT, ADDRESS_UNLINKED, ADDRESS_FAR } kind;
	char cable[HOST_CABLE]; /* ADDRESS_FAR */
	const struct host_adapter *adapter; /* ADDRESS_OWN: whose port has it */
	unsigned port;
	bool only_v1; /* no GID of RoCE v2 */
};

struct host {
	char top[HOST_PATH];
	char fabric[HOST_NAME];
	uint32_t bandwidth_mbits, latency_us, loss; /* delay.h */
	struct host_adapter adapters[HOST_ADAPTERS];
	unsigned adapter_count;
	bool cabled, flux; /* cabled: a port has a cable of its own */
	struct host_address addresses[HOST_ADDRESSES];
	unsigned count;
};

/* NULL: there is no adapter, as where the directory cannot be seen. Ends the program if the
 * directory is not as described. */
const struct host *host_get(void);
/* The directory that SIMVERBS names, NULL if none; reads nothing. */
const char *host_top(void);
/* The entry with this IP (and zone, if it is link-local), whatever its port, unless it is at the
 * other end of a cable; NULL: none. */
const struct host_address *host_find(const struct sockaddr *sa);
/* The entry with this IP at the other end of this cable, NULL: of any. */
const struct host_address *host_find_far(const struct sockaddr *sa, const char *cable);
/* NULL: there is none with this name. */
const struct host_adapter *host_find_adapter(const char *device);

#endif
