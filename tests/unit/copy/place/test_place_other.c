/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <cmocka.h>
#include "dst_rig.h"

static void assert_leads(const char *name, const char *should)
{
	char is[256];
	ssize_t n = readlink(name, is, sizeof is - 1);

	assert_true(n >= 0);
	is[n] = '\0';
	assert_string_equal(is, should);
}

static void assert_time(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(st.st_mtim.tv_nsec, 500000000);
}

/* ---- symlinks ---------------------------------------------------------------------------- */

static void symlinks_are_made_verbatim(void **state)
{
	struct change c;
	char target[4096];

	(void)state;
	memset(target, 't', sizeof target);
	target[sizeof target - 1] = '\0';
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "dangling", "../no where\n", &c), 0);
	assert_true(c.what == EVENT_SYMLINK && c.missing);
	assert_int_equal(try_symlink(place, top, "absolute", "/etc", &c), 0);
	assert_int_equal(try_symlink(place, top, "loop", "loop", &c), 0);
	assert_int_equal(try_symlink(place, top, "long", target, &c), 0);
	end_dst_run();
	assert_leads("dst/dangling", "../no where\n");
	assert_leads("dst/absolute", "/etc");
	assert_leads("dst/loop", "loop");
	assert_time("dst/dangling");
}

static void equal_symlinks_stay(void **state)
{
	struct stat before, after;
	struct change c;

	(void)state;
	begin_dst_run();
	put_symlink(place, top, "l", "there");
	end_dst_run();
	assert_int_equal(lstat("dst/l", &before), 0);
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "l", "there", &c), 0);
	assert_false(change_any(&c));
	end_dst_run();
	assert_int_equal(lstat("dst/l", &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(utimensat(AT_FDCWD, "dst/l", (struct timespec[2]){{1, 0}, {1, 0}},
				   AT_SYMLINK_NOFOLLOW),
			 0);
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "l", "there", &c), 0);
	assert_true(c.time && !c.content && !c.missing);
	end_dst_run();
	assert_time("dst/l");
	assert_int_equal(lstat("dst/l", &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "l", "ther", &c), 0);
	assert_true(c.content && !c.missing && !c.type);
	end_dst_run();
	assert_leads("dst/l", "ther");
}

static void symlinks_replace_other_types(void **state)
{
	struct change c;

	(void)state;
	make("dst/f", "old", 0644);
	make_dir("dst/d", 0755);
	assert_int_equal(mkfifo("dst/p", 0644), 0);
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "f", "to", &c), 0);
	assert_true(c.type);
	put_symlink(place, top, "d", "to");
	put_symlink(place, top, "p", "to");
	end_dst_run();
	assert_leads("dst/f", "to");
	assert_leads("dst/d", "to");
	assert_leads("dst/p", "to");
}

static void symlinks_left_by_interrupted_runs_are_removed(void **state)
{
	struct record_file r = file_record("l", 0644, 3);
	struct placement *t;
	struct change c;
	char name[256], path[300];

	(void)state;
	/* The name of its temporary. */
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_int_equal(temporaries("dst", name), 1);
	/* While a file with that temporary is in progress, it is left alone. */
	put_symlink(place, top, "l", "first");
	assert_int_equal(temporaries("dst", path), 1);
	place_drop(t, false);
	end_dst_run();
	snprintf(path, sizeof path, "dst/%s", name);
	assert_int_equal(symlink("stale", path), 0);
	begin_dst_run();
	put_symlink(place, top, "l", "second");
	end_dst_run();
	make(path, "stale", 0600);
	begin_dst_run();
	put_symlink(place, top, "l", "third");
	end_dst_run();
	make("dst/f", "x", 0644);
	assert_int_equal(link("dst/f", path), 0);
	begin_dst_run();
	put_symlink(place, top, "l", "fourth");
	end_dst_run();
	assert_leads("dst/l", "fourth");
	/* Also where there is nothing to make. */
	assert_int_equal(symlink("stale", path), 0);
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "l", "fourth", &c), 0);
	end_dst_run();
	assert_int_equal(symlink("stale", "dst/.sluice.0123456789abcdef.01234567"), 0);
	begin_dst_run();
	put_symlink(place, top, "l", "fifth");
	end_dst_run();
}

static void without_times_symlinks_get_the_current_time(void **state)
{
	struct stat st;
	struct change c;

	(void)state;
	rules = rules_r;
	begin_dst_run();
	assert_int_equal(try_symlink(place, top, "l", "to", &c), 0);
	assert_true(c.now);
	end_dst_run();
	assert_int_equal(lstat("dst/l", &st), 0);
	assert_true(st.st_mtim.tv_sec > 1000);
}

/* ---- FIFOs and devices -------------------------------------------------------------------- */

static void fifos_and_devices_are_made(void **state)
{
	struct record_file r = file_record("n", 0640, 0);
	struct stat st;
	struct change c;

	(void)state;
	begin_dst_run();
	r.type = TYPE_FIFO;
	assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), 0);
	assert_true(c.what == EVENT_NODE && c.missing && !c.device);
	assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), 0);
	assert_false(change_any(&c));
	r.a.mode = 0600;
	assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), 0);
	assert_true(c.perms && !c.missing);
	assert_int_equal(lstat("dst/n", &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_time("dst/n");
	r.type = TYPE_CHAR;
	r.major = 1;
	r.minor = 3;
	if (geteuid() == 0) {
		assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), 0);
		assert_true(c.type && c.device);
		assert_int_equal(lstat("dst/n", &st), 0);
		assert_true(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
		r.minor = 5;
		assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), 0);
		assert_true(c.content && !c.type);
		r.type = TYPE_BLOCK;
		assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), 0);
		assert_int_equal(lstat("dst/n", &st), 0);
		assert_true(S_ISBLK(st.st_mode) && st.st_rdev == makedev(1, 5));
	} else {
		assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), -1);
		assert_int_equal(failed()->code, OUT_FILE);
		assert_int_equal(lstat("dst/n", &st), 0);
		assert_true(S_ISFIFO(st.st_mode));
	}
	r.type = TYPE_REGULAR;
	assert_int_equal(place_make_other(place, top, &r, NULL, NULL, &c), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	r.type = TYPE_SYMLINK;
	assert_int_equal(place_make_other(place, top, &r, "", NULL, &c), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	end_dst_run();
}

static void files_replace_fifos_in_a_tree(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(mkfifo("dst/p", 0600), 0);
	begin_dst_run();
	put_file(place, top, "p", "x");
	end_dst_run();
	assert_int_equal(lstat("dst/p", &st), 0);
	assert_true(S_ISREG(st.st_mode));
}

/* ---- hard links ----------------------------------------------------------------------------- */

static uint32_t put_first(struct place_dir *d, const char *name)
{
	struct record_file r = file_record(name, 0644, 0);
	struct placement *t;

	r.flags = FILE_LINKED;
	assert_int_equal(place_begin(place, d, &r, &t), 0);
	assert_int_equal(place_finish_file(t, 0), 0);
	return r.id;
}

static int try_link(struct place_dir *d, const char *name, uint32_t to, struct change *c)
{
	struct record_file r = file_record(name, 0644, 0);

	r.type = TYPE_HARD_LINK;
	r.link_to = to;
	return place_make_other(place, d, &r, NULL, NULL, c);
}

static void assert_one(const char *a, const char *b)
{
	struct stat x, y;

	assert_int_equal(lstat(a, &x), 0);
	assert_int_equal(lstat(b, &y), 0);
	assert_int_equal(x.st_ino, y.st_ino);
}

static void hard_links_are_made(void **state)
{
	struct place_dir *d;
	struct change c;
	uint32_t first;

	(void)state;
	make("dst/there", "old", 0644);
	assert_int_equal(symlink("there", "dst/sym"), 0);
	begin_dst_run();
	d = put_dir(place, top, "d", 0755);
	first = put_first(d, "first");
	assert_int_equal(try_link(top, "new", first, &c), 0);
	assert_true(c.what == EVENT_HARD_LINK && c.missing);
	assert_int_equal(try_link(top, "there", first, &c), 0);
	assert_true(c.content && !c.missing);
	assert_int_equal(try_link(top, "sym", first, &c), 0);
	assert_true(c.type);
	assert_int_equal(try_link(top, "new", first, &c), 0);
	assert_false(change_any(&c));
	assert_int_equal(try_link(top, "lost", first + 1000, &c), -1);
	assert_non_null(strstr(failed()->text, "link lost: the file it links to was not stored"));
	end_dst_run();
	assert_one("dst/d/first", "dst/new");
	assert_one("dst/d/first", "dst/there");
	assert_one("dst/d/first", "dst/sym");
}

static void unchanged_first_name_is_linked_to(void **state)
{
	struct record_file r = file_record("a", 0644, 3);
	struct change c;

	(void)state;
	make("dst/a", "old", 0644);
	make("dst/b", "old", 0644);
	r.flags = FILE_LINKED;
	begin_dst_run();
	assert_int_equal(place_update_metadata(place, top, &r, NULL), 0);
	assert_int_equal(try_link(top, "b", r.id, &c), 0);
	end_dst_run();
	assert_one("dst/a", "dst/b");
}

static void changed_first_name_is_not_linked_to(void **state)
{
	struct change c;
	uint32_t first;

	(void)state;
	begin_dst_run();
	first = put_first(top, "a");
	make("dst/other", "mine", 0600);
	assert_int_equal(rename("dst/other", "dst/a"), 0);
	assert_int_equal(try_link(top, "b", first, &c), -1);
	assert_non_null(strstr(failed()->text, "another process replaced the file it links to"));
	assert_absent("dst/b");
	make("dst/c", "old", 0644);
	assert_int_equal(try_link(top, "c", first, &c), -1);
	assert_text("dst/c", "old");
	end_dst_run();
}

/* By another run that copies the same tree at the same time. */
static void equal_replacement_of_the_first_name_is_linked_to(void **state)
{
	struct timespec times[2] = {{.tv_sec = 1}};
	struct record_file r = file_record("a", 0644, 4);
	struct change c;

	(void)state;
	make("dst/a", "text", 0644);
	make("dst/c", "old", 0644);
	begin_dst_run();
	r.flags = FILE_LINKED;
	times[1].tv_sec = r.a.mtime_s;
	times[1].tv_nsec = r.a.mtime_ns;
	assert_int_equal(place_update_metadata(place, top, &r, NULL), 0);
	/* Keeps the inode number in use. */
	assert_int_equal(link("dst/a", "dst/kept"), 0);
	make("dst/other", "text", 0644);
	assert_int_equal(utimensat(AT_FDCWD, "dst/other", times, 0), 0);
	assert_int_equal(rename("dst/other", "dst/a"), 0);
	assert_int_equal(try_link(top, "b", r.id, &c), 0);
	assert_int_equal(try_link(top, "c", r.id, &c), 0);
	assert_one("dst/a", "dst/b");
	assert_one("dst/a", "dst/c");
	/* One with another mtime is not. */
	times[1].tv_sec++;
	make("dst/other", "xext", 0644);
	assert_int_equal(utimensat(AT_FDCWD, "dst/other", times, 0), 0);
	assert_int_equal(rename("dst/other", "dst/a"), 0);
	assert_int_equal(try_link(top, "d", r.id, &c), -1);
	assert_absent("dst/d");
	end_dst_run();
}

enum { MANY = 3000 };

static void many_first_names_are_remembered(void **state)
{
	uint32_t first[MANY];
	char name[32], other[32];
	struct change c;

	(void)state;
	begin_dst_run();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof name, "a%d", i);
		first[i] = put_first(top, name);
	}
	for (int i = 0; i < MANY; i += 100) {
		snprintf(name, sizeof name, "b%d", i);
		assert_int_equal(try_link(top, name, first[i], &c), 0);
	}
	end_dst_run();
	for (int i = 0; i < MANY; i += 100) {
		snprintf(name, sizeof name, "dst/a%d", i);
		snprintf(other, sizeof other, "dst/b%d", i);
		assert_one(name, other);
	}
}

/* In a dry run there is no directory to fsync. */
static void dry_run_links_in_a_missing_directory(void **state)
{
	struct place_opts o = {.target = "dst", .peer = "h", .rules = &rules};
	struct place_dir *d;
	struct change c;

	(void)state;
	rules.fsync = true;
	rules.dry_run = true;
	place = open_place(&o);
	top = put_contents(place, 0755);
	d = put_dir(place, top, "d", 0755);
	assert_int_equal(try_link(d, "l", 1000, &c), 0);
	assert_true(c.missing);
	place_close(place);
	assert_absent("dst/d");
}

/* ---- backups ----------------------------------------------------------------------------------
 */

static void replaced_entries_are_backed_up(void **state)
{
	struct stat before, after;
	char name[256];

	(void)state;
	rules.backup = true;
	make("dst/f", "old", 0644);
	make("dst/f~", "older", 0644);
	assert_int_equal(symlink("old", "dst/l"), 0);
	make("dst/d", "old", 0644);
	assert_int_equal(lstat("dst/f", &before), 0);
	begin_dst_run();
	put_file(place, top, "f", "new");
	put_file(place, top, "new", "new");
	put_symlink(place, top, "l", "new");
	put_dir(place, top, "d", 0755);
	memset(name, 'n', 255);
	name[255] = '\0';
	put_file(place, top, name, "new");
	end_dst_run();
	assert_text("dst/f", "new");
	assert_text("dst/f~", "old");
	assert_int_equal(lstat("dst/f~", &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_leads("dst/l~", "old");
	assert_text("dst/d~", "old");
	assert_absent("dst/new~");
	begin_dst_run();
	assert_int_equal(try_file(place, top, name, "newer"), -1);
	assert_non_null(strstr(failed()->text, "too long"));
	end_dst_run();
}

static void backup_dir_takes_the_backups(void **state)
{
	struct place_dir *d;

	(void)state;
	make("dst/f", "old", 0644);
	make_dir("dst/d", 0750);
	make_dir("dst/d/e", 0755);
	make("dst/d/e/f", "old", 0644);
	rules.backup = true;
	rules.backup_dir = "../kept/today";
	rules.suffix = ".bak";
	begin_dst_run();
	put_file(place, top, "f", "new");
	d = put_dir(place, put_dir(place, top, "d", 0755), "e", 0755);
	put_file(place, d, "f", "new");
	end_dst_run();
	assert_text("dst/d/e/f", "new");
	assert_text("kept/today/f.bak", "old");
	assert_text("kept/today/d/e/f.bak", "old");
	assert_int_equal(mode_of("kept/today/d"), 0750);
	/* A symlink there is an older backup, which is replaced and not followed. */
	make_dir("outside", 0755);
	rules.suffix = "";
	assert_int_equal(rename("kept/today/d", "kept/today/c"), 0);
	assert_int_equal(symlink("../../outside", "kept/today/d"), 0);
	begin_dst_run();
	put_file(place, top, "f", "newer");
	d = put_dir(place, put_dir(place, top, "d", 0755), "e", 0755);
	put_file(place, d, "f", "newer");
	end_dst_run();
	assert_text("kept/today/f", "new");
	assert_text("kept/today/d/e/f", "new");
	assert_text("dst/d/e/f", "newer");
	assert_int_equal(rmdir("outside"), 0);
}

static void entries_replaced_by_a_directory_are_backed_up(void **state)
{
	struct place_opts o = {.target = "dst", .rules = &rules};

	(void)state;
	make("dst/src", "old", 0644);
	rules.backup = true;
	rules.backup_dir = "kept";
	place = open_place(&o);
	put_dir(place, put_dir(place, NULL, "src", 0755), "sub", 0755);
	end_dst_run();
	assert_text("dst/kept/src", "old");
	assert_int_equal(mode_of("dst/src/sub"), 0755);
}

static void backup_disables_inplace(void **state)
{
	struct place_opts o = {.target = "dst", .rules = &rules};

	(void)state;
	rules.inplace = true;
	rules.backup = true;
	make("dst/f", "old", 0644);
	place = open_place(&o);
	top = put_contents(place, 0755);
	put_file(place, top, "f", "new");
	end_dst_run();
	assert_text("dst/f", "new");
	assert_text("dst/f~", "old");
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, enter_dst, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(symlinks_are_made_verbatim),
		place_test(equal_symlinks_stay),
		place_test(symlinks_replace_other_types),
		place_test(symlinks_left_by_interrupted_runs_are_removed),
		place_test(without_times_symlinks_get_the_current_time),
		place_test(fifos_and_devices_are_made),
		place_test(files_replace_fifos_in_a_tree),
		place_test(hard_links_are_made),
		place_test(dry_run_links_in_a_missing_directory),
		place_test(unchanged_first_name_is_linked_to),
		place_test(changed_first_name_is_not_linked_to),
		place_test(equal_replacement_of_the_first_name_is_linked_to),
		place_test(many_first_names_are_remembered),
		place_test(replaced_entries_are_backed_up),
		place_test(backup_dir_takes_the_backups),
		place_test(entries_replaced_by_a_directory_are_backed_up),
		place_test(backup_disables_inplace),
	};

	return cmocka_run_group_tests_name("place_make_other", tests, NULL, NULL);
}
