/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/place.h"

enum {
	BLOCK_UNIT = 512, /* of st_blocks */
	READ_AHEAD_MIN = 1 << 20,
};

static struct source_file *file_new(const char *path, const struct stopper *s)
{
	struct source_file *f = calloc(1, sizeof *f);

	if (f) {
		f->fd = -1;
		f->path = strdup(path);
		f->ordered = digest_new();
		f->stopper = *s;
		pthread_mutex_init(&f->turn, NULL);
	}
	if (!f || !f->path || !f->ordered) {
		source_file_free(f);
		fail_as(OUT_MEMORY, "open %s: %m", path);
		return NULL;
	}
	return f;
}

void source_file_free(struct source_file *f)
{
	if (!f)
		return;
	if (!f->stream)
		close_fd(f->fd);
	source_dir_put(f->dir);
	digest_free(f->ordered);
	pthread_mutex_destroy(&f->turn);
	free(f->path);
	free(f);
}

/* Files whose size says nothing of what can be read from them. */
static bool size_is_made_up(int fd, const struct stat *st)
{
	struct statfs fs;
	char byte;

	if (fstatfs(fd, &fs) == 0) {
		switch ((unsigned long)fs.f_type) {
		case PROC_SUPER_MAGIC:
		case SYSFS_MAGIC:
		case CGROUP_SUPER_MAGIC:
		case CGROUP2_SUPER_MAGIC:
		case DEBUGFS_MAGIC:
		case TRACEFS_MAGIC:
			return true;
		default:
			break;
		}
	}
	return st->st_size == 0 && pread(fd, &byte, 1, 0) > 0;
}

static void become_stream(struct source_file *f)
{
	f->flags = FILE_STREAM | FILE_ORDERED;
	f->size = 0;
	stream_widen(f->fd);
}

int source_file_open(const char *path, uint32_t want, bool missing, const struct stopper *s,
		     struct source_file **out)
{
	struct source_file *f = file_new(path, s);

	if (!f)
		return -1;
	f->want = want;
	do
		f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	while (f->fd < 0 && errno == EINTR && !s->stop(s->ctx));
	if (f->fd < 0 || fstat(f->fd, &f->st)) {
		enum outcome code = missing           ? OUT_NO_SOURCE
				    : errno == ENOENT ? OUT_VANISHED
						      : OUT_FILE;

		fail_as(code, "open %s: %m", path);
		source_file_free(f);
		return -1;
	}
	if (S_ISDIR(f->st.st_mode)) {
		fail("%s is a directory: directories are not copied yet", path);
		source_file_free(f);
		return -1;
	}
	if (!S_ISREG(f->st.st_mode) || size_is_made_up(f->fd, &f->st))
		become_stream(f);
	else
		f->size = (uint64_t)f->st.st_size;
	if (f->size >= READ_AHEAD_MIN)
		posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	*out = f;
	return 0;
}

int source_file_stream(const struct stream *stream, const struct stopper *s,
		       struct source_file **out)
{
	struct source_file *f = file_new(stream->name, s);
	off_t at;

	if (!f)
		return -1;
	f->stream = stream;
	f->fd = stream->fd;
	if (fstat(f->fd, &f->st)) {
		fail("read %s: %m", f->path);
		source_file_free(f);
		return -1;
	}
	at = lseek(f->fd, 0, SEEK_CUR);
	if (!S_ISREG(f->st.st_mode) || at < 0 || size_is_made_up(f->fd, &f->st)) {
		become_stream(f);
	} else {
		f->base = (uint64_t)at;
		f->size = f->st.st_size > at ? (uint64_t)(f->st.st_size - at) : 0;
	}
	*out = f;
	return 0;
}

void source_file_find_holes(struct source_file *f)
{
	if ((f->flags & FILE_STREAM) || f->size == 0 ||
	    f->st.st_blocks * BLOCK_UNIT >= f->st.st_size)
		return;
	f->sparse = true;
	f->flags |= FILE_SPARSE;
}

void source_file_record(const struct source_file *f, struct record_file *r)
{
	*r = (struct record_file){
		.id = f->id,
		.want = f->want,
		.flags = f->flags,
		.mode = (f->flags & FILE_STREAM) || f->stream ? 0666 : f->st.st_mode & 07777,
		.size = f->size,
		.mtime_s = f->st.st_mtim.tv_sec,
		.mtime_ns = (uint32_t)f->st.st_mtim.tv_nsec,
		.atime_s = f->st.st_atim.tv_sec,
		.atime_ns = (uint32_t)f->st.st_atim.tv_nsec,
	};
	if (!f->stream)
		name_last(f->path, r->name, sizeof r->name);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Where does data begin at or after pos, and how far does it go?  In whole cells. */
static int seek_data(struct source_file *f, uint64_t *from)
{
	off_t data = lseek(f->fd, (off_t)(f->base + f->pos), SEEK_DATA);
	off_t hole;

	if (data < 0 && errno == ENXIO) {
		*from = f->size;
		return 0;
	}
	hole = data < 0 ? -1 : lseek(f->fd, data, SEEK_HOLE);
	if (hole < 0)
		return -1;
	*from = (uint64_t)data - f->base;
	*from -= *from % CELL;
	*from = least(*from < f->pos ? f->pos : *from, f->size);
	f->data_end = ((uint64_t)hole - f->base + CELL - 1) / CELL * CELL;
	return 0;
}

enum claim source_file_claim(struct source_file *f, uint64_t unit, uint64_t *pos, uint64_t *len)
{
	uint64_t data = f->pos;

	*pos = f->pos;
	if (f->pos >= f->size)
		return CLAIM_NONE;
	if (f->sparse && f->pos >= f->data_end && seek_data(f, &data)) {
		/* This file system can't tell after all. */
		f->sparse = false;
		data = f->pos;
	}
	if (data > f->pos) {
		*len = data - f->pos;
		f->pos = data;
		return CLAIM_HOLE;
	}
	*len = least(unit, f->size - f->pos);
	if (f->sparse)
		*len = least(*len, f->data_end - f->pos);
	f->pos += *len;
	return CLAIM_DATA;
}

static int changed(const struct source_file *f, const char *how)
{
	return fail_as(OUT_CHANGED, "read %s: source %s while it was read", f->path, how);
}

int source_file_read(struct source_file *f, void *to, size_t len, uint64_t pos)
{
	ssize_t n = pread_full(f->fd, to, len, (off_t)(f->base + pos));

	if (n < 0)
		return fail("read %s: %m", f->path);
	if ((size_t)n < len)
		return changed(f, "shrank");
	return 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

int source_file_check(const struct source_file *f)
{
	struct stat now;

	if (f->flags & FILE_STREAM)
		return 0;
	if (fstat(f->fd, &now))
		return fail("read %s: %m", f->path);
	if (now.st_size < f->st.st_size)
		return changed(f, "shrank");
	if (now.st_size > f->st.st_size) {
		log_warn("%s grew while it was read: copied to the size it had, and bytes before "
			 "that may have changed",
			 f->path);
		return 0;
	}
	if (!same_time(&now.st_mtim, &f->st.st_mtim) || !same_time(&now.st_ctim, &f->st.st_ctim))
		return changed(f, "changed");
	return 0;
}

void source_dir_put(struct source_dir *d)
{
	if (!d || --d->refs > 0)
		return;
	close_fd(d->fd);
	free(d);
}

static struct source_dir *source_dir_get(const char *path, size_t len)
{
	struct source_dir *d = malloc(sizeof *d + len + 1);

	if (!d) {
		fail_as(OUT_MEMORY, "open %s: %m", path);
		return NULL;
	}
	d->refs = 1;
	memcpy(d->path, path, len);
	d->path[len] = '\0';
	d->fd = open(len ? d->path : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->fd < 0) {
		fail("open the directory of %s: %m", path);
		free(d);
		return NULL;
	}
	return d;
}

int source_file_hold(struct source_file *f, struct source_dir **last)
{
	const char *slash = strrchr(f->path, '/');
	size_t len = slash ? (size_t)(slash - f->path) + 1 : 0;
	struct source_dir *d = *last;

	if (!d || strlen(d->path) != len || memcmp(d->path, f->path, len) != 0) {
		d = source_dir_get(f->path, len);
		if (!d)
			return -1;
		source_dir_put(*last);
		*last = d;
	}
	d->refs++;
	f->dir = d;
	return 0;
}

int source_file_remove(const struct source_file *f)
{
	const char *slash = strrchr(f->path, '/');
	const char *name = slash ? slash + 1 : f->path;
	struct stat now;

	/* Nothing would tell that more came meanwhile. */
	if (f->flags & FILE_STREAM)
		return fail("remove %s: it is not a regular file", f->path);
	if (fstatat(f->dir->fd, name, &now, AT_SYMLINK_NOFOLLOW))
		return fail("remove %s: %m", f->path);
	if (S_ISLNK(now.st_mode))
		return fail_as(OUT_CHANGED, "remove %s: it is a symbolic link to what was copied",
			       f->path);
	if (now.st_dev != f->st.st_dev || now.st_ino != f->st.st_ino ||
	    now.st_size != f->st.st_size || !same_time(&now.st_mtim, &f->st.st_mtim) ||
	    !same_time(&now.st_ctim, &f->st.st_ctim))
		return fail_as(OUT_CHANGED, "remove %s: it is no longer the file that was copied",
			       f->path);
	if (unlinkat(f->dir->fd, name, 0))
		return fail("remove %s: %m", f->path);
	return 0;
}
