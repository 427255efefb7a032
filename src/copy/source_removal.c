/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source.h"

#include <stdlib.h>
#include <string.h>
#include "base/fail.h"

/* What is to be removed, and what it was when it was read. */
struct removal {
	struct removal *next;
	uint32_t id; /* of what is the same; 0: a link or node */
	struct walk_dir *dir; /* a reference */
	dev_t dev;
	ino_t ino;
	mode_t mode;
	off_t size;
	struct timespec mtime, ctime;
	bool linked; /* it has other names: removing one of them is no change of it */
	bool same; /* it was compared, and is not yet known to be another file than the target */
	bool named;
	const char *name; /* in dir: the end of: */
	char path[]; /* of one that the user named; else its name */
};

void removal_free(struct removal *r)
{
	if (!r)
		return;
	walk_dir_put(r->dir);
	free(r);
}

/* The directory of what the user named path, shared by those from one directory.  Lock held: it is
 * opened rarely. */
static struct walk_dir *dir_of(struct source *s, const char *path, size_t len)
{
	struct walk_dir_opts o = {.name = ""};
	char *dir = len ? strndup(path, len) : strdup(".");
	struct walk_dir *d = NULL;

	if (!dir) {
		fail_as(OUT_MEMORY, "open the directory of %s: %m", path);
		return NULL;
	}
	o.path = dir;
	if (s->named_dir && strcmp(s->named_dir->path, dir) == 0) {
		d = walk_dir_get(s->named_dir);
	} else if (walk_dir_open(walk_dirs_of(s->walk), &o, &d) == 0) {
		walk_dir_put(s->named_dir);
		s->named_dir = walk_dir_get(d);
	} else {
		walk_dir_put(d);
		d = NULL;
	}
	free(dir);
	return d;
}

int removal_new(struct source *s, struct walk_dir *dir, const char *name, const struct stat *st,
		struct removal **out)
{
	size_t len = strlen(name) + 1;
	const char *slash = dir ? NULL : strrchr(name, '/');
	size_t at = slash ? (size_t)(slash - name) + 1 : 0;
	struct removal *r = calloc(1, sizeof *r + len);

	if (!r)
		return fail_as(OUT_MEMORY, "remember what to remove: %m");
	memcpy(r->path, name, len);
	r->name = r->path + at;
	r->named = !dir;
	r->dev = st->st_dev;
	r->ino = st->st_ino;
	r->mode = st->st_mode;
	r->size = st->st_size;
	r->mtime = st->st_mtim;
	r->ctime = st->st_ctim;
	r->linked = st->st_nlink > 1;
	if (dir) {
		r->dir = walk_dir_get(dir);
	} else {
		pthread_mutex_lock(&s->copy->lock);
		r->dir = dir_of(s, name, at);
		pthread_mutex_unlock(&s->copy->lock);
	}
	if (!r->dir) {
		removal_free(r);
		return -1;
	}
	*out = r;
	return 0;
}

void removal_due(struct source *s, struct removal *r)
{
	if (!r)
		return;
	r->next = NULL;
	*s->stored_end = r;
	s->stored_end = &r->next;
}

void removal_same(struct source *s, uint32_t id, struct removal *r)
{
	if (!r)
		return;
	r->id = id;
	r->same = true;
	r->next = s->same;
	s->same = r;
}

void removal_other(struct source *s, struct removal *r)
{
	if (!r || !r->linked) {
		removal_due(s, r);
		return;
	}
	/* All names of one that is no file wait: none has changed the others yet. */
	r->same = !S_ISREG(r->mode);
	r->next = s->same;
	s->same = r;
}

void removals_same_due(struct source *s)
{
	struct removal *r, *links = NULL;

	while ((r = s->same) != NULL) {
		s->same = r->next;
		if (!r->same) {
			r->next = links;
			links = r;
			continue;
		}
		/* A result would have settled it. */
		if (r->id == 0 || ids_kind(&s->ids, r->id) == LIVE_SAME)
			removal_due(s, r);
		else
			removal_free(r);
	}
	while ((r = links) != NULL) {
		links = r->next;
		removal_due(s, r);
	}
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_still(const struct removal *r, const struct stat *now)
{
	return now->st_dev == r->dev && now->st_ino == r->ino && now->st_size == r->size &&
	       same_time(&now->st_mtim, &r->mtime) &&
	       ((r->linked && !r->same) || same_time(&now->st_ctim, &r->ctime));
}

/* ---- files that are the target, and have more names -------------------------------------- */

struct inode {
	dev_t dev;
	ino_t ino;
};

static void must_stay(struct staying *t, const struct removal *r)
{
	size_t room = t->room ? 2 * t->room : 16;
	struct inode *more;

	if (!r->linked)
		return;
	if (t->count == t->room) {
		more = reallocarray(t->of, room, sizeof *more);
		if (!more) {
			t->all = true;
			return;
		}
		t->of = more;
		t->room = room;
	}
	t->of[t->count++] = (struct inode){.dev = r->dev, .ino = r->ino};
	t->sorted = false;
}

static int order(const void *a, const void *b)
{
	const struct inode *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* Is it a further name of one of them? Its ctime does not tell, since it may have lost names. */
static bool stays(struct staying *t, const struct removal *r)
{
	struct inode is = {.dev = r->dev, .ino = r->ino};

	if (!r->linked || r->same || t->count == 0)
		return t->all && r->linked && !r->same;
	if (!t->sorted)
		qsort(t->of, t->count, sizeof *t->of, order);
	t->sorted = true;
	return t->all || bsearch(&is, t->of, t->count, sizeof *t->of, order);
}

/* ---- removing ----------------------------------------------------------------------------- */

/* Is it still what was copied? */
static int check(struct source *s, const struct removal *r, int dirfd, const char *shown)
{
	struct stat now;

	if (stays(&s->staying, r))
		return fail_as(OUT_CHANGED, "remove %s: it is the target itself, by another name",
			       shown);
	if (walk_stat(dirfd, r->name, false, &now))
		return fail("remove %s: %m", shown);
	if (S_ISLNK(now.st_mode) && !S_ISLNK(r->mode))
		return fail_as(OUT_CHANGED, "remove %s: it is a symbolic link to what was copied",
			       shown);
	if (!is_still(r, &now) && r->same)
		return fail_as(OUT_CHANGED,
			       "remove %s: it has changed meanwhile, or is the target itself",
			       shown);
	if (!is_still(r, &now))
		return fail_as(OUT_CHANGED, "remove %s: it is no longer the file that was copied",
			       shown);
	return 0;
}

/* What is the same is only looked at the first time: the target may be the source itself (over ssh
 * to its own host, on a file system that both have), and then the sink's touch of it shows. */
static int do_remove(struct source *s, const struct removal *r, const char *shown)
{
	int dirfd, ret;

	/* Nothing would tell that more came meanwhile. */
	if (r->named && !S_ISREG(r->mode))
		return fail("remove %s: it is not a regular file", shown);
	if (walk_dir_use(r->dir, &dirfd))
		return -1;
	ret = check(s, r, dirfd, shown);
	if (ret == 0 && !r->same && walk_remove(dirfd, r->name))
		ret = fail("remove %s: %m", shown);
	walk_dir_let_go(r->dir);
	return ret;
}

void removal_do(struct source *s)
{
	struct removal *r = s->stored;
	char room[NAME_MAX_WIRE];
	const char *shown;
	struct failure why;
	int ret;

	s->stored = r->next;
	if (!s->stored)
		s->stored_end = &s->stored;
	pthread_mutex_unlock(&s->copy->lock);
	shown = r->named ? r->path : walk_shown(r->dir, r->name, room, sizeof room);
	ret = do_remove(s, r, shown);
	if (ret) {
		why = *failed();
		must_stay(&s->staying, r);
		if (!s->only)
			copy_tell(s->copy, shown, &why);
	}
	pthread_mutex_lock(&s->copy->lock);
	if (ret == 0 && r->same) {
		/* Behind all that are still to be looked at: removing a name changes the others'.
		 */
		r->same = false;
		removal_due(s, r);
		return;
	}
	if (ret)
		copy_count_failure(s->copy, &why, false);
	removal_free(r);
}

static void free_list(struct removal *r)
{
	while (r) {
		struct removal *next = r->next;

		removal_free(r);
		r = next;
	}
}

void removals_free(struct source *s)
{
	free_list(s->stored);
	free_list(s->same);
	free(s->staying.of);
	walk_dir_put(s->named_dir);
}
