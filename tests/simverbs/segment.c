/* SPDX-License-Identifier: Apache-2.0 */
#include "segment.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "host.h"
#include "misuse.h"
#include "raw.h"

enum { PAGE = 4096 };

struct segment {
	uint8_t *at, *end;
	int fd;
	uint64_t offset; /* of at in fd */
	bool excluded; /* from forks */
	struct segment *next;
};

/* Where the program wants huge pages. */
struct advised {
	uint8_t *at, *end;
	struct advised *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments; /* by address */
static struct advised *advised;
static _Atomic bool any; /* there has been one of these: else the lock is not worth it */

/* ---- one segment ------------------------------------------------------------------------ */

static bool is_zero(const uint8_t *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* Pages that were never touched stay so. */
static void copy_pages(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		if (!is_zero(from + at))
			memcpy(to + at, from + at, PAGE);
}

/* Is there a page at all of these addresses? */
static bool is_mapped(uint8_t *at, size_t bytes)
{
	static const size_t step = 1024;
	unsigned char in[1024];

	for (size_t done = 0; done < bytes; done += step * PAGE) {
		size_t n = bytes - done < step * PAGE ? bytes - done : step * PAGE;

		if (mincore(at + done, n, in))
			return false;
	}
	return true;
}

/* The new pages take the place of the old ones at once: a thread that reads sees one or the other.
 */
static int replace_pages(uint8_t *at, size_t bytes, int advice, int *out)
{
	int fd = memfd_create("simverbs-memory", MFD_CLOEXEC);
	uint8_t *aside = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		aside = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (aside == MAP_FAILED)
		goto failed;
	raw_madvise(aside, bytes, MADV_HUGEPAGE);
	copy_pages(aside, at, bytes);
	raw_madvise(aside, bytes, advice);
	if (mremap(aside, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
		raw_munmap(aside, bytes);
		goto failed;
	}
	*out = fd;
	return 0;
failed:
	if (fd >= 0)
		close(fd);
	return -1;
}

static struct segment **find_place(const uint8_t *at)
{
	struct segment **s = &segments;

	while (*s && (*s)->end <= at)
		s = &(*s)->next;
	return s;
}

static int add_segment(struct segment **place, uint8_t *at, uint8_t *end, int advice)
{
	struct segment *s = malloc(sizeof *s);

	if (!s || replace_pages(at, (size_t)(end - at), advice, &s->fd)) {
		free(s);
		return -1;
	}
	s->at = at;
	s->end = end;
	s->offset = 0;
	s->excluded = advice == MADV_DONTFORK;
	s->next = *place;
	*place = s;
	atomic_store(&any, true);
	return 0;
}

static void remove_segment(struct segment **place)
{
	struct segment *s = *place;

	*place = s->next;
	close(s->fd);
	free(s);
}

/* What is left of a segment when the middle of it goes. */
static void split_segment(struct segment *s, uint8_t *at, uint8_t *end)
{
	struct segment *rest = malloc(sizeof *rest);

	if (!rest)
		misuse("out of memory");
	*rest = *s;
	rest->at = end;
	rest->offset = s->offset + (uint64_t)(end - s->at);
	rest->fd = dup(s->fd);
	s->end = at;
	s->next = rest;
}

static void forget_range(uint8_t *at, uint8_t *end)
{
	struct segment **place = find_place(at);

	while (*place && (*place)->at < end) {
		struct segment *s = *place;

		if (s->at < at && s->end > end) {
			split_segment(s, at, end);
			return;
		}
		if (s->at >= at && s->end <= end) {
			remove_segment(place);
			continue;
		}
		if (s->at < at) {
			s->end = at;
		} else {
			s->offset += (uint64_t)(end - s->at);
			s->at = end;
		}
		place = &s->next;
	}
}

static int share_gaps(uint8_t *at, uint8_t *end, int advice)
{
	struct segment **place = find_place(at);

	while (at < end) {
		uint8_t *stop = *place && (*place)->at < end ? (*place)->at : end;

		if (stop > at && add_segment(place, at, stop, advice))
			return -1;
		at = (*place)->end;
		place = &(*place)->next;
	}
	return 0;
}

/* Those that were shared before. */
static void exclude_segments(const uint8_t *at, const uint8_t *end)
{
	for (struct segment *s = *find_place(at); s && s->at < end; s = s->next)
		if (s->at >= at && s->end <= end)
			s->excluded = true;
}

static int describe_range(const uint8_t *at, const uint8_t *end,
			  struct segment_piece to[SEGMENT_PIECES])
{
	int n = 0;

	for (struct segment *s = *find_place(at); at < end; s = s->next) {
		const uint8_t *stop = s->end < end ? s->end : end;

		if (n == SEGMENT_PIECES) {
			errno = ENOMEM;
			return -1;
		}
		to[n++] = (struct segment_piece){.fd = s->fd,
						 .offset = s->offset + (uint64_t)(at - s->at),
						 .bytes = (uint64_t)(stop - at)};
		at = stop;
	}
	return n;
}

int segment_share(void *addr, size_t length, uint8_t **first,
		  struct segment_piece to[SEGMENT_PIECES])
{
	uintptr_t from = (uintptr_t)addr & ~(uintptr_t)(PAGE - 1);
	uint8_t *at = (uint8_t *)from;
	uint8_t *end = (uint8_t *)(((uintptr_t)addr + length + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
	int n = -1;

	if (!is_mapped(at, (size_t)(end - at))) {
		errno = EFAULT;
		return -1;
	}
	pthread_mutex_lock(&lock);
	if (share_gaps(at, end, MADV_NORMAL) == 0)
		n = describe_range(at, end, to);
	pthread_mutex_unlock(&lock);
	*first = at;
	return n;
}

bool segment_has(const void *addr)
{
	const uint8_t *at = addr;

	for (const struct segment *s = segments; s; s = s->next)
		if (at >= s->at && at < s->end)
			return true;
	return false;
}

bool segment_is_excluded(const void *addr, size_t length)
{
	const uint8_t *at = addr, *end = at + length;

	pthread_mutex_lock(&lock);
	for (const struct segment *s = *find_place(at); at < end; s = s->next) {
		if (!s || s->at > at || !s->excluded)
			break;
		at = s->end;
	}
	pthread_mutex_unlock(&lock);
	return at >= end;
}

/* ---- huge pages ------------------------------------------------------------------------- */

static void add_advice(uint8_t *at, uint8_t *end)
{
	struct advised *a = malloc(sizeof *a);

	if (!a)
		misuse("out of memory");
	*a = (struct advised){.at = at, .end = end, .next = advised};
	advised = a;
	atomic_store(&any, true);
}

static void forget_advice(uint8_t *at, uint8_t *end)
{
	for (struct advised **place = &advised; *place;) {
		struct advised *a = *place;

		if (a->end > end && a->at < end) {
			/* What is behind it stays. */
			if (a->at < at)
				add_advice(end, a->end);
			else
				a->at = end;
		}
		if (a->at < at && a->end > at)
			a->end = at;
		if (a->at >= at && a->end <= end) {
			*place = a->next;
			free(a);
		} else {
			place = &a->next;
		}
	}
}

bool segment_is_huge(const void *addr, size_t length)
{
	const uint8_t *at = addr, *end = at + length;
	bool huge = false;

	pthread_mutex_lock(&lock);
	for (const struct advised *a = advised; a && !huge; a = a->next)
		huge = a->at < end && at < a->end;
	pthread_mutex_unlock(&lock);
	return huge;
}

/* ---- forks ------------------------------------------------------------------------------ */

static void lock_segments(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_segments(void)
{
	pthread_mutex_unlock(&lock);
}

/* A child goes on without the thread that had the lock. */
__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(lock_segments, unlock_segments, unlock_segments);
}

/* ---- the program's calls ---------------------------------------------------------------- */

/* Of memory that begins with a page. */
static uint8_t *end_of_pages(uint8_t *at, size_t length)
{
	return at + ((length + PAGE - 1) & ~(size_t)(PAGE - 1));
}

EXPORT int munmap(void *addr, size_t length)
{
	if (atomic_load(&any)) {
		uint8_t *at = addr, *end = end_of_pages(at, length);

		pthread_mutex_lock(&lock);
		forget_range(at, end);
		forget_advice(at, end);
		pthread_mutex_unlock(&lock);
	}
	return raw_munmap(addr, length);
}

EXPORT int madvise(void *addr, size_t length, int advice)
{
	int rc = raw_madvise(addr, length, advice);
	int err = errno;

	bool concerns =
		advice == MADV_DONTFORK || advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE;

	if (concerns && host_get()) {
		uint8_t *at = addr, *end = end_of_pages(at, length);

		pthread_mutex_lock(&lock);
		if (advice != MADV_DONTFORK)
			forget_advice(at, end);
		/* Also if this kernel has none. */
		if (advice == MADV_HUGEPAGE)
			add_advice(at, end);
		if (advice == MADV_DONTFORK && rc == 0) {
			share_gaps(at, end, MADV_DONTFORK);
			exclude_segments(at, end);
		}
		pthread_mutex_unlock(&lock);
	}
	errno = err;
	return rc;
}
