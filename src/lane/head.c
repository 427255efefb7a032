/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/head.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/cursor.h"
#include "base/fail.h"
#include "base/random.h"

/* The first four bytes identify the kind of message. A version follows in most of them. */
static const char magic_block[4] = {'S', 'L', 'B', '\x93'};
static const char magic_credit[4] = {'S', 'L', 'C', '\x93'};
static const char magic_notice[4] = {'S', 'L', 'N', '\x93'};
static const char magic_hello[4] = {'S', 'L', 'H', '\x93'};
static const char magic_private[4] = {'S', 'L', 'P', '\x93'};
static const char magic_refusal[4] = {'S', 'L', 'R', '\x93'};

enum { HEAD_VERSION = 1, HEAD_CHECKED = LANE_HEAD - 8 };

static int check_magic(const uint8_t got[static 5], const char magic[static 4], const char *what)
{
	if (memcmp(got, magic, 4) != 0)
		return fail_as(OUT_PROTOCOL, "%s: wrong magic number", what);
	if (got[4] != HEAD_VERSION)
		return fail_as(OUT_PROTOCOL, "%s: version %u, not %u", what, got[4], HEAD_VERSION);
	return 0;
}

static int take_magic(struct reader *r, const char magic[static 4], const char *what)
{
	uint8_t got[5];

	take_bytes(r, got, sizeof got);
	return check_magic(got, magic, what);
}

static void put_magic(struct writer *w, const char magic[static 4])
{
	put_bytes(w, magic, 4);
	put_u8(w, HEAD_VERSION);
}

/* ---- blocks ------------------------------------------------------------------------ */

/* The fields of a block's head lie at fixed places, and are read and written without a cursor,
 * because every block has one: cursors took a tenth of all instructions outside the digest. */
enum {
	AT_VERSION = 4,
	AT_KIND = 5,
	AT_LANE = 6,
	AT_EPOCH = 8,
	AT_LEN = 12,
	AT_NUMBER = 16,
	AT_POS = 24,
	AT_FILE = 32,
	AT_PLAIN_LEN = 36,
	AT_HASH = LANE_HEAD_SEALED,
};

static void write_u16(uint8_t *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof v);
}

static void write_u32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof v);
}

static void write_u64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof v);
}

static uint16_t read_u16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof v);
	return le16toh(v);
}

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof v);
	return le32toh(v);
}

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof v);
	return le64toh(v);
}

void head_finish(uint8_t head[static LANE_HEAD])
{
	write_u64(head + HEAD_CHECKED, XXH3_64bits(head, HEAD_CHECKED));
}

void head_encode(const struct head *h, uint8_t to[static LANE_HEAD])
{
	memcpy(to, magic_block, sizeof magic_block);
	to[AT_VERSION] = HEAD_VERSION;
	to[AT_KIND] = h->kind;
	write_u16(to + AT_LANE, h->lane);
	write_u32(to + AT_EPOCH, h->epoch);
	write_u32(to + AT_LEN, h->len);
	write_u64(to + AT_NUMBER, h->number);
	write_u64(to + AT_POS, h->pos);
	write_u32(to + AT_FILE, h->file);
	write_u32(to + AT_PLAIN_LEN, h->plain_len);
	write_u64(to + AT_HASH, h->hash[0]);
	write_u64(to + AT_HASH + 8, h->hash[1]);
	head_finish(to);
}

int head_decode(const uint8_t from[static LANE_HEAD], uint32_t room, struct head *h)
{
	if (read_u64(from + HEAD_CHECKED) != XXH3_64bits(from, HEAD_CHECKED))
		return fail_as(OUT_INTEGRITY, "block head: wrong checksum");
	if (check_magic(from, magic_block, "block head from the peer"))
		return -1;
	h->kind = from[AT_KIND];
	h->lane = read_u16(from + AT_LANE);
	h->epoch = read_u32(from + AT_EPOCH);
	h->len = read_u32(from + AT_LEN);
	h->number = read_u64(from + AT_NUMBER);
	h->pos = read_u64(from + AT_POS);
	h->file = read_u32(from + AT_FILE);
	h->plain_len = read_u32(from + AT_PLAIN_LEN);
	h->hash[0] = read_u64(from + AT_HASH);
	h->hash[1] = read_u64(from + AT_HASH + 8);
	if (h->kind != BLOCK_RECORDS && h->kind != BLOCK_EXTENT)
		return fail_as(OUT_PROTOCOL, "block head from the peer: unknown kind %u", h->kind);
	if (h->lane >= LANE_COUNT_MAX)
		return fail_as(OUT_PROTOCOL, "block head from the peer: lane %u is beyond %d",
			       h->lane, LANE_COUNT_MAX - 1);
	if (h->len > room)
		return fail_as(OUT_PROTOCOL,
			       "block head from the peer: %u bytes exceed the block size %u",
			       h->len, room);
	if (h->plain_len && (h->plain_len > room || h->plain_len <= h->len || h->len == 0))
		return fail_as(
			OUT_PROTOCOL,
			"block head from the peer: %u bytes compressed from %u, of a block size "
			"of %u",
			h->len, h->plain_len, room);
	if (h->pos > INT64_MAX - LANE_BLOCK_MAX)
		return fail_as(OUT_PROTOCOL,
			       "block head from the peer: position %llu exceeds any file size",
			       (unsigned long long)h->pos);
	return 0;
}

/* ---- credits ----------------------------------------------------------------------- */

void credit_encode(const struct credit *c, uint8_t to[static CREDIT_SIZE])
{
	struct writer w = writer_of(to, CREDIT_SIZE);

	put_bytes(&w, magic_credit, 4);
	put_u32(&w, c->epoch);
	put_u64(&w, c->stored);
}

int credit_decode(const uint8_t from[static CREDIT_SIZE], struct credit *c)
{
	struct reader r = reader_of(from, CREDIT_SIZE);
	uint8_t magic[4];

	take_bytes(&r, magic, sizeof magic);
	c->epoch = take_u32(&r);
	c->stored = take_u64(&r);
	if (!reader_done(&r) || memcmp(magic, magic_credit, sizeof magic) != 0)
		return fail_as(OUT_PROTOCOL, "credit from the peer: wrong magic number");
	return 0;
}

/* ---- notices ----------------------------------------------------------------------- */

void notice_encode(const struct notice *n, uint8_t to[static NOTICE_SIZE])
{
	struct writer w = writer_of(to, NOTICE_SIZE);

	put_bytes(&w, magic_notice, 4);
	put_u32(&w, n->epoch);
	put_u32(&w, n->slot);
	put_u32(&w, n->len);
}

int notice_decode(const uint8_t from[static NOTICE_SIZE], struct notice *n)
{
	struct reader r = reader_of(from, NOTICE_SIZE);
	uint8_t magic[4];

	take_bytes(&r, magic, sizeof magic);
	n->epoch = take_u32(&r);
	n->slot = take_u32(&r);
	n->len = take_u32(&r);
	if (!reader_done(&r) || memcmp(magic, magic_notice, sizeof magic) != 0)
		return fail_as(OUT_PROTOCOL, "notice from the peer: wrong magic number");
	if (n->slot >= LANE_DEPTH_MAX)
		return fail_as(OUT_PROTOCOL, "notice from the peer: slot %u is beyond %d", n->slot,
			       LANE_DEPTH_MAX - 1);
	if (n->len < LANE_HEAD || n->len > LANE_HEAD + LANE_BLOCK_MAX)
		return fail_as(OUT_PROTOCOL, "notice from the peer: %u bytes are not in %d to %d",
			       n->len, LANE_HEAD, LANE_HEAD + LANE_BLOCK_MAX);
	return 0;
}

/* ---- hellos ------------------------------------------------------------------------ */

void lane_hello_encode(const struct lane_hello *h, uint8_t to[static LANE_HELLO_SIZE])
{
	struct writer w = writer_of(to, LANE_HELLO_SIZE);

	put_magic(&w, magic_hello);
	put_u8(&w, h->from);
	put_u8(&w, h->accepting);
	put_u8(&w, h->seals);
	put_u64(&w, h->session);
	put_u16(&w, h->lane);
	put_u16(&w, h->depth);
	put_u32(&w, h->epoch);
	put_u32(&w, h->block_size);
	put_u64(&w, h->ring.at);
	put_u32(&w, h->ring.key);
	put_bytes(&w, h->mac, sizeof h->mac);
}

/* The limits of a lane's shape, for every message that contains one. */
static int check_shape(const char *what, unsigned lane, uint32_t depth, uint32_t block_size)
{
	if (lane >= LANE_COUNT_MAX)
		return fail_as(OUT_PROTOCOL, "%s: lane %u is beyond %d", what, lane,
			       LANE_COUNT_MAX - 1);
	if (depth < LANE_DEPTH_MIN || depth > LANE_DEPTH_MAX)
		return fail_as(OUT_PROTOCOL, "%s: depth %u is not in %d to %d", what, depth,
			       LANE_DEPTH_MIN, LANE_DEPTH_MAX);
	if (block_size < LANE_BLOCK_MIN || block_size > LANE_BLOCK_MAX ||
	    (block_size & (block_size - 1)) != 0)
		return fail_as(OUT_PROTOCOL,
			       "%s: block size %u is not a power of two from %d to %d", what,
			       block_size, LANE_BLOCK_MIN, LANE_BLOCK_MAX);
	return 0;
}

int lane_hello_decode(const uint8_t from[static LANE_HELLO_SIZE], struct lane_hello *h)
{
	struct reader r = reader_of(from, LANE_HELLO_SIZE);

	if (take_magic(&r, magic_hello, "lane hello"))
		return -1;
	h->from = take_u8(&r);
	h->accepting = take_u8(&r);
	h->seals = take_u8(&r);
	h->session = take_u64(&r);
	h->lane = take_u16(&r);
	h->depth = take_u16(&r);
	h->epoch = take_u32(&r);
	h->block_size = take_u32(&r);
	h->ring.at = take_u64(&r);
	h->ring.key = take_u32(&r);
	take_bytes(&r, h->mac, sizeof h->mac);
	if (!reader_done(&r) || h->seals > 1 || (h->ring.at == 0 && h->ring.key != 0))
		return fail_as(OUT_PROTOCOL, "lane hello: reserved bytes are not 0");
	if (h->from != LANE_SOURCE && h->from != LANE_SINK)
		return fail_as(OUT_PROTOCOL, "lane hello: sender is neither source nor sink");
	if (h->accepting > 1)
		return fail_as(OUT_PROTOCOL,
			       "lane hello: sender is neither connecting nor accepting end");
	if (h->ring.at != 0 && (h->from != LANE_SINK || h->ring.at % LANE_PAGE != 0))
		return fail_as(OUT_PROTOCOL, "lane hello: invalid ring");
	return check_shape("lane hello", h->lane, h->depth, h->block_size);
}

/* HMAC-SHA256 of the bytes in w. Returns false if OpenSSL fails. */
static bool compute_mac(const struct lane_key *key, const struct writer *w,
			uint8_t to[static LANE_MAC])
{
	unsigned len = LANE_MAC;

	return !w->full &&
	       HMAC(EVP_sha256(), key->secret, LANE_SECRET, w->base, w->used, to, &len) &&
	       len == LANE_MAC;
}

static bool compute_hello_mac(const struct lane_hello *h, const struct lane_key *key,
			      uint8_t to[static LANE_MAC])
{
	uint8_t text[128], bytes[LANE_HELLO_SIZE];
	struct writer w = writer_of(text, sizeof text);

	lane_hello_encode(h, bytes);
	put_bytes(&w, "sluice lane", strlen("sluice lane"));
	put_bytes(&w, key->nonces, sizeof key->nonces);
	put_bytes(&w, bytes, LANE_HELLO_SIZE - LANE_MAC);
	return compute_mac(key, &w, to);
}

void lane_hello_sign(struct lane_hello *h, const struct lane_key *key)
{
	if (!compute_hello_mac(h, key, h->mac))
		memset(h->mac, 0, sizeof h->mac);
}

int lane_hello_verify(const struct lane_hello *h, const struct lane_key *key)
{
	uint8_t mac[LANE_MAC];

	if (!compute_hello_mac(h, key, mac))
		return fail_as(OUT_MEMORY,
			       "check a lane hello: out of memory, or OpenSSL lacks SHA-256");
	if (CRYPTO_memcmp(mac, h->mac, sizeof mac) != 0)
		return fail_as(OUT_AUTH, "lane hello: wrong MAC, so not from the peer");
	return 0;
}

/* ---- private data of a connection request -------------------------------------------- */

void lane_private_encode(const struct lane_private *p, uint8_t to[static LANE_PRIVATE_SIZE])
{
	struct writer w = writer_of(to, LANE_PRIVATE_SIZE);

	put_magic(&w, magic_private);
	put_zeros(&w, 3);
	put_u16(&w, p->lane);
	put_u16(&w, p->depth);
	put_u32(&w, p->epoch);
	put_u32(&w, p->block_size);
	put_u32(&w, 0);
	put_bytes(&w, p->token, sizeof p->token);
}

int lane_private_decode(const void *from, size_t len, struct lane_private *p)
{
	struct reader r = reader_of(from, len < LANE_PRIVATE_SIZE ? len : LANE_PRIVATE_SIZE);
	uint32_t zeros;

	if (take_magic(&r, magic_private, "connection request"))
		return -1;
	zeros = take_u16(&r);
	zeros |= take_u8(&r);
	p->lane = take_u16(&r);
	p->depth = take_u16(&r);
	p->epoch = take_u32(&r);
	p->block_size = take_u32(&r);
	zeros |= take_u32(&r);
	take_bytes(&r, p->token, sizeof p->token);
	if (r.bad || zeros != 0)
		return fail_as(OUT_PROTOCOL,
			       "connection request: too short, or reserved bytes are not 0");
	return check_shape("connection request", p->lane, p->depth, p->block_size);
}

void lane_refusal_encode(const struct lane_refusal *f, uint8_t to[static LANE_REFUSAL_SIZE])
{
	struct writer w = writer_of(to, LANE_REFUSAL_SIZE);

	put_magic(&w, magic_refusal);
	put_u8(&w, f->code);
	put_zeros(&w, 2);
	put_u64(&w, f->limit);
	put_u64(&w, f->need);
}

int lane_refusal_decode(const void *from, size_t len, struct lane_refusal *f)
{
	struct reader r = reader_of(from, len < LANE_REFUSAL_SIZE ? len : LANE_REFUSAL_SIZE);
	unsigned zeros;

	if (take_magic(&r, magic_refusal, "refusal from the peer"))
		return -1;
	f->code = take_u8(&r);
	zeros = take_u16(&r);
	f->limit = take_u64(&r);
	f->need = take_u64(&r);
	if (r.bad || zeros != 0 ||
	    (f->code != OUT_MEMLOCK && f->code != OUT_MEMORY && f->code != OUT_TRANSPORT))
		return fail_as(OUT_PROTOCOL, "refusal from the peer: too short, or unknown reason");
	return 0;
}

void lane_token(const struct lane_key *key, uint16_t lane, uint32_t epoch,
		uint8_t to[static LANE_TOKEN])
{
	uint8_t text[128], mac[LANE_MAC];
	struct writer w = writer_of(text, sizeof text);

	put_bytes(&w, "sluice token", strlen("sluice token"));
	put_bytes(&w, key->nonces, sizeof key->nonces);
	put_u64(&w, key->session);
	put_u16(&w, lane);
	put_u32(&w, epoch);
	/* If the MAC fails, the token is random, so that no peer can guess it. */
	if (!compute_mac(key, &w, mac) && random_bytes(mac, LANE_TOKEN))
		abort();
	memcpy(to, mac, LANE_TOKEN);
}
