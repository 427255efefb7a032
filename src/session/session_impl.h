/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_SESSION_IMPL_H
#define SESSION_SESSION_IMPL_H

/*
 * The private parts of a session: its life (session.c), its frames (session_frames.c), what both
 * ends agree on (terms.c), the route between them (offer.c, route.c), wires for lanes (mend*.c),
 * and the way back from TCP to RDMA (promote.c).
 *
 * Three kinds of threads meet here: the control thread in on_frame (never waits), the lanes'
 * threads in mend functions (wait in lane_end_wait()), and the thread that opened the session. One
 * lock protects what they share. No thread holds it across a call that can wait or log.
 */

#include <pthread.h>
#include <stdatomic.h>
#include "base/worker.h"
#include "lane/cipher.h"
#include "session/connect/nics.h"
#include "session/connect/rail.h"
#include "session/session.h"

enum {
	TIMEOUT_DEFAULT_MS = 15000,
	CONNECT_DEFAULT_MS = 10000,
	/* A peer may shorten the timeout, but not to less than this. */
	TIMEOUT_LEAST_MS = 1000,
	RDMA_TRY_MS = 2000, /* for one attempt at one place */
	TAKE_MS = 5000, /* time for a caller to finish its hello, at most */
	SHORTAGES_MAX = 5, /* less than the number of connections that may break in a row */
	DIAL_PAUSE_MS = 200,
	/* An accepting end waits this much longer, because the connecting end knows why it
	 * failed. */
	GRACE_MS = 2000,
	/* Further ssh connections may ask for a password. */
	DETOUR_MS = 120000,
	/* Each attempt over a detour may start an ssh, so pauses grow up to this. */
	DETOUR_PAUSE_MS = 2000,
	/* After this many RDMA wires broke in a short time, a lane stays with TCP if it can. */
	OFTEN_BREAKS = 3,
	/* Instead of a time after which a lane may return to RDMA: it has not tried RDMA now; what
	 * stopped it stays. */
	RETURN_AS_PLANNED = -1,
	RETURN_NEVER = -2,
};

/* ---- what both ends agree on ------------------------------------------------------------- */

struct terms {
	enum transport want; /* of both ends together */
	unsigned lanes;
	uint32_t depth, block_size;
	int timeout_ms;
	bool same_host;
	bool rdma; /* RDMA may be tried */
	enum rdma_op rdma_op; /* never AUTO */
	unsigned rails; /* most RDMA places to spread lanes over, at least 1 */
	enum encrypt encrypt; /* AUTO: each wire decides; see terms_demand_seal() */
	enum cipher_kind cipher; /* NONE: no wire is encrypted */
	unsigned compress; /* a wish; 0: no block is compressed */
	char no_zstd[HOST_MAX]; /* which end cannot compress, although that was wished; or "" */
	char no_rdma[TEXT_MAX]; /* why not RDMA; "" if neither user needs to know */
};
/* Computed from the two HELLOs alone, so that both ends get the same result or the same failure. */
int terms_agree(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *out);

struct lane_end;
/* For the next attempt over this transport: whether this end demands that the wire is encrypted.
 * ssh encrypts what goes through it. In the lane's thread. */
void terms_demand_seal(struct lane_end *e, enum transport t);

/* Warns if this end's limit of locked memory has made the lanes fewer or smaller. */
void terms_warn_of_memlock(struct session *s);
/* If a user wished for compression, and one end cannot. */
void terms_warn_of_zstd(struct session *s);

/* ---- the route between the ends ------------------------------------------------------------- */

enum connect_stage {
	STAGE_FIRST, /* the end that was ordered to listen listens */
	STAGE_SWAPPED, /* the other end listens */
	STAGE_DETOUR, /* the first end listens again, through a conductor's loopback port */
};

struct route {
	enum connect_stage stage;
	bool offered[2]; /* the OFFER of that round has arrived */
	struct msg_offer offers[2];
	char stuck[2][TEXT_MAX]; /* why no place of that round could be reached */
	bool have_detour;
	uint16_t detour_port;
	/* why the last connection over the detour was not carried, or "" */
	char detour_why[TEXT_MAX];
	unsigned detours; /* number of DETOURs that arrived */
	bool chosen; /* lane 0 has a wire; the stage is final */
	enum transport transport;
	bool knocked; /* connecting end: RDMA since a knock, so that lanes begin with TCP */
	uint64_t knock_ms; /* how long the last knock took that was answered */
	char why[TEXT_MAX]; /* why not RDMA */
	struct rail rails[OFFER_MAX]; /* RDMA: lane 0 uses the first one */
	unsigned rail_count;
	/* listening end: an RDMA address in the offer, if all of them belong to one adapter; else
	 * family 0 */
	union address prepare_at;
};

/* Listening end: the OFFER of the round, which waits for the lanes' memory. Only `stop' is shared.
 */
struct late_offer {
	struct worker worker;
	bool stop;
	struct msg_offer m;
};

/* ---- promotion: promote.c -----------------------------------------------------------------------
 */

/* Protected by the session's lock, except worker. */
struct promoter {
	struct worker worker;
	bool started, stop;
	uint64_t due_ms; /* when to knock (clock_ms); 0: not planned */
	uint64_t paused_until_ms; /* not before this, because the last try failed */
	unsigned failures; /* in a row; a long good run ends the row */
	uint64_t reported_ms; /* when the user last learned of it, except at INFO; 0: never */
};

/* ---- one end of a lane ---------------------------------------------------------------- */

/* The peer's answers to LANE_CHECK since the last look. */
enum held_report { HELD_NONE, HELD_IDLE, HELD_BUSY };

struct lane_end {
	struct session *s;
	struct lane *lane;
	unsigned index;
	int nudge; /* eventfd: state under the lock has changed */
	int wake; /* epoll: nudge, and the lane's abort */
	_Atomic int transport; /* of the lane's wire, enum transport */

	/* protected by the session's lock */
	/* The peer is done with all epochs up to down_epoch, and its lane's thread can make a new
	 * wire. */
	bool down;
	uint32_t down_epoch;
	char down_why[FAIL_TEXT_MAX];
	/* Source: the sink has stored `stored' blocks and is done with all epochs up to
	 * fenced_epoch. */
	bool fenced;
	uint32_t fenced_epoch;
	uint64_t stored;
	enum held_report held; /* HELD_BUSY if one of the answers was */
	bool on_tcp; /* its wire is TCP, or was before it broke */
	bool promote; /* its TCP wire was broken so that it returns to RDMA */
	bool mending; /* the lane's thread is in session_mend() */
	bool memory_tried; /* accepting end: its memory is prepared, or cannot be */
	/* not before this; 0: at once, for it never tried RDMA; UINT64_MAX: never */
	uint64_t promote_after_ms;
	uint64_t promoted_ms; /* when it returned to RDMA, which it still uses; else 0 */
	uint64_t promoted_stored; /* blocks that were stored then */
	unsigned relapses; /* how often in a row it soon left RDMA after that */
	/* the route's detours when the lane began to look for its next wire */
	unsigned detours_before;

	/* for the lane's thread only */
	uint32_t next_epoch; /* for the next attempt; 0: no epoch is left */
	uint32_t first_epoch; /* of the attempts to get the next wire */
	/* why the last of them failed, and its epoch; "": none has */
	char attempt_why[FAIL_TEXT_MAX];
	uint32_t attempt_epoch;
	bool attempt_ended; /* the reason may be only that the other end has ended it */
	bool down_sent; /* down_sent_epoch is valid */
	uint32_t down_sent_epoch; /* of the last LANE_DOWN that was sent */
	unsigned shortages; /* TCP connections in a row for which this host had no resources */
	/* Memory for the next RDMA wire, or NULL. Changes while the lane is mending; the thread
	 * that promotes lanes may set it at other times, with the lock held. */
	struct verbs *prepared;
	bool unprepared; /* it could not be prepared */
	bool was_rdma; /* the last wire was RDMA, so the next may be */
	unsigned rail; /* rail of its last RDMA wire; changes only while the lane is mending */
	/* why the lane uses no RDMA from now on; cleared once it was reported */
	char no_rdma[FAIL_TEXT_MAX];
	unsigned rdma_breaks; /* RDMA wires that broke */
	uint64_t break_ms[OFTEN_BREAKS]; /* the times of the last ones, as a ring */

	atomic_bool awaits_peer; /* the lane's thread waits only for the peer; LANE_DOWN wakes it */
	_Atomic uint32_t peer_mtu; /* from LANE_CHECK or LANE_HELD */
};

struct session {
	struct session_opts o;
	enum lane_side side;
	struct control *control;
	struct msg_hello mine, peer;
	struct terms terms;
	/* For lanes that this end accepts, and for those that it dials. They differ in the id of
	 * the session: each end chooses one for when it listens. */
	struct lane_key key, dial_key;
	uint32_t rtt_us; /* of the control channel at the beginning; 0: unknown */
	union address local; /* address of the control connection at this end; family 0: none */
	struct porter *porter; /* o.porter, or own_porter */
	struct porter *own_porter;
	struct lane_end ends[LANE_COUNT_MAX];

	pthread_mutex_t lock;
	pthread_cond_t changed; /* uses CLOCK_MONOTONIC */
	bool agreed; /* HELLO has arrived, and the terms are valid */
	unsigned lanes; /* open lanes */
	struct route route;
	struct late_offer late_offer;
	bool failed, ended;
	bool error_pending; /* MSG_ERROR is not in the outbox yet */
	struct failure failure;
	char failed_host[HOST_MAX];
	struct failure shortage; /* what this host lacked for a connection of a lane */
	uint64_t shortage_ms; /* when (clock_ms); 0: never, or a lane got a wire since */
	/* Lanes, depth and block size that this end would have proposed for RDMA if its locked
	 * memory had no limit. */
	struct sizing unlimited;
	struct promoter promoter;
	atomic_bool sealed; /* a wire of the session was encrypted: all later ones are */
	uint64_t pace_ns; /* when the next block may be sent */
	/* The user was warned why a lane uses no RDMA, and why it could not be taken over RDMA. */
	atomic_bool no_rdma_reported;
	atomic_bool unable_reported;
	/* 1 + the log level at which the user learned that TCP is used and why; 0: not at all */
	atomic_uint tcp_reported;
};

/* Latches the session's first failure and wakes all threads. host: the host that the peer named as
 * the cause; NULL: the failure is ours, and it is reported to the peer. */
void session_latch(struct session *s, const struct failure *f, const char *host);
/* Handlers for the control channel. */
int session_on_frame(void *ctx, const struct frame *f);
void session_on_refused(void *ctx);
void session_on_lost(void *ctx, bool clean);
uint64_t session_heard_ms(void *ctx);

/* Fails because the peer sent a frame that is not allowed, or not allowed now; returns -1. */
int session_fail_unexpected(struct session *s, const struct frame *f);
/* Wakes every lane's thread so that it looks at the state again. Call with the lock held. */
void session_nudge(struct session *s);
/* Pauses after the failed attempt to connect with this number (from 0). Returns 1; 0 if the
 * deadline is too near for another attempt; -1 if the lane was aborted. */
int mend_pause(struct lane_end *e, unsigned attempt, uint64_t deadline_ms);
/* After a first connection over ssh failed: when to give up according to --connect-timeout. The
 * time before may have been spent at a password prompt. */
uint64_t mend_detour_deadline(const struct session *s, uint64_t deadline_ms);
/* The deadline, later by the time that registering memory has taken since lane_stopped_ms() was
 * stopped_ms. */
static inline uint64_t mend_move_deadline(const struct lane_end *e, uint64_t deadline_ms,
					  uint64_t stopped_ms)
{
	return deadline_ms ? deadline_ms + lane_stopped_ms(e->lane) - stopped_ms : 0;
}
/* The text of f, or the conductor's better reason why a lane over ssh was not carried, if the
 * conductor sent one since this lane began to look for a wire. */
const char *mend_failure_text(struct lane_end *e, const struct failure *f,
			      char to[static FAIL_TEXT_MAX]);
/* Waits for a nudge: returns 0; -1 if the lane was aborted or the deadline (0: none) has passed. */
int lane_end_wait(struct lane_end *e, uint64_t deadline_ms);

/* Returns true if this end connects at this stage, false if it accepts. */
bool route_dials(const struct session *s, enum connect_stage stage);
enum connect_stage route_stage(struct session *s);
void route_set_stage(struct session *s, enum connect_stage stage);
/* Which of this host's addresses to offer, or to offer if this end listened. */
struct offer_rules offer_rules(const struct session *s);
/* Listens and sends the OFFER of this round. */
int route_listen(struct session *s, unsigned round);
/* Listening end: registers the lane's memory before a caller's time runs, if it is clear with which
 * adapter; the OFFER waits for that for a while. In the lane's thread. */
void offer_prepare_memory(struct lane_end *e);
/* Joins the thread that sends a late OFFER. */
void offer_close(struct session *s);
/* The lane will not use RDMA again: frees the memory that was prepared for it. In its thread. */
void offer_drop_memory(struct lane_end *e);
/* Listening end: reports the failure with which this lane could not take a caller over RDMA, once,
 * if the other end does not. */
void offer_warn_unable(struct lane_end *e);
/* Handle frames of the control channel. Control thread. */
int route_on_offer(struct session *s, const struct frame *f);
int route_on_choice(struct session *s, const struct frame *f);
int route_on_noroute(struct session *s, const struct frame *f);
int route_on_detour(struct session *s, const struct frame *f);

/* Returns the index of the rail that this lane tries next in a round; -1: none. */
int mend_next_rail(struct lane_end *e, unsigned tries, struct rail *out);

/* Connecting end: finds out whether one of the RDMA rails can be used, or becomes one. 0: the lanes
 * may use the route's rails. -1 with a failure. */
int route_knock(struct session *s);
/* How long an attempt of a lane that is promoted may take: twice as long as the knock. */
uint64_t route_promotion_ms(struct session *s);
/* How long an RDMA caller of the lane may take to finish its hello: half of the time that the lane
 * has to be connected (first) or reconnected, if its TCP connection may come next. */
int route_take_ms(const struct lane_end *e, bool first);
/* Whether RDMA is known to work only since a knock: the lanes begin with TCP, and are promoted. */
bool route_knocked(struct session *s);

/* How much of the time left a lane that is promoted may spend on RDMA. The rest is for TCP. */
int promote_share(int left_ms);
/* Connecting end: the lane uses TCP, and may return to RDMA after ms, or later if it did not use
 * RDMA for long after it had returned before; or RETURN_NEVER. In the lane's thread. */
void promote_later(struct lane_end *e, int ms);
/* The user learned again that a lane uses TCP. */
void promote_report_again(struct lane_end *e);
/* Whether the lane's wire was broken for RDMA. */
bool promote_ordered(struct lane_end *e);
/* Whether the other end gave up the wire before this epoch for RDMA. */
bool promote_ordered_there(struct lane_end *e, uint32_t epoch);
/* The lane's thread begins to look for a wire, or has found one. */
void promote_mending(struct lane_end *e, bool begins);
/* That lane could not be connected over RDMA: none is promoted for a while. */
void promote_failed(struct lane_end *e);
/* The lane has a new wire. Reports once when RDMA is used again, if the user learned of TCP. */
void promote_note(struct lane_end *e, enum transport before, enum transport now);
/* No lane is promoted from now on. Any thread. */
void promote_stop(struct session *s);
/* Also joins the thread. The lanes' threads must have been joined. */
void promote_close(struct session *s);

/* This host lacked a resource for a connection of the lane, as failed() has it. Returns whether
 * that lasts. In the lane's thread. */
bool shortage_note(struct lane_end *e);
/* The lane has a wire. In its thread. */
void shortage_end(struct lane_end *e);
/* If f may be a consequence of what this host lacked a short time ago: replaces it with that, and
 * returns true. Any thread. */
bool shortage_explains(struct session *s, struct failure *f);
/* The ends could not connect, and lanes may go over ssh instead: warns of what this host lacked. */
void shortage_warn(struct session *s);

/* Result of an attempt to connect. */
enum attempt_result { ATTEMPT_DONE, ATTEMPT_FAILED /* failed() has the reason */, ATTEMPT_FATAL };
/* For lane 0 of the connecting end: finds the route at this stage. ATTEMPT_FAILED: the stage is
 * over. */
enum attempt_result route_find(struct lane_end *e, enum connect_stage stage);
/* All TCP places that may be dialed now. */
unsigned route_tcp_places(struct session *s, union address *to, unsigned max);
/* True if this end reports the lanes' route to the user; the other end may do so too. */
bool route_reports(struct session *s);

/* One attempt to connect a lane: over RDMA, or over TCP to the first of n places that answers. */
enum attempt_result mend_over_rail(struct lane_end *e, const struct rail *r, uint64_t deadline_ms);
enum attempt_result mend_over_tcp(struct lane_end *e, const union address *to, unsigned n,
				  uint64_t deadline_ms);
int mend_on_down(struct session *s, const struct frame *f);
int mend_on_stored(struct session *s, const struct frame *f);
int mend_check_lane(struct session *s, const struct frame *f, unsigned lane, uint32_t epoch);
/* Announces that this end is done with the epoch and all earlier ones. */
int mend_announce_over(struct lane_end *e, uint32_t epoch, const char *why);
/* Ends, at a lane without a wire here, the epochs that the peer has given up and this end has not
 * heard of. */
int mend_answer_down(struct lane_end *e);
/* Waits until both ends' threads are done with the epoch. Returns 0; -1 if the lane was aborted, or
 * the peer's thread will never get there. */
int mend_fence(struct lane_end *e, uint32_t epoch, const char *why);
/* mend_reason.c: adds the other end's reason to this thread's failure, if it comes soon. The
 * attempt of this epoch failed, and the other end gave it up. */
enum attempt_result mend_add_peer_reason(struct lane_end *e, uint32_t epoch, uint64_t deadline_ms);
/* The wait for a caller has failed. If only its time was over, adds why the last attempt failed. */
void mend_fail_no_caller(struct lane_end *e, bool first, int timeout_ms);
/* Why the wire of the epoch before this one broke, after the fence. An RDMA wire that the other end
 * has ended only shows that (`why'); the reason is in that end's LANE_DOWN. */
void mend_copy_cause(struct lane_end *e, uint32_t epoch, const char *why,
		     char to[static FAIL_TEXT_MAX]);
/* mend_check.c: a source asks its sink why no credit comes, or either end asks the other why it
 * does not give up a wire. mend_ask() returns -1 if there is no room for the question now. */
int mend_ask(struct lane_end *e, uint32_t epoch);
int mend_on_check(struct session *s, const struct frame *f);
int mend_on_held(struct session *s, const struct frame *f);
/* A wire broke: decides whether the lane uses no RDMA from now on. -1: it cannot do without RDMA,
 * and there is no hope. */
int mend_decide_rdma(struct lane_end *e, const char *why);
/* RDMA wires that break OFTEN_BREAKS times within this time are worse than TCP. */
int mend_often_ms(const struct session *s);
/* The lanes' ask function. */
void session_ask(void *ctx, struct lane *l, uint32_t epoch);
/* The lanes' mend function; ctx is the lane_end. */
int session_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why);

#endif
