/* SPDX-License-Identifier: Apache-2.0 */

/* Why a wire broke, or an attempt to connect failed: as this end saw it, or as the other end has
 * reported it in LANE_DOWN. */

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "session/session_impl.h"

enum { PEER_REASON_MS = 1000 }; /* how long the other end's reason may come after its refusal */

/* Copies the reason of the other end's last LANE_DOWN. Returns false if it has sent none for this
 * epoch or a later one. */
static bool copy_down_reason(struct lane_end *e, uint32_t epoch, char to[static FAIL_TEXT_MAX])
{
	bool down;

	pthread_mutex_lock(&e->s->lock);
	down = e->down && e->down_epoch >= epoch;
	if (down)
		memcpy(to, e->down_why, FAIL_TEXT_MAX);
	pthread_mutex_unlock(&e->s->lock);
	return down;
}

enum attempt_result mend_add_peer_reason(struct lane_end *e, uint32_t epoch, uint64_t deadline_ms)
{
	uint64_t until = clock_ms() + PEER_REASON_MS;
	struct failure f = *failed();
	char why[FAIL_TEXT_MAX] = "";

	if (until > deadline_ms)
		until = deadline_ms;
	while (!copy_down_reason(e, epoch, why) && lane_end_wait(e, until) == 0)
		;
	if (lane_aborted(e->lane))
		return ATTEMPT_FATAL;
	if (why[0])
		fail_as(f.code, "%.300s: %.600s", f.text, why);
	else
		fail_again(&f);
	return ATTEMPT_FAILED;
}

/* ": why the last attempt to get the next wire failed", as this end knows it, else as the other one
 * does; or "". */
static void format_reason(struct lane_end *e, char to[static FAIL_TEXT_MAX])
{
	const char *why = e->attempt_why;

	pthread_mutex_lock(&e->s->lock);
	if (e->down && e->down_epoch >= e->first_epoch &&
	    (!why[0] || e->down_epoch > e->attempt_epoch ||
	     (e->down_epoch == e->attempt_epoch && e->attempt_ended)))
		why = e->down_why;
	snprintf(to, FAIL_TEXT_MAX, "%s%.600s", why[0] ? ": " : "", why);
	pthread_mutex_unlock(&e->s->lock);
}

void mend_fail_no_caller(struct lane_end *e, bool first, int timeout_ms)
{
	bool rdma = e->s->terms.want == TRANSPORT_RDMA;
	char why[FAIL_TEXT_MAX];

	if (failed()->code != OUT_CONNECT || lane_aborted(e->lane))
		return;
	format_reason(e, why);
	if (first)
		fail_as(OUT_CONNECT, "%s did not connect lane %u to %s port %u within %g s%s",
			e->s->o.peer, e->index, rdma ? "RDMA" : "TCP",
			rdma ? porter_rdma_port(e->s->porter) : porter_tcp_port(e->s->porter),
			timeout_ms / 1000.0, why);
	else
		fail_as(OUT_PEER_LOST,
			"lane %u could not be reconnected within %g s: %s did not connect%s",
			e->index, timeout_ms / 1000.0, e->s->o.peer, why);
}

void mend_copy_cause(struct lane_end *e, uint32_t epoch, const char *why,
		     char to[static FAIL_TEXT_MAX])
{
	pthread_mutex_lock(&e->s->lock);
	/* Later LANE_DOWNs are of attempts to connect. */
	if (epoch > 0 && e->was_rdma && !lane_knows_cause(e->lane) && e->down &&
	    e->down_epoch == epoch - 1 && e->down_why[0])
		why = e->down_why;
	snprintf(to, FAIL_TEXT_MAX, "%s", why);
	pthread_mutex_unlock(&e->s->lock);
}

const char *mend_failure_text(struct lane_end *e, const struct failure *f,
			      char to[static FAIL_TEXT_MAX])
{
	struct session *s = e->s;
	const struct route *r = &s->route;

	snprintf(to, FAIL_TEXT_MAX, "%s", f->text);
	pthread_mutex_lock(&s->lock);
	if (r->stage == STAGE_DETOUR && r->detours != e->detours_before && r->detour_why[0])
		snprintf(to, FAIL_TEXT_MAX, "%s", r->detour_why);
	pthread_mutex_unlock(&s->lock);
	return to;
}
