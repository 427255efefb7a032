/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

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
#include "place_rig.h"

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

/* ---- trees ---------------------------------------------------------------------------- */

const struct rules rules_r = {
	.recursive = true,
	.max_size = UINT64_MAX,
	.max_delete = UINT64_MAX,
	.backup_dir = "",
	.suffix = "",
	.chmod = "",
	.chown = "",
};
const struct rules rules_a = {
	.recursive = true,
	.perms = true,
	.times = true,
	.owner = true,
	.group = true,
	.devices = true,
	.quick = true,
	.max_size = UINT64_MAX,
	.max_delete = UINT64_MAX,
	.backup_dir = "",
	.suffix = "",
	.chmod = "",
	.chown = "",
};

static uint32_t next_id = 1;

struct place *open_place(const struct place_opts *o)
{
	struct place *p;

	if (place_open(o, &p))
		fail_msg("%s", failed()->text);
	return p;
}

struct record_attr attr_of_mode(mode_t mode)
{
	return (struct record_attr){
		.mode = mode,
		.uid = geteuid(),
		.gid = getegid(),
		.mtime_s = 1000,
		.mtime_ns = 500000000,
		.atime_s = 2000,
	};
}

struct record_dir dir_record(const char *name, mode_t mode)
{
	struct record_dir r = {.id = next_id++, .a = attr_of_mode(mode)};

	snprintf(r.name, sizeof r.name, "%s", name);
	return r;
}

struct record_file file_record(const char *name, mode_t mode, uint64_t size)
{
	struct record_file r = {
		.id = next_id++,
		.type = TYPE_REGULAR,
		.size = size,
		.a = attr_of_mode(mode),
	};

	snprintf(r.name, sizeof r.name, "%s", name);
	return r;
}

int try_dir(struct place *p, struct place_dir *up, const char *name, struct change *c)
{
	struct record_dir r = dir_record(name, 0755);
	struct place_dir *d;

	return place_make_dir(p, up, &r, &d, c);
}

static struct place_dir *put_as(struct place *p, struct place_dir *up, const struct record_dir *r)
{
	struct place_dir *d;
	struct change c;

	if (place_make_dir(p, up, r, &d, &c))
		fail_msg("%s", failed()->text);
	return d;
}

struct place_dir *put_dir(struct place *p, struct place_dir *up, const char *name, mode_t mode)
{
	struct record_dir r = dir_record(name, mode);

	return put_as(p, up, &r);
}

struct place_dir *put_contents(struct place *p, mode_t mode)
{
	struct record_dir r = dir_record("", mode);

	r.flags = DIR_CONTENTS;
	return put_as(p, NULL, &r);
}

int try_file(struct place *p, struct place_dir *d, const char *name, const char *text)
{
	size_t len = strlen(text);
	struct record_file r = file_record(name, 0644, len);
	struct placement *t;

	if (place_begin(p, d, &r, &t))
		return -1;
	assert_int_equal(write(placement_fd(t), text, len), len);
	return place_finish_file(t, len);
}

void put_file(struct place *p, struct place_dir *d, const char *name, const char *text)
{
	if (try_file(p, d, name, text))
		fail_msg("%s", failed()->text);
}

int try_symlink(struct place *p, struct place_dir *d, const char *name, const char *target,
		struct change *c)
{
	struct record_file r = file_record(name, 0777, strlen(target));

	r.type = TYPE_SYMLINK;
	return place_make_other(p, d, &r, target, NULL, c);
}

void put_symlink(struct place *p, struct place_dir *d, const char *name, const char *target)
{
	struct change c;

	if (try_symlink(p, d, name, target, &c))
		fail_msg("%s", failed()->text);
}

void keep(struct place_dir *d, const char *names)
{
	uint8_t bytes[4096];
	struct writer w = writer_of(bytes, sizeof bytes);
	struct reader r;
	char copy[4096], *rest = copy, *name;

	snprintf(copy, sizeof copy, "%s", names);
	while ((name = strsep(&rest, " ")) != NULL) {
		if (*name)
			assert_true(record_keep_add(&w, name));
	}
	r = reader_of(bytes, w.used);
	assert_int_equal(place_dir_keep(d, &r, true), 0);
}

static void see_deleted(void *ctx, enum event_what what, const char *path, const struct failure *f)
{
	struct end_seen *seen = ctx;
	char *to = f ? seen->failed : seen->deleted;
	size_t len = strlen(to);

	snprintf(to + len, sizeof seen->deleted - len, "%s%s:%d", len ? " " : "", path, what);
}

static void see_dir(void *ctx, uint32_t id, const struct failure *why)
{
	struct end_seen *seen = ctx;

	(void)id;
	(void)why;
	seen->dirs_failed++;
}

void complete(struct place *p, bool deletions, struct end_seen *seen)
{
	struct place_finish e = {
		.deletions = deletions,
		.on_deleted = see_deleted,
		.on_dir = see_dir,
		.ctx = seen,
	};

	*seen = (struct end_seen){0};
	if (place_finish_run(p, &e))
		fail_msg("%s", failed()->text);
	seen->too_many = e.too_many;
	seen->count = e.deleted;
}

void finish_place(struct place *p)
{
	struct end_seen seen;

	complete(p, true, &seen);
	assert_int_equal(seen.dirs_failed, 0);
	place_close(p);
}
