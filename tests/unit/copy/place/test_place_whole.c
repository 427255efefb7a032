/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Files that are begun and finished in one call: without an existing target they have no name
 * before they are complete.
 */

#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "dst_rig.h"

static unsigned private_checks;

bool __real_place_is_private(struct place *p, int dirfd);
bool __wrap_place_is_private(struct place *p, int dirfd);

bool __wrap_place_is_private(struct place *p, int dirfd)
{
	private_checks++;
	return __real_place_is_private(p, dirfd);
}

static int enter(void **state)
{
	rules = rules_a;
	return folder_enter(state);
}

/* Enter dst, made by this run, or existing. */
static void begin(bool there)
{
	if (there)
		make_dir("dst", 0755);
	begin_dst_run();
}

static struct placement *write_whole(const char *name, mode_t mode, const char *text)
{
	struct record_file r = file_record(name, mode, strlen(text));
	struct placement *t;

	if (place_begin_whole(place, top, &r, &t))
		fail_msg("%s", failed()->text);
	assert_int_equal(write(placement_fd(t), text, strlen(text)), strlen(text));
	return t;
}

static void put_whole(const char *name, mode_t mode, const char *text)
{
	struct placement *t = write_whole(name, mode, text);

	if (place_finish_file(t, strlen(text)))
		fail_msg("%s", failed()->text);
}

static unsigned entries(const char *in)
{
	DIR *d = opendir(in);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void assert_time(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(st.st_mtim.tv_nsec, 500000000);
	assert_int_equal(st.st_nlink, 1);
}

static void whole_files_get_mode_and_time(void **state)
{
	static const mode_t modes[] = {0644, 0, 0444, 0777, 0622, 06755, 01666, 0600};
	char name[] = "dst/f0";

	for (int there = 0; there < 2; there++) {
		begin(there);
		for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
			name[5] = (char)('0' + i);
			put_whole(name + 4, modes[i], "text");
			assert_int_equal(mode_of(name), modes[i]);
			assert_time(name);
		}
		assert_text("dst/f0", "text");
		finish_place(place);
		assert_int_equal(entries("dst"), sizeof modes / sizeof *modes);
		folder_leave(state);
		folder_enter(state);
	}
}

static void umask_applies_without_perms(void **state)
{
	mode_t old = umask(027);

	(void)state;
	rules = rules_r;
	begin(false);
	put_whole("f", 04777, "a");
	put_whole("g", 0666, "b");
	umask(old);
	assert_int_equal(mode_of("dst/f"), 0750);
	assert_int_equal(mode_of("dst/g"), 0640);
	finish_place(place);
}

/* Attributes that a directory passes to its entries apply in our own directories as well. */
static void group_is_inherited_from_a_set_group_id_directory(void **state)
{
	struct stat st;

	(void)state;
	if (geteuid() != 0)
		skip();
	rules = rules_r;
	assert_int_equal(chown(".", 0, 4242), 0);
	assert_int_equal(chmod(".", 02755), 0);
	begin(false);
	put_whole("f", 0644, "a");
	put_whole("g", 02755, "b");
	assert_int_equal(stat("dst/g", &st), 0);
	assert_int_equal(st.st_gid, 4242);
	finish_place(place);
	rules = rules_a;
	begin(false);
	put_whole("h", 0644, "a");
	put_whole("i", 02755, "b");
	assert_int_equal(stat("dst/i", &st), 0);
	assert_int_equal(st.st_gid, 0);
	assert_int_equal(st.st_mode & 07777, 02755);
	finish_place(place);
}

static void no_name_exists_before_the_file_is_whole(void **state)
{
	struct placement *t;

	(void)state;
	begin(true);
	t = write_whole("f", 0644, "text");
	if (entries("dst") != 0)
		skip(); /* the file system has no O_TMPFILE */
	place_drop(t, true);
	assert_int_equal(entries("dst"), 0);
	t = write_whole("f", 0644, "text");
	place_drop(t, false);
	assert_int_equal(entries("dst"), 0);
	finish_place(place);
}

/* Whether the directory is private matters only to a temporary with a name. */
static void private_directory_is_not_checked_for_a_nameless_file(void **state)
{
	struct placement *t;
	bool named;

	(void)state;
	begin(false);
	t = write_whole("f", 0644, "text");
	named = entries("dst") != 0;
	place_drop(t, false);
	if (named)
		skip(); /* the file system has no O_TMPFILE */
	private_checks = 0;
	put_whole("f", 0644, "text");
	put_whole("g", 0644, "text");
	assert_int_equal(private_checks, 0);
	finish_place(place);
}

/* The file that another process created first is replaced like an existing one. */
static void file_created_meanwhile_is_replaced(void **state)
{
	struct placement *t;

	for (int there = 0; there < 2; there++) {
		begin(there);
		t = write_whole("f", 0644, "ours");
		make("dst/f", "theirs", 0600);
		assert_int_equal(place_finish_file(t, 4), 0);
		assert_text("dst/f", "ours");
		assert_int_equal(mode_of("dst/f"), 0644);
		assert_time("dst/f");
		finish_place(place);
		assert_int_equal(entries("dst"), 1);
		folder_leave(state);
		folder_enter(state);
	}
}

static void file_created_meanwhile_is_backed_up(void **state)
{
	struct placement *t;

	(void)state;
	rules.backup = true;
	begin(true);
	t = write_whole("f", 0644, "ours");
	make("dst/f", "theirs", 0600);
	assert_int_equal(place_finish_file(t, 4), 0);
	assert_text("dst/f", "ours");
	assert_text("dst/f~", "theirs");
	finish_place(place);
	assert_int_equal(entries("dst"), 2);
}

/* A directory cannot be replaced: the file fails, and leaves nothing behind. */
static void directory_created_meanwhile_stays(void **state)
{
	struct placement *t;

	(void)state;
	begin(true);
	t = write_whole("f", 0644, "ours");
	make_dir("dst/f", 0755);
	make("dst/f/in", "theirs", 0600);
	assert_int_equal(place_finish_file(t, 4), -1);
	assert_text("dst/f/in", "theirs");
	finish_place(place);
	assert_int_equal(entries("dst"), 1);
}

/* An earlier run was killed after it had begun the file in several blocks. */
static void temporary_of_an_earlier_run_is_removed(void **state)
{
	struct record_file r = file_record("f", 0644, 1 << 20);
	struct placement *t;

	(void)state;
	begin(true);
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_int_equal(write(placement_fd(t), "text", 4), 4);
	place_drop(t, true);
	place_close(place);
	assert_int_equal(entries("dst"), 1);
	place = open_place(&(struct place_opts){.target = "dst", .peer = "h", .rules = &rules});
	top = put_contents(place, 0755);
	put_whole("f", 0644, "small now");
	assert_text("dst/f", "small now");
	finish_place(place);
	assert_int_equal(entries("dst"), 1);
}

static void existing_file_is_replaced_by_rename(void **state)
{
	(void)state;
	begin(true);
	make("dst/f", "old", 0600);
	put_whole("f", 0644, "new");
	assert_text("dst/f", "new");
	finish_place(place);
	assert_int_equal(entries("dst"), 1);
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(whole_files_get_mode_and_time),
		place_test(umask_applies_without_perms),
		place_test(group_is_inherited_from_a_set_group_id_directory),
		place_test(no_name_exists_before_the_file_is_whole),
		place_test(private_directory_is_not_checked_for_a_nameless_file),
		place_test(file_created_meanwhile_is_replaced),
		place_test(file_created_meanwhile_is_backed_up),
		place_test(directory_created_meanwhile_stays),
		place_test(temporary_of_an_earlier_run_is_removed),
		place_test(existing_file_is_replaced_by_rename),
	};

	return cmocka_run_group_tests_name("place_whole", tests, NULL, NULL);
}
