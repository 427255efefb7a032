/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

/* SipHash-2-4 (Aumasson, Bernstein 2012). Without the key nobody can construct two inputs with the
 * same hash; with a fast hash that is easy, even if it has a seed. */

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t half[2];
};
/* Returns 0; -1 if there is no randomness. */
int siphash_key_make(struct siphash_key *key);
uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t len);

#endif
