/* SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "misuse.h"

static _Atomic int counts[TALLIES];

void tally_add(enum tally kind)
{
	atomic_fetch_add(&counts[kind], 1);
}

void tally_remove(enum tally kind)
{
	atomic_fetch_sub(&counts[kind], 1);
}

/* A child has nothing to free. */
static void forget_parent(void)
{
	for (int i = 0; i < TALLIES; i++)
		atomic_store(&counts[i], 0);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

enum { FREED_WITHIN_MS = 2000 };

/* A thread for which an exit does not wait may still be freeing something. */
static int await_none(enum tally kind)
{
	for (int ms = 0; atomic_load(&counts[kind]) && ms < FREED_WITHIN_MS; ms += 10)
		poll(NULL, 0, 10);
	return atomic_load(&counts[kind]);
}

__attribute__((destructor)) static void check_leaks(void)
{
	static const char *const names[] = {
		"contexts",          "protection domains", "regions",        "completion channels",
		"completion queues", "queue pairs",        "event channels", "ids",
	};

	for (int i = 0; getenv("SIMVERBS_LEAKS") && i < TALLIES; i++)
		if (await_none((enum tally)i))
			misuse("exit with %d %s", atomic_load(&counts[i]), names[i]);
}
