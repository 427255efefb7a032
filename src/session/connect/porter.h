/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_PORTER_H
#define SESSION_CONNECT_PORTER_H

/*
 * The porter owns this end's listeners and sorts its callers.
 *
 * First (rdrecv): porter_admit() waits for a peer that completes a TLS handshake with the key.
 * Several callers may be in the handshake at once, so a silent or wrong one delays nobody.
 * strangers.h has the limits on them.
 *
 * Then, as a thread: the porter verifies callers for lanes, on TCP (LANE_HELLO in the first bytes)
 * and RDMA (private data), and keeps them until the lane's thread takes them with porter_wait().
 * Every attempt has its own epoch, so the proof for a lane is valid once. Of several callers for a
 * lane, the porter keeps the one with the newest epoch.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/hello.h"
#include "lane/verbs/verbs_connect.h"
#include "protocol/message.h"
#include "session/channel/channel.h"

struct porter;

/* tos: of its TCP listeners and their callers, and of its RDMA listeners (base/tos.h). */
int porter_new(unsigned tos, struct porter **out);
/* Stops the thread, and closes the listeners and all callers that no lane took. p may be NULL. */
void porter_free(struct porter *p);

/*
 * Listens for TCP at addr (NULL: all addresses, IPv4 and IPv6) and one port of lo..hi (0: any). A
 * porter has one TCP port for all addresses, so the port may change with every call. Do not
 * announce it before the last call. After -1 there is no TCP listener. Must not be called after
 * porter_open_lanes().
 */
int porter_listen_tcp(struct porter *p, const union address *addr, unsigned lo, unsigned hi);
/*
 * Instead of TCP listeners: lanes come as descriptors over a Unix socket, from a process that
 * listens at this port for several sessions. porter_open_lanes() sends the session's id over it.
 * door is borrowed.
 */
void porter_use_door(struct porter *p, int door, unsigned port);
/* Listens for RDMA callers at addr; stores the port in *port. */
int porter_listen_rdma(struct porter *p, const union address *addr, unsigned lo, unsigned hi,
		       unsigned *port);
/* 0: no TCP listener. */
unsigned porter_tcp_port(const struct porter *p);
/* The port of the first RDMA listener; 0: no listener. */
unsigned porter_rdma_port(const struct porter *p);

/* Waits for an authenticated peer, until deadline_ms (clock_ms; 0: without limit) or cancelled().
 * Returns -1 with OUT_CONNECT at the deadline, or OUT_SIGNAL when cancelled. */
int porter_admit(struct porter *p, const struct psk *key, uint64_t deadline_ms,
		 struct channel **out);

/* What a caller must prove and match. */
struct porter_terms {
	struct lane_key key;
	enum lane_side peer; /* the side of the callers */
	unsigned lanes;
	uint32_t depth, block_size;
};
/* Starts the thread that accepts lanes. Copies terms. */
int porter_open_lanes(struct porter *p, const struct porter_terms *terms);

/* Which resource this process lacked when a connection was lost, since that time (clock_ms): an
 * errno. 0: none, or a caller came after that. Any thread. */
int porter_lacked(struct porter *p, uint64_t since_ms);

struct caller {
	uint32_t epoch;
	int fd; /* TCP, with a verified hello; else -1 */
	struct hello_terms terms; /* TCP: as the hello states them */
	struct verbs_caller *verbs; /* RDMA, with a verified token; else NULL */
};
void caller_drop(struct caller *c);
/* Waits for a caller for this lane with at least this epoch, until deadline_ms (0: without limit).
 * Returns 0: the caller is now owned by the calling thread; 1: wake_fd is readable; -1 with
 * OUT_CONNECT at the deadline, or OUT_SOCKET, at once if no caller can be accepted any more. One
 * thread a lane. */
int porter_wait(struct porter *p, unsigned lane, uint32_t epoch, int wake_fd, uint64_t deadline_ms,
		struct caller *out);

#endif
