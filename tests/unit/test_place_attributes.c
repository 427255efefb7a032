/* SPDX-License-Identifier: Apache-2.0 */

/* ACLs and extended attributes of what is placed. */

#include "base/fail.h"

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
#include <unistd.h>
#include <cmocka.h>
#include "place_rig.h"
#include "xattr_samples.h"

enum { SAMPLE_BYTES = ACL_HEAD + SAMPLE_ACL * ACL_ENTRY };
static uint8_t sample_bytes[SAMPLE_BYTES]; /* its mode is 0670 */
static struct rules rules;
static struct place *place;
static struct place_dir *top;

static int enter(void **state)
{
	if (rig_enter(state))
		return -1;
	rules = rules_a;
	rules.acls = true;
	rules.xattrs = true;
	acl_encode(sample_acl, SAMPLE_ACL, sample_bytes);
	make_dir("dst", 0755);
	return 0;
}

static void begin(void)
{
	struct place_opts o = {.target = "dst", .peer = "h", .rules = &rules};

	place = open_place(&o);
	top = put_contents(place, 0755);
}

/* Names ascend; a NULL value is the sample's. */
static struct xattrs *attributes(const char *name, const char *value, const char *second,
				 const char *value2)
{
	const char *const pairs[][2] = {{name, value}, {second, value2}};
	struct xattrs *x = NULL;

	for (unsigned i = 0; i < 2 && pairs[i][0]; i++) {
		const char *bytes = pairs[i][1] ? pairs[i][1] : (const char *)sample_bytes;
		struct record_xattr r = {.id = 1, .bytes = (const uint8_t *)bytes};

		snprintf(r.name, sizeof r.name, "%s", pairs[i][0]);
		r.len = pairs[i][1] ? (uint32_t)strlen(bytes) : SAMPLE_BYTES;
		r.size = r.len;
		assert_int_equal(xattrs_add(&x, &r), 0);
	}
	return x;
}

static void place_file(const char *name, mode_t mode, struct xattrs *x)
{
	struct record_file r = file_record(name, mode, 1);
	struct placement *t;

	assert_int_equal(place_begin(place, top, &r, &t), 0);
	assert_int_equal(write(placement_fd(t), "x", 1), 1);
	placement_xattrs(t, x);
	assert_int_equal(place_finish(t, 1), 0);
}

static void assert_value(const char *name, const char *attribute, const char *should)
{
	char is[256];
	ssize_t n = lgetxattr(name, attribute, is, sizeof is);

	assert_int_equal(n, should ? (ssize_t)strlen(should) : -1);
	if (should)
		assert_memory_equal(is, should, n);
}

/* The sample, but for what the mode says. */
static void assert_sample(const char *name, const char *attribute, uint16_t mask)
{
	struct acl_entry is[SAMPLE_ACL];
	uint8_t bytes[SAMPLE_BYTES];

	assert_int_equal(lgetxattr(name, attribute, bytes, SAMPLE_BYTES), SAMPLE_BYTES);
	assert_int_equal(acl_decode(bytes, SAMPLE_BYTES, is), SAMPLE_ACL);
	for (unsigned i = 0; i < SAMPLE_ACL; i++) {
		assert_int_equal(is[i].id, sample_acl[i].id);
		if (is[i].id != ACL_NO_ID)
			assert_int_equal(is[i].perm, sample_acl[i].perm);
		if (is[i].tag == ACL_MASK)
			assert_int_equal(is[i].perm, mask);
	}
}

static void files_get_what_their_sources_have(void **state)
{
	(void)state;
	make("dst/old", "o", 0600);
	assert_int_equal(setxattr("dst/old", "user.gone", "1", 1, 0), 0);
	begin();
	place_file("new", 0670, attributes(ACCESS, NULL, "user.a", "1"));
	place_file("old", 0644, attributes("user.b", "2", NULL, NULL));
	finish_place(place);
	assert_sample("dst/new", ACCESS, 7);
	assert_value("dst/new", "user.a", "1");
	assert_int_equal(mode_of("dst/new"), 0670);
	assert_value("dst/old", "user.b", "2");
	assert_value("dst/old", "user.gone", NULL);
	assert_value("dst/old", ACCESS, NULL);
	assert_int_equal(mode_of("dst/old"), 0644);
}

static void what_they_would_inherit_is_not_theirs(void **state)
{
	(void)state;
	assert_int_equal(setxattr("dst", DEFAULT, sample_bytes, SAMPLE_BYTES, 0), 0);
	begin();
	place_file("f", 0640, NULL);
	assert_non_null(put_dir(place, top, "d", 0750));
	put_symlink(place, top, "l", "f");
	finish_place(place);
	assert_value("dst/f", ACCESS, NULL);
	assert_int_equal(mode_of("dst/f"), 0640);
	assert_value("dst/d", ACCESS, NULL);
	assert_value("dst/d", DEFAULT, NULL);
	assert_int_equal(mode_of("dst/d"), 0750);
}

/* As --chmod gives one that differs from the ACL's. */
static void the_mode_has_the_last_word(void **state)
{
	(void)state;
	begin();
	place_file("f", 0640, attributes(ACCESS, NULL, NULL, NULL));
	place_dir_xattrs(put_dir(place, top, "d", 0750), attributes(ACCESS, NULL, DEFAULT, NULL));
	finish_place(place);
	assert_int_equal(mode_of("dst/f"), 0640);
	assert_sample("dst/f", ACCESS, 4);
	assert_int_equal(mode_of("dst/d"), 0750);
	assert_sample("dst/d", ACCESS, 5);
	assert_sample("dst/d", DEFAULT, 7);
}

static void but_not_where_modes_are_not_kept(void **state)
{
	(void)state;
	rules.perms = false;
	begin();
	place_file("f", 0640, attributes(ACCESS, NULL, NULL, NULL));
	finish_place(place);
	assert_int_equal(mode_of("dst/f"), 0670);
	assert_sample("dst/f", ACCESS, 7);
}

static void what_is_there_is_compared_and_mended(void **state)
{
	struct record_file r = file_record("f", 0444, 1);
	struct looked l;
	struct xattrs *x;

	(void)state;
	begin();
	place_file("f", 0444, attributes("user.a", "1", NULL, NULL));
	x = attributes(ACCESS, NULL, "user.a", "2");
	assert_int_equal(place_look(place, top, &r, x, &l), 0);
	assert_int_equal(l.look, LOOK_QUICK);
	assert_true(l.change.acl && l.change.xattr);
	r.a.mode = 0670;
	assert_int_equal(place_same(place, top, &r, x), 0);
	assert_int_equal(place_look(place, top, &r, x, &l), 0);
	assert_false(change_any(&l.change));
	xattrs_free(x);
	finish_place(place);
	assert_value("dst/f", "user.a", "2");
	assert_sample("dst/f", ACCESS, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_get_what_their_sources_have, enter,
						rig_leave),
		cmocka_unit_test_setup_teardown(what_they_would_inherit_is_not_theirs, enter,
						rig_leave),
		cmocka_unit_test_setup_teardown(the_mode_has_the_last_word, enter, rig_leave),
		cmocka_unit_test_setup_teardown(but_not_where_modes_are_not_kept, enter, rig_leave),
		cmocka_unit_test_setup_teardown(what_is_there_is_compared_and_mended, enter,
						rig_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
