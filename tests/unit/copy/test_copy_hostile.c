/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_actor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/io/digest.h"

/*
 * A source that breaks the protocol against a real sink, and such a sink against a real source. The
 * sink must end with the failure that the script expects, and the old file must stay.
 */

enum { TIMEOUT_MS = 1500 };

struct script {
	struct say say[10];
	enum outcome code; /* with which the sink ends */
	const char *text;
};

static void play(const struct script *script)
{
	static char *wants[] = {NULL, NULL};
	struct actor a;
	struct rig r;

	wants[0] = (char *)(uintptr_t) "d/f";
	wants[1] = (char *)(uintptr_t) "g*";
	rig_init(&r);
	rig_names(&r, wants, 2, ".");
	r.timeout_ms = script->code == OUT_TIMEOUT ? TIMEOUT_MS : 0;
	actor_init(&a, &r, script->say);
	rig_run(&r);
	if (!r.sink.rc || r.sink.failure.code != script->code ||
	    !strstr(r.sink.failure.text, script->text))
		fail_msg("sink %d: %d \"%s\", not %d \"%s\"", r.sink.rc, r.sink.failure.code,
			 r.sink.failure.text, script->code, script->text);
	/* The other end learns the reason. */
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

static void unrequested_names_are_refused(void **state)
{
	static const struct script scripts[] = {
		{{{A_FILE, .name = "x"}}, OUT_PROTOCOL, "x, which does not match d/f"},
		{{{A_FILE, .name = "../f"}}, OUT_PROTOCOL, "FILE record from the peer: name"},
		{{{A_FILE, .name = "/f"}}, OUT_PROTOCOL, "FILE record from the peer: name"},
		{{{A_FILE, .name = "d/f"}}, OUT_PROTOCOL, "FILE record from the peer: name"},
		{{{A_FILE, .name = "."}}, OUT_PROTOCOL, "FILE record from the peer: name"},
		{{{A_FILE, .name = ".."}}, OUT_PROTOCOL, "FILE record from the peer: name"},
		{{{A_FILE, .name = "", .want = 1}}, OUT_PROTOCOL, "which does not match"},
		{{{A_FILE, .name = "f", .want = 1}}, OUT_PROTOCOL, "f, which does not match g*"},
		{{{A_FILE, .name = "g/../../f", .want = 1}},
		 OUT_PROTOCOL,
		 "record from the peer: name"},
		{{{A_FILE, .name = "f", .want = 2}}, OUT_PROTOCOL, "unknown source number 2"},
		{{{A_FILE, .name = "f", .want = UINT32_MAX}},
		 OUT_PROTOCOL,
		 "unknown source number"},
	};

	(void)state;
	PLAY(scripts);
}

static void misplaced_bytes_are_refused(void **state)
{
	static const struct script scripts[] = {
		{{{ITS_DATA}}, OUT_PROTOCOL, "a file it did not announce"},
		{{{.verb = SAY_EXTENT, .id = 9, .len = 10}}, OUT_PROTOCOL, "did not announce"},
		{{{A_FILE}, {ITS_DATA, .other_lane = true}}, OUT_PROTOCOL, "did not announce"},
		{{{A_FILE}, {ITS_DATA, .pos = 1}}, OUT_PROTOCOL, "beyond the end"},
		{{{A_FILE}, {.verb = SAY_EXTENT, .id = 1, .len = 101}}, OUT_PROTOCOL, "beyond"},
		{{{A_FILE}, {.verb = SAY_EXTENT, .id = 1, .pos = UINT64_MAX - 5, .len = 100}},
		 OUT_PROTOCOL,
		 "exceeds any file size"},
		{{{A_FILE}, {.verb = SAY_EXTENT, .id = 1, .pos = INT64_MAX - 5, .len = 100}},
		 OUT_PROTOCOL,
		 "exceeds any file size"},
		{{{A_FILE}, {ITS_DATA}, {ITS_DATA}}, OUT_PROTOCOL, "twice"},
		{{{A_FILE}, {ITS_DATA}, {.verb = SAY_DATA, .id = 1, .pos = 50, .len = 50}},
		 OUT_PROTOCOL,
		 "twice"},
		{{{A_FILE}, {.verb = SAY_HOLE, .id = 1, .len = 10}},
		 OUT_PROTOCOL,
		 "announced without holes"},
		{{{A_FILE, .flags = FILE_SPARSE}, {.verb = SAY_HOLE, .id = 1, .len = INT64_MAX}},
		 OUT_PROTOCOL,
		 "beyond"},
		{{{A_FILE, .flags = FILE_SPARSE}, {.verb = SAY_HOLE, .id = 1, .len = 0}},
		 OUT_PROTOCOL,
		 "HOLE"},
		{{{.verb = SAY_FILE, .id = 1, .size = UINT64_C(1) << 63}}, OUT_PROTOCOL, "size"},
		{{{A_FILE, .flags = 1 << 30}}, OUT_PROTOCOL, "flags"},
		{{{.verb = SAY_FILE, .size = 100}}, OUT_PROTOCOL, "id"},
		/* In a stream, out of order and repeated. */
		{{{.verb = SAY_FILE, .id = 1, .flags = FILE_STREAM | FILE_ORDERED},
		  {.verb = SAY_DATA, .id = 1, .len = 10},
		  {.verb = SAY_DATA, .id = 1, .len = 10}},
		 OUT_PROTOCOL,
		 "twice"},
	};

	(void)state;
	PLAY(scripts);
}

/* Pieces wait for earlier bytes, but not for bytes that can no longer arrive. */
static void gaps_in_a_stream_are_refused(void **state)
{
#define A_STREAM .verb = SAY_FILE, .id = 1, .flags = FILE_STREAM | FILE_ORDERED
	static const struct script scripts[] = {
		/* All bytes that the end counts have arrived. */
		{{{A_STREAM},
		  {.verb = SAY_DATA, .id = 1, .pos = 10, .len = 10},
		  {A_STREAM, .other_lane = true},
		  {.verb = SAY_END_OF_FILE, .id = 1, .size = 10, .data = 10, .lanes = 2}},
		 OUT_PROTOCOL,
		 "at 10 but not those at 0"},
		/* Each lane waits for another one. */
		{{{A_STREAM},
		  {.verb = SAY_DATA, .id = 1, .len = 5},
		  {.verb = SAY_DATA, .id = 1, .pos = 20, .len = 10},
		  {A_STREAM, .other_lane = true},
		  {.verb = SAY_DATA, .id = 1, .pos = 10, .len = 10}},
		 OUT_PROTOCOL,
		 "but not those at 5"},
		/* The source sends nothing more but stays alive: it answers heartbeats. */
		{{{A_STREAM}, {.verb = SAY_DATA, .id = 1, .pos = 10, .len = 10}},
		 OUT_TIMEOUT,
		 "f at 0 are still missing"},
	};

	(void)state;
	PLAY(scripts);
}

static void files_announced_twice_are_refused(void **state)
{
	static const struct script scripts[] = {
		{{{A_FILE}, {A_FILE}}, OUT_PROTOCOL, "announces file 1 twice"},
		{{{A_FILE}, {.verb = SAY_FILE, .id = 1, .size = 99, .other_lane = true}},
		 OUT_PROTOCOL,
		 "twice"},
		/* For either order of the lanes. */
		{{{A_FILE, .name = "g", .want = 1},
		  {A_FILE, .name = "gg", .want = 1, .other_lane = true}},
		 OUT_PROTOCOL,
		 "twice"},
		{{{A_FILE}, {A_FILE, .name = "g", .want = 1, .other_lane = true}},
		 OUT_PROTOCOL,
		 "twice"},
	};

	(void)state;
	PLAY(scripts);
}

static void wrong_file_ends_are_refused(void **state)
{
	static const struct script scripts[] = {
		{{{ITS_END}}, OUT_PROTOCOL, "ends a file it did not announce"},
		{{{A_FILE}, {ITS_DATA}, {ITS_END, .lanes = 2}, {ITS_END, .lanes = 2}},
		 OUT_PROTOCOL,
		 "FILE_END of ./f that contradicts"},
		{{{A_FILE},
		  {ITS_DATA},
		  {.verb = SAY_END_OF_FILE, .id = 1, .size = 100, .data = 50}},
		 OUT_PROTOCOL,
		 "that contradicts"},
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
		{{{.verb = SAY_END, .wrong_total = true}},
		 OUT_PROTOCOL,
		 "differ from what it sent"},
	};

	(void)state;
	PLAY(scripts);
}

/* The bytes are right, but the digest is not: 41, and the old file stays. */
static void wrong_digest_fails_and_keeps_the_old_file(void **state)
{
	static const struct script script = {
		{{A_FILE}, {ITS_DATA}, {ITS_END, .wrong_digest = true}, {.verb = SAY_END}},
		OUT_INTEGRITY,
		"digest of the received data differs",
	};
	static char *want[] = {NULL};
	struct actor a;
	struct rig r;

	(void)state;
	want[0] = (char *)(uintptr_t) "f";
	assert_int_equal(make_text("f", "old"), 0);
	rig_init(&r);
	rig_names(&r, want, 1, ".");
	actor_init(&a, &r, script.say);
	rig_run(&r);
	assert_int_equal(r.sink.rc, -1);
	assert_int_equal(r.sink.failure.code, OUT_INTEGRITY);
	assert_non_null(strstr(r.sink.failure.text, script.text));
	assert_true(has_text("f", "old"));
	assert_int_equal(count_files(""), 3);
}

/* The number of open files is bounded. */
static void too_many_open_files_are_refused(void **state)
{
	enum { MANY = 300 };
	static char *wants[] = {NULL, NULL};
	static char names[MANY][16];
	static struct say say[2 * MANY + 1];
	struct actor a;
	struct rig r;

	(void)state;
	wants[0] = (char *)(uintptr_t) "f";
	wants[1] = (char *)(uintptr_t) "g*";
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof names[i], "g%u", i);
		say[2 * i] = (struct say){
			.verb = SAY_FILE, .id = i + 1, .want = 1, .size = 5, .name = names[i]};
		say[2 * i + 1] = (struct say){.verb = SAY_WAIT};
	}
	rig_init(&r);
	rig_names(&r, wants, 2, ".");
	actor_init(&a, &r, say);
	rig_run(&r);
	assert_int_equal(r.sink.failure.code, OUT_PROTOCOL);
	assert_non_null(strstr(r.sink.failure.text, "more than 256 files open"));
	assert_int_equal(count_files(""), 2);
}

/* ---- a sink that lies ----------------------------------------------------------------- */

struct lie {
	uint8_t type;
	struct msg_file_result result;
	struct msg_total done;
	uint32_t file; /* for STORED, ANSWERS and CELLS */
	uint8_t answer;
};

static void encode_lie(struct writer *w, const struct lie *lie)
{
	static struct msg_stored stored = {.count = 1};
	static struct msg_answers answers = {.count = 1};
	static struct msg_cells cells = {.count = 1};

	switch (lie->type) {
	case MSG_FILE_RESULT:
		msg_file_result_encode(w, &lie->result);
		break;
	case MSG_STORED:
		stored.files[0] = lie->file;
		msg_stored_encode(w, &stored);
		break;
	case MSG_ANSWERS:
		answers.of[0].file = lie->file;
		answers.of[0].answer = lie->answer;
		msg_answers_encode(w, &answers);
		break;
	case MSG_CELLS:
		cells.file = lie->file;
		msg_cells_encode(w, &cells);
		break;
	default:
		msg_total_encode(w, &lie->done);
	}
}

static int tell_lie(struct rig_end *e, const struct lie *lie)
{
	uint8_t body[2048];
	struct writer w = writer_of(body, sizeof body);

	encode_lie(&w, lie);
	return session_send(e->session, lie->type, body, w.used);
}

static int play_sink(struct rig_end *e, void *ctx)
{
	const struct lie *lies = ctx;
	struct block *b;

	/*
	 * The source waits in lane_flush(): no block is put back, or the lie could arrive too late.
	 */
	if (lane_recv(session_lane(e->session, 0), &b))
		return -1;
	for (; lies->type; lies++) {
		if (tell_lie(e, lies))
			return -1;
	}
	return actor_wait_over(e);
}

static void hear_lies(struct lie *lies, enum outcome code, const char *part)
{
	static char *name[] = {NULL};
	struct rig r;

	name[0] = (char *)(uintptr_t) "from";
	assert_int_equal(make_text("from", "content"), 0);
	rig_init(&r);
	rig_names(&r, name, 1, "to");
	rig_rules(&r)->remove_source = true;
	r.lanes = 1;
	r.sink.play = play_sink;
	r.sink.ctx = lies;
	rig_run(&r);
	assert_int_equal(r.source.rc, -1);
	if (r.source.failure.code != code || !strstr(r.source.failure.text, part))
		fail_msg("source: %d \"%s\", not %d \"%s\"", r.source.failure.code,
			 r.source.failure.text, code, part);
	/* Whatever the sink reports, no source is removed without a valid result. */
	assert_int_equal(access("from", F_OK), 0);
}

static void impossible_results_are_refused(void **state)
{
	struct lie unknown[] = {{.type = MSG_FILE_RESULT, .result = {.file = 7, .code = OUT_FILE}},
				{0}};
	struct lie done[] = {{.type = MSG_DONE, .done = {.files = 1}}, {0}};
	struct lie end[] = {{.type = MSG_END}, {0}};
	struct lie stored[] = {{.type = MSG_STORED, .file = 77}, {0}};
	struct lie answer[] = {{.type = MSG_ANSWERS, .file = 1, .answer = ANSWER_SAME}, {0}};
	struct lie cells[] = {{.type = MSG_CELLS, .file = 1}, {0}};
	/* For no file, and too early. */
	struct lie none[] = {{.type = MSG_FILE_RESULT, .result = {.code = OUT_MAX_DELETE}}, {0}};

	(void)state;
	hear_lies(stored, OUT_PROTOCOL, "peer");
	hear_lies(answer, OUT_PROTOCOL, "answers an unknown question");
	hear_lies(cells, OUT_PROTOCOL, "answers an unknown question");
	hear_lies(none, OUT_PROTOCOL, "peer");
	hear_lies(unknown, OUT_PROTOCOL, "unknown file");
	hear_lies(done, OUT_PROTOCOL, "unexpected DONE");
	hear_lies(end, OUT_PROTOCOL, "unexpected");
}

static atomic_bool end_heard;

static int hear_end(struct rig_end *e, const struct frame *f)
{
	(void)e;
	if (f->type == MSG_END)
		atomic_store(&end_heard, true);
	return 0;
}

/* Store nothing, report everything as stored, and wait for END. */
static int play_storing(struct rig_end *e)
{
	struct lane *l = session_lane(e->session, 0);
	struct lie stored = {.type = MSG_STORED};
	struct record record;
	struct reader reader;
	struct block *b;

	if (lane_recv(l, &b))
		return -1;
	reader = reader_of(b->data, b->len);
	do {
		if (record_next(&reader, &record) <= 0)
			return -1;
	} while (record.type != RECORD_FILE);
	stored.file = record.file.id;
	if (lane_put(l, b) || tell_lie(e, &stored))
		return -1;
	for (int i = 0; i < 10000 && !atomic_load(&end_heard); i++)
		usleep(1000);
	return 0;
}

static int play_liar(struct rig_end *e, void *ctx)
{
	struct lie *lie = ctx;

	return play_storing(e) || tell_lie(e, lie) ? -1 : actor_wait_over(e);
}

static void differing_totals_fail(void **state)
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
	atomic_store(&end_heard, false);
	r.sink.play = play_liar;
	r.sink.hear = hear_end;
	r.sink.ctx = &lie;
	rig_run(&r);
	assert_int_equal(r.source.rc, -1);
	assert_int_equal(r.source.failure.code, OUT_INTEGRITY);
}

static int play_gone(struct rig_end *e, void *ctx)
{
	(void)ctx;
	if (play_storing(e))
		return -1;
	rig_cut(e->rig);
	return actor_wait_over(e);
}

static void missing_done_is_not_confirmed(void **state)
{
	static char *name[] = {NULL};
	struct rig r;

	(void)state;
	name[0] = (char *)(uintptr_t) "from";
	assert_int_equal(make_text("from", "content"), 0);
	rig_init(&r);
	rig_names(&r, name, 1, "to");
	r.lanes = 1;
	atomic_store(&end_heard, false);
	r.sink.play = play_gone;
	r.sink.hear = hear_end;
	rig_run(&r);
	assert_int_equal(r.source.failure.code, OUT_PEER_LOST);
	assert_non_null(strstr(r.source.failure.text, "not confirmed"));
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(unrequested_names_are_refused),
		copy_test(misplaced_bytes_are_refused),
		copy_test(files_announced_twice_are_refused),
		copy_test(wrong_file_ends_are_refused),
		copy_test(wrong_digest_fails_and_keeps_the_old_file),
		copy_test(too_many_open_files_are_refused),
		copy_test(impossible_results_are_refused),
		copy_test(differing_totals_fail),
		copy_test(missing_done_is_not_confirmed),
		copy_test(gaps_in_a_stream_are_refused),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("copy_hostile", tests, NULL, NULL);
}
