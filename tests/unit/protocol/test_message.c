/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "recode.h"
#include "samples.h"

enum { ROOM = FRAME_BODY_MAX };

static uint8_t sent[ROOM], again[ROOM];
static union any_message message;
static struct record record;

static size_t make(const struct sample *s, enum sample_size size)
{
	struct writer w = writer_of(sent, sizeof sent);

	s->encode(size, &w);
	assert_false(w.full);
	return w.used;
}

/*
 * Decode an allocation of exactly this size, so that reads past its end are detected; 0 when it
 * decodes, with the encoding of the result in `again'.
 */
static int decode(const struct sample *s, const uint8_t *bytes, size_t len, size_t *again_len)
{
	uint8_t *exact = malloc(len + (len == 0));
	struct writer w = writer_of(again, sizeof again);
	struct frame f = {.type = s->type, .len = (uint32_t)len, .body = exact};
	int rc;

	assert_non_null(exact);
	memcpy(exact, bytes, len);
	if (s->type)
		rc = recode(&f, &message, &w);
	else
		rc = recode_records(exact, len, &record, &w) < 0 ? -1 : 0;
	free(exact);
	assert_false(w.full);
	*again_len = w.used;
	return rc;
}

static void messages_survive_a_round_trip(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		for (int size = 0; size < SAMPLE_SIZES; size++) {
			size_t len = make(&samples[i], size), back;

			fail_clear();
			assert_int_equal(decode(&samples[i], sent, len, &back), 0);
			assert_int_equal(back, len);
			assert_memory_equal(sent, again, len);
		}
	}
}

/* Long samples are cut at every position near their ends, and at some between. */
static size_t next_cut(size_t cut, size_t len)
{
	enum { NEAR = 4096, STEP = 61 };

	return cut < NEAR || cut + NEAR > len ? cut + 1 : cut + STEP;
}

/* A prefix is complete only between two records. */
static void truncated_messages_are_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		for (int size = 0; size < SAMPLE_SIZES; size++) {
			size_t len = make(&samples[i], size), back;

			for (size_t cut = 0; cut < len; cut = next_cut(cut, len)) {
				fail_clear();
				if (decode(&samples[i], sent, cut, &back) == 0) {
					assert_int_equal(samples[i].type, 0);
					assert_int_equal(back, cut);
				} else {
					assert_int_equal(failed()->code, OUT_PROTOCOL);
				}
			}
		}
	}
}

static void trailing_bytes_are_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		size_t len = make(&samples[i], SAMPLE_USUAL), back;

		for (unsigned more = 1; more <= 9; more++) {
			sent[len + more - 1] = 0;
			assert_int_equal(decode(&samples[i], sent, len + more, &back), -1);
			assert_int_equal(failed()->code, OUT_PROTOCOL);
		}
	}
}

/* Any single changed byte is either refused or decoded as a valid value. */
static void changed_byte_is_refused_or_decoded(void **state)
{
	static const uint8_t flips[] = {0x01, 0x80, 0xff};

	(void)state;
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		size_t len = make(&samples[i], SAMPLE_USUAL), back;

		for (size_t at = 0; at < len * sizeof flips; at++) {
			uint8_t *byte = &sent[at / sizeof flips], was = *byte;

			*byte ^= flips[at % sizeof flips];
			if (decode(&samples[i], sent, len, &back) == 0) {
				uint8_t meant[ROOM];
				size_t second;

				/* An unknown outcome is read as OUT_PROTOCOL. */
				assert_int_equal(back, len);
				memcpy(meant, again, back);
				assert_int_equal(decode(&samples[i], meant, back, &second), 0);
				assert_int_equal(second, back);
				assert_memory_equal(again, meant, back);
			} else {
				assert_true(failed()->code == OUT_PROTOCOL ||
					    failed()->code == OUT_VERSION);
			}
			*byte = was;
		}
	}
}

/* ---- single fields ------------------------------------------------------------------- */

static const struct sample *sample_of(uint8_t type)
{
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		if (samples[i].type == type)
			return &samples[i];
	}
	abort();
}

struct bad_field {
	uint8_t type;
	uint16_t at;
	uint8_t size;
	uint64_t value;
	const char *field;
};

static void each_field_has_its_range(void **state)
{
	static const struct bad_field bad[] = {
		{MSG_HELLO, 2, 1, 0, "HELLO from the peer: role"},
		{MSG_HELLO, 2, 1, 3, "role"},
		{MSG_HELLO, 3, 1, 4, "want"},
		{MSG_HELLO, 12, 2, 0, "lanes"},
		{MSG_HELLO, 12, 2, LANE_COUNT_MAX + 1, "lanes"},
		{MSG_HELLO, 14, 2, 0, "depth"},
		{MSG_HELLO, 14, 2, LANE_DEPTH_MAX + 1, "depth"},
		{MSG_HELLO, 16, 4, 0, "block_size"},
		{MSG_HELLO, 16, 4, LANE_BLOCK_MIN / 2, "block_size"},
		{MSG_HELLO, 16, 4, LANE_BLOCK_MIN + 1, "block_size"},
		{MSG_HELLO, 16, 4, 2 * LANE_BLOCK_MAX, "block_size"},
		{MSG_HELLO, 36, 4, 1u << 31, "timeout_ms"},
		{MSG_HELLO, 48, 1, RDMA_OP_WRITE_SEND + 1, "rdma_op"},
		{MSG_HELLO, 51, 1, ENCRYPT_WISHES, "encrypt"},
		{MSG_HELLO, 88, 2, HOST_MAX, "host"},
		{MSG_OFFER, 0, 1, 2, "round"},
		{MSG_OFFER, 1, 8, 0, "OFFER from the peer: session"},
		{MSG_OFFER, 9, 1, 2 * OFFER_MAX + 1, "count"},
		{MSG_OFFER, 9, 1, 255, "count"},
		{MSG_OFFER, 10, 1, TRANSPORT_AUTO, "transport"},
		{MSG_OFFER, 10, 1, TRANSPORT_SSH, "transport"},
		{MSG_OFFER, 11, 1, 5, "family"},
		{MSG_OFFER, 12, 2, 0, "port"},
		{MSG_OFFER, 18, 1, 1, "addr"},
		{MSG_CHOICE, 0, 1, TRANSPORT_AUTO, "transport"},
		{MSG_CHOICE, 0, 1, 4, "transport"},
		{MSG_CHOICE, 1, 2, TEXT_MAX, "why"},
		{MSG_NOROUTE, 0, 1, 2, "NOROUTE from the peer: round"},
		{MSG_STUCK, 0, 1, 2, "STUCK from the peer: round"},
		{MSG_LANE_DOWN, 0, 2, LANE_COUNT_MAX, "lane"},
		{MSG_LANE_STORED, 0, 2, LANE_COUNT_MAX, "lane"},
		{MSG_LANE_STORED, 14, 1, 2, "damaged"},
		{MSG_LANE_CHECK, 0, 2, LANE_COUNT_MAX, "lane"},
		{MSG_LANE_HELD, 0, 2, LANE_COUNT_MAX, "lane"},
		{MSG_LANE_HELD, 10, 1, 2, "busy"},
		{MSG_FILE_RESULT, 4, 1, OUT_DONE, "code"},
		{MSG_STORED, 0, 2, 0, "count"},
		{MSG_STORED, 0, 2, STORED_MAX + 1, "count"},
		{MSG_STORED, 6, 4, 0, "file"},
		{MSG_ANSWERS, 0, 2, 0, "count"},
		{MSG_ANSWERS, 0, 2, ANSWERS_MAX + 1, "count"},
		{MSG_ANSWERS, 7, 4, 0, "file"},
		{MSG_ANSWERS, 11, 1, 0, "answer"},
		{MSG_ANSWERS, 11, 1, 7, "answer"},
		{MSG_CELLS, 0, 4, 0, "file"},
		{MSG_CELLS, 4, 4, 1, "pos"},
		{MSG_CELLS, 4, 4, CELL / 2, "pos"},
		{MSG_CELLS, 4, 8, 1ull << 63, "pos"},
		{MSG_CELLS, 4, 8, INT64_MAX + 1ull - CELL, "count"},
		{MSG_CELLS, 12, 2, 0, "count"},
		{MSG_CELLS, 12, 2, CELLS_MAX + 1, "count"},
		{MSG_END, 56, 1, 2, "incomplete"},
		{MSG_DONE, 56, 1, 1, "incomplete"},
		{MSG_END, 57, 8, 1, "target"},
		{MSG_TIMES, 0, 1, STAGE_KINDS, "kind"},
		{MSG_TIMES, 1, 1, 2, "same_host"},
		{MSG_TIMES, 2, 2, LANE_COUNT_MAX + 1, "used"},
		{MSG_ERROR, 0, 1, OUT_DONE, "code"},
		{MSG_GREETING, 0, 1, 0x92, "magic"},
		{MSG_GREETING, 10, 2, 64, "release"},
		{MSG_START, 2, 1, 0, "role"},
		{MSG_START, 3, 1, 4, "want"},
		{MSG_START, 4, 1, 4, "verbose"},
		{MSG_START, 5, 8, START_ALL + 1, "flags"},
		{MSG_START, 45, 2, LANE_COUNT_MAX + 1, "lanes"},
		{MSG_START, 47, 2, LANE_DEPTH_MAX + 1, "depth"},
		{MSG_START, 49, 4, LANE_BLOCK_MAX + 4096, "block_size"},
		{MSG_START, 69, 4, 1u << 31, "timeout_ms"},
		{MSG_START, 73, 4, 1u << 31, "connect_timeout_ms"},
		{MSG_START, 77, 2, 0, "port_hi"},
		{MSG_START, 79, 2, 6999, "port_hi"},
		/*
		 * host, peer, address and target of the usual sample are 8, 8, 8 and 6 bytes long.
		 */
		{MSG_START, 143, 1, CONTENT_DIGESTS, "digest"},
		{MSG_START, 144, 2, CHMOD_MAX, "chmod"},
		{MSG_START, 186, 1, RDMA_OP_WRITE_SEND + 1, "rdma_op"},
		{MSG_START, 189, 1, DIRECTS, "direct"},
		{MSG_WANT, 0, 2, NAME_MAX_WIRE, "name"},
		{MSG_RULE, 0, 1, 2, "include"},
		{MSG_RULE, 1, 2, RULE_TEXT_MAX, "pattern"},
		{MSG_LISTED, 0, 2, NAME_MAX_WIRE, "LISTED from the peer: name"},
		{MSG_TAKEN, 0, 2, NAME_MAX_WIRE, "TAKEN from the peer: name"},
		{MSG_MODULE, 2, 2, MODULE_NAME_MAX, "name"},
		{MSG_LIST, 0, 2, NAME_MAX_WIRE, "LIST from the peer: name"},
		{MSG_ENTRY, 0, 1, 0, "kind"},
		{MSG_ENTRY, 0, 1, ENTRY_SOCKET + 1, "kind"},
		{MSG_ENTRY, 0, 1, ENTRY_FILE, "about"},
		{MSG_ENTRY, 1, 2, 010000, "mode"},
		{MSG_ENTRY, 19, 2, NAME_MAX_WIRE, "name"},
		{MSG_ENTRY, 22, 1, '/', "name"},
		{MSG_ENTRY, 25, 2, NAME_MAX_WIRE, "about"},
		{MSG_EVENT, 0, 1, 0, "what"},
		{MSG_EVENT, 0, 1, EVENT_NODE + 1, "what"},
		{MSG_EVENT, 2, 1, 2, "deleted"},
		{MSG_EVENT, 11, 2, EVENT_CHANGE, "change"},
		{MSG_EVENT, 24, 2, EVENT_DIGEST, "digest"},
		{MSG_EVENT, 42, 2, EVENT_PATH_MAX, "path"},
		{MSG_EVENT, 44, 1, 0, "path"},
		{MSG_FINDING, 0, 1, 0, "state"},
		{MSG_FINDING, 0, 1, FINDING_FAILURE + 1, "state"},
		{MSG_FINDING, 1, 1, 5, "family"},
		{MSG_FINDING, 1, 1, 0, "addr"},
		{MSG_FINDING, 2, 1, 2, "rdma"},
		{MSG_FINDING, 7, 1, 1, "addr"},
		{MSG_FINDING, 19, 2, FINDING_NAME, "name"},
		{MSG_NOTE, 0, 1, 5, "level"},
		{MSG_PROGRESS, 24, 1, 2, "total_known"},
		/* After host and text of the usual sample. */
		{MSG_VERDICT, 88, 1, 2, "incomplete"},
		{MSG_VERDICT, 97, 1, TRANSPORT_SSH + 1, "transport"},
		{MSG_VERDICT, 98, 2, LANE_COUNT_MAX + 1, "lanes"},
		{MSG_CANCEL, 0, 1, 0, "signo"},
		{MSG_CANCEL, 0, 1, 65, "signo"},
		{MSG_DETOUR, 0, 2, 0, "DETOUR from the peer: port"},
		{MSG_LISTENING, 0, 2, 0, "LISTENING from the peer: port"},
		{0, 1, 1, 1, "padding"},
		{0, 0, 1, 0, "unknown record 0"},
		{0, 0, 1, 12, "unknown record 12"},
		{0, 4, 4, UINT32_MAX, "truncated"},
		{0, 8, 4, 0, "FILE record from the peer: id"},
		{0, 16, 4, 0x01020304, "dir"},
		{0, 20, 4, FILE_FLAGS_ALL + 1, "flags"},
		{0, 20, 4, FILE_ASK | FILE_STREAM, "flags"},
		{0, 20, 4, FILE_MAY, "flags"},
		{0, 24, 1, 0, "type"},
		{0, 24, 1, TYPE_BLOCK + 1, "type"},
		{0, 25, 8, 1ull << 63, "size"},
		{0, 33, 4, 010000, "mode"},
		{0, 61, 4, 1000000000, "mtime_ns"},
		{0, 65, 4, 1000000000, "atime_ns"},
		{0, 69, 4, 1, "device"},
		{0, 73, 4, 1, "device"},
		{0, 77, 4, 1, "link_to"},
		{0, 81, 2, NAME_ROOM, "name"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct sample *s = sample_of(bad[i].type);
		size_t len = make(s, SAMPLE_USUAL), back;

		for (unsigned b = 0; b < bad[i].size; b++)
			sent[bad[i].at + b] = (uint8_t)(bad[i].value >> (8 * b));
		fail_clear();
		assert_int_equal(decode(s, sent, len, &back), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
		if (!strstr(failed()->text, bad[i].field))
			fail_msg("%u: \"%s\" does not say \"%s\"", i, failed()->text, bad[i].field);
	}
}

/* ---- records ------------------------------------------------------------------------- */

/* The record is refused, and the failure names the field. */
static void refuses(const struct record *r, const char *field)
{
	struct writer w = writer_of(sent, sizeof sent);
	struct reader from;

	record_encode(&w, r);
	from = reader_of(sent, w.used);
	fail_clear();
	if (record_next(&from, &record) != -1)
		fail_msg("record %u was taken, in spite of its %s", r->type, field);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	if (!strstr(failed()->text, field))
		fail_msg("\"%s\" does not say \"%s\"", failed()->text, field);
}

static void takes(const struct record *r)
{
	struct writer w = writer_of(sent, sizeof sent);
	struct reader from;

	record_encode(&w, r);
	from = reader_of(sent, w.used);
	if (record_next(&from, &record) != 1)
		fail_msg("record %u: %s", r->type, failed()->text);
	assert_int_equal(record_next(&from, &record), 0);
}

static struct record file_of(uint8_t type, uint64_t size)
{
	return (struct record){
		.type = RECORD_FILE,
		.file = {.id = 5, .type = type, .size = size, .name = "f"},
	};
}

static void each_type_has_its_size(void **state)
{
	static const uint8_t empty[] = {TYPE_HARD_LINK, TYPE_FIFO, TYPE_CHAR, TYPE_BLOCK};
	struct record r = file_of(TYPE_REGULAR, 1);

	(void)state;
	takes(&r);
	r.file.flags = FILE_STREAM;
	refuses(&r, "size");
	r = file_of(TYPE_SYMLINK, 0);
	refuses(&r, "size");
	r.file.size = LINK_TARGET_MAX + 1;
	refuses(&r, "size");
	r.file.size = LINK_TARGET_MAX;
	takes(&r);
	for (unsigned i = 0; i < sizeof empty; i++) {
		r = file_of(empty[i], 1);
		r.file.link_to = empty[i] == TYPE_HARD_LINK ? 4 : 0;
		refuses(&r, "size");
		r.file.size = 0;
		takes(&r);
	}
}

static void each_type_has_its_flags(void **state)
{
	static const uint32_t regular[] = {FILE_STREAM, FILE_ORDERED, FILE_SPARSE, FILE_ASK};
	struct record r = file_of(TYPE_REGULAR, 0);

	(void)state;
	r.file.flags = FILE_STREAM | FILE_ASK;
	refuses(&r, "flags");
	for (unsigned i = 0; i < sizeof regular / sizeof *regular; i++) {
		r = file_of(TYPE_REGULAR, 0);
		r.file.flags = regular[i];
		takes(&r);
		r.file.type = TYPE_FIFO;
		refuses(&r, "flags");
	}
	r = file_of(TYPE_HARD_LINK, 0);
	r.file.link_to = 4;
	r.file.flags = FILE_LINKED;
	refuses(&r, "flags");
	r.file.flags = FILE_MANY;
	takes(&r);
}

static void only_links_have_targets_and_only_devices_have_numbers(void **state)
{
	struct record r = file_of(TYPE_HARD_LINK, 0);

	(void)state;
	refuses(&r, "link_to");
	r.file.link_to = r.file.id;
	refuses(&r, "link_to");
	r = file_of(TYPE_SYMLINK, 1);
	r.file.link_to = 4;
	refuses(&r, "link_to");
	for (uint8_t type = TYPE_REGULAR; type <= TYPE_BLOCK; type++) {
		bool device = type == TYPE_CHAR || type == TYPE_BLOCK;

		r = file_of(type, type == TYPE_SYMLINK);
		r.file.link_to = type == TYPE_HARD_LINK ? 4 : 0;
		r.file.minor = 1;
		if (device)
			takes(&r);
		else
			refuses(&r, "device");
	}
}

static const char *const no_components[] = {".", "..", "/", "a/b", "/a", "a/", "../a"};
enum { NO_COMPONENTS = sizeof no_components / sizeof *no_components };

static void names_are_one_component(void **state)
{
	struct record file = file_of(TYPE_REGULAR, 0);
	struct record dir = {.type = RECORD_DIR, .dir = {.id = 5}};

	(void)state;
	for (unsigned i = 0; i < NO_COMPONENTS; i++) {
		strcpy(file.file.name, no_components[i]);
		refuses(&file, "FILE record from the peer: name");
		strcpy(dir.dir.name, no_components[i]);
		refuses(&dir, "DIR record from the peer: name");
	}
	/* stdin has no name; a directory has one, except the target itself. */
	file.file.name[0] = '\0';
	takes(&file);
	dir.dir.name[0] = '\0';
	refuses(&dir, "name");
	dir.dir.flags = DIR_CONTENTS;
	takes(&dir);
	strcpy(dir.dir.name, "a");
	refuses(&dir, "name");
	strcpy(dir.dir.name, "...");
	dir.dir.flags = 0;
	takes(&dir);
}

static void directories_have_their_ranges(void **state)
{
	struct record r = {.type = RECORD_DIR, .dir = {.id = 5, .name = "d"}};

	(void)state;
	takes(&r);
	r.dir.parent = 5;
	refuses(&r, "parent");
	r.dir.parent = 4;
	takes(&r);
	r.dir.flags = DIR_FLAGS_ALL + 1;
	refuses(&r, "flags");
	r.dir.flags = DIR_CONTENTS;
	r.dir.name[0] = '\0';
	refuses(&r, "flags");
	r.dir.parent = 0;
	takes(&r);
	r.dir.a.mode = 010000;
	refuses(&r, "mode");
	r.dir.a.mode = 07777;
	r.dir.a.mtime_ns = 1000000000;
	refuses(&r, "mtime_ns");
	r.dir.a.mtime_ns = 0;
	r.dir.id = 0;
	refuses(&r, "id");
}

static void owners_have_names(void **state)
{
	struct record r = {.type = RECORD_OWNER, .owner = {.id = 0, .name = "root"}};

	(void)state;
	takes(&r);
	r.owner.name[0] = '\0';
	refuses(&r, "name");
}

static void attribute_pieces_fit_their_value(void **state)
{
	static uint8_t bytes[XATTR_VALUE_MAX];
	static const struct {
		uint32_t size, pos, len;
		const char *field;
	} wrong[] = {
		{XATTR_VALUE_MAX + 1, 0, 1, "size"},
		{UINT32_MAX, 0, 1, "size"},
		{5, 6, 1, "pos"},
		{5, 5, 1, "bytes"},
		{5, 0, 6, "bytes"},
		{5, 0, 0, "bytes"},
		{0, 0, 1, "bytes"},
		{5, UINT32_MAX, 5, "pos"},
	};
	struct record r = {.type = RECORD_XATTR, .xattr = {.id = 5, .bytes = bytes}};

	(void)state;
	refuses(&r, "name");
	strcpy(r.xattr.name, "user.a/b");
	takes(&r);
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		r.xattr.size = wrong[i].size;
		r.xattr.pos = wrong[i].pos;
		r.xattr.len = wrong[i].len;
		refuses(&r, wrong[i].field);
	}
	r.xattr.id = 0;
	refuses(&r, "id");
}

static void have_names_whole_cells(void **state)
{
	static const uint64_t wrong[][2] = {
		{1, CELL},       {CELL / 2, 1},   {0, 0},
		{1ull << 63, 1}, {0, 1ull << 63}, {INT64_MAX + 1ull - CELL, CELL},
	};
	struct record r = {.type = RECORD_HAVE, .have = {.id = 5, .pos = CELL, .len = 1}};

	(void)state;
	takes(&r);
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		r.have.pos = wrong[i][0];
		r.have.len = wrong[i][1];
		refuses(&r, i == 2 || i > 3 ? "len" : "pos");
	}
	r.have.id = 0;
	refuses(&r, "id");
	r = (struct record){.type = RECORD_SAME};
	refuses(&r, "id");
}

static void kept_names_are_components(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} wrong[] = {
		{"\0", 1},  {"\1", 1},   {"\2a", 2},   {"\1a\0", 3}, {"\2a\0", 3},
		{"\1.", 2}, {"\2..", 3}, {"\3a/b", 4}, {"\1/", 2},   {"\377a", 2},
	};
	struct record r = {.type = RECORD_KEEP, .keep = {.dir = 5}};
	char name[NAME_ROOM];

	(void)state;
	refuses(&r, "names");
	r.keep.last = true;
	takes(&r);
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		r.keep.names = reader_of(wrong[i].bytes, wrong[i].len);
		refuses(&r, "names");
	}
	r.keep.names = reader_of("\1a\3...\2bc", 9);
	takes(&r);
	r.keep.names = reader_of("\1a\3...\2bc", 9);
	assert_int_equal(record_keep_next(&r.keep.names, name), 1);
	assert_string_equal(name, "a");
	assert_int_equal(record_keep_next(&r.keep.names, name), 1);
	assert_string_equal(name, "...");
	assert_int_equal(record_keep_next(&r.keep.names, name), 1);
	assert_string_equal(name, "bc");
	assert_int_equal(record_keep_next(&r.keep.names, name), 0);
	r.keep.dir = 0;
	refuses(&r, "dir");
}

static void keep_names_fill_the_record(void **state)
{
	uint8_t room[1 + 255 + 1 + 2];
	struct writer names = writer_of(room, sizeof room);
	char longest[NAME_ROOM + 1], name[NAME_ROOM];
	struct reader r;

	(void)state;
	memset(longest, 'n', sizeof longest);
	longest[NAME_ROOM] = '\0';
	assert_false(record_keep_add(&names, longest));
	assert_false(record_keep_add(&names, ""));
	longest[NAME_ROOM - 1] = '\0';
	assert_true(record_keep_add(&names, longest));
	assert_false(record_keep_add(&names, "abc"));
	assert_true(record_keep_add(&names, "ab"));
	assert_false(record_keep_add(&names, "a"));
	assert_false(names.full);
	r = reader_of(room, names.used);
	assert_int_equal(record_keep_next(&r, name), 1);
	assert_string_equal(name, longest);
	assert_int_equal(record_keep_next(&r, name), 1);
	assert_string_equal(name, "ab");
	assert_int_equal(record_keep_next(&r, name), 0);
}

static void content_digest_has_its_length(void **state)
{
	struct record_file_end end = {.id = 1, .lanes = 1};
	struct writer w = writer_of(sent, sizeof sent);
	struct reader r;

	(void)state;
	record_file_end_encode(&w, &end);
	sent[RECORD_HEAD + 47] = CONTENT_DIGEST_MAX + 1;
	r = reader_of(sent, w.used);
	assert_int_equal(record_next(&r, &record), -1);
	assert_non_null(strstr(failed()->text, "content"));
	sent[RECORD_HEAD + 47] = 3;
	r = reader_of(sent, w.used);
	assert_int_equal(record_next(&r, &record), -1);
	assert_non_null(strstr(failed()->text, "content"));
	/* One byte more than there is room for, all of it present. */
	end.content_len = CONTENT_DIGEST_MAX;
	memset(end.text, 'x', 9);
	w = writer_of(sent, sizeof sent);
	record_file_end_encode(&w, &end);
	sent[RECORD_HEAD + 47]++;
	sent[RECORD_HEAD + 48 + CONTENT_DIGEST_MAX + 1] = 8;
	sent[RECORD_HEAD + 48 + CONTENT_DIGEST_MAX + 2] = 0;
	r = reader_of(sent, w.used);
	assert_int_equal(record_next(&r, &record), -1);
	assert_non_null(strstr(failed()->text, "content"));
}

static void data_and_ends_need_a_file(void **state)
{
	struct record data = {.type = RECORD_DATA};
	struct record hole = {.type = RECORD_HOLE, .hole = {.len = 1}};
	struct record end = {.type = RECORD_FILE_END, .end = {.lanes = 1}};

	(void)state;
	refuses(&data, "DATA record from the peer: id");
	refuses(&hole, "HOLE record from the peer: id");
	refuses(&end, "FILE_END record from the peer: id");
	end.end.id = 1;
	takes(&end);
	end.end.lanes = LANE_COUNT_MAX + 1;
	refuses(&end, "lanes");
	end.end.lanes = 1;
	end.end.size = 1ull << 63;
	refuses(&end, "size");
}

static void data_ends_within_a_file(void **state)
{
	static const uint8_t byte = 0;
	struct record_data d = {.id = 1, .pos = INT64_MAX, .len = 1, .bytes = &byte};
	struct writer w = writer_of(sent, sizeof sent);
	struct reader r;

	(void)state;
	record_data_encode(&w, &d);
	assert_int_equal(w.used, RECORD_DATA_HEAD + 1);
	r = reader_of(sent, w.used);
	assert_int_equal(record_next(&r, &record), -1);
	assert_non_null(strstr(failed()->text, "pos"));
}

static void file_end_counts_no_more_than_the_file(void **state)
{
	static const uint64_t wrong[][2] = {
		{6, 0}, {0, 6}, {3, 3}, {INT64_MAX, INT64_MAX}, {UINT64_MAX, 0}, {1, UINT64_MAX},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct record_file_end e = {
			.id = 1, .size = 5, .data = wrong[i][0], .holes = wrong[i][1], .lanes = 1};
		struct writer w = writer_of(sent, sizeof sent);
		struct reader r;

		record_file_end_encode(&w, &e);
		r = reader_of(sent, w.used);
		assert_int_equal(record_next(&r, &record), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
	}
}

static void hole_ends_within_a_file(void **state)
{
	static const uint64_t wrong[][2] = {
		{0, 0}, {INT64_MAX, 1}, {1ull << 63, 1}, {0, 1ull << 63}, {UINT64_MAX, 2},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct record_hole h = {.id = 1, .pos = wrong[i][0], .len = wrong[i][1]};
		struct writer w = writer_of(sent, sizeof sent);
		struct reader r;

		record_hole_encode(&w, &h);
		r = reader_of(sent, w.used);
		assert_int_equal(record_next(&r, &record), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
	}
}

static void offer_has_at_most_sixteen_places(void **state)
{
	const struct sample *s = sample_of(MSG_OFFER);
	size_t len = make(s, SAMPLE_MOST), back;

	(void)state;
	/* The second place is TCP over IPv6. */
	sent[10 + 25] = TRANSPORT_RDMA;
	assert_int_equal(decode(s, sent, len, &back), -1);
	assert_non_null(strstr(failed()->text, "count"));
}

/* With all its bytes present. */
static void path_length_is_bounded(void **state)
{
	static char path[EVENT_PATH_MAX];
	struct msg_event m = {.what = EVENT_FILE, .path = path, .path_len = EVENT_PATH_MAX};
	struct writer w = writer_of(sent, sizeof sent);
	size_t back;

	(void)state;
	memset(path, 'x', sizeof path);
	msg_event_encode(&w, &m);
	assert_int_equal(decode(sample_of(MSG_EVENT), sent, w.used, &back), -1);
	assert_non_null(strstr(failed()->text, "path"));
	m.path_len--;
	w = writer_of(sent, sizeof sent);
	msg_event_encode(&w, &m);
	assert_int_equal(decode(sample_of(MSG_EVENT), sent, w.used, &back), 0);
}

static void text_contains_no_nul(void **state)
{
	const struct sample *s = sample_of(MSG_WANT);
	size_t len = make(s, SAMPLE_USUAL), back;

	(void)state;
	sent[3] = 0;
	assert_int_equal(decode(s, sent, len, &back), -1);
	assert_string_equal(failed()->text, "malformed WANT from the peer: name");
}

static void unknown_outcome_is_a_protocol_failure(void **state)
{
	const struct sample *s = sample_of(MSG_ERROR);
	size_t len = make(s, SAMPLE_USUAL), back;

	(void)state;
	sent[0] = 200;
	assert_int_equal(decode(s, sent, len, &back), 0);
	assert_int_equal(message.error.code, OUT_PROTOCOL);
	assert_string_equal(message.error.text, "write x: No space left on device");
}

/* Whatever another version sends after its number, the version is what is reported. */
static void other_version_is_reported(void **state)
{
	static const uint8_t types[] = {MSG_HELLO, MSG_START};
	size_t back;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct sample *s = sample_of(types[i]);
		size_t len = make(s, SAMPLE_USUAL);

		sent[0] = PROTOCOL_VERSION + 1;
		for (size_t cut = 2; cut <= len; cut++) {
			fail_clear();
			assert_int_equal(decode(s, sent, cut, &back), -1);
			assert_int_equal(failed()->code, OUT_VERSION);
			assert_non_null(
				strstr(failed()->text, "speaks protocol 3, this end speaks 2"));
		}
	}
}

static void greeting_carries_any_version(void **state)
{
	const struct sample *s = sample_of(MSG_GREETING);
	size_t back;

	(void)state;
	assert_int_equal(decode(s, sent, make(s, SAMPLE_MOST), &back), 0);
	assert_int_equal(message.greeting.version, UINT16_MAX);
}

/* ---- frames ---------------------------------------------------------------------------- */

static void frame_heads_are_checked(void **state)
{
	uint8_t head[FRAME_HEAD], type;
	uint32_t len;

	(void)state;
	for (unsigned t = 0; t < 256; t++) {
		bool known = (t >= 1 && t <= 18) || (t >= 64 && t <= 82);

		frame_head_encode((uint8_t)t, FRAME_BODY_MAX, head);
		assert_int_equal(frame_head_decode(head, &type, &len), known ? 0 : -1);
		assert_int_equal(strcmp(message_name((uint8_t)t), "unknown") != 0, known);
		if (known) {
			assert_int_equal(type, t);
			assert_int_equal(len, FRAME_BODY_MAX);
		}
	}
	frame_head_encode(MSG_PING, FRAME_BODY_MAX + 1, head);
	assert_int_equal(frame_head_decode(head, &type, &len), -1);
	assert_string_equal(failed()->text, "malformed frame from the peer: PING of 65537 bytes");
	frame_head_encode(MSG_PING, UINT32_MAX, head);
	assert_int_equal(frame_head_decode(head, &type, &len), -1);
	for (unsigned i = 5; i < FRAME_HEAD; i++) {
		frame_head_encode(MSG_PING, 8, head);
		head[i] = 1;
		assert_int_equal(frame_head_decode(head, &type, &len), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
	}
}

/* No message exceeds a frame, and no record the bound in message.h. */
static void largest_samples_fit(void **state)
{
	static const size_t most[] = {
		[RECORD_FILE] = RECORD_FILE_MAX,
		[RECORD_FILE_END] = RECORD_FILE_END_MAX,
		[RECORD_DIR] = RECORD_DIR_MAX,
		[RECORD_OWNER] = RECORD_OWNER_MAX,
		[RECORD_XATTR] = RECORD_XATTR_HEAD_MAX + 18,
	};
	size_t len = make(sample_of(0), SAMPLE_MOST), left;
	struct reader r = reader_of(sent, len);
	unsigned seen = 0;

	(void)state;
	for (left = len; record_next(&r, &record) == 1; left = r.left) {
		size_t size = left - r.left;

		assert_true(size <= LANE_BLOCK_MIN);
		if (record.type < sizeof most / sizeof *most && most[record.type] &&
		    !(record.type == RECORD_FILE && record.file.id != UINT32_MAX)) {
			assert_int_equal(size, most[record.type]);
			seen++;
		}
	}
	assert_int_equal(r.left, 0);
	assert_int_equal(seen, 5);
	for (unsigned i = 0; i < SAMPLE_COUNT; i++)
		if (samples[i].type)
			assert_true(make(&samples[i], SAMPLE_MOST) <= FRAME_BODY_MAX);
}

/* The failure is reported, and nothing is written past the end. */
static void short_buffer_is_not_overrun(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		size_t len = make(&samples[i], SAMPLE_MOST);

		for (size_t room = 0; room < len; room += 1 + room / 16) {
			uint8_t *exact = malloc(room + 1);
			struct writer w = writer_of(exact, room);

			assert_non_null(exact);
			exact[room] = 0xa5;
			samples[i].encode(SAMPLE_MOST, &w);
			assert_true(w.full);
			assert_int_equal(exact[room], 0xa5);
			free(exact);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_survive_a_round_trip),
		cmocka_unit_test(truncated_messages_are_refused),
		cmocka_unit_test(trailing_bytes_are_refused),
		cmocka_unit_test(changed_byte_is_refused_or_decoded),
		cmocka_unit_test(each_field_has_its_range),
		cmocka_unit_test(each_type_has_its_size),
		cmocka_unit_test(each_type_has_its_flags),
		cmocka_unit_test(only_links_have_targets_and_only_devices_have_numbers),
		cmocka_unit_test(names_are_one_component),
		cmocka_unit_test(directories_have_their_ranges),
		cmocka_unit_test(owners_have_names),
		cmocka_unit_test(attribute_pieces_fit_their_value),
		cmocka_unit_test(have_names_whole_cells),
		cmocka_unit_test(kept_names_are_components),
		cmocka_unit_test(keep_names_fill_the_record),
		cmocka_unit_test(content_digest_has_its_length),
		cmocka_unit_test(data_and_ends_need_a_file),
		cmocka_unit_test(data_ends_within_a_file),
		cmocka_unit_test(file_end_counts_no_more_than_the_file),
		cmocka_unit_test(hole_ends_within_a_file),
		cmocka_unit_test(offer_has_at_most_sixteen_places),
		cmocka_unit_test(path_length_is_bounded),
		cmocka_unit_test(text_contains_no_nul),
		cmocka_unit_test(unknown_outcome_is_a_protocol_failure),
		cmocka_unit_test(other_version_is_reported),
		cmocka_unit_test(greeting_carries_any_version),
		cmocka_unit_test(frame_heads_are_checked),
		cmocka_unit_test(largest_samples_fit),
		cmocka_unit_test(short_buffer_is_not_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
