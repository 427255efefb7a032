/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_CIPHER_H
#define LANE_CIPHER_H

/*
 * Encryption of the blocks of one lane: docs/protocol.md, "Sealed wires"; docs/security.md has the
 * argument. The keys of a wire are derived from the session's secret, both nonces, the lane and the
 * epoch, so no two wires share one. The nonce is the number of the block. Each key encrypts a
 * number at most once, and this file refuses everything else: an epoch that is not higher than all
 * before, and a number that is not higher than the last one of its epoch.
 *
 * For the lane's thread only.
 */

#include <stdbool.h>
#include "lane/head.h"

enum cipher_kind { CIPHER_NONE = 0, CIPHER_AES_256_GCM = 1, CIPHER_CHACHA20_POLY1305 = 2 };
enum { CIPHER_TAG = 16, CIPHER_KEY = 32 };
/* Data and heads, in bytes, that one key encrypts at most. */
#define CIPHER_REKEY (64ull << 30)

/* HELLO's bits of the ciphers that this end wants to use: 1 << (kind - 1). AES only where the
 * processor has instructions for it, and both only if OpenSSL has them. */
uint32_t cipher_known(void);
/* The cipher that both ends have; AES before ChaCha20. CIPHER_NONE: there is none. */
enum cipher_kind cipher_choose(uint32_t mine, uint32_t peer);
const char *cipher_name(enum cipher_kind kind);

struct cipher;

/* key must outlive it. rekey: bytes that one key encrypts at most. */
int cipher_open(enum cipher_kind kind, const struct lane_key *key, unsigned lane, uint64_t rekey,
		struct cipher **out);
/* Wipes the keys. Accepts NULL. */
void cipher_close(struct cipher *c);
/* Begins a wire. Fails if the epoch is not higher than that of each wire before. */
int cipher_begin(struct cipher *c, uint32_t epoch);

/* A block and what authenticates it. head: the bytes before the tag, LANE_HEAD_SEALED of them,
 * which are authenticated too. from and to may be equal. */
struct cipher_block {
	uint64_t number;
	uint32_t len;
	const uint8_t *head;
	const uint8_t *from;
	uint8_t *to;
};
/* Encrypts b with the key of the wire. *key_number: of the key that was used. */
int cipher_seal(struct cipher *c, const struct cipher_block *b, uint8_t tag[static CIPHER_TAG],
		uint32_t *key_number);
/* Decrypts the next block of the wire. -1 with OUT_INTEGRITY: the tag is wrong. */
int cipher_unseal(struct cipher *c, const struct cipher_block *b,
		  const uint8_t tag[static CIPHER_TAG]);
/* Decrypts a block that this end encrypted, perhaps with the key of an earlier wire. */
int cipher_recover(struct cipher *c, uint32_t epoch, uint32_t key_number,
		   const struct cipher_block *b, const uint8_t tag[static CIPHER_TAG]);

#endif
