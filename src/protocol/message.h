/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_MESSAGE_H
#define PROTOCOL_MESSAGE_H

/*
 * Every message of the control channel and (record.h) every record of the lanes: struct, encoder,
 * decoder, limits. This is docs/protocol.md in C, and the only place of this layer that decodes
 * bytes from a peer.
 *
 * Encoders write the body into a writer. If the body does not fit, they set w->full; for our own
 * messages that is a bug. Decoders take the whole body, check every range, and check that no bytes
 * are left over. They return 0, or -1 with an OUT_PROTOCOL failure that names the message and the
 * field.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/cursor.h"
#include "base/fail.h"
#include "base/tos.h"
#include "lane/cell_hash.h"
#include "lane/compress.h"
#include "lane/head.h"

enum {
	PROTOCOL_VERSION = 2,
	FRAME_HEAD = 8, /* u32 length of body, u8 type, three zeros */
	FRAME_BODY_MAX = 64 << 10,
	NAME_MAX_WIRE = 4096, /* bytes of a path, with its NUL */
	HOST_MAX = 256,
	TEXT_MAX = 1024,
	OFFER_MAX = 16, /* addresses per transport in an OFFER */
	NONCE_SIZE = 32,
};

enum message_type {
	/* between the two ends; a conductor relays them unread */
	MSG_HELLO = 1,
	MSG_OFFER = 2, /* listening end -> connecting end */
	MSG_CHOICE = 3, /* connecting -> listening: the transport of the lanes, and the reason */
	MSG_NOROUTE = 4, /* connecting -> listening: no address of the offer can be reached */
	MSG_LANE_DOWN = 5,
	MSG_LANE_STORED = 6, /* sink -> source */
	MSG_PING = 7,
	MSG_PONG = 8,
	MSG_FILE_RESULT = 9, /* sink -> source: a file or directory has failed */
	MSG_END = 10, /* source -> sink: all data is sent and stored */
	MSG_DONE = 11, /* sink -> source: the verdict */
	MSG_ERROR = 12, /* either direction: the session failed, and why */
	MSG_STORED = 13, /* sink -> source: these files are complete and in place */
	MSG_ANSWERS = 14, /* sink -> source: answers to questions about files */
	MSG_CELLS = 15, /* sink -> source: digests of the cells it has of such a file */
	MSG_TIMES = 16, /* either direction, before END or DONE: how its lanes spent their time */
	/* Asks whether the lane's thread is busy, because no credit comes (source -> sink), or
	 * because the peer has not reported the end of an epoch that is over (either direction). */
	MSG_LANE_CHECK = 17,
	MSG_LANE_HELD = 18, /* the answer to LANE_CHECK */

	/* between a conductor and one end, never relayed; numbers from 64 */
	MSG_GREETING = 64, /* end -> conductor, its first frame */
	MSG_START = 65, /* conductor -> end */
	MSG_WANT = 66, /* conductor -> end: one source name, after START */
	MSG_GO = 67, /* conductor -> end: no more names */
	MSG_NOTE = 68, /* end -> conductor: a log line for the user */
	MSG_PROGRESS = 69, /* end -> conductor */
	MSG_VERDICT = 70, /* end -> conductor: the result of the session; its last frame */
	MSG_CANCEL = 71, /* conductor -> end: a signal arrived */
	MSG_DETOUR = 72, /* conductor -> connecting end: connect to this port instead */
	/* end -> conductor: no address of the offers can be reached, even with the roles swapped.
	 * Only a detour can help. */
	MSG_STUCK = 73,
	MSG_LISTENING = 74, /* listening end -> conductor: its TCP port on loopback */
	MSG_RULE = 75, /* conductor -> both ends: a pattern of --exclude or --include, in order */
	MSG_LISTED = 76, /* conductor -> both ends: a name from --files-from */
	MSG_EVENT = 77, /* end -> conductor: the result for one file */
	MSG_FINDING = 78, /* rdcp --survey -> rdcheck: one finding about its host */
	/* sink -> conductor: a name that it puts into the target. conductor -> sink: a name that an
	 * earlier session put there. */
	MSG_TAKEN = 79,
	MSG_MODULE = 80, /* conductor -> rdcpd, the first frame: the module that is meant */
	MSG_LIST = 81, /* conductor -> end at a rdcpd, in START's place: what to list */
	MSG_ENTRY = 82, /* end at a rdcpd -> conductor: one line of a listing */
};
static inline bool message_is_local(uint8_t type)
{
	return type >= 64;
}
/* For example "HELLO"; "unknown" for an unknown type. */
const char *message_name(uint8_t type);

/* ---- frames ------------------------------------------------------------------------ */

struct frame {
	uint8_t type;
	uint32_t len;
	const uint8_t *body; /* borrowed: valid until the handler that received it returns */
};
void frame_head_encode(uint8_t type, uint32_t len, uint8_t to[static FRAME_HEAD]);
/* Returns -1 for an unknown type, a body that is too long, or nonzero padding. */
int frame_head_decode(const uint8_t from[static FRAME_HEAD], uint8_t *type, uint32_t *len);

/* ---- between ends ------------------------------------------------------------------ */

enum transport { TRANSPORT_AUTO = 0, TRANSPORT_RDMA = 1, TRANSPORT_TCP = 2, TRANSPORT_SSH = 3 };
enum role { ROLE_SOURCE = 1, ROLE_SINK = 2 };
/* HELLO's features: this end can compress and decompress; and what make_compress_wish() takes. */
#define FEATURE_ZSTD UINT64_C(1)
#define FEATURE_COMPRESS_SHIFT 8

/* Whether an end's user wants blocks encrypted. */
enum encrypt { ENCRYPT_AUTO = 0, ENCRYPT_ON = 1, ENCRYPT_OFF = 2, ENCRYPT_WISHES };

struct msg_hello {
	uint16_t version;
	uint8_t role;
	uint8_t want; /* enum transport that this end's user requested */
	uint64_t features; /* no features are defined: 0 */
	/* The most lanes, depth and block size that this end wants; the smaller of both ends'
	 * values applies. */
	uint16_t lanes;
	uint16_t depth;
	uint32_t block_size;
	uint64_t memory; /* --memory: bytes of pool; UINT64_MAX: unlimited */
	uint64_t lockable; /* memlock_limit(); or 0: no RDMA here, and no_rdma says why */
	uint32_t timeout_ms;
	uint64_t host_id; /* equal on two ends that share a host and network namespace */
	uint8_t rdma_op; /* enum rdma_op that this end's user requested */
	uint16_t rails; /* most adapters (RDMA places) to spread lanes over; 0: no bound */
	uint8_t encrypt; /* enum encrypt that this end's user requested */
	uint32_t ciphers; /* bits: the ciphers that this end has */
	uint8_t nonce[NONCE_SIZE];
	char host[HOST_MAX]; /* name of this end in messages */
	char no_rdma[TEXT_MAX];
};
void msg_hello_encode(struct writer *w, const struct msg_hello *m);
int msg_hello_decode(const struct frame *f, struct msg_hello *m);

struct offer_place {
	uint8_t transport; /* TRANSPORT_RDMA or TRANSPORT_TCP */
	uint8_t family; /* 4 or 6 */
	uint16_t port;
	/* network byte order; an IPv4 address is in the first four bytes, the rest are zero */
	uint8_t addr[16];
	uint32_t rate; /* RDMA: rate of the port at this address in Mbit/s; 0: unknown, or TCP */
	uint8_t adapter; /* RDMA: equal for all places at the same port of an adapter */
};
struct msg_offer {
	uint8_t round; /* 0; 1 after the roles were swapped */
	uint64_t session; /* not 0: the id of this session at the listening end (lane/head.h) */
	uint8_t count; /* at most 2 * OFFER_MAX */
	struct offer_place places[2 * OFFER_MAX];
	char no_rdma[TEXT_MAX]; /* if the offer has no RDMA place: why */
};
void msg_offer_encode(struct writer *w, const struct msg_offer *m);
int msg_offer_decode(const struct frame *f, struct msg_offer *m);

struct msg_choice {
	uint8_t transport;
	/* why not RDMA; "" if the transport is RDMA or the user requested TCP */
	char why[TEXT_MAX];
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
	uint32_t epoch; /* the epoch that ended */
	uint64_t stored;
	bool damaged; /* the block after the stored ones arrived damaged */
};
void msg_lane_stored_encode(struct writer *w, const struct msg_lane_stored *m);
int msg_lane_stored_decode(const struct frame *f, struct msg_lane_stored *m);

struct msg_lane_check {
	uint16_t lane;
	uint32_t epoch; /* of the wire */
	uint32_t mtu; /* of the network device under the sender's wire; 0: unknown */
};
void msg_lane_check_encode(struct writer *w, const struct msg_lane_check *m);
int msg_lane_check_decode(const struct frame *f, struct msg_lane_check *m);

struct msg_lane_held {
	uint16_t lane;
	uint32_t epoch;
	uint32_t mtu;
	bool busy; /* the lane's thread is busy: neither the wire nor the peer is at fault */
};
void msg_lane_held_encode(struct writer *w, const struct msg_lane_held *m);
int msg_lane_held_decode(const struct frame *f, struct msg_lane_held *m);

struct msg_ping {
	uint64_t cookie;
}; /* body of PING and PONG */
void msg_ping_encode(struct writer *w, const struct msg_ping *m);
int msg_ping_decode(const struct frame *f, struct msg_ping *m);

struct msg_file_result {
	/* The id of a file or directory (they share one id space). 0: not an entry of the source,
	 * but something that failed at the target in the end. It is sent after END and before DONE,
	 * and DONE does not count it: a deletion, the deletions that --max-delete prevented (code
	 * OUT_MAX_DELETE), or metadata of stored files (code OUT_SOME_FILES). */
	uint32_t file;
	uint8_t code; /* enum outcome, never OUT_DONE; decoded with outcome_from() */
	char text[TEXT_MAX];
};
void msg_file_result_encode(struct writer *w, const struct msg_file_result *m);
int msg_file_result_decode(const struct frame *f, struct msg_file_result *m);

/* Files that are complete and in place. A FILE of any type whose FILE_END has no code gets one. */
enum { STORED_MAX = 4096, ANSWERS_MAX = 4096, CELLS_MAX = 2048 };
struct msg_stored {
	uint16_t count; /* 1 to STORED_MAX */
	uint32_t files[STORED_MAX];
};
void msg_stored_encode(struct writer *w, const struct msg_stored *m);
int msg_stored_decode(const struct frame *f, struct msg_stored *m);

/* Answers to FILE records with FILE_ASK. Each is answered once, or gets a FILE_RESULT. Also reports
 * which directories are new. */
enum answer {
	ANSWER_SEND = 1, /* the source must send it */
	ANSWER_SAME = 2, /* the sink has the same file and finishes it alone: nothing to send */
	/* Send it, except cells that equal those in CELLS: send HAVE for these. If its FILE then
	 * differs from the question (other than in ASK, SPARSE and atime), CELLS are void: send no
	 * HAVE. */
	ANSWER_RESUME = 3,
	/* CELLS has the target's cells: if all are equal, send SAME, else send the file */
	ANSWER_COMPARE = 4,
	/* The file was offered by descriptor, and now shares its blocks on disk with the source.
	 * Send HAVE for all of it, which adds nothing to the digest; or send the file. */
	ANSWER_CLONED = 6,
	/* This run made a directory that was announced. It is empty but for what the source sends,
	 * so the source need not ask about files below it. */
	ANSWER_NEW = 5,
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
 * Digests (XXH3-128 seeded with the position, as everywhere) of consecutive cells from pos on:
 * whole cells, and the last one, which ends with the file. All CELLS of a file precede its answer.
 * RESUME: the sink does not have the cells that it does not list. COMPARE: cells that it does not
 * list are zeros (a hole).
 */
struct msg_cells {
	uint32_t file;
	uint64_t pos; /* a multiple of 256 KiB */
	uint16_t count; /* 1 to CELLS_MAX */
	uint64_t digest[CELLS_MAX][2];
};
void msg_cells_encode(struct writer *w, const struct msg_cells *m);
int msg_cells_decode(const struct frame *f, struct msg_cells *m);

struct msg_total { /* part of END and DONE */
	uint64_t files; /* regular files and streams that were sent and are complete */
	uint64_t same; /* files that the sink had already: ANSWER_SAME, and SAME */
	uint64_t others; /* directories, symlinks, hard links, devices, FIFOs */
	uint64_t failed;
	uint64_t bytes; /* sum of the sizes of `files', with holes */
	uint64_t digest[2]; /* sum of their digests modulo 2^128 (low, high) */
	/* END: the source could not be read completely, so the sink must not delete anything. DONE:
	 * false. */
	bool incomplete;
	/* DONE, with DELETE: a hash that identifies the target; the source only compares it with
	 * what earlier DONEs said.  Else 0. */
	uint64_t target;
};
void msg_total_encode(struct writer *w, const struct msg_total *m);
int msg_total_decode(const struct frame *f, struct msg_total *m);

/* The kinds of input and output that `bound' can name as the bottleneck. */
enum stage_kind { KIND_NONE, KIND_DISK, KIND_PIPE, KIND_MEMORY, STAGE_KINDS };

/* How the lanes of one end spent their time: sums over all lanes (lane.h). `bound' names the
 * bottleneck from them. For the user only: nothing depends on the peer's numbers being true. */
struct msg_times {
	uint8_t kind; /* enum stage_kind of this end's input or output */
	bool same_host; /* both ends are on one host and share its processors */
	uint16_t used; /* lanes that carried a block */
	uint16_t cpus; /* processors that this end may use; 0: unknown */
	uint32_t rtt_us; /* the shortest round-trip time to the other end; 0: unknown */
	uint32_t block; /* block size in bytes */
	uint64_t window; /* bytes that may be in flight on all lanes in use */
	uint64_t moved; /* bytes of blocks, each block counted once */
	/* Source, in order: reading its input; waiting for credits; sending; waiting for answers
	 * and results with nothing to send; held back by --bwlimit (at a sink, too). */
	uint64_t ns_fill, ns_free, ns_send, ns_idle, ns_paced;
	/* Sink, in order: waiting for blocks; writing its output; writing its output alone after
	 * END, which is not a sum. */
	uint64_t ns_block, ns_store, ns_finish;
	uint64_t ns_cpu; /* processor time */
	/* The maximum over the lanes, in order: time on a processor or waiting for one; time at its
	 * input or output; all time that it counted. */
	uint64_t ns_hottest, ns_busiest, ns_longest;
	uint64_t ns_cipher; /* encrypting or decrypting, which is part of ns_send or ns_block */
	uint64_t ns_compress; /* reserved for compression: 0 */
};
void msg_times_encode(struct writer *w, const struct msg_times *m);
int msg_times_decode(const struct frame *f, struct msg_times *m);

struct msg_error {
	uint8_t code; /* enum outcome, never OUT_DONE */
	char host[HOST_MAX]; /* the host where it failed */
	char text[TEXT_MAX];
};
void msg_error_encode(struct writer *w, const struct msg_error *m);
int msg_error_decode(const struct frame *f, struct msg_error *m);

/* ---- between a conductor and an end ------------------------------------------------- */

#define GREETING_MAGIC "\x93SLUICE\n"
struct msg_greeting { /* its format never changes, so that both sides can compare versions */
	uint16_t version;
	char release[64]; /* of the program, for messages */
};
void msg_greeting_encode(struct writer *w, const struct msg_greeting *m);
int msg_greeting_decode(const struct frame *f, struct msg_greeting *m);

/*
 * START's flags. These are rules of the copy: X(field, bit) is a field of struct rules
 * (copy/rules/rules.h) and a bit of the flags. A new option that an end must know adds a line.
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
	X(atimes, 18) /* also atime of files: -p, as in scp */                                     \
	X(owner, 19)                                                                               \
	X(group, 20)                                                                               \
	X(devices, 21) /* recreate the devices and FIFOs of a tree */                              \
	X(hard_links, 22)                                                                          \
	X(acls, 23)                                                                                \
	X(xattrs, 24)                                                                              \
	X(xattrs_all, 25) /* --xattrs=all: also lustre.* and security.* */                         \
	X(numeric_ids, 26)                                                                         \
	X(copy_links, 27)                                                                          \
	X(relative, 28)                                                                            \
	X(one_file_system, 29)                                                                     \
	X(dry_run, 30)                                                                             \
	X(quick, 31) /* do not send a file with the same size and mtime */                         \
	X(update, 32) /* nor one whose target is newer */                                          \
	X(ignore_existing, 33)                                                                     \
	X(checksum, 34) /* nor one with the same content; no quick check */                        \
	X(delete, 35)                                                                              \
	X(delete_excluded, 36)                                                                     \
	X(backup, 37)                                                                              \
	X(verify, 38) /* sink: read back what was stored */                                        \
	X(events, 39) /* send an EVENT for each file */                                            \
	X(existing, 46) /* create nothing that is not in the target */

#define START_FLAG(bit) (UINT64_C(1) << (bit))
/* The other flags give an end its part and its way of working. */
#define START_LISTENS START_FLAG(0) /* this end listens for lanes first */
#define START_MANY START_FLAG(9) /* more than one source: the target must be a directory */
#define START_STDIO START_FLAG(10) /* this end's file is descriptor 0 or 1 (local end only) */
#define START_QUIET START_FLAG(11)
#define START_IPV4 START_FLAG(12)
#define START_IPV6 START_FLAG(13)
#define START_PROGRESS START_FLAG(14) /* send PROGRESS a few times a second */
#define START_FAR START_FLAG(15) /* this end was started over ssh */
#define START_FILES_FROM START_FLAG(40) /* LISTED names follow */
/* for rdbench: */
/* source: generates memory_bytes bytes; sink: discards them */
#define START_MEMORY START_FLAG(41)
#define START_UNCHECKED START_FLAG(42) /* lanes compute and check no hashes */
/* This end works alone and has no peer: it times its disk, as with SCRATCH, if there is a WANT or a
 * target. */
#define START_PROBE START_FLAG(43)
/* Measure the disk of a directory without putting a name into it. The source reads memory_bytes of
 * the file that WANT names, or of a nameless file that it makes in that directory. The sink writes
 * to a nameless file in target. */
#define START_SCRATCH START_FLAG(44)
/* Sessions with other hosts also put names into the target: TAKEN is sent and expected. */
#define START_SHARED START_FLAG(45)
/* What make_compress_wish() takes. */
#define START_COMPRESS_SHIFT 47
#define START_ALL (START_FLAG(START_COMPRESS_SHIFT + COMPRESS_WISH_BITS) - 1)

/* --direct: file I/O past the page cache. */
enum direct { DIRECT_AUTO, DIRECT_ON, DIRECT_OFF, DIRECTS };

/* --print-digest: the algorithm. */
enum content_digest { CONTENT_NONE, CONTENT_XXH128, CONTENT_SHA256, CONTENT_MD5, CONTENT_ADLER32 };
enum { CONTENT_DIGESTS = 5, RULE_TEXT_MAX = 4096, SUFFIX_MAX = 256, CHMOD_MAX = 1024 };
struct msg_start {
	uint16_t version;
	uint8_t role;
	uint8_t want; /* enum transport; SSH: lanes use a detour */
	uint8_t verbose; /* number of -v options, 0..3 */
	uint64_t flags;
	uint8_t secret[LANE_SECRET];
	uint16_t lanes, depth; /* 0: the end's default */
	uint32_t block_size; /* 0: default */
	uint64_t memory; /* UINT64_MAX: unlimited */
	uint64_t bwlimit; /* bytes per second; 0: unlimited */
	uint32_t timeout_ms, connect_timeout_ms;
	uint16_t port_lo, port_hi; /* 0: any port */
	char host[HOST_MAX]; /* name of this end in messages */
	char peer[HOST_MAX]; /* name of the other end */
	char address[HOST_MAX]; /* --address for this end, or "" */
	/* Sink: DST as the user wrote it, without the host. Source: "". */
	char target[NAME_MAX_WIRE];
	/* source: files of other sizes are not sent; 0 and UINT64_MAX: no bound */
	uint64_t min_size, max_size;
	uint64_t max_delete; /* sink: UINT64_MAX: no bound */
	uint8_t digest; /* enum content_digest: --print-digest */
	char chmod[CHMOD_MAX]; /* source: --chmod or "" */
	char chown[HOST_MAX]; /* sink: "USER:GROUP" or "" */
	char suffix[SUFFIX_MAX]; /* sink: suffix of backups, or "" */
	char backup_dir[NAME_MAX_WIRE]; /* sink: --backup-dir or "" */
	uint8_t rdma_op; /* enum rdma_op */
	uint16_t rails; /* 0: no bound */
	uint8_t direct; /* enum direct */
	uint64_t memory_bytes; /* bytes for START_MEMORY, START_PROBE and START_SCRATCH */
	uint16_t tos; /* --tos plus 1; 0: the host's default */
	uint8_t encrypt; /* enum encrypt */
};
void msg_start_encode(struct writer *w, const struct msg_start *m);
int msg_start_decode(const struct frame *f, struct msg_start *m);

/* To a source: one SRC as written. To a sink: the same, so that it accepts only names that the user
 * asked for. */
struct msg_want {
	char name[NAME_MAX_WIRE];
};
void msg_want_encode(struct writer *w, const struct msg_want *m);
int msg_want_decode(const struct frame *f, struct msg_want *m);

struct msg_rule {
	bool include;
	char pattern[RULE_TEXT_MAX]; /* in rsync's syntax */
};
void msg_rule_encode(struct writer *w, const struct msg_rule *m);
int msg_rule_decode(const struct frame *f, struct msg_rule *m);
/* LISTED has the body of WANT. */

/* One entry of a tree, as --itemize-changes, --json and --failed report it. */
enum event_what { EVENT_FILE = 1, EVENT_DIR, EVENT_SYMLINK, EVENT_HARD_LINK, EVENT_NODE };
enum { EVENT_PATH_MAX = 48 << 10, EVENT_CHANGE = 16, EVENT_DIGEST = 130 };
struct msg_event {
	uint8_t what; /* enum event_what */
	uint8_t code; /* enum outcome */
	bool deleted; /* deleted from the target */
	uint64_t size;
	/* In the format of rsync's --itemize-changes: ">f+++++++++"; "" if it failed. */
	char change[EVENT_CHANGE];
	char digest[EVENT_DIGEST]; /* hexadecimal, or "" */
	uint16_t path_len; /* less than EVENT_PATH_MAX; longer paths are cut at the front */
	/* path_len bytes without NUL: relative to DST's tree, as it was sent. Decoded: borrowed
	 * like f->body. */
	const char *path;
};
void msg_event_encode(struct writer *w, const struct msg_event *m);
int msg_event_decode(const struct frame *f, struct msg_event *m);

/* What rdcheck examined, and the result. */
enum finding_state { FINDING_OK = 1, FINDING_INFO, FINDING_WARNING, FINDING_FAILURE };
enum { FINDING_NAME = 32, FINDING_SUBJECT = 128 };
struct msg_finding {
	uint8_t state; /* enum finding_state */
	uint8_t family; /* 4 or 6: concerns the address in addr; 0: no address */
	bool rdma; /* addr belongs to an RDMA adapter */
	uint8_t addr[16]; /* as in OFFER */
	char name[FINDING_NAME]; /* what was examined: "pcie" */
	char subject[FINDING_SUBJECT]; /* which one: "mlx5_0 port 1", or "" */
	char what[TEXT_MAX];
	char remedy[TEXT_MAX]; /* or "" */
};
void msg_finding_encode(struct writer *w, const struct msg_finding *m);
int msg_finding_decode(const struct frame *f, struct msg_finding *m);

/* The first frame to a daemon. */
enum { MODULE_NAME_MAX = 64 };
struct msg_module {
	uint16_t version;
	char name[MODULE_NAME_MAX]; /* "": no module; only LIST may follow */
};
void msg_module_encode(struct writer *w, const struct msg_module *m);
int msg_module_decode(const struct frame *f, struct msg_module *m);
/* LIST has the body of WANT. */

enum entry_kind {
	ENTRY_MODULE = 1,
	ENTRY_FILE,
	ENTRY_DIR,
	ENTRY_SYMLINK,
	ENTRY_FIFO,
	ENTRY_CHAR,
	ENTRY_BLOCK,
	ENTRY_SOCKET,
};
struct msg_entry {
	uint8_t kind; /* enum entry_kind */
	uint16_t mode; /* permissions, at most 07777; a module: 0, like size and mtime */
	uint64_t size;
	int64_t mtime; /* seconds since 1970 */
	char name[NAME_MAX_WIRE]; /* one component; "." for the module's own directory */
	char about[NAME_MAX_WIRE]; /* a symlink's target, or a module's comment; else "" */
};
void msg_entry_encode(struct writer *w, const struct msg_entry *m);
int msg_entry_decode(const struct frame *f, struct msg_entry *m);

struct msg_note {
	uint8_t level; /* enum log_level */
	char text[TEXT_MAX];
};
void msg_note_encode(struct writer *w, const struct msg_note *m);
int msg_note_decode(const struct frame *f, struct msg_note *m);

struct msg_progress {
	uint64_t bytes; /* source: read, or skipped as holes; sink: stored */
	uint64_t total; /* source: of all files found so far */
	uint64_t files;
	bool total_known; /* the total is final */
};
void msg_progress_encode(struct writer *w, const struct msg_progress *m);
int msg_progress_decode(const struct frame *f, struct msg_progress *m);

/* Numbers for --stats, as far as this end knows them. */
struct msg_counts {
	uint64_t regular, dirs, symlinks, hard_links, nodes; /* entries that the user asked for */
	uint64_t created, deleted;
	uint64_t sent; /* bytes of files sent in lanes */
	uint64_t had; /* bytes that a resumed file had already */
	uint64_t holes; /* bytes in holes */
	uint64_t unkept; /* stored without some of the metadata that the user asked for */
};

/* Which blocks were encrypted. */
enum encrypted { ENCRYPTED_NONE = 0, ENCRYPTED_SOME = 1, ENCRYPTED_ALL = 2, ENCRYPTED_STATES };

struct msg_verdict {
	uint8_t code; /* enum outcome */
	char host[HOST_MAX]; /* where the first failure occurred; "" if OUT_DONE */
	char text[TEXT_MAX];
	struct msg_total total;
	uint8_t transport; /* of the lanes */
	uint16_t lanes;
	char how[HOST_MAX]; /* "tcp 10.0.0.1:7000", "rdma mlx5_0 10.0.0.1:7000" */
	char why[TEXT_MAX]; /* why not RDMA */
	uint8_t encrypted; /* enum encrypted */
	uint8_t cipher; /* enum cipher_kind; 0 if no block was encrypted */
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
	uint16_t port; /* on this end's loopback address */
	char why[TEXT_MAX];
};
void msg_detour_encode(struct writer *w, const struct msg_detour *m);
int msg_detour_decode(const struct frame *f, struct msg_detour *m);
/* STUCK has the body of NOROUTE. LISTENING has the body of DETOUR, with why "". GO has no body. */
int msg_empty_decode(const struct frame *f);

#include "protocol/record.h"

#endif
