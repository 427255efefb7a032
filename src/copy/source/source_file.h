/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_FILE_H
#define COPY_SOURCE_SOURCE_FILE_H

/* One file of several blocks, or a stream, from opening to the sink's result. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "copy/io/digest.h"
#include "copy/io/direct.h"
#include "copy/io/outlet.h"
#include "copy/io/sizes.h"
#include "copy/run.h"
#include "copy/source/source_run.h"

struct removal;
struct known_cells;
struct walk_dir;

struct source_file {
	struct source_file *next_open; /* of those with bytes to claim */
	uint32_t id, want, flags;
	struct walk_dir *dir; /* that it is in at the sink, a reference; NULL: the target */
	char name[NAME_ROOM]; /* there */
	char *shown; /* as the user would write it */
	int fd;
	struct direct_file *direct; /* past the page cache; NULL: through it, and: */
	bool cold; /* much of it is not there: tell the kernel ahead of what is read */
	const struct stream *stream; /* NULL: a file */
	bool made; /* there is no file: its bytes are made in memory */
	struct stat st; /* what is read, as it was opened */
	uint32_t mode; /* that the sink is told */
	uint64_t base; /* where byte 0 is in the descriptor */
	uint64_t size; /* 0 for a stream */
	struct removal *removal; /* NULL: it stays */
	struct known_cells *told; /* cells that the sink has; NULL: none */

	pthread_mutex_t turn; /* of what is to be claimed: */
	uint64_t pos; /* up to here all is claimed */
	uint64_t data_end; /* up to here there is no hole */
	bool sparse;
	int after; /* what a stream has behind pos, see stream_gather() */
	struct digest *ordered; /* of a stream's blocks that are no whole cells */

	bool cloned; /* the sink has it all, as it was opened */
	bool compared; /* it is only read for now, to compare it with what was told */
	_Atomic uint64_t left; /* to claim, for who has not turn; of a stream UINT64_MAX */
	atomic_bool differs; /* and is not the same */
	atomic_bool stop; /* it failed, or what it is read for is known: read no more */
	struct stopper stopper;

	/* The copy's lock: */
	bool exhausted; /* nothing is left to claim */
	bool ending; /* somebody makes its FILE_END */
	bool ended; /* which is made */
	bool failed, failed_at_peer;
	unsigned busy; /* lanes at work on it */
	uint64_t announced; /* lanes that have sent its FILE, a bit for each */
	uint64_t data, holes, sum[2];
	struct failure failure;
};

/* Open what the user named (missing: it was not there when names were expanded). */
int source_file_open(const char *path, bool missing, const struct stopper *s, int *fd,
		     struct stat *st);
/* Look at what the user named, which is followed; -1 with errno. */
int source_file_look(const char *path, struct stat *st);

/* Is what was opened so to be read to its end, whatever its size is said to be? */
bool source_file_is_endless(int fd, const struct stat *st, enum sizes sizes);
/* Read it to its end, if that is not behind room: the bytes; -1 with errno; room + 1: there is
 * more.  Never waits. */
ssize_t source_file_measure(int fd, void *to, size_t room);

/* Of what was opened, whose descriptor it then has. */
int source_file_new(const char *shown, int fd, const struct stat *st, const struct stopper *s,
		    struct source_file **out);
/* Its size means nothing. */
void source_file_become_stream(struct source_file *f);
int source_file_stream(const struct stream *stream, const struct stopper *s,
		       struct source_file **out);
/* Bytes that are made here, for benchmarks. */
int source_file_made(uint64_t size, const struct stopper *s, struct source_file **out);
void source_file_free(struct source_file *f);

/* Look for holes: told by HOLE records then. */
void source_file_find_holes(struct source_file *f);
/* Through the page cache or past it?  missed: it was told that --direct=on can't be. */
void source_file_choose(struct source_file *f, enum direct how, atomic_bool *missed);
/* What the sink needs to know of it. */
void source_file_record(const struct source_file *f, struct record_file *r);

/* The next piece that nobody has claimed, at most unit bytes; turn is held. */
enum claim { CLAIM_NONE, CLAIM_DATA, CLAIM_HOLE };
enum claim source_file_claim(struct source_file *f, uint64_t unit, uint64_t *pos, uint64_t *len);
/* Begin again.  Nobody else has it. */
void source_file_rewind(struct source_file *f);
/* len bytes at pos, all of them; fewer mean that it was changed.  There is room behind them up to
 * the next multiple of DIRECT_ALIGN. */
int source_file_read(struct source_file *f, void *to, size_t len, uint64_t pos);
/* Are fewer blocks of it allocated than it is long? */
bool source_file_may_have_holes(const struct stat *st);
/* Read ahead into several buffers: how many bytes came. */
size_t source_file_read_many(struct source_file *f, const struct iovec *to, int count,
			     uint64_t pos);
/* Of a small one, before it has come so far: all of it is a hole. */
bool source_file_is_hole(int fd, const struct stat *st);

/* All was read: is it still what was opened?  Grown: a warning. */
int source_file_check(const struct source_file *f);
/* That it was changed, as a failure; that it grew, as a warning. */
int source_fail_changed(const char *shown, const char *how);

#endif
