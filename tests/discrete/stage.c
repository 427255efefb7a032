/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <stdio.h>
#include <string.h>
#include "lane/cell_hash.h"
#include "scheduler.h"

struct cost costs[LANE_SINK + 1][STAGE_COUNT];
uint64_t spin_ps;

static uint64_t spent[LANE_SINK + 1][STAGE_COUNT];
static _Thread_local enum lane_side my_side;

const char *stage_name(enum stage s)
{
	static const char *const names[] = {
		"fill",       "store",  "digest", "lane",     "post",
		"completion", "credit", "wake",   "register",
	};

	return names[s];
}

/* Skips the name if word begins with it. */
static bool skip_name(const char **word, const char *name)
{
	size_t len = strlen(name);

	if (strncmp(*word, name, len) != 0)
		return false;
	*word += len;
	return true;
}

static bool parse_cost(const char *word, enum stage *s, struct cost *c)
{
	double call_ns, byte_ns;

	for (*s = 0; *s < STAGE_COUNT && !skip_name(&word, stage_name(*s)); ++*s)
		;
	if (*s == STAGE_COUNT || sscanf(word, "=%lf,%lf", &call_ns, &byte_ns) != 2)
		return false;
	*c = (struct cost){(uint64_t)(call_ns * PS_PER_NS), byte_ns * PS_PER_NS};
	return true;
}

bool stage_parse(const char *word)
{
	bool source = skip_name(&word, "source."), sink = !source && skip_name(&word, "sink.");
	enum stage s;
	struct cost c;

	if (!parse_cost(word, &s, &c))
		return false;
	if (!sink)
		costs[LANE_SOURCE][s] = c;
	if (!source)
		costs[LANE_SINK][s] = c;
	return true;
}

uint64_t stage_charge(enum lane_side side, enum stage s, uint64_t bytes, double factor)
{
	const struct cost *c = &costs[side][s];
	double ps = ((double)c->call_ps + c->byte_ps * (double)bytes) * factor;

	spent[side][s] += (uint64_t)ps;
	return (uint64_t)ps;
}

void stage_spend(enum lane_side side, enum stage s, uint64_t bytes, double factor)
{
	task_sleep_until(now_ps() + stage_charge(side, s, bytes, factor));
}

uint64_t stage_spent_ps(enum lane_side side, enum stage s)
{
	return spent[side][s];
}

void stage_enter(enum lane_side side)
{
	my_side = side;
}

/*
 * In place of src/lane/cell_hash.c: a digest costs its time, wherever a lane computes one, and is
 * of the position and the length only. The data is not copied.
 */

void cell_hash_of(uint64_t pos, const void *bytes, size_t len, uint64_t out[static 2])
{
	(void)bytes;
	out[0] = pos;
	out[1] = len;
	stage_spend(my_side, STAGE_DIGEST, len, 1);
}

void sum_add(uint64_t to[static 2], const uint64_t from[static 2])
{
	to[0] += from[0];
	to[1] += from[1];
}
