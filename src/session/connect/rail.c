/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/rail.h"

#include <stdio.h>

/* An unknown rate counts as that of the way that worked. */
static bool is_fast_enough(const struct rail *r, const struct rail *worked)
{
	return r->rate == 0 || r->rate >= worked->rate;
}

static bool is_apart(const struct rail *r, const struct rail *ways, const unsigned *chosen,
		     unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (ways[chosen[i]].near == r->near || ways[chosen[i]].far == r->far)
			return false;
	return true;
}

unsigned rails_choose(const struct rail *ways, unsigned count, unsigned worked, unsigned most,
		      unsigned chosen[])
{
	unsigned n = 1;

	chosen[0] = worked;
	/* If its port is unknown, another way may use the same port. */
	if (ways[worked].near < 0)
		return n;
	for (unsigned i = 0; i < count && n < most; i++) {
		const struct rail *r = &ways[i];

		if (!r->dead && r->near >= 0 && is_fast_enough(r, &ways[worked]) &&
		    is_apart(r, ways, chosen, n))
			chosen[n++] = i;
	}
	return n;
}

void rails_sort(struct rail *ways, unsigned count)
{
	for (unsigned i = 1; i < count; i++) {
		struct rail r = ways[i];
		unsigned at = i;

		for (; at > 0 && ways[at - 1].rate < r.rate; at--)
			ways[at] = ways[at - 1];
		ways[at] = r;
	}
}

int rail_of_lane(const struct rail *rails, unsigned count, unsigned lane)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned at = (lane + i) % count;

		if (!rails[at].dead)
			return (int)at;
	}
	return -1;
}

int rail_to_try(const struct rail *rails, unsigned count, unsigned lane, unsigned tries)
{
	int at;

	if (tries >= count)
		return -1;
	at = rail_of_lane(rails, count, lane);
	return at >= 0 ? at : (int)((lane + tries) % count);
}

char *rail_text(const struct rail *r, char *to, size_t size)
{
	char at[80];

	snprintf(to, size, "%s%s%s", r->device, r->device[0] ? " to " : "",
		 address_text(&r->to, at, sizeof at));
	return to;
}
