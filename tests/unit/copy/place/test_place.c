/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/names/name.h"
#include "copy/place/place.h"
#include "place_rig.h"

/* With -p. */
static const struct rules minus_p = {
	.perms = true,
	.times = true,
	.atimes = true,
	.max_size = UINT64_MAX,
	.max_delete = UINT64_MAX,
	.backup_dir = "",
	.suffix = "",
	.chmod = "",
	.chown = "",
};

static struct record_file record_of(const char *name)
{
	struct record_file r = {
		.id = 1,
		.type = TYPE_REGULAR,
		.size = 3,
		.a = {.mode = 0664, .mtime_s = 1000, .atime_s = 2000},
	};

	memcpy(r.name, name, strlen(name) + 1);
	return r;
}

/* Write a file named name with the text "new" to the target; 0, or -1 with the failure. */
static int put_as(const struct place_opts *o, const struct record_file *r)
{
	struct placement *t;
	struct place *p;
	int ret;

	if (place_open(o, &p))
		return -1;
	ret = place_begin(p, NULL, r, &t);
	if (ret == 0) {
		assert_int_equal(write(placement_fd(t), "new", 3), 3);
		ret = place_finish_file(t, 3);
	}
	place_close(p);
	return ret;
}

static int put(const char *target, const char *name)
{
	struct place_opts o = {.target = target};
	struct record_file r = record_of(name);

	return put_as(&o, &r);
}

static void assert_refused(int ret, enum outcome code, const char *part)
{
	assert_int_equal(ret, -1);
	assert_int_equal(failed()->code, code);
	if (!strstr(failed()->text, part))
		fail_msg("\"%s\" does not say \"%s\"", failed()->text, part);
	assert_no_temporaries();
}

/* ---- resolving the target ------------------------------------------------------------ */

static void absent_target_becomes_the_file(void **state)
{
	(void)state;
	assert_int_equal(put("there", "here"), 0);
	assert_text("there", "new");
	assert_int_equal(mode_of("there"), 0644);
	assert_no_temporaries();
}

static void file_keeps_its_name_in_a_directory(void **state)
{
	(void)state;
	mkdir("d", 0755);
	assert_int_equal(put("d", "f"), 0);
	assert_int_equal(put("d/", "g"), 0);
	assert_int_equal(put("", "h"), 0);
	assert_text("d/f", "new");
	assert_text("d/g", "new");
	assert_text("h", "new");
}

static void slash_or_many_sources_need_a_directory(void **state)
{
	struct place_opts many = {.target = "f", .many = true};
	struct place_opts absent = {.target = "absent", .many = true};
	struct record_file r = record_of("x");

	(void)state;
	make("f", "old", 0644);
	assert_refused(put("f/", "x"), OUT_FILE, "Not a directory");
	assert_refused(put("absent/", "x"), OUT_FILE, "--mkpath");
	assert_refused(put_as(&many, &r), OUT_FILE, "f is not a directory");
	assert_refused(put_as(&absent, &r), OUT_FILE, "absent: no such directory (--mkpath");
	r.flags = FILE_MANY;
	many.many = false;
	assert_refused(put_as(&many, &r), OUT_FILE, "f is not a directory");
	assert_text("f", "old");
}

static void minus_T_wants_none(void **state)
{
	const struct rules file = {RULES_DEFAULTS, .no_target_dir = true};
	struct place_opts o = {.target = "d", .rules = &file};
	struct record_file r = record_of("x");

	(void)state;
	mkdir("d", 0755);
	assert_refused(put_as(&o, &r), OUT_FILE, "d is a directory");
	o.target = "e";
	assert_int_equal(put_as(&o, &r), 0);
	assert_text("e", "new");
}

static void missing_parent_is_named(void **state)
{
	const struct rules mkpath = {RULES_DEFAULTS, .mkpath = true};
	struct place_opts o = {.target = "a/b/c", .rules = &mkpath};
	struct record_file r = record_of("x");
	struct stat st;

	(void)state;
	assert_refused(put("a/b/c", "x"), OUT_FILE, "directory a/b does not exist");
	assert_refused(put("a/b/c", "x"), OUT_FILE, "--mkpath");
	assert_int_equal(lstat("a", &st), -1);
	assert_int_equal(put_as(&o, &r), 0);
	assert_text("a/b/c", "new");
	o.target = "k/l/";
	assert_int_equal(put_as(&o, &r), 0);
	assert_text("k/l/x", "new");
}

static void directory_is_not_replaced_by_a_file(void **state)
{
	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(mkdir("d/x", 0755), 0);
	assert_refused(put("d", "x"), OUT_FILE, "d/x is a directory");
}

static void symlink_named_as_target_is_followed(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	make("d/real", "old", 0644);
	assert_int_equal(symlink("d/real", "link"), 0);
	assert_int_equal(put("link", "x"), 0);
	assert_text("d/real", "new");
	assert_int_equal(lstat("link", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(symlink("d", "dirlink"), 0);
	assert_int_equal(put("dirlink", "y"), 0);
	assert_text("d/y", "new");
	assert_int_equal(symlink("d/later", "dangling"), 0);
	assert_int_equal(put("dangling", "x"), 0);
	assert_text("d/later", "new");
	assert_int_equal(symlink("loop", "loop"), 0);
	assert_int_equal(put("loop", "x"), -1);
}

static void symlink_in_the_target_is_replaced(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	make("outside", "old", 0644);
	assert_int_equal(symlink("../outside", "d/x"), 0);
	assert_int_equal(put("d", "x"), 0);
	assert_text("outside", "old");
	assert_text("d/x", "new");
	assert_int_equal(lstat("d/x", &st), 0);
	assert_true(S_ISREG(st.st_mode));
}

static void same_name_twice_is_refused(void **state)
{
	struct place_opts o = {.target = "d"};
	struct record_file r = record_of("x");
	struct placement *t;
	struct place *p;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(place_open(&o, &p), 0);
	assert_int_equal(place_begin(p, NULL, &r, &t), 0);
	assert_int_equal(place_finish_file(t, 0), 0);
	r.id++;
	assert_int_equal(place_begin(p, NULL, &r, &t), -1);
	assert_string_equal(failed()->text, "will not overwrite just-created d/x");
	place_close(p);
}

static void long_names_fit(void **state)
{
	char name[NAME_MAX + 2];

	(void)state;
	memset(name, 'n', sizeof name);
	name[NAME_MAX] = '\0';
	assert_int_equal(put(".", name), 0);
	assert_text(name, "new");
	name[NAME_MAX] = 'n';
	name[NAME_MAX + 1] = '\0';
	assert_false(name_is_plain(name));
}

static void hostile_names_are_refused(void **state)
{
	static const char *const names[] = {"/etc/x", "../x", "a/../x", "x/..", ".",
					    "..",     "a/b",  "//",     "x/",   "/"};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		assert_false(name_is_plain(names[i]));
		assert_refused(put(".", names[i]), OUT_PROTOCOL, "not a valid file name");
	}
	assert_false(name_is_plain(""));
	assert_refused(put(".", ""), OUT_FILE, "needs a file name");
	assert_true(name_is_plain("..."));
	assert_true(name_is_plain(".x"));
	assert_true(name_is_plain("new\nline"));
}

static void only_requested_names_are_accepted(void **state)
{
	char name[100] = "", want[300] = "";

	(void)state;
	assert_true(name_matches_want("f", "dir/f"));
	assert_true(name_matches_want("f", "f"));
	assert_true(name_matches_want("f", "~/x/f"));
	assert_true(name_matches_want("f", "dir/f/"));
	assert_true(name_matches_want("a.c", "dir/*.c"));
	assert_true(name_matches_want("*.c", "*.c"));
	assert_true(name_matches_want("\\a", "d\\*/\\\\a"));
	assert_true(name_matches_want("a", "[d]/\\a"));
	assert_false(name_matches_want("a", "d/\\a"));
	assert_false(name_matches_want(".ssh", "[d]/\\ssh"));
	assert_true(name_matches_want("", "-"));
	assert_true(name_matches_want("-", "-"));
	assert_false(name_matches_want("x", "-"));
	assert_false(name_matches_want("g", "dir/f"));
	assert_false(name_matches_want("dir", "dir/f"));
	assert_false(name_matches_want(".ssh", "*"));
	assert_false(name_matches_want("a.d", "*.c"));
	assert_false(name_matches_want("x/a.c", "*.c"));
	assert_false(name_matches_want("..", "*"));
	assert_false(name_matches_want("..", ".."));
	assert_false(name_matches_want(".", "."));
	assert_false(name_matches_want("", ""));
	assert_false(name_matches_want("x", ""));
	assert_false(name_matches_want("x", "/"));
	assert_false(name_matches_want("x", "~"));
	while (strlen(name) < 99) {
		strcat(name, "a");
		strcat(want, "[a]");
	}
	assert_true(name_matches_want(name, want));
	assert_false(name_matches_want("x", "-"));
	assert_false(name_matches_want("authorized_keys", "*.c"));
}

static void last_components_are_found(void **state)
{
	static const char *const table[][2] = {
		{"a/b/", "b"}, {"a/b", "b"},   {"b", "b"},  {"/", ""},
		{"//", ""},    {".", ""},      {"a/.", ""}, {"", ""},
		{"..", ".."},  {"a/..", ".."}, {"/b", "b"}, {"a//b//", "b"},
	};
	char is[NAME_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
		assert_string_equal(name_last(table[i][0], is, sizeof is), table[i][1]);
}

/* ---- temporaries --------------------------------------------------------------------- */

/* Begin a file in the working directory; returns the name of its temporary. */
static struct placement *begin(struct place **p, char name[static 256])
{
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");
	struct placement *t;

	assert_int_equal(place_open(&o, p), 0);
	assert_int_equal(place_begin(*p, NULL, &r, &t), 0);
	assert_int_equal(temporaries(".", name), 1);
	return t;
}

static void old_file_stays_until_the_rename(void **state)
{
	struct placement *t;
	struct place *p;
	char name[256];

	(void)state;
	make("f", "old", 0644);
	t = begin(&p, name);
	assert_int_equal(mode_of(name), 0600);
	assert_int_equal(write(placement_fd(t), "half", 4), 4);
	assert_text("f", "old");
	place_drop(t, false);
	assert_text("f", "old");
	assert_no_temporaries();
	place_close(p);
}

static void kept_temporary_is_reused(void **state)
{
	struct placement *t;
	struct place *p;
	struct stat st;
	char name[256], again[256];
	ino_t ino;

	(void)state;
	t = begin(&p, name);
	assert_int_equal(write(placement_fd(t), "a lot of rest", 13), 13);
	place_drop(t, true);
	place_close(p);
	assert_int_equal(temporaries(".", name), 1);
	assert_int_equal(stat(name, &st), 0);
	ino = st.st_ino;
	t = begin(&p, again);
	assert_string_equal(again, name);
	assert_int_equal(write(placement_fd(t), "new", 3), 3);
	assert_int_equal(place_finish_file(t, 3), 0);
	place_close(p);
	assert_text("f", "new");
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_ino, ino);
	assert_no_temporaries();
}

static void locked_temporary_is_left_alone(void **state)
{
	struct placement *t;
	struct place *p, *q;
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");
	struct placement *u;
	char name[256];

	(void)state;
	t = begin(&p, name);
	assert_int_equal(write(placement_fd(t), "one", 3), 3);
	assert_int_equal(place_open(&o, &q), 0);
	assert_int_equal(place_begin(q, NULL, &r, &u), 0);
	assert_int_equal(temporaries(".", name), 2);
	assert_int_equal(write(placement_fd(u), "two", 3), 3);
	assert_int_equal(place_finish_file(u, 3), 0);
	assert_text("f", "two");
	assert_int_equal(place_finish_file(t, 3), 0);
	assert_text("f", "one");
	place_close(p);
	place_close(q);
	assert_no_temporaries();
}

/* Another run of the same command begins beside one that has the temporary. */
static struct placement *begin_beside(struct place **p)
{
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");
	struct placement *t;
	char name[256];

	assert_int_equal(place_open(&o, p), 0);
	assert_int_equal(place_begin(*p, NULL, &r, &t), 0);
	assert_int_equal(temporaries(".", name), 2);
	assert_int_equal(write(placement_fd(t), "new", 3), 3);
	return t;
}

/* The session of a killed run may end after the next run has copied the file, or while it does. */
static void interrupted_run_leaves_nothing_of_a_file_that_another_copied(void **state)
{
	enum { EXISTS = 1, ENDS_LATE = 2, ALL = 4 };
	struct placement *killed, *next;
	struct place *p, *q;
	char name[256];

	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		if (n & EXISTS)
			make("f", "old", 0644);
		killed = begin(&p, name);
		assert_int_equal(write(placement_fd(killed), "half", 4), 4);
		next = begin_beside(&q);
		if (!(n & ENDS_LATE)) {
			place_drop(killed, true);
			assert_int_equal(access(name, F_OK), 0);
		}
		assert_int_equal(place_finish_file(next, 3), 0);
		if (n & ENDS_LATE)
			place_drop(killed, true);
		place_close(p);
		place_close(q);
		assert_text("f", "new");
		assert_no_temporaries();
		assert_int_equal(unlink("f"), 0);
	}
}

/* An object has the name of the temporary: it is neither used nor removed. */
static void assert_avoids(const char *name)
{
	char other[256];

	assert_int_equal(put("f", "x"), 0);
	assert_text("f", "new");
	assert_int_equal(temporaries(".", other), 1);
	assert_string_equal(other, name);
}

/* It is our own file, but cannot be continued: it is removed. */
static void assert_replaces(void)
{
	assert_int_equal(put("f", "x"), 0);
	assert_text("f", "new");
	assert_no_temporaries();
}

static void planted_temporaries_are_not_used(void **state)
{
	struct placement *t;
	struct place *p;
	struct stat st;
	char name[256];

	(void)state;
	t = begin(&p, name);
	place_drop(t, false);
	place_close(p);

	make("victim", "mine", 0644);
	assert_int_equal(link("victim", name), 0);
	assert_replaces();
	assert_text("victim", "mine");

	assert_int_equal(symlink("victim", name), 0);
	assert_replaces();
	assert_text("victim", "mine");

	assert_int_equal(mkfifo(name, 0600), 0);
	assert_replaces();

	assert_int_equal(mkdir(name, 0700), 0);
	assert_avoids(name);
	rmdir(name);

	if (geteuid() == 0) {
		make(name, "theirs", 0666);
		assert_int_equal(chown(name, 1, 1), 0);
		assert_avoids(name);
		assert_text(name, "theirs");
		assert_int_equal(stat(name, &st), 0);
		assert_int_equal(st.st_uid, 1);
	}
}

/* The temporary of f as an interrupted run leaves it, with this content and mode. */
static ino_t leave(const char *text, mode_t mode, char name[static 256])
{
	struct placement *t;
	struct place *p;
	struct stat st;

	t = begin(&p, name);
	place_drop(t, false);
	place_close(p);
	make(name, text, mode);
	assert_int_equal(stat(name, &st), 0);
	return st.st_ino;
}

/* A reader that opened it while the mode allowed that must not see later content. */
static void temporary_accessible_to_others_is_recreated(void **state)
{
	static const mode_t modes[] = {0644, 0666, 0640, 0700, 04600};
	char name[256], left[16] = "";

	(void)state;
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
		ino_t ino = leave("planted", modes[i], name);
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		struct stat st;

		assert_int_equal(put("f", "x"), 0);
		assert_text("f", "new");
		assert_int_equal(stat("f", &st), 0);
		assert_int_not_equal(st.st_ino, ino);
		assert_int_equal(pread(fd, left, sizeof left, 0), 7);
		assert_string_equal(left, "planted");
		assert_no_temporaries();
		close(fd);
	}
}

/* Nor one in a directory where another user may have put it. */
static void no_temporary_is_reused_in_a_shared_directory(void **state)
{
	static const mode_t modes[] = {0777, 01777, 0773};
	char name[256];
	struct stat st;
	ino_t ino;
	int fd;

	(void)state;
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
		ino = leave("planted", 0600, name);
		fd = open(name, O_RDONLY | O_CLOEXEC); /* keeps the inode number in use */
		assert_int_equal(chmod(".", modes[i]), 0);
		assert_int_equal(put("f", "x"), 0);
		assert_int_equal(chmod(".", 0700), 0);
		assert_int_equal(stat("f", &st), 0);
		assert_int_not_equal(st.st_ino, ino);
		assert_no_temporaries();
		close(fd);
	}
	if (geteuid() != 0)
		return;
	leave("planted", 0600, name);
	assert_int_equal(chown(".", 1, 1), 0);
	assert_int_equal(put("f", "x"), 0);
	assert_int_equal(chown(".", 0, 0), 0);
	assert_no_temporaries();
}

/* Temporaries there have unpredictable names. */
static void temporary_name_is_random_in_a_shared_directory(void **state)
{
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");
	char known[256], name[256] = "";
	struct placement *t;
	struct place *p;

	(void)state;
	leave("", 0600, known);
	assert_int_equal(unlink(known), 0);
	assert_int_equal(chmod(".", 0777), 0);
	assert_int_equal(place_open(&o, &p), 0);
	assert_int_equal(place_begin(p, NULL, &r, &t), 0);
	if (temporaries(".", name) > 0)
		assert_string_not_equal(name, known);
	assert_int_equal(write(placement_fd(t), "new", 3), 3);
	/* Also when a target appears in the meantime. */
	make("f", "another", 0600);
	assert_int_equal(place_finish_file(t, 3), 0);
	place_close(p);
	assert_text("f", "new");
	assert_no_temporaries();
	assert_int_equal(chmod(".", 0700), 0);
}

static void links_left_by_a_killed_run_are_removed(void **state)
{
	(void)state;
	make("of", "linked", 0400);
	assert_int_equal(link("of", ".sluice.0123456789abcdef"), 0);
	assert_int_equal(link("of", ".sluice.0123456789abcdef.00112233"), 0);
	assert_int_equal(symlink("of", ".sluice.0123456789abcdee.00112233"), 0);
	assert_int_equal(mkdir(".sluice.0123456789abcdee.00112234", 0700), 0);
	make(".sluice.0123456789abcdee.00112234/.sluice.marker.0123456789abcdef", "", 0600);
	assert_int_equal(mkdir(".sluice.0123456789abcdee.00112235", 0700), 0);
	make(".sluice.0123456789abcdee.00112235/mine", "", 0600);
	assert_int_equal(put("f", "x"), 0);
	assert_text("of", "linked");
	assert_int_equal(unlink(".sluice.0123456789abcdee.00112235/mine"), 0);
	assert_int_equal(rmdir(".sluice.0123456789abcdee.00112235"), 0);
	assert_no_temporaries();
}

static void stale_temporaries_with_a_suffix_are_removed(void **state)
{
	int fd;
	char name[256];

	(void)state;
	make(".sluice.0123456789abcdef.00112233", "stale", 0600);
	make(".sluice.0123456789abcdef.44556677", "at work", 0600);
	make(".sluice.0123456789abcdef", "of another name", 0600);
	make(".sluice.0123456789abcdef.short", "none of ours", 0600);
	make(".sluice.0123456789ABCDEF.00112233", "none of ours", 0600);
	fd = open(".sluice.0123456789abcdef.44556677", O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(put("f", "x"), 0);
	assert_int_equal(access(".sluice.0123456789abcdef.00112233", F_OK), -1);
	assert_int_equal(temporaries(".", name), 4);
	close(fd);
}

static void full_disk_is_detected_at_the_start(void **state)
{
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");

	(void)state;
	make("f", "old", 0644);
	r.size = UINT64_C(1) << 60;
	assert_int_equal(put_as(&o, &r), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_no_temporaries();
	assert_text("f", "old");
}

/* ---- the result ---------------------------------------------------------------------- */

static void existing_files_keep_their_mode(void **state)
{
	(void)state;
	make("f", "old", 0640);
	assert_int_equal(put("f", "x"), 0);
	assert_text("f", "new");
	assert_int_equal(mode_of("f"), 0640);
	make("s", "old", 04755);
	assert_int_equal(put("s", "x"), 0);
	assert_int_equal(mode_of("s"), 04755);
}

static void existing_files_keep_owner_and_attributes(void **state)
{
	struct stat st;
	char value[8];

	(void)state;
	make("f", "old", 0640);
	if (geteuid() == 0)
		assert_int_equal(chown("f", 12, 34), 0);
	if (setxattr("f", "user.colour", "red", 3, 0) == 0) {
		assert_int_equal(put("f", "x"), 0);
		assert_int_equal(getxattr("f", "user.colour", value, sizeof value), 3);
		assert_memory_equal(value, "red", 3);
	} else {
		assert_int_equal(put("f", "x"), 0);
	}
	assert_text("f", "new");
	assert_int_equal(stat("f", &st), 0);
	if (geteuid() == 0) {
		assert_int_equal(st.st_uid, 12);
		assert_int_equal(st.st_gid, 34);
	}
	assert_int_equal(st.st_mode & 07777, 0640);
}

static void other_hard_links_keep_the_old_content(void **state)
{
	(void)state;
	make("f", "old", 0644);
	assert_int_equal(link("f", "g"), 0);
	assert_int_equal(put("f", "x"), 0);
	assert_text("f", "new");
	assert_text("g", "old");
}

static void set_id_bits_are_never_set(void **state)
{
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");

	(void)state;
	r.a.mode = 06777;
	assert_int_equal(put_as(&o, &r), 0);
	assert_int_equal(mode_of("f"), 0755);
	o.target = "g";
	o.rules = &minus_p;
	assert_int_equal(put_as(&o, &r), 0);
	assert_int_equal(mode_of("g"), 0777);
}

static void p_preserves_mode_and_times(void **state)
{
	struct place_opts o = {.target = "f", .rules = &minus_p};
	struct record_file r = record_of("f");
	struct stat st;

	(void)state;
	make("f", "old", 0600);
	r.a.mode = 0664;
	r.a.mtime_s = -5;
	r.a.mtime_ns = 7;
	assert_int_equal(put_as(&o, &r), 0);
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0664);
	assert_int_equal(st.st_mtim.tv_sec, -5);
	assert_int_equal(st.st_mtim.tv_nsec, 7);
	assert_int_equal(st.st_atim.tv_sec, 2000);
}

/* In 32 bits, 2040 overflows to 1903. */
static void times_have_more_than_32_bits(void **state)
{
	static const int64_t times[] = {INT64_C(2208988800), INT64_C(0x7fffffff) + 1,
					INT64_C(-2208988800) / 2};
	struct place_opts o = {.target = "f", .rules = &minus_p};
	struct record_file r = record_of("f");
	struct stat st;

	(void)state;
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		r.a.mtime_s = times[i];
		r.a.atime_s = times[i] + 1;
		assert_int_equal(put_as(&o, &r), 0);
		assert_int_equal(stat("f", &st), 0);
		assert_true(st.st_mtim.tv_sec == times[i]);
		assert_true(st.st_atim.tv_sec == times[i] + 1);
	}
}

static void in_place_keeps_the_inode(void **state)
{
	struct rules rules = {RULES_DEFAULTS, .inplace = true};
	struct place_opts o = {.target = "f", .rules = &rules};
	struct record_file r = record_of("f");
	struct stat before, after;

	(void)state;
	make("f", "old and longer", 0640);
	assert_int_equal(stat("f", &before), 0);
	assert_int_equal(put_as(&o, &r), 0);
	assert_int_equal(stat("f", &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(after.st_mode & 07777, 0640);
	assert_text("f", "new");
	o.target = "g";
	assert_int_equal(put_as(&o, &r), 0);
	assert_int_equal(mode_of("g"), 0644);
	rules.fsync = true;
	assert_int_equal(put_as(&o, &r), 0);
}

static void unwritable_files_are_not_replaced(void **state)
{
	(void)state;
	make("f", "old", 0444);
	/* Root may write any file. */
	if (geteuid() == 0)
		assert_int_equal(seteuid(1), 0);
	assert_int_equal(put("f", "x"), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_int_equal(seteuid(getuid()), 0);
	assert_text("f", "old");
	assert_no_temporaries();
}

static void devices_and_fifos_are_written_in_place(void **state)
{
	struct stat st;
	char got[4] = "";
	int fd;

	(void)state;
	assert_int_equal(mkfifo("fifo", 0640), 0);
	fd = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(put("fifo", "x"), 0);
	assert_int_equal(read(fd, got, 3), 3);
	assert_string_equal(got, "new");
	assert_int_equal(put(".", "fifo"), 0);
	close(fd);
	assert_int_equal(lstat("fifo", &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(put("/dev/null", "x"), 0);
	assert_int_equal(lstat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_no_temporaries();
}

static struct {
	ino_t of[16];
	unsigned count;
} synced;

/* Replaces libc's functions: records what is synced, and in which order. */
int fsync(int fd)
{
	struct stat st;

	if (synced.count < sizeof synced.of / sizeof *synced.of && fstat(fd, &st) == 0)
		synced.of[synced.count++] = st.st_ino;
	return (int)syscall(SYS_fsync, fd);
}

static void assert_synced(const char *const *names, unsigned count)
{
	struct stat st;

	assert_int_equal(synced.count, count);
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(stat(names[i], &st), 0);
		assert_true(synced.of[i] == st.st_ino);
	}
	synced.count = 0;
}

static void fsync_syncs_file_and_directory(void **state)
{
	static const char *const one[] = {"f", "."};
	static const char *const with_path[] = {".", "a", "a/b/f", "a/b"};
	struct rules rules = {RULES_DEFAULTS, .fsync = true};
	struct place_opts o = {.target = "f", .rules = &rules};
	struct record_file r = record_of("f");

	(void)state;
	synced.count = 0;
	assert_int_equal(put_as(&o, &r), 0);
	assert_synced(one, 2);
	o.target = "a/b/f";
	rules.mkpath = true;
	assert_int_equal(put_as(&o, &r), 0);
	assert_synced(with_path, 4);
	o.target = "/dev/null";
	assert_int_equal(put_as(&o, &r), 0);
}

static bool is_synced(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	for (unsigned i = 0; i < synced.count; i++) {
		if (synced.of[i] == st.st_ino)
			return true;
	}
	return false;
}

static void fsync_syncs_a_tree_in_order(void **state)
{
	struct rules r = rules_a;
	struct place_opts o = {.target = "dst/", .rules = &r};
	struct place *p;
	struct place_dir *d;

	(void)state;
	r.fsync = true;
	r.backup = true;
	r.backup_dir = "../kept";
	synced.count = 0;
	p = open_place(&o);
	d = put_dir(p, put_contents(p, 0755), "d", 0755);
	assert_true(is_synced(".") && is_synced("dst"));
	synced.count = 0;
	put_file(p, d, "f", "x");
	assert_true(is_synced("dst/d") && is_synced("dst/d/f"));
	synced.count = 0;
	put_symlink(p, d, "l", "x");
	assert_true(is_synced("dst/d"));
	synced.count = 0;
	finish_place(p);
	assert_true(is_synced("dst/d") && is_synced("dst"));
	p = open_place(&o);
	d = put_dir(p, put_contents(p, 0755), "d", 0755);
	synced.count = 0;
	put_file(p, d, "f", "new");
	assert_true(is_synced("kept/d"));
	finish_place(p);
}

static void file_size_is_set(void **state)
{
	struct place_opts o = {.target = "f"};
	struct record_file r = record_of("f");
	struct placement *t;
	struct place *p;
	struct stat st;

	(void)state;
	r.flags = FILE_SPARSE;
	r.size = 1 << 20;
	assert_int_equal(place_open(&o, &p), 0);
	assert_int_equal(place_begin(p, NULL, &r, &t), 0);
	assert_true(placement_fresh(t));
	assert_int_equal(place_finish_file(t, 1 << 20), 0);
	place_close(p);
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	assert_int_equal(st.st_blocks, 0);
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(absent_target_becomes_the_file),
		place_test(file_keeps_its_name_in_a_directory),
		place_test(slash_or_many_sources_need_a_directory),
		place_test(minus_T_wants_none),
		place_test(missing_parent_is_named),
		place_test(directory_is_not_replaced_by_a_file),
		place_test(symlink_named_as_target_is_followed),
		place_test(symlink_in_the_target_is_replaced),
		place_test(same_name_twice_is_refused),
		place_test(long_names_fit),
		place_test(hostile_names_are_refused),
		place_test(only_requested_names_are_accepted),
		place_test(last_components_are_found),
		place_test(old_file_stays_until_the_rename),
		place_test(kept_temporary_is_reused),
		place_test(locked_temporary_is_left_alone),
		place_test(interrupted_run_leaves_nothing_of_a_file_that_another_copied),
		place_test(planted_temporaries_are_not_used),
		place_test(temporary_accessible_to_others_is_recreated),
		place_test(no_temporary_is_reused_in_a_shared_directory),
		place_test(temporary_name_is_random_in_a_shared_directory),
		place_test(links_left_by_a_killed_run_are_removed),
		place_test(stale_temporaries_with_a_suffix_are_removed),
		place_test(full_disk_is_detected_at_the_start),
		place_test(existing_files_keep_their_mode),
		place_test(existing_files_keep_owner_and_attributes),
		place_test(other_hard_links_keep_the_old_content),
		place_test(set_id_bits_are_never_set),
		place_test(p_preserves_mode_and_times),
		place_test(times_have_more_than_32_bits),
		place_test(in_place_keeps_the_inode),
		place_test(unwritable_files_are_not_replaced),
		place_test(devices_and_fifos_are_written_in_place),
		place_test(fsync_syncs_file_and_directory),
		place_test(fsync_syncs_a_tree_in_order),
		place_test(file_size_is_set),
	};

	return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
