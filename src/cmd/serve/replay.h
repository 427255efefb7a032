/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_REPLAY_H
#define CMD_SERVE_REPLAY_H

/*
 * Which ClientHellos were here before. Each has 32 random bytes of its client, and its proof of the
 * key covers all of it. So one that comes a second time is a recording, which would hold a process
 * until its time is over. One that is made without the key is refused at once.
 *
 * A fixed number of hashes: a newer hello takes the place of an older one now and then.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/siphash.h"

enum { REPLAYS_MAX = 8192 };

struct replay {
	struct siphash_key key;
	uint64_t seen[REPLAYS_MAX]; /* by the low bits of the hash */
};

/* Returns 0; -1 with a failure. */
int replay_init(struct replay *r);
/* Whether this hello was here before. Remembers it. */
bool replay_check(struct replay *r, const void *hello, size_t len);

#endif
