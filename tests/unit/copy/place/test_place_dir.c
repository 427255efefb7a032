/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "place_rig.h"

static const char *const want_src[] = {"src"};
/* This directory takes the place of the next one that is made. */
static const char *swap_with;

/* Replaces the C library's function. */
int mkdirat(int in, const char *name, mode_t mode)
{
	long ret = syscall(SYS_mkdirat, in, name, mode);

	if (ret == 0 && swap_with) {
		ret = unlinkat(in, name, AT_REMOVEDIR) || renameat(AT_FDCWD, swap_with, in, name);
		swap_with = NULL;
	}
	return (int)ret;
}

static struct place_opts opts(const char *target, const struct rules *r)
{
	return (struct place_opts){.target = target, .wants = want_src, .peer = "h", .rules = r};
}

static struct place *at(const char *target, const struct rules *r)
{
	struct place_opts o = opts(target, r);

	return open_place(&o);
}

static void assert_failed(int ret, enum outcome code, const char *part)
{
	assert_int_equal(ret, -1);
	assert_int_equal(failed()->code, code);
	if (!strstr(failed()->text, part))
		fail_msg("\"%s\" does not say \"%s\"", failed()->text, part);
}

/* ---- resolving the target -------------------------------------------------------------- */

static void absent_target_becomes_the_directory(void **state)
{
	struct place *p = at("dst", &rules_r);
	struct place_dir *d = put_dir(p, NULL, "src", 0755), *e;
	char name[256], path[64];

	(void)state;
	put_file(p, d, "f", "new");
	e = put_dir(p, d, "e", 0750);
	put_file(p, e, "g", "new");
	assert_int_equal(mode_of("dst"), 0755);
	assert_int_equal(mode_of("dst/e"), 0750);
	/* The marker exists until the end. */
	assert_int_equal(temporaries("dst", name), 1);
	assert_int_equal(strncmp(name, ".sluice.marker.", 15), 0);
	assert_int_equal(place_path(e, "g", path, sizeof path), 7);
	assert_string_equal(path, "src/e/g");
	assert_int_equal(place_path(e, "", path, sizeof path), 5);
	assert_string_equal(path, "src/e");
	assert_int_equal(place_path(e, "g", path, 5), 4);
	assert_string_equal(path, "/e/g");
	assert_int_equal(place_path(NULL, "g", path, 5), 1);
	assert_string_equal(path, "g");
	finish_place(p);
	assert_text("dst/f", "new");
	assert_text("dst/e/g", "new");
	assert_int_equal(mode_of("dst"), 0755);
	assert_int_equal(mode_of("dst/e"), 0750);
	assert_int_equal(temporaries("dst", name), 0);
	assert_no_temporaries();
}

static void directory_keeps_its_name_in_an_existing_target(void **state)
{
	struct place *p;
	struct place_dir *d;
	char name[256];

	(void)state;
	make_dir("dst", 0710);
	p = at("dst", &rules_r);
	d = put_dir(p, NULL, "src", 0755);
	put_file(p, d, "f", "new");
	assert_int_equal(temporaries("dst", name), 0);
	finish_place(p);
	assert_text("dst/src/f", "new");
	assert_int_equal(mode_of("dst"), 0710);
	assert_int_equal(mode_of("dst/src"), 0755);
}

static void contents_go_into_the_target(void **state)
{
	struct place *p = at("dst/", &rules_r);
	struct place_dir *d = put_contents(p, 0751);
	char name[256], path[8];

	(void)state;
	put_file(p, d, "f", "new");
	put_dir(p, d, "e", 0755);
	assert_int_equal(place_path(d, "f", path, sizeof path), 1);
	assert_string_equal(path, "f");
	assert_int_equal(temporaries("dst", name), 0);
	finish_place(p);
	assert_int_equal(mode_of("dst"), 0751);
	p = at("dst", &rules_r);
	d = put_contents(p, 0700);
	put_file(p, d, "f", "more");
	finish_place(p);
	assert_text("dst/f", "more");
	assert_int_equal(mode_of("dst"), 0751);
}

static void several_sources_need_an_existing_target(void **state)
{
	struct place_opts o = opts("dst", &rules_r);
	struct place *p;

	(void)state;
	o.many = true;
	assert_failed(place_open(&o, &p), OUT_FILE, "dst: no such directory (--mkpath");
	make_dir("dst", 0755);
	p = open_place(&o);
	put_file(p, put_dir(p, NULL, "a", 0755), "f", "1");
	put_file(p, put_dir(p, NULL, "b", 0755), "f", "2");
	finish_place(p);
	assert_text("dst/a/f", "1");
	assert_text("dst/b/f", "2");
}

static void file_is_not_replaced_by_a_source_directory(void **state)
{
	struct place *p;
	struct change c;

	(void)state;
	make("dst", "old", 0644);
	p = at("dst", &rules_r);
	assert_failed(try_dir(p, NULL, "src", &c), OUT_FILE, "dst is not a directory");
	place_close(p);
	assert_text("dst", "old");
	p = at("/dev/null", &rules_r);
	assert_failed(try_dir(p, NULL, "src", &c), OUT_FILE, "/dev/null is not a directory");
	place_close(p);
}

static void target_with_a_slash_takes_no_file(void **state)
{
	struct rules rules = rules_r;
	struct place_opts o = opts("dst/", &rules);
	struct place *p;

	(void)state;
	p = open_place(&o);
	assert_failed(try_file(p, NULL, "f", "x"), OUT_FILE, "--mkpath");
	place_close(p);
	assert_absent("dst");
	make_dir("dst", 0755);
	o.target = "dst";
	rules.no_target_dir = true;
	p = open_place(&o);
	assert_failed(try_file(p, NULL, "f", "x"), OUT_FILE, "dst is a directory, not a file");
	put_file(p, put_contents(p, 0755), "f", "x");
	finish_place(p);
	assert_text("dst/f", "x");
}

static void mkpath_makes_parents(void **state)
{
	struct rules rules = rules_r;
	struct place_opts o = opts("a/b/dst", &rules);
	struct place *p;

	(void)state;
	assert_failed(place_open(&o, &p), OUT_FILE, "directory a/b does not exist (--mkpath");
	rules.mkpath = true;
	p = open_place(&o);
	put_file(p, put_dir(p, NULL, "src", 0755), "f", "x");
	finish_place(p);
	assert_text("a/b/dst/f", "x");
	o.target = "a/c/";
	p = open_place(&o);
	put_file(p, put_dir(p, NULL, "src", 0755), "f", "x");
	finish_place(p);
	assert_text("a/c/src/f", "x");
}

static void relative_paths_go_below_the_target(void **state)
{
	struct rules r = rules_r;
	struct place *p;
	struct place_dir *d;

	(void)state;
	r.relative = true;
	p = at("dst", &r);
	d = put_dir(p, NULL, "a", 0755);
	put_file(p, put_dir(p, d, "b", 0755), "f", "x");
	finish_place(p);
	assert_text("dst/a/b/f", "x");
	p = at("dst", &r);
	put_file(p, put_dir(p, NULL, "a", 0755), "g", "x");
	finish_place(p);
	assert_text("dst/a/g", "x");
}

/* ---- rerunning ------------------------------------------------------------------------- */

static void rerun_continues_and_never_nests(void **state)
{
	struct place *p = at("dst", &rules_r);
	struct place_dir *d = put_dir(p, NULL, "src", 0755);

	(void)state;
	put_file(p, d, "f", "new");
	put_dir(p, d, "e", 0755);
	place_close(p);
	p = at("dst/", &rules_r);
	d = put_dir(p, NULL, "src", 0755);
	put_file(p, d, "f", "newer");
	put_dir(p, d, "e", 0755);
	finish_place(p);
	assert_text("dst/f", "newer");
	assert_absent("dst/src");
	/* As if it had not been interrupted. */
	assert_int_equal(mode_of("dst"), 0755);
	assert_int_equal(mode_of("dst/e"), 0755);
	/* Now it exists. */
	p = at("dst", &rules_r);
	put_file(p, put_dir(p, NULL, "src", 0755), "f", "x");
	finish_place(p);
	assert_text("dst/src/f", "x");
}

static void marker_belongs_to_one_source(void **state)
{
	static const char *const other[] = {"other"}, *const spelt[] = {"././src//"};
	struct place_opts o = opts("dst", &rules_r);
	struct place *p = open_place(&o);

	(void)state;
	put_dir(p, NULL, "src", 0755);
	place_close(p);
	o.wants = other;
	p = open_place(&o);
	put_dir(p, NULL, "src", 0755);
	finish_place(p);
	assert_int_equal(mode_of("dst/src"), 0755);
	assert_int_equal(rmdir("dst/src"), 0);
	o.wants = want_src;
	o.peer = "elsewhere";
	p = open_place(&o);
	put_dir(p, NULL, "src", 0755);
	finish_place(p);
	assert_int_equal(rmdir("dst/src"), 0);
	o.peer = "h";
	o.wants = spelt;
	p = open_place(&o);
	put_dir(p, NULL, "src", 0755);
	finish_place(p);
	assert_absent("dst/src");
	assert_int_equal(rmdir("dst"), 0);
}

/* Killed between any two steps of making the target: nothing left by that is used. */
static void half_made_target_is_removed(void **state)
{
	static const char left[] = ".sluice.0123456789abcdef.01234567";
	struct place *p = at("dst", &rules_r);
	char marker[256], inner[300];

	(void)state;
	put_dir(p, NULL, "src", 0755);
	assert_int_equal(temporaries("dst", marker), 1);
	place_close(p);
	assert_int_equal(rename("dst", left), 0);
	p = at("dst", &rules_r);
	put_dir(p, NULL, "src", 0755);
	finish_place(p);
	assert_no_temporaries();
	assert_int_equal(rmdir("dst"), 0);

	assert_int_equal(mkdir(left, 0700), 0);
	p = at("dst", &rules_r);
	put_dir(p, NULL, "src", 0755);
	finish_place(p);
	assert_no_temporaries();
	assert_int_equal(rmdir("dst"), 0);

	/* An object of another user with a predictable name is left alone. */
	assert_int_equal(mkdir(marker, 0700), 0);
	snprintf(inner, sizeof inner, "%s/mine", marker);
	make(inner, "mine", 0644);
	p = at("dst", &rules_r);
	put_dir(p, NULL, "src", 0755);
	finish_place(p);
	assert_text(inner, "mine");
	assert_int_equal(rmdir("dst"), 0);
}

static void interrupted_run_leaves_final_modes(void **state)
{
	struct place *p;
	struct place_dir *d;

	(void)state;
	make_dir("dst", 0755);
	make_dir("dst/src", 0755);
	p = at("dst", &rules_r);
	d = put_dir(p, NULL, "src", 0755);
	put_dir(p, d, "new", 0751);
	put_dir(p, d, "shared", 0777);
	put_dir(p, d, "locked", 0500);
	assert_int_equal(mode_of("dst/src/locked"), 0700);
	place_close(p);
	assert_int_equal(mode_of("dst/src/new"), 0751);
	assert_int_equal(mode_of("dst/src/shared"), 0755);
	assert_int_equal(mode_of("dst/src/locked"), 0500);
	p = at("dst", &rules_a);
	d = put_dir(p, NULL, "src", 0755);
	put_dir(p, d, "a", 01777);
	put_dir(p, d, "b", 02500);
	assert_int_equal(mode_of("dst/src/a"), 01777);
	assert_int_equal(mode_of("dst/src/b"), 02700);
	place_close(p);
	assert_int_equal(mode_of("dst/src/b"), 02500);
}

/* For any mode: 0 means that a run was interrupted. */
static void private_directories_stay_private(void **state)
{
	static const mode_t modes[] = {0700, 01700, 03700};
	struct place *p;
	struct place_dir *d;

	(void)state;
	make_dir("dst", 0755);
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
		make_dir("dst/private", modes[i]);
		assert_int_equal(chmod("dst", modes[i]), 0);
		p = at("dst", &rules_r);
		d = put_contents(p, 0755);
		put_file(p, put_dir(p, d, "private", 0755), "f", "x");
		finish_place(p);
		assert_int_equal(mode_of("dst"), modes[i]);
		assert_int_equal(mode_of("dst/private"), modes[i]);
		assert_int_equal(unlink("dst/private/f"), 0);
		assert_int_equal(rmdir("dst/private"), 0);
	}
}

/* In a directory that others may write to, names can be exchanged at any moment. */
static void swapped_directory_is_not_trusted(void **state)
{
	static const mode_t planted[] = {0777, 0755, 01700};
	struct place *p;
	struct place_dir *d, *e;
	char name[] = "dst/0";

	(void)state;
	make_dir("dst", 0777);
	p = at("dst", &rules_r);
	d = put_contents(p, 0777);
	e = put_dir(p, d, "honest", 0700);
	assert_true(place_dir_fresh(e));
	for (unsigned i = 0; i < sizeof planted / sizeof *planted; i++) {
		make_dir("planted", planted[i]);
		make("planted/f", "old", 0644);
		swap_with = "planted";
		name[4] = (char)('0' + i);
		e = put_dir(p, d, name + 4, 0700);
		assert_null(swap_with);
		assert_false(place_dir_fresh(e));
		put_file(p, e, "f", "new");
		assert_int_equal(mode_of(name), planted[i]);
	}
	if (geteuid() == 0) {
		make_dir("planted", 0700);
		assert_int_equal(chown("planted", 1, 1), 0);
		swap_with = "planted";
		e = put_dir(p, d, "theirs", 0700);
		assert_false(place_dir_fresh(e));
	}
	finish_place(p);
	assert_int_equal(mode_of("dst/0"), 0777);
	assert_int_equal(mode_of("dst/2"), 01700);
}

/* ---- existing directories --------------------------------------------------------------- */

static void other_types_are_replaced_by_the_directory(void **state)
{
	struct place *p;
	struct place_dir *d;
	struct change c;

	(void)state;
	make_dir("outside", 0755);
	make_dir("dst", 0755);
	assert_int_equal(symlink("../outside", "dst/link"), 0);
	make("dst/file", "old", 0644);
	assert_int_equal(mkfifo("dst/fifo", 0600), 0);
	p = at("dst", &rules_r);
	d = put_contents(p, 0755);
	assert_int_equal(try_dir(p, d, "link", &c), 0);
	assert_true(c.type && !c.missing);
	assert_int_equal(try_dir(p, d, "file", &c), 0);
	assert_true(c.type && !c.missing);
	assert_int_equal(try_dir(p, d, "fifo", &c), 0);
	assert_int_equal(try_dir(p, d, "new", &c), 0);
	assert_true(c.missing && !c.type);
	assert_int_equal(try_dir(p, d, "new", &c), 0);
	assert_false(c.missing || c.type);
	put_file(p, put_dir(p, d, "link", 0755), "f", "x");
	finish_place(p);
	assert_text("dst/link/f", "x");
	assert_absent("outside/f");
	assert_int_equal(rmdir("outside"), 0);
}

static void hostile_directory_names_are_refused(void **state)
{
	static const char *const names[] = {"", ".", "..", "a/b", "/", "/tmp", "x/", "../x"};
	struct place *p = at("dst", &rules_r);
	struct place_dir *d = put_dir(p, NULL, "src", 0755), *out;
	struct record_dir r = dir_record("", 0755);
	struct change c;

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		assert_failed(try_dir(p, d, names[i], &c), OUT_PROTOCOL,
			      "not a valid directory name");
		assert_failed(try_dir(p, NULL, names[i], &c), OUT_PROTOCOL,
			      "not a valid directory name");
		assert_failed(try_file(p, d, names[i], "x"), OUT_PROTOCOL, "not a valid file name");
		assert_failed(try_symlink(p, d, names[i], "x", &c), OUT_PROTOCOL,
			      "not a valid file name");
	}
	r.flags = DIR_CONTENTS;
	assert_failed(place_make_dir(p, d, &r, &out, &c), OUT_PROTOCOL,
		      "not a valid directory name");
	finish_place(p);
}

static void own_directories_without_permissions_get_them_temporarily(void **state)
{
	struct place *p;
	struct place_dir *d;

	(void)state;
	assert_int_equal(chmod(".", 0777), 0);
	if (geteuid() == 0 && (setegid(1) || seteuid(1)))
		fail_msg("seteuid: %m");
	make_dir("dst", 0755);
	make_dir("dst/d", 0755);
	make_dir("dst/d/e", 0000);
	assert_int_equal(chmod("dst/d", 02500), 0);
	for (int interrupted = 0; interrupted < 2; interrupted++) {
		p = at("dst", &rules_r);
		d = put_contents(p, 0755);
		d = put_dir(p, d, "d", 0755);
		put_file(p, d, "f", "x");
		put_file(p, put_dir(p, d, "e", 0755), "g", "x");
		if (interrupted)
			place_close(p);
		else
			finish_place(p);
		assert_int_equal(mode_of("dst/d"), 02500);
		assert_int_equal(mode_of("dst/d/e"), 0000);
	}
	assert_text("dst/d/f", "x");
	if (getuid() == 0 && (seteuid(0) || setegid(0)))
		fail_msg("seteuid: %m");
}

/* ---- many, and deep ----------------------------------------------------------------------- */

enum { MANY = 500, DEEP = 700 };

static void more_directories_than_descriptors_work(void **state)
{
	struct place *p = at("dst", &rules_r);
	struct place_dir *top = put_dir(p, NULL, "src", 0755), *dirs[MANY];
	char name[32];
	int fd;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof name, "%d", i);
		dirs[i] = put_dir(p, top, name, 0755);
	}
	fd = open(".", O_RDONLY | O_CLOEXEC);
	assert_true(fd < 256);
	close(fd);
	for (int i = 0; i < MANY; i++)
		put_file(p, dirs[i * 7 % MANY], "f", "x");
	/* A directory that was exchanged is not used. */
	assert_int_equal(rename("dst/0", "dst/old"), 0);
	assert_int_equal(mkdir("dst/0", 0755), 0);
	for (int i = 1; i < MANY; i++)
		put_file(p, dirs[i], "g", "x");
	assert_failed(try_file(p, dirs[0], "g", "x"), OUT_FILE,
		      "another directory has replaced it");
	assert_int_equal(rmdir("dst/0"), 0);
	assert_int_equal(rename("dst/old", "dst/0"), 0);
	finish_place(p);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof name, "dst/%d/f", i);
		assert_text(name, "x");
		snprintf(name, sizeof name, "dst/%d", i);
		assert_int_equal(mode_of(name), 0755);
	}
}

/* Each with a file in progress in it. */
static void more_directories_in_use_than_held_open_work(void **state)
{
	enum { IN_USE = 200 };
	struct place *p = at("dst", &rules_r);
	struct place_dir *top = put_dir(p, NULL, "src", 0755), *dirs[IN_USE];
	struct record_file r = file_record("f", 0644, 0);
	struct placement *t[IN_USE];
	char name[32];

	(void)state;
	for (int i = 0; i < IN_USE; i++) {
		snprintf(name, sizeof name, "%d", i);
		dirs[i] = put_dir(p, put_dir(p, top, name, 0755), "d", 0755);
	}
	for (int i = 0; i < IN_USE; i++)
		assert_int_equal(place_begin(p, dirs[i], &r, &t[i]), 0);
	for (int i = 0; i < IN_USE; i++)
		assert_int_equal(place_finish_file(t[i], 0), 0);
	finish_place(p);
	assert_text("dst/0/d/f", "");
	assert_text("dst/199/d/f", "");
}

enum { THREADS = 4, SHARED = 260, OWN = 60 };

struct actor {
	struct place *p;
	struct place_dir *const *shared;
	struct place_dir *top;
	int number;
	int failures;
};

static int put_something(struct place *p, struct place_dir *d, const char *name)
{
	struct record_file r = {
		.id = 1,
		.type = TYPE_REGULAR,
		.size = 1,
		.flags = FILE_LINKED,
		.a = {.mode = 0644},
	};
	struct placement *t;

	snprintf(r.name, sizeof r.name, "%s", name);
	if (place_begin(p, d, &r, &t))
		return 1;
	if (write(placement_fd(t), "x", 1) != 1) {
		place_drop(t, false);
		return 1;
	}
	return place_finish_file(t, 1) != 0;
}

/* A file in every shared directory, with private directories in between. */
static void *act(void *arg)
{
	struct actor *a = arg;
	struct record_dir r = {.a = {.mode = 0755}};
	struct place_dir *own = a->top;
	struct change c;
	char name[32];

	for (int i = 0; i < SHARED; i++) {
		snprintf(name, sizeof name, "f%d", a->number);
		a->failures += put_something(a->p, a->shared[(i * 7 + a->number) % SHARED], name);
		if (i % (SHARED / OWN) != 0)
			continue;
		/* All threads use the same ones. */
		snprintf(r.name, sizeof r.name, "own%d", i);
		a->failures += place_make_dir(a->p, own, &r, &own, &c) != 0;
		a->failures += put_something(a->p, own, name);
	}
	return NULL;
}

static void several_threads_make_directories(void **state)
{
	struct place *p = at("dst", &rules_a);
	struct place_dir *top = put_dir(p, NULL, "src", 0755), *shared[SHARED];
	struct actor actors[THREADS];
	pthread_t threads[THREADS];
	char name[32];
	int failures = 0;

	(void)state;
	for (int i = 0; i < SHARED; i++) {
		snprintf(name, sizeof name, "%d", i);
		shared[i] = put_dir(p, top, name, 0755);
	}
	for (int i = 0; i < THREADS; i++) {
		actors[i] = (struct actor){.p = p, .shared = shared, .top = top, .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		failures += actors[i].failures;
	}
	assert_int_equal(failures, 0);
	finish_place(p);
	for (int i = 0; i < SHARED; i++) {
		snprintf(name, sizeof name, "dst/%d/f%d", i, i % THREADS);
		assert_text(name, "x");
	}
	assert_no_temporaries();
}

static void trees_deeper_than_path_max_work(void **state)
{
	struct place *p = at("dst", &rules_a);
	struct place_dir *d = put_dir(p, NULL, "src", 0755), *first = NULL;
	char path[PATH_MAX * 3];
	struct stat st;
	int fd = AT_FDCWD, next;

	(void)state;
	for (int i = 0; i < DEEP; i++) {
		d = put_dir(p, d, "eight888", 0755);
		if (i == 0)
			first = d;
	}
	put_file(p, first, "f", "x");
	put_file(p, d, "f", "x");
	assert_int_equal(place_path(d, "f", path, sizeof path), 3 + DEEP * 9 + 2);
	assert_int_equal(strncmp(path, "src/eight888/eight", 18), 0);
	finish_place(p);
	for (int i = 0; i <= DEEP; i++) {
		next = openat(fd, i ? "eight888" : "dst", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		if (i)
			close(fd);
		fd = next;
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0755);
		assert_int_equal(st.st_mtim.tv_sec, 1000);
		assert_int_equal(st.st_mtim.tv_nsec, 500000000);
	}
	assert_int_equal(fstatat(fd, "f", &st, 0), 0);
	close(fd);
}

/* ---- metadata ------------------------------------------------------------------------------ */

static void directory_metadata_is_set_at_the_end(void **state)
{
	struct place *p = at("dst", &rules_a);
	struct place_dir *d = put_dir(p, NULL, "src", 0500), *e = put_dir(p, d, "e", 01777);
	struct stat st;

	(void)state;
	put_file(p, e, "f", "x");
	put_file(p, d, "f", "x");
	finish_place(p);
	assert_int_equal(lstat("dst", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0500);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(lstat("dst/e", &st), 0);
	assert_int_equal(st.st_mode & 07777, 01777);
	assert_int_equal(st.st_mtim.tv_nsec, 500000000);
}

static void directory_changes_are_reported(void **state)
{
	struct record_dir r = dir_record("d", 0751);
	struct place *p;
	struct place_dir *d;
	struct change c;

	(void)state;
	make_dir("dst", 0755);
	make_dir("dst/d", 0755);
	p = at("dst", &rules_r);
	assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	assert_false(change_any(&c));
	finish_place(p);
	p = at("dst", &rules_a);
	assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	assert_true(c.what == EVENT_DIR && c.perms && c.time && !c.owner && !c.group && !c.missing);
	finish_place(p);
	p = at("dst", &rules_a);
	assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	assert_false(change_any(&c));
	r.a.uid = 5;
	r.a.gid = 6;
	assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	assert_int_equal(c.owner, geteuid() == 0);
	place_close(p);
}

static void set_group_id_of_directories_follows_the_rules(void **state)
{
	struct place *p;
	struct place_dir *d;
	struct record_dir r = dir_record("s", 02775);
	struct change c;

	(void)state;
	make_dir("dst", 02755);
	p = at("dst", &rules_r);
	put_dir(p, NULL, "inherits", 0755);
	put_dir(p, NULL, "never", 06755);
	finish_place(p);
	assert_int_equal(mode_of("dst/inherits"), 02755);
	assert_int_equal(mode_of("dst/never"), 02755);
	p = at("dst", &rules_a);
	put_dir(p, NULL, "not", 0755);
	assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	if (geteuid() != 0) {
		r = dir_record("t", 02775);
		r.a.gid = 54321;
		assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	}
	finish_place(p);
	assert_int_equal(mode_of("dst/not"), 0755);
	assert_int_equal(mode_of("dst/s"), 02775);
	if (geteuid() != 0)
		assert_int_equal(mode_of("dst/t"), 0775);
}

static void implied_target_keeps_its_metadata(void **state)
{
	struct record_dir r = dir_record("", 0700);
	struct place *p;
	struct place_dir *d;
	struct change c;
	struct stat before, after;

	(void)state;
	make_dir("dst", 0755);
	make_dir("dst/d", 0755);
	assert_int_equal(stat("dst", &before), 0);
	r.flags = DIR_CONTENTS | DIR_IMPLIED;
	p = at("dst", &rules_a);
	assert_int_equal(place_make_dir(p, NULL, &r, &d, &c), 0);
	put_dir(p, d, "d", 0711);
	finish_place(p);
	assert_int_equal(stat("dst", &after), 0);
	assert_int_equal(after.st_mode & 07777, 0755);
	assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
	assert_int_equal(mode_of("dst/d"), 0711);
}

/* Two directories merge into one, in either order: `mode' is the result of 0711 and 0750. */
static void meet_twice(const struct rules *rules, bool again_first, mode_t was, mode_t mode)
{
	struct record_dir first = dir_record("d", 0711), again = dir_record("d", 0750);
	struct place *p;
	struct place_dir *d;
	struct change c;
	struct stat st;

	make_dir("dst", 0755);
	if (was)
		make_dir("dst/d", was);
	first.a.mtime_s = 1000;
	again.a.mtime_s = 2000;
	again.flags = DIR_AGAIN;
	p = at("dst", rules);
	assert_int_equal(place_make_dir(p, NULL, again_first ? &again : &first, &d, &c), 0);
	assert_int_equal(place_make_dir(p, NULL, again_first ? &first : &again, &d, &c), 0);
	put_file(p, d, "f", "new");
	finish_place(p);
	assert_int_equal(stat("dst/d", &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	if (rules->times)
		assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(unlink("dst/d/f"), 0);
	assert_int_equal(rmdir("dst/d"), 0);
	assert_int_equal(rmdir("dst"), 0);
}

static void first_of_merged_directories_decides(void **state)
{
	(void)state;
	for (int again_first = 0; again_first < 2; again_first++) {
		meet_twice(&rules_a, again_first, 0, 0711);
		meet_twice(&rules_a, again_first, 0555, 0711);
		meet_twice(&rules_r, again_first, 0, 0711);
		meet_twice(&rules_r, again_first, 0555, 0555);
	}
}

/* ---- dry runs ----------------------------------------------------------------------------- */

static void dry_run_changes_nothing(void **state)
{
	struct rules dry = rules_a;
	struct place_opts o = opts("a/b/dst", &dry);
	struct place *p;
	struct place_dir *d, *e;
	struct record_file r = file_record("f", 0644, 3);
	struct looked looked;
	struct change c;
	struct record_dir rd = dir_record("src", 0700);

	(void)state;
	dry.dry_run = true;
	dry.mkpath = true;
	p = open_place(&o);
	assert_int_equal(place_make_dir(p, NULL, &rd, &d, &c), 0);
	assert_true(c.missing);
	e = put_dir(p, d, "e", 0755);
	assert_int_equal(place_look(p, e, &r, NULL, &looked), 0);
	assert_int_equal(looked.look, LOOK_MISSING);
	assert_true(looked.change.missing);
	assert_int_equal(place_update_metadata(p, e, &r, NULL), 0);
	assert_int_equal(try_symlink(p, e, "l", "to", &c), 0);
	assert_true(c.missing);
	finish_place(p);
	assert_absent("a");

	make_dir("dst", 0755);
	make("dst/src", "old", 0644);
	o.target = "dst";
	p = open_place(&o);
	assert_int_equal(place_make_dir(p, NULL, &rd, &d, &c), 0);
	assert_true(c.type);
	assert_int_equal(place_look(p, d, &r, NULL, &looked), 0);
	assert_int_equal(looked.look, LOOK_MISSING);
	finish_place(p);
	assert_text("dst/src", "old");

	assert_int_equal(unlink("dst/src"), 0);
	make_dir("dst/src", 0711);
	make("dst/src/f", "old", 0644);
	p = open_place(&o);
	assert_int_equal(place_make_dir(p, NULL, &rd, &d, &c), 0);
	assert_true(!c.missing && c.perms && c.time);
	assert_int_equal(place_look(p, d, &r, NULL, &looked), 0);
	assert_int_equal(looked.look, LOOK_OTHER);
	assert_int_equal(place_update_metadata(p, d, &r, NULL), 0);
	finish_place(p);
	assert_int_equal(mode_of("dst/src"), 0711);
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(absent_target_becomes_the_directory),
		place_test(directory_keeps_its_name_in_an_existing_target),
		place_test(contents_go_into_the_target),
		place_test(several_sources_need_an_existing_target),
		place_test(file_is_not_replaced_by_a_source_directory),
		place_test(target_with_a_slash_takes_no_file),
		place_test(mkpath_makes_parents),
		place_test(relative_paths_go_below_the_target),
		place_test(rerun_continues_and_never_nests),
		place_test(marker_belongs_to_one_source),
		place_test(half_made_target_is_removed),
		place_test(interrupted_run_leaves_final_modes),
		place_test(private_directories_stay_private),
		place_test(swapped_directory_is_not_trusted),
		place_test(other_types_are_replaced_by_the_directory),
		place_test(hostile_directory_names_are_refused),
		place_test(own_directories_without_permissions_get_them_temporarily),
		place_test(more_directories_than_descriptors_work),
		place_test(more_directories_in_use_than_held_open_work),
		place_test(several_threads_make_directories),
		place_test(trees_deeper_than_path_max_work),
		place_test(directory_metadata_is_set_at_the_end),
		place_test(directory_changes_are_reported),
		place_test(set_group_id_of_directories_follows_the_rules),
		place_test(implied_target_keeps_its_metadata),
		place_test(first_of_merged_directories_decides),
		place_test(dry_run_changes_nothing),
	};

	return cmocka_run_group_tests_name("place_dir", tests, NULL, NULL);
}
