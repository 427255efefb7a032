/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/measure/probe.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/worker.h"
#include "copy/io/direct.h"
#include "copy/io/writeback.h"
#include "copy/run.h"
#include "copy/source/source_file.h"

enum {
	LANES = 2,
	DEPTH = 12,
	BLOCK = 256 << 10,
	POOL_MAX = 256 << 20, /* bytes of all blocks */
	TICK_MS = 50,
};

struct probe {
	const struct probe_opts *o;
	struct tally *tally;
	struct source_file *file; /* what is read; for a sink its bytes are generated */
	struct stream stream; /* of a source */
	struct outlet out; /* of a sink */
	struct writeback writeback;
	atomic_bool direct_missed;
	unsigned lanes, depth;
	uint32_t block_size;

	pthread_mutex_t lock;
	bool failed;
	struct failure failure;

	struct worker workers[LANE_COUNT_MAX + 1];
};

static bool is_probe_cancelled(void *ctx)
{
	(void)ctx;
	return cancelled() != 0;
}

static const struct stopper stopper = {.stop = is_probe_cancelled};

static void fail_probe(struct probe *p)
{
	pthread_mutex_lock(&p->lock);
	if (!p->failed)
		p->failure = *failed();
	p->failed = true;
	pthread_mutex_unlock(&p->lock);
}

static bool is_over(struct probe *p)
{
	bool over;

	pthread_mutex_lock(&p->lock);
	over = p->failed;
	pthread_mutex_unlock(&p->lock);
	return over || cancelled();
}

/* Moves a claimed piece through the thread's blocks in turn, as a lane does. */
static int probe_piece(struct probe *p, uint8_t *blocks, unsigned *turn, uint64_t pos, uint64_t len)
{
	while (len > 0) {
		uint32_t n = len < p->block_size ? (uint32_t)len : p->block_size;
		uint8_t *block = blocks + (size_t)(*turn)++ % p->depth * p->block_size;

		if (source_file_read(p->file, block, n, pos))
			return -1;
		if (p->o->role == ROLE_SINK && outlet_write(&p->out, pos, block, n))
			return -1;
		tally_bytes(p->tally, n);
		pos += n;
		len -= n;
	}
	return 0;
}

static int probe_file(struct probe *p, uint8_t *blocks)
{
	uint64_t unit = p->block_size > CELL ? p->block_size : CELL, pos, len;
	enum claim claim;
	unsigned turn = 0;

	/* Fill the blocks first, because generating bytes is not measured. */
	for (unsigned i = 0; p->o->role == ROLE_SINK && i < p->depth; i++) {
		if (source_file_read(p->file, blocks + (size_t)i * p->block_size, p->block_size, 0))
			return -1;
	}
	while (!is_over(p)) {
		pthread_mutex_lock(&p->file->turn);
		claim = source_file_claim(p->file, unit, &pos, &len);
		pthread_mutex_unlock(&p->file->turn);
		if (claim == CLAIM_NONE)
			return 0;
		if (probe_piece(p, blocks, &turn, pos, len))
			return -1;
	}
	return 0;
}

static void *probe_lane(void *arg)
{
	struct probe *p = arg;
	size_t bytes = (size_t)p->depth * p->block_size;
	uint8_t *blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (blocks == MAP_FAILED) {
		fail_as(OUT_MEMORY, "map %zu bytes for blocks: %m", bytes);
		fail_probe(p);
		return NULL;
	}
	if (probe_file(p, blocks))
		fail_probe(p);
	munmap(blocks, bytes);
	return NULL;
}

static void *probe_sync(void *arg)
{
	struct probe *p = arg;

	if (fsync(p->o->file->fd)) {
		fail("fsync the file in %s: %m", p->o->file->name);
		fail_probe(p);
	}
	return NULL;
}

static int run_workers(struct probe *p, unsigned n, void *(*run)(void *))
{
	unsigned started = 0;
	char name[24];

	while (started < n) {
		snprintf(name, sizeof name, "probe %u", started);
		if (worker_start(&p->workers[started], name, run, p)) {
			fail_probe(p);
			break;
		}
		started++;
	}
	for (unsigned i = 0; i < started; i++) {
		while (!worker_join_until(&p->workers[i], clock_ms() + TICK_MS)) {
			if (p->o->tick)
				p->o->tick(p->o->ctx);
			if (cancelled())
				workers_wake();
		}
	}
	if (cancelled())
		return fail_signal(cancelled());
	return p->failed ? fail_again(&p->failure) : 0;
}

static int choose_probe_sizes(struct probe *p)
{
	const struct probe_opts *o = p->o;

	p->lanes = o->lanes ? o->lanes : LANES;
	p->depth = o->depth ? o->depth : DEPTH;
	p->block_size = o->block_size ? o->block_size : BLOCK;
	if (p->lanes > LANE_COUNT_MAX)
		p->lanes = LANE_COUNT_MAX;
	if (p->block_size < LANE_BLOCK_MIN || p->block_size > LANE_BLOCK_MAX ||
	    (p->block_size & (p->block_size - 1)))
		return fail_as(OUT_USAGE, "invalid block size %u: not a power of two from %d to %d",
			       p->block_size, LANE_BLOCK_MIN, LANE_BLOCK_MAX);
	if ((size_t)p->depth * p->block_size > POOL_MAX / p->lanes)
		p->depth = POOL_MAX / p->lanes / p->block_size;
	return 0;
}

/* As a sink opens a file that is too small to bypass the page cache with --direct=auto. */
static void open_probe_outlet(struct probe *p)
{
	const struct scratch *s = p->o->file;

	outlet_of_file(s->fd, s->name, &p->out);
	p->out.stopper = stopper;
	if (!writeback_suits(s->fd))
		return;
	writeback_begin(&p->writeback, p->o->fsync);
	p->out.writeback = &p->writeback;
	if (p->o->direct != DIRECT_ON)
		return;
	p->out.direct = direct_open(s->fd, O_WRONLY);
	if (!p->out.direct)
		direct_warn_missed(&p->direct_missed, s->name);
}

static int open_probe_file(struct probe *p)
{
	const struct scratch *s = p->o->file;

	p->stream = (struct stream){.fd = s->fd, .name = s->name, .most = s->size};
	if (p->o->role == ROLE_SINK) {
		open_probe_outlet(p);
		return source_file_generated(s->size, &stopper, &p->file);
	}
	if (source_file_stream(&p->stream, &stopper, &p->file))
		return -1;
	source_file_choose(p->file, p->o->direct, &p->direct_missed);
	return 0;
}

int probe_run(const struct probe_opts *o, struct tally *t)
{
	struct probe *p = calloc(1, sizeof *p);
	int ret;

	if (!p)
		return fail_as(OUT_MEMORY, "measure a disk: %m");
	p->o = o;
	p->tally = t;
	pthread_mutex_init(&p->lock, NULL);
	ret = choose_probe_sizes(p) || open_probe_file(p) ? -1
							  : run_workers(p, p->lanes, probe_lane);
	if (ret == 0 && o->role == ROLE_SINK && o->fsync)
		ret = run_workers(p, 1, probe_sync);
	direct_close(p->out.direct);
	source_file_free(p->file);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return ret;
}
