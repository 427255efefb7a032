/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/measure/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/worker.h"
#include "copy/names/tilde.h"
#include "copy/source/source_file.h"
#include "copy/walk/find.h"

enum { STEP = 1 << 20, SCRATCH_MIN = 1 << 20 };

static int set_scratch_name(const char *path, bool expand, struct scratch *s)
{
	*s = (struct scratch){.fd = -1};
	if (expand)
		return tilde_expand(path, s->name, sizeof s->name)
			       ? fail_as(OUT_USAGE, "%s", failed()->text)
			       : 0;
	if ((size_t)snprintf(s->name, sizeof s->name, "%s", path) >= sizeof s->name)
		return fail_as(OUT_USAGE, "open %.300s...: the name is too long", path);
	return 0;
}

/* For a file system without O_TMPFILE: the file has a name for a moment. */
static int open_unlinked(const char *dir)
{
	char name[PATH_MAX];
	int fd;

	if ((size_t)snprintf(name, sizeof name, "%s/.sluice.bench.XXXXXX", dir) >= sizeof name) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(name, O_CLOEXEC);
	if (fd >= 0)
		unlink(name);
	return fd;
}

static int open_scratch_dir(struct scratch *s)
{
	s->fd = RETRIED(open(s->name, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	if (s->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
		s->fd = open_unlinked(s->name);
	return s->fd < 0 ? fail("create a file in %s: %m", s->name) : 0;
}

/* Allocates the space at once where that costs nothing, so that a full disk fails now. */
static int reserve_room(struct scratch *s, uint64_t bytes)
{
	struct statfs fs;

	if (RETRIED(fstatfs(s->fd, &fs)))
		return fail("create a file in %s: %m", s->name);
	s->size = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / 2;
	/* A tmpfs without a limit has 0 blocks. */
	if (fs.f_blocks == 0 || s->size > bytes)
		s->size = bytes;
	if (s->size < SCRATCH_MIN && s->size < bytes) {
		errno = ENOSPC;
		return fail("create a file in %s: %m", s->name);
	}
	if (fs.f_type != TMPFS_MAGIC && fallocate(s->fd, 0, 0, (off_t)s->size) &&
	    (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
		return fail("create a file in %s: %m", s->name);
	return 0;
}

/* Writes the file and drops it from the page cache, so that it is read from the disk later. */
static int fill_scratch(struct scratch *s, const struct stopper *stopper)
{
	struct source_file *generated = NULL;
	uint8_t *buf = aligned_alloc(4096, STEP);
	int ret = buf ? source_file_generated(s->size, stopper, &generated)
		      : fail_as(OUT_MEMORY, "create a file in %s: %m", s->name);

	for (uint64_t at = 0; ret == 0 && at < s->size; at += STEP) {
		size_t n = s->size - at < STEP ? (size_t)(s->size - at) : STEP;

		ret = source_file_read(generated, buf, n, at);
		if (ret == 0 && stopper->stop(stopper->ctx))
			ret = fail_signal(cancelled());
		if (ret == 0 && pwrite_full(s->fd, buf, n, (off_t)at))
			ret = fail("write a file in %s: %m", s->name);
	}
	source_file_free(generated);
	free(buf);
	if (ret == 0 && fdatasync(s->fd))
		ret = fail("write a file in %s: %m", s->name);
	if (ret == 0)
		posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
	return ret;
}

/* FIFOs and devices are rejected, and the open does not wait for one. */
static int open_scratch_source(struct scratch *s, uint64_t bytes, struct stat *st)
{
	s->fd = RETRIED(open(s->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	if (s->fd < 0)
		return fail_as(errno == ENOENT ? OUT_NO_SOURCE : OUT_FILE, "open %s: %m", s->name);
	if (fstat(s->fd, st))
		return fail("open %s: %m", s->name);
	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
		return fail_as(OUT_FILE, "read %s: not a regular file or directory", s->name);
	s->size = (uint64_t)st->st_size < bytes ? (uint64_t)st->st_size : bytes;
	if (S_ISREG(st->st_mode) && s->size == 0)
		return fail_as(OUT_FILE, "read %s: the file is empty", s->name);
	return 0;
}

int scratch_source(const char *path, bool expand, uint64_t bytes, const struct stopper *s,
		   struct scratch *out)
{
	struct stat st;
	int ret = set_scratch_name(path, expand, out) || open_scratch_source(out, bytes, &st) ? -1
											      : 0;

	if (ret == 0 && S_ISDIR(st.st_mode)) {
		close_fd(out->fd);
		ret = open_scratch_dir(out) || reserve_room(out, bytes) || fill_scratch(out, s) ? -1
												: 0;
	}
	if (ret)
		scratch_close(out);
	return ret;
}

int scratch_target(const char *dir, bool expand, uint64_t bytes, struct scratch *out)
{
	if (set_scratch_name(dir, expand, out) == 0 && open_scratch_dir(out) == 0 &&
	    reserve_room(out, bytes) == 0)
		return 0;
	scratch_close(out);
	return -1;
}

void scratch_close(struct scratch *s)
{
	close_fd(s->fd);
	s->fd = -1;
}
