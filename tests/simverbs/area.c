/* SPDX-License-Identifier: Apache-2.0 */
#include "area.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "raw.h"

static void *map_shared(int fd, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return NULL;
	raw_madvise(at, bytes, MADV_DONTFORK);
	return at;
}

void *area_new(const char *name, size_t bytes, int *fd)
{
	void *at = NULL;

	*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0)
		at = map_shared(*fd, bytes);
	if (!at && *fd >= 0) {
		int err = errno;

		close(*fd);
		*fd = -1;
		errno = err;
	}
	return at;
}

void *area_map(int fd, size_t *bytes)
{
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	*bytes = (size_t)st.st_size;
	return map_shared(fd, *bytes);
}

void area_unmap(void *area, size_t bytes)
{
	if (area)
		raw_munmap(area, bytes);
}

void area_lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t how;

	pthread_mutexattr_init(&how);
	pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(lock, &how);
	pthread_mutexattr_destroy(&how);
}

void area_lock(pthread_mutex_t *lock)
{
	if (pthread_mutex_lock(lock) == EOWNERDEAD)
		pthread_mutex_consistent(lock);
}

void area_unlock(pthread_mutex_t *lock)
{
	pthread_mutex_unlock(lock);
}

void area_signal(struct completion_area *cq, int channel, int solicited)
{
	uint32_t wish = atomic_load(&cq->armed);
	uint64_t one = 1;

	if (channel < 0 || wish == WISH_NONE || (wish == WISH_SOLICITED && !solicited))
		return;
	if (!atomic_compare_exchange_strong(&cq->armed, &wish, WISH_NONE))
		return;
	atomic_fetch_add(&cq->events, 1);
	if (write(channel, &one, sizeof one) < 0)
		return;
}
