/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/budget.h"

static uint64_t larger_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t budget_share(const struct budget *b)
{
	uint64_t left = b->total > b->taken ? b->total - b->taken : 0;
	uint64_t kept = (uint64_t)(b->places - b->running - 1) * BUDGET_LEAST;
	uint64_t spare, share;

	if (left < BUDGET_LEAST)
		return 0;
	/* What is not enough for all that may come is for those that do come. */
	if (left < kept + BUDGET_LEAST)
		kept = left / 2;
	spare = left - kept;
	share = larger_u64(spare / 4, smaller_u64(b->total / b->places, spare));
	return smaller_u64(larger_u64(share, BUDGET_LEAST), BUDGET_MOST);
}
