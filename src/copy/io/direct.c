/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/io.h"
#include "base/log.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#ifndef F2FS_SUPER_MAGIC
#define F2FS_SUPER_MAGIC 0xF2F52010
#endif

enum { SAMPLES = 64, PERCENT = 100, LINK_ROOM = 40 };

/* ---- resident bytes -------------------------------------------------------------------- */

struct cached_range {
	uint64_t pos, len;
};
struct cached {
	uint64_t pages, dirty, writeback, evicted, recently_evicted;
};

static unsigned sampled_percent(int fd, uint64_t pos, uint64_t len)
{
	unsigned resident = 0;

	for (uint64_t i = 0; i < SAMPLES; i++) {
		char byte;
		struct iovec to = {.iov_base = &byte, .iov_len = 1};
		off_t at = (off_t)(pos + len / SAMPLES * i);
		ssize_t n = preadv2(fd, &to, 1, at, RWF_NOWAIT);

		if (n < 0 && errno != EAGAIN)
			return PERCENT;
		resident += n > 0;
	}
	return resident * PERCENT / SAMPLES;
}

unsigned direct_resident_percent(int fd, uint64_t pos, uint64_t len)
{
	struct cached_range range = {.pos = pos, .len = len};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), resident;
	struct cached c;

	if (len == 0)
		return PERCENT;
	if (syscall(SYS_cachestat, fd, &range, &c, 0))
		return sampled_percent(fd, pos, len);
	resident = c.pages * page;
	return resident >= len ? PERCENT : (unsigned)(resident / (len / PERCENT + 1));
}

/* ---- the second descriptor ------------------------------------------------------------- */

bool direct_suits(int fd)
{
	struct statfs fs;

	if (RETRIED(fstatfs(fd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

#ifdef STATX_DIOALIGN
/* Does the file system report that it has no O_DIRECT, or only with a larger alignment? */
static bool lacks_direct_io(int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) || !(st.stx_mask & STATX_DIOALIGN))
		return false;
	return st.stx_dio_offset_align == 0 || st.stx_dio_offset_align > DIRECT_ALIGN ||
	       st.stx_dio_mem_align > DIRECT_ALIGN;
}
#else
static bool lacks_direct_io(int fd)
{
	(void)fd;
	return false;
}
#endif

struct direct_file *direct_open(int fd, int flags)
{
	struct direct_file *d = malloc(sizeof *d);
	char path[LINK_ROOM];

	if (!d)
		return NULL;
	atomic_init(&d->refused, false);
	if (lacks_direct_io(fd)) {
		errno = EINVAL;
		free(d);
		return NULL;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	d->fd = RETRIED(open(path, flags | O_DIRECT | O_CLOEXEC));
	if (d->fd >= 0)
		return d;
	free(d);
	return NULL;
}

void direct_close(struct direct_file *d)
{
	if (!d)
		return;
	close_fd(d->fd);
	free(d);
}

/* ---- reading and writing --------------------------------------------------------------- */

static bool is_aligned(const void *bytes, uint64_t pos)
{
	return ((uintptr_t)bytes | pos) % DIRECT_ALIGN == 0;
}

static bool can_use_direct(const struct direct_file *d, const void *bytes, uint64_t pos)
{
	return d && is_aligned(bytes, pos) &&
	       !atomic_load_explicit(&d->refused, memory_order_relaxed);
}

/* A call failed with errno.  True: the file refuses O_DIRECT, which is not used for it any more.
 * False: the disk failed. */
static bool disable_if_refused(struct direct_file *d)
{
	if (errno != EINVAL && errno != EOPNOTSUPP && errno != ENOTBLK)
		return false;
	atomic_store(&d->refused, true);
	return true;
}

ssize_t direct_read(struct direct_file *d, int fd, void *to, size_t len, uint64_t pos)
{
	size_t whole = (len + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN, done = 0;
	ssize_t n;

	if (!can_use_direct(d, to, pos))
		return pread_full(fd, to, len, (off_t)pos);
	/* A short read at an odd position may be the end of the file.  The ordinary read behind the
	 * loop shows whether it is. */
	while (done < len && done % DIRECT_ALIGN == 0) {
		n = pread(d->fd, (char *)to + done, whole - done, (off_t)(pos + done));
		if (n < 0 && errno != EINTR && !disable_if_refused(d))
			return -1;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	if (done >= len)
		return (ssize_t)len;
	n = pread_full(fd, (char *)to + done, len - done, (off_t)(pos + done));
	return n < 0 ? -1 : (ssize_t)done + n;
}

size_t direct_read_many(struct direct_file *d, const struct iovec *to, int count, uint64_t pos)
{
	ssize_t n;

	if (!can_use_direct(d, to->iov_base, pos))
		return 0;
	/* A failure is reported by direct_read(), which the caller then uses for each buffer. */
	n = preadv(d->fd, to, count, (off_t)pos);
	return n > 0 ? (size_t)n : 0;
}

ssize_t direct_write(struct direct_file *d, const void *from, size_t len, uint64_t pos)
{
	size_t whole = len - len % DIRECT_ALIGN, done = 0;

	if (!can_use_direct(d, from, pos))
		return 0;
	while (done < whole && done % DIRECT_ALIGN == 0) {
		ssize_t n =
			pwrite(d->fd, (const char *)from + done, whole - done, (off_t)(pos + done));

		if (n < 0 && errno != EINTR && !disable_if_refused(d))
			return -1;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

void direct_warn_missed(atomic_bool *warned, const char *name)
{
	if (!atomic_exchange(warned, true))
		log_warn("--direct=on: %s cannot bypass the page cache: %m", name);
}
