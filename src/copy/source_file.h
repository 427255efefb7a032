/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_FILE_H
#define COPY_SOURCE_FILE_H

/* One file or stream as the source sees it, from opening to the sink's result. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "copy/copy.h"
#include "copy/digest.h"
#include "copy/outlet.h"

/* A directory that sources are unlinked in, shared by the files from it. */
struct source_dir {
	int fd;
	unsigned refs;
	char path[];
};

struct source_file {
	struct source_file *next; /* of those without a result; later, of those to unlink */
	struct source_file *next_open; /* of those with bytes to claim */
	uint32_t id, want, flags;
	char *path;
	int fd;
	const struct stream *stream; /* NULL: a named file */
	struct stat st; /* as it was opened */
	uint64_t base; /* where byte 0 is in the descriptor */
	uint64_t size; /* 0 for a stream */
	struct source_dir *dir; /* to unlink it from; NULL */

	pthread_mutex_t turn; /* of what is to be claimed: */
	uint64_t pos; /* up to here all is claimed */
	uint64_t data_end; /* up to here there is no hole */
	bool sparse;
	int after; /* what a stream has behind pos, see stream_gather() */
	struct digest *ordered; /* of a stream's blocks that are no whole cells */

	atomic_bool stop; /* it failed: read no more */
	struct stopper stopper;

	/* The copy's lock: */
	bool exhausted; /* nothing is left to claim */
	bool small; /* whole in one block */
	bool ending; /* somebody makes its FILE_END */
	bool ended; /* which is made */
	bool failed, failed_at_peer;
	unsigned busy; /* lanes at work on it */
	uint64_t announced; /* lanes that have sent its FILE, a bit for each */
	uint64_t data, holes, sum[2];
	struct failure failure;
};

/* Open a named file (missing: it was not there when names were expanded), or take the stream. */
int source_file_open(const char *path, uint32_t want, bool missing, const struct stopper *s,
		     struct source_file **out);
int source_file_stream(const struct stream *stream, const struct stopper *s,
		       struct source_file **out);
void source_file_free(struct source_file *f);

/* Look for holes: told by HOLE records then. */
void source_file_find_holes(struct source_file *f);
/* What the sink needs to know of it. */
void source_file_record(const struct source_file *f, struct record_file *r);

/* The next piece that nobody has claimed, at most unit bytes; turn is held. */
enum claim { CLAIM_NONE, CLAIM_DATA, CLAIM_HOLE };
enum claim source_file_claim(struct source_file *f, uint64_t unit, uint64_t *pos, uint64_t *len);
/* len bytes at pos, all of them; fewer mean that it was changed. */
int source_file_read(struct source_file *f, void *to, size_t len, uint64_t pos);
/* All was read: is it still what was opened?  Grown: a warning. */
int source_file_check(const struct source_file *f);

/* Remember where it can be unlinked; *last is the directory of the file before. */
int source_file_hold(struct source_file *f, struct source_dir **last);
void source_dir_put(struct source_dir *d);
/* Unlink it if it is still the file that was read. */
int source_file_remove(const struct source_file *f);

#endif
