/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte selects the decoder: the type of a message, or 0 for a block of records. What
 * decodes must encode again, to the same message. Both ends must agree on the terms of two HELLOs.
 */
#include <string.h>
#include "expect.h"
#include "recode.h"
#include "session/session_impl.h"

/* The encoding of a decoded record is never longer, so a block fits again. */
enum { ROOM = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t once[ROOM], twice[ROOM], less[ROOM];
static union any_message message;
static struct record record;

/* Checks that too little room is noticed, and that nothing is written behind it. */
static void expect_no_room(uint8_t type, const uint8_t *bytes, size_t len)
{
	struct frame f = {.type = type, .len = (uint32_t)len, .body = bytes};
	size_t room = len - (len > 7 ? 1 + len % 7 : len > 0);
	struct writer w = writer_of(less, room);

	if (type)
		recode(&f, &message, &w);
	else
		recode_records(bytes, len, &record, &w);
	expect((w.full || len == 0) && w.used <= room);
}

/* Both ends must compute the same terms from two HELLOs, within the limits of both. */
static void agree(const struct msg_hello *peer, enum transport want, enum encrypt encrypt,
		  uint64_t lockable)
{
	struct msg_hello mine = {.role = ROLE_SOURCE, .want = want, .lanes = 4, .depth = 8};
	struct terms here, there;

	mine.encrypt = encrypt;
	mine.block_size = 1 << 16;
	mine.memory = UINT64_MAX;
	mine.lockable = lockable;
	mine.timeout_ms = 15000;
	mine.ciphers = 3;
	if (terms_agree(&mine, peer, &here) < 0) {
		expect(terms_agree(peer, &mine, &there) < 0);
		return;
	}
	expect(terms_agree(peer, &mine, &there) == 0);
	expect(here.lanes == there.lanes && here.depth == there.depth && here.rdma == there.rdma);
	expect(here.block_size == there.block_size && here.rails == there.rails);
	expect(here.rdma_op == there.rdma_op && here.want == there.want);
	expect(here.encrypt == there.encrypt && here.cipher == there.cipher);
	expect((here.cipher == CIPHER_NONE) == (here.encrypt == ENCRYPT_OFF));
	expect(here.lanes >= 1 && here.lanes <= mine.lanes && here.lanes <= peer->lanes);
	expect(here.depth >= 1 && here.depth <= mine.depth && here.depth <= peer->depth);
	expect(here.block_size <= mine.block_size && here.block_size <= peer->block_size);
	expect(here.timeout_ms >= 1000 && here.rails >= 1);
}

static void agree_all(const struct msg_hello *peer)
{
	static const enum transport wants[] = {TRANSPORT_AUTO, TRANSPORT_RDMA, TRANSPORT_TCP};

	for (unsigned i = 0; i < 3; i++) {
		agree(peer, wants[i], ENCRYPT_AUTO, 0);
		agree(peer, wants[i], ENCRYPT_ON, 1 << 16);
		agree(peer, wants[i], ENCRYPT_OFF, UINT64_MAX);
	}
}

/* Decodes, encodes into *to, and returns the length; -1 if it does not decode. */
static long decode(uint8_t type, const uint8_t *bytes, size_t len, uint8_t *to)
{
	struct frame f = {.type = type, .len = (uint32_t)len, .body = bytes};
	struct writer w = writer_of(to, ROOM);
	int rc;

	rc = type ? recode(&f, &message, &w) : recode_records(bytes, len, &record, &w);
	if (rc < 0) {
		expect_failure(OUT_PROTOCOL, OUT_VERSION);
		return -1;
	}
	expect(!w.full && w.used == len);
	expect_no_room(type, bytes, len);
	return (long)w.used;
}

/* Encoding the names of a KEEP again must give the same bytes. */
static void keep_again(const struct record_keep *keep)
{
	struct reader names = keep->names;
	struct writer w = writer_of(twice, sizeof twice), none = writer_of(twice, 0);
	char name[NAME_ROOM];

	while (record_keep_next(&names, name) > 0)
		expect(record_keep_add(&w, name) && !record_keep_add(&none, name));
	expect(w.used == keep->names.left && memcmp(twice, keep->names.at, w.used) == 0);
}

/* A DATA record whose bytes are filled in later must be the same. */
static void place_again(const struct record_data *data)
{
	struct writer w = writer_of(twice, sizeof twice), other = writer_of(less, sizeof less);
	uint8_t *at;

	record_data_encode(&w, data);
	at = record_data_open(&other, data);
	expect((at != NULL) == (data->len > 0));
	if (at)
		memcpy(at, data->bytes, data->len);
	expect(w.used == other.used && memcmp(twice, less, w.used) == 0);
}

static void encode_otherwise(const uint8_t *bytes, size_t len)
{
	struct reader from = reader_of(bytes, len);

	while (record_next(&from, &record) > 0) {
		if (record.type == RECORD_KEEP && record.keep.names.left > 0)
			keep_again(&record.keep);
		if (record.type == RECORD_DATA)
			place_again(&record.data);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	long len;

	if (size < 1 || size > FRAME_BODY_MAX)
		return 0;
	len = decode(data[0], data + 1, size - 1, once);
	if (len < 0)
		return 0;
	expect(decode(data[0], once, (size_t)len, twice) == len);
	expect(memcmp(once, twice, (size_t)len) == 0);
	if (data[0] == 0)
		encode_otherwise(data + 1, size - 1);
	if (data[0] == MSG_HELLO)
		agree_all(&message.hello);
	return 0;
}
