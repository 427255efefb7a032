/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

/* SipHash-2-4 (Aumasson, Bernstein 2012): without the key nobody can find two inputs of one hash,
 * as is easy for a fast hash, with a seed too. */

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t half[2];
};
/* 0; -1: there is no randomness. */
int siphash_key_make(struct siphash_key *key);
uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t len);

#endif
