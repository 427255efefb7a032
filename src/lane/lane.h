/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_LANE_H
#define LANE_LANE_H

/*
 * A lane carries blocks from a source to a sink: whole, in order, once.
 *
 * The lane owns all blocks and lends them out:
 *
 *	source:  lane_get()  -> fill data, len, kind, file, pos -> lane_send()
 *	sink:    lane_recv() -> use  data, len, kind, file, pos -> lane_put()
 *
 * A block is the caller's between get and send, and between recv and put; at all other
 * times it is the lane's and must not be touched.  A caller holds one block at a time.
 * Every lent block is sent or put, or the lane is aborted.
 *
 * lane_get() waits until a block is free, lane_recv() until one has come.  lane_put() says
 * that the block's bytes are stored; that is the credit which frees it at the source, and
 * the only flow control there is: a sink that does not put stops its source.  The source
 * keeps a block filled until its credit is back, so the pool is the resend buffer.
 * lane_flush() returns when every block sent has been stored.  There is no end of stream:
 * the protocol above says when it is done.
 *
 * Below a lane is a wire (wire.h): one connection, which the lane outlives.  When there is
 * none yet, it broke, or a block came damaged, the call that notices asks the mend function
 * for another; what the sink had not stored is sent again, in order, over the new one.
 * Nobody above a lane sees that.
 *
 * All calls return 0, or -1 with a failure; after -1 only lane_stats() and lane_close() may
 * follow.  One thread at a time uses a lane, but lane_abort(), lane_break() and
 * lane_stats() may come from any.
 *
 * The process must ignore SIGPIPE: TCP lanes don't raise it, but siw (Linux 6.1) sends from
 * within a post to a socket of its own, without MSG_NOSIGNAL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LANE_HEAD = 64, /* bytes of head, right below a block's data */
	LANE_PAGE = 4096,
	LANE_BLOCK_MIN = 4096,
	LANE_BLOCK_MAX = 4 << 20,
	LANE_DEPTH_MAX = 1024, /* blocks a lane */
	LANE_COUNT_MAX = 64, /* lanes a session */
	LANE_DEPTH_MIN = 1,
};

enum lane_side { LANE_SOURCE = 1, LANE_SINK = 2 };

/* How blocks go over RDMA: --rdma-op.  Of two ends that ask for different ones the smaller counts,
 * but anything for AUTO. */
enum rdma_op {
	RDMA_OP_AUTO, /* SEND */
	RDMA_OP_SEND, /* into posted receives: no memory can be written from outside */
	RDMA_OP_WRITE_IMM, /* RDMA WRITE WITH IMMEDIATE into the sink's pool; not on iWARP */
	RDMA_OP_WRITE_SEND, /* RDMA WRITE, then a SEND that names the slot */
};

/* What the layer above puts into a block; goes with the block. */
enum block_kind {
	BLOCK_RECORDS = 1, /* records of protocol/message.h, packed */
	BLOCK_EXTENT = 2, /* bytes of file `file' at pos */
};

struct block {
	uint8_t *data; /* page aligned, lane_block_size() bytes of room */
	uint32_t len; /* bytes in use, 0 to lane_block_size() */
	uint8_t kind; /* enum block_kind; checked on arrival */
	uint32_t file; /* file id of an extent */
	uint64_t pos; /* offset of data[0] in that file */
	uint64_t hash[2]; /* of data at pos, as lane/cells.h has it: set by block_seal(), and on
			   * arrival, where it has been checked */
	bool sealed;

	/* the lane's own */
	uint64_t number;
	uint32_t slot;
	bool lent; /* by a source's lane */
	uint64_t lent_ns;
	struct block *next;
};

struct lane;
struct wire;

/*
 * Get a lane a wire: called in the lane's thread with no wire attached, by its very first call
 * (lane_get() too: connecting must not wait for the source's first data) with epoch 0, later
 * with the epoch after the last one's.  It does what the protocol asks for (fencing, connecting)
 * and calls lane_attach(); 0, or -1 with a failure when the lane can't be mended.  why is what
 * broke the last wire, "" at first.  It may wait; lane_abort() ends every wait in it.
 */
typedef int (*lane_mend_fn)(void *ctx, struct lane *lane, uint32_t epoch, const char *why);

struct lane_setup {
	unsigned index;
	enum lane_side side;
	uint32_t depth;
	uint32_t block_size; /* a power of two */
	int timeout_ms; /* a wire this long without any sign of the peer's host is
			 * broken; 0: 15 s */
	enum rdma_op rdma_op; /* AUTO: SEND.  Without meaning over TCP */
	bool unchecked; /* hashes are neither computed nor checked: benchmarks only,
			 * both ends alike */
	lane_mend_fn mend;
	/* Source: ask the sink by LANE_CHECK whether it is busy (patience.h); must not wait.
	 * NULL: it can't be asked. */
	void (*ask)(void *ctx, struct lane *lane, uint32_t epoch);
	void *mend_ctx; /* of both */
};

/* What a lane did with its time, in nanoseconds; the bottleneck is named from these. */
struct lane_stats {
	uint64_t blocks; /* sent (source) or stored (sink), each counted once */
	uint64_t bytes; /* of data */
	uint64_t resent; /* blocks sent again */
	/* Getting the first wire counts in none of these, getting another one does. */
	uint64_t ns_fill; /* source: between get and send */
	uint64_t ns_send; /* source: in send */
	uint64_t ns_free; /* source: in get and flush */
	uint64_t ns_block; /* sink: in recv */
	uint64_t ns_store; /* sink: between recv and put */
	uint64_t window; /* bytes that may be under way */
	uint32_t rtt_us; /* the shortest round trip that was seen; 0: not known */
	uint32_t epochs; /* wires used */
};

/* Allocates the pool: depth blocks, each with a page for its head.  No connection yet. */
int lane_open(const struct lane_setup *setup, struct lane **out);
void lane_close(struct lane *l);

int lane_get(struct lane *l, struct block **out);
/* One more beside those that are lent, if it is free now; NULL.  They may be sent in any order;
 * when one that was kept is begun to be filled, lane_begin() says so. */
struct block *lane_more(struct lane *l);
void lane_begin(struct block *b);
int lane_send(struct lane *l, struct block *b);
int lane_flush(struct lane *l);
/* Source: take in what is there of credits, and have the wire mended if it broke, for who waits for
 * something else: 1 when not all that was sent is known to be stored, 0 when it is. */
int lane_tend(struct lane *l);

int lane_recv(struct lane *l, struct block **out);
int lane_put(struct lane *l, struct block *b);

/* The session is over: every call on this lane, now and later, returns -1 soon. */
void lane_abort(struct lane *l);

/* The wire of this epoch is no good, says the peer: the lane's thread finds it broken.
 * Nothing when the lane is at another epoch. Any thread. */
void lane_break(struct lane *l, uint32_t epoch, const char *why);

/* Source: the sink's answer to `ask'.  Any thread. */
void lane_held(struct lane *l, uint32_t epoch, bool busy);
/* Sink: the source asks.  Is the lane's thread busy elsewhere than on the wire?  Any thread. */
bool lane_check(struct lane *l, uint32_t epoch);
/* When something of the peer's last came over a wire of this lane (clock_ms); 0: never. */
uint64_t lane_heard_ms(const struct lane *l);
/* Of the network device under the wire; 0: not known.  Any thread. */
uint32_t lane_mtu(const struct lane *l);

/* Compute b->hash of what is in b now and remember that it is done, so that lane_send()
 * need not; the caller may use the hash for its own digest. */
void block_seal(struct block *b);

unsigned lane_index(const struct lane *l);
enum lane_side lane_side_of(const struct lane *l);
uint32_t lane_depth(const struct lane *l);
uint32_t lane_block_size(const struct lane *l);
int lane_timeout_ms(const struct lane *l);
enum rdma_op lane_rdma_op(const struct lane *l); /* never AUTO */
/* Sink: blocks put.  Source: blocks known to be stored. */
uint64_t lane_stored(const struct lane *l);
void lane_stats(const struct lane *l, struct lane_stats *out);
/* Sink: another number whenever anything came, a part of a block too. Any thread. */
uint64_t lane_heard(struct lane *l);
/* "tcp 127.0.0.1:7000", "rdma mlx5_0 10.0.0.1"; "" before the first wire. Any thread. */
void lane_name(const struct lane *l, char *to, size_t size);

/* ---- for mend functions only, in the lane's thread -------------------------------- */

/* What a sink says of the block that came damaged, when why was that: its number + 1, else 0. */
uint64_t lane_damaged(const struct lane *l);

/* Did the last wire not get one block through, while the source asked and the sink waited?  How
 * many such wires in a row it was. */
unsigned lane_barren(const struct lane *l);
/* Was there a wire before? */
bool lane_had_wire(const struct lane *l);
/* When there last was a sign that blocks get through, or the sink rests (clock_ms). */
uint64_t lane_sign_ms(const struct lane *l);

/*
 * Put a connected wire under the lane, which owns it from here on, also on failure.
 * Source: stored is what the sink said it had stored (0 for epoch 0); that many blocks are
 * freed and the rest is sent again.  A number that can't be is a protocol failure, with the
 * wire closed.  Sink: stored is ignored.
 */
int lane_attach(struct lane *l, struct wire *w, uint64_t stored);

/*
 * The wire that will be attached next has this epoch, not before the one asked for.  An attempt
 * to connect that failed at one end may have succeeded at the other; so every attempt has an
 * epoch of its own, and no two wires ever share one.  The next mend asks for epoch + 1.
 */
void lane_skip_to(struct lane *l, uint32_t epoch);

/* A descriptor that polls readable once the lane is aborted: for waits in mend functions. */
int lane_abort_fd(const struct lane *l);
bool lane_aborted(const struct lane *l);

/* The pool's memory, for constructors of wires that register it. */
struct pool;
struct pool *lane_pool(struct lane *l);

#endif
