/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_MESSAGE_H
#define PROTOCOL_MESSAGE_H

/*
 * Every message of the control channel and (record.h) every record of the lanes: struct, encode,
 * decode, limits.  docs/protocol.md in C, and the one place of this layer that decodes what
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
	PROTOCOL_VERSION = 2,
	FRAME_HEAD = 8, /* u32 length of body, u8 type, three zeros */
	FRAME_BODY_MAX = 64 << 10,
	NAME_MAX_WIRE = 4096, /* of a path, with its NUL */
	HOST_MAX = 256,
	TEXT_MAX = 1024,
	OFFER_MAX = 16, /* addresses in an OFFER, for each transport */
	NONCE_SIZE = 32,
	CELL_WIRE = 256 << 10, /* bytes of a file that have a digest of their own */
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
	MSG_FILE_RESULT = 9, /* sink -> source: a file or directory has failed */
	MSG_END = 10, /* source -> sink: everything was sent and stored */
	MSG_DONE = 11, /* sink -> source: the verdict */
	MSG_ERROR = 12, /* either: the session failed, and why */
	MSG_STORED = 13, /* sink -> source: these files are whole and in their place */
	MSG_ANSWERS = 14, /* sink -> source: what to do with files that it was asked about */
	MSG_CELLS = 15, /* sink -> source: digests of what it has of such a file */
	MSG_TIMES = 16, /* either, before END or DONE: what its lanes did with their time */
	MSG_LANE_CHECK = 17, /* no credit comes (source -> sink), or no word of an epoch that is
			      * over (either): is the lane's thread busy? */
	MSG_LANE_HELD = 18, /* the answer */

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
	MSG_RULE = 75, /* conductor -> both ends: a pattern of --exclude or --include, in order */
	MSG_LISTED = 76, /* conductor -> both ends: a name of --files-from */
	MSG_EVENT = 77, /* end -> conductor: what became of one file */
	MSG_FINDING = 78, /* rdcp --survey -> rdcheck: one thing about its host */
	MSG_TAKEN = 79, /* sink -> conductor: a name that it puts into the target; conductor ->
			 * sink: one that a session before it has put there */
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
	uint8_t rdma_op; /* enum rdma_op that this end's user asked for */
	uint16_t rails; /* most adapters (RDMA places) that lanes are spread over; 0: no bound */
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
	uint32_t rate; /* RDMA: of the port behind it, Mbit/s; 0: not known, or TCP */
	uint8_t adapter; /* RDMA: places at one port of an adapter have the same number here */
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

struct msg_lane_check {
	uint16_t lane;
	uint32_t epoch; /* of the wire */
	uint32_t mtu; /* of the network device under it at the sender's; 0: not known */
};
void msg_lane_check_encode(struct writer *w, const struct msg_lane_check *m);
int msg_lane_check_decode(const struct frame *f, struct msg_lane_check *m);

struct msg_lane_held {
	uint16_t lane;
	uint32_t epoch;
	uint32_t mtu;
	bool busy; /* the lane's thread is elsewhere: the wire, or the peer, is not to blame */
};
void msg_lane_held_encode(struct writer *w, const struct msg_lane_held *m);
int msg_lane_held_decode(const struct frame *f, struct msg_lane_held *m);

struct msg_ping {
	uint64_t cookie;
}; /* PING and PONG */
void msg_ping_encode(struct writer *w, const struct msg_ping *m);
int msg_ping_decode(const struct frame *f, struct msg_ping *m);

struct msg_file_result {
	/* Or directory: ids are of one space.  0: nothing of the source's, but something at the
	 * target that could not be done in the end, after END and before DONE, which does not
	 * count it: a deletion, (code OUT_MAX_DELETE) those that --max-delete left, or (code
	 * OUT_SOME_FILES) metadata of files that are stored. */
	uint32_t file;
	uint8_t code; /* enum outcome, never OUT_DONE; decoded with outcome_from() */
	char text[TEXT_MAX];
};
void msg_file_result_encode(struct writer *w, const struct msg_file_result *m);
int msg_file_result_decode(const struct frame *f, struct msg_file_result *m);

/* Files that are whole and in their place: a FILE without code in its FILE_END, of any type. */
enum { STORED_MAX = 4096, ANSWERS_MAX = 4096, CELLS_MAX = 2048 };
struct msg_stored {
	uint16_t count; /* 1 to STORED_MAX */
	uint32_t files[STORED_MAX];
};
void msg_stored_encode(struct writer *w, const struct msg_stored *m);
int msg_stored_decode(const struct frame *f, struct msg_stored *m);

/* What became of FILE records with FILE_ASK; each is answered once, or has a FILE_RESULT.  And
 * which directories are new. */
enum answer {
	ANSWER_SEND = 1, /* send it */
	ANSWER_SAME = 2, /* the sink has it, and will do the rest: it is done */
	/* Send it, but for cells that are equal to those of CELLS: HAVE.  If its FILE then differs
	 * from what was asked about (but in ASK, SPARSE and atime) CELLS are void: no HAVE. */
	ANSWER_RESUME = 3,
	ANSWER_COMPARE = 4, /* the target's cells are in CELLS: all equal: SAME, else send it */
	ANSWER_CLONED = 6, /* it was offered by a descriptor, and shares what is on the disk now:
			    * HAVE all of it, which counts as no digest; or send it */
	ANSWER_NEW = 5, /* a directory that was announced was made by this run, and is empty but for
			 * what the source sends: about files below it nothing need be asked */
};
struct msg_answers {
	uint16_t count; /* 1 to ANSWERS_MAX */
	struct {
		uint32_t file;
		uint8_t answer;
	} of[ANSWERS_MAX];
};
void msg_answers_encode(struct writer *w, const struct msg_answers *m);
int msg_answers_decode(const struct frame *f, struct msg_answers *m);

/*
 * Digests (XXH3-128 seeded with the position, as everywhere) of whole cells, and of a last one
 * that ends with the file, from pos on one after the other.  All of a file come before its
 * answer.  RESUME: cells not told are not there.  COMPARE: cells not told are zeros (a hole).
 */
struct msg_cells {
	uint32_t file;
	uint64_t pos; /* a multiple of 256 KiB */
	uint16_t count; /* 1 to CELLS_MAX */
	uint64_t digest[CELLS_MAX][2];
};
void msg_cells_encode(struct writer *w, const struct msg_cells *m);
int msg_cells_decode(const struct frame *f, struct msg_cells *m);

struct msg_total { /* END and DONE */
	uint64_t files; /* regular files and streams that were sent, and are whole */
	uint64_t same; /* files of which the sink had it all: ANSWER_SAME, and SAME */
	uint64_t others; /* directories, symlinks, hard links, devices, FIFOs */
	uint64_t failed;
	uint64_t bytes; /* sizes of `files', holes included */
	uint64_t digest[2]; /* sum of their digests, modulo 2^128 (low, high) */
	bool incomplete; /* END: not all that there is of the source could be read: delete
			    nothing.  DONE: false */
};
void msg_total_encode(struct writer *w, const struct msg_total *m);
int msg_total_decode(const struct frame *f, struct msg_total *m);

/* Something that is read or written: what the bottleneck is called by. */
enum stage_kind { KIND_NONE, KIND_DISK, KIND_PIPE, KIND_MEMORY, STAGE_KINDS };

/* What the lanes of one end did with their time (sums over all of them, lane.h), from which the
 * bottleneck is named; for the user only, so that nothing depends on a peer's being true. */
struct msg_times {
	uint8_t kind; /* enum stage_kind: what this end reads or writes */
	bool same_host; /* as the other end: their processors are the same ones */
	uint16_t used; /* lanes that carried a block */
	uint16_t cpus; /* that this end may run on; 0: not known */
	uint32_t rtt_us; /* the shortest round trip to the other end; 0: not known */
	uint32_t block; /* bytes of a block */
	uint64_t window; /* bytes that may be under way on all lanes that are used */
	uint64_t moved; /* bytes of blocks, each counted once */
	/* source: at its source; waiting for credits; in sending; waiting for answers and results,
	 * with nothing to send; held back by --bwlimit (a sink, too) */
	uint64_t ns_fill, ns_free, ns_send, ns_idle, ns_paced;
	/* sink: waiting for blocks; at its target; there alone after END, not a sum */
	uint64_t ns_block, ns_store, ns_finish;
	uint64_t ns_cpu; /* on processors */
	/* The most of any one lane: on a processor or waiting for one; at its source or target; all
	 * that it counted */
	uint64_t ns_hottest, ns_busiest, ns_longest;
};
void msg_times_encode(struct writer *w, const struct msg_times *m);
int msg_times_decode(const struct frame *f, struct msg_times *m);

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

/*
 * START's flags.  These are rules of the copy: X(field, bit) is a field of struct rules
 * (copy/rules/rules.h) and a bit of the flags.  An option that an end must know adds a line.
 */
#define START_RULES(X)                                                                             \
	X(perms, 1) /* --perms, -p */                                                              \
	X(mkpath, 2)                                                                               \
	X(remove_source, 3)                                                                        \
	X(fsync, 4)                                                                                \
	X(inplace, 5)                                                                              \
	X(no_sparse, 6)                                                                            \
	X(sparse, 7)                                                                               \
	X(no_target_dir, 8) /* -T */                                                               \
	X(recursive, 16)                                                                           \
	X(times, 17) /* mtime of everything */                                                     \
	X(atimes, 18) /* and atime of files: -p, as in scp */                                      \
	X(owner, 19)                                                                               \
	X(group, 20)                                                                               \
	X(devices, 21) /* devices and FIFOs of a tree are made anew */                             \
	X(hard_links, 22)                                                                          \
	X(acls, 23)                                                                                \
	X(xattrs, 24)                                                                              \
	X(xattrs_all, 25) /* --xattrs=all: lustre.* and security.* too */                          \
	X(numeric_ids, 26)                                                                         \
	X(copy_links, 27)                                                                          \
	X(relative, 28)                                                                            \
	X(one_file_system, 29)                                                                     \
	X(dry_run, 30)                                                                             \
	X(quick, 31) /* a file of the same size and mtime is not sent */                           \
	X(update, 32) /* nor one whose target is newer */                                          \
	X(ignore_existing, 33)                                                                     \
	X(checksum, 34) /* nor one whose content is the same; no quick check */                    \
	X(delete, 35)                                                                              \
	X(delete_excluded, 36)                                                                     \
	X(backup, 37)                                                                              \
	X(verify, 38) /* sink: read back what was stored */                                        \
	X(events, 39) /* send an EVENT for each file */                                            \
	X(existing, 46) /* what is not at the target is not made */

#define START_FLAG(bit) (UINT64_C(1) << (bit))
/* The others tell an end its part, and how to work. */
#define START_LISTENS START_FLAG(0) /* this end listens for lanes first */
#define START_MANY START_FLAG(9) /* more than one source: the target must be a directory */
#define START_STDIO START_FLAG(10) /* this end's file is descriptor 0 or 1 (local only) */
#define START_QUIET START_FLAG(11)
#define START_IPV4 START_FLAG(12)
#define START_IPV6 START_FLAG(13)
#define START_PROGRESS START_FLAG(14) /* send PROGRESS a few times a second */
#define START_FAR START_FLAG(15) /* this end was started over ssh */
#define START_FILES_FROM START_FLAG(40) /* LISTED names come */
/* rdbench's: */
#define START_MEMORY START_FLAG(41) /* source: makes memory_bytes bytes; sink: throws them away */
#define START_UNCHECKED START_FLAG(42) /* lanes without hashes */
#define START_PROBE                                                                                \
	START_FLAG(43) /* this end works alone: it times its disk, as SCRATCH has it, if           \
			  a WANT or target says so; there is no peer */
#define START_SCRATCH                                                                              \
	START_FLAG(44) /* disks of a directory, into which nothing is put: the source              \
			  reads memory_bytes of what WANT names, a file or one without             \
			  a name that it makes there; the sink writes into one in target */
#define START_SHARED                                                                               \
	START_FLAG(45) /* sessions with other hosts put names into the target, too: TAKEN comes,   \
			  and is wanted */
#define START_ALL (START_FLAG(47) - 1)

/* --direct: files past the page cache. */
enum direct { DIRECT_AUTO, DIRECT_ON, DIRECT_OFF, DIRECTS };

/* --print-digest: the algorithm. */
enum content_digest { CONTENT_NONE, CONTENT_XXH128, CONTENT_SHA256, CONTENT_MD5, CONTENT_ADLER32 };
enum { CONTENT_DIGESTS = 5, RULE_TEXT_MAX = 4096, SUFFIX_MAX = 256, CHMOD_MAX = 1024 };
struct msg_start {
	uint16_t version;
	uint8_t role;
	uint8_t want; /* enum transport; SSH: lanes come over a detour */
	uint8_t verbose; /* -v's, 0..3 */
	uint64_t flags;
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
	uint64_t min_size, max_size; /* source: files outside are not sent; 0, UINT64_MAX: any */
	uint64_t max_delete; /* sink: UINT64_MAX: no bound */
	uint8_t digest; /* enum content_digest: --print-digest */
	char chmod[CHMOD_MAX]; /* source: "" */
	char chown[HOST_MAX]; /* sink: "USER:GROUP", "" */
	char suffix[SUFFIX_MAX]; /* sink: of backups, "" */
	char backup_dir[NAME_MAX_WIRE]; /* sink: "" */
	uint8_t rdma_op; /* enum rdma_op */
	uint16_t rails; /* 0: no bound */
	uint8_t direct; /* enum direct */
	uint64_t memory_bytes; /* START_MEMORY, START_PROBE, START_SCRATCH: how many */
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

struct msg_rule {
	bool include;
	char pattern[RULE_TEXT_MAX]; /* as rsync has them */
};
void msg_rule_encode(struct writer *w, const struct msg_rule *m);
int msg_rule_decode(const struct frame *f, struct msg_rule *m);
/* LISTED has the body of WANT. */

/* One file, directory or other thing of a tree, as on -itemize-changes, --json, --failed. */
enum event_what { EVENT_FILE = 1, EVENT_DIR, EVENT_SYMLINK, EVENT_HARD_LINK, EVENT_NODE };
enum { EVENT_PATH_MAX = 48 << 10, EVENT_CHANGE = 16, EVENT_DIGEST = 130 };
struct msg_event {
	uint8_t what; /* enum event_what */
	uint8_t code; /* enum outcome */
	bool deleted; /* from the target */
	uint64_t size;
	char change[EVENT_CHANGE]; /* as rsync's --itemize-changes has it: ">f+++++++++"; "" when
				      it failed */
	char digest[EVENT_DIGEST]; /* hexadecimal; "" */
	uint16_t path_len; /* less than EVENT_PATH_MAX; longer ones are cut in front */
	const char *path; /* path_len bytes, no NUL at the end: relative to DST's tree, as it was
			     sent.  Decoded: borrowed as f->body is */
};
void msg_event_encode(struct writer *w, const struct msg_event *m);
int msg_event_decode(const struct frame *f, struct msg_event *m);

/* What rdcheck looked at, and found. */
enum finding_state { FINDING_OK = 1, FINDING_INFO, FINDING_WARNING, FINDING_FAILURE };
enum { FINDING_NAME = 32, FINDING_SUBJECT = 128 };
struct msg_finding {
	uint8_t state; /* enum finding_state */
	uint8_t family; /* 4 or 6: it is about this address of the host; 0: about no address */
	bool rdma; /* an RDMA adapter stands behind that address */
	uint8_t addr[16]; /* as in an OFFER */
	char name[FINDING_NAME]; /* of what was looked at: "pcie" */
	char subject[FINDING_SUBJECT]; /* which one: "mlx5_0 port 1", "" */
	char what[TEXT_MAX];
	char remedy[TEXT_MAX]; /* "" */
};
void msg_finding_encode(struct writer *w, const struct msg_finding *m);
int msg_finding_decode(const struct frame *f, struct msg_finding *m);

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

/* What --stats tells: numbers of things, as far as this end knows them. */
struct msg_counts {
	uint64_t regular, dirs, symlinks, hard_links, nodes; /* that were asked for */
	uint64_t created, deleted;
	uint64_t sent; /* bytes of files in lanes */
	uint64_t had; /* bytes that a resumed file had already */
	uint64_t holes; /* bytes of holes */
	uint64_t unkept; /* stored, and not all metadata that was asked for could be kept */
};

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
	struct msg_times times;
	struct msg_counts counts;
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

#include "protocol/record.h"

#endif
