/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/patience.h"

#include "base/clock.h"
#include "lane/lane_impl.h"

static uint64_t patience_limit(const struct lane *l, bool fresh)
{
	uint64_t timeout = (uint64_t)l->setup.timeout_ms;

	return fresh && timeout > FIRST_CREDIT_MS ? FIRST_CREDIT_MS : timeout;
}

static void ask_sink(struct patience *p, struct lane *l)
{
	p->asked++;
	if (l->setup.ask)
		l->setup.ask(l->setup.mend_ctx, l, l->epoch);
}

/* Returns -1 if sends have waited for an acknowledgement for the timeout. */
static int check_acknowledged(struct patience *p, const struct lane *l,
			      const struct wire_signs *now, uint64_t passed_ms)
{
	uint64_t limit = (uint64_t)l->setup.timeout_ms;

	if (!now->awaits_ack || now->acknowledged != p->acknowledged) {
		p->acknowledged = now->acknowledged;
		p->unacked_ms = 0;
		return 0;
	}
	p->unacked_ms += passed_ms;
	if (p->unacked_ms < limit)
		return 0;
	return fail_as(OUT_PEER_LOST, "%s: nothing was acknowledged for %g s", l->name,
		       (double)limit / 1000);
}

int patience_look(struct patience *p, struct lane *l, const struct wire_signs *now)
{
	uint64_t now_ms = clock_ms(), limit = patience_limit(l, now->fresh);
	uint64_t step = limit / CHECKS + 1, passed = p->looked_ms ? now_ms - p->looked_ms : 0;
	uint32_t busy = atomic_load(&l->answers_busy), idle = atomic_load(&l->answers_idle);
	bool first = !p->looked_ms;

	if (passed > step)
		passed = step;
	p->looked_ms = now_ms;
	if (check_acknowledged(p, l, now, passed))
		return -1;
	if (first || now->credits != p->credits || busy != p->busy) {
		if (!first)
			atomic_store(&l->sign_ms, now_ms);
		p->credits = now->credits;
		p->busy = busy;
		p->idle = idle;
		p->quiet_ms = 0;
		p->asked = 0;
		return 0;
	}
	p->quiet_ms += passed;
	if (p->quiet_ms >= step * (p->asked + 1)) {
		ask_sink(p, l);
		return 0;
	}
	if (p->asked < CHECKS - 1 || p->quiet_ms < limit)
		return 0;
	if (p->idle == idle) /* no answer arrived, so the channel may be just as slow */
		limit = (uint64_t)l->setup.timeout_ms;
	if (p->quiet_ms < limit)
		return 0;
	return fail_as(OUT_PEER_LOST, "%s: no block got through for %g s", l->name,
		       (double)limit / 1000);
}

uint64_t patience_next(const struct patience *p, const struct lane *l, bool fresh)
{
	uint64_t limit = patience_limit(l, fresh), step = limit / CHECKS + 1;
	uint64_t at = p->asked < CHECKS - 1 ? step * (p->asked + 1) : limit;

	if (!p->looked_ms || at <= p->quiet_ms)
		at = p->quiet_ms + step / CHECKS + 1;
	return clock_ms() + at - p->quiet_ms;
}
