/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <stdio.h>
#include <string.h>
#include "lane/cell_hash.h"
#include "scheduler.h"

struct cost costs[STAGE_COUNT];
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

bool stage_parse(const char *word)
{
	for (unsigned s = 0; s < STAGE_COUNT; s++) {
		size_t len = strlen(stage_name(s));
		double call_ns, byte_ns;

		if (strncmp(word, stage_name(s), len) || word[len] != '=')
			continue;
		if (sscanf(word + len + 1, "%lf,%lf", &call_ns, &byte_ns) != 2)
			return false;
		costs[s] = (struct cost){(uint64_t)(call_ns * PS_PER_NS), byte_ns * PS_PER_NS};
		return true;
	}
	return false;
}

uint64_t stage_charge(enum lane_side side, enum stage s, uint64_t bytes, double factor)
{
	double ps = ((double)costs[s].call_ps + costs[s].byte_ps * (double)bytes) * factor;

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
