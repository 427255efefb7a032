/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/floor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

enum { LIMIT_TEXT_MAX = 32 };
/* A slot is a range of this many bytes, more than a process ever writes at a time. */
static const uint64_t SLOT_BYTES = (uint64_t)1 << 40;

static struct floor limit;
static bool is_set;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t announced; /* by this process; with the lock */
static _Atomic uint64_t stored; /* by this process, with what it is writing */
static _Thread_local enum { SAID_NOTHING, SAID_FREE, SAID_BYTES } said;

int floor_make_board(void)
{
	int fd = memfd_create("sluice floor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* It holds locks, and cannot become memory that sessions share. */
	if (fd >= 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE) == 0)
		return fd;
	fail_as(OUT_MEMORY, "make a file for locks: %m");
	close_fd(fd);
	return -1;
}

void floor_set(const struct floor *f)
{
	limit = *f;
	is_set = f->min_free || f->max_bytes;
}

bool floor_is_set(void)
{
	return is_set;
}

/* Locks or unlocks len bytes behind those that are announced. */
static int set_lock(short type, uint64_t len)
{
	struct flock l = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)(limit.slot * SLOT_BYTES + announced),
		.l_len = (off_t)len,
	};

	return len ? RETRIED(fcntl(limit.board, F_SETLK, &l)) : 0;
}

static int announce_bytes(uint64_t len)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = set_lock(F_WRLCK, len);
	if (ret == 0)
		announced += len;
	pthread_mutex_unlock(&lock);
	return ret;
}

static void withdraw_bytes(uint64_t len)
{
	pthread_mutex_lock(&lock);
	announced -= len;
	set_lock(F_UNLCK, len);
	pthread_mutex_unlock(&lock);
}

/* A lock of another process in a range (len 0: to the end): 1, with its first byte and length; 0:
 * there is none. */
static int find_lock(uint64_t start, uint64_t len, uint64_t *at, uint64_t *found)
{
	struct flock l = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)start,
		.l_len = (off_t)len,
	};

	if (fcntl(limit.board, F_GETLK, &l))
		return -1;
	*at = (uint64_t)l.l_start;
	*found = l.l_len ? (uint64_t)l.l_len : SLOT_BYTES;
	return l.l_type != F_UNLCK;
}

/* What all processes announce together. Returns -1 with errno. */
static int sum_announced(uint64_t *sum)
{
	uint64_t at, len;
	int more;

	pthread_mutex_lock(&lock);
	*sum = announced;
	pthread_mutex_unlock(&lock);
	/* The kernel finds any lock of several, not the first one. */
	for (uint64_t from = 0; (more = find_lock(from, 0, &at, &len)) > 0; from += SLOT_BYTES) {
		if (at / SLOT_BYTES != from / SLOT_BYTES &&
		    (more = find_lock(from, SLOT_BYTES, &at, &len)) < 0)
			return -1;
		*sum += more ? len : 0;
	}
	return more;
}

/* Whether the floor holds if size bytes are written. Returns 0; or -1 with `said', or with errno.
 */
static int check_room(int fd, uint64_t size)
{
	struct statfs fs;
	uint64_t left;

	if (!limit.min_free)
		return 0;
	if (RETRIED(fstatfs(fd, &fs)))
		return -1;
	left = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (left >= limit.min_free && left - limit.min_free >= size)
		return 0;
	said = SAID_FREE;
	return -1;
}

/* Counts len bytes as stored by this process, unless they are too many. */
static bool count_bytes(uint64_t len)
{
	uint64_t before = atomic_fetch_add(&stored, len);

	if (!limit.max_bytes || (before <= limit.max_bytes && len <= limit.max_bytes - before))
		return true;
	atomic_fetch_sub(&stored, len);
	return false;
}

/* The same for what all processes announce. */
static int check_floor(int fd)
{
	uint64_t sum = 0;

	if (limit.min_free && sum_announced(&sum))
		return -1;
	return check_room(fd, sum);
}

int floor_begin(int fd, size_t len)
{
	int err;

	if (!is_set)
		return 0;
	said = count_bytes(len) ? SAID_NOTHING : SAID_BYTES;
	if (said)
		return -1;
	if (limit.min_free && announce_bytes(len)) {
		atomic_fetch_sub(&stored, len);
		return -1;
	}
	if (check_floor(fd) == 0)
		return 0;
	err = errno;
	floor_end(len);
	atomic_fetch_sub(&stored, len);
	errno = err;
	return -1;
}

void floor_end(size_t len)
{
	int err = errno;

	if (is_set && limit.min_free)
		withdraw_bytes(len);
	errno = err;
}

int floor_check(int fd, uint64_t size)
{
	uint64_t so_far = atomic_load(&stored);

	if (!is_set)
		return 0;
	said = SAID_NOTHING;
	if (!limit.max_bytes || (so_far <= limit.max_bytes && size <= limit.max_bytes - so_far))
		return check_room(fd, size);
	said = SAID_BYTES;
	return -1;
}

/* Exact, in the largest unit that is. */
static const char *limit_text(uint64_t bytes, char to[static LIMIT_TEXT_MAX])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;

	while (bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof *units) {
		bytes /= 1024;
		unit++;
	}
	snprintf(to, LIMIT_TEXT_MAX, "%" PRIu64 " %s", bytes, units[unit]);
	return to;
}

int floor_fail(const char *name)
{
	char text[LIMIT_TEXT_MAX];

	switch (said) {
	case SAID_BYTES:
		return fail("write %s: a session may store at most %s here (max bytes of rdcpd)",
			    name, limit_text(limit.max_bytes, text));
	case SAID_FREE:
		return fail("write %s: the disk is full but for the %s that stay free (min free of "
			    "rdcpd)",
			    name, limit_text(limit.min_free, text));
	default:
		return fail("write %s: %m", name);
	}
}
