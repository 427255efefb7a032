/* SPDX-License-Identifier: Apache-2.0 */

/*
 * KEEP: the names that the source has in a directory that existed before.  When the first ones
 * arrive, the directory is listed, as 63 bits of a hash of each name, so that a peer that never
 * stops sending names costs no memory.  Each name that is kept marks its hash.  What is not marked
 * at the end is deleted.  Two names with the same hash both stay.  A name that is made later is not
 * on the list, and stays.
 */

#include "copy/place/place_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/siphash.h"

enum { KEPT = 1 /* a bit of a hash */ };

struct kept {
	struct siphash_key key;
	uint64_t *hashes; /* ascending, none twice */
	size_t count, room;
	bool complete; /* all names of the source have arrived */
	int unlisted; /* errno: the directory could not be listed, so nothing in it is deleted */
	struct taken folded; /* names of the source that exist without being listed */
};

/* Two names with one hash both stay.  The hash is keyed, so that a peer cannot choose such names.
 */
static uint64_t hash_kept_name(const struct kept *k, const char *name)
{
	return siphash(&k->key, name, strlen(name)) & ~(uint64_t)KEPT;
}

void kept_free(struct kept *k)
{
	if (k) {
		free(k->hashes);
		taken_free(&k->folded);
	}
	free(k);
}

/* ---- listing the directory ----------------------------------------------------------------- */

static int add_kept_hash(struct kept *k, uint64_t hash)
{
	if (ARRAY_ROOM(k->hashes, k->count, k->room, 1))
		return -1;
	k->hashes[k->count++] = hash;
	return 0;
}

static int compare_hashes(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void sort_hashes(struct kept *k)
{
	size_t n = 0;

	if (k->count > 0)
		qsort(k->hashes, k->count, sizeof *k->hashes, compare_hashes);
	for (size_t i = 0; i < k->count; i++) {
		if (n == 0 || k->hashes[n - 1] != k->hashes[i])
			k->hashes[n++] = k->hashes[i];
	}
	k->count = n;
}

static int hash_dir_entries(struct kept *k, int dirfd)
{
	int fd = dir_reopen(dirfd), err;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		err = errno ? errno : EIO;
		close_fd(fd);
		return err;
	}
	do {
		errno = 0;
		e = readdir(dir);
		err = errno;
		if (e && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    add_kept_hash(k, hash_kept_name(k, e->d_name)))
			err = ENOMEM;
	} while (e && err == 0);
	closedir(dir);
	return err;
}

static int begin_keep(struct place_dir *d)
{
	int fd;

	d->kept = calloc(1, sizeof *d->kept);
	if (!d->kept)
		return fail_as(OUT_MEMORY, "list a directory: %m");
	if (siphash_key_make(&d->kept->key)) {
		free(d->kept);
		d->kept = NULL;
		return -1;
	}
	fd = dir_use(d);
	d->kept->unlisted = fd < 0 ? EIO : hash_dir_entries(d->kept, fd);
	if (fd >= 0)
		dir_release(d);
	if (d->kept->unlisted)
		d->kept->count = 0;
	sort_hashes(d->kept);
	return 0;
}

/* ---- names of the source ------------------------------------------------------------------- */

static uint64_t *find_kept_hash(const struct kept *k, uint64_t hash)
{
	size_t from = 0, to = k->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if ((k->hashes[mid] & ~(uint64_t)KEPT) < hash)
			from = mid + 1;
		else
			to = mid;
	}
	return from < k->count && (k->hashes[from] & ~(uint64_t)KEPT) == hash ? &k->hashes[from]
									      : NULL;
}

/* All names have arrived: drops the hashes that are marked. */
static void complete_keep(struct kept *k)
{
	uint64_t *fitting;
	size_t n = 0;

	for (size_t i = 0; i < k->count; i++) {
		if (!(k->hashes[i] & KEPT))
			k->hashes[n++] = k->hashes[i];
	}
	k->count = n;
	k->complete = true;
	fitting = n > 0 ? reallocarray(k->hashes, n, sizeof *fitting) : NULL;
	if (n == 0)
		free(k->hashes);
	if (n == 0 || fitting)
		k->hashes = fitting;
	k->room = n;
}

/* A name that may fold is looked up at the end only, because files are still being stored. */
static int mark_kept_names(struct kept *k, struct reader *names, int dirfd)
{
	char name[NAME_ROOM];
	uint64_t *h;
	int more;

	while ((more = record_keep_next(names, name)) > 0) {
		h = find_kept_hash(k, hash_kept_name(k, name));
		if (h)
			*h |= KEPT;
		else if (k->count > 0 && name_may_fold(dirfd, name) && taken_add(&k->folded, name))
			k->unlisted = ENOMEM;
	}
	return more;
}

int place_dir_keep(struct place_dir *d, struct reader *names, bool last)
{
	int more, fd;

	/* A fresh directory contains only what this run stored. */
	if (d->fresh || d->missing || !d->place->rules->delete)
		return 0;
	if (!d->kept && begin_keep(d))
		return -1;
	fd = dir_use(d);
	more = mark_kept_names(d->kept, names, fd);
	if (fd >= 0)
		dir_release(d);
	else
		d->kept->unlisted = EIO;
	if (d->kept->unlisted)
		d->kept->count = 0;
	if (more == 0 && last)
		complete_keep(d->kept);
	return more;
}

/* ---- implied directories -------------------------------------------------------------------- */

void source_names_free(struct taken *names)
{
	if (names)
		taken_free(names);
	free(names);
}

int dir_add_source_name(struct place_dir *d, const char *name)
{
	int ret = 0;

	if (!(d->flags & DIR_IMPLIED) || !d->place->rules->delete)
		return 0;
	pthread_mutex_lock(&d->place->lock);
	if (!d->source_names)
		d->source_names = calloc(1, sizeof *d->source_names);
	ret = d->source_names ? taken_add(d->source_names, name)
			      : fail_as(OUT_MEMORY, "keep %s: %m", name);
	pthread_mutex_unlock(&d->place->lock);
	return ret;
}

bool dir_is_only_implied(const struct place_dir *d)
{
	return (d->flags & DIR_IMPLIED) && !d->kept;
}

/* ---- what the source lacks ---------------------------------------------------------------- */

bool kept_has_left(const struct kept *k, int *unlisted)
{
	*unlisted = k ? k->unlisted : 0;
	return k && k->complete && k->count > 0;
}

bool dir_has_left(const struct place_dir *d, const char *name)
{
	const uint64_t *h = dir_is_only_implied(d)
				    ? NULL
				    : find_kept_hash(d->kept, hash_kept_name(d->kept, name));

	return dir_is_only_implied(d) ? !d->source_names || !taken_has(d->source_names, name)
				      : h && !(*h & KEPT);
}

static int mark_kept_alias(void *ctx, const char *name)
{
	struct kept *k = ctx;
	uint64_t *h = find_kept_hash(k, hash_kept_name(k, name));

	if (h)
		*h |= KEPT;
	return 0;
}

static int add_alias(void *ctx, const char *name)
{
	return taken_add(ctx, name);
}

static int add_aliases(int dirfd, struct taken *names)
{
	struct taken more = TAKEN_NONE;
	int err = aliases_find(dirfd, names, add_alias, &more);

	for (size_t i = 0; i < more.count && err == 0; i++)
		err = taken_add(names, more.names[i]) ? ENOMEM : 0;
	taken_free(&more);
	taken_sort(names);
	return err;
}

int dirs_keep_aliases(struct place_dir *const *same, size_t count, int dirfd)
{
	struct place *p = same[0]->place;
	int err = same[0]->is_target ? add_aliases(dirfd, &p->claimed) : 0;

	for (size_t i = 0; i < count && err == 0; i++) {
		struct kept *k = same[i]->kept;

		err = same[i]->source_names ? add_aliases(dirfd, same[i]->source_names) : 0;
		if (err == 0 && k)
			err = aliases_find(dirfd, &k->folded, mark_kept_alias, k);
	}
	return err;
}
