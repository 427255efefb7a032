/* SPDX-License-Identifier: Apache-2.0 */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>
#include "base/fail.h"
#include "base/random.h"

enum { WORD_BYTES = sizeof(uint64_t), ROUNDS = 2, ROUNDS_LAST = 4 };

static uint64_t rotate_left(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static void run_rounds(uint64_t v[static 4], int rounds)
{
	for (int i = 0; i < rounds; i++) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate_left(v[1], 13) ^ v[0];
		v[3] = rotate_left(v[3], 16) ^ v[2];
		v[0] = rotate_left(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate_left(v[1], 17) ^ v[2];
		v[3] = rotate_left(v[3], 21) ^ v[0];
		v[2] = rotate_left(v[2], 32);
	}
}

static void absorb_word(uint64_t v[static 4], uint64_t word)
{
	v[3] ^= word;
	run_rounds(v, ROUNDS);
	v[0] ^= word;
}

int siphash_key_make(struct siphash_key *key)
{
	return random_bytes(key, sizeof *key);
}

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t len)
{
	uint64_t v[4] = {
		key->half[0] ^ UINT64_C(0x736f6d6570736575),
		key->half[1] ^ UINT64_C(0x646f72616e646f6d),
		key->half[0] ^ UINT64_C(0x6c7967656e657261),
		key->half[1] ^ UINT64_C(0x7465646279746573),
	};
	const uint8_t *at = bytes;
	uint64_t word;
	size_t left;

	for (left = len; left >= WORD_BYTES; left -= WORD_BYTES, at += WORD_BYTES) {
		memcpy(&word, at, sizeof word);
		absorb_word(v, le64toh(word));
	}
	word = (uint64_t)len << 56;
	for (size_t i = 0; i < left; i++)
		word |= (uint64_t)at[i] << (8 * i);
	absorb_word(v, word);
	v[2] ^= 0xff;
	run_rounds(v, ROUNDS_LAST);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
