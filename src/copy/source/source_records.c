/* SPDX-License-Identifier: Apache-2.0 */

/* The records that describe things besides files: directories and where they come from, owners,
 * attributes. */

#include "copy/source/source_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "copy/attr/origin.h"
#include "copy/names/name.h"

static int put_owner(struct source_lane *l, bool group, uint32_t id)
{
	struct record_owner r = {.group = group, .id = id};
	const char *name;

	if (l->owner[group].known && l->owner[group].id == id)
		return 0;
	l->owner[group].known = true;
	l->owner[group].id = id;
	if (!owners_mark_announced(l->source->owners, group, id, l->index, &name) || !*name)
		return 0;
	if (strlen(name) >= sizeof r.name)
		return 0;
	memcpy(r.name, name, strlen(name) + 1);
	if (source_reserve_room(l, RECORD_OWNER_MAX))
		return -1;
	record_owner_encode(&l->records, &r);
	return 0;
}

int source_put_owners(struct source_lane *l, const struct record_attr *a, const struct xattrs *x)
{
	size_t at = 0;
	bool group;
	uint32_t id;

	if (!l->source->owners)
		return 0;
	if (put_owner(l, false, a->uid) || put_owner(l, true, a->gid))
		return -1;
	while (x && xattrs_next_owner(x, &at, &group, &id)) {
		if (put_owner(l, group, id))
			return -1;
	}
	return 0;
}

static int put_origin(struct source_lane *l, uint32_t want, uint32_t parent, const char *name,
		      const struct stat *st)
{
	struct origin origin = origin_of(st);
	struct record_origin r = {
		.want = want,
		.parent = parent,
		.dir = S_ISDIR(st->st_mode),
		.hash = {origin.hash[0], origin.hash[1]},
	};

	if (!origin_is_known(origin))
		return 0;
	memcpy(r.name, name, strlen(name) + 1);
	if (source_reserve_room(l, RECORD_ORIGIN_MAX))
		return -1;
	record_origin_encode(&l->records, &r);
	return 0;
}

int source_put_origin(struct source_lane *l, uint32_t want, struct walk_dir *in, const char *name,
		      const struct stat *st)
{
	if (!S_ISREG(st->st_mode) || (in && !(in->flags & DIR_IMPLIED)))
		return 0;
	return source_put_dir(l, in) || put_origin(l, want, in ? in->id : 0, name, st) ? -1 : 0;
}

/* ---- names that look like names of backups ------------------------------------------------- */

int source_note_root_names(struct source *s)
{
	char name[NAME_ROOM];

	if (!s->rules->backup || *s->rules->backup_dir || s->found.count < 2)
		return 0;
	for (unsigned i = 0; i < s->found.count; i++) {
		const char *last = name_last(s->found.paths[i].path, name, sizeof name);

		if (hash_set_add(&s->root_names, last, strlen(last), SIZE_MAX, "sources") < 0)
			return -1;
	}
	return 0;
}

/* Does no option leave out what has this name in d? */
static bool is_copied(const struct rules *r, const struct walk_dir *d, const char *name,
		      const struct stat *st)
{
	char path[NAME_MAX_WIRE];
	uint64_t size = (uint64_t)st->st_size;

	if (r->filter &&
	    filter_excludes(r->filter, walk_path(d, name, path, sizeof path), S_ISDIR(st->st_mode)))
		return false;
	if (S_ISREG(st->st_mode))
		return size >= r->min_size && size <= r->max_size;
	return S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode) || r->devices;
}

static bool source_has(struct source_lane *l, struct walk_dir *d, const char *name)
{
	const struct source *s = l->source;
	struct stat st;
	bool has;
	int fd;

	if (!d)
		return hash_set_has(&s->root_names, name, strlen(name));
	if (walk_dir_use(d, &fd))
		return false;
	has = walk_stat(fd, name, s->rules->copy_links, &st) == 0 &&
	      is_copied(s->rules, d, name, &st);
	walk_dir_release(d);
	return has;
}

int source_put_lookalikes(struct source_lane *l, uint32_t want, struct walk_dir *d,
			  const char *name)
{
	const struct rules *r = l->source->rules;
	size_t len = strlen(name), more = strlen(r->suffix);
	struct record_origin o = {.want = want, .parent = d ? d->id : 0};

	if (!r->backup || *r->backup_dir || more == 0 || walk_dir_is_made(d) ||
	    (d ? (d->flags & DIR_IMPLIED) != 0 : l->source->found.count < 2))
		return 0;
	memcpy(o.name, name, len + 1);
	while (len + more < sizeof o.name) {
		memcpy(o.name + len, r->suffix, more + 1);
		len += more;
		if (!source_has(l, d, o.name))
			break;
		if (source_reserve_room(l, RECORD_ORIGIN_MAX))
			return -1;
		record_origin_encode(&l->records, &o);
	}
	return 0;
}

/* ---- directories ----------------------------------------------------------------------------- */

/* Sends the ORIGIN of a directory that the user named, unless it is only an implied one. */
static int put_dir_origin(struct source_lane *l, const struct walk_dir *d)
{
	const struct stat st = {.st_mode = S_IFDIR, .st_dev = d->held.dev, .st_ino = d->held.ino};
	bool implied = (d->flags & DIR_IMPLIED) && !(d->flags & DIR_CONTENTS);

	if (!d->path || implied)
		return 0;
	return put_origin(l, d->want, d->parent ? d->parent->id : 0, d->name, &st);
}

static int put_one_dir(struct source_lane *l, struct walk_dir *d)
{
	struct record_dir r = {
		.id = d->id,
		.want = d->want,
		.parent = d->parent ? d->parent->id : 0,
		.flags = d->flags,
		.a = d->a,
	};

	memcpy(r.name, d->name, strlen(d->name) + 1);
	if (put_dir_origin(l, d) ||
	    (*d->name && source_put_lookalikes(l, d->want, d->parent, d->name)) ||
	    source_put_owners(l, &d->a, NULL) || source_reserve_room(l, RECORD_DIR_MAX))
		return -1;
	record_dir_encode(&l->records, &r);
	return 0;
}

/* False: this lane has announced d already. */
static bool mark_dir_announced(const struct source_lane *l, struct walk_dir *d)
{
	uint64_t bit = UINT64_C(1) << l->index;

	/* Only this thread changes this lane's bit. */
	if (atomic_load_explicit(&d->announced, memory_order_relaxed) & bit)
		return false;
	atomic_fetch_or_explicit(&d->announced, bit, memory_order_relaxed);
	return true;
}

/* A backup must not replace a file of any source, also of one that comes later. */
static int put_root_origins(struct source_lane *l)
{
	const struct source *s = l->source;
	const struct rules *r = s->rules;
	char name[NAME_ROOM];
	struct stat st;

	if (l->roots_known)
		return 0;
	l->roots_known = true;
	if (!r->backup || !*r->backup_dir || !r->recursive || s->found.count < 2)
		return 0;
	for (unsigned i = 0; i < s->found.count; i++) {
		const struct found_path *f = &s->found.paths[i];

		if (r->filter &&
		    (r->relative ||
		     filter_excludes(r->filter, name_last(f->path, name, sizeof name), true)))
			continue;
		if (!f->missing && find_dir(f->path, &st) == 0 &&
		    put_origin(l, f->want, 0, "", &st))
			return -1;
	}
	return 0;
}

int source_put_dir(struct source_lane *l, struct walk_dir *d)
{
	struct walk_dir **chain, *up = d;
	unsigned count = 0;
	int ret = 0;

	if (put_root_origins(l))
		return -1;
	if (!d || !mark_dir_announced(l, d))
		return 0;
	if (!d->parent || !mark_dir_announced(l, d->parent))
		return put_one_dir(l, d);
	chain = malloc((d->depth + 1UL) * sizeof *chain);
	if (!chain)
		return fail_as(OUT_MEMORY, "announce directories: %m");
	chain[count++] = d;
	do {
		up = up->parent;
		chain[count++] = up;
	} while (up->parent && mark_dir_announced(l, up->parent));
	while (ret == 0 && count > 0)
		ret = put_one_dir(l, chain[--count]);
	free(chain);
	return ret;
}

static size_t measure_xattr_head(const struct record_xattr *r)
{
	return RECORD_XATTR_HEAD_MAX + 1 - NAME_ROOM + strlen(r->name);
}

int source_put_unread(struct source_lane *l, uint32_t id)
{
	if (source_reserve_room(l, RECORD_XATTR_HEAD_MAX))
		return -1;
	record_xattr_encode(&l->records, &(struct record_xattr){.id = id, .name = XATTRS_UNREAD});
	return 0;
}

int source_put_xattrs(struct source_lane *l, uint32_t id, const struct xattrs *x)
{
	struct record_xattr r;
	uint32_t pos = 0;
	size_t at = 0;

	while (x) {
		/* Reserve more than the head, so that a piece is not needlessly small. */
		if (source_reserve_room(l, RECORD_XATTR_HEAD_MAX + NAME_ROOM))
			return -1;
		if (!xattrs_next_piece(x, &at, &pos,
				       l->records.size - l->records.used - RECORD_XATTR_HEAD_MAX,
				       id, &r))
			break;
		record_xattr_encode(&l->records, &r);
	}
	return 0;
}

size_t source_xattrs_room(const struct xattrs *x, uint32_t id)
{
	struct record_xattr r;
	size_t at = 0, sum = 0;
	uint32_t pos = 0;

	while (x && xattrs_next_piece(x, &at, &pos, XATTR_VALUE_MAX, id, &r))
		sum += measure_xattr_head(&r) + r.len;
	/* source_put_xattrs() reserves this much before the last piece, too. */
	return sum ? sum + RECORD_XATTR_HEAD_MAX + NAME_ROOM : 0;
}
