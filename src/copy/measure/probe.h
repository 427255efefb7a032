/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_MEASURE_PROBE_H
#define COPY_MEASURE_PROBE_H

/*
 * One end's disk alone, for rdbench: read or written by as many threads, in as large blocks and by
 * the same calls as when its lanes do it, and timed.
 */

#include "copy/copy.h"
#include "copy/measure/scratch.h"

struct probe_opts {
	enum role role; /* the source's is read, the sink's written */
	const struct scratch *file;
	unsigned lanes, depth; /* 0: as lanes usually have them */
	uint32_t block_size;
	enum direct direct;
	bool fsync; /* until all is on disk */
	/* In the calling thread, several times a second. */
	void (*turn)(void *ctx);
	void *ctx;
};

/* Returns when its threads have ended; t->first_ns tells when the first block was done. */
int probe_run(const struct probe_opts *o, struct tally *t);

#endif
