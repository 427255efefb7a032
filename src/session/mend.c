/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Wires for lanes: the first one, and another one each time that a wire breaks.
 *
 * Each attempt to connect has its own epoch. An end also sends LANE_DOWN for an attempt that failed
 * at either end, because the other end may have taken it for a success. An accepting lane's thread
 * answers each LANE_DOWN, so the connecting end never waits in mend_fence() for something that this
 * end has forgotten. tests/model/attempts.py searches this for deadlocks.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "lane/tcp/tcp_connect.h"
#include "session/session_impl.h"

enum {
	RDMA_TRY_MOST_MS = 256000, /* where RDMA is demanded: RDMA_TRY_MS grows up to this */
	PROMOTE_SOON_MS = 1000, /* after RDMA failed and TCP did not */
	RETRY_FIRST_MS = 20, /* before the second repetition of an attempt; then twice as long */
};

int lane_end_wait(struct lane_end *e, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = e->wake, .events = POLLIN};
	uint64_t nudges;
	int rc = poll(&p, 1, deadline_ms ? clock_left(deadline_ms) : -1);

	if (lane_aborted(e->lane))
		return fail_as(OUT_PEER_LOST, "lane %u was aborted", e->index);
	if (rc == 0 && clock_left(deadline_ms) == 0)
		return fail_as(OUT_TIMEOUT, "lane %u: the wait timed out", e->index);
	if (rc > 0 && read(e->nudge, &nudges, sizeof nudges) < 0 && errno != EAGAIN)
		return fail_as(OUT_SOCKET, "wait in lane %u: %m", e->index);
	return 0;
}

/* Sleeps for ms. Returns 0; -1 if the lane was aborted, which ends the sleep. */
static int lane_end_pause(struct lane_end *e, int ms)
{
	struct pollfd p = {.fd = lane_abort_fd(e->lane), .events = POLLIN};

	poll(&p, 1, ms);
	return lane_aborted(e->lane) ? fail_as(OUT_PEER_LOST, "lane %u was aborted", e->index) : 0;
}

int mend_pause(struct lane_end *e, unsigned attempt, uint64_t deadline_ms)
{
	bool detour = route_stage(e->s) == STAGE_DETOUR;
	int ms = (int)clock_doubled(DIAL_PAUSE_MS, detour ? attempt : 0, DETOUR_PAUSE_MS);

	if (clock_left(deadline_ms) <= ms)
		return 0;
	return lane_end_pause(e, ms) < 0 ? -1 : 1;
}

uint64_t mend_detour_deadline(const struct session *s, uint64_t deadline_ms)
{
	uint64_t until = clock_ms() + (uint64_t)s->o.connect_timeout_ms;

	return until < deadline_ms ? until : deadline_ms;
}

/* ---- connecting -------------------------------------------------------------------------- */

static enum attempt_result attach_wire(struct lane_end *e, uint32_t epoch, struct wire *w,
				       enum transport t)
{
	struct session *s = e->s;
	bool detour, over;
	uint64_t stored;

	pthread_mutex_lock(&s->lock);
	stored = e->fenced ? e->stored : 0;
	detour = s->route.stage == STAGE_DETOUR;
	pthread_mutex_unlock(&s->lock);
	if (lane_attach(e->lane, w, stored) < 0)
		return ATTEMPT_FATAL;
	shortage_end(e);
	if (lane_is_sealed(e->lane))
		atomic_store(&s->sealed, true);
	/* LANE_DOWN for this epoch may have arrived before the lane had this wire. */
	pthread_mutex_lock(&s->lock);
	over = e->down && e->down_epoch >= epoch;
	pthread_mutex_unlock(&s->lock);
	if (over)
		lane_break(e->lane, epoch, "the other end abandoned the connection");
	e->was_rdma = t == TRANSPORT_RDMA;
	t = detour ? TRANSPORT_SSH : t;
	promote_note(e, (enum transport)atomic_exchange(&e->transport, t), t);
	return ATTEMPT_DONE;
}

/* The lowest epoch that neither end has used or given up. */
static uint32_t lowest_epoch(struct lane_end *e)
{
	pthread_mutex_lock(&e->s->lock);
	if (e->down && e->next_epoch <= e->down_epoch)
		e->next_epoch = e->down_epoch + 1;
	pthread_mutex_unlock(&e->s->lock);
	return e->next_epoch;
}

static enum attempt_result fail_out_of_epochs(struct lane_end *e)
{
	fail_as(OUT_PROTOCOL, "lane %u has used up all its epochs", e->index);
	return ATTEMPT_FATAL;
}

/* Takes an epoch for one attempt to connect. Returns UINT32_MAX if none is left. */
static uint32_t begin_attempt(struct lane_end *e)
{
	uint32_t epoch = lowest_epoch(e);

	if (epoch == UINT32_MAX)
		return epoch;
	e->next_epoch = epoch + 1;
	lane_skip_to(e->lane, epoch);
	return epoch;
}

static enum attempt_result attempt_failed(struct lane_end *e, uint32_t epoch)
{
	struct failure f = *failed();

	log_debug("lane %u epoch %u: %s", e->index, epoch, f.text);
	e->attempt_epoch = epoch;
	memcpy(e->attempt_why, f.text, sizeof e->attempt_why);
	e->attempt_ended = false;
	if (lane_aborted(e->lane) || mend_announce_over(e, epoch, f.text) < 0)
		return ATTEMPT_FATAL;
	fail_again(&f);
	return ATTEMPT_FAILED;
}

/* A shortage of resources on this host fails every TCP attempt. The other end would only see its
 * connections break, so this end gives up after a few and reports the shortage. */
static enum attempt_result attempt_over_tcp_failed(struct lane_end *e, uint32_t epoch)
{
	if (failed()->code == OUT_MEMORY && shortage_note(e))
		return ATTEMPT_FATAL;
	return attempt_failed(e, epoch);
}

enum attempt_result mend_over_rail(struct lane_end *e, const struct rail *r, uint64_t deadline_ms)
{
	const union address *from = r->from.sa.sa_family == AF_UNSPEC ? NULL : &r->from;
	enum attempt_result result;
	uint64_t began = clock_ms();
	struct failure earlier = {0};
	struct wire *w;
	unsigned pauses = 0;
	int rc, pause_ms = 0;

	do {
		uint64_t stopped = lane_stopped_ms(e->lane);
		uint32_t epoch = begin_attempt(e);

		if (epoch == UINT32_MAX)
			return fail_out_of_epochs(e);
		terms_demand_seal(e, TRANSPORT_RDMA);
		rc = verbs_dial(e->lane, epoch, &e->s->dial_key, from, &r->to, &e->prepared, began,
				deadline_ms, &w);
		deadline_ms = mend_move_deadline(e, deadline_ms, stopped);
		began = mend_move_deadline(e, began, stopped);
		if (rc == 0)
			return attach_wire(e, epoch, w, TRANSPORT_RDMA);
		/* The last attempt had only the time that was left. */
		if (earlier.code != OUT_DONE && clock_left(deadline_ms) == 0)
			fail_again(&earlier);
		earlier = *failed();
		result = attempt_failed(e, epoch);
		if (rc == DIAL_PEER_KNOWS && result == ATTEMPT_FAILED)
			return mend_add_peer_reason(e, epoch, deadline_ms);
		if (rc < 0 || result != ATTEMPT_FAILED || clock_left(deadline_ms) <= pause_ms)
			break;
		if (pause_ms && lane_end_pause(e, pause_ms) < 0)
			return ATTEMPT_FATAL;
		pause_ms = (int)clock_doubled(RETRY_FIRST_MS, pauses++, DIAL_PAUSE_MS);
	} while (clock_left(deadline_ms) > 0);
	return result;
}

enum attempt_result mend_over_tcp(struct lane_end *e, const union address *to, unsigned n,
				  uint64_t deadline_ms)
{
	uint32_t epoch = begin_attempt(e);
	struct wire *w;

	if (epoch == UINT32_MAX)
		return fail_out_of_epochs(e);
	terms_demand_seal(e, TRANSPORT_TCP);
	if (tcp_dial(e->lane, epoch, &e->s->dial_key, to, n, deadline_ms, &w) < 0)
		return attempt_over_tcp_failed(e, epoch);
	return attach_wire(e, epoch, w, TRANSPORT_TCP);
}

static enum attempt_result caller_failed(struct lane_end *e, uint32_t epoch, enum transport t)
{
	enum outcome code = failed()->code;
	enum attempt_result result;

	if (t == TRANSPORT_RDMA)
		offer_warn_unable(e);
	result = t == TRANSPORT_TCP ? attempt_over_tcp_failed(e, epoch) : attempt_failed(e, epoch);
	e->attempt_ended = code == OUT_PEER_LOST || code == OUT_CONNECT;
	return result;
}

/* Makes the caller's connection a wire of the lane. */
static enum attempt_result take_caller(struct lane_end *e, bool first, struct caller *c)
{
	struct session *s = e->s;
	enum transport t = c->verbs ? TRANSPORT_RDMA : TRANSPORT_TCP;
	struct wire *w;
	int rc;

	if (t == TRANSPORT_TCP && s->terms.want == TRANSPORT_RDMA) {
		caller_drop(c);
		fail_as(OUT_PROTOCOL, "lane %u was connected over TCP despite --transport=rdma",
			e->index);
		return ATTEMPT_FATAL;
	}
	e->next_epoch = c->epoch + 1;
	lane_skip_to(e->lane, c->epoch);
	terms_demand_seal(e, t);
	if (t == TRANSPORT_RDMA)
		rc = verbs_take(e->lane, c->epoch, &s->key, c->verbs, &e->prepared,
				clock_ms() + (uint64_t)route_take_ms(e, first), &w);
	else
		rc = tcp_take(e->lane, c->epoch, &s->key, c->fd, &c->terms, &w);
	if (rc)
		return caller_failed(e, c->epoch, t);
	return attach_wire(e, c->epoch, w, t);
}

/* Waits until the other end connects. ATTEMPT_FAILED: the caller checks the session's state. */
static enum attempt_result accept_lane(struct lane_end *e, bool first, uint64_t deadline_ms)
{
	uint64_t stopped = lane_stopped_ms(e->lane);
	struct caller c;
	uint32_t epoch;
	int rc;

	if (mend_answer_down(e) < 0)
		return ATTEMPT_FATAL;
	epoch = lowest_epoch(e);
	if (epoch == UINT32_MAX)
		return fail_out_of_epochs(e);
	offer_prepare_memory(e);
	deadline_ms = mend_move_deadline(e, deadline_ms, stopped);
	atomic_store(&e->awaits_peer, true);
	rc = porter_wait(e->s->porter, e->index, epoch, e->wake, deadline_ms, &c);
	atomic_store(&e->awaits_peer, false);
	if (rc == 0)
		return take_caller(e, first, &c);
	/* Consume the nudge, or the next wait would return at once. */
	if (rc > 0 && lane_end_wait(e, clock_ms()) < 0 && lane_aborted(e->lane))
		return ATTEMPT_FATAL;
	return rc < 0 ? ATTEMPT_FATAL : ATTEMPT_FAILED;
}

int mend_next_rail(struct lane_end *e, unsigned tries, struct rail *out)
{
	struct session *s = e->s;
	struct route *r = &s->route;
	int at = -1;

	pthread_mutex_lock(&s->lock);
	if (r->transport == TRANSPORT_RDMA) {
		at = rail_to_try(r->rails, r->rail_count, e->index, tries);
		if (at >= 0)
			*out = r->rails[at];
	}
	pthread_mutex_unlock(&s->lock);
	return at;
}

static void mark_rail(struct session *s, int at, bool dead)
{
	char text[160];
	struct rail r;
	bool others;

	pthread_mutex_lock(&s->lock);
	r = s->route.rails[at];
	s->route.rails[at].dead = dead || r.mute;
	others = rail_of_lane(s->route.rails, s->route.rail_count, 0) >= 0;
	pthread_mutex_unlock(&s->lock);
	if (dead && !r.dead && others)
		log_at(route_reports(s) ? LOG_INFO : LOG_DEBUG,
		       "rail %s failed, lanes use the other rails: %s",
		       rail_text(&r, text, sizeof text), failed()->text);
}

/* Tries the rails that are not dead, the lane's own first, each for try_ms, and all until then. */
static enum attempt_result try_rails(struct lane_end *e, uint64_t try_ms, uint64_t until)
{
	enum attempt_result rc = ATTEMPT_FAILED;
	struct rail r;
	int at;

	for (unsigned tries = 0; (at = mend_next_rail(e, tries, &r)) >= 0; tries++) {
		uint64_t try_until = clock_ms() + try_ms, stopped = lane_stopped_ms(e->lane);

		if (tries > 0 && !clock_left(until))
			break;
		rc = mend_over_rail(e, &r, try_until < until ? try_until : until);
		until = mend_move_deadline(e, until, stopped);
		if (rc == ATTEMPT_DONE) {
			e->rail = (unsigned)at;
			mark_rail(e->s, at, false);
		}
		/* The limit of locked memory is the same for all rails. */
		if (rc != ATTEMPT_FAILED || failed()->code == OUT_MEMLOCK)
			break;
		mark_rail(e->s, at, true);
	}
	return rc;
}

/* If TCP may be used instead, half of the time is kept for it. If not, each further round gives an
 * attempt twice the time, so that a slow rail connects in the end. */
static enum attempt_result redial_rails(struct lane_end *e, unsigned round, uint64_t deadline)
{
	if (e->s->terms.want == TRANSPORT_RDMA)
		return try_rails(e, clock_doubled(RDMA_TRY_MS, round, RDMA_TRY_MOST_MS), deadline);
	return try_rails(e, RDMA_TRY_MS, deadline - (uint64_t)clock_left(deadline) / 2);
}

/* no_rdma: why the lane uses no RDMA, or "". share_time: keep half of the time for an attempt over
 * RDMA after this one. */
static enum attempt_result redial_tcp(struct lane_end *e, const char *no_rdma, bool share_time,
				      uint64_t deadline)
{
	struct session *s = e->s;
	/* A path may recover before TCP retransmits a lost SYN, so several short attempts connect
	 * earlier than one long one. */
	uint64_t try_until = clock_ms() + TAKE_MS;
	union address to[OFFER_MAX + 1];
	unsigned n = route_tcp_places(s, to, OFFER_MAX + 1);
	enum attempt_result rc;

	if (n == 0) {
		fail_as(OUT_CONNECT, "%s", no_rdma[0] ? no_rdma : "no TCP address to connect to");
		return ATTEMPT_FAILED;
	}
	if (share_time)
		deadline -= (uint64_t)clock_left(deadline) / 2;
	if (try_until > deadline || route_stage(s) == STAGE_DETOUR)
		try_until = deadline;
	rc = mend_over_tcp(e, to, n, try_until);
	if (rc == ATTEMPT_DONE && no_rdma[0]) {
		/* One warning is enough: lanes give RDMA up for the same reason, or one after the
		 * other. */
		bool reported = atomic_exchange(&s->no_rdma_reported, true);

		log_at(!reported       ? LOG_WARN
		       : e->no_rdma[0] ? LOG_DEBUG
				       : LOG_INFO,
		       "lane %u continues over TCP, not RDMA: %s", e->index, no_rdma);
		if (!reported)
			atomic_store(&s->tcp_reported, LOG_WARN + 1);
		else if (!e->no_rdma[0])
			promote_report_again(e);
		e->no_rdma[0] = '\0';
	}
	return rc;
}

/* The lane was to stay with TCP, but TCP failed; failed() has the reason. RDMA that breaks often is
 * better than no wire. The lane returns to TCP after OFTEN_BREAKS more breaks. */
static enum attempt_result redial_rails_after_tcp(struct lane_end *e, unsigned round,
						  uint64_t deadline)
{
	struct failure f = *failed();
	enum attempt_result rc = redial_rails(e, round, deadline);

	if (rc == ATTEMPT_DONE) {
		e->no_rdma[0] = '\0';
		e->rdma_breaks = 0;
	} else if (rc == ATTEMPT_FAILED) {
		fail_again(&f);
	}
	return rc;
}

/* Gives the lane TCP. ms: when it may return to RDMA; or RETURN_AS_PLANNED, RETURN_NEVER. */
static enum attempt_result continue_over_tcp(struct lane_end *e, const char *no_rdma,
					     bool share_time, int ms, uint64_t deadline)
{
	enum attempt_result rc = redial_tcp(e, no_rdma, share_time, deadline);

	if (rc == ATTEMPT_DONE && ms != RETURN_AS_PLANNED)
		promote_later(e, ms);
	return rc;
}

/* Tries RDMA for a lane that had TCP, and whose wire was broken for that. If it fails, the user
 * need not know. */
static enum attempt_result redial_promoted(struct lane_end *e, uint64_t deadline)
{
	uint64_t stopped = lane_stopped_ms(e->lane);
	uint64_t until = clock_ms() + (uint64_t)promote_share(clock_left(deadline));
	enum attempt_result rc = try_rails(e, route_promotion_ms(e->s), until);

	if (rc != ATTEMPT_FAILED)
		return rc;
	deadline = mend_move_deadline(e, deadline, stopped);
	promote_failed(e);
	return continue_over_tcp(e, "", false, RETURN_AS_PLANNED, deadline);
}

/* One round over all transports that may be tried, the one that the lane had before first. */
static enum attempt_result redial_once(struct lane_end *e, bool first, unsigned round,
				       uint64_t deadline)
{
	char no_rdma[FAIL_TEXT_MAX];
	struct rail r;
	bool have_rail = mend_next_rail(e, 0, &r) >= 0;
	bool rdma_first = have_rail && (e->was_rdma || (first && !route_knocked(e->s)));
	bool rdma_last;
	int return_ms = RETURN_AS_PLANNED;
	enum attempt_result rc;

	if (have_rail && promote_ordered(e))
		return redial_promoted(e, deadline);
	snprintf(no_rdma, sizeof no_rdma, "%s", e->no_rdma);
	if (no_rdma[0])
		return_ms = mend_often_ms(e->s);
	if (rdma_first) {
		uint64_t stopped = lane_stopped_ms(e->lane);

		rc = redial_rails(e, round, deadline);
		deadline = mend_move_deadline(e, deadline, stopped);
		if (rc != ATTEMPT_FAILED || e->s->terms.want == TRANSPORT_RDMA)
			return rc;
		snprintf(no_rdma, sizeof no_rdma, "%s", failed()->text);
		/* Any other reason stays. An adapter that was removed may be put back. */
		return_ms = RETURN_NEVER;
		if (failed()->code == OUT_CONNECT ||
		    (failed()->code == OUT_TRANSPORT && e->was_rdma))
			return_ms = PROMOTE_SOON_MS;
	}
	/* A mute rail connects, but lets no block through. */
	rdma_last = have_rail && !rdma_first && !r.mute;
	rc = continue_over_tcp(e, no_rdma, rdma_last, return_ms, deadline);
	return rc == ATTEMPT_FAILED && rdma_last ? redial_rails_after_tcp(e, round, deadline) : rc;
}

static enum attempt_result redial_lane(struct lane_end *e, bool first, int timeout_ms)
{
	uint64_t began = clock_ms(), deadline = began + (uint64_t)timeout_ms;
	uint64_t stopped = lane_stopped_ms(e->lane);
	struct failure why = {.code = OUT_DONE};
	char text[FAIL_TEXT_MAX];
	unsigned round = 0;
	int more = 1;
	enum attempt_result rc = ATTEMPT_FAILED;

	while (more > 0 && (rc = redial_once(e, first, round, deadline)) == ATTEMPT_FAILED) {
		deadline = mend_move_deadline(e, deadline, stopped);
		stopped = lane_stopped_ms(e->lane);
		/* An attempt that the deadline cut short has a less specific reason. */
		if (clock_left(deadline) > 0 || why.code == OUT_DONE)
			why = *failed();
		if (first && round == 0 && route_stage(e->s) == STAGE_DETOUR)
			deadline = mend_detour_deadline(e->s, deadline);
		timeout_ms = (int)(deadline - began);
		more = mend_pause(e, round++, deadline);
	}
	if (more < 0 || rc != ATTEMPT_FAILED)
		return more < 0 ? ATTEMPT_FATAL : rc;
	mend_failure_text(e, &why, text);
	if (first)
		fail_as(OUT_CONNECT, "lane %u could not be connected within %g s: %s", e->index,
			timeout_ms / 1000.0, text);
	else
		fail_as(OUT_PEER_LOST, "lane %u could not be reconnected within %g s: %s", e->index,
			timeout_ms / 1000.0, text);
	return ATTEMPT_FATAL;
}

/* How long to wait for a caller; 0: as long as the session lives. The other end connects its other
 * lanes only after lane 0 has found the route and its threads run. */
static int accept_timeout(struct lane_end *e, bool first, enum connect_stage stage)
{
	struct session *s = e->s;

	if (!first)
		return s->terms.timeout_ms + GRACE_MS;
	if (e->index > 0)
		return 0;
	return (stage == STAGE_DETOUR ? DETOUR_MS : 2 * s->o.connect_timeout_ms) + GRACE_MS;
}

/* Tries until the lane has a wire or cannot get one. */
static enum attempt_result connect_lane(struct lane_end *e, bool first)
{
	struct session *s = e->s;
	enum attempt_result rc = ATTEMPT_FAILED;
	uint64_t deadline = 0;
	int previous_stage = -1, timeout_ms = 0;

	while (rc == ATTEMPT_FAILED) {
		enum connect_stage stage;
		bool chosen;

		pthread_mutex_lock(&s->lock);
		stage = s->route.stage;
		chosen = s->route.chosen;
		pthread_mutex_unlock(&s->lock);
		if (previous_stage != (int)stage) {
			previous_stage = (int)stage;
			timeout_ms = accept_timeout(e, first, stage);
			deadline = timeout_ms ? clock_ms() + (uint64_t)timeout_ms : 0;
		}
		if (!route_dials(s, stage)) {
			uint64_t stopped = lane_stopped_ms(e->lane);

			rc = accept_lane(e, first, deadline);
			deadline = mend_move_deadline(e, deadline, stopped);
			if (rc == ATTEMPT_FATAL)
				mend_fail_no_caller(e, first, timeout_ms);
		} else if (chosen) {
			rc = redial_lane(e, first,
					 !first                  ? s->terms.timeout_ms
					 : stage == STAGE_DETOUR ? DETOUR_MS
								 : s->o.connect_timeout_ms);
		} else if (e->index == 0) {
			rc = route_find(e, stage);
		} else if (lane_end_wait(e, 0) < 0) {
			rc = ATTEMPT_FATAL;
		}
	}
	return rc;
}

/* ---- mending ----------------------------------------------------------------------------- */

/* Makes the lane's failure the session's, unless the session has ended or failed already. */
static int fail_lane(struct lane_end *e)
{
	char host[HOST_MAX];
	struct failure f;
	bool ended;

	if (session_failed(e->s, &f, host))
		return fail_again(&f);
	pthread_mutex_lock(&e->s->lock);
	ended = e->s->ended;
	pthread_mutex_unlock(&e->s->lock);
	/* The code that uses the lane aborted it and has its own reason; or DONE was sent or has
	 * arrived, and then a peer that leaves is no failure. */
	if (ended || lane_aborted(e->lane))
		return fail_as(OUT_PEER_LOST, "lane %u was aborted", e->index);
	return session_fail(e->s);
}

int session_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct lane_end *e = ctx;
	bool first, promoted, given_up;
	char name[96], cause[FAIL_TEXT_MAX];

	e->first_epoch = epoch;
	e->attempt_why[0] = '\0';
	promote_mending(e, true);
	promoted = promote_ordered(e);
	pthread_mutex_lock(&e->s->lock);
	/* A connection that carried blocks was chosen, also if CHOICE has not arrived yet. */
	first = epoch == 0 || (!e->s->route.chosen && lane_stored(l) == 0);
	e->detours_before = e->s->route.detours;
	pthread_mutex_unlock(&e->s->lock);
	if (e->next_epoch < epoch)
		e->next_epoch = epoch;
	if (epoch > 0 && mend_fence(e, epoch - 1, why) < 0)
		return fail_lane(e);
	mend_copy_cause(e, epoch, why, cause);
	if (epoch > 0 && mend_decide_rdma(e, cause) < 0)
		return fail_lane(e);
	given_up = promoted || promote_ordered_there(e, epoch);
	if (connect_lane(e, first) != ATTEMPT_DONE)
		return fail_lane(e);
	promote_mending(e, false);
	/* Promotion is reported once for all lanes. */
	if (!first) {
		lane_name(l, name, sizeof name);
		log_at(route_reports(e->s) && !given_up ? LOG_INFO : LOG_DEBUG,
		       "lane %u was reconnected over %s; the previous connection %s%s", e->index,
		       name, given_up ? "was given up for RDMA" : "broke: ", given_up ? "" : cause);
	}
	return 0;
}
