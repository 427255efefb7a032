/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_actor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/io/digest.h"

/*
 * What a sink answers to questions, what it accepts after its answers, and what it checks again
 * after all files.
 */

enum { THEN = 1000000000, BIG = 5 << 20 };

static struct rig rig;
static struct actor actor;

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void run(const struct rules *with, const struct say *say)
{
	static char *wants[] = {NULL};
	struct rules rules = *with;

	wants[0] = text("d");
	rules.recursive = true;
	rules.events = true;
	rules.max_size = UINT64_MAX;
	rules.max_delete = rules.max_delete ? rules.max_delete : UINT64_MAX;
	rules.backup_dir = rules.suffix = rules.chmod = rules.chown = "";
	rig_init(&rig);
	rig_names(&rig, wants, 1, "to");
	rig.to.rules = &rules;
	rig.to.peer = "sourcehost";
	actor_init(&actor, &rig, say);
	rig_run(&rig);
}

static void assert_done(void)
{
	if (rig.sink.rc || rig.source.rc)
		fail_msg("source %d: %s; sink %d: %s", rig.source.rc, rig.source.failure.text,
			 rig.sink.rc, rig.sink.failure.text);
}

static void assert_refused(const char *part)
{
	if (!rig.sink.rc || rig.sink.failure.code != OUT_PROTOCOL ||
	    !strstr(rig.sink.failure.text, part))
		fail_msg("sink %d: %d %s, not %s", rig.sink.rc, rig.sink.failure.code,
			 rig.sink.failure.text, part);
}

static void assert_answer(uint32_t id, enum answer answer)
{
	const struct heard *h = actor_heard(&actor, MSG_ANSWERS, id);

	if (!h || h->answer != answer)
		fail_msg("file %u: %d, not %d", id, h ? h->answer : 0, answer);
}

static int make_at(const char *name, const char *content, int64_t when)
{
	struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};

	return make_text(name, content) || utimensat(AT_FDCWD, name, times, 0);
}

static int clear(void)
{
	return system("rm -rf to && mkdir -p to/d");
}

#define DIR_D                                                                                      \
	{                                                                                          \
		.verb = SAY_DIR, .id = 1, .name = "d", .mode = 0755                                \
	}
#define ASK(n, what, bytes)                                                                        \
	{                                                                                          \
		.verb = SAY_FILE, .id = n, .dir = 1, .flags = FILE_ASK, .size = bytes,             \
		.name = what, .mtime = THEN                                                        \
	}
#define WAIT(n)                                                                                    \
	{                                                                                          \
		.verb = SAY_WAIT, .len = n                                                         \
	}
#define SEND(n, what)                                                                              \
	{.verb = SAY_FILE, .id = n, .dir = 1, .size = 3, .name = what, .mtime = THEN},             \
		{.verb = SAY_DATA, .id = n, .len = 3, .text = "new"},                              \
	{                                                                                          \
		.verb = SAY_END_OF_FILE, .id = n, .size = 3, .data = 3, .text = "new"              \
	}

static void new_directories_are_reported(void **state)
{
	static const struct rules rules = {.quick = true, .times = true};
	static const struct say say[] = {DIR_D, WAIT(1), SEND(3, "f"), {.verb = SAY_END}, {0}};
	static const struct say asking[] = {DIR_D,        ASK(2, "f", 3),    WAIT(1),
					    SEND(2, "f"), {.verb = SAY_END}, {0}};

	(void)state;
	assert_int_equal(system("rm -rf to"), 0);
	run(&rules, say);
	assert_done();
	assert_answer(1, ANSWER_NEW);
	assert_true(has_text("to/f", "new"));
	/* An existing directory is not reported, empty or not. */
	assert_int_equal(clear(), 0);
	run(&rules, asking);
	assert_done();
	assert_null(actor_heard(&actor, MSG_ANSWERS, 1));
	assert_answer(2, ANSWER_SEND);
}

static void quick_check_compares_size_and_mtime(void **state)
{
	static const struct rules rules = {.quick = true, .times = true};
	static const struct say say[] = {DIR_D,
					 ASK(2, "same", 3),
					 ASK(3, "size", 3),
					 ASK(4, "time", 3),
					 ASK(5, "none", 3),
					 ASK(6, "dir", 3),
					 WAIT(5),
					 SEND(3, "size"),
					 SEND(5, "none"),
					 {.verb = SAY_END, .same = 1, .failed = 2},
					 {0}};

	(void)state;
	assert_int_equal(clear() | mkdir("to/d/dir", 0755), 0);
	assert_int_equal(make_at("to/d/same", "old", THEN) | make_at("to/d/size", "older", THEN) |
				 make_at("to/d/time", "old", THEN + 1),
			 0);
	run(&rules, say);
	assert_answer(2, ANSWER_SAME);
	assert_answer(3, ANSWER_SEND);
	assert_answer(4, ANSWER_SEND);
	assert_answer(5, ANSWER_SEND);
	assert_true(has_text("to/d/same", "old") && has_text("to/d/size", "new"));
	assert_int_equal(rig.sink.result.total.same, 1);
	assert_int_equal(rig.sink.result.total.files, 2);
	assert_string_equal(rig_event(&rig.sink, "d/same")->change, ".f         ");
	assert_string_equal(rig_event(&rig.sink, "d/size")->change, ">f.s.......");
	assert_string_equal(rig_event(&rig.sink, "d/none")->change, ">f+++++++++");
}

static void update_and_ignore_existing_leave_targets(void **state)
{
	static const struct rules update = {.update = true, .times = true, .perms = true};
	static const struct rules existing = {.ignore_existing = true, .hard_links = true};
	/*
	 * A symlink exists, too. A file that stays cannot lead a group of hard links: it is asked
	 * about first.
	 */
	static const struct say linked[] = {
		DIR_D,
		{.verb = SAY_FILE,
		 .id = 2,
		 .dir = 1,
		 .flags = FILE_ASK | FILE_MAY,
		 .size = 3,
		 .name = "a",
		 .mtime = THEN},
		{.verb = SAY_FILE,
		 .id = 5,
		 .dir = 1,
		 .flags = FILE_ASK | FILE_MAY,
		 .size = 3,
		 .name = "c",
		 .mtime = THEN},
		WAIT(2),
		{.verb = SAY_FILE, .id = 3, .dir = 1, .type = TYPE_SYMLINK, .size = 2, .name = "b"},
		{.verb = SAY_DATA, .id = 3, .len = 2, .text = "hi"},
		{.verb = SAY_END_OF_FILE,
		 .id = 3,
		 .type = TYPE_SYMLINK,
		 .size = 2,
		 .data = 2,
		 .text = "hi"},
		{.verb = SAY_END, .same = 1},
		{0}};
	static const struct say two[] = {DIR_D,   ASK(2, "a", 3), ASK(3, "b", 3),
					 WAIT(2), SEND(3, "b"),   {.verb = SAY_END, .same = 1},
					 {0}};

	(void)state;
	assert_int_equal(clear(), 0);
	assert_int_equal(make_at("to/d/a", "mine", THEN + 1) | make_at("to/d/b", "mine", THEN - 1),
			 0);
	assert_int_equal(chmod("to/d/a", 0600), 0);
	run(&update, two);
	assert_done();
	assert_answer(2, ANSWER_SAME);
	assert_true(has_text("to/d/a", "mine") && has_text("to/d/b", "new"));
	/* It stays unchanged. */
	assert_string_equal(rig_event(&rig.sink, "d/a")->change, ".f         ");
	assert_int_equal(clear() | symlink("x", "to/d/a"), 0);
	run(&existing, two);
	assert_done();
	assert_answer(2, ANSWER_SAME);
	assert_answer(3, ANSWER_SEND);
	assert_int_equal(access("to/d/a", F_OK), -1);
	assert_int_equal(clear() | make_at("to/d/a", "mine", 5) | make_at("to/d/b", "mine", 5), 0);
	run(&existing, linked);
	assert_done();
	assert_answer(2, ANSWER_SAME);
	assert_answer(5, ANSWER_SEND);
	assert_true(has_text("to/d/b", "mine"));
	assert_int_equal(access("to/d/c", F_OK), -1);
}

/* A file in place of a directory stays, and no entry of that directory is stored anywhere. */
static void ignore_existing_leaves_a_file_in_place_of_a_directory(void **state)
{
	static const struct rules rules = {.ignore_existing = true};
	static const struct say say[] = {
		DIR_D,
		{.verb = SAY_DIR, .id = 2, .dir = 1, .name = "way"},
		{.verb = SAY_DIR, .id = 3, .dir = 2, .name = "deep"},
		{.verb = SAY_FILE, .id = 4, .dir = 2, .flags = FILE_ASK, .size = 3, .name = "x"},
		WAIT(1),
		{.verb = SAY_FILE, .id = 5, .dir = 3, .size = 3, .name = "small"},
		{.verb = SAY_DATA, .id = 5, .len = 3, .text = "new"},
		{.verb = SAY_END_OF_FILE, .id = 5, .size = 3, .data = 3, .text = "new"},
		{.verb = SAY_FILE, .id = 6, .dir = 3, .size = 3, .name = "large"},
		{.verb = SAY_EXTENT, .id = 6, .len = 3, .text = "new"},
		{.verb = SAY_END_OF_FILE, .id = 6, .size = 3, .data = 3, .text = "new"},
		{.verb = SAY_END, .same = 1},
		{0}};

	(void)state;
	assert_int_equal(clear() | make_text("to/d/way", "mine"), 0);
	run(&rules, say);
	assert_done();
	assert_answer(4, ANSWER_SAME);
	assert_non_null(actor_heard(&actor, MSG_STORED, 5));
	assert_non_null(actor_heard(&actor, MSG_STORED, 6));
	assert_true(has_text("to/d/way", "mine"));
	assert_int_equal(system("test $(find to | wc -l) = 3"), 0);
}

/* With --existing nothing new is made, and a name that is repeated may be gone. */
static void existing_skips_missing_targets(void **state)
{
	static const struct rules rules = {.existing = true, .hard_links = true};
	static const struct say say[] = {
		DIR_D,
		{.verb = SAY_DIR, .id = 2, .dir = 1, .name = "missing"},
		{.verb = SAY_FILE, .id = 3, .dir = 2, .flags = FILE_ASK, .size = 3, .name = "x"},
		ASK(4, "a", 3),
		ASK(5, "b", 3),
		{.verb = SAY_FILE,
		 .id = 6,
		 .dir = 1,
		 .flags = FILE_ASK | FILE_MAY,
		 .size = 3,
		 .name = "c",
		 .mtime = THEN},
		{.verb = SAY_FILE,
		 .id = 7,
		 .dir = 1,
		 .flags = FILE_ASK | FILE_MAY,
		 .size = 3,
		 .name = "a",
		 .mtime = THEN},
		WAIT(5),
		SEND(4, "a"),
		{.verb = SAY_FILE, .id = 8, .dir = 1, .type = TYPE_SYMLINK, .size = 2, .name = "l"},
		{.verb = SAY_DATA, .id = 8, .len = 2, .text = "hi"},
		{.verb = SAY_END_OF_FILE,
		 .id = 8,
		 .type = TYPE_SYMLINK,
		 .size = 2,
		 .data = 2,
		 .text = "hi"},
		{.verb = SAY_END, .same = 3},
		{0}};

	(void)state;
	assert_int_equal(clear() | make_at("to/d/a", "mine", THEN), 0);
	run(&rules, say);
	assert_done();
	assert_answer(3, ANSWER_SAME);
	assert_answer(4, ANSWER_SEND);
	assert_answer(5, ANSWER_SAME);
	assert_answer(6, ANSWER_SAME);
	assert_answer(7, ANSWER_SEND);
	assert_non_null(actor_heard(&actor, MSG_STORED, 8));
	assert_true(has_text("to/d/a", "new"));
	assert_int_equal(system("test $(find to | wc -l) = 3"), 0);
	assert_int_equal(rig.sink.result.counts.created, 0);
}

/* ---- checksums ------------------------------------------------------------------------ */

static void checksum_compares_contents(void **state)
{
	static const struct rules rules = {.checksum = true, .times = true};
	static const struct say say[] = {DIR_D,
					 ASK(2, "a", 3),
					 ASK(3, "b", 3),
					 ASK(4, "c", 3),
					 ASK(5, "empty", 0),
					 ASK(6, "hole", BIG),
					 WAIT(7),
					 {.verb = SAY_SAME, .id = 2},
					 {.verb = SAY_SAME, .id = 6},
					 SEND(3, "b"),
					 SEND(4, "c"),
					 {.verb = SAY_END, .same = 1},
					 {0}};
	uint64_t digest[2];
	struct stat st;

	(void)state;
	assert_int_equal(clear(), 0);
	assert_int_equal(make_at("to/d/a", "old", THEN + 5) | make_at("to/d/b", "old", THEN) |
				 make_at("to/d/c", "older", THEN) | make_at("to/d/empty", "", 5),
			 0);
	assert_int_equal(make_text("to/d/hole", "") | truncate("to/d/hole", BIG), 0);
	run(&rules, say);
	assert_done();
	assert_answer(2, ANSWER_COMPARE);
	assert_answer(3, ANSWER_COMPARE);
	assert_answer(4, ANSWER_SEND);
	assert_answer(5, ANSWER_SAME);
	assert_answer(6, ANSWER_COMPARE);
	cell_hash_of(0, "old", 3, digest);
	assert_int_equal(actor_heard(&actor, MSG_CELLS, 2)->cells, 1);
	assert_memory_equal(actor_heard(&actor, MSG_CELLS, 2)->first, digest, sizeof digest);
	assert_null(actor_heard(&actor, MSG_CELLS, 6));
	assert_null(actor_heard(&actor, MSG_STORED, 2));
	assert_int_equal(rig.sink.result.total.same, 3);
	assert_int_equal(stat("to/d/a", &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, THEN);
	assert_string_equal(rig_event(&rig.sink, "d/a")->change, ".f..t......");
	assert_true(has_text("to/d/b", "new"));
}

static void unsolicited_answers_are_refused(void **state)
{
	static const struct rules rules = {.checksum = true};
	static const struct say same[] = {DIR_D, {.verb = SAY_SAME, .id = 2}, {0}};
	static const struct say sent[] = {
		DIR_D, ASK(2, "none", 3), WAIT(1), {.verb = SAY_SAME, .id = 2}, {0}};
	static const struct say twice[] = {DIR_D,
					   ASK(2, "a", 3),
					   WAIT(2),
					   {.verb = SAY_SAME, .id = 2},
					   {.verb = SAY_SAME, .id = 2},
					   {0}};
	static const struct say asked[] = {DIR_D, ASK(2, "a", 3), ASK(2, "a", 3), {0}};

	(void)state;
	assert_int_equal(clear() | make_at("to/d/a", "old", THEN), 0);
	run(&rules, same);
	assert_refused("which this end did not compare");
	run(&rules, sent);
	assert_refused("which this end did not compare");
	run(&rules, twice);
	assert_refused("which this end did not compare");
	run(&rules, asked);
	assert_refused("asks about file 2 twice");
}

/* ---- resuming ------------------------------------------------------------------------- */

#define BIG_FILE(more)                                                                             \
	{                                                                                          \
		.verb = SAY_FILE, .id = 2, .dir = 1, .flags = FILE_SPARSE | (more), .size = BIG,   \
		.name = "big", .mtime = THEN                                                       \
	}
#define EXTENT(at)                                                                                 \
	{                                                                                          \
		.verb = SAY_EXTENT, .id = 2, .pos = at, .len = 64 << 10                            \
	}
#define CELL_AT(n)                                                                                 \
	EXTENT(n *CELL), EXTENT(n *CELL + (64 << 10)), EXTENT(n *CELL + (128 << 10)),              \
		EXTENT(n *CELL + (192 << 10))

/* This many bytes arrive before the interruption. */
static void interrupt(const struct say *say, uint64_t bytes)
{
	struct rules rules = RULES_PLAIN;
	static char *wants[] = {NULL};

	wants[0] = text("d");
	rules.recursive = true;
	rig_init(&rig);
	rig_names(&rig, wants, 1, "to");
	rig.to.rules = &rules;
	rig.to.peer = "sourcehost";
	actor_init(&actor, &rig, say);
	assert_int_equal(rig_start(&rig), 0);
	while (atomic_load(&rig.sink.tally.bytes) < bytes)
		usleep(1000);
	rig_cut(&rig);
	rig_join(&rig);
	assert_int_equal(rig.sink.failure.code, OUT_PEER_LOST);
}

/* Two cells arrive, and a part of the next. */
static void interrupt_one(void)
{
	static const struct say say[] = {DIR_D,      BIG_FILE(0),      CELL_AT(0),
					 CELL_AT(1), EXTENT(2 * CELL), WAIT(0),
					 {0}};

	interrupt(say, 2 * CELL + (64 << 10));
}

static void resumed_file_sends_missing_cells_only(void **state)
{
	static const struct rules rules = {0};
	static const struct say say[] = {
		DIR_D,
		BIG_FILE(FILE_ASK),
		WAIT(2),
		BIG_FILE(0),
		{.verb = SAY_HAVE, .id = 2, .len = CELL},
		{.verb = SAY_HOLE, .id = 2, .pos = CELL, .len = BIG - CELL},
		{.verb = SAY_END_OF_FILE, .id = 2, .size = BIG, .holes = BIG, .have = 1},
		{.verb = SAY_END},
		{0}};
	const struct heard *cells;
	struct stat st;

	(void)state;
	assert_int_equal(clear(), 0);
	interrupt_one();
	run(&rules, say);
	assert_done();
	assert_answer(2, ANSWER_RESUME);
	cells = actor_heard(&actor, MSG_CELLS, 2);
	assert_int_equal(cells->cells, 2);
	assert_int_equal(cells->pos, 0);
	assert_int_equal(rig.sink.result.counts.had, CELL);
	assert_int_equal(rig.sink.result.counts.holes, BIG - CELL);
	assert_int_equal(stat("to/d/big", &st), 0);
	assert_int_equal(st.st_size, BIG);
	assert_true(st.st_blocks * 512 <= 2 * CELL);
}

static void have_outside_announced_cells_is_refused(void **state)
{
	static const struct rules rules = {0};
#define REFUSED(...)                                                                               \
	{                                                                                          \
		DIR_D, BIG_FILE(FILE_ASK), WAIT(2), __VA_ARGS__,                                   \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}
#define HAVE(at, n)                                                                                \
	{                                                                                          \
		.verb = SAY_HAVE, .id = 2, .pos = at, .len = n                                     \
	}
	static const struct say all[][12] = {
		REFUSED(BIG_FILE(0), HAVE(2 * CELL, CELL)),
		REFUSED(BIG_FILE(0), HAVE(CELL, 2 * CELL)),
		REFUSED(BIG_FILE(0), HAVE(0, CELL), HAVE(0, CELL)),
		REFUSED(BIG_FILE(0), HAVE(0, CELL + 1)),
		REFUSED(BIG_FILE(0), HAVE(0, 1)),
		REFUSED(BIG_FILE(0), HAVE(BIG - CELL, CELL)),
		/* Another file than the one in the question. */
		REFUSED({.verb = SAY_FILE,
			 .id = 2,
			 .dir = 1,
			 .flags = FILE_SPARSE,
			 .size = BIG,
			 .name = "big",
			 .mtime = THEN + 1},
			HAVE(0, CELL)),
		{DIR_D, BIG_FILE(0), HAVE(0, CELL), {0}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		assert_int_equal(clear(), 0);
		interrupt_one();
		run(&rules, all[i]);
		assert_refused("that this end did not report");
		assert_int_equal(access("to/d/big", F_OK), -1);
	}
}

/* FILE may announce that the source has changed; then the whole file is sent. */
static void changed_file_is_sent_from_the_start(void **state)
{
	static const struct rules rules = {0};
	static const struct say say[] = {DIR_D,          BIG_FILE(FILE_ASK), WAIT(2),
					 SEND(2, "big"), {.verb = SAY_END},  {0}};

	(void)state;
	assert_int_equal(clear(), 0);
	interrupt_one();
	run(&rules, say);
	assert_done();
	assert_true(has_text("to/d/big", "new"));
}

/* Less than a cell arrived of a file that the user named. */
static void partial_cell_is_discarded(void **state)
{
#define NAMED(more)                                                                                \
	{                                                                                          \
		.verb = SAY_FILE, .id = 2, .flags = FILE_SPARSE | (more), .size = BIG,             \
		.name = "d", .mtime = THEN                                                         \
	}
	static const struct rules rules = {0};
	static const struct say cut[] = {NAMED(0), EXTENT(0), WAIT(0), {0}};
	static const struct say say[] = {
		NAMED(FILE_ASK),
		WAIT(1),
		NAMED(0),
		{.verb = SAY_HOLE, .id = 2, .len = BIG},
		{.verb = SAY_END_OF_FILE, .id = 2, .size = BIG, .holes = BIG},
		{.verb = SAY_END},
		{0}};
	struct stat st;

	(void)state;
	assert_int_equal(clear() | rmdir("to/d"), 0);
	interrupt(cut, 64 << 10);
	run(&rules, say);
	assert_done();
	assert_answer(2, ANSWER_SEND);
	assert_int_equal(stat("to/d", &st), 0);
	assert_int_equal(st.st_size, BIG);
	assert_int_equal(st.st_blocks, 0);
}

/* ---- dry runs --------------------------------------------------------------------------- */

static void dry_run_changes_nothing(void **state)
{
	static const struct rules rules = {.dry_run = true, .quick = true, .times = true};
	static const struct say say[] = {DIR_D,
					 ASK(2, "same", 3),
					 ASK(3, "size", 3),
					 ASK(4, "none", 3),
					 WAIT(3),
					 {.verb = SAY_DIR, .id = 5, .dir = 1, .name = "e"},
					 SEND(6, "unasked"),
					 {.verb = SAY_END, .same = 3},
					 {0}};

	(void)state;
	assert_int_equal(clear(), 0);
	assert_int_equal(make_at("to/d/same", "old", THEN) | make_at("to/d/size", "older", THEN),
			 0);
	run(&rules, say);
	assert_done();
	for (uint32_t id = 2; id <= 4; id++)
		assert_answer(id, ANSWER_SAME);
	assert_string_equal(rig_event(&rig.sink, "d/same")->change, ".f         ");
	assert_string_equal(rig_event(&rig.sink, "d/size")->change, ">f.s.......");
	assert_string_equal(rig_event(&rig.sink, "d/none")->change, ">f+++++++++");
	assert_string_equal(rig_event(&rig.sink, "d/e")->change, "cd+++++++++");
	assert_string_equal(rig_event(&rig.sink, "d/unasked")->change, ">f+++++++++");
	assert_true(has_text("to/d/size", "older"));
	assert_int_equal(system("test $(find to | wc -l) = 4"), 0);
}

/* Contents are compared as in a real run; differing files are sent and not stored. */
static void dry_run_with_checksum_compares_contents(void **state)
{
	static const struct rules rules = {.dry_run = true, .checksum = true, .times = true};
	static const struct say say[] = {DIR_D,
					 ASK(2, "same", 3),
					 ASK(3, "other", 3),
					 ASK(4, "size", 3),
					 WAIT(5),
					 {.verb = SAY_SAME, .id = 2},
					 SEND(3, "other"),
					 {.verb = SAY_END, .same = 1},
					 {0}};

	(void)state;
	assert_int_equal(clear(), 0);
	assert_int_equal(make_at("to/d/same", "new", 5) | make_at("to/d/other", "old", THEN) |
				 make_at("to/d/size", "older", THEN),
			 0);
	run(&rules, say);
	assert_done();
	assert_answer(2, ANSWER_COMPARE);
	assert_answer(3, ANSWER_COMPARE);
	assert_answer(4, ANSWER_SAME);
	assert_string_equal(rig_event(&rig.sink, "d/same")->change, ".f..t......");
	assert_string_equal(rig_event(&rig.sink, "d/other")->change, ">fc........");
	assert_true(has_text("to/d/other", "old"));
	assert_int_equal(system("test $(find to | wc -l) = 5"), 0);
}

/* ---- checking again --------------------------------------------------------------------- */

static const uint8_t md5_of_new[] = {0x22, 0xaf, 0x64, 0x5d, 0x18, 0x59, 0xcb, 0x5c,
				     0xa6, 0xda, 0x0c, 0x48, 0x4f, 0x1f, 0x37, 0xea};

static void content_digests_are_checked(void **state)
{
	static const struct rules rules = {.digest = CONTENT_MD5, .verify = true};
	struct say say[] = {DIR_D,
			    SEND(2, "a"),
			    SEND(3, "b"),
			    {.verb = SAY_FILE, .id = 4, .dir = 1, .size = 3, .name = "c"},
			    {.verb = SAY_EXTENT, .id = 4, .len = 3, .text = "new"},
			    {.verb = SAY_END_OF_FILE, .id = 4, .size = 3, .data = 3, .text = "new"},
			    {.verb = SAY_END},
			    {0}};

	(void)state;
	assert_int_equal(clear(), 0);
	for (unsigned i = 0; say[i].verb; i++) {
		if (say[i].verb == SAY_END_OF_FILE) {
			say[i].content_len = 16;
			memcpy(say[i].content, md5_of_new, 16);
			say[i].content[0] ^= say[i].id == 3;
		}
	}
	run(&rules, say);
	assert_int_equal(rig.sink.failure.code, OUT_SOME_FILES);
	assert_string_equal(rig_event(&rig.sink, "d/a")->digest,
			    "22af645d1859cb5ca6da0c484f1f37ea");
	assert_string_equal(rig_event(&rig.sink, "d/c")->digest,
			    "22af645d1859cb5ca6da0c484f1f37ea");
	assert_int_equal(rig_event(&rig.sink, "d/b")->code, OUT_INTEGRITY);
	assert_int_equal(actor_heard(&actor, MSG_FILE_RESULT, 3)->code, OUT_INTEGRITY);
	assert_int_equal(access("to/d/b", F_OK), -1);
	/* A file without a digest. */
	say[3].content_len = 0;
	run(&rules, say);
	assert_refused("no digest of");
}

/* ---- the end -------------------------------------------------------------------------- */

#define KEEP(what)                                                                                 \
	{                                                                                          \
		.verb = SAY_KEEP, .dir = 1, .text = what                                           \
	}

static void deletions_follow_keep_and_max_delete(void **state)
{
	static const struct rules all = {.delete = true}, two = {.delete = true, .max_delete = 2};
	static const struct say say[] = {DIR_D, SEND(2, "a"), KEEP("a"), {.verb = SAY_END}, {0}};
	static const struct say cut[] = {
		DIR_D, SEND(2, "a"), KEEP("a"), {.verb = SAY_END, .incomplete = true}, {0}};

	(void)state;
	assert_int_equal(clear() | make_text("to/d/x", "") | make_text("to/d/y", "") |
				 make_text("to/d/z", "") | make_text("to/keep", ""),
			 0);
	run(&all, cut);
	assert_done();
	assert_int_equal(access("to/d/x", F_OK), 0);
	run(&two, say);
	assert_int_equal(rig.sink.failure.code, OUT_MAX_DELETE);
	assert_int_equal(actor_heard(&actor, MSG_FILE_RESULT, 0)->code, OUT_MAX_DELETE);
	assert_int_equal(rig.sink.result.counts.deleted, 2);
	assert_non_null(actor_heard(&actor, MSG_DONE, 0));
	run(&all, say);
	assert_done();
	assert_int_equal(rig.sink.result.counts.deleted, 1);
	assert_int_equal(system("test $(find to | wc -l) = 4"), 0);
	assert_true(has_text("to/d/a", "new"));
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(quick_check_compares_size_and_mtime),
		copy_test(new_directories_are_reported),
		copy_test(update_and_ignore_existing_leave_targets),
		copy_test(ignore_existing_leaves_a_file_in_place_of_a_directory),
		copy_test(existing_skips_missing_targets),
		copy_test(checksum_compares_contents),
		copy_test(unsolicited_answers_are_refused),
		copy_test(resumed_file_sends_missing_cells_only),
		copy_test(have_outside_announced_cells_is_refused),
		copy_test(changed_file_is_sent_from_the_start),
		copy_test(partial_cell_is_discarded),
		copy_test(dry_run_changes_nothing),
		copy_test(dry_run_with_checksum_compares_contents),
		copy_test(content_digests_are_checked),
		copy_test(deletions_follow_keep_and_max_delete),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("copy_ask", tests, NULL, NULL);
}
