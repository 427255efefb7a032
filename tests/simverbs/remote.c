/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "raw.h"

void remote_init(struct remote *r)
{
	*r = (struct remote){.channel = -1};
	pthread_mutex_init(&r->lock, NULL);
}

void remote_clear(struct remote *r)
{
	for (unsigned i = 0; i < r->count; i++)
		raw_munmap(r->regions[i].at, r->regions[i].bytes);
	free(r->regions);
	area_unmap(r->queue, r->queue_bytes);
	area_unmap(r->completions, r->completions_bytes);
	area_unmap((void *)(uintptr_t)r->table, r->table_bytes);
	if (r->channel >= 0)
		close(r->channel);
	pthread_mutex_destroy(&r->lock);
	remote_init(r);
}

static void close_fds(const int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

int remote_map_queue(struct remote *r, int *fds, unsigned count)
{
	int err;

	if (count <= FD_REGIONS) {
		close_fds(fds, count);
		errno = EPROTO;
		return -1;
	}
	r->queue = area_map(fds[FD_QUEUE], &r->queue_bytes);
	r->completions = area_map(fds[FD_COMPLETIONS], &r->completions_bytes);
	r->table = area_map(fds[FD_REGIONS], &r->table_bytes);
	err = errno;
	close_fds(fds, FD_REGIONS + 1);
	if (count > FD_CHANNEL)
		r->channel = fds[FD_CHANNEL];
	errno = err;
	return r->queue && r->completions && r->table ? 0 : -1;
}

/* The pieces of a region lie one after the other here, too. */
static int map_pieces(struct remote_region *to, const struct message_region *m, const int *fds)
{
	size_t done = 0;

	to->bytes = 0;
	for (unsigned i = 0; i < m->pieces; i++)
		to->bytes += m->piece[i].bytes;
	to->at = mmap(NULL, to->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		      0);
	if (to->at == MAP_FAILED)
		return -1;
	for (unsigned i = 0; i < m->pieces; i++) {
		void *at = mmap(to->at + done, m->piece[i].bytes, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_FIXED, fds[i], (off_t)m->piece[i].offset);

		if (at == MAP_FAILED) {
			raw_munmap(to->at, to->bytes);
			return -1;
		}
		done += m->piece[i].bytes;
	}
	raw_madvise(to->at, to->bytes, MADV_DONTFORK);
	raw_madvise(to->at, to->bytes, MADV_DONTDUMP);
	raw_madvise(to->at, to->bytes, MADV_HUGEPAGE);
	return 0;
}

int remote_map_region(struct remote *r, const struct message_region *m, int *fds, unsigned count)
{
	struct remote_region to = {.key = m->key, .first = m->first}, *more;
	int rc = -1;

	for (unsigned i = 0; i < r->count; i++)
		if (r->regions[i].key == m->key) {
			close_fds(fds, count);
			return 0;
		}
	if (m->pieces == count && count <= SEGMENT_PIECES)
		rc = map_pieces(&to, m, fds);
	else
		errno = EPROTO;
	close_fds(fds, count);
	if (rc)
		return -1;
	pthread_mutex_lock(&r->lock);
	more = realloc(r->regions, (r->count + 1) * sizeof *more);
	if (more) {
		r->regions = more;
		r->regions[r->count++] = to;
	}
	pthread_mutex_unlock(&r->lock);
	if (more)
		return 0;
	raw_munmap(to.at, to.bytes);
	return -1;
}

void remote_unmap_region(struct remote *r, uint32_t key)
{
	pthread_mutex_lock(&r->lock);
	for (unsigned i = 0; i < r->count; i++)
		if (r->regions[i].key == key) {
			raw_munmap(r->regions[i].at, r->regions[i].bytes);
			r->regions[i] = r->regions[--r->count];
			break;
		}
	pthread_mutex_unlock(&r->lock);
}

uint8_t *remote_at(const struct remote *r, uint32_t key, uint64_t addr)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->regions[i].key == key)
			return r->regions[i].at + (addr - r->regions[i].first);
	return NULL;
}
