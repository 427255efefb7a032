/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_SESSION_IMPL_H
#define SESSION_SESSION_IMPL_H

/*
 * A session's inside: its life (session.c), its frames (frames.c), what both ends agree on
 * (agree.c), the way between them (offer.c, route.c), and wires for lanes, the first and every
 * other (mend*.c).
 *
 * Three kinds of threads meet here: the control thread in on_frame (never waits), the lanes'
 * threads in mend functions (wait in lane_end_wait()), and whoever opened the session.  What
 * they share is under the one lock, which is never held over a call that can wait or log.
 */

#include <pthread.h>
#include <stdatomic.h>
#include "session/connect/rail.h"
#include "session/session.h"

enum {
	TIMEOUT_DEFAULT_MS = 15000,
	CONNECT_DEFAULT_MS = 10000,
	/* A peer may shorten our patience, not take it away. */
	TIMEOUT_LEAST_MS = 1000,
	RDMA_TRY_MS = 2000, /* for one attempt at one place */
	TAKE_MS = 5000, /* for a caller to finish its hello */
	SHORTAGES_MAX = 5, /* fewer than connections that may break in a row */
	DIAL_PAUSE_MS = 200,
	/* An accepting end lets the connecting one fail first, since that knows why. */
	GRACE_MS = 2000,
	/* Further ssh connections may ask for a password. */
	DETOUR_MS = 120000,
	/* Each attempt there may cost an ssh: pauses grow to this. */
	DETOUR_PAUSE_MS = 2000,
	/* RDMA wires of a lane that break in a short time, until it stays with TCP if it can. */
	OFTEN_BREAKS = 3,
};

/* ---- what both ends agree on ------------------------------------------------------------- */

struct terms {
	enum transport want; /* of both together */
	unsigned lanes;
	uint32_t depth, block_size;
	int timeout_ms;
	bool same_host;
	bool rdma; /* may be tried */
	enum rdma_op rdma_op; /* never AUTO */
	unsigned rails; /* most RDMA places to spread lanes over, at least 1 */
	char no_rdma[TEXT_MAX]; /* why not; "" when nobody wants to know */
};
/* From both HELLOs alone, so that both ends come to the same, and to the same failures. */
int terms_agree(const struct msg_hello *mine, const struct msg_hello *peer, struct terms *out);

/* ---- the way between the ends -------------------------------------------------------------- */

enum connect_stage {
	STAGE_FIRST, /* the end that was told to listens */
	STAGE_SWAPPED, /* the other one does */
	STAGE_DETOUR, /* the first again, through a conductor's loopback port */
};

struct route {
	enum connect_stage stage;
	bool offered[2]; /* OFFER of that round came */
	struct msg_offer offers[2];
	char stuck[2][TEXT_MAX]; /* why nothing of that round's could be reached */
	bool have_detour;
	uint16_t detour_port;
	char detour_why[TEXT_MAX]; /* why the last connection there was not carried, "" */
	unsigned detours; /* DETOURs that came */
	bool chosen; /* lane 0 has a wire; the stage is final */
	enum transport transport;
	char why[TEXT_MAX]; /* why not RDMA */
	struct rail rails[OFFER_MAX]; /* RDMA: lane 0 went over the first */
	unsigned rail_count;
};

/* ---- one end of a lane ------------------------------------------------------------------------
 */

/* The peer's answers to LANE_CHECK since the last look. */
enum held_seen { HELD_NOTHING, HELD_IDLE, HELD_BUSY };

struct lane_end {
	struct session *s;
	struct lane *lane;
	unsigned index;
	int nudge; /* eventfd: something under the lock changed */
	int wake; /* epoll: nudge, and the lane's abort */
	_Atomic int transport; /* of its wire, enum transport */

	/* under the session's lock */
	bool down; /* the peer is done with all epochs up to down_epoch, and its */
	uint32_t down_epoch; /* lane's thread is where it can make a new wire */
	char down_why[FAIL_TEXT_MAX];
	bool fenced; /* source: the sink has stored `stored' and is done with all */
	uint32_t fenced_epoch; /* epochs up to this */
	uint64_t stored;
	enum held_seen held; /* BUSY, if one of them was */
	unsigned detours_before; /* the route's, when the lane began to look for its next wire */

	/* the lane's thread's own */
	uint32_t next_epoch; /* for the next attempt; 0: none is left */
	bool said; /* LANE_DOWN was sent, last of this epoch */
	uint32_t said_epoch;
	unsigned shortages; /* TCP connections in a row that this host had no room for */
	bool was_rdma; /* and so may its next wire be */
	unsigned rail; /* that its last RDMA wire took */
	char no_rdma[FAIL_TEXT_MAX]; /* why it does without RDMA from now on, until that was told */
	unsigned breaks; /* of RDMA wires, and when the last ones were */
	uint64_t broke_ms[OFTEN_BREAKS];

	atomic_bool waits; /* its thread waits for nothing but the peer, and LANE_DOWN wakes it */
	_Atomic uint32_t peer_mtu; /* as LANE_CHECK or LANE_HELD said */
};

struct session {
	struct session_opts o;
	enum lane_side side;
	struct control *control;
	struct msg_hello mine, peer;
	struct terms terms;
	struct lane_key key;
	union address local; /* of the control connection; family 0: none */
	struct porter *porter; /* o.porter, or own_porter */
	struct porter *own_porter;
	struct lane_end ends[LANE_COUNT_MAX];

	pthread_mutex_t lock;
	pthread_cond_t changed; /* on CLOCK_MONOTONIC */
	bool greeted; /* HELLO came and terms are agreed */
	unsigned lanes; /* that are open */
	struct route route;
	bool failed, ended;
	bool telling; /* the peer is being told why */
	struct failure failure;
	char failed_host[HOST_MAX];
	uint64_t pace_ns; /* when the next block may go */
	atomic_bool told_no_rdma; /* the user knows why a lane does without it */
	atomic_bool told_shortage; /* and what this host had no room for */
};

/* The session's first failure, and everybody wakes.  host: where the peer says it was, NULL: it
 * is ours and the peer is told. */
void session_latch(struct session *s, const struct failure *f, const char *host);
/* The control channel's handlers. */
int session_on_frame(void *ctx, const struct frame *f);
void session_on_refused(void *ctx);
void session_on_lost(void *ctx, bool clean);
uint64_t session_heard_ms(void *ctx);

/* The peer sent a frame that it may not send, or not now: -1. */
int session_fail_unexpected(struct session *s, const struct frame *f);
/* Everything that a lane's thread may wait for has changed: look again. With the lock held. */
void session_nudge(struct session *s);
/* The pause after a failed attempt of the given number (from 0) to connect: 1; 0 when the deadline
 * is too near for another one; -1 when the lane is aborted. */
int mend_pause(struct lane_end *e, unsigned attempt, uint64_t deadline_ms);
/* A first connection over ssh failed: when to give up, as --connect-timeout has it.  What went
 * before may have been a password that somebody typed. */
uint64_t mend_detour_deadline(const struct session *s, uint64_t deadline_ms);
/* f, or what the conductor knows better: why a lane over ssh was not carried, if it said so since
 * this one began to look for a wire. */
const char *route_failure_text(struct lane_end *e, const struct failure *f,
			       char to[static FAIL_TEXT_MAX]);
/* Wait until nudged: 0; -1 when the lane is aborted or the deadline (0: none) is over. */
int lane_end_wait(struct lane_end *e, uint64_t deadline_ms);

/* Does this end connect (else it accepts) at this stage? */
bool route_dials(const struct session *s, enum connect_stage stage);
enum connect_stage route_stage(struct session *s);
void route_set_stage(struct session *s, enum connect_stage stage);
/* Which of this host's addresses to offer, or would be if this end listened. */
struct offer_rules offer_rules(const struct session *s);
/* Listen and send the OFFER of this round. */
int route_listen(struct session *s, unsigned round);
/* Frames of the control channel. Control thread. */
int route_on_offer(struct session *s, const struct frame *f);
int route_on_choice(struct session *s, const struct frame *f);
int route_on_noroute(struct session *s, const struct frame *f);
int route_on_detour(struct session *s, const struct frame *f);

/* What came of an attempt to connect. */
enum attempt_result { ATTEMPT_DONE, ATTEMPT_FAILED /* failed() says why */, ATTEMPT_FATAL };
/* Lane 0 of the connecting end: find the way at this stage; ATTEMPT_FAILED: the stage is over. */
enum attempt_result route_find(struct lane_end *e, enum connect_stage stage);
/* All TCP places that may be dialed now. */
unsigned route_tcp_places(struct session *s, union address *to, unsigned max);
/* Should this end tell the user about the lanes' way (the other end may as well)? */
bool route_reports(struct session *s);

/* One attempt to connect a lane: over RDMA, by TCP to the first of n places that answers. */
enum attempt_result mend_over_rail(struct lane_end *e, const struct rail *r, uint64_t deadline_ms);
enum attempt_result mend_over_tcp(struct lane_end *e, const union address *to, unsigned n,
				  uint64_t deadline_ms);
int mend_on_down(struct session *s, const struct frame *f);
int mend_on_stored(struct session *s, const struct frame *f);
int mend_check_lane(struct session *s, const struct frame *f, unsigned lane, uint32_t epoch);
/* This end is done with the epoch and all before. */
int mend_announce_over(struct lane_end *e, uint32_t epoch, const char *why);
/* The lane has no wire here: what the peer gave up that this end has not heard of is over. */
int mend_answer_down(struct lane_end *e);
/* Both ends' threads are done with the epoch: 0; -1 when the lane is aborted, or the peer's thread
 * never will be. */
int mend_fence(struct lane_end *e, uint32_t epoch, const char *why);
/* mend_check.c: a source asks its sink why no credit comes, either end the other one why it does
 * not give up a wire.  mend_ask: -1 when there is no room for it now. */
int mend_ask(struct lane_end *e, uint32_t epoch);
int mend_on_check(struct session *s, const struct frame *f);
int mend_on_held(struct session *s, const struct frame *f);
/* A wire broke: does the lane do without RDMA from now on?  -1: it can't, and it is hopeless. */
int mend_judge(struct lane_end *e, const char *why);
/* The lanes' ask function. */
void session_ask(void *ctx, struct lane *l, uint32_t epoch);
/* The lanes' mend function; ctx is the lane_end. */
int session_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why);

#endif
