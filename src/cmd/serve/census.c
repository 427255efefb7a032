/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/census.h"

#include <string.h>
#include "base/fail.h"
#include "base/memory.h"
#include "cmd/serve/budget.h"

enum { IDLE_S = 600 };

struct limits limits_default(void)
{
	uint64_t half = memory_bytes() / 2;

	return (struct limits){
		.sessions = SESSIONS_MAX,
		.idle_s = IDLE_S,
		.memory = half ? half : (uint64_t)SESSIONS_MAX * BUDGET_MOST,
	};
}

int limits_set_memory(struct limits *l, uint64_t bytes)
{
	if (bytes < BUDGET_LEAST)
		return fail_as(OUT_USAGE, "memory: a session needs 1 MiB");
	l->memory = bytes;
	return 0;
}

static unsigned count_user(const struct census *c, const char *user)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		n += c->list[i].pid && strcmp(c->list[i].who.user, user) == 0;
	return n;
}

static unsigned count_module(const struct census *c, const char *module)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		n += c->list[i].pid && strcmp(c->list[i].who.module, module) == 0;
	return n;
}

static int check_counts(const struct census *c, const struct limits *l, unsigned most,
			const struct entrant *who)
{
	if (c->count >= l->sessions)
		return fail_as(OUT_CONNECT, "rdcpd serves %u sessions already (max sessions)",
			       c->count);
	if (l->sessions_per_user && count_user(c, who->user) >= l->sessions_per_user)
		return strcmp(who->user, "-") == 0
			       ? fail_as(OUT_CONNECT,
					 "clients without a user have %u sessions already (max "
					 "sessions per user)",
					 l->sessions_per_user)
			       : fail_as(OUT_CONNECT,
					 "user %s has %u sessions already (max sessions per user)",
					 who->user, l->sessions_per_user);
	if (*who->module && most && count_module(c, who->module) >= most)
		return fail_as(OUT_CONNECT, "module %s has %u sessions already (max connections)",
			       who->module, most);
	return 0;
}

static uint64_t sum_memory(const struct census *c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		sum += c->list[i].pid ? c->list[i].memory : 0;
	return sum;
}

/* A list of modules has no blocks. */
static int share_memory(const struct census *c, const struct limits *l, uint64_t *memory)
{
	struct budget b = {
		.total = l->memory,
		.taken = sum_memory(c),
		.running = c->count,
		.places = l->sessions,
	};

	*memory = budget_share(&b);
	return *memory ? 0
		       : fail_as(OUT_CONNECT,
				 "the sessions of rdcpd have all of its memory (%llu "
				 "MiB, memory)",
				 (unsigned long long)(l->memory >> 20));
}

static int find_slot(const struct census *c, pid_t pid)
{
	for (int i = 0; i < SESSIONS_MAX; i++)
		if (c->list[i].pid == pid)
			return i;
	return -1;
}

int census_enter(struct census *c, const struct limits *l, unsigned most, pid_t pid,
		 const struct entrant *who, uint64_t *memory, unsigned *slot)
{
	*memory = 0;
	if (check_counts(c, l, most, who) || (*who->module && share_memory(c, l, memory)))
		return -1;
	/* There is one: check_counts() has counted them. */
	*slot = (unsigned)find_slot(c, 0);
	c->list[*slot].pid = pid;
	c->list[*slot].who = *who;
	c->list[*slot].memory = *memory;
	c->count++;
	return 0;
}

void census_lower(struct census *c, pid_t pid, uint64_t memory)
{
	int slot = find_slot(c, pid);

	if (slot >= 0 && memory < c->list[slot].memory)
		c->list[slot].memory = memory;
}

void census_leave(struct census *c, pid_t pid)
{
	int slot = find_slot(c, pid);

	if (slot < 0)
		return;
	c->list[slot].pid = 0;
	c->count--;
}
