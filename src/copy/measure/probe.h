/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_MEASURE_PROBE_H
#define COPY_MEASURE_PROBE_H

/*
 * Times one end's disk alone, for rdbench.  It is read or written with as many threads, with blocks
 * as large, and by the same calls as when the lanes of a session do it.
 */

#include "copy/copy.h"
#include "copy/measure/scratch.h"

struct probe_opts {
	enum role role; /* a source's is read, a sink's is written */
	const struct scratch *file;
	unsigned lanes, depth; /* 0: the usual numbers */
	uint32_t block_size;
	enum direct direct;
	bool fsync; /* the time includes an fsync */
	/* Called in the calling thread, several times a second. */
	void (*tick)(void *ctx);
	void *ctx;
};

/* Returns when its threads have ended.  t->first_ns: when the first block was done. */
int probe_run(const struct probe_opts *o, struct tally *t);

#endif
