/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_LANE_H
#define LANE_LANE_H

/*
 * A lane carries blocks from a source to a sink. Every block arrives whole, in order and once.
 *
 * The lane owns all blocks and lends them out:
 *
 *	source:  lane_get()  -> fill data, len, kind, file, pos -> lane_send()
 *	sink:    lane_recv() -> use  data, len, kind, file, pos -> lane_put()
 *
 * The caller owns a block between get and send, and between recv and put. At all other times the
 * lane owns it, and the caller must not touch it. A caller holds one block at a time (but see
 * lane_more()). It must send or put every lent block, or abort the lane.
 *
 * lane_get() waits until a block is free, lane_recv() until one has arrived. lane_put() reports
 * that the block's bytes are stored. That is the credit that frees the block at the source, and it
 * is the only flow control: a sink that does not put blocks stops its source. The source keeps a
 * block's bytes until its credit is back, so the pool is also the retransmit buffer. lane_flush()
 * returns when every block sent has been stored. A lane has no end of stream; the protocol above it
 * ends the transfer.
 *
 * Below a lane is a wire (wire.h): one connection. The lane outlives its wires. If there is no wire
 * yet, if the wire broke, or if a block arrived damaged, the call that notices this asks the mend
 * function for another wire. The source then sends again, in order, every block that the sink had
 * not stored. The layers above the lane do not notice.
 *
 * The calls that move blocks return 0, or -1 with a failure. After -1 the lane is dead, and each of
 * them returns -1 with the same failure. Only one thread at a time may use a lane, but any thread
 * may call what is marked "Any thread".
 *
 * The process must ignore SIGPIPE. TCP lanes don't raise it, but siw (Linux 6.1) sends on its own
 * socket within a post, without MSG_NOSIGNAL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LANE_HEAD = 64, /* bytes of a block's head, which lies right below its data */
	LANE_PAGE = 4096,
	LANE_BLOCK_MIN = 4096,
	LANE_BLOCK_MAX = 4 << 20,
	LANE_DEPTH_MAX = 1024, /* blocks per lane */
	LANE_COUNT_MAX = 64, /* lanes per session */
	LANE_DEPTH_MIN = 1,
};

enum lane_side { LANE_SOURCE = 1, LANE_SINK = 2 };

/* The RDMA operation that moves blocks: --rdma-op. If both ends ask for one other than AUTO, the
 * smaller value applies; if one end asks for AUTO, the other end's choice applies. */
enum rdma_op {
	RDMA_OP_AUTO, /* means SEND */
	RDMA_OP_SEND, /* into posted receives: the peer cannot write to any memory */
	RDMA_OP_WRITE_IMM, /* RDMA WRITE WITH IMMEDIATE into the sink's pool; not on iWARP */
	RDMA_OP_WRITE_SEND, /* RDMA WRITE, then a SEND that names the slot */
};

/* What the layer above put into a block. The block's head carries it. */
enum block_kind {
	BLOCK_RECORDS = 1, /* records of protocol/record.h, packed */
	BLOCK_EXTENT = 2, /* bytes of file `file' at pos */
};

struct block {
	uint8_t *data; /* page aligned; room for lane_block_size() bytes */
	uint32_t len; /* bytes in use, 0 to lane_block_size() */
	uint8_t kind; /* enum block_kind; the sink's lane checks it on arrival */
	uint32_t file; /* file id of an extent */
	uint64_t pos; /* offset of data[0] in that file */
	/* Of data at pos, computed as in lane/cell_hash.h. The source sets it with block_seal(); at
	 * the sink it is set and verified, except on lanes that are unchecked. */
	uint64_t hash[2];
	bool sealed; /* hash is set */
	uint32_t wire_len; /* bytes that the wire carried or will carry: see lane_pack() */

	/* private to the lane */
	/* Source: data is encrypted, with this key. Its head is the one that was sent. */
	bool encrypted;
	/* Source: lane_pack() was called; data is compressed, from plain_len bytes, unless that
	 * is 0. */
	bool packed;
	uint32_t plain_len;
	uint32_t epoch, key_number;
	uint64_t number;
	uint32_t slot;
	bool lent; /* the source's lane has lent it */
	uint64_t lent_ns;
	struct block *next;
};

struct lane;
struct lane_key;
struct wire;

/*
 * Gets a wire for a lane. The lane calls it in the lane's thread, with no wire attached. The first
 * lane_get() or lane_recv() calls it with epoch 0, so that connecting does not wait for the
 * source's first data. Later calls ask with the epoch after that of the last wire. The function
 * does what the protocol requires (fencing, connecting) and calls lane_attach(). It returns 0, or
 * -1 with a failure if it cannot mend the lane, which is then dead. why is the reason why the last
 * wire broke, "" the first time. The function may wait; it must end each of its waits when the lane
 * is aborted (lane_abort_fd()).
 */
typedef int (*lane_mend_fn)(void *ctx, struct lane *lane, uint32_t epoch, const char *why);

struct lane_setup {
	unsigned index;
	enum lane_side side;
	uint32_t depth;
	uint32_t block_size; /* a power of two */
	/* After this time without a sign of life from the peer's host a wire counts as broken. 0:
	 * 15 s. */
	int timeout_ms;
	enum rdma_op rdma_op; /* AUTO means SEND; ignored over TCP */
	unsigned tos; /* of its wires (base/tos.h); 0: the host's default */
	uint32_t rtt_us; /* round-trip time to the peer's host; 0: unknown */
	/* Neither compute nor check hashes. For benchmarks only; both ends must agree. */
	bool unchecked;
	/* For encrypted blocks: enum cipher_kind, and the keys are made of key, which must outlive
	 * the lane. 0: this lane cannot have encrypted wires. */
	unsigned cipher;
	const struct lane_key *key;
	/* What both ends agreed on (lane/compress.h). 0: no block is compressed. */
	unsigned compress;
	uint64_t rekey_bytes; /* that one key encrypts; 0: CIPHER_REKEY */
	lane_mend_fn mend;
	/* Source: ask the sink with LANE_CHECK whether it is busy (patience.h). Must not wait.
	 * NULL: the sink can't be asked. */
	void (*ask)(void *ctx, struct lane *lane, uint32_t epoch);
	void *mend_ctx; /* for mend and ask */
};

/* How a lane spent its time, in nanoseconds. `bound' names the bottleneck from these numbers. */
struct lane_stats {
	uint64_t blocks; /* sent (source) or stored (sink), each counted once */
	uint64_t bytes; /* of data */
	uint64_t wire_bytes; /* of data, as wires carried it; each block counted once */
	uint64_t resent; /* blocks sent again */
	uint64_t encrypted; /* of blocks: those that are or were encrypted on the wire */
	uint64_t ns_cipher; /* encrypting or decrypting, which is a part of ns_send or ns_block */
	uint64_t ns_compress; /* compressing or decompressing, also a part of these */
	/* Time for the first wire counts in none of these; time for a later wire does. */
	uint64_t ns_fill; /* source: between get and send */
	uint64_t ns_send; /* source: in send */
	uint64_t ns_free; /* source: in get and flush */
	uint64_t ns_block; /* sink: in recv */
	uint64_t ns_store; /* sink: between recv and put */
	uint64_t window; /* bytes that may be in flight */
	uint32_t rtt_us; /* the shortest round-trip time measured; 0: unknown */
	uint32_t epochs; /* wires used */
};

/* Allocates the pool: depth blocks, each with a page for its head. Does not connect. */
int lane_open(const struct lane_setup *setup, struct lane **out);
/* Accepts NULL. No other thread may use the lane any more. */
void lane_close(struct lane *l);

int lane_get(struct lane *l, struct block **out);
/* Lends one more block in addition to those already lent, if one is free now, else returns NULL.
 * The caller may send its blocks in any order. Before it fills a block that it kept, it calls
 * lane_begin(). */
struct block *lane_more(struct lane *l);
void lane_begin(struct block *b);
int lane_send(struct lane *l, struct block *b);
/* Compresses the data of b, which lane_send() does otherwise, if that is agreed and it shrinks.
 * Nothing of b may change any more. Returns the bytes that the wire will carry. */
uint32_t lane_pack(struct lane *l, struct block *b);
/* Whether lane_pack() may compress. */
bool lane_packs(const struct lane *l);
int lane_flush(struct lane *l);
/* Source: processes the credits that have arrived, and gets a new wire if the wire broke, which may
 * take time. For a thread that waits for something other than its lane. Returns 1 while blocks are
 * sent and not known to be stored, else 0; or -1. */
int lane_tend(struct lane *l);

int lane_recv(struct lane *l, struct block **out);
int lane_put(struct lane *l, struct block *b);

/* Ends the lane because the session ended: every call on it, now and later, soon returns -1. Any
 * thread. */
void lane_abort(struct lane *l);

/* The peer reports that the wire of this epoch is bad: the lane's thread will find it broken. A
 * wire of this epoch that is attached later breaks at once. Any thread. */
void lane_break(struct lane *l, uint32_t epoch, const char *why);

/* The lane's thread will find the wire that is attached now broken. Has no effect if there is none.
 * Any thread. */
void lane_break_wire(struct lane *l, const char *why);

/* Source: the sink's answer to ask(). Any thread. */
void lane_held(struct lane *l, uint32_t epoch, bool busy);
/* Sink: the source asks whether the lane's thread is busy, that is, not waiting for the wire. Any
 * thread. */
bool lane_check(struct lane *l, uint32_t epoch);
/* When the last message from the peer arrived over a wire of this lane (clock_ms); 0: never. Any
 * thread. */
uint64_t lane_heard_ms(const struct lane *l);
/* MTU of the network device under the wire; 0: unknown. Any thread. */
uint32_t lane_mtu(const struct lane *l);

/* Computes b->hash of the data now in b, and marks b as sealed so that lane_send() need not do it.
 * The caller may use the hash for its own digest. */
void block_seal(struct block *b);

unsigned lane_index(const struct lane *l);
enum lane_side lane_side_of(const struct lane *l);
uint32_t lane_depth(const struct lane *l);
uint32_t lane_stated_depth(const struct lane *l); /* see lane_limit_depth() */
uint32_t lane_block_size(const struct lane *l);
int lane_timeout_ms(const struct lane *l);
enum rdma_op lane_rdma_op(const struct lane *l); /* never AUTO */
unsigned lane_tos(const struct lane *l);
uint32_t lane_host_rtt_us(const struct lane *l);
/* Sink: blocks put. Source: blocks known to be stored. Any thread. */
uint64_t lane_stored(const struct lane *l);
/* Any thread. */
void lane_stats(const struct lane *l, struct lane_stats *out);
/* Sink: a number that changes whenever anything arrives, even a part of a block. Any thread. */
uint64_t lane_activity(struct lane *l);
/* "tcp 127.0.0.1:7000", "rdma mlx5_0 10.0.0.1"; "" before the first wire. Any thread. */
void lane_name(const struct lane *l, char *to, size_t size);

/* ---- for mend functions only, in the lane's thread -------------------------------- */

/* Sink: if a damaged block broke the last wire, the number of that block + 1, else 0. The sink
 * reports it to the source. */
uint64_t lane_damaged(const struct lane *l);

/* How many barren wires in a row there were, up to the last one: no block came through although the
 * source asked and the sink was waiting. 0 if the last wire was not barren. */
unsigned lane_barren(const struct lane *l);
/* Whether the reason that the mend function got is what broke the wire, as this end saw it. If not,
 * the other end may know better. */
bool lane_knows_cause(const struct lane *l);
/* True if the lane had a wire before. */
bool lane_had_wire(const struct lane *l);
/* When the last sign arrived that blocks get through, or that the sink is busy (clock_ms). */
uint64_t lane_sign_ms(const struct lane *l);

/*
 * Attaches a connected wire to the lane. The lane owns the wire from here on, also on failure.
 * Source: stored is the number of blocks that the sink reported as stored (0 for epoch 0). The lane
 * frees that many blocks, and sends the rest again after the mend function has returned. If the
 * number is impossible, that is a protocol failure and the lane closes the wire. Sink: stored is
 * ignored.
 */
int lane_attach(struct lane *l, struct wire *w, uint64_t stored);

/*
 * Sets the epoch of the wire that will be attached next; it is not lower than the epoch that the
 * mend function was asked for. An attempt to connect that failed at one end may have succeeded at
 * the other. So every attempt has its own epoch, and no two wires share one. The next mend asks for
 * epoch + 1.
 */
void lane_skip_to(struct lane *l, uint32_t epoch);

/* Time in which the lane's thread registered memory, and which is not to count against a deadline.
 * lane_stopped_ms() returns the sum. */
void lane_stop_clock(struct lane *l, uint64_t ms);
uint64_t lane_stopped_ms(const struct lane *l);

/* Sets the depth that this end states for the wires that are made from now on: the most blocks in
 * flight on each, 1 to lane_depth(), which it is at first. The smaller of what both ends state
 * applies to a wire. */
void lane_limit_depth(struct lane *l, uint32_t depth);

/* Sets whether this end demands that the wires that are made from now on are encrypted. They are if
 * either end demands it. Once a wire was encrypted, this end demands it of every later one. */
void lane_demand_seal(struct lane *l, bool seal);
bool lane_demands_seal(const struct lane *l);
/* Whether the wire is encrypted that is attached now. */
bool lane_is_sealed(const struct lane *l);

/* A descriptor that polls readable once the lane is aborted. For waits in mend functions. */
int lane_abort_fd(const struct lane *l);
/* Any thread. */
bool lane_aborted(const struct lane *l);

/* The pool's memory, for wire constructors that register it. */
struct pool;
struct pool *lane_pool(struct lane *l);

#endif
