/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/stored.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/sizes.h"

enum {
	HOLES_MIN = 64 << 10, /* a smaller file's length says enough */
	BLOCK_UNIT = 512, /* of st_blocks */
	TRIES = 8,
};

static bool is_size_meaningful(int fd, const struct stat *st)
{
	struct sizes_of of = {.known = false};

	switch (sizes_of(&of, fd, st)) {
	case SIZES_TRUE:
		return true;
	case SIZES_BUT_ZERO:
		return st->st_size > 0;
	default:
		return false;
	}
}

static bool is_short(int fd, const struct stat *st, uint64_t reach)
{
	return (uint64_t)st->st_size < reach && is_size_meaningful(fd, st);
}

/*
 * Bytes that the page cache alone has are no hole, also where room was allocated.  A page may be
 * written back and dropped between the file system's look at the extent and its look at the cache:
 * what is a hole stays one when it is asked again.
 */
static bool lacks_data(int fd, uint64_t reach)
{
	off_t at = 0;

	for (int i = 0; i < TRIES; i++) {
		off_t data;

		at = lseek(fd, at, SEEK_HOLE);
		if (at < 0 || (uint64_t)at >= reach)
			return false;
		data = lseek(fd, at, SEEK_DATA);
		if (data != at)
			return data >= 0 || errno == ENXIO;
	}
	return false;
}

/* Others turn zeros into holes, or ask a server. */
static bool has_hole(int fd, const struct stat *st, uint64_t reach)
{
	struct statfs fs;

	if (RETRIED(fstatfs(fd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
		return lacks_data(fd, reach);
	case TMPFS_MAGIC:
		/* Looking for one takes a look at every page. */
		return (uint64_t)st->st_blocks * BLOCK_UNIT < reach;
	default:
		return false;
	}
}

int stored_fail(const char *shown, enum stored_how how)
{
	static const char *const text[] = {
		[STORED_SHORT] = "is shorter than the received data",
		[STORED_LONG] = "is longer than the received data",
		[STORED_HOLE] = "has a hole where data was received",
	};

	return fail_as(OUT_INTEGRITY, "%s: the stored data %s", shown, text[how]);
}

enum stored_how stored_look(int fd, const struct stat *st, const struct stored *s)
{
	if (is_short(fd, st, s->reach))
		return STORED_SHORT;
	if ((uint64_t)st->st_size > s->longest)
		return STORED_LONG;
	if (s->full && s->reach >= HOLES_MIN && has_hole(fd, st, s->reach))
		return STORED_HOLE;
	return STORED_ALL;
}

int stored_check_stream(int fd, uint64_t reach, const char *shown)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail("look at %s: %m", shown);
	if (!S_ISREG(st.st_mode) || !is_short(fd, &st, reach))
		return 0;
	return stored_fail(shown, STORED_SHORT);
}
