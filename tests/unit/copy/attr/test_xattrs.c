/* SPDX-License-Identifier: Apache-2.0 */

/* Extended attributes of files, on each available file system that supports them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "copy/attr/xattrs.h"
#include "xattr_samples.h"

static const struct rules just_acls = {.acls = true};
static const struct rules plain = {.xattrs = true};
static const struct rules both = {.acls = true, .xattrs = true};
static const struct rules all = {.acls = true, .xattrs = true, .xattrs_all = true};

/* ---- where ----------------------------------------------------------------------------- */

static char places[4][64];
static unsigned place_count;

/* A directory in each file system that supports user.* attributes and ACLs. */
static int make_places(void **state)
{
	const char *const tops[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
	dev_t seen[4];

	(void)state;
	umask(022);
	for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
		char *to = places[place_count];
		struct stat st;
		bool known = false;

		if (!tops[i] || stat(tops[i], &st))
			continue;
		for (unsigned k = 0; k < place_count; k++)
			known = known || seen[k] == st.st_dev;
		snprintf(to, sizeof places[0], "%.40s/sluice-xattrs-XXXXXX", tops[i]);
		if (known || !mkdtemp(to))
			continue;
		if (setxattr(to, "user.a", "", 0, 0) || chmod(to, 0755)) {
			rmdir(to);
			continue;
		}
		removexattr(to, "user.a");
		seen[place_count++] = st.st_dev;
	}
	if (place_count == 0)
		print_error("neither $TMPDIR nor /tmp, /var/tmp, /dev/shm has user.*\n");
	return place_count > 0 ? 0 : -1;
}

static int remove_places(void **state)
{
	char command[sizeof places[0] + sizeof "rm -rf "];
	int rc = chdir("/");

	(void)state;
	for (unsigned i = 0; i < place_count; i++) {
		snprintf(command, sizeof command, "rm -rf %.*s", (int)sizeof places[0] - 1,
			 places[i]);
		rc |= system(command);
	}
	return rc;
}

#define IN_EACH_PLACE(i) for (unsigned i = 0; i < place_count && chdir(places[i]) == 0; i++)

static int new_file(const char *name, mode_t mode)
{
	int fd;

	unlink(name);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	return fd;
}

/* ---- how -------------------------------------------------------------------------------- */

/* As a source and a sink do it, piece by piece. */
static struct xattrs *carry(const struct xattrs *x, size_t room)
{
	struct xattrs *to = NULL;
	struct record_xattr piece;
	size_t at = 0;
	uint32_t pos = 0;

	while (xattrs_next_piece(x, &at, &pos, room, 9, &piece)) {
		assert_int_equal(piece.id, 9);
		assert_true(piece.len <= room);
		assert_int_equal(xattrs_add(&to, &piece), 0);
		assert_int_equal(xattrs_whole(to), piece.pos + piece.len == piece.size);
	}
	assert_true(xattrs_whole(to));
	return to;
}

static struct xattrs *read_of(int fd, const struct rules *r)
{
	struct xattrs *x;

	assert_int_equal(xattrs_read(fd, "it", r, &x), 0);
	return x;
}

static void copy(int from, int to, const struct rules *r, size_t room)
{
	struct xattrs *x = read_of(from, r), *y = carry(x, room);
	struct owners *o;
	bool a, b;

	assert_int_equal(owners_new(&o), 0);
	assert_int_equal(xattrs_check(y, "file", r), 0);
	assert_int_equal(xattrs_localize(y, "file", o, true), 0);
	assert_int_equal(xattrs_set(to, "it", y, r), 0);
	assert_int_equal(xattrs_differ(to, y, r, &a, &b), 0);
	assert_false(a || b);
	owners_free(o);
	xattrs_free(x);
	xattrs_free(y);
}

static void assert_differ(int fd, const struct xattrs *x, const struct rules *r, bool acls,
			  bool others)
{
	bool a, b;

	assert_int_equal(xattrs_differ(fd, x, r, &a, &b), 0);
	assert_int_equal(a, acls);
	assert_int_equal(b, others);
}

static void put(int fd, const char *name, const char *value)
{
	assert_int_equal(fsetxattr(fd, name, value, strlen(value), 0), 0);
}

static void assert_has(int fd, const char *name, const char *should)
{
	char is[128];
	ssize_t n = fgetxattr(fd, name, is, sizeof is - 1);

	if (!should) {
		assert_int_equal(n, -1);
		assert_int_equal(errno, ENODATA);
		return;
	}
	assert_int_equal(n, strlen(should));
	assert_memory_equal(is, should, n);
}

/* ---- tests -------------------------------------------------------------------------------- */

static void no_attributes_change_nothing(void **state)
{
	static const struct rules none;

	(void)state;
	IN_EACH_PLACE(i)
	{
		int fd = new_file("f", 0644);

		assert_null(read_of(fd, &plain));
		assert_int_equal(xattrs_set(fd, "it", NULL, &both), 0);
		assert_differ(fd, NULL, &both, false, false);
		put(fd, "user.a", "1");
		assert_null(read_of(fd, &none));
		assert_null(read_of(fd, &just_acls));
		assert_int_equal(xattrs_set(fd, "it", NULL, &none), 0);
		assert_int_equal(xattrs_set(fd, "it", NULL, &just_acls), 0);
		assert_has(fd, "user.a", "1");
		assert_differ(fd, NULL, &just_acls, false, false);
		assert_differ(fd, NULL, &plain, false, true);
		assert_int_equal(xattrs_set(fd, "it", NULL, &plain), 0);
		assert_has(fd, "user.a", NULL);
		close(fd);
	}
	assert_null(carry(NULL, 10));
	assert_true(xattrs_whole(NULL));
	assert_int_equal(xattrs_check(NULL, "file", &all), 0);
	assert_int_equal(xattrs_localize(NULL, "file", NULL, false), 0);
	xattrs_free(NULL);
}

static void attributes_become_those_of_the_source(void **state)
{
	static const size_t rooms[] = {1, 3, 100, 65536};

	(void)state;
	IN_EACH_PLACE(i)
	{
		for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
			int from = new_file("from", 0644), to = new_file("to", 0644);

			put(from, "user.same", "both have it");
			put(to, "user.same", "both have it");
			put(from, "user.other", "new");
			put(to, "user.other", "old!");
			put(from, "user.empty", "");
			put(to, "user.too-much", "x");
			put(from, "user.\xc3\xa4 \x01\xff odd", "odd\nname");
			copy(from, to, &plain, rooms[k]);
			assert_has(to, "user.same", "both have it");
			assert_has(to, "user.other", "new");
			assert_has(to, "user.empty", "");
			assert_has(to, "user.too-much", NULL);
			assert_has(to, "user.\xc3\xa4 \x01\xff odd", "odd\nname");
			close(from);
			close(to);
		}
	}
}

static void each_difference_is_detected(void **state)
{
	(void)state;
	IN_EACH_PLACE(i)
	{
		int from = new_file("from", 0644), to = new_file("to", 0644);
		struct xattrs *x;

		put(from, "user.b", "12");
		put(from, "user.d", "34");
		x = read_of(from, &plain);
		assert_differ(from, x, &plain, false, false);
		assert_differ(from, NULL, &plain, false, true);
		assert_differ(from, NULL, &just_acls, false, false);
		assert_differ(to, x, &plain, false, true);
		put(to, "user.b", "12");
		assert_differ(to, x, &plain, false, true);
		put(to, "user.d", "35");
		assert_differ(to, x, &plain, false, true);
		put(to, "user.d", "345");
		assert_differ(to, x, &plain, false, true);
		put(to, "user.d", "34");
		assert_differ(to, x, &plain, false, false);
		put(to, "user.a", "");
		assert_differ(to, x, &plain, false, true);
		assert_int_equal(fremovexattr(to, "user.a"), 0);
		put(to, "user.z", "");
		assert_differ(to, x, &plain, false, true);
		xattrs_free(x);
		close(from);
		close(to);
	}
}

static void set_acl(int fd, const char *name, const struct acl_entry *e, size_t count)
{
	uint8_t bytes[256];

	acl_encode(e, count, bytes);
	assert_int_equal(fsetxattr(fd, name, bytes, ACL_HEAD + count * ACL_ENTRY, 0), 0);
}

static void assert_acl(int fd, const char *name, const struct acl_entry *e, size_t count)
{
	uint8_t is[256], should[256];

	acl_encode(e, count, should);
	assert_int_equal(fgetxattr(fd, name, is, sizeof is), ACL_HEAD + count * ACL_ENTRY);
	assert_memory_equal(is, should, ACL_HEAD + count * ACL_ENTRY);
}

static void acls_are_copied(void **state)
{
	(void)state;
	IN_EACH_PLACE(i)
	{
		int from, to;

		assert_int_equal(mkdir("dir-from", 0755) | mkdir("dir-to", 0755), 0);
		from = open("dir-from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		to = open("dir-to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		set_acl(from, ACCESS, sample_acl, SAMPLE_ACL);
		set_acl(from, DEFAULT, sample_acl, SAMPLE_ACL);
		put(from, "user.a", "not asked for");
		put(to, "user.b", "not asked for");
		assert_differ(to, NULL, &both, false, true);
		copy(from, to, &just_acls, 10);
		assert_acl(to, ACCESS, sample_acl, SAMPLE_ACL);
		assert_acl(to, DEFAULT, sample_acl, SAMPLE_ACL);
		assert_has(to, "user.a", NULL);
		assert_has(to, "user.b", "not asked for");
		assert_differ(to, NULL, &both, true, true);
		assert_differ(to, NULL, &plain, false, true);
		/* Copying attributes without ACLs leaves the ACLs alone. */
		assert_int_equal(xattrs_set(to, "it", NULL, &plain), 0);
		assert_acl(to, ACCESS, sample_acl, SAMPLE_ACL);
		assert_has(to, "user.b", NULL);
		assert_int_equal(xattrs_set(to, "it", NULL, &just_acls), 0);
		assert_has(to, ACCESS, NULL);
		assert_has(to, DEFAULT, NULL);
		close(from);
		close(to);
		assert_int_equal(rmdir("dir-from") | rmdir("dir-to"), 0);
	}
}

/* A new file in such a directory inherits an ACL that its source doesn't have. */
static void inherited_acls_are_removed(void **state)
{
	(void)state;
	IN_EACH_PLACE(i)
	{
		int dir, fd;

		assert_int_equal(mkdir("d", 0755), 0);
		dir = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		set_acl(dir, DEFAULT, sample_acl, SAMPLE_ACL);
		fd = new_file("d/f", 0644);
		assert_differ(fd, NULL, &both, true, false);
		assert_int_equal(xattrs_set(fd, "it", NULL, &both), 0);
		assert_differ(fd, NULL, &both, false, false);
		close(fd);
		close(dir);
		unlink("d/f");
		rmdir("d");
	}
}

static void acl_owners_are_mapped(void **state)
{
	(void)state;
	IN_EACH_PLACE(i)
	{
		int fd = new_file("f", 0644);
		struct xattrs *x;
		unsigned n = 0;
		size_t at = 0;
		uint32_t id;
		bool group;

		set_acl(fd, ACCESS, sample_acl, SAMPLE_ACL);
		put(fd, "user.a", "1");
		x = read_of(fd, &both);
		while (xattrs_next_owner(x, &at, &group, &id)) {
			assert_int_equal(id, n < 2 ? 2001 + n : 3001);
			assert_int_equal(group, n == 2);
			n++;
		}
		assert_int_equal(n, 3);
		xattrs_free(x);
		at = 0;
		assert_false(xattrs_next_owner(NULL, &at, &group, &id));
		close(fd);
	}
}

/*
 * O_PATH descriptors: they also work for a file whose mode forbids opening it, and for symlinks,
 * which are not followed.
 */
static void path_descriptors_have_attributes(void **state)
{
	const char *const link_has = geteuid() == 0 ? "trusted.link-has" : NULL;

	(void)state;
	IN_EACH_PLACE(i)
	{
		int from = new_file("from", 0644), to, other;
		struct xattrs *x;

		put(from, "user.a", "1");
		set_acl(from, ACCESS, sample_acl, SAMPLE_ACL);
		close(from);
		close(new_file("to", 0644));
		from = open("from", O_PATH | O_NOFOLLOW | O_CLOEXEC);
		to = open("to", O_PATH | O_NOFOLLOW | O_CLOEXEC);
		copy(from, to, &both, 100);
		close(to);
		to = open("to", O_RDONLY | O_CLOEXEC);
		assert_has(to, "user.a", "1");
		assert_acl(to, ACCESS, sample_acl, SAMPLE_ACL);
		close(to);
		close(from);

		unlink("link");
		assert_int_equal(symlink("to", "link"), 0);
		to = open("link", O_PATH | O_NOFOLLOW | O_CLOEXEC);
		assert_null(read_of(to, &plain));
		if (link_has) {
			from = new_file("from", 0644);
			put(from, link_has, "1");
			copy(from, to, &plain, 100);
			x = read_of(to, &plain);
			assert_non_null(x);
			xattrs_free(x);
			other = open("to", O_RDONLY | O_CLOEXEC);
			assert_has(other, link_has, NULL);
			assert_has(other, "user.a", "1");
			close(other);
			close(from);
		}
		assert_int_equal(xattrs_set(to, "it", NULL, &plain), 0);
		assert_null(read_of(to, &plain));
		close(to);
		unlink("link");
	}
}

static void attribute_namespaces_follow_the_rules(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	IN_EACH_PLACE(i)
	{
		int from = new_file("from", 0644), to = new_file("to", 0644);

		put(from, "user.a", "1");
		put(from, "trusted.a", "2");
		put(from, "trusted.lov", "a layout");
		put(from, "security.sluice", "3");
		put(to, "security.sluice-too", "4");
		copy(from, to, &plain, 100);
		assert_has(to, "user.a", "1");
		assert_has(to, "trusted.a", "2");
		assert_has(to, "trusted.lov", NULL);
		assert_has(to, "security.sluice", NULL);
		assert_has(to, "security.sluice-too", "4");
		copy(from, to, &all, 100);
		assert_has(to, "trusted.lov", "a layout");
		assert_has(to, "security.sluice", "3");
		assert_has(to, "security.sluice-too", NULL);
		/* Only for the host and the file system itself. */
		put(to, "security.selinux", "a:b:c:d");
		put(to, "trusted.overlay.opaque", "y");
		put(to, "trusted.lov", "another layout");
		assert_int_equal(xattrs_set(to, "it", NULL, &all), 0);
		assert_has(to, "security.selinux", "a:b:c:d");
		assert_has(to, "trusted.overlay.opaque", "y");
		assert_has(to, "trusted.lov", "another layout");
		assert_has(to, "security.sluice", NULL);
		assert_has(to, "user.a", NULL);
		assert_differ(to, NULL, &all, false, false);
		close(from);
		close(to);
	}
}

/* Runs in a child of another user, which may not set what root sets. */
static int as_nobody(void)
{
	struct record_xattr p[] = {
		{.id = 1, .size = 1, .len = 1, .bytes = (const uint8_t *)"1", .name = "trusted.a"},
		{.id = 1, .size = 1, .len = 1, .bytes = (const uint8_t *)"2", .name = "user.a"},
	};
	struct xattrs *x = NULL;
	struct stat st;
	bool a, b;
	int fd;

	if (setgid(65534) || setuid(65534) || umask(0) == (mode_t)-1)
		return 1;
	fd = open("nobodys", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || xattrs_add(&x, &p[0]) || xattrs_add(&x, &p[1]))
		return 2;
	/* The file's mode does not prevent it, and stays. */
	if (fchmod(fd, 0) || xattrs_set(fd, "it", x, &plain))
		return 3;
	if (fstat(fd, &st) || (st.st_mode & 07777) != 0 || fchmod(fd, 0600))
		return 4;
	if (fgetxattr(fd, "user.a", NULL, 0) != 1)
		return 5;
	if (xattrs_differ(fd, x, &plain, &a, &b) || a || b)
		return 6;
	xattrs_free(x);
	close(fd);
	return 0;
}

static void other_users_copy_what_they_may_set(void **state)
{
	int status;

	(void)state;
	if (geteuid() != 0)
		skip();
	IN_EACH_PLACE(i)
	{
		pid_t pid;

		assert_int_equal(mkdir("d", 0700), 0);
		assert_int_equal(chown("d", 65534, 65534) | chdir("d"), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			_exit(as_nobody());
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		assert_int_equal(unlink("nobodys") | chdir("..") | rmdir("d"), 0);
	}
}

/* Every attribute is tried, and the first failure is reported. */
static void first_failure_is_reported(void **state)
{
	struct record_xattr p[] = {
		{.id = 1, .size = 0, .name = "nowhere.a"},
		{.id = 1, .size = 0, .name = "nowhere.b"},
		{.id = 1, .size = 1, .len = 1, .bytes = (const uint8_t *)"2", .name = "user.a"},
	};

	(void)state;
	IN_EACH_PLACE(i)
	{
		int fd = new_file("f", 0644);
		struct xattrs *x = NULL;

		assert_int_equal(xattrs_add(&x, &p[0]), 0);
		assert_int_equal(xattrs_add(&x, &p[1]), 0);
		assert_int_equal(xattrs_add(&x, &p[2]), 0);
		fail_clear();
		assert_int_equal(xattrs_set(fd, "the file", x, &all), -1);
		assert_int_equal(failed()->code, OUT_FILE);
		assert_non_null(strstr(failed()->text, "set nowhere.a of the file"));
		assert_has(fd, "user.a", "2");
		assert_int_equal(xattrs_read(-1, "the file", &plain, &(struct xattrs *){NULL}), -1);
		xattrs_free(x);
		close(fd);
	}
}

/* ---- near the kernel's limits --------------------------------------------------------- */

static bool fill(int fd, const char *name, size_t size)
{
	char *value = malloc(size);
	int rc;

	assert_non_null(value);
	memset(value, name[5], size);
	rc = fsetxattr(fd, name, value, size, 0);
	free(value);
	return rc == 0;
}

static void longest_value_is_copied(void **state)
{
	bool seen = false;

	(void)state;
	IN_EACH_PLACE(i)
	{
		int from = new_file("from", 0644), to = new_file("to", 0644);

		/* Few file systems accept it. */
		if (fill(from, "user.a", XATTR_VALUE_MAX)) {
			seen = true;
			copy(from, to, &plain, 1000);
			assert_int_equal(fgetxattr(to, "user.a", NULL, 0), XATTR_VALUE_MAX);
		}
		close(from);
		close(to);
	}
	if (!seen)
		skip();
}

/* Names of 64 KiB in total, and a mebibyte with their values; one more cannot be sent. */
static void longest_list_is_copied(void **state)
{
	char name[NAME_ROOM];
	bool seen = false;

	(void)state;
	IN_EACH_PLACE(i)
	{
		int from = new_file("from", 0644), to = new_file("to", 0644);
		struct xattrs *x;
		unsigned n;

		for (n = 0; n < 255; n++) {
			snprintf(name, sizeof name, "user.%0250u", n);
			if (!fill(from, name, 3700))
				break;
		}
		if (n == 255) {
			seen = true;
			copy(from, to, &plain, 3000);
			assert_int_equal(flistxattr(to, NULL, 0), 255 * 256);
			assert_true(fill(from, "user.more", XATTR_VALUE_MAX));
			assert_int_equal(xattrs_read(from, "it", &plain, &x), -1);
			assert_non_null(strstr(failed()->text, "more than 1048576 bytes"));
		}
		close(from);
		close(to);
	}
	if (!seen)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_attributes_change_nothing),
		cmocka_unit_test(attributes_become_those_of_the_source),
		cmocka_unit_test(each_difference_is_detected),
		cmocka_unit_test(acls_are_copied),
		cmocka_unit_test(inherited_acls_are_removed),
		cmocka_unit_test(acl_owners_are_mapped),
		cmocka_unit_test(path_descriptors_have_attributes),
		cmocka_unit_test(attribute_namespaces_follow_the_rules),
		cmocka_unit_test(other_users_copy_what_they_may_set),
		cmocka_unit_test(first_failure_is_reported),
		cmocka_unit_test(longest_value_is_copied),
		cmocka_unit_test(longest_list_is_copied),
	};

	return cmocka_run_group_tests(tests, make_places, remove_places);
}
