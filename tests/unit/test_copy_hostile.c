/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/digest.h"

/*
 * A source that says what it should not, to a real sink; and a sink to a real source.  A script
 * is a list of records and blocks; the sink must end with the failure that it deserves, and
 * the old file must stay.
 */

enum { STUCK_S = 100 };

enum verb {
	SAY_NOTHING, /* the list's end */
	SAY_FILE,
	SAY_DATA,
	SAY_HOLE,
	SAY_END_OF_FILE,
	SAY_EXTENT, /* a block of its own */
	SAY_END, /* when all of it is stored: END with the totals of what was said */
};

struct say {
	enum verb verb;
	uint32_t id, flags, want;
	uint64_t pos, len, size;
	const char *name;
	uint64_t data, holes; /* of an end */
	uint16_t lanes;
	uint8_t code;
	bool wrong_digest, other_lane, wrong_total;
};

struct script {
	struct say say[10];
	enum outcome code; /* that the sink ends with */
	const char *text;
};

struct actor {
	struct rig_end *end;
	struct lane *lane;
	struct block *block;
	struct writer w;
	struct msg_total total;
};

static const uint8_t content[CELL];

static int begin_block(struct actor *a)
{
	if (a->block)
		return 0;
	if (lane_get(a->lane, &a->block))
		return -1;
	a->w = writer_of(a->block->data, lane_block_size(a->lane));
	return 0;
}

static int send_block(struct actor *a, enum block_kind kind, const struct say *s)
{
	struct block *b = a->block;

	b->kind = (uint8_t)kind;
	b->file = s ? s->id : 0;
	b->pos = s ? s->pos : 0;
	b->len = s ? (uint32_t)s->len : (uint32_t)a->w.used;
	if (s)
		memset(b->data, 0, b->len);
	a->block = NULL;
	return lane_send(a->lane, b);
}

/* All that is to be said goes out now. */
static int send_all(struct actor *a)
{
	return a->block ? send_block(a, BLOCK_RECORDS, NULL) : 0;
}

static void say_file(struct actor *a, const struct say *s)
{
	struct record_file r = {
		.id = s->id,
		.want = s->want,
		.flags = s->flags,
		.mode = 0644,
		.size = s->size,
	};

	snprintf(r.name, sizeof r.name, "%s", s->name ? s->name : "f");
	record_file_encode(&a->w, &r);
}

static void say_end_of_file(struct actor *a, const struct say *s)
{
	struct record_file_end r = {
		.id = s->id,
		.size = s->size,
		.data = s->data,
		.holes = s->holes,
		.lanes = s->lanes ? s->lanes : 1,
		.code = s->code,
	};
	struct digest *d = digest_new();

	digest_add(d, 0, content, s->data < CELL ? s->data : CELL);
	digest_sum(d, r.digest);
	digest_free(d);
	r.digest[0] += s->wrong_digest;
	record_file_end_encode(&a->w, &r);
	if (s->code) {
		a->total.failed++;
		return;
	}
	a->total.files++;
	a->total.bytes += s->size;
	sum_add(a->total.digest, r.digest);
}

static int say_end(struct actor *a, const struct say *s)
{
	uint8_t body[256];
	struct writer w = writer_of(body, sizeof body);

	if (send_all(a) || lane_flush(a->lane))
		return -1;
	a->total.bytes += s->wrong_total;
	msg_total_encode(&w, &a->total);
	return session_send(a->end->session, MSG_END, body, w.used);
}

static int say(struct actor *a, const struct say *s)
{
	if (s->other_lane) {
		if (send_all(a))
			return -1;
		a->lane = session_lane(a->end->session, 1);
	}
	if (s->verb == SAY_END)
		return say_end(a, s);
	if (s->verb == SAY_EXTENT && send_all(a))
		return -1;
	if (begin_block(a))
		return -1;
	switch (s->verb) {
	case SAY_FILE:
		say_file(a, s);
		return 0;
	case SAY_DATA:
		record_data_encode(&a->w, &(struct record_data){.id = s->id,
								.pos = s->pos,
								.len = (uint32_t)s->len,
								.bytes = content});
		return 0;
	case SAY_HOLE:
		record_hole_encode(
			&a->w, &(struct record_hole){.id = s->id, .pos = s->pos, .len = s->len});
		return 0;
	case SAY_END_OF_FILE:
		say_end_of_file(a, s);
		return 0;
	default:
		return send_block(a, BLOCK_EXTENT, s);
	}
}

/* Wait until the session is over, one way or the other. */
static int wait_over(struct rig_end *e)
{
	char host[HOST_MAX];
	struct failure f;

	for (int i = 0; i < 10000 && !session_failed(e->session, &f, host); i++)
		usleep(1000);
	return fail_again(&f);
}

static int play_source(struct rig_end *e, void *ctx)
{
	const struct script *script = ctx;
	struct actor a = {.end = e, .lane = session_lane(e->session, 0)};
	int ret = 0;

	for (const struct say *s = script->say; ret == 0 && s->verb; s++)
		ret = say(&a, s);
	if (ret == 0)
		ret = send_all(&a);
	return wait_over(e);
}

static void play(const struct script *script)
{
	static char *wants[] = {NULL, NULL};
	struct rig r;

	wants[0] = (char *)(uintptr_t) "d/f";
	wants[1] = (char *)(uintptr_t) "g*";
	rig_init(&r);
	rig_names(&r, wants, 2, ".");
	r.source.play = play_source;
	r.source.ctx = (void *)(uintptr_t)script;
	rig_run(&r);
	if (!r.sink.rc || r.sink.failure.code != script->code ||
	    !strstr(r.sink.failure.text, script->text))
		fail_msg("sink %d: %d \"%s\", not %d \"%s\"", r.sink.rc, r.sink.failure.code,
			 r.sink.failure.text, script->code, script->text);
	/* The other end is told why. */
	assert_int_equal(r.source.failure.code, script->code);
}

#define A_FILE .verb = SAY_FILE, .id = 1, .size = 100
#define ITS_DATA .verb = SAY_DATA, .id = 1, .len = 100
#define ITS_END .verb = SAY_END_OF_FILE, .id = 1, .size = 100, .data = 100

static void play_all(const struct script *scripts, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(make_text("f", "old"), 0);
		play(&scripts[i]);
		assert_true(has_text("f", "old"));
		assert_int_equal(count_files(""), 3);
	}
}

#define PLAY(scripts) play_all(scripts, sizeof scripts / sizeof *scripts)

static void names_not_asked_for(void **state)
{
	static const struct script scripts[] = {
		{{{A_FILE, .name = "x"}}, OUT_PROTOCOL, "x, which is not d/f"},
		{{{A_FILE, .name = "../f"}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = "/f"}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = "d/f"}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = "."}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = ".."}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = "", .want = 1}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = "f", .want = 1}}, OUT_PROTOCOL, "f, which is not g*"},
		{{{A_FILE, .name = "g/../../f", .want = 1}}, OUT_PROTOCOL, "which is not"},
		{{{A_FILE, .name = "f", .want = 2}}, OUT_PROTOCOL, "what was not asked for"},
		{{{A_FILE, .name = "f", .want = UINT32_MAX}}, OUT_PROTOCOL, "not asked for"},
	};

	(void)state;
	PLAY(scripts);
}

static void bytes_where_none_belong(void **state)
{
	static const struct script scripts[] = {
		{{{ITS_DATA}}, OUT_PROTOCOL, "a file it did not announce"},
		{{{.verb = SAY_EXTENT, .id = 9, .len = 10}}, OUT_PROTOCOL, "did not announce"},
		{{{A_FILE}, {ITS_DATA, .other_lane = true}}, OUT_PROTOCOL, "did not announce"},
		{{{A_FILE}, {ITS_DATA, .pos = 1}}, OUT_PROTOCOL, "beyond the end"},
		{{{A_FILE}, {.verb = SAY_EXTENT, .id = 1, .len = 101}}, OUT_PROTOCOL, "beyond"},
		{{{A_FILE}, {.verb = SAY_EXTENT, .id = 1, .pos = UINT64_MAX - 5, .len = 100}},
		 OUT_PROTOCOL,
		 "beyond"},
		{{{A_FILE}, {.verb = SAY_EXTENT, .id = 1, .pos = INT64_MAX - 5, .len = 100}},
		 OUT_PROTOCOL,
		 "beyond"},
		{{{A_FILE}, {ITS_DATA}, {ITS_DATA}}, OUT_PROTOCOL, "twice"},
		{{{A_FILE}, {ITS_DATA}, {.verb = SAY_DATA, .id = 1, .pos = 50, .len = 50}},
		 OUT_PROTOCOL,
		 "twice"},
		{{{A_FILE}, {.verb = SAY_HOLE, .id = 1, .len = 10}}, OUT_PROTOCOL, "has none"},
		{{{A_FILE, .flags = FILE_SPARSE}, {.verb = SAY_HOLE, .id = 1, .len = INT64_MAX}},
		 OUT_PROTOCOL,
		 "beyond"},
		{{{A_FILE, .flags = FILE_SPARSE}, {.verb = SAY_HOLE, .id = 1, .len = 0}},
		 OUT_PROTOCOL,
		 "HOLE"},
		{{{.verb = SAY_FILE, .id = 1, .size = UINT64_C(1) << 63}}, OUT_PROTOCOL, "size"},
		{{{A_FILE, .flags = 1 << 30}}, OUT_PROTOCOL, "flags"},
		{{{.verb = SAY_FILE, .size = 100}}, OUT_PROTOCOL, "id"},
		/* A stream's, out of order and again. */
		{{{.verb = SAY_FILE, .id = 1, .flags = FILE_STREAM | FILE_ORDERED},
		  {.verb = SAY_DATA, .id = 1, .len = 10},
		  {.verb = SAY_DATA, .id = 1, .len = 10}},
		 OUT_PROTOCOL,
		 "twice"},
	};

	(void)state;
	PLAY(scripts);
}

static void files_announced_twice(void **state)
{
	static const struct script scripts[] = {
		{{{A_FILE}, {A_FILE}}, OUT_PROTOCOL, "announces file 1 twice"},
		{{{A_FILE}, {.verb = SAY_FILE, .id = 1, .size = 99, .other_lane = true}},
		 OUT_PROTOCOL,
		 "twice"},
		{{{A_FILE}, {A_FILE, .name = "g", .other_lane = true}}, OUT_PROTOCOL, "twice"},
		{{{A_FILE}, {A_FILE, .want = 1, .other_lane = true}}, OUT_PROTOCOL, "twice"},
	};

	(void)state;
	PLAY(scripts);
}

static void wrong_ends(void **state)
{
	static const struct script scripts[] = {
		{{{ITS_END}}, OUT_PROTOCOL, "ends a file it did not announce"},
		{{{A_FILE}, {ITS_DATA}, {ITS_END, .lanes = 2}, {ITS_END, .lanes = 2}},
		 OUT_PROTOCOL,
		 "ends ./f wrongly"},
		{{{A_FILE},
		  {ITS_DATA},
		  {.verb = SAY_END_OF_FILE, .id = 1, .size = 100, .data = 50}},
		 OUT_PROTOCOL,
		 "wrongly"},
		{{{A_FILE}, {ITS_DATA}, {ITS_END, .lanes = 65}}, OUT_PROTOCOL, "lanes"},
		{{{A_FILE},
		  {ITS_DATA},
		  {.verb = SAY_END_OF_FILE, .id = 1, .size = 101, .data = 100}},
		 OUT_PROTOCOL,
		 "bytes missing"},
		{{{A_FILE}, {.verb = SAY_END_OF_FILE, .id = 1, .size = 100}},
		 OUT_PROTOCOL,
		 "bytes missing"},
		{{{A_FILE}, {.verb = SAY_DATA, .id = 1, .len = 50}, {ITS_END}, {.verb = SAY_END}},
		 OUT_PROTOCOL,
		 "END with 1 files unfinished"},
		{{{A_FILE}, {.verb = SAY_END}}, OUT_PROTOCOL, "END with 1 files unfinished"},
		{{{.verb = SAY_END, .wrong_total = true}}, OUT_PROTOCOL, "does not agree"},
	};

	(void)state;
	PLAY(scripts);
}

/* The bytes are those of the file, but the digest says otherwise: 41, and the old file stays. */
static void a_wrong_digest(void **state)
{
	static const struct script script = {
		{{A_FILE}, {ITS_DATA}, {ITS_END, .wrong_digest = true}, {.verb = SAY_END}},
		OUT_INTEGRITY,
		"digest of what came differs",
	};
	struct rig r;
	static char *want[] = {NULL};

	(void)state;
	want[0] = (char *)(uintptr_t) "f";
	assert_int_equal(make_text("f", "old"), 0);
	rig_init(&r);
	rig_names(&r, want, 1, ".");
	r.source.play = play_source;
	r.source.ctx = (void *)(uintptr_t)&script;
	rig_run(&r);
	assert_int_equal(r.sink.rc, -1);
	assert_int_equal(r.sink.failure.code, OUT_INTEGRITY);
	assert_non_null(strstr(r.sink.failure.text, script.text));
	assert_true(has_text("f", "old"));
	assert_int_equal(count_files(""), 3);
}

/* Open files are bounded. */
static int play_flood(struct rig_end *e, void *ctx)
{
	struct actor a = {.end = e, .lane = session_lane(e->session, 0)};
	int ret = 0;

	(void)ctx;
	for (uint32_t id = 1; ret == 0 && id <= 300; id++) {
		char name[16];
		struct say s = {.verb = SAY_FILE, .id = id, .want = 1, .size = 5, .name = name};

		snprintf(name, sizeof name, "g%u", id);
		ret = say(&a, &s) || send_all(&a) ? -1 : 0;
	}
	return wait_over(e);
}

static void too_many_open_files(void **state)
{
	static char *wants[] = {NULL, NULL};
	struct rig r;

	(void)state;
	wants[0] = (char *)(uintptr_t) "f";
	wants[1] = (char *)(uintptr_t) "g*";
	rig_init(&r);
	rig_names(&r, wants, 2, ".");
	r.source.play = play_flood;
	rig_run(&r);
	assert_int_equal(r.sink.failure.code, OUT_PROTOCOL);
	assert_non_null(strstr(r.sink.failure.text, "more than 256 files open"));
	assert_int_equal(count_files(""), 2);
}

/* ---- a sink that lies ---------------------------------------------------------------- */

struct lie {
	uint8_t type;
	struct msg_file_result result;
	struct msg_total done;
	enum outcome code; /* the source's */
	const char *text;
};

static int tell_lie(struct rig_end *e, const struct lie *lie)
{
	uint8_t body[2048];
	struct writer w = writer_of(body, sizeof body);

	if (lie->type == MSG_FILE_RESULT)
		msg_file_result_encode(&w, &lie->result);
	else
		msg_total_encode(&w, &lie->done);
	return session_send(e->session, lie->type, body, w.used);
}

static int play_sink(struct rig_end *e, void *ctx)
{
	const struct lie *lies = ctx;
	struct block *b;

	/* The source waits in lane_flush(): nothing is put back, or it may be told too late. */
	if (lane_recv(session_lane(e->session, 0), &b))
		return -1;
	for (; lies->type; lies++) {
		if (tell_lie(e, lies))
			return -1;
	}
	return wait_over(e);
}

static void hear_lies(struct lie *lies, enum outcome code, const char *part)
{
	static char *name[] = {NULL};
	struct rig r;

	name[0] = (char *)(uintptr_t) "from";
	assert_int_equal(make_text("from", "content"), 0);
	rig_init(&r);
	rig_names(&r, name, 1, "to");
	r.from.remove_source = true;
	r.lanes = 1;
	r.sink.play = play_sink;
	r.sink.ctx = lies;
	rig_run(&r);
	assert_int_equal(r.source.rc, -1);
	if (r.source.failure.code != code || !strstr(r.source.failure.text, part))
		fail_msg("source: %d \"%s\", not %d \"%s\"", r.source.failure.code,
			 r.source.failure.text, code, part);
	/* Whatever was said, without a true result nothing is removed. */
	assert_int_equal(access("from", F_OK), 0);
}

static void results_that_can_not_be(void **state)
{
	struct lie unknown[] = {{.type = MSG_FILE_RESULT, .result = {.file = 7}}, {0}};
	struct lie done[] = {{.type = MSG_DONE, .done = {.files = 1}}, {0}};
	struct lie end[] = {{.type = MSG_END}, {0}};

	(void)state;
	hear_lies(unknown, OUT_PROTOCOL, "unknown file");
	hear_lies(done, OUT_PROTOCOL, "unexpected DONE");
	hear_lies(end, OUT_PROTOCOL, "unexpected");
}

static int play_liar(struct rig_end *e, void *ctx)
{
	struct lie *lie = ctx;
	struct block *b;

	/* Store nothing, acknowledge all, and say DONE after END. */
	if (lane_recv(session_lane(e->session, 0), &b) || lane_put(session_lane(e->session, 0), b))
		return -1;
	usleep(200000);
	if (tell_lie(e, lie))
		return -1;
	return wait_over(e);
}

static void totals_that_differ(void **state)
{
	static char *name[] = {NULL};
	struct lie lie = {.type = MSG_DONE, .done = {.files = 1, .bytes = 8}};
	struct rig r;

	(void)state;
	name[0] = (char *)(uintptr_t) "from";
	assert_int_equal(make_text("from", "content"), 0);
	rig_init(&r);
	rig_names(&r, name, 1, "to");
	r.lanes = 1;
	r.sink.play = play_liar;
	r.sink.ctx = &lie;
	rig_run(&r);
	assert_int_equal(r.source.rc, -1);
	assert_int_equal(r.source.failure.code, OUT_INTEGRITY);
}

static int play_gone(struct rig_end *e, void *ctx)
{
	struct block *b;

	(void)ctx;
	if (lane_recv(session_lane(e->session, 0), &b) || lane_put(session_lane(e->session, 0), b))
		return -1;
	usleep(200000);
	rig_cut(e->rig);
	return wait_over(e);
}

static void no_done_is_not_confirmed(void **state)
{
	static char *name[] = {NULL};
	struct rig r;

	(void)state;
	name[0] = (char *)(uintptr_t) "from";
	assert_int_equal(make_text("from", "content"), 0);
	rig_init(&r);
	rig_names(&r, name, 1, "to");
	r.lanes = 1;
	r.sink.play = play_gone;
	rig_run(&r);
	assert_int_equal(r.source.failure.code, OUT_PEER_LOST);
	assert_non_null(strstr(r.source.failure.text, "not confirmed"));
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, enter_directory, leave_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(names_not_asked_for),      copy_test(bytes_where_none_belong),
		copy_test(files_announced_twice),    copy_test(wrong_ends),
		copy_test(a_wrong_digest),           copy_test(too_many_open_files),
		copy_test(results_that_can_not_be),  copy_test(totals_that_differ),
		copy_test(no_done_is_not_confirmed),
	};

	signal(SIGPIPE, SIG_IGN);
	alarm(STUCK_S);
	return cmocka_run_group_tests_name("copy_hostile", tests, NULL, NULL);
}
