/* SPDX-License-Identifier: Apache-2.0 */

/* ACLs and extended attributes of placed files. */

#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "dst_rig.h"
#include "xattr_samples.h"

enum { SAMPLE_BYTES = ACL_HEAD + SAMPLE_ACL * ACL_ENTRY };
static uint8_t sample_bytes[SAMPLE_BYTES]; /* its mode is 0670 */

static unsigned group_had; /* all rights that the group had after any of the calls below */
static bool acls_fail; /* as on a file system without ACLs */

static void look_at_group(int fd)
{
	struct acl_entry is[SAMPLE_ACL];
	uint8_t bytes[SAMPLE_BYTES];
	unsigned group = 7, mask = 7;
	struct stat st;
	char link[32];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (fstat(fd, &st))
		return;
	if (getxattr(link, ACCESS, bytes, SAMPLE_BYTES) != SAMPLE_BYTES ||
	    acl_decode(bytes, SAMPLE_BYTES, is) != SAMPLE_ACL) {
		group_had |= st.st_mode >> 3 & 7;
		return;
	}
	for (unsigned i = 0; i < SAMPLE_ACL; i++) {
		if (is[i].tag == ACL_GROUP_OBJ)
			group = is[i].perm;
		else if (is[i].tag == ACL_MASK)
			mask = is[i].perm;
	}
	group_had |= group & mask;
}

/* Replaces the C library's functions. */
int fchmod(int fd, mode_t mode)
{
	long ret = syscall(SYS_fchmod, fd, mode);

	if (ret == 0)
		look_at_group(fd);
	return (int)ret;
}

int fchownat(int fd, const char *name, uid_t uid, gid_t gid, int flags)
{
	long ret = syscall(SYS_fchownat, fd, name, uid, gid, flags);

	if (ret == 0)
		look_at_group(fd);
	return (int)ret;
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	long ret;

	if (acls_fail && strcmp(name, ACCESS) == 0) {
		errno = EOPNOTSUPP;
		return -1;
	}
	ret = syscall(SYS_fsetxattr, fd, name, value, size, flags);
	if (ret == 0)
		look_at_group(fd);
	return (int)ret;
}

int fremovexattr(int fd, const char *name)
{
	long ret = syscall(SYS_fremovexattr, fd, name);

	if (ret == 0)
		look_at_group(fd);
	return (int)ret;
}

static int enter(void **state)
{
	if (enter_dst(state))
		return -1;
	rules.acls = true;
	rules.xattrs = true;
	acls_fail = false;
	acl_encode(sample_acl, SAMPLE_ACL, sample_bytes);
	return 0;
}

/* Names ascend; a NULL value stands for the sample's. */
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
	assert_int_equal(place_finish_file(t, 1), 0);
}

static void assert_value(const char *name, const char *attribute, const char *should)
{
	char is[256];
	ssize_t n = lgetxattr(name, attribute, is, sizeof is);

	assert_int_equal(n, should ? (ssize_t)strlen(should) : -1);
	if (should)
		assert_memory_equal(is, should, n);
}

/* The sample, with the permissions that the mode gives. */
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

static void files_get_the_attributes_of_their_sources(void **state)
{
	(void)state;
	make("dst/old", "o", 0600);
	assert_int_equal(setxattr("dst/old", "user.gone", "1", 1, 0), 0);
	begin_dst_run();
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

static void inherited_acls_are_removed(void **state)
{
	(void)state;
	assert_int_equal(setxattr("dst", DEFAULT, sample_bytes, SAMPLE_BYTES, 0), 0);
	begin_dst_run();
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

/* As with --chmod: the mode differs from the ACL. */
static void mode_overrides_the_acl(void **state)
{
	(void)state;
	begin_dst_run();
	place_file("f", 0640, attributes(ACCESS, NULL, NULL, NULL));
	place_dir_xattrs(put_dir(place, top, "d", 0750), attributes(ACCESS, NULL, DEFAULT, NULL));
	finish_place(place);
	assert_int_equal(mode_of("dst/f"), 0640);
	assert_sample("dst/f", ACCESS, 4);
	assert_int_equal(mode_of("dst/d"), 0750);
	assert_sample("dst/d", ACCESS, 5);
	assert_sample("dst/d", DEFAULT, 7);
}

static void acl_stays_without_perms(void **state)
{
	(void)state;
	rules.perms = false;
	begin_dst_run();
	place_file("f", 0640, attributes(ACCESS, NULL, NULL, NULL));
	finish_place(place);
	assert_int_equal(mode_of("dst/f"), 0670);
	assert_sample("dst/f", ACCESS, 7);
}

static void existing_attributes_are_compared_and_corrected(void **state)
{
	struct record_file r = file_record("f", 0444, 1);
	struct looked l;
	struct xattrs *x;

	(void)state;
	begin_dst_run();
	place_file("f", 0444, attributes("user.a", "1", NULL, NULL));
	x = attributes(ACCESS, NULL, "user.a", "2");
	assert_int_equal(place_look(place, top, &r, x, &l), 0);
	assert_int_equal(l.look, LOOK_QUICK);
	assert_true(l.change.acl && l.change.xattr);
	r.a.mode = 0670;
	assert_int_equal(place_update_metadata(place, top, &r, x), 0);
	assert_int_equal(place_look(place, top, &r, x, &l), 0);
	assert_false(change_any(&l.change));
	xattrs_free(x);
	finish_place(place);
	assert_value("dst/f", "user.a", "2");
	assert_sample("dst/f", ACCESS, 7);
}

/* The mask of the sample, and so the group bits of the mode, is rwx; the group itself has r. */
static void group_never_gets_the_rights_of_the_mask(void **state)
{
	struct place_dir *d;

	(void)state;
	begin_dst_run();
	d = put_dir(place, top, "d", 0670);
	place_dir_xattrs(d, attributes(ACCESS, NULL, NULL, NULL));
	group_had = 0;
	place_file("f", 0670, attributes(ACCESS, NULL, "user.a", "1"));
	assert_int_equal(group_had, 4);
	group_had = 0;
	finish_place(place);
	assert_int_equal(group_had & ~5U, 0); /* dst itself has 0755 */
	assert_sample("dst/f", ACCESS, 7);
	assert_sample("dst/d", ACCESS, 7);
	assert_int_equal(mode_of("dst/d"), 0670);
}

static void group_never_gets_the_mask_when_the_acl_fails(void **state)
{
	struct record_file r = file_record("f", 0670, 0);
	struct placement *t;

	(void)state;
	begin_dst_run();
	group_had = 0;
	acls_fail = true;
	assert_int_equal(place_begin(place, top, &r, &t), 0);
	placement_xattrs(t, attributes(ACCESS, NULL, NULL, NULL));
	assert_int_equal(place_finish_file(t, 0), -1);
	assert_non_null(strstr(failed()->text, ACCESS));
	assert_int_equal(group_had, 4);
	assert_int_equal(mode_of("dst/f"), 0640);
	finish_place(place);
}

static void group_never_gets_the_mask_when_an_acl_is_removed(void **state)
{
	struct record_file r = file_record("f", 0600, 1);

	(void)state;
	begin_dst_run();
	place_file("f", 0670, attributes(ACCESS, NULL, NULL, NULL));
	group_had = 0;
	assert_int_equal(place_update_metadata(place, top, &r, NULL), 0);
	assert_int_equal(group_had & ~4U, 0);
	assert_value("dst/f", ACCESS, NULL);
	assert_int_equal(mode_of("dst/f"), 0600);
	finish_place(place);
}

static void group_never_gets_the_mask_of_a_kept_acl(void **state)
{
	(void)state;
	rules = rules_r;
	for (int fails = 0; fails < 2; fails++) {
		make("dst/f", "old", 0600);
		assert_int_equal(setxattr("dst/f", ACCESS, sample_bytes, SAMPLE_BYTES, 0), 0);
		begin_dst_run();
		group_had = 0;
		acls_fail = fails;
		place_file("f", 0644, NULL);
		acls_fail = false;
		finish_place(place);
		assert_int_equal(group_had, 4);
		assert_int_equal(mode_of("dst/f"), fails ? 0640 : 0670);
		assert_int_equal(unlink("dst/f"), 0);
	}
}

static void new_group_never_gets_the_rights_of_the_old_one(void **state)
{
	struct record_file r = file_record("f", 0604, 0);

	(void)state;
	if (geteuid() != 0)
		return;
	begin_dst_run();
	make("dst/f", "", 0660);
	assert_int_equal(chown("dst/f", 0, 1), 0);
	group_had = 0;
	assert_int_equal(place_update_metadata(place, top, &r, NULL), 0);
	assert_int_equal(group_had, 0);
	assert_int_equal(mode_of("dst/f"), 0604);
	finish_place(place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_get_the_attributes_of_their_sources, enter,
						folder_leave),
		cmocka_unit_test_setup_teardown(inherited_acls_are_removed, enter, folder_leave),
		cmocka_unit_test_setup_teardown(mode_overrides_the_acl, enter, folder_leave),
		cmocka_unit_test_setup_teardown(acl_stays_without_perms, enter, folder_leave),
		cmocka_unit_test_setup_teardown(existing_attributes_are_compared_and_corrected,
						enter, folder_leave),
		cmocka_unit_test_setup_teardown(group_never_gets_the_rights_of_the_mask, enter,
						folder_leave),
		cmocka_unit_test_setup_teardown(group_never_gets_the_mask_when_the_acl_fails, enter,
						folder_leave),
		cmocka_unit_test_setup_teardown(group_never_gets_the_mask_when_an_acl_is_removed,
						enter, folder_leave),
		cmocka_unit_test_setup_teardown(group_never_gets_the_mask_of_a_kept_acl, enter,
						folder_leave),
		cmocka_unit_test_setup_teardown(new_group_never_gets_the_rights_of_the_old_one,
						enter, folder_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
