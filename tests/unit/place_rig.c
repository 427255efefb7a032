/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include "place_rig.h"

static char dir[64];

int rig_enter(void **state)
{
	(void)state;
	umask(022);
	snprintf(dir, sizeof dir, "/tmp/sluice-place-XXXXXX");
	return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

/* However deep it is, and whatever its modes are. */
static int remove_all(int in, const char *name)
{
	int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), ret;
	DIR *d;
	struct dirent *e;

	if (fd < 0)
		return unlinkat(in, name, 0);
	fchmod(fd, 0700);
	ret = unlinkat(in, name, AT_REMOVEDIR);
	if (ret == 0) {
		close(fd);
		return 0;
	}
	d = fdopendir(fd);
	while ((e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			remove_all(fd, e->d_name);
	}
	closedir(d);
	return unlinkat(in, name, AT_REMOVEDIR);
}

int rig_leave(void **state)
{
	(void)state;
	return chdir("/") || remove_all(AT_FDCWD, dir) ? -1 : 0;
}

void make(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

void assert_text(const char *name, const char *should)
{
	char is[256];
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, is, sizeof is - 1);
	close(fd);
	assert_true(n >= 0);
	is[n] = '\0';
	assert_string_equal(is, should);
}

mode_t mode_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	return st.st_mode & 07777;
}

unsigned temporaries(const char *in, char name[static 256])
{
	DIR *d = opendir(in);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, ".sluice.", 8) == 0) {
			snprintf(name, 256, "%s", e->d_name);
			n++;
		}
	}
	closedir(d);
	return n;
}

void assert_no_temporaries(void)
{
	char name[256];

	assert_int_equal(temporaries(".", name), 0);
}

void make_dir(const char *name, mode_t mode)
{
	assert_int_equal(mkdir(name, 0700), 0);
	assert_int_equal(chmod(name, mode), 0);
}

void assert_absent(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), -1);
	assert_int_equal(errno, ENOENT);
}

const char *rig_dir(void)
{
	return dir;
}
