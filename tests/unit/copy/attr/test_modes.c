/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/attr/modes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"

/* The results of rsync 3.5, with umask 022. */
static void chmod_changes_modes_as_rsync_does(void **state)
{
	static const struct {
		const char *text;
		uint32_t mode, dir, file;
	} samples[] = {
		{"755", 07654, 0755, 0755},
		{"D755,F644", 07654, 0755, 0644},
		{"0", 0777, 0, 0},
		{"07777", 0, 07777, 07777},
		{"u=rwX,go=rX", 0600, 0755, 0644},
		{"u=rwX,go=rX", 0601, 0755, 0755},
		{"a+X", 0600, 0711, 0600},
		{"go-w", 0666, 0644, 0644},
		{"+w", 0444, 0644, 0644}, /* minus the umask */
		{"a+w", 0444, 0666, 0666},
		{"-w", 0666, 0466, 0466},
		{"=", 0777, 0, 0},
		{"u=", 07777, 07077, 07077},
		{"Du=rwx,Fu=rw", 0, 0700, 0600},
		{"Dg+s,ug+w,Fo-w,+X", 0646, 02777, 0664},
		{"u+s", 0644, 04644, 04644},
		{"g+s", 0644, 02644, 02644},
		{"o+s", 0644, 04644, 04644},
		{"a+s", 0644, 06644, 06644},
		{"a-s", 07654, 01654, 01654},
		{"-s", 07654, 03654, 03654},
		{"+t", 0644, 01644, 01644},
		{"g=t", 07654, 05604, 05604},
		{"u=s", 07654, 07054, 07054},
		{"g=u", 07654, 05664, 05664},
		{"o=g,u=o", 07654, 02555, 02555},
		{"u-g", 07654, 07254, 07254},
		{"=g", 07654, 0555, 0555},
		{"o=o", 07654, 06654, 06654},
		{"u+x,u+x,u-x", 0644, 0644, 0644},
	};
	mode_t before = umask(022);

	(void)state;
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
		struct modes *m;

		assert_int_equal(modes_parse(samples[i].text, &m), 0);
		if (modes_apply(m, samples[i].mode, true) != samples[i].dir ||
		    modes_apply(m, samples[i].mode, false) != samples[i].file)
			print_error("%s of %04o\n", samples[i].text, samples[i].mode);
		assert_int_equal(modes_apply(m, samples[i].mode, true), samples[i].dir);
		assert_int_equal(modes_apply(m, samples[i].mode, false), samples[i].file);
		modes_free(m);
	}
	assert_int_equal(umask(before), 022); /* parsing left it unchanged */
}

static void empty_chmod_changes_nothing(void **state)
{
	struct modes *m = (struct modes *)state;

	assert_int_equal(modes_parse("", &m), 0);
	assert_null(m);
	assert_int_equal(modes_apply(m, 07654, false), 07654);
	modes_free(m);
}

static void invalid_chmod_is_refused(void **state)
{
	static const char *const wrong[] = {
		"8",
		"u",
		",",
		"u=r,",
		",u=r",
		"D",
		"F",
		"DF755",
		"D 755",
		"u+7",
		"u7",
		"77777",
		"u=rw+",
		"u=r=w",
		"u=ux",
		"u=xu",
		"rwx",
		"u=rwx go=r",
		" 755",
		"755 ",
		"x+u",
		"u=R",
		"00077777777777777777777",
	};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct modes *m;

		if (modes_parse(wrong[i], &m) != -1)
			print_error("%s was accepted\n", wrong[i]);
		assert_int_equal(modes_parse(wrong[i], &m), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
		assert_non_null(strstr(failed()->text, wrong[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chmod_changes_modes_as_rsync_does),
		cmocka_unit_test(empty_chmod_changes_nothing),
		cmocka_unit_test(invalid_chmod_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
