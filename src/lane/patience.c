/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/patience.h"

#include "base/clock.h"
#include "lane/state.h"

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

int patience_look(struct patience *p, struct lane *l, uint64_t signs, bool fresh)
{
	uint64_t now = clock_ms(), limit = patience_limit(l, fresh), step = limit / CHECKS + 1;
	uint32_t busy = atomic_load(&l->answers_busy), idle = atomic_load(&l->answers_idle);
	uint64_t passed = now - p->looked_ms;

	if (!p->looked_ms || signs != p->signs || busy != p->busy) {
		if (p->looked_ms)
			atomic_store(&l->sign_ms, now);
		*p = (struct patience){
			.signs = signs, .looked_ms = now, .busy = busy, .idle = idle};
		return 0;
	}
	p->looked_ms = now;
	p->quiet_ms += passed < step ? passed : step;
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
