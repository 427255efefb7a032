/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include "copy/place/change.h"

static void assert_change(struct change c, bool sent, bool far, const char *should)
{
	char is[EVENT_CHANGE];

	memset(is, 'z', sizeof is);
	change_text(&c, sent, far, is);
	assert_string_equal(is, should);
}

#define C(...) ((struct change){__VA_ARGS__})

static void new_entries_are_itemized(void **state)
{
	(void)state;
	assert_change(C(.what = EVENT_FILE, .missing = true), true, true, "<f+++++++++");
	assert_change(C(.what = EVENT_FILE, .missing = true), true, false, ">f+++++++++");
	assert_change(C(.what = EVENT_FILE, .type = true), true, false, ">f+++++++++");
	assert_change(C(.what = EVENT_DIR, .missing = true), false, true, "cd+++++++++");
	assert_change(C(.what = EVENT_DIR, .type = true), false, true, "cd+++++++++");
	assert_change(C(.what = EVENT_SYMLINK, .missing = true), false, true, "cL+++++++++");
	assert_change(C(.what = EVENT_HARD_LINK, .missing = true), false, true, "hf+++++++++");
	assert_change(C(.what = EVENT_NODE, .missing = true), false, false, "cS+++++++++");
	assert_change(C(.what = EVENT_NODE, .missing = true, .device = true), false, false,
		      "cD+++++++++");
}

static void each_change_has_its_letter(void **state)
{
	(void)state;
	assert_change(C(.content = true), true, false, ">fc........");
	assert_change(C(.size = true), true, false, ">f.s.......");
	assert_change(C(.time = true), true, false, ">f..t......");
	assert_change(C(.now = true), true, false, ">f..T......");
	assert_change(C(.now = true), false, false, ".f         ");
	assert_change(C(.perms = true), true, false, ">f...p.....");
	assert_change(C(.owner = true), true, false, ">f....o....");
	assert_change(C(.group = true), true, false, ">f.....g...");
	assert_change(C(.acl = true), true, false, ">f.......a.");
	assert_change(C(.xattr = true), true, false, ">f........x");
}

static void existing_entries_are_itemized(void **state)
{
	(void)state;
	assert_change(C(.what = EVENT_FILE), false, true, ".f         ");
	assert_change(C(.what = EVENT_FILE), true, true, "<f.........");
	assert_change(C(.what = EVENT_DIR, .time = true), false, true, ".d..t......");
	assert_change(C(.what = EVENT_DIR), false, true, ".d         ");
	assert_change(C(.what = EVENT_SYMLINK, .content = true), false, true, "cLc........");
	assert_change(C(.what = EVENT_SYMLINK, .time = true), false, true, ".L..t......");
	assert_change(C(.what = EVENT_NODE, .content = true, .device = true), false, true,
		      "cDc........");
	assert_change(C(.what = EVENT_HARD_LINK), false, true, ".f         ");
}

static void change_any_detects_every_change(void **state)
{
	(void)state;
	assert_false(change_any(&C(.what = EVENT_DIR, .device = true, .now = true)));
	assert_true(change_any(&C(.missing = true)));
	assert_true(change_any(&C(.type = true)));
	assert_true(change_any(&C(.content = true)));
	assert_true(change_any(&C(.size = true)));
	assert_true(change_any(&C(.time = true)));
	assert_true(change_any(&C(.perms = true)));
	assert_true(change_any(&C(.owner = true)));
	assert_true(change_any(&C(.group = true)));
	assert_true(change_any(&C(.acl = true)));
	assert_true(change_any(&C(.xattr = true)));
}

/* ---- rsync itself --------------------------------------------------------------------- */

/*
 * Runs in a directory with a source a and a target b, which the shell commands prepare; rsync's
 * itemized line for one name is compared with ours.
 */
struct case_of {
	const char *make;
	const char *options;
	const char *name; /* as rsync prints it */
	struct change c;
	bool sent;
};
static const struct case_of cases[] = {
	{"echo 1 >a/f", "-a", "f", {.what = EVENT_FILE, .missing = true}, true},
	{"echo 1 >a/f; mkdir b/f", "-a --delete", "f", {.what = EVENT_FILE, .type = true}, true},
	{"mkdir a/d", "-a", "d/", {.what = EVENT_DIR, .missing = true}, false},
	{"ln -s x a/l", "-a", "l -> x", {.what = EVENT_SYMLINK, .missing = true}, false},
	{"mkfifo a/p", "-a", "p", {.what = EVENT_NODE, .missing = true}, false},
	{"echo 1 >a/f; ln a/f a/g; cp -p a/f b/f",
	 "-aH",
	 "g => f",
	 {.what = EVENT_HARD_LINK, .missing = true},
	 false},
	{"echo 11 >a/f; echo 1 >b/f; touch -r a/f b/f",
	 "-a",
	 "f",
	 {.what = EVENT_FILE, .size = true},
	 true},
	{"echo 1 >a/f; echo 2 >b/f; touch -d @1 b/f",
	 "-a",
	 "f",
	 {.what = EVENT_FILE, .time = true},
	 true},
	{"echo 1 >a/f; echo 2 >b/f; touch -d @1 b/f",
	 "-r",
	 "f",
	 {.what = EVENT_FILE, .now = true},
	 true},
	{"echo 11 >a/f; echo 2 >b/f; touch -r a/f b/f",
	 "-r",
	 "f",
	 {.what = EVENT_FILE, .size = true, .now = true},
	 true},
	{"echo 1 >a/f; echo 2 >b/f; touch -r a/f b/f",
	 "-ac",
	 "f",
	 {.what = EVENT_FILE, .content = true},
	 true},
	{"echo 1 >a/f; cp -p a/f b/f; chmod 600 b/f",
	 "-a",
	 "f",
	 {.what = EVENT_FILE, .perms = true},
	 false},
	{"echo 1 >a/f; cp -p a/f b/f", "-aii", "f", {.what = EVENT_FILE}, false},
	{"mkdir a/d b/d; touch -d @1 b/d", "-a", "d/", {.what = EVENT_DIR, .time = true}, false},
	{"mkdir a/d b/d; touch -r a/d b/d; chmod 700 b/d",
	 "-a",
	 "d/",
	 {.what = EVENT_DIR, .perms = true},
	 false},
	{"mkdir a/d b/d; touch -r a/d b/d", "-aii", "d/", {.what = EVENT_DIR}, false},
	{"ln -s x a/l; ln -s y b/l; touch -h -r a/l b/l",
	 "-a",
	 "l -> x",
	 {.what = EVENT_SYMLINK, .content = true},
	 false},
	{"ln -s x a/l; ln -s y b/l",
	 "-rl",
	 "l -> x",
	 {.what = EVENT_SYMLINK, .content = true, .now = true},
	 false},
	{"ln -s x a/l; ln -s x b/l; touch -h -d @1 b/l",
	 "-a",
	 "l -> x",
	 {.what = EVENT_SYMLINK, .time = true},
	 false},
};

static void itemized_lines_match_rsync(void **state)
{
	(void)state;
	if (system("rsync --version >/dev/null 2>&1") != 0)
		skip();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct case_of *c = &cases[i];
		char script[1024], line[512], is[EVENT_CHANGE];
		char *theirs = NULL;
		FILE *p;

		snprintf(
			script, sizeof script,
			"set -e; t=$(mktemp -d); trap 'rm -rf $t' EXIT; cd $t; umask 022; mkdir a b; %s; "
			"rsync -n -i %s a/ b/",
			c->make, c->options);
		p = popen(script, "r");
		assert_non_null(p);
		while (fgets(line, sizeof line, p)) {
			line[strcspn(line, "\n")] = '\0';
			if (strlen(line) > 12 && strcmp(line + 12, c->name) == 0) {
				line[11] = '\0';
				theirs = strdup(line);
				break;
			}
		}
		pclose(p);
		change_text(&c->c, c->sent, false, is);
		if (!theirs || strcmp(theirs, is) != 0)
			print_error("%s; rsync %s: %s\n", c->make, c->options, c->name);
		assert_non_null(theirs);
		assert_string_equal(is, theirs);
		free(theirs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_entries_are_itemized),
		cmocka_unit_test(each_change_has_its_letter),
		cmocka_unit_test(existing_entries_are_itemized),
		cmocka_unit_test(change_any_detects_every_change),
		cmocka_unit_test(itemized_lines_match_rsync),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
