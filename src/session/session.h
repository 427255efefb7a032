/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

/*
 * A session: one authenticated conversation between a source and a sink, with its control channel
 * and its lanes.
 *
 * session_open() exchanges HELLO and agrees on the lanes. It returns lanes without wires. Each lane
 * gets its first wire, and any later one, in its own thread and its first call. Connecting,
 * choosing RDMA or TCP, fencing and mending happen inside (mend.c), invisible to the layers above.
 *
 * The first failure anywhere, here or at the peer, is the session's failure, except that what this
 * end lacked for its lanes is the cause of a failure to connect (shortage.c). session_fail()
 * latches it, reports it to the peer and aborts all lanes. Every waiting call then returns -1.
 */

#include <stdbool.h>
#include <stdint.h>
#include "base/fail.h"
#include "lane/lane.h"
#include "protocol/message.h"
#include "session/channel/control.h"
#include "session/connect/porter.h"

struct session;

struct session_opts {
	enum role role;
	enum transport want;
	bool listens; /* this end listens for lanes (round 0) */
	bool has_conductor; /* frames >= 64 may be sent; roles may swap, and a detour may be used */
	uint16_t lanes, depth; /* 0: sizing.h chooses */
	uint32_t block_size; /* 0: sizing.h chooses */
	uint64_t memory;
	enum rdma_op rdma_op;
	unsigned rails; /* 0: no bound */
	enum encrypt encrypt;
	unsigned compress; /* a wish: lane/compress.h */
	unsigned tos; /* --tos of this end (base/tos.h) */
	bool keeps_transport; /* lanes that took TCP don't return to RDMA */
	bool unchecked; /* lanes compute and check no hashes, at both ends; for benchmarks only */
	uint64_t bwlimit;
	int timeout_ms, connect_timeout_ms;
	unsigned port_lo, port_hi;
	uint8_t secret[LANE_SECRET];
	char host[HOST_MAX], peer[HOST_MAX];
	char address[HOST_MAX]; /* --address: the only address to listen at, or "" */
	struct porter *porter; /* rdrecv's, with its listeners, else NULL; borrowed */
	/* rdcpd: the address that the peer reached this end at (family 0: none) */
	union address reached;
	bool fixed; /* roles don't swap: the other end dials, or the session fails */
	union address dialed; /* rdsend: the address of the control connection (family 0: none) */
	int family; /* AF_INET, AF_INET6, or 0 for both */

	/* Frames for the layer above, and those of a conductor. (The session handles MSG_CANCEL
	 * itself: it fails with OUT_SIGNAL.) Control thread; must not wait. */
	int (*on_frame)(void *ctx, const struct frame *f);
	/* The session failed, or the peer's DONE or END can no longer arrive: wake all waiting
	 * threads. Any thread; must not wait. */
	void (*on_fail)(void *ctx);
	void *ctx;
};

/* Takes ch; already_read and len as in control_start(). Waits for the peer's HELLO. On failure it
 * has reported the failure to the peer and freed all; host is the peer's host name if the peer
 * caused the failure, else "". */
int session_open(struct channel *ch, const void *already_read, size_t len,
		 const struct session_opts *o, char host[static HOST_MAX], struct session **out);

/* Stops all threads and frees all. The lanes' threads must have been joined. s may be NULL. */
void session_close(struct session *s);

unsigned session_lanes(const struct session *s);
struct lane *session_lane(struct session *s, unsigned i);

int session_send(struct session *s, uint8_t type, const void *body, size_t len);
/* Waits until the peer's host has all queued frames, or 1 s is over. */
void session_flush(struct session *s);
/* The same, for as long as the peer may be silent; a signal ends it. */
void session_deliver(struct session *s);

/* Makes this thread's failure the session's failure, unless the session has one already. Always
 * returns -1, with the session's failure as this thread's. */
int session_fail(struct session *s);
/* Returns whether the session failed. Fills *f, and host with the peer's host name if the peer
 * caused the failure. */
bool session_failed(struct session *s, struct failure *f, char host[static HOST_MAX]);

/* From now on losing the channel is no failure: the sink has sent DONE, or the source has received
 * it. */
void session_ended(struct session *s);

const struct msg_hello *session_peer(const struct session *s);
/* The path of the data: transport; name of lane 0's wire, or of all adapters if there are several;
 * why not RDMA. Known after the first block. */
enum transport session_transport(struct session *s, char *wires, size_t wires_size, char *why,
				 size_t why_size);
/* Which blocks were encrypted so far, and with what (enum cipher_kind; 0 if none was). */
enum encrypted session_encrypted(struct session *s, uint8_t *cipher);
/* The sum over all lanes. */
void session_stats(struct session *s, struct lane_stats *out);
/* Waits as --bwlimit requires. Lanes call it before they send or put len bytes. A sink paces only
 * without a conductor, because a conductor also gives the source the limit. Adds the time to
 * *waited_ns. */
int session_pace(struct session *s, uint32_t len, uint64_t *waited_ns);

#endif
