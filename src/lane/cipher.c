/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/cipher.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>
#include "base/cursor.h"
#include "base/fail.h"

enum {
	NONCE = 12,
	DIRECTION = 1, /* of all blocks: from the source to the sink */
	INFO = 64,
};

/* A key that is ready in OpenSSL. */
struct ready_key {
	EVP_CIPHER_CTX *ctx;
	bool ready;
	bool seals;
	uint32_t epoch, number;
};

struct cipher {
	const struct lane_key *key;
	enum cipher_kind kind;
	unsigned lane;
	EVP_CIPHER *algorithm;
	EVP_KDF *kdf;
	struct ready_key now; /* of the wire */
	struct ready_key old; /* for blocks of earlier wires */
	uint64_t rekey;
	uint64_t used; /* bytes that the present key has encrypted */
	uint64_t next; /* the lowest number that the wire may carry next */
	bool begun; /* a wire */
	uint32_t epoch;
	uint32_t key_number;
};

static const char *algorithm_name(enum cipher_kind kind)
{
	return kind == CIPHER_AES_256_GCM ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

const char *cipher_name(enum cipher_kind kind)
{
	return kind == CIPHER_NONE ? "none" : algorithm_name(kind);
}

/* ---- which ciphers this end has ---------------------------------------------------------- */

/* Whether OpenSSL uses the processor's instructions for AES and for GCM. OPENSSL_ia32cap can take
 * them away. On x86 the bits are those of CPUID 1, EDX in the low half; on ARM those of
 * OPENSSL_armcap_P. */
static bool has_fast_aes(void)
{
	const char *settings = OPENSSL_info(OPENSSL_INFO_CPU_SETTINGS);
	const char *at;
	uint64_t bits, need;

	if (!settings)
		return false;
	if ((at = strstr(settings, "ia32cap=")))
		need = 1ull << 57 | 1ull << 33;
	else if ((at = strstr(settings, "armcap=")))
		need = 1ull << 2 | 1ull << 5;
	else
		return false;
	bits = strtoull(strchr(at, '=') + 1, NULL, 0);
	return (bits & need) == need;
}

static bool has_algorithm(enum cipher_kind kind)
{
	EVP_CIPHER *algorithm = EVP_CIPHER_fetch(NULL, algorithm_name(kind), NULL);

	EVP_CIPHER_free(algorithm);
	return algorithm != NULL;
}

static uint32_t bit_of(enum cipher_kind kind)
{
	return 1u << (kind - 1);
}

uint32_t cipher_known(void)
{
	uint32_t bits = 0;

	if (has_algorithm(CIPHER_CHACHA20_POLY1305))
		bits |= bit_of(CIPHER_CHACHA20_POLY1305);
	if ((has_fast_aes() || !bits) && has_algorithm(CIPHER_AES_256_GCM))
		bits |= bit_of(CIPHER_AES_256_GCM);
	return bits;
}

enum cipher_kind cipher_choose(uint32_t mine, uint32_t peer)
{
	for (enum cipher_kind k = CIPHER_AES_256_GCM; k <= CIPHER_CHACHA20_POLY1305; k++)
		if (mine & peer & bit_of(k))
			return k;
	return CIPHER_NONE;
}

/* ---- keys -------------------------------------------------------------------------------- */

static int fail_openssl(const struct cipher *c, const char *what)
{
	return fail_as(OUT_MEMORY, "%s blocks of lane %u with %s: out of memory, or OpenSSL failed",
		       what, c->lane, algorithm_name(c->kind));
}

/* HKDF-SHA256. The epoch and the number of the key make it this key. */
static bool derive_key(const struct cipher *c, uint32_t epoch, uint32_t number,
		       uint8_t to[static CIPHER_KEY])
{
	uint8_t info[INFO];
	struct writer w = writer_of(info, sizeof info);
	EVP_KDF_CTX *kdf = EVP_KDF_CTX_new(c->kdf);
	OSSL_PARAM params[5];
	bool done;

	put_bytes(&w, "sluice block", strlen("sluice block"));
	put_u8(&w, (uint8_t)c->kind);
	put_u8(&w, DIRECTION);
	put_u16(&w, (uint16_t)c->lane);
	put_u32(&w, epoch);
	put_u32(&w, number);
	params[0] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0);
	params[1] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)c->key->secret,
						      sizeof c->key->secret);
	params[2] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)c->key->nonces,
						      sizeof c->key->nonces);
	params[3] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, w.used);
	params[4] = OSSL_PARAM_construct_end();
	done = kdf && !w.full && EVP_KDF_derive(kdf, to, CIPHER_KEY, params) > 0;
	EVP_KDF_CTX_free(kdf);
	return done;
}

static int make_ready(struct cipher *c, struct ready_key *k, uint32_t epoch, uint32_t number,
		      bool seals)
{
	uint8_t key[CIPHER_KEY];
	bool done;

	if (k->ready && k->epoch == epoch && k->number == number && k->seals == seals)
		return 0;
	k->ready = false;
	done = derive_key(c, epoch, number, key) &&
	       EVP_CipherInit_ex2(k->ctx, c->algorithm, key, NULL, seals, NULL) == 1;
	OPENSSL_cleanse(key, sizeof key);
	if (!done)
		return fail_openssl(c, seals ? "encrypt" : "decrypt");
	*k = (struct ready_key){k->ctx, true, seals, epoch, number};
	return 0;
}

int cipher_open(enum cipher_kind kind, const struct lane_key *key, unsigned lane, uint64_t rekey,
		struct cipher **out)
{
	struct cipher *c = calloc(1, sizeof *c);

	if (!c)
		return fail_as(OUT_MEMORY, "prepare to encrypt lane %u: %m", lane);
	c->kind = kind;
	c->key = key;
	c->lane = lane;
	c->rekey = rekey;
	c->algorithm = EVP_CIPHER_fetch(NULL, algorithm_name(kind), NULL);
	c->kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	c->now.ctx = EVP_CIPHER_CTX_new();
	c->old.ctx = EVP_CIPHER_CTX_new();
	*out = c;
	if (c->algorithm && c->kdf && c->now.ctx && c->old.ctx)
		return 0;
	fail_openssl(c, "prepare to encrypt");
	cipher_close(c);
	*out = NULL;
	return -1;
}

void cipher_close(struct cipher *c)
{
	if (!c)
		return;
	/* OpenSSL wipes their keys. */
	EVP_CIPHER_CTX_free(c->now.ctx);
	EVP_CIPHER_CTX_free(c->old.ctx);
	EVP_CIPHER_free(c->algorithm);
	EVP_KDF_free(c->kdf);
	free(c);
}

int cipher_begin(struct cipher *c, uint32_t epoch)
{
	if (c->begun && epoch <= c->epoch)
		return fail_as(OUT_PROTOCOL, "lane %u: epoch %u cannot be encrypted after epoch %u",
			       c->lane, epoch, c->epoch);
	c->begun = true;
	c->epoch = epoch;
	c->key_number = 0;
	c->used = 0;
	c->next = 0;
	return 0;
}

/* Both ends count alike, so they change the key at the same block. */
static int count_block(struct cipher *c, uint64_t number, uint32_t len)
{
	uint64_t bytes = (uint64_t)len + LANE_HEAD;

	if (!c->begun || number < c->next)
		return fail_as(OUT_PROTOCOL,
			       "lane %u: block %llu cannot be encrypted in this order", c->lane,
			       (unsigned long long)number);
	if (c->used > 0 && c->used + bytes > c->rekey) {
		c->key_number++;
		c->used = 0;
	}
	c->used += bytes;
	c->next = number + 1;
	return 0;
}

/* ---- blocks ------------------------------------------------------------------------------ */

static bool transform_block(struct ready_key *k, const struct cipher_block *b)
{
	uint8_t nonce[NONCE] = {0};
	struct writer w = writer_of(nonce + NONCE - 8, 8);
	int n;

	put_u64(&w, b->number);
	return EVP_CipherInit_ex2(k->ctx, NULL, NULL, nonce, -1, NULL) == 1 &&
	       EVP_CipherUpdate(k->ctx, NULL, &n, b->head, LANE_HEAD_SEALED) == 1 &&
	       (b->len == 0 || EVP_CipherUpdate(k->ctx, b->to, &n, b->from, (int)b->len) == 1);
}

int cipher_seal(struct cipher *c, const struct cipher_block *b, uint8_t tag[static CIPHER_TAG],
		uint32_t *key_number)
{
	uint8_t rest[CIPHER_TAG];
	int n;

	if (count_block(c, b->number, b->len) ||
	    make_ready(c, &c->now, c->epoch, c->key_number, true))
		return -1;
	if (!transform_block(&c->now, b) || EVP_CipherFinal_ex(c->now.ctx, rest, &n) != 1 ||
	    EVP_CIPHER_CTX_ctrl(c->now.ctx, EVP_CTRL_AEAD_GET_TAG, CIPHER_TAG, tag) != 1)
		return fail_openssl(c, "encrypt");
	*key_number = c->key_number;
	return 0;
}

static int decrypt_block(struct cipher *c, struct ready_key *k, const struct cipher_block *b,
			 const uint8_t tag[static CIPHER_TAG])
{
	uint8_t rest[CIPHER_TAG], expected[CIPHER_TAG];
	int n;

	memcpy(expected, tag, CIPHER_TAG);
	if (!transform_block(k, b) ||
	    EVP_CIPHER_CTX_ctrl(k->ctx, EVP_CTRL_AEAD_SET_TAG, CIPHER_TAG, expected) != 1)
		return fail_openssl(c, "decrypt");
	if (EVP_CipherFinal_ex(k->ctx, rest, &n) == 1)
		return 0;
	return fail_as(OUT_INTEGRITY, "lane %u: the tag of block %llu is wrong", c->lane,
		       (unsigned long long)b->number);
}

int cipher_unseal(struct cipher *c, const struct cipher_block *b,
		  const uint8_t tag[static CIPHER_TAG])
{
	if (count_block(c, b->number, b->len) ||
	    make_ready(c, &c->now, c->epoch, c->key_number, false))
		return -1;
	return decrypt_block(c, &c->now, b, tag);
}

int cipher_recover(struct cipher *c, uint32_t epoch, uint32_t key_number,
		   const struct cipher_block *b, const uint8_t tag[static CIPHER_TAG])
{
	return make_ready(c, &c->old, epoch, key_number, false) ? -1
								: decrypt_block(c, &c->old, b, tag);
}
