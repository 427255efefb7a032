/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_COPY_H
#define COPY_COPY_H

/*
 * One end's part of a copy.  A source (source.h) reads what the user asked for and sends it; a
 * sink (sink.h) stores it.
 *
 * Both run in the calling thread and one thread per lane of the session.  They return when the
 * sink's verdict has arrived and all their threads have ended: 0 if the sink has stored everything
 * and agrees that it is what the source read; -1 with OUT_SOME_FILES if some files failed, each
 * reported to on_file().  A thread may be blocked in a disk that does not answer, so a caller that
 * must be gone by a deadline, e.g. after a signal, has to enforce that itself.
 *
 * The session must have been opened with copy_on_frame() and copy_on_fail() and with the struct
 * copy of copy_new() as ctx.  Through these, frames reach a source or sink before and while it
 * runs.
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

/* Progress, counted by the lanes while they run and read by the progress display. */
struct tally {
	_Atomic uint64_t bytes; /* source: read or skipped as holes; sink: stored */
	_Atomic uint64_t total; /* source: sizes of files known so far */
	_Atomic uint64_t files; /* completed */
	_Atomic uint64_t removed; /* names removed, or tried: source: moved; sink: deleted */
	_Atomic bool total_known;
	_Atomic uint64_t first_ns, last_ns; /* clock_ns() of the first and last block */
	/* For benchmarks: the first block is the first one after this many bytes; first_bytes
	 * counts the bytes up to its end. */
	uint64_t warm;
	_Atomic uint64_t first_bytes;
};

/* A descriptor instead of a named file. */
struct stream {
	int fd; /* -1: none.  Stays open. */
	const char *name; /* "stdin", "command zfs" */
	bool drains; /* what is written has to be read by somebody (a command) before finish */
	_Atomic uint64_t *passed; /* counts what fd has taken; NULL: not */
	uint64_t size; /* --size, for progress only; 0: unknown */
	uint64_t most; /* read at most this much of a regular file; 0: all */
	/* Called in a lane's thread after the last byte was read or written, but not if
	 * reading or writing failed.  -1 with a failure fails the stream, e.g. because a command
	 * failed.  NULL: none. */
	int (*finish)(void *ctx);
	void *ctx;
};

/*
 * total: what was copied, as reported by the sink.
 *
 * on_file(ctx, name, failure): a file failed at this end.  Called from any thread, one call at a
 * time.  NULL: not reported.  Not called for an only file, because source_run() or sink_run() fail
 * with its failure, at both ends.  Not called for what is in a directory that failed: one message
 * at the end counts that.
 *
 * on_event(ctx, event): with rules->events.  The sink reports files that are complete; each end
 * reports the files that failed there.  Threads as on_file().
 *
 * on_taken(ctx, name): the sink is about to put this name into the target itself, or to leave what
 * exists under it.  May be called more than once for a name.  NULL: not reported.  Threads as
 * on_file().
 *
 * at_peer: the returned failure happened at the other end.  Only set if the session itself did not
 * fail; if it did, session_failed() knows the host.
 */
struct copy_result {
	struct msg_total total;
	bool at_peer;
	void (*on_file)(void *ctx, const char *name, const struct failure *f);
	void (*on_event)(void *ctx, const struct msg_event *e);
	void (*on_taken)(void *ctx, const char *name);
	void *ctx;
	struct msg_counts counts; /* as far as this end knows */
	/* The time of this end's lanes, and of the other end's; all 0 if it sent none. */
	struct msg_times times, peer_times;
};

#endif
