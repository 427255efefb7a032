/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/writeback.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/io.h"
#include "base/memory.h"

enum {
	STRETCH = 8 << 20,
	IN_FLIGHT_MAX = 8, /* stretches that are being written to the disk */
	SLACK_PART = 32, /* of memory; the kernel begins at a tenth of what is free */
};
#define SLACK_MAX (UINT64_C(2) << 30)

void writeback_begin(struct writeback *w, bool fsync)
{
	uint64_t part = memory_bytes() / SLACK_PART;

	w->slack = fsync ? 0 : part < SLACK_MAX ? part : SLACK_MAX;
	atomic_init(&w->written, 0);
}

bool writeback_suits(int fd)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || RETRIED(fstatfs(fd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case HUGETLBFS_MAGIC:
		return false;
	default:
		return true;
	}
}

/* sync_file_range() is not supported or not allowed, so the data is left to the kernel and fsync().
 * Any other error is the disk's.  It must be reported here, because the kernel reports it only
 * once, and fsync() would succeed later. */
static bool is_sync_unsupported(int error)
{
	return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP || error == ESPIPE ||
	       error == EPERM || error == EINTR;
}

static int sync_range(int fd, uint64_t pos, uint64_t len, unsigned how)
{
	return sync_file_range(fd, (off_t)pos, (off_t)len, how) && !is_sync_unsupported(errno) ? -1
											       : 0;
}

static int sync_stretch(int fd, uint64_t stretch)
{
	const unsigned whole =
		SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

	return sync_range(fd, stretch * STRETCH, STRETCH, whole);
}

int writeback_after_write(struct writeback *w, int fd, uint64_t pos, uint64_t len)
{
	uint64_t now = (pos + len) / STRETCH;

	if (atomic_fetch_add(&w->written, len) + len <= w->slack)
		return 0;
	/* Other lanes may still write to the stretch that this one leaves; the one before is full.
	 */
	if (now == pos / STRETCH || now < 2)
		return 0;
	if (sync_range(fd, (now - 2) * STRETCH, STRETCH, SYNC_FILE_RANGE_WRITE))
		return -1;
	return now < 2 + IN_FLIGHT_MAX ? 0 : sync_stretch(fd, now - 2 - IN_FLIGHT_MAX);
}

int writeback_finish(struct writeback *w, int fd, uint64_t size)
{
	uint64_t last = size / STRETCH;

	if (atomic_load(&w->written) <= w->slack)
		return 0;
	last = last < 2 ? 0 : last - 2;
	return sync_range(fd, last * STRETCH, 0, SYNC_FILE_RANGE_WRITE);
}
