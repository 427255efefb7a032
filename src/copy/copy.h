/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_COPY_H
#define COPY_COPY_H

/*
 * The two ends' work: a source (source_run.h) reads what was asked for and sends it, a sink
 * (sink_run.h) stores it.
 *
 * Both run in the calling thread and one thread for each lane of the session, and return when
 * the sink's verdict is in: 0 when everything asked for is stored at the sink and agreed to be
 * what the source read (with some files failed: -1, OUT_SOME_FILES, the list in on_file()).
 * They return only when their threads have ended.  A caller that has promised to be gone by a
 * deadline (a signal, with a thread in a disk that does not answer) keeps that promise itself.
 *
 * The session must have been opened with copy_on_frame/copy_on_fail and the `struct copy' made
 * by copy_new() as ctx; that is how frames reach a source or sink before and while it runs.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "copy/rules/rules.h"
#include "session/session.h"

struct copy;
struct copy_role; /* source_role or sink_role */
int copy_new(const struct copy_role *role, struct copy **out);
void copy_free(struct copy *c);
int copy_on_frame(void *copy, const struct frame *f);
void copy_on_fail(void *copy);

/* What both count while they run; read by whoever shows progress. */
struct tally {
	_Atomic uint64_t bytes; /* source: read or skipped as holes; sink: stored */
	_Atomic uint64_t total; /* source: sizes of files known so far */
	_Atomic uint64_t files; /* done */
	_Atomic bool total_known;
	_Atomic uint64_t first_ns, last_ns; /* clock_ns() of the first and last block */
	/* Benchmarks: the first block is the one after so many bytes; what went up to its end. */
	uint64_t warm;
	_Atomic uint64_t first_bytes;
};

/* A descriptor instead of a named file. */
struct stream {
	int fd; /* -1: none.  Not closed, unless close_at_end. */
	const char *name; /* "stdin", "command zfs" */
	bool close_at_end; /* close fd after the last byte was written (a command's stdin) */
	uint64_t size; /* --size: for progress only; 0: unknown */
	uint64_t most; /* of a regular file: read no more; 0: all */
	/* After the last byte was read, or written and closed, in a lane's thread: 0, or -1
	 * with a failure, which is then the stream's (a command that failed).  NULL: none.
	 * Not called when reading or writing failed. */
	int (*finish)(void *ctx);
	void *ctx;
};

/*
 * total: what was copied, by the sink's word.
 * on_file(ctx, name, failure): a file failed at this end; NULL: not told.  From any thread, one
 * at a time.  Not called for an only file: its failure is what source_run() or sink_run() fail
 * with, at both ends; nor for what is in a directory that failed: that is one sentence in the end.
 * on_event(ctx, event): with rules->events; of files that are done, by the sink, and failed ones,
 * by the end at which they failed. As on_file().
 * on_taken(ctx, name): the sink puts this into the target itself, or leaves what is there under
 * this name; before it does, perhaps more than once. NULL: not told.  As on_file().
 * at_peer: that failure happened at the other end (only where the session itself did not fail:
 * then session_failed() knows the host).
 */
struct copy_result {
	struct msg_total total;
	bool at_peer;
	void (*on_file)(void *ctx, const char *name, const struct failure *f);
	void (*on_event)(void *ctx, const struct msg_event *e);
	void (*on_taken)(void *ctx, const char *name);
	void *ctx;
	struct msg_counts counts; /* what this end knows of them */
	/* What this end's lanes did with their time, and the other's; all 0 if it did not say. */
	struct msg_times times, peer_times;
};

#endif
