/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/replay.h"

#include <string.h>

int replay_init(struct replay *r)
{
	memset(r->seen, 0, sizeof r->seen);
	return siphash_key_make(&r->key);
}

bool replay_check(struct replay *r, const void *hello, size_t len)
{
	uint64_t hash = siphash(&r->key, hello, len);
	uint64_t *seen = &r->seen[hash % REPLAYS_MAX];

	if (*seen == hash)
		return true;
	*seen = hash;
	return false;
}
