/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_FILE_H
#define COPY_SOURCE_SOURCE_FILE_H

/* A file of several blocks, or a stream, from its opening to the sink's result. */

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
#include "copy/source/source.h"

struct removal;
struct known_cells;
struct walk_dir;

struct source_file {
	struct source_file *next_open; /* in the list of files with bytes left to claim */
	uint32_t id, want, flags;
	struct walk_dir *dir; /* its directory at the sink, a reference; NULL: the target */
	char name[NAME_ROOM]; /* in that directory */
	char *shown; /* for messages, as the user would write it */
	int fd;
	struct direct_file *direct; /* reads past the page cache; NULL: through it */
	bool cold; /* much of it is not in the page cache: advise the kernel ahead of reading */
	const struct stream *stream; /* NULL: a file */
	bool generated; /* there is no file: its bytes are generated in memory */
	struct stat st; /* of what is read, when it was opened */
	uint32_t mode; /* that is sent to the sink */
	uint64_t base; /* where byte 0 is in the descriptor */
	uint64_t size; /* 0 for a stream */
	struct removal *removal; /* NULL: the source is not removed */
	struct known_cells *known; /* cells that the sink has; NULL: none */

	pthread_mutex_t turn; /* protects the claiming of pieces: pos to ordered */
	uint64_t pos; /* everything before it is claimed */
	uint64_t data_end; /* no hole before it */
	bool sparse;
	int after; /* what follows pos in a stream, see stream_gather() */
	struct digest *ordered; /* digest of a stream's blocks that are not whole cells */

	bool cloned; /* the sink has all of it, as it was opened */
	bool compared; /* it is read to be compared with the sink's cells, and not sent yet */
	_Atomic uint64_t left; /* bytes to claim, readable without turn; UINT64_MAX for a stream */
	atomic_bool differs; /* from the sink's cells */
	atomic_bool stop; /* read no more: it failed, or the comparison is decided */
	struct stopper stopper;

	/* Under the copy's lock: */
	bool exhausted; /* nothing is left to claim */
	bool ending; /* a lane is making its FILE_END */
	bool ended; /* its FILE_END was made */
	bool failed, failed_at_peer;
	unsigned busy; /* lanes that work on it */
	uint64_t announced; /* lanes that have sent its FILE, a bit for each */
	uint64_t data, holes, sum[2];
	struct failure failure;
};

/* Opens what the user named.  missing: it did not exist when names were expanded. */
int source_file_open(const char *path, bool missing, const struct stopper *s, int *fd,
		     struct stat *st);
/* Stats what the user named, following symlinks.  -1 with errno. */
int source_file_look(const char *path, struct stat *st);

/* Must it be read to its end, because its size means nothing? */
bool source_file_is_endless(int fd, const struct stat *st, enum sizes sizes);
/* Reads fd, which must not block, to its end, if that is within room bytes.  Returns the bytes
 * read; room + 1: there are more; -1 with errno. */
ssize_t source_file_measure(int fd, void *to, size_t room);

/* For the opened file fd.  On success f owns fd. */
int source_file_new(const char *shown, int fd, const struct stat *st, const struct stopper *s,
		    struct source_file **out);
/* For a file whose size means nothing. */
void source_file_become_stream(struct source_file *f);
int source_file_stream(const struct stream *stream, const struct stopper *s,
		       struct source_file **out);
/* Generates its bytes, for benchmarks. */
int source_file_generated(uint64_t size, const struct stopper *s, struct source_file **out);
void source_file_free(struct source_file *f);

/* Looks for holes from now on; they are sent as HOLE records. */
void source_file_find_holes(struct source_file *f);
/* Decides whether to read through the page cache or past it.  missed: whether the user was warned
 * that --direct=on is impossible. */
void source_file_choose(struct source_file *f, enum direct direct, atomic_bool *missed);
/* Fills in the FILE record. */
void source_file_record(const struct source_file *f, struct record_file *r);

/* Claims the next piece, of at most unit bytes if it is data.  turn is held. */
enum claim { CLAIM_NONE, CLAIM_DATA, CLAIM_HOLE };
enum claim source_file_claim(struct source_file *f, uint64_t unit, uint64_t *pos, uint64_t *len);
/* Starts claiming again at 0.  No other thread uses f. */
void source_file_rewind(struct source_file *f);
/* Reads exactly len bytes at pos; fewer mean that the file was changed, and fail.  `to' has room up
 * to the next multiple of DIRECT_ALIGN. */
int source_file_read(struct source_file *f, void *to, size_t len, uint64_t pos);
/* Has it fewer blocks than its size needs? */
bool source_file_may_have_holes(const struct stat *st);
/* Reads into several buffers with one call, past the page cache only.  Returns how many bytes
 * arrived; 0: use source_file_read(), which also reports failures. */
size_t source_file_read_many(struct source_file *f, const struct iovec *to, int count,
			     uint64_t pos);
/* For a small file that has no source_file: is all of it a hole? */
bool source_file_is_hole(int fd, const struct stat *st);

/* Everything was read: fails if the file is no longer what was opened.  If it only grew, warns. */
int source_file_check(const struct source_file *f);
/* Fails because the file changed as `change' states.  If change is "", it only grew: warns. */
int source_fail_changed(const char *shown, const char *change);

#endif
