/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Promotion: lanes that had to take TCP return to RDMA.
 *
 * An attempt over RDMA gets little time, so that data soon begins over TCP where RDMA is blocked.
 * But a busy subnet manager, a switch that restarts, or several lost messages of InfiniBand's
 * connection manager cost more (one that is lost: verbs_connect.c, choose_answer_ms()). So a
 * thread of the connecting end goes on trying while the lanes use TCP. It knocks (verbs_knock()),
 * which costs the lanes nothing. Once that was answered, it takes one lane after the other: it
 * registers the lane's memory, and breaks its TCP wire. The thread of the lane then mends as after
 * any other break: it fences the wire, and connects over RDMA, or over TCP again if that fails. So
 * no block is lost, and the other end needs to know nothing of promotion.
 *
 * That a knock was answered does not show that blocks get through. So the first lane of a rail goes
 * alone: the others follow when a block was stored over it.
 */

#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "host/own_address.h"
#include "session/session_impl.h"

enum {
	/* Pauses after knocks without answer and promotions that failed: doubled up to this. */
	PAUSE_FIRST_MS = 5000,
	PAUSE_MOST_MS = 300000,
	/* How long to wait for a lane's thread that is busy with a file or pipe before the next
	 * lane is broken. The wire is mended when the thread comes back. */
	LANE_MS = 3000,
	/* How often to look whether a block was stored. */
	LOOK_MS = 20,
	/* A lane that used RDMA for so long has returned to it for good. */
	GOOD_RUN_MS = 2 * PAUSE_MOST_MS,
};

static const char promote_why[] = "given up for RDMA";

/* True if the lane is to be promoted now. Call with the lock held. */
static bool is_candidate(const struct lane_end *e)
{
	uint64_t now = clock_ms();

	return e->on_tcp && !e->promote && !e->mending && e->promote_after_ms <= now &&
	       e->s->promoter.paused_until_ms <= now;
}

static bool has_candidate(struct session *s)
{
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < s->lanes; i++)
		found |= is_candidate(&s->ends[i]);
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Waits until it is time to knock. Returns false when promotion is over. */
static bool await_due(struct session *s)
{
	struct promoter *p = &s->promoter;
	bool goes_on;

	pthread_mutex_lock(&s->lock);
	while (!p->stop && !s->failed && (!p->due_ms || clock_left(p->due_ms) > 0)) {
		struct timespec until =
			clock_after(p->due_ms ? (uint64_t)clock_left(p->due_ms) : PAUSE_MOST_MS);

		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	p->due_ms = 0;
	goes_on = !p->stop && !s->failed;
	pthread_mutex_unlock(&s->lock);
	return goes_on;
}

static void set_due(struct promoter *p, uint64_t at_ms)
{
	uint64_t now = clock_ms();

	if (at_ms < now)
		at_ms = now;
	if (at_ms < p->paused_until_ms)
		at_ms = p->paused_until_ms;
	if (!p->due_ms || at_ms < p->due_ms)
		p->due_ms = at_ms;
}

/* Call with the lock held. */
static void pause_after_failure(struct promoter *p)
{
	p->paused_until_ms = clock_ms() + clock_doubled(PAUSE_FIRST_MS, p->failures, PAUSE_MOST_MS);
	p->failures++;
	p->due_ms = p->paused_until_ms;
}

/* Registers the lane's memory for a rail, while the lane goes on over TCP: gigabytes take seconds.
 * Returns -1 if that is not possible. *out stays NULL if the lane's thread has to do it. */
static int prepare_lane(struct lane_end *e, const struct rail *r, struct verbs **out)
{
	union address at = r->from;

	if (at.sa.sa_family == AF_UNSPEC && own_address_toward(&r->to, &at) < 0)
		return 0;
	if (!verbs_behind(&at) || verbs_prepare(e->lane, &at, out) == 0)
		return 0;
	log_debug("lane %u stays with TCP: %s", e->index, failed()->text);
	fail_clear();
	return -1;
}

/* Whether the lane is to be promoted now, and whether it lacks registered memory for that. */
static bool may_promote(struct lane_end *e, bool *lacks_memory)
{
	bool may;

	pthread_mutex_lock(&e->s->lock);
	may = is_candidate(e) && !e->s->promoter.stop;
	*lacks_memory = may && !e->prepared;
	pthread_mutex_unlock(&e->s->lock);
	return may;
}

/* Breaks the lane's TCP wire, and gives it the prepared memory (or NULL), if it is still to be
 * promoted. Returns true if it did. */
static bool break_lane(struct lane_end *e, struct verbs *prepared)
{
	struct session *s = e->s;
	bool ordered;

	pthread_mutex_lock(&s->lock);
	ordered = is_candidate(e) && !s->promoter.stop;
	if (ordered) {
		e->promote = true;
		/* An attempt that failed meanwhile may have left its own. */
		if (!e->prepared) {
			e->prepared = prepared;
			prepared = NULL;
		}
		/* If the thread has just found the wire broken, it has not begun to mend. */
		lane_break_wire(e->lane, promote_why);
	}
	pthread_mutex_unlock(&s->lock);
	verbs_unprepare(prepared);
	return ordered;
}

/* Waits until the lane has a wire again, or its thread is busy elsewhere. So lanes are not without
 * a wire at the same time because of promotion. */
static void await_promotion(struct lane_end *e)
{
	struct session *s = e->s;
	struct promoter *p = &s->promoter;
	uint64_t deadline = clock_ms() + LANE_MS;

	pthread_mutex_lock(&s->lock);
	while (!p->stop && !s->failed && (e->mending || (e->promote && clock_left(deadline) > 0))) {
		struct timespec until =
			clock_after(e->mending ? LANE_MS : (uint64_t)clock_left(deadline));

		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	pthread_mutex_unlock(&s->lock);
}

enum proof { PROOF_NONE_YET, PROOF_STORED, PROOF_LEFT };

/* What has become of a lane that was promoted. proven[]: the rails over which a block was stored.
 * Call with the lock held. */
static enum proof find_proof(const struct lane_end *e, bool proven[static OFFER_MAX])
{
	if (e->mending)
		return PROOF_NONE_YET;
	if (e->on_tcp)
		return PROOF_LEFT;
	if (lane_stored(e->lane) > e->promoted_stored)
		proven[e->rail] = true;
	return proven[e->rail] ? PROOF_STORED : PROOF_NONE_YET;
}

/* Waits until a block was stored over the rail that the lane has returned to, or the lane has left
 * it. A path that lets no block through is given up within the timeout. A lane that lasts longer
 * without a block has none to carry. */
static enum proof await_proof(struct lane_end *e, bool proven[static OFFER_MAX])
{
	struct session *s = e->s;
	struct promoter *p = &s->promoter;
	uint64_t deadline = clock_ms() + (uint64_t)s->terms.timeout_ms + LANE_MS;
	enum proof found = PROOF_NONE_YET;

	pthread_mutex_lock(&s->lock);
	/* Not while its thread is busy with a file or pipe, and has not begun to mend. */
	while (!e->promote && !p->stop && !s->failed && clock_left(deadline) > 0) {
		struct timespec until = clock_after(LOOK_MS);

		found = find_proof(e, proven);
		if (found != PROOF_NONE_YET)
			break;
		pthread_cond_timedwait(&s->changed, &s->lock, &until);
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Promotes the lane, if it is to be promoted. Returns -1 if no other lane may follow now. */
static int promote_lane(struct lane_end *e, bool proven[static OFFER_MAX])
{
	struct verbs *prepared = NULL;
	bool lacks_memory;
	struct rail r;

	if (!may_promote(e, &lacks_memory))
		return 0;
	if (mend_next_rail(e, 0, &r) < 0 || (lacks_memory && prepare_lane(e, &r, &prepared) < 0))
		return -1;
	if (!break_lane(e, prepared))
		return 0;
	await_promotion(e);
	return await_proof(e, proven) == PROOF_LEFT ? -1 : 0;
}

/* Promotes one lane after the other. Returns -1 if one could not be promoted, or soon left RDMA. */
static int promote_lanes(struct session *s)
{
	bool proven[OFFER_MAX] = {false};

	for (unsigned i = 0; i < s->terms.lanes; i++)
		if (promote_lane(&s->ends[i], proven) < 0)
			return -1;
	return 0;
}

/* Some lanes may return to RDMA only later. Call with the lock held. */
static void plan_lane(struct lane_end *e)
{
	if (e->on_tcp && !e->promote && !e->mending && e->promote_after_ms < UINT64_MAX)
		set_due(&e->s->promoter, e->promote_after_ms);
}

static void *promote_run(void *arg)
{
	struct session *s = arg;

	while (await_due(s)) {
		bool worked = true;

		if (has_candidate(s))
			worked = route_knock(s) == 0 && promote_lanes(s) == 0;
		pthread_mutex_lock(&s->lock);
		/* A lane that could not be connected has done so already. */
		if (!worked && s->promoter.paused_until_ms <= clock_ms())
			pause_after_failure(&s->promoter);
		for (unsigned i = 0; i < s->lanes; i++)
			plan_lane(&s->ends[i]);
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

/* The lane left RDMA. Returns when it may return, at least ms from now. Call with the lock held. */
static uint64_t return_time(struct lane_end *e, int ms)
{
	uint64_t now = clock_ms(), pause = (uint64_t)ms;

	if (e->promoted_ms && now - e->promoted_ms < GOOD_RUN_MS) {
		e->relapses++;
	} else if (e->promoted_ms) {
		e->relapses = 0;
		e->s->promoter.failures = 0;
	}
	e->promoted_ms = 0;
	if (e->relapses == 0)
		return now + pause;
	if (pause < PAUSE_FIRST_MS)
		pause = PAUSE_FIRST_MS;
	return now + clock_doubled(pause, e->relapses - 1, PAUSE_MOST_MS);
}

int promote_share(int left_ms)
{
	int share = left_ms / 2;

	return left_ms - (share < TAKE_MS ? share : TAKE_MS);
}

void promote_report_again(struct lane_end *e)
{
	struct session *s = e->s;
	unsigned none = 0;
	bool again;

	pthread_mutex_lock(&s->lock);
	again = e->promoted_ms || e->relapses;
	pthread_mutex_unlock(&s->lock);
	if (again)
		atomic_compare_exchange_strong(&s->tcp_reported, &none, LOG_INFO + 1);
}

void promote_later(struct lane_end *e, int ms)
{
	struct session *s = e->s;
	bool start;

	if (s->o.keeps_transport || !s->terms.rdma || s->terms.want != TRANSPORT_AUTO ||
	    route_stage(s) == STAGE_DETOUR || !route_dials(s, route_stage(s))) {
		offer_drop_memory(e);
		return;
	}
	pthread_mutex_lock(&s->lock);
	if (ms == RETURN_NEVER) {
		e->promote_after_ms = UINT64_MAX;
		pthread_mutex_unlock(&s->lock);
		offer_drop_memory(e);
		return;
	}
	e->promote_after_ms = return_time(e, ms);
	set_due(&s->promoter, e->promote_after_ms);
	start = !s->promoter.started;
	s->promoter.started = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (start && worker_start(&s->promoter.worker, "promote", promote_run, s) < 0) {
		log_debug("lanes stay with TCP: %s", failed()->text);
		fail_clear();
	}
}

bool promote_ordered(struct lane_end *e)
{
	bool ordered;

	pthread_mutex_lock(&e->s->lock);
	ordered = e->promote;
	pthread_mutex_unlock(&e->s->lock);
	return ordered;
}

bool promote_ordered_there(struct lane_end *e, uint32_t epoch)
{
	bool ordered;

	pthread_mutex_lock(&e->s->lock);
	ordered = epoch > 0 && e->down && e->down_epoch >= epoch - 1 &&
		  strcmp(e->down_why, promote_why) == 0;
	pthread_mutex_unlock(&e->s->lock);
	return ordered;
}

void promote_failed(struct lane_end *e)
{
	pthread_mutex_lock(&e->s->lock);
	e->promote = false;
	pause_after_failure(&e->s->promoter);
	pthread_cond_broadcast(&e->s->changed);
	pthread_mutex_unlock(&e->s->lock);
}

void promote_mending(struct lane_end *e, bool begins)
{
	struct session *s = e->s;

	pthread_mutex_lock(&s->lock);
	e->mending = begins;
	/* The promoter did not plan it while it had no wire. */
	if (!begins && s->promoter.started)
		plan_lane(e);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void promote_note(struct lane_end *e, enum transport before, enum transport now)
{
	struct session *s = e->s;
	struct promoter *p = &s->promoter;
	bool again = false, returned = before == TRANSPORT_TCP && now == TRANSPORT_RDMA;
	unsigned level = returned ? atomic_exchange(&s->tcp_reported, 0) : 0;
	char name[96];

	pthread_mutex_lock(&s->lock);
	e->on_tcp = now == TRANSPORT_TCP;
	if (returned) {
		e->promoted_ms = clock_ms();
		e->promoted_stored = lane_stored(e->lane);
	}
	e->promote = e->promote && e->on_tcp;
	if (level > 0) {
		again = p->reported_ms && clock_ms() - p->reported_ms < GOOD_RUN_MS;
		if (!again)
			p->reported_ms = clock_ms();
	}
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (level == 0)
		return;
	/* Lanes that come and go are no news. */
	if (!again)
		atomic_store(&s->no_rdma_reported, false);
	else if (level < LOG_INFO + 1)
		level = LOG_INFO + 1;
	lane_name(e->lane, name, sizeof name);
	log_at((enum log_level)(level - 1), "RDMA works now, lanes move from TCP to it: %s", name);
}

void promote_stop(struct session *s)
{
	pthread_mutex_lock(&s->lock);
	s->promoter.stop = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void promote_close(struct session *s)
{
	promote_stop(s);
	/* A knock may be waiting for its answer. */
	if (s->promoter.worker.running)
		lane_abort(s->ends[0].lane);
	worker_join(&s->promoter.worker);
}
