/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/worker.h"
#include "copy/source/source.h"

enum {
	BLOCK_UNIT = 512, /* of st_blocks */
	READ_AHEAD_MIN = 1 << 20,
	READ_AHEAD = 8 << 20, /* so far before it is read */
	WARM = 90, /* percent in the page cache: leave the rest to the kernel */
};

static struct source_file *alloc_source_file(const char *shown, const struct stopper *s)
{
	struct source_file *f = calloc(1, sizeof *f);

	if (f) {
		f->fd = -1;
		f->shown = strdup(shown);
		f->ordered = digest_new();
		f->stopper = *s;
		pthread_mutex_init(&f->turn, NULL);
	}
	if (!f || !f->shown || !f->ordered) {
		source_file_free(f);
		fail_as(OUT_MEMORY, "open %s: %m", shown);
		return NULL;
	}
	return f;
}

void source_file_free(struct source_file *f)
{
	if (!f)
		return;
	if (!f->stream)
		close_fd(f->fd);
	direct_close(f->direct);
	walk_dir_put(f->dir);
	removal_free(f->removal);
	known_cells_free(f->told);
	digest_free(f->ordered);
	pthread_mutex_destroy(&f->turn);
	free(f->shown);
	free(f);
}

/* ---- what comes of it ------------------------------------------------------------------ */

bool source_file_is_endless(int fd, const struct stat *st, enum sizes sizes)
{
	struct stat now;
	char byte;

	if (!S_ISREG(st->st_mode) || sizes == SIZES_MADE_UP)
		return true;
	if (st->st_size > 0 || sizes == SIZES_TRUE || pread(fd, &byte, 1, 0) <= 0)
		return false;
	/* Or did it grow just now? */
	return fstat(fd, &now) == 0 && now.st_size == 0;
}

ssize_t source_file_measure(int fd, void *to, size_t room)
{
	size_t used = 0;
	ssize_t n = 1;
	char more;

	while (n > 0 && used < room) {
		n = read(fd, (char *)to + used, room - used);
		if (n < 0 && errno == EINTR && !cancelled())
			n = 1;
		else if (n > 0)
			used += (size_t)n;
	}
	if (n > 0)
		n = read(fd, &more, 1);
	if (n < 0)
		return -1;
	return (ssize_t)(n > 0 ? room + 1 : used);
}

/* ---- opening -------------------------------------------------------------------------- */

int source_file_look(const char *path, struct stat *st)
{
	return stat(path, st);
}

int source_file_open(const char *path, bool missing, const struct stopper *s, int *fd,
		     struct stat *st)
{
	enum outcome code;

	do
		*fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	while (*fd < 0 && errno == EINTR && !s->stop(s->ctx));
	if (*fd >= 0 && fstat(*fd, st) == 0)
		return 0;
	code = missing ? OUT_NO_SOURCE : errno == ENOENT ? OUT_VANISHED : OUT_FILE;
	fail_as(code, "open %s: %m", path);
	close_fd(*fd);
	*fd = -1;
	return -1;
}

int source_file_new(const char *shown, int fd, const struct stat *st, const struct stopper *s,
		    struct source_file **out)
{
	struct source_file *f = alloc_source_file(shown, s);

	if (!f)
		return -1;
	f->fd = fd;
	f->st = *st;
	f->size = (uint64_t)st->st_size;
	if (f->size >= READ_AHEAD_MIN)
		posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	*out = f;
	return 0;
}

void source_file_become_stream(struct source_file *f)
{
	f->flags |= FILE_STREAM | FILE_ORDERED;
	f->size = 0;
	stream_widen(f->fd);
}

int source_file_stream(const struct stream *stream, const struct stopper *s,
		       struct source_file **out)
{
	struct source_file *f = alloc_source_file(stream->name, s);
	struct sizes_of last = {0};
	off_t at;

	if (!f)
		return -1;
	f->stream = stream;
	f->fd = stream->fd;
	if (fstat(f->fd, &f->st)) {
		fail("read %s: %m", f->shown);
		source_file_free(f);
		return -1;
	}
	at = lseek(f->fd, 0, SEEK_CUR);
	if (!S_ISREG(f->st.st_mode) || at < 0 ||
	    source_file_is_endless(f->fd, &f->st, sizes_of(&last, f->fd, &f->st))) {
		source_file_become_stream(f);
	} else {
		f->base = (uint64_t)at;
		f->size = f->st.st_size > at ? (uint64_t)(f->st.st_size - at) : 0;
		if (stream->most && f->size > stream->most)
			f->size = stream->most;
	}
	*out = f;
	return 0;
}

int source_file_made(uint64_t size, const struct stopper *s, struct source_file **out)
{
	struct source_file *f;

	if (size > INT64_MAX)
		return fail_as(OUT_PROTOCOL, "more bytes are asked for than a file can have");
	f = alloc_source_file("made bytes", s);
	if (!f)
		return -1;
	f->made = true;
	f->size = size;
	snprintf(f->name, sizeof f->name, "made");
	*out = f;
	return 0;
}

/* A block that has been here before has them already: making them is not what is measured. */
static void make_bytes(void *to, size_t len)
{
	const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t *words = to;
	size_t n = len / sizeof *words;

	if (n > 1 && words[0] == odd && words[n - 1] == n * odd)
		return;
	for (size_t i = 0; i < n; i++)
		words[i] = (i + 1) * odd;
	memset(words + n, 0x5a, len % sizeof *words);
}

void source_file_find_holes(struct source_file *f)
{
	if ((f->flags & FILE_STREAM) || f->size == 0 ||
	    f->st.st_blocks * BLOCK_UNIT >= f->st.st_size)
		return;
	f->sparse = true;
	f->flags |= FILE_SPARSE;
}

/* Is it one that is better read from the disk itself? */
static bool suits_direct(const struct source_file *f, unsigned resident)
{
	return f->size >= DIRECT_MIN && resident <= DIRECT_RESIDENT && direct_suits(f->fd);
}

void source_file_choose(struct source_file *f, enum direct how, atomic_bool *missed)
{
	unsigned resident;

	if ((f->flags & FILE_STREAM) || (f->size < READ_AHEAD_MIN && how != DIRECT_ON))
		return;
	resident = direct_resident_percent(f->fd, f->base, f->size);
	f->cold = resident < WARM;
	if (how == DIRECT_ON || (how == DIRECT_AUTO && suits_direct(f, resident))) {
		f->direct = direct_open(f->fd, O_RDONLY);
		if (!f->direct && how == DIRECT_ON)
			direct_warn_missed(missed, f->shown);
	}
	log_debug("reading %s %s the page cache, which has %u %% of it", f->shown,
		  f->direct ? "past" : "through", resident);
}

void source_file_record(const struct source_file *f, struct record_file *r)
{
	*r = (struct record_file){
		.id = f->id,
		.want = f->want,
		.dir = f->dir ? f->dir->id : 0,
		.flags = f->flags,
		.type = TYPE_REGULAR,
		.size = f->size,
	};
	walk_attr_of(&f->st, &r->a);
	r->a.mode = f->stream ? 0666 : f->mode;
	memcpy(r->name, f->name, sizeof r->name);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Where does data begin at or after pos, and how far does it go?  In whole cells. */
static int seek_data(struct source_file *f, uint64_t *from)
{
	off_t data = lseek(f->fd, (off_t)(f->base + f->pos), SEEK_DATA);
	off_t hole;

	if (data < 0 && errno == ENXIO) {
		*from = f->size;
		return 0;
	}
	hole = data < 0 ? -1 : lseek(f->fd, data, SEEK_HOLE);
	if (hole < 0)
		return -1;
	*from = (uint64_t)data - f->base;
	*from -= *from % CELL;
	*from = min_u64(*from < f->pos ? f->pos : *from, f->size);
	f->data_end = ((uint64_t)hole - f->base + CELL - 1) / CELL * CELL;
	return 0;
}

enum claim source_file_claim(struct source_file *f, uint64_t unit, uint64_t *pos, uint64_t *len)
{
	uint64_t data = f->pos;

	*pos = f->pos;
	if (f->pos >= f->size)
		return CLAIM_NONE;
	if (f->sparse && f->pos >= f->data_end && seek_data(f, &data)) {
		/* This file system can't tell after all. */
		f->sparse = false;
		data = f->pos;
	}
	if (data > f->pos) {
		*len = data - f->pos;
		f->pos = data;
		return CLAIM_HOLE;
	}
	*len = min_u64(unit, f->size - f->pos);
	if (f->sparse)
		*len = min_u64(*len, f->data_end - f->pos);
	f->pos += *len;
	return CLAIM_DATA;
}

void source_file_rewind(struct source_file *f)
{
	f->pos = 0;
	f->data_end = 0;
}

bool source_file_may_have_holes(const struct stat *st)
{
	return st->st_blocks * BLOCK_UNIT < st->st_size;
}

bool source_file_is_hole(int fd, const struct stat *st)
{
	return source_file_may_have_holes(st) && lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
}

int source_fail_changed(const char *shown, const char *how)
{
	if (*how)
		return fail_as(OUT_CHANGED, "read %s: source %s while it was read", shown, how);
	log_warn("%s grew while it was read: copied to the size it had, and bytes before that may "
		 "have changed",
		 shown);
	return 0;
}

static ssize_t read_with_readahead(struct source_file *f, void *to, size_t len, uint64_t at)
{
	/* Several lanes read by turns, which the kernel takes for no order at all; and it reads
	 * no further ahead than the disk's setting says, mostly too little. */
	if (f->cold && !f->direct)
		posix_fadvise(f->fd, (off_t)(at + READ_AHEAD), (off_t)len, POSIX_FADV_WILLNEED);
	return direct_read(f->direct, f->fd, to, len, at);
}

int source_file_read(struct source_file *f, void *to, size_t len, uint64_t pos)
{
	ssize_t n;

	if (f->made) {
		make_bytes(to, len);
		return 0;
	}
	n = read_with_readahead(f, to, len, f->base + pos);
	if (n < 0)
		return fail("read %s: %m", f->shown);
	if ((size_t)n < len)
		return source_fail_changed(f->shown, "shrank");
	return 0;
}

size_t source_file_read_many(struct source_file *f, const struct iovec *to, int count, uint64_t pos)
{
	return direct_read_many(f->direct, to, count, f->base + pos);
}

int source_file_check(const struct source_file *f)
{
	struct seen seen = seen_of(&f->st);
	struct stat now;
	const char *how;

	if ((f->flags & FILE_STREAM) || f->made)
		return 0;
	if (fstat(f->fd, &now))
		return fail("read %s: %m", f->shown);
	how = seen_change(&seen, &now);
	return how ? source_fail_changed(f->shown, how) : 0;
}
