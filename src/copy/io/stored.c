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
	HOLES_MIN = 64 << 10, /* of a smaller file only the length is checked */
	BLOCK_UNIT = 512, /* of st_blocks */
	TRIES = 8, /* if the kernel keeps dropping pages between two calls */
};

static bool is_size_meaningful(int fd, const struct stat *st)
{
	struct sizes_cache of = {.known = false};

	switch (sizes_of(&of, fd, st)) {
	case SIZES_TRUE:
		return true;
	case SIZES_TRUE_UNLESS_ZERO:
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
 * SEEK_HOLE counts bytes that only the page cache has as data, even if space was preallocated.  The
 * kernel may write back and drop a page after it read the extent and before it searches the cache.
 * So SEEK_DATA must confirm each hole.
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

/* Only on file systems that never turn zeros into holes, and that need no server for the answer. */
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
		/* On tmpfs SEEK_HOLE visits every page. */
		return (uint64_t)st->st_blocks * BLOCK_UNIT < reach;
	default:
		return false;
	}
}

int stored_fail(const char *shown, enum stored_result result)
{
	static const char *const text[] = {
		[STORED_SHORT] = "is shorter than the received data",
		[STORED_LONG] = "is longer than the received data",
		[STORED_HOLE] = "has a hole where data was received",
	};

	return fail_as(OUT_INTEGRITY, "%s: the stored data %s", shown, text[result]);
}

enum stored_result stored_check(int fd, const struct stat *st, const struct stored *s)
{
	if (is_short(fd, st, s->reach))
		return STORED_SHORT;
	if ((uint64_t)st->st_size > s->size_max)
		return STORED_LONG;
	if (s->full && s->reach >= HOLES_MIN && has_hole(fd, st, s->reach))
		return STORED_HOLE;
	return STORED_ALL;
}

int stored_check_stream(int fd, uint64_t reach, const char *shown)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail("stat %s: %m", shown);
	if (!S_ISREG(st.st_mode) || !is_short(fd, &st, reach))
		return 0;
	return stored_fail(shown, STORED_SHORT);
}
