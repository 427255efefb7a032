/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/io/digest.h"
#include "protocol/message.h"

/* A source of trees, with a real sink and with one that the test plays. */

static struct rig rig;

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static struct rules recursive(void)
{
	struct rules r = RULES_PLAIN;

	r.recursive = true;
	return r;
}

/* Copies the tree "from" to "to". */
static void set_tree(const struct rules *rules)
{
	static char *names[] = {NULL};

	names[0] = text("from/");
	rig_init(&rig);
	rig_names(&rig, names, 1, "to");
	rig.from.rules = rules;
	rig.to.rules = rules;
	rig.to.peer = "sourcehost";
}

static void assert_done(void)
{
	if (rig_run(&rig))
		fail_msg("source %d: %s; sink %d: %s", rig.source.rc, rig.source.failure.text,
			 rig.sink.rc, rig.sink.failure.text);
}

static void copy_tree(const struct rules *rules)
{
	set_tree(rules);
	assert_done();
}

static void assert_same_trees(void)
{
	assert_int_equal(system("diff -r --no-dereference from to"), 0);
}

static void make_some(const char *prefix, unsigned count, uint64_t size)
{
	char name[128];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof name, "%s%u", prefix, i);
		assert_int_equal(make_file(name, size ? size + i : 0, i), 0);
	}
}

/* ---- with a sink ---------------------------------------------------------------------- */

static void many_directories_are_copied(void **state)
{
	enum { DIRS = 40, FILES = 30 };
	struct rules rules = recursive();
	char name[64];

	(void)state;
	assert_int_equal(mkdir("from", 0755), 0);
	for (unsigned d = 0; d < DIRS; d++) {
		if (d % 2)
			snprintf(name, sizeof name, "from/d%u/d%u", d / 2 * 2, d);
		else
			snprintf(name, sizeof name, "from/d%u", d);
		assert_int_equal(mkdir(name, 0755), 0);
		strcat(name, "/");
		make_some(name, FILES, d * 100);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(system("rm -rf to"), 0);
		set_tree(&rules);
		rig.lanes = (uint16_t)(1 + 2 * i);
		rig.depth = (uint16_t)(1 + i);
		rig.block_size = i == 2 ? 64 << 10 : 4 << 10;
		assert_done();
		assert_same_trees();
		assert_int_equal(rig.source.result.total.files, DIRS * FILES);
		assert_int_equal(rig.source.result.total.others, DIRS + 1);
		assert_int_equal(rig.source.result.counts.regular, DIRS * FILES);
		assert_int_equal(rig.source.result.counts.dirs, DIRS + 1);
		assert_int_equal(rig.source.tally.bytes, rig.source.result.total.bytes);
		assert_int_equal(rig.source.tally.total, rig.source.result.total.bytes);
		assert_true(rig.source.tally.total_known);
	}
}

/* More than may be open at once: the others wait. */
static void many_large_files_are_copied(void **state)
{
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755), 0);
	make_some("from/", 300, 100000);
	set_tree(&rules);
	rig.lanes = 3;
	rig.block_size = 4 << 10;
	assert_done();
	assert_same_trees();
}

static bool time_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Files found after it, and more than may be open at once, are sent in between. */
static void huge_file_does_not_delay_large_ones(void **state)
{
	enum { LARGE = 300, SIZE = 300 << 10 };
	struct rules rules = recursive();
	struct stat huge, st;
	unsigned before = 0;
	char name[32];

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/sub", 0755), 0);
	make_some("from/sub/", LARGE, SIZE);
	assert_int_equal(make_file("from/huge", (uint64_t)(LARGE + 100) * SIZE, 1), 0);
	copy_tree(&rules);
	assert_int_equal(stat("to/huge", &huge), 0);
	for (unsigned i = 0; i < LARGE; i++) {
		snprintf(name, sizeof name, "to/sub/%u", i);
		assert_int_equal(stat(name, &st), 0);
		before += time_before(&st.st_ctim, &huge.st_ctim);
	}
	/* A lane may be blocked with the last piece of one. */
	assert_in_range(before, LARGE - 50, LARGE);
}

/* More questions than files that the source keeps aside. */
static void many_questions_are_answered(void **state)
{
	enum { FILES = 5000 };
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755), 0);
	make_some("from/", FILES, 0);
	rules.quick = true;
	rules.times = true;
	copy_tree(&rules);
	assert_int_equal(rig.source.result.total.files, FILES);
	copy_tree(&rules);
	assert_int_equal(rig.source.result.total.files, 0);
	assert_int_equal(rig.source.result.total.same, FILES);
	assert_int_equal(rig.source.tally.bytes, 0);
}

static void poke(const char *name, off_t at)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, "!", 1, at), 1);
	close(fd);
}

static void checksum_compares_contents(void **state)
{
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755), 0);
	make_some("from/small", 10, 1000);
	make_some("from/large", 4, 5 << 20);
	assert_int_equal(make_text("from/empty", "") | make_text("from/hole", "") |
				 make_text("from/sparse", ""),
			 0);
	assert_int_equal(truncate("from/hole", 100000) | truncate("from/sparse", 9 << 20), 0);
	poke("from/sparse", 3 << 20);
	rules.checksum = true;
	copy_tree(&rules);
	assert_int_equal(rig.source.result.total.files, 17);
	copy_tree(&rules);
	assert_int_equal(rig.source.result.total.same, 17);
	assert_int_equal(rig.source.result.total.files, 0);
	poke("to/small3", 999);
	poke("to/large1", 2 << 20);
	poke("to/hole", 50000);
	poke("to/sparse", 6 << 20);
	copy_tree(&rules);
	assert_int_equal(rig.source.result.total.same, 13);
	assert_int_equal(rig.source.result.total.files, 4);
	assert_int_equal(rig.source.result.counts.had, 0);
	assert_same_trees();
}

static struct stat stat_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	return st;
}

static void hard_links_are_linked_to_their_first_name(void **state)
{
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/d", 0755), 0);
	assert_int_equal(make_file("from/a", 10, 1) | make_file("from/b", 500000, 2), 0);
	assert_int_equal(link("from/a", "from/d/a") | link("from/b", "from/d/b") |
				 link("from/b", "from/d/c") | symlink("a", "from/l") |
				 link("from/l", "from/d/l"),
			 0);
	rules.hard_links = true;
	copy_tree(&rules);
	assert_same_trees();
	assert_int_equal(stat_of("to/a").st_ino, stat_of("to/d/a").st_ino);
	assert_int_equal(stat_of("to/b").st_ino, stat_of("to/d/b").st_ino);
	assert_int_equal(stat_of("to/b").st_ino, stat_of("to/d/c").st_ino);
	assert_int_equal(stat_of("to/l").st_ino, stat_of("to/d/l").st_ino);
	assert_int_equal(rig.source.result.total.files, 2);
	assert_int_equal(rig.source.result.total.others, 2 + 3 + 2);
	assert_int_equal(rig.source.result.counts.hard_links, 3);
}

/* Each name only blocks itself. */
static void failed_first_name_fails_alone(void **state)
{
	struct rules rules = recursive();
	const struct rig_event *e;

	(void)state;
	assert_int_equal(mkdir("from", 0755) | make_text("from/x", "x"), 0);
	assert_int_equal(link("from/x", "from/y") | link("from/x", "from/z"), 0);
	/* Whichever name comes first. */
	assert_int_equal(mkdir("to", 0755) | mkdir("to/x", 0755) | mkdir("to/y", 0755) |
				 make_text("to/x/f", "") | make_text("to/y/f", ""),
			 0);
	rules.hard_links = true;
	rules.events = true;
	set_tree(&rules);
	assert_int_equal(rig_run(&rig), -1);
	assert_int_equal(rig.source.failure.code, OUT_SOME_FILES);
	assert_int_equal(rig.sink.failure.code, OUT_SOME_FILES);
	assert_int_equal(rig.source.result.total.failed, 2);
	assert_int_equal(rig.source.result.total.files, 1);
	assert_true(has_text("to/z", "x"));
	for (const char *name = "x"; *name; name = *name == 'x' ? "y" : "") {
		e = rig_event(&rig.sink, name);
		assert_non_null(e);
		assert_int_equal(e->code, OUT_FILE);
	}
}

/* Files that can't be asked about are not sent where existing targets may have to stay. */
static void file_with_too_many_attributes_fails_alone(void **state)
{
	static const char value[3400];
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755) | make_text("from/f", "new"), 0);
	if (setxattr("from/f", "user.large", value, sizeof value, 0))
		return;
	rules.xattrs = true;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(i ? make_text("to/f", "old") : 0, 0);
		rules.ignore_existing = i == 1;
		rules.update = i == 2;
		set_tree(&rules);
		rig.block_size = 4 << 10;
		assert_int_equal(rig_run(&rig), i ? -1 : 0);
		assert_true(has_text("to/f", i ? "old" : "new"));
	}
	assert_non_null(strstr(rig.source.told_last.text, "do not fit"));
}

/* Nor do other files fail with it. */
static void unreadable_first_name_fails_alone(void **state)
{
	enum { FILES = 20 };
	bool root = geteuid() == 0;
	struct rules rules = recursive();
	char first[32], second[32];
	int ret;

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/d", 0755), 0);
	for (int i = 0; i < FILES; i++) {
		snprintf(first, sizeof first, "from/%d", i);
		snprintf(second, sizeof second, "from/d/%d", i);
		assert_int_equal(make_text(first, "x") | link(first, second), 0);
		assert_int_equal(chmod(first, i < FILES / 2 ? 0 : 0644), 0);
	}
	assert_int_equal(chmod(".", 0777), 0);
	rules.hard_links = rules.xattrs = rules.quick = true;
	set_tree(&rules);
	assert_int_equal(root ? seteuid(1) : 0, 0);
	ret = rig_run(&rig);
	assert_int_equal(root ? seteuid(0) : 0, 0);
	assert_int_equal(ret, -1);
	assert_int_equal(rig.source.failure.code, OUT_SOME_FILES);
	assert_int_equal(rig.source.result.total.failed, FILES);
	assert_int_equal(rig.source.result.total.files, FILES / 2);
}

static void all_source_names_are_kept_from_deletion(void **state)
{
	enum { FILES = 3000 };
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/d", 0755), 0);
	make_some("from/d/", FILES, 0);
	rules.delete = true;
	copy_tree(&rules);
	assert_int_equal(make_text("to/extra", "") | make_text("to/d/extra", ""), 0);
	set_tree(&rules);
	rig.lanes = 4;
	rig.block_size = 4 << 10;
	assert_done();
	assert_same_trees();
	assert_int_equal(rig.sink.result.counts.deleted, 2);
}

static void sources_in_trees_are_removed(void **state)
{
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/d", 0755), 0);
	assert_int_equal(make_text("from/a", "a") | make_file("from/d/b", 700000, 1) |
				 symlink("nowhere", "from/d/l") | mkfifo("from/p", 0600) |
				 link("from/a", "from/d/a"),
			 0);
	rules.hard_links = true;
	rules.devices = true;
	rules.dry_run = true;
	rules.remove_source = true;
	set_tree(&rules);
	assert_done();
	assert_int_equal(access("to", F_OK), -1);
	assert_true(has_text("from/a", "a"));
	rules.dry_run = false;
	set_tree(&rules);
	assert_done();
	assert_true(has_text("to/a", "a") && has_text("to/d/a", "a"));
	assert_int_equal(stat_of("to/d/b").st_size, 700000);
	assert_true(S_ISFIFO(stat_of("to/p").st_mode) && S_ISLNK(stat_of("to/d/l").st_mode));
	assert_int_equal(system("test \"$(find from)\" = \"$(printf 'from\\nfrom/d')\""), 0);
}

static void missing_entries_are_reported(void **state)
{
	struct rules rules = RULES_PLAIN;
	const struct rig_event *e;
	struct files_from *l;

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/d", 0755) | make_text("from/d/f", "f"),
			 0);
	assert_int_equal(files_from_new(&l), 0);
	assert_int_equal(files_from_add(l, "d/f") | files_from_add(l, "d/gone"), 0);
	rules.listed = l;
	rules.events = true;
	set_tree(&rules);
	assert_int_equal(rig_run(&rig), -1);
	assert_int_equal(rig.source.failure.code, OUT_SOME_FILES);
	assert_int_equal(rig.sink.failure.code, OUT_SOME_FILES);
	assert_int_equal(rig.source.told, 1);
	assert_string_equal(rig.source.told_last.text,
			    "open from/d/gone: No such file or directory");
	e = rig_event(&rig.source, "d/gone");
	assert_non_null(e);
	assert_int_equal(e->code, OUT_NO_SOURCE);
	assert_true(has_text("to/d/f", "f"));
	files_from_free(l);
}

static void chmod_changes_modes(void **state)
{
	struct rules rules = recursive();

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("from/d", 0750) | make_text("from/f", "f") |
				 make_file("from/large", 500000, 1),
			 0);
	rules.perms = true;
	rules.chmod = "D700,F604";
	copy_tree(&rules);
	assert_int_equal(stat_of("to/d").st_mode & 07777, 0700);
	assert_int_equal(stat_of("to/f").st_mode & 07777, 0604);
	assert_int_equal(stat_of("to/large").st_mode & 07777, 0604);
}

/* ---- with a played sink ---------------------------------------------------------------- */

enum { IDS = 4096 };

/* What arrived on the only lane, and what to answer. */
struct play {
	void (*on_record)(struct play *p, struct rig_end *e, const struct record *r);
	_Atomic unsigned small, extents; /* received so far */
	unsigned small_at_last_extent, extents_at_last_small;
	uint32_t file; /* of the first FILE and DIR */
	uint32_t dir;
	int said;
};

static int say(struct rig_end *e, uint8_t type, const struct writer *w)
{
	return session_send(e->session, type, w->base, w->used);
}

static int say_stored(struct rig_end *e, uint32_t id)
{
	static struct msg_stored m;
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);

	m.count = 1;
	m.files[0] = id;
	msg_stored_encode(&w, &m);
	return say(e, MSG_STORED, &w);
}

static int say_answer(struct rig_end *e, uint32_t id, enum answer answer)
{
	static struct msg_answers m;
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);

	m.count = 1;
	m.of[0].file = id;
	m.of[0].answer = (uint8_t)answer;
	msg_answers_encode(&w, &m);
	return say(e, MSG_ANSWERS, &w);
}

static int say_cells(struct rig_end *e, uint32_t id, uint64_t pos, uint16_t count)
{
	static struct msg_cells m;
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);

	m = (struct msg_cells){.file = id, .pos = pos, .count = count};
	msg_cells_encode(&w, &m);
	return say(e, MSG_CELLS, &w);
}

static int say_failed(struct rig_end *e, uint32_t id)
{
	struct msg_file_result m = {.file = id, .code = OUT_FILE, .text = "no"};
	uint8_t body[sizeof m + 16];
	struct writer w = writer_of(body, sizeof body);

	msg_file_result_encode(&w, &m);
	return say(e, MSG_FILE_RESULT, &w);
}

static void take_records(struct play *p, struct rig_end *e, const struct block *b)
{
	struct reader reader = reader_of(b->data, b->len);
	static struct record r;

	while (record_next(&reader, &r) > 0) {
		if (r.type == RECORD_FILE && p->file == 0)
			p->file = r.file.id;
		if (r.type == RECORD_DIR && p->dir == 0)
			p->dir = r.dir.id;
		p->small += r.type == RECORD_DATA;
		if (p->on_record)
			p->on_record(p, e, &r);
	}
	p->extents_at_last_small = p->extents;
}

static int play_sink(struct rig_end *e, void *ctx)
{
	struct lane *lane = session_lane(e->session, 0);
	struct play *p = ctx;
	struct block *b;

	while (lane_recv(lane, &b) == 0) {
		if (b->kind == BLOCK_EXTENT) {
			p->extents++;
			p->small_at_last_extent = p->small;
		} else {
			take_records(p, e, b);
		}
		if (lane_put(lane, b))
			break;
	}
	return session_fail(e->session);
}

static void play(struct play *p, const struct rules *rules)
{
	set_tree(rules);
	rig.lanes = 1;
	rig.sink.play = play_sink;
	rig.sink.ctx = p;
	rig_run(&rig);
}

static void refused(void (*on_record)(struct play *p, struct rig_end *e, const struct record *r),
		    const struct rules *rules, const char *part)
{
	struct play p = {.on_record = on_record};

	play(&p, rules);
	assert_int_equal(rig.source.rc, -1);
	if (rig.source.failure.code != OUT_PROTOCOL || !strstr(rig.source.failure.text, part))
		fail_msg("source: %d %s, not %s", rig.source.failure.code, rig.source.failure.text,
			 part);
}

static bool once(struct play *p, bool now)
{
	return now && p->said++ == 0;
}

static void answer_unasked(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE_END))
		say_answer(e, p->file, ANSWER_SAME);
}

static void answer_of_dir(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_DIR))
		say_answer(e, p->dir, ANSWER_SEND);
}

static void file_is_new(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE))
		say_answer(e, p->file, ANSWER_NEW);
}

static void answer_twice(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE)) {
		say_answer(e, p->file, ANSWER_SEND);
		say_answer(e, p->file, ANSWER_SAME);
	}
}

static void cells_beyond(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE))
		say_cells(e, p->file, 0, 100);
}

static void cells_twice(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE)) {
		say_cells(e, p->file, 0, 1);
		say_cells(e, p->file, 0, 1);
	}
}

static void cells_unasked(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE))
		say_cells(e, p->file + 1000, 0, 1);
}

static void stored_unsent(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE))
		say_stored(e, p->file);
}

static void stored_dir(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_DIR))
		say_stored(e, p->dir);
}

static void stored_twice(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE_END)) {
		say_stored(e, r->end.id);
		say_stored(e, r->end.id);
	}
}

static void failed_then_stored(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_FILE_END)) {
		say_failed(e, r->end.id);
		say_stored(e, r->end.id);
	}
}

static void dir_failed_twice(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_DIR)) {
		say_failed(e, p->dir);
		say_failed(e, p->dir);
	}
}

static void nothing_failed(struct play *p, struct rig_end *e, const struct record *r)
{
	char host[HOST_MAX];
	struct failure f;

	if (!once(p, r->type == RECORD_DIR))
		return;
	say_failed(e, 0);
	/*
	 * After END it may report a failed deletion: END gets no credit before that was received.
	 */
	while (!session_failed(e->session, &f, host))
		usleep(1000);
}

static void impossible_frames_are_refused(void **state)
{
	struct rules plain = recursive(), asking = recursive();

	(void)state;
	asking.checksum = true;
	assert_int_equal(mkdir("from", 0755) | make_file("from/f", 300, 1), 0);
	refused(answer_unasked, &plain, "answers an unknown question");
	refused(answer_of_dir, &asking, "answers an unknown question");
	refused(file_is_new, &asking, "which was not announced");
	refused(answer_twice, &asking, "answers an unknown question");
	refused(cells_beyond, &asking, "cells that the file does not have");
	refused(cells_twice, &asking, "cells that the file does not have");
	refused(cells_unasked, &asking, "answers an unknown question");
	refused(stored_unsent, &asking, "unknown file");
	refused(stored_dir, &plain, "unknown file");
	refused(stored_twice, &plain, "unknown file");
	refused(failed_then_stored, &plain, "unknown file");
	refused(dir_failed_twice, &plain, "unknown file");
	refused(nothing_failed, &plain, "unknown file");
	assert_int_equal(make_file("from/f", 5 << 20, 1), 0);
	refused(stored_unsent, &plain, "unknown file");
}

/* A lane sends a piece of a large file and a block of small files alternately. */
static void large_and_small_files_alternate(void **state)
{
	enum { SMALL = 1500 };
	struct rules rules = recursive();
	struct play p = {0};

	(void)state;
	assert_int_equal(mkdir("from", 0755), 0);
	make_some("from/", SMALL, 3000);
	/* In any order of finding, most files are still to come. */
	assert_int_equal(make_file("from/large", 3 << 20, 1), 0);
	set_tree(&rules);
	rig.lanes = 1;
	rig.sink.play = play_sink;
	rig.sink.ctx = &p;
	assert_int_equal(rig_start(&rig), 0);
	/* However busy the machine is. */
	for (int i = 0; i < 60000 && (p.small < SMALL || p.extents < 48); i++)
		usleep(1000);
	rig_cut(&rig);
	rig_join(&rig);
	assert_int_equal(p.small, SMALL);
	assert_true(p.extents >= 48);
	/* Either kind may end first, but not before it has had as many turns. */
	if (p.small_at_last_extent < SMALL) {
		unsigned blocks = p.small_at_last_extent / (65536 / 3800);

		assert_true(blocks + 8 >= p.extents / 2);
	} else {
		assert_true(p.extents_at_last_small >= 20);
	}
}

enum { BROKEN_FILES = 50 };

/* The source has sent everything when the wire breaks, and waits for results. */
static void break_once(struct play *p, struct rig_end *e, const struct record *r)
{
	if (once(p, r->type == RECORD_DIR)) {
		usleep(300000);
		lane_break(session_lane(e->session, 0), 0, "a test wants it");
	}
	if (r->type == RECORD_DATA && p->small == BROKEN_FILES)
		rig_cut(&rig);
}

static void *cut_at_last(void *arg)
{
	(void)arg;
	sleep(20);
	rig_cut(&rig);
	return NULL;
}

static void wire_break_while_waiting_for_results_is_survived(void **state)
{
	struct play p = {.on_record = break_once};
	struct rules rules = recursive();
	pthread_t late;

	(void)state;
	assert_int_equal(mkdir("from", 0755), 0);
	make_some("from/", BROKEN_FILES, 300);
	/* Removed when all files have their results. */
	assert_int_equal(symlink("0", "from/link"), 0);
	set_tree(&rules);
	rig.lanes = 1;
	rig.depth = 16;
	rig.block_size = 4 << 10;
	rig.sink.play = play_sink;
	rig.sink.ctx = &p;
	assert_int_equal(rig_start(&rig), 0);
	assert_int_equal(pthread_create(&late, NULL, cut_at_last, NULL), 0);
	rig_join(&rig);
	pthread_cancel(late);
	pthread_join(late, NULL);
	assert_int_equal(p.small, BROKEN_FILES);
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(many_directories_are_copied),
		copy_test(many_large_files_are_copied),
		copy_test(huge_file_does_not_delay_large_ones),
		copy_test(many_questions_are_answered),
		copy_test(checksum_compares_contents),
		copy_test(hard_links_are_linked_to_their_first_name),
		copy_test(failed_first_name_fails_alone),
		copy_test(file_with_too_many_attributes_fails_alone),
		copy_test(unreadable_first_name_fails_alone),
		copy_test(all_source_names_are_kept_from_deletion),
		copy_test(sources_in_trees_are_removed),
		copy_test(missing_entries_are_reported),
		copy_test(chmod_changes_modes),
		copy_test(impossible_frames_are_refused),
		copy_test(large_and_small_files_alternate),
		copy_test(wire_break_while_waiting_for_results_is_survived),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("copy_source", tests, NULL, NULL);
}
