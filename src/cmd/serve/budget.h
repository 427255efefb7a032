/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_BUDGET_H
#define CMD_SERVE_BUDGET_H

/*
 * The memory for blocks of all sessions of a rdcpd together. What a session got is its own until it
 * ends, so one that begins takes no more than a part of what is there: later ones need theirs.
 *
 * - Each of the sessions that may still come keeps BUDGET_LEAST, as far as the budget is enough for
 * that.
 * - A session gets a quarter of the rest, but its equal share of the budget, if that is more and is
 * there; never more than BUDGET_MOST.
 * - If not even BUDGET_LEAST is left, it gets nothing.
 */

#include <stdint.h>

enum {
	BUDGET_LEAST = 1 << 20, /* one lane of 15 blocks of 64 KiB */
	BUDGET_MOST = 256 << 20,
};

struct budget {
	uint64_t total, taken; /* bytes; taken: by the sessions that run */
	unsigned running; /* sessions */
	unsigned places; /* at most as many sessions run at a time; more than running */
};

/* How much a session that begins gets; 0: there is not enough. */
uint64_t budget_share(const struct budget *b);

#endif
