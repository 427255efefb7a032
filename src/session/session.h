/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

/*
 * A session: one authenticated conversation between a source and a sink, with its control
 * channel and its lanes.
 *
 * session_open() says HELLO and agrees on lanes; the lanes come without wires, each gets its
 * first one (and any later one) in its own thread, in its first call: connecting, choosing
 * RDMA or TCP, fencing and mending are all in here (mend.c) and nothing of them is seen above.
 *
 * The first failure anywhere, here or at the peer, is the session's: session_fail() latches
 * it, tells the peer, and aborts all lanes; every call that waits then returns -1.
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
	bool has_conductor; /* frames >= 64 may be sent; roles may swap, a detour may come */
	uint16_t lanes, depth; /* 0: as sizing.h chooses */
	uint32_t block_size; /* 0: likewise */
	uint64_t memory;
	enum rdma_op rdma_op;
	unsigned rails; /* 0: no bound */
	bool unchecked; /* lanes without hashes, at both ends: benchmarks only */
	uint64_t bwlimit;
	int timeout_ms, connect_timeout_ms;
	unsigned port_lo, port_hi;
	uint8_t secret[LANE_SECRET];
	char host[HOST_MAX], peer[HOST_MAX];
	char address[HOST_MAX]; /* --address: the only one to listen at, "" */
	struct porter *porter; /* rdrecv's, with its listeners; else NULL.  Borrowed. */
	union address dialed; /* rdsend: where the control connection went (family 0: none) */
	int family; /* AF_INET, AF_INET6, or 0 for both */

	/* Frames of the layer above, and those from a conductor (MSG_CANCEL is dealt with by
	 * the session: it fails with OUT_SIGNAL).  Control thread; must not wait. */
	int (*on_frame)(void *ctx, const struct frame *f);
	/* The session failed, or the peer's DONE / END can no longer come: wake whoever waits.
	 * Any thread; must not wait. */
	void (*on_fail)(void *ctx);
	void *ctx;
};

/* Takes ch; before/len as for control_start().  Waits for the peer's HELLO.  On failure the
 * peer has been told and all is freed; host: its host's name if the cause came from it, else "". */
int session_open(struct channel *ch, const void *before, size_t len, const struct session_opts *o,
		 char host[static HOST_MAX], struct session **out);

/* Stop all threads and free all. Lanes' threads must have been joined. NULL is fine. */
void session_close(struct session *s);

unsigned session_lanes(const struct session *s);
struct lane *session_lane(struct session *s, unsigned i);

int session_send(struct session *s, uint8_t type, const void *body, size_t len);
/* Everything queued is on its way, or 1 s is over. */
void session_flush(struct session *s);

/* Make this thread's failure the session's, unless it has one; always returns -1 with the
 * session's failure as this thread's. */
int session_fail(struct session *s);
/* Did it fail?  Fills *f and, if the cause came from the peer, its host's name into host. */
bool session_failed(struct session *s, struct failure *f, char host[static HOST_MAX]);

/* After this the loss of the channel is no failure: the sink said DONE, or the source has it. */
void session_ended(struct session *s);

const struct msg_hello *session_peer(const struct session *s);
/* How data goes: transport, name of lane 0's wire or of all adapters if there are several, why
 * not RDMA.  Known after the first block. */
enum transport session_transport(struct session *s, char *how, size_t how_size, char *why,
				 size_t why_size);
/* The sum over all lanes. */
void session_stats(struct session *s, struct lane_stats *out);
/* Lanes call it before sending len bytes, or putting them: waits as --bwlimit says.  A sink's only
 * without a conductor, who has told the source as well. */
int session_pace(struct session *s, uint32_t len);

#endif
