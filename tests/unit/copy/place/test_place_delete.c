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
#include <unistd.h>
#include <cmocka.h>
#include "place_rig.h"

static struct rules rules;

/* dst with a, b, d/f, d/e/g and l -> outside; outside with f. */
static int enter(void **state)
{
	if (folder_enter(state))
		return -1;
	rules = rules_r;
	rules.delete = true;
	make_dir("outside", 0755);
	make("outside/f", "mine", 0644);
	make_dir("dst", 0755);
	make("dst/a", "old", 0644);
	make("dst/b", "old", 0644);
	make_dir("dst/d", 0755);
	make("dst/d/f", "old", 0644);
	make_dir("dst/d/e", 0755);
	make("dst/d/e/g", "old", 0644);
	assert_int_equal(symlink("../outside", "dst/l"), 0);
	return 0;
}

static struct place *at(const char *target)
{
	struct place_opts o = {.target = target, .peer = "h", .rules = &rules};

	return open_place(&o);
}

/* Which of the names exist, in this order. */
static void assert_names(const char *list, const char *should)
{
	char copy[256], *rest = copy, *name;
	size_t len = 0;

	snprintf(copy, sizeof copy, "%s", should);
	while ((name = strsep(&rest, " ")) != NULL) {
		const char *found = strstr(list, name);

		if (!found)
			fail_msg("%s is not in %s", name, list);
		len += strlen(name) + 1;
	}
	if (strlen(list) + 1 != len && *list)
		fail_msg("there is more than %s: %s", should, list);
}

static void names_missing_at_the_source_are_deleted(void **state)
{
	struct end_seen seen;
	struct place *p = at("dst");
	struct place_dir *d = put_contents(p, 0755);

	(void)state;
	put_file(p, d, "new", "x");
	keep(d, "a new");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "b:1 l:3 d/f:1 d/e/g:1 d/e:2 d:2");
	assert_string_equal(seen.failed, "");
	assert_int_equal(seen.count, 6);
	assert_text("dst/a", "old");
	assert_text("dst/new", "x");
	assert_absent("dst/b");
	assert_absent("dst/d");
	assert_absent("dst/l");
	assert_text("outside/f", "mine");
}

static void nothing_is_deleted_unless_all_names_are_known(void **state)
{
	struct end_seen seen;
	struct place *p = at("dst");
	struct place_dir *d = put_contents(p, 0755);
	struct reader none = reader_of("", 0);

	(void)state;
	keep(d, "a");
	complete(p, false, &seen);
	place_close(p);
	assert_string_equal(seen.deleted, "");
	p = at("dst");
	d = put_contents(p, 0755);
	assert_int_equal(place_dir_keep(d, &none, false), 0);
	complete(p, true, &seen);
	place_close(p);
	assert_string_equal(seen.deleted, "");
	/* The source sent no KEEP for d. */
	p = at("dst");
	d = put_contents(p, 0755);
	put_dir(p, d, "d", 0755);
	keep(d, "a b d l");
	complete(p, true, &seen);
	place_close(p);
	assert_string_equal(seen.deleted, "");
	assert_text("dst/d/e/g", "old");
}

static void names_created_meanwhile_stay(void **state)
{
	struct end_seen seen;
	struct place *p = at("dst");
	struct place_dir *d = put_contents(p, 0755);

	(void)state;
	keep(d, "a b l d");
	make("dst/later", "x", 0644);
	complete(p, true, &seen);
	place_close(p);
	assert_string_equal(seen.deleted, "");
	assert_text("dst/later", "x");
}

static void new_directories_are_not_scanned(void **state)
{
	struct end_seen seen;
	struct place *p = at("dst");
	struct place_dir *d = put_dir(p, put_contents(p, 0755), "new", 0755);

	(void)state;
	put_file(p, d, "f", "x");
	keep(d, "");
	complete(p, true, &seen);
	place_close(p);
	assert_text("dst/new/f", "x");
}

static void names_of_both_sources_are_kept(void **state)
{
	struct end_seen seen;
	struct place *p = at("dst");
	struct place_dir *d = put_contents(p, 0755), *e;

	(void)state;
	put_file(p, d, "mine", "x");
	keep(d, "a mine");
	e = put_contents(p, 0755);
	put_file(p, e, "yours", "x");
	keep(e, "b yours");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "l:3 d/f:1 d/e/g:1 d/e:2 d:2");
	assert_text("dst/mine", "x");
	assert_text("dst/yours", "x");
}

static void filtered_names_are_protected(void **state)
{
	struct end_seen seen;
	struct filter *f;
	struct place *p;
	struct place_dir *d;

	(void)state;
	assert_int_equal(filter_new(&f), 0);
	assert_int_equal(filter_add(f, false, "g"), 0);
	assert_int_equal(filter_add(f, false, "/b"), 0);
	rules.filter = f;
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "a:1 l:3 d/f:1");
	assert_string_equal(seen.failed, "");
	assert_text("dst/d/e/g", "old");
	assert_text("dst/b", "old");
	rules.delete_excluded = true;
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "b:1 d/e/g:1 d/e:2 d:2");
	filter_free(f);
}

/* Patterns apply to paths of the transfer. */
static void filters_match_paths_of_the_transfer(void **state)
{
	struct end_seen seen;
	struct filter *f;
	struct place *p;
	struct place_dir *d;

	(void)state;
	assert_int_equal(filter_new(&f), 0);
	assert_int_equal(filter_add(f, false, "/d/e/g"), 0);
	rules.filter = f;
	p = at("dst");
	d = put_dir(p, NULL, "d", 0755);
	keep(d, "");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "d/f:1");
	filter_free(f);
}

static void max_delete_limits_deletions(void **state)
{
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;

	(void)state;
	rules.max_delete = 2;
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "l d");
	complete(p, true, &seen);
	place_close(p);
	assert_false(seen.too_many);
	assert_names(seen.deleted, "a:1 b:1");
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "l");
	complete(p, true, &seen);
	place_close(p);
	assert_true(seen.too_many);
	assert_int_equal(seen.count, 2);
	assert_int_equal(mode_of("dst/d"), 0755);
	rules.max_delete = 0;
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "");
	complete(p, true, &seen);
	place_close(p);
	assert_true(seen.too_many);
	assert_int_equal(seen.count, 0);
}

static void dry_run_reports_deletions_only(void **state)
{
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;

	(void)state;
	rules.dry_run = true;
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "a");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "b:1 l:3 d/f:1 d/e/g:1 d/e:2 d:2");
	assert_text("dst/b", "old");
	assert_text("dst/d/e/g", "old");
}

static void temporaries_of_other_users_stay(void **state)
{
	static const char stale[] = "dst/.sluice.0123456789abcdef";
	static const char locked[] = "dst/.sluice.0123456789abcdee";
	static const char marker[] = "dst/.sluice.marker.0123456789abcdef";
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;
	int fd;

	(void)state;
	make(stale, "of a name that is no more", 0600);
	make(locked, "at work", 0600);
	make(marker, "", 0600);
	make("dst/.sluice.mine", "x", 0600);
	fd = open(locked, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "a b d l");
	complete(p, true, &seen);
	place_close(p);
	close(fd);
	assert_names(seen.deleted, ".sluice.mine:1");
	assert_absent(stale);
	assert_text(locked, "at work");
	assert_text(marker, "");
}

static void deleted_files_are_backed_up(void **state)
{
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;

	(void)state;
	rules.backup = true;
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "l d");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "a:1 b:1");
	assert_text("dst/a~", "old");
	/* Backups are not deleted either; a directory with the backup of a deleted file stays. */
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "l");
	complete(p, true, &seen);
	place_close(p);
	assert_names(seen.deleted, "d/f:1 d/e/g:1");
	assert_string_equal(seen.failed, "");
	assert_text("dst/a~", "old");
	assert_text("dst/d/e/g~", "old");

	rules.backup_dir = ".old/today";
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "l");
	complete(p, true, &seen);
	place_close(p);
	assert_text("dst/.old/today/a~", "old");
	assert_text("dst/.old/today/d/e/g~", "old");
	assert_absent("dst/d");
	make("dst/.old/yesterday", "x", 0644);
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "l");
	complete(p, true, &seen);
	place_close(p);
	assert_string_equal(seen.deleted, "");
	assert_text("dst/.old/today/a~", "old");
	assert_text("dst/.old/yesterday", "x");
}

static void failed_deletion_is_reported(void **state)
{
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;

	(void)state;
	/* Needs two users: dst is nobody's, d is root's. */
	if (geteuid() != 0)
		return;
	assert_int_equal(chmod(".", 0777), 0);
	assert_int_equal(chown("dst", 1, 1), 0);
	assert_int_equal(seteuid(1), 0);
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "");
	complete(p, true, &seen);
	place_close(p);
	assert_int_equal(seteuid(0), 0);
	assert_names(seen.failed, "d/f:1 d/e/g:1");
	assert_names(seen.deleted, "a:1 b:1 l:3");
}

static void own_directories_without_permissions_are_deleted(void **state)
{
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;

	(void)state;
	assert_int_equal(chmod("dst/d/e", 0000), 0);
	assert_int_equal(chmod("dst/d", 0500), 0);
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "a b l");
	complete(p, true, &seen);
	place_close(p);
	assert_string_equal(seen.failed, "");
	assert_absent("dst/d");
}

/* Directories that stay keep their mode. */
static void only_deleted_directories_change_their_mode(void **state)
{
	static const char *const all[] = {"dst",     "dst/a",   "dst/b",    "dst/d",
					  "dst/d/f", "dst/d/e", "dst/d/e/g"};
	bool root = geteuid() == 0;
	struct end_seen seen;
	struct place *p;
	struct place_dir *d;
	struct filter *f;

	(void)state;
	assert_int_equal(filter_new(&f), 0);
	assert_int_equal(filter_add(f, false, "/d/e/"), 0);
	rules.filter = f;
	assert_int_equal(chmod("dst/d/e", 0500), 0);
	assert_int_equal(chmod("dst/d", 0500), 0);
	for (size_t i = 0; root && i < sizeof all / sizeof *all; i++)
		assert_int_equal(chown(all[i], 1, 1), 0);
	assert_int_equal(chmod(".", 0777), 0);
	assert_int_equal(root ? seteuid(1) : 0, 0);
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "a b l");
	complete(p, true, &seen);
	place_close(p);
	assert_int_equal(root ? seteuid(0) : 0, 0);
	filter_free(f);
	assert_names(seen.deleted, "d/f:1");
	assert_string_equal(seen.failed, "");
	assert_int_equal(mode_of("dst/d/e"), 0500);
	assert_int_equal(mode_of("dst/d"), 0500);
}

/* In the way of a file or symlink. */
static void directory_in_the_way_is_replaced(void **state)
{
	struct place *p = at("dst");
	struct place_dir *d = put_contents(p, 0755);
	struct change c;

	(void)state;
	put_file(p, d, "d", "x");
	finish_place(p);
	assert_text("dst/d", "x");
	assert_int_equal(unlink("dst/d"), 0);
	make_dir("dst/d", 0755);
	make("dst/d/f", "old", 0644);
	rules.delete = false;
	p = at("dst");
	d = put_contents(p, 0755);
	assert_int_equal(try_file(p, d, "d", "x"), -1);
	assert_non_null(strstr(failed()->text, "replace directory d: it is not empty (--delete"));
	assert_int_equal(try_symlink(p, d, "d", "x", &c), -1);
	assert_int_equal(unlink("dst/d/f"), 0);
	put_symlink(p, d, "d", "x");
	finish_place(p);
	assert_no_temporaries();
	rules.delete = true;
	assert_int_equal(unlink("dst/d"), 0);
	make_dir("dst/d", 0755);
	make("dst/d/f", "old", 0644);
	p = at("dst");
	d = put_contents(p, 0755);
	put_symlink(p, d, "d", "x");
	finish_place(p);
	assert_int_equal(unlink("dst/d"), 0);
	make_dir("dst/d", 0755);
	make("dst/d/f", "old", 0644);
	rules.backup = true;
	p = at("dst");
	d = put_contents(p, 0755);
	put_file(p, d, "d", "x");
	finish_place(p);
	assert_text("dst/d", "x");
	assert_text("dst/d~/f", "old");
}

struct other_lane {
	struct place *place;
	struct place_dir *in;
	unsigned cleared;
	int ret;
};

/* The other lane arrives when the first name is removed. */
static void make_room_too(void *ctx, enum event_what what, const char *path)
{
	struct other_lane *o = ctx;

	(void)what;
	(void)path;
	if (o->cleared++ == 0)
		o->ret = try_file(o->place, o->in, "e", "x");
}

static void make_full(const char *dir)
{
	static const char *const names[] = {"1", "2", "3"};
	char path[64];

	make_dir(dir, 0755);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		make(path, "old", 0644);
	}
}

static void directory_in_the_way_is_removed_whole_or_not(void **state)
{
	struct other_lane other = {0};
	struct place_opts o = {.target = "to",
			       .peer = "h",
			       .rules = &rules,
			       .on_cleared = make_room_too,
			       .ctx = &other};
	struct end_seen seen;

	(void)state;
	make_dir("to", 0755);
	make_full("to/d");
	make_full("to/e");
	rules.max_delete = 5;
	other.place = open_place(&o);
	other.in = put_contents(other.place, 0755);
	assert_int_equal(try_file(other.place, other.in, "d", "x"), 0);
	assert_int_equal(other.ret, -1);
	assert_int_equal(other.cleared, 3);
	complete(other.place, true, &seen);
	place_close(other.place);
	assert_true(seen.too_many);
	assert_int_equal(seen.count, 3);
	assert_text("to/d", "x");
	assert_text("to/e/1", "old");
	assert_text("to/e/3", "old");
}

enum { DEEP = 600 };

static void deep_directories_are_deleted(void **state)
{
	struct end_seen seen;
	struct place *p = at("dst");
	struct place_dir *d = put_contents(p, 0755), *e = d;

	(void)state;
	e = put_dir(p, d, "deep", 0755);
	for (int i = 0; i < DEEP; i++)
		e = put_dir(p, e, "eight888", 0755);
	put_file(p, e, "f", "x");
	finish_place(p);
	p = at("dst");
	d = put_contents(p, 0755);
	keep(d, "a b d l");
	complete(p, true, &seen);
	place_close(p);
	assert_int_equal(seen.count, DEEP + 2);
	assert_absent("dst/deep");
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(names_missing_at_the_source_are_deleted),
		place_test(nothing_is_deleted_unless_all_names_are_known),
		place_test(names_created_meanwhile_stay),
		place_test(new_directories_are_not_scanned),
		place_test(names_of_both_sources_are_kept),
		place_test(filtered_names_are_protected),
		place_test(filters_match_paths_of_the_transfer),
		place_test(max_delete_limits_deletions),
		place_test(dry_run_reports_deletions_only),
		place_test(temporaries_of_other_users_stay),
		place_test(deleted_files_are_backed_up),
		place_test(failed_deletion_is_reported),
		place_test(own_directories_without_permissions_are_deleted),
		place_test(only_deleted_directories_change_their_mode),
		place_test(directory_in_the_way_is_replaced),
		place_test(directory_in_the_way_is_removed_whole_or_not),
		place_test(deep_directories_are_deleted),
	};

	return cmocka_run_group_tests_name("place_delete", tests, NULL, NULL);
}
