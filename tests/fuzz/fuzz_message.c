/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte chooses the decoder: a message's type, or 0 for a block of records.  What
 * decodes must encode, decode again, and then be the same.
 */
#include <stdlib.h>
#include <string.h>
#include "../unit/recode.h"

/* A record that decodes is never longer encoded, so that a block fits where it came from. */
enum { ROOM = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t once[ROOM], twice[ROOM];
static union any_message message;
static struct record record;

/* The length of what it encodes to, -1 when it does not decode. */
static long decode(uint8_t type, const uint8_t *bytes, size_t len, uint8_t *to)
{
	struct frame f = {.type = type, .len = (uint32_t)len, .body = bytes};
	struct writer w = writer_of(to, ROOM);
	int rc;

	rc = type ? recode(&f, &message, &w) : recode_records(bytes, len, &record, &w);
	if (rc < 0) {
		if (failed()->code != OUT_PROTOCOL && failed()->code != OUT_VERSION)
			abort();
		return -1;
	}
	if (w.full || w.used != len)
		abort();
	return (long)w.used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	long len;

	if (size < 1 || size > FRAME_BODY_MAX)
		return 0;
	len = decode(data[0], data + 1, size - 1, once);
	if (len < 0)
		return 0;
	if (decode(data[0], once, (size_t)len, twice) != len)
		abort();
	if (memcmp(once, twice, (size_t)len) != 0)
		abort();
	return 0;
}
