/* SPDX-License-Identifier: Apache-2.0 */

/* Comparison with existing targets, and the metadata that a file gets. */

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
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "dst_rig.h"

static void set_time(const char *name, time_t s, long ns)
{
	assert_int_equal(utimensat(AT_FDCWD, name, (struct timespec[2]){{s, ns}, {s, ns}},
				   AT_SYMLINK_NOFOLLOW),
			 0);
}

static void put(const struct record_file *r, struct xattrs *x)
{
	char text[16] = "new";
	struct placement *t;

	if (place_begin(place, top, r, &t))
		fail_msg("%s", failed()->text);
	placement_xattrs(t, x);
	assert_int_equal(write(placement_fd(t), text, r->size), r->size);
	if (place_finish_file(t, r->size))
		fail_msg("%s", failed()->text);
}

static struct stat stat_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	return st;
}

static struct xattrs *attributes(const char *name, const char *value)
{
	struct record_xattr v = {
		.id = 1,
		.size = (uint32_t)strlen(value),
		.len = (uint32_t)strlen(value),
		.bytes = (const uint8_t *)value,
	};
	struct xattrs *x = NULL;

	snprintf(v.name, sizeof v.name, "%s", name);
	assert_int_equal(xattrs_add(&x, &v), 0);
	return x;
}

static void assert_xattr(const char *file, const char *should)
{
	char is[64];
	ssize_t n = getxattr(file, "user.t", is, sizeof is);

	assert_int_equal(n, should ? (ssize_t)strlen(should) : -1);
	if (should)
		assert_memory_equal(is, should, n);
}

/* ---- looking ------------------------------------------------------------------------------- */

static struct looked look(const char *name, uint64_t size)
{
	struct record_file r = file_record(name, 0644, size);
	struct looked l;

	assert_int_equal(place_look(place, top, &r, NULL, &l), 0);
	return l;
}

static void look_compares_size_and_mtime(void **state)
{
	struct looked l;

	(void)state;
	make("dst/f", "old", 0644);
	assert_int_equal(symlink("f", "dst/l"), 0);
	make_dir("dst/d", 0755);
	begin_dst_run();
	l = look("f", 3);
	assert_int_equal(l.look, LOOK_OTHER);
	assert_true(l.same_size && l.newer && l.change.time && !l.change.size);
	set_time("dst/f", 1000, 500000000);
	l = look("f", 3);
	assert_int_equal(l.look, LOOK_QUICK);
	assert_false(change_any(&l.change));
	l = look("f", 4);
	assert_int_equal(l.look, LOOK_OTHER);
	assert_true(!l.same_size && !l.newer && l.change.size && !l.change.time);
	set_time("dst/f", 1000, 499999999);
	assert_int_equal(look("f", 3).look, LOOK_OTHER);
	assert_false(look("f", 3).newer);
	set_time("dst/f", 1000, 500000001);
	assert_int_equal(look("f", 3).look, LOOK_OTHER);
	assert_true(look("f", 3).newer);
	/* This is no file system of whole seconds. */
	set_time("dst/f", 1000, 0);
	assert_int_equal(look("f", 3).look, LOOK_OTHER);
	set_time("dst/f", 1001, 0);
	assert_int_equal(look("f", 3).look, LOOK_OTHER);
	assert_int_equal(chmod("dst/f", 0600), 0);
	assert_true(look("f", 3).change.perms);
	assert_int_equal(look("l", 3).look, LOOK_MISSING);
	assert_true(look("l", 3).change.type);
	assert_int_equal(look("d", 3).look, LOOK_MISSING);
	assert_true(look("d", 3).change.type);
	assert_int_equal(look("none", 3).look, LOOK_MISSING);
	assert_true(look("none", 3).change.missing);
	end_dst_run();
}

static void look_opens_regular_files_only(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	char got[4] = "";
	int fd;

	(void)state;
	make("dst/f", "old", 0644);
	assert_int_equal(symlink("f", "dst/l"), 0);
	assert_int_equal(mkfifo("dst/p", 0644), 0);
	begin_dst_run();
	assert_int_equal(place_open_existing(place, top, &r, &fd), 0);
	assert_int_equal(read(fd, got, 3), 3);
	assert_string_equal(got, "old");
	close(fd);
	r.name[0] = 'l';
	assert_int_equal(place_open_existing(place, top, &r, &fd), -1);
	r.name[0] = 'p';
	assert_int_equal(place_open_existing(place, top, &r, &fd), -1);
	assert_int_equal(fd, -1);
	r.name[0] = 'n';
	assert_int_equal(place_open_existing(place, top, &r, &fd), -1);
	end_dst_run();
}

static void same_file_gets_the_source_metadata(void **state)
{
	struct record_file r = file_record("f", 0640, 3);
	struct xattrs *x = attributes("user.t", "blue");
	struct stat before, after;

	(void)state;
	make("dst/f", "old", 0400);
	before = stat_of("dst/f");
	rules.xattrs = true;
	begin_dst_run();
	assert_int_equal(place_update_metadata(place, top, &r, x), 0);
	end_dst_run();
	after = stat_of("dst/f");
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mode & 07777, 0640);
	assert_int_equal(after.st_mtim.tv_sec, 1000);
	assert_xattr("dst/f", "blue");
	/* A second time nothing is changed. */
	before = after;
	begin_dst_run();
	assert_int_equal(place_update_metadata(place, top, &r, x), 0);
	after = stat_of("dst/f");
	assert_int_equal(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
	assert_int_equal(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
	assert_int_equal(unlink("dst/f"), 0);
	assert_int_equal(place_update_metadata(place, top, &r, x), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	end_dst_run();
	xattrs_free(x);
}

static void leftover_temporary_of_a_same_file_is_removed(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct placement *t;
	char name[256];

	(void)state;
	make("dst/f", "old", 0644);
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	place_drop(t, true);
	place_close(place);
	assert_int_equal(temporaries("dst", name), 1);
	begin_dst_run();
	assert_int_equal(place_update_metadata(place, top, &r, NULL), 0);
	end_dst_run();
}

/* ---- resuming ------------------------------------------------------------------------------- */

static void temporary_of_an_earlier_run_is_resumed(void **state)
{
	struct record_file r = file_record("f", 0644, 6);
	struct placement *t;
	struct outlet out;
	struct change c;
	char got[8] = "";
	bool had;

	(void)state;
	begin_dst_run();
	assert_int_equal(place_resume(place, top, &r, &t, &had), 0);
	assert_false(had);
	assert_null(t);
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	place_drop(t, true);
	/* An empty temporary is not resumed. */
	assert_int_equal(place_resume(place, top, &r, &t, &had), 0);
	assert_false(had);
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_int_equal(write(placement_fd(t), "half", 4), 4);
	place_drop(t, true);
	place_close(place);
	begin_dst_run();
	assert_int_equal(place_resume(place, top, &r, &t, &had), 0);
	assert_true(had);
	assert_false(placement_fresh(t));
	assert_int_equal(placement_outlet(t, "f", &out), 0);
	assert_true(out.sized && !out.fresh);
	placement_change(t, &c);
	assert_true(c.missing);
	assert_int_equal(pread(placement_fd(t), got, 7, 0), 4);
	assert_string_equal(got, "half");
	assert_int_equal(pwrite(placement_fd(t), "!!", 2, 4), 2);
	assert_int_equal(place_finish_file(t, 6), 0);
	assert_text("dst/f", "half!!");
	/* place_begin() starts a new file. */
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_int_equal(write(placement_fd(t), "longer than", 11), 11);
	place_drop(t, true);
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_true(placement_fresh(t));
	assert_int_equal(place_finish_file(t, 2), 0);
	assert_int_equal(stat_of("dst/f").st_size, 2);
	end_dst_run();
}

/* A file that begin() would refuse is not resumed either, so that it is not sent in vain. */
static void nothing_is_resumed_for_a_blocked_name(void **state)
{
	struct record_file r = file_record("f", 0644, 6);
	struct placement *t;
	bool had;

	(void)state;
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_int_equal(write(placement_fd(t), "half", 4), 4);
	place_drop(t, true);
	make_dir("dst/f", 0755);
	assert_int_equal(place_resume(place, top, &r, &t, &had), 0);
	assert_true(had);
	place_drop(t, true);
	make("dst/f/g", "stays", 0644);
	assert_int_equal(place_resume(place, top, &r, &t, &had), -1);
	assert_non_null(strstr(failed()->text, "not empty"));
	assert_int_equal(place_begin(place, top, &r, &t), -1);
	assert_int_equal(unlink("dst/f/g") | rmdir("dst/f"), 0);
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	place_drop(t, false);
	end_dst_run();
}

static void inplace_resumes_the_target(void **state)
{
	struct record_file r = file_record("f", 0644, 6);
	struct placement *t;
	bool had;

	(void)state;
	make("dst/f", "half", 0644);
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	place_drop(t, true);
	place_close(place);
	rules.inplace = true;
	begin_dst_run();
	assert_int_equal(place_resume(place, top, &r, &t, &had), 0);
	assert_true(had);
	assert_int_equal(pwrite(placement_fd(t), "!!", 2, 4), 2);
	assert_int_equal(place_finish_file(t, 6), 0);
	end_dst_run();
	assert_text("dst/f", "half!!");
}

/*
 * ---- the resulting metadata
 * -----------------------------------------------------------------------
 */

static void file_changes_are_reported(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct placement *t;
	struct change c;

	(void)state;
	make("dst/f", "older", 0600);
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	placement_change(t, &c);
	assert_true(c.size && c.time && c.perms && !c.missing && !c.type && !c.owner && !c.xattr);
	place_drop(t, false);
	end_dst_run();
	rules = rules_r;
	rules.xattrs = true;
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	placement_xattrs(t, attributes("user.t", "blue"));
	placement_change(t, &c);
	assert_true(c.size && c.now && c.xattr && !c.acl && !c.time && !c.perms);
	assert_int_equal(place_finish_file(t, 3), 0);
	end_dst_run();
	assert_xattr("dst/f", "blue");
}

static void times_follow_the_rules(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	time_t now = time(NULL);
	struct stat st;

	(void)state;
	rules = rules_r;
	rules.atimes = true;
	begin_dst_run();
	put(&r, NULL);
	end_dst_run();
	st = stat_of("dst/f");
	assert_int_equal(st.st_atim.tv_sec, 2000);
	assert_true(st.st_mtim.tv_sec >= now);
	rules.atimes = false;
	rules.times = true;
	r.a.mtime_s = -1;
	r.a.mtime_ns = 999999999;
	begin_dst_run();
	put(&r, NULL);
	end_dst_run();
	st = stat_of("dst/f");
	assert_true(st.st_atim.tv_sec >= now);
	assert_int_equal(st.st_mtim.tv_sec, -1);
	assert_int_equal(st.st_mtim.tv_nsec, 999999999);
}

/* requested mode; uid and gid of the source relative to ours; the resulting mode */
struct set_id {
	bool owner, group;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	mode_t should;
};

static void set_id_bits_need_their_owner(void **state)
{
	uid_t me = geteuid();
	gid_t mine = getegid(), other = mine + 54321;
	const struct set_id cases[] = {
		{true, true, 06755, me, mine, 06755},
		{false, false, 06755, me, mine, 0755},
		{true, false, 06755, me, mine, 04755},
		/* The group counts only if the owner matches. */
		{false, true, 06755, me, mine, 0755},
		{true, true, 06755, me, other, me == 0 ? 06755 : 04755},
		{true, true, 06755, me + 54321, mine, me == 0 ? 06755 : 0755},
		{true, true, 01755, me, mine, 01755},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct record_file r = file_record("f", cases[i].mode, 3);
		struct stat st;

		rules.owner = cases[i].owner;
		rules.group = cases[i].group;
		r.a.uid = cases[i].uid;
		r.a.gid = cases[i].gid;
		for (int there = 0; there < 2; there++) {
			begin_dst_run();
			put(&r, NULL);
			end_dst_run();
			st = stat_of("dst/f");
			assert_int_equal(st.st_mode & 07777, cases[i].should);
			begin_dst_run();
			assert_int_equal(place_update_metadata(place, top, &r, NULL), 0);
			end_dst_run();
			assert_int_equal(stat_of("dst/f").st_mode & 07777, cases[i].should);
		}
		assert_int_equal(unlink("dst/f"), 0);
	}
}

static void only_root_changes_owners(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct stat st;

	(void)state;
	r.a.uid = 12;
	r.a.gid = 34;
	begin_dst_run();
	put(&r, NULL);
	put_symlink(place, top, "l", "f");
	end_dst_run();
	st = stat_of("dst/f");
	assert_int_equal(st.st_uid, geteuid() == 0 ? 12 : geteuid());
	assert_int_equal(st.st_gid, geteuid() == 0 ? 34 : getegid());
	/* Without -o an existing file keeps its owner. */
	r.a.uid = r.a.gid = 0;
	rules = rules_r;
	begin_dst_run();
	put(&r, NULL);
	end_dst_run();
	assert_int_equal(stat_of("dst/f").st_uid, st.st_uid);
	assert_int_equal(stat_of("dst/f").st_gid, st.st_gid);
}

static void chown_overrides_the_source_owner(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct place_opts o = {.target = "dst", .rules = &rules};
	struct place *p;

	(void)state;
	rules.chown = "12:34";
	begin_dst_run();
	put(&r, NULL);
	put_dir(place, top, "d", 0755);
	put_symlink(place, top, "l", "x");
	end_dst_run();
	if (geteuid() == 0) {
		assert_int_equal(stat_of("dst/f").st_uid, 12);
		assert_int_equal(stat_of("dst/f").st_gid, 34);
		assert_int_equal(stat_of("dst/d").st_uid, 12);
		assert_int_equal(stat_of("dst/l").st_gid, 34);
	} else {
		assert_int_equal(stat_of("dst/f").st_uid, geteuid());
	}
	rules.chown = "nobody-of-that-name";
	assert_int_equal(place_open(&o, &p), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
}

/* A run of root was killed between giving the file away and renaming it. */
static void temporary_given_to_another_user_is_removed(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct placement *t;
	char name[256], path[300];

	(void)state;
	/* Only root can give files away. */
	if (geteuid() != 0)
		return;
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	place_drop(t, true);
	place_close(place);
	assert_int_equal(temporaries("dst", name), 1);
	snprintf(path, sizeof path, "dst/%s", name);
	assert_int_equal(chown(path, 12, 34), 0);
	r.a.uid = 12;
	begin_dst_run();
	put(&r, NULL);
	end_dst_run();
}

static void attributes_of_files_and_directories_are_set(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct place_dir *d;

	(void)state;
	make("dst/f", "old", 0644);
	/* tmpfs before Linux 6.6 has none. */
	if (setxattr("dst/f", "user.t", "red", 3, 0) || setxattr("dst/f", "user.u", "red", 3, 0))
		return;
	/*
	 * Without -X the replaced file's attributes stay, unless the file should be as the source.
	 */
	rules = rules_r;
	begin_dst_run();
	put(&r, NULL);
	end_dst_run();
	assert_xattr("dst/f", "red");
	rules.xattrs = true;
	begin_dst_run();
	put(&r, attributes("user.t", "blue"));
	d = put_dir(place, top, "d", 0555);
	place_dir_xattrs(d, attributes("user.t", "green"));
	put_file(place, d, "f", "x");
	end_dst_run();
	assert_xattr("dst/f", "blue");
	assert_int_equal(getxattr("dst/f", "user.u", NULL, 0), -1);
	assert_xattr("dst/d", "green");
	begin_dst_run();
	put_dir(place, top, "d", 0555);
	put(&r, NULL);
	end_dst_run();
	assert_xattr("dst/f", NULL);
	assert_xattr("dst/d", NULL);
}

/* A file whose attributes can't be set is stored, and counted as failed. */
static void file_is_stored_though_its_attributes_fail(void **state)
{
	struct record_file r = file_record("f", 0644, 3);
	struct placement *t;
	bool root = geteuid() == 0;

	(void)state;
	/* Root may set everything. */
	assert_int_equal(chmod(".", 0755), 0);
	if (root && (chown("dst", 1, 1) || seteuid(1)))
		fail_msg("seteuid: %m");
	rules.xattrs_all = true;
	begin_dst_run();
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	placement_xattrs(t, attributes("security.sluice", "x"));
	assert_int_equal(write(placement_fd(t), "new", 3), 3);
	assert_int_equal(place_finish_file(t, 3), -1);
	assert_non_null(strstr(failed()->text, "security.sluice"));
	end_dst_run();
	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_text("dst/f", "new");
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, enter_dst, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(look_compares_size_and_mtime),
		place_test(look_opens_regular_files_only),
		place_test(same_file_gets_the_source_metadata),
		place_test(leftover_temporary_of_a_same_file_is_removed),
		place_test(temporary_of_an_earlier_run_is_resumed),
		place_test(nothing_is_resumed_for_a_blocked_name),
		place_test(inplace_resumes_the_target),
		place_test(file_changes_are_reported),
		place_test(times_follow_the_rules),
		place_test(set_id_bits_need_their_owner),
		place_test(only_root_changes_owners),
		place_test(chown_overrides_the_source_owner),
		place_test(temporary_given_to_another_user_is_removed),
		place_test(attributes_of_files_and_directories_are_set),
		place_test(file_is_stored_though_its_attributes_fail),
	};

	return cmocka_run_group_tests_name("place_look", tests, NULL, NULL);
}
