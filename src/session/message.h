/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_MESSAGE_H
#define SESSION_MESSAGE_H

/*
 * Every message of the control channel and every record of the lanes: struct, encode,
 * decode, limits.  docs/protocol.md in C, and the one file of this layer that decodes what
 * came from a peer.
 *
 * encode functions write the body into a writer (w->full says it did not fit, which for
 * our own messages is a mistake of ours); decode functions take the whole body, check every
 * range and that nothing is left over, and return 0, or -1 with an OUT_PROTOCOL failure that
 * names the message and the field.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/cursor.h"
#include "base/fail.h"
#include "lane/head.h"

enum {
	PROTOCOL_VERSION = 1,
	FRAME_HEAD = 8, /* u32 length of body, u8 type, three zeros */
	FRAME_BODY_MAX = 64 << 10,
	NAME_MAX_WIRE = 4096, /* of a path, with its NUL */
	HOST_MAX = 256,
	TEXT_MAX = 1024,
	OFFER_MAX = 16, /* addresses in an OFFER, for each transport */
	NONCE_SIZE = 32,
};

enum message_type {
	/* between the two ends; a conductor passes them on unread */
	MSG_HELLO = 1,
	MSG_OFFER = 2, /* listening end -> connecting end */
	MSG_CHOICE = 3, /* connecting -> listening: the transport that lanes take, and why */
	MSG_NOROUTE = 4, /* connecting -> listening: nothing of the offer could be reached */
	MSG_LANE_DOWN = 5,
	MSG_LANE_STORED = 6, /* sink -> source */
	MSG_PING = 7,
	MSG_PONG = 8,
	MSG_FILE_RESULT = 9, /* sink -> source: a file is done, or failed */
	MSG_END = 10, /* source -> sink: everything was sent and stored */
	MSG_DONE = 11, /* sink -> source: the verdict */
	MSG_ERROR = 12, /* either: the session failed, and why */

	/* between a conductor and one end, never passed on: from 64 */
	MSG_GREETING = 64, /* end -> conductor, its first frame */
	MSG_START = 65, /* conductor -> end */
	MSG_WANT = 66, /* conductor -> end: one source name, after START */
	MSG_GO = 67, /* conductor -> end: no more names */
	MSG_NOTE = 68, /* end -> conductor: a line for the user */
	MSG_PROGRESS = 69, /* end -> conductor */
	MSG_VERDICT = 70, /* end -> conductor: how it ended; its last frame */
	MSG_CANCEL = 71, /* conductor -> end: a signal came */
	MSG_DETOUR = 72, /* conductor -> connecting end: connect there instead */
	MSG_STUCK = 73, /* end -> conductor: the offer can't be reached even with the roles
			 * swapped; a detour or nothing */
	MSG_LISTENING = 74, /* listening end -> conductor: its TCP port on loopback */
};
static inline bool message_is_local(uint8_t type)
{
	return type >= 64;
}
/* "HELLO"; "unknown" for a type that there is not. */
const char *message_name(uint8_t type);

/* ---- frames ------------------------------------------------------------------------ */

struct frame {
	uint8_t type;
	uint32_t len;
	const uint8_t *body; /* borrowed: valid until the handler that got it returns */
};
void frame_head_encode(uint8_t type, uint32_t len, uint8_t to[static FRAME_HEAD]);
/* -1: unknown type, too long, or nonzero padding. */
int frame_head_decode(const uint8_t from[static FRAME_HEAD], uint8_t *type, uint32_t *len);

/* ---- between ends ------------------------------------------------------------------ */

enum transport { TRANSPORT_AUTO = 0, TRANSPORT_RDMA = 1, TRANSPORT_TCP = 2, TRANSPORT_SSH = 3 };
enum role { ROLE_SOURCE = 1, ROLE_SINK = 2 };

struct msg_hello {
	uint16_t version;
	uint8_t role;
	uint8_t want; /* enum transport that this end's user asked for */
	uint64_t features; /* none yet: 0 */
	uint16_t lanes; /* most of each that this end wants; the smaller counts */
	uint16_t depth;
	uint32_t block_size;
	uint64_t memory; /* --memory, bytes of pool; UINT64_MAX: no bound */
	uint64_t lockable; /* memlock_limit(), or 0: no RDMA here, and why is in no_rdma */
	uint32_t timeout_ms;
	uint64_t host_id; /* equal on two ends of one host and network namespace */
	uint8_t nonce[NONCE_SIZE];
	char host[HOST_MAX]; /* what to call this end in messages */
	char no_rdma[TEXT_MAX];
};
void msg_hello_encode(struct writer *w, const struct msg_hello *m);
int msg_hello_decode(const struct frame *f, struct msg_hello *m);

struct offer_place {
	uint8_t transport; /* TRANSPORT_RDMA or TRANSPORT_TCP */
	uint8_t family; /* 4 or 6 */
	uint16_t port;
	uint8_t addr[16]; /* network order; IPv4 in the first four, the rest zero */
};
struct msg_offer {
	uint8_t round; /* 0, after a swap of roles 1 */
	uint8_t count; /* at most 2 * OFFER_MAX */
	struct offer_place places[2 * OFFER_MAX];
	char no_rdma[TEXT_MAX]; /* why there is no RDMA place in it, if there is none */
};
void msg_offer_encode(struct writer *w, const struct msg_offer *m);
int msg_offer_decode(const struct frame *f, struct msg_offer *m);

struct msg_choice {
	uint8_t transport;
	char why[TEXT_MAX]; /* why not RDMA, "" when it is RDMA or TCP was asked for */
};
void msg_choice_encode(struct writer *w, const struct msg_choice *m);
int msg_choice_decode(const struct frame *f, struct msg_choice *m);

struct msg_noroute {
	uint8_t round;
	char why[TEXT_MAX];
};
void msg_noroute_encode(struct writer *w, const struct msg_noroute *m);
int msg_noroute_decode(const struct frame *f, struct msg_noroute *m);

struct msg_lane_down {
	uint16_t lane;
	uint32_t epoch;
	char why[TEXT_MAX];
};
void msg_lane_down_encode(struct writer *w, const struct msg_lane_down *m);
int msg_lane_down_decode(const struct frame *f, struct msg_lane_down *m);

struct msg_lane_stored {
	uint16_t lane;
	uint32_t epoch; /* that ended */
	uint64_t stored;
	bool damaged; /* the block after these came damaged */
};
void msg_lane_stored_encode(struct writer *w, const struct msg_lane_stored *m);
int msg_lane_stored_decode(const struct frame *f, struct msg_lane_stored *m);

struct msg_ping {
	uint64_t cookie;
}; /* PING and PONG */
void msg_ping_encode(struct writer *w, const struct msg_ping *m);
int msg_ping_decode(const struct frame *f, struct msg_ping *m);

struct msg_file_result {
	uint32_t file;
	uint8_t code; /* enum outcome; decoded with outcome_from(), as all of them */
	char text[TEXT_MAX];
};
void msg_file_result_encode(struct writer *w, const struct msg_file_result *m);
int msg_file_result_decode(const struct frame *f, struct msg_file_result *m);

struct msg_total { /* END and DONE */
	uint64_t files; /* whole ones */
	uint64_t failed;
	uint64_t bytes; /* sizes of the whole ones, holes included */
	uint64_t digest[2]; /* sum of the whole ones' digests, modulo 2^128 (low, high) */
};
void msg_total_encode(struct writer *w, const struct msg_total *m);
int msg_total_decode(const struct frame *f, struct msg_total *m);

struct msg_error {
	uint8_t code; /* enum outcome, never OUT_DONE */
	char host[HOST_MAX]; /* where it happened */
	char text[TEXT_MAX];
};
void msg_error_encode(struct writer *w, const struct msg_error *m);
int msg_error_decode(const struct frame *f, struct msg_error *m);

/* ---- between a conductor and an end ------------------------------------------------- */

#define GREETING_MAGIC "\x93SLUICE\n"
struct msg_greeting { /* its form never changes: the version is found by it */
	uint16_t version;
	char release[64]; /* of the program, for people */
};
void msg_greeting_encode(struct writer *w, const struct msg_greeting *m);
int msg_greeting_decode(const struct frame *f, struct msg_greeting *m);

/* The flags of START; what a user asked for that one or both ends must know. */
enum start_flags {
	START_LISTENS = 1 << 0, /* this end listens for lanes first */
	START_PRESERVE = 1 << 1, /* -p */
	START_MKPATH = 1 << 2,
	START_REMOVE_SOURCE = 1 << 3,
	START_FSYNC = 1 << 4,
	START_INPLACE = 1 << 5,
	START_NO_SPARSE = 1 << 6,
	START_SPARSE = 1 << 7,
	START_NO_TARGET_DIR = 1 << 8, /* -T */
	START_MANY = 1 << 9, /* more than one source: the target must be a directory */
	START_STDIO =
		1 << 10, /* this end's file is descriptor 0 or 1 of its process (local only) */
	START_QUIET = 1 << 11,
	START_IPV4 = 1 << 12,
	START_IPV6 = 1 << 13,
	START_PROGRESS = 1 << 14, /* send PROGRESS a few times a second */
	START_FAR = 1 << 15, /* this end was started over ssh */
	START_ALL = (1 << 16) - 1,
};
struct msg_start {
	uint16_t version;
	uint8_t role;
	uint8_t want; /* enum transport; SSH: lanes come over a detour */
	uint8_t verbose; /* -v's, 0..3 */
	uint32_t flags;
	uint8_t secret[LANE_SECRET];
	uint16_t lanes, depth; /* 0: this end's default */
	uint32_t block_size; /* 0: default */
	uint64_t memory; /* UINT64_MAX: no bound */
	uint64_t bwlimit; /* bytes a second, 0: none */
	uint32_t timeout_ms, connect_timeout_ms;
	uint16_t port_lo, port_hi; /* 0: any */
	char host[HOST_MAX]; /* what to call this end in messages */
	char peer[HOST_MAX]; /* and the other one */
	char address[HOST_MAX]; /* --address for this end, "" */
	char target[NAME_MAX_WIRE]; /* sink: DST as the user wrote it, without the host; source: ""
				     */
};
void msg_start_encode(struct writer *w, const struct msg_start *m);
int msg_start_decode(const struct frame *f, struct msg_start *m);

/* To a source: a SRC as written.  To a sink: the same, so that it takes only names that
 * were asked for. */
struct msg_want {
	char name[NAME_MAX_WIRE];
};
void msg_want_encode(struct writer *w, const struct msg_want *m);
int msg_want_decode(const struct frame *f, struct msg_want *m);

struct msg_note {
	uint8_t level; /* enum log_level */
	char text[TEXT_MAX];
};
void msg_note_encode(struct writer *w, const struct msg_note *m);
int msg_note_decode(const struct frame *f, struct msg_note *m);

struct msg_progress {
	uint64_t bytes; /* source: read, or skipped as holes; sink: stored */
	uint64_t total; /* source: of all files known so far */
	uint64_t files;
	bool total_known; /* the total grows no more */
};
void msg_progress_encode(struct writer *w, const struct msg_progress *m);
int msg_progress_decode(const struct frame *f, struct msg_progress *m);

struct msg_verdict {
	uint8_t code; /* enum outcome */
	char host[HOST_MAX]; /* where the first cause was, "" if OUT_DONE */
	char text[TEXT_MAX];
	struct msg_total total;
	uint8_t transport; /* that the lanes took */
	uint16_t lanes;
	char how[HOST_MAX]; /* "tcp 10.0.0.1:7000", "rdma mlx5_0 10.0.0.1:7000" */
	char why[TEXT_MAX]; /* why not RDMA */
	uint64_t ns; /* from the first block to the end */
	uint64_t ns_fill, ns_free, ns_block, ns_store; /* of all lanes (lane.h) */
};
void msg_verdict_encode(struct writer *w, const struct msg_verdict *m);
int msg_verdict_decode(const struct frame *f, struct msg_verdict *m);

struct msg_cancel {
	uint8_t signo;
};
void msg_cancel_encode(struct writer *w, const struct msg_cancel *m);
int msg_cancel_decode(const struct frame *f, struct msg_cancel *m);

struct msg_detour {
	uint16_t port; /* on this end's loopback */
	char why[TEXT_MAX];
};
void msg_detour_encode(struct writer *w, const struct msg_detour *m);
int msg_detour_decode(const struct frame *f, struct msg_detour *m);
/* STUCK has the body of NOROUTE, LISTENING that of DETOUR with why "", GO has none. */
int msg_empty_decode(const struct frame *f);

/* ---- records in BLOCK_RECORDS blocks ------------------------------------------------- */
/* Whole ones: a record never goes on in another block. */

enum record_type { RECORD_FILE = 1, RECORD_DATA = 2, RECORD_FILE_END = 3, RECORD_HOLE = 4 };
enum {
	RECORD_HEAD = 8, /* u8 type, three zeros, u32 length of body */
	RECORD_DATA_HEAD = RECORD_HEAD + 12, /* of a DATA record before its bytes */
	RECORD_FILE_MAX = RECORD_HEAD + 50 + NAME_MAX_WIRE - 1,
	RECORD_FILE_END_MAX = RECORD_HEAD + 49 + TEXT_MAX - 1,
};

enum record_file_flags {
	FILE_STREAM = 1 << 0, /* size unknown until FILE_END; blocks are stored in order of pos */
	FILE_ORDERED =
		1 << 1, /* extents are not whole cells: hash and store them in order of pos */
	FILE_SPARSE = 1 << 2, /* has holes, which are told by HOLE records */
	FILE_MANY = 1 << 3, /* one of several files: the target must be a directory */
	FILE_FLAGS_ALL = (1 << 4) - 1,
};
struct record_file {
	uint32_t id; /* counted from 1, never used again in the session */
	uint32_t want; /* which WANT it answers, from 0 */
	uint32_t flags;
	uint32_t mode; /* permission bits, 07777 */
	uint64_t size; /* 0 for a stream */
	int64_t mtime_s, atime_s;
	uint32_t mtime_ns, atime_ns;
	char name[NAME_MAX_WIRE]; /* the last component; "" where there is none (stdin) */
};
void record_file_encode(struct writer *w, const struct record_file *r);

struct record_data {
	uint32_t id;
	uint64_t pos;
	uint32_t len; /* not on the wire: what is left of the record */
	const uint8_t *bytes; /* into the block */
};
void record_data_encode(struct writer *w, const struct record_data *r);

/* So many bytes at pos are zero, are not sent, and count nothing in the digest; len > 0. */
struct record_hole {
	uint32_t id;
	uint64_t pos;
	uint64_t len;
};
void record_hole_encode(struct writer *w, const struct record_hole *r);

struct record_file_end {
	uint32_t id;
	uint64_t size; /* of the file */
	uint64_t data; /* of its bytes that were sent, holes left out */
	uint64_t holes; /* of its bytes in HOLE records */
	uint16_t lanes; /* on how many lanes its FILE record was sent, 1..LANE_COUNT_MAX */
	uint64_t digest[2];
	uint8_t code; /* enum outcome; not OUT_DONE: drop the file */
	char text[TEXT_MAX];
};
void record_file_end_encode(struct writer *w, const struct record_file_end *r);

/* The next record of a block's bytes: 1, 0 when there is none left, -1 with a failure. */
struct record {
	enum record_type type;
	union {
		struct record_file file;
		struct record_data data;
		struct record_hole hole;
		struct record_file_end end;
	};
};
int record_next(struct reader *r, struct record *out);

#endif
