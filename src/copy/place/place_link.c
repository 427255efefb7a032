/* SPDX-License-Identifier: Apache-2.0 */

/* Hard links.  A file that gets more names is remembered by its id, with its directory, its name
 * and its inode. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

enum { TRIES = 8 };

/* Identifies a file by its inode, and describes what counts as equal to it. */
struct file_identity {
	dev_t dev;
	ino_t ino;
	mode_t type; /* S_IFREG etc. */
	dev_t rdev;
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

struct linked {
	struct place_dir *dir; /* NULL: the target */
	uint32_t id;
	struct file_identity identity;
	char name[];
};

/* The first name of a group, which a link is made to. */
struct first_link {
	struct place_dir *dir;
	int dirfd; /* held */
	struct file_identity identity;
	char name[NAME_MAX + 1];
};

/* ---- remembering ---------------------------------------------------------------------------- */

void linked_begin(struct place *p)
{
	p->linked = TABLE_BY(linked, id);
}

int linked_remember(const struct place_entry *s, const struct record_file *r, const struct stat *st)
{
	size_t size = strlen(s->name) + 1;
	char shown[SHOWN_ROOM];
	struct linked *l;
	void *old;
	int ret;

	if (!(r->flags & FILE_LINKED))
		return 0;
	l = calloc(1, sizeof *l + size);
	if (!l)
		return fail_as(OUT_MEMORY, "track hard links of %s: %m", entry_shown(s, shown));
	l->dir = s->dir;
	l->id = r->id;
	l->identity = (struct file_identity){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.type = st->st_mode & S_IFMT,
		.rdev = st->st_rdev,
		.size = r->size,
		.mtime_s = r->a.mtime_s,
		.mtime_ns = r->a.mtime_ns,
	};
	memcpy(l->name, s->name, size);
	pthread_mutex_lock(&s->place->lock);
	ret = table_put(&s->place->linked, l, &old);
	pthread_mutex_unlock(&s->place->lock);
	free(ret ? l : old);
	return ret ? fail_as(OUT_MEMORY, "track hard links of %s: %m", entry_shown(s, shown)) : 0;
}

/* ---- making --------------------------------------------------------------------------------- */

/* Holds the directory of the file id.  1; 0: the file is unknown; -1. */
static int hold_first(struct place *p, uint32_t id, struct first_link *f)
{
	const struct linked *l;

	pthread_mutex_lock(&p->lock);
	l = table_find(&p->linked, &id);
	if (l) {
		f->dir = l->dir;
		f->identity = l->identity;
		strcpy(f->name, l->name);
	}
	f->dirfd = l && !l->dir ? (p->is_dir ? p->top->held.fd : p->dst.dirfd) : -1;
	pthread_mutex_unlock(&p->lock);
	if (!l)
		return 0;
	if (f->dir && (f->dirfd = dir_use(f->dir)) < 0)
		return -1;
	return 1;
}

static bool has_same_inode(const struct file_identity *f, const struct stat *st)
{
	return st->st_dev == f->dev && st->st_ino == f->ino;
}

static bool is_first_unchanged(const struct first_link *f)
{
	struct stat st;

	return fstatat(f->dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       has_same_inode(&f->identity, &st);
}

/* Another run has stored a file: is it equal to f?  The content is not read; equal sizes and mtimes
 * stand for it. */
static bool equals_first(const struct place *p, const struct file_identity *f,
			 const struct stat *st)
{
	struct record_attr a = {.mtime_s = f->mtime_s, .mtime_ns = f->mtime_ns};
	bool has_bytes = S_ISREG(f->type) ? f->size > 0 : S_ISLNK(f->type);

	if ((st->st_mode & S_IFMT) != f->type)
		return false;
	if (!S_ISREG(f->type) && !S_ISLNK(f->type))
		return st->st_rdev == f->rdev;
	return (uint64_t)st->st_size == f->size &&
	       (!has_bytes || (p->rules->times && metadata_same_mtime(&a, st)));
}

/* Opens the first name.  The descriptor stays valid if another run replaces the name.  If another
 * run has stored an equal file there, f becomes that file. */
static int open_first(const struct place_entry *s, struct first_link *f)
{
	int fd = RETRIED(openat(f->dirfd, f->name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	char shown[SHOWN_ROOM];
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		entry_fail(s, "link");
	} else if (has_same_inode(&f->identity, &st) || equals_first(s->place, &f->identity, &st)) {
		f->identity.dev = st.st_dev;
		f->identity.ino = st.st_ino;
		return fd;
	} else {
		fail("link %s: another process replaced the file it links to",
		     entry_shown(s, shown));
	}
	close_fd(fd);
	return -1;
}

/* Makes the link under the name `as'.  0; 1: the name exists, or the first name is gone; -1. */
static int create_link(const struct place_entry *s, struct first_link *f, const char *as)
{
	int fd = open_first(s, f), ret;

	if (fd < 0)
		return -1;
	ret = s->place->proc >= 0 ? temporary_link_fd(fd, s->dirfd, as, s->place->proc)
				  : linkat(f->dirfd, f->name, s->dirfd, as, 0);
	if (ret)
		ret = errno == EEXIST || errno == ENOENT ? 1 : entry_fail(s, "link");
	close_fd(fd);
	return ret;
}

/* ---- replacing ------------------------------------------------------------------------------ */

static int replace_with_link(const struct place_entry *s, struct first_link *f,
			     const struct stat *old)
{
	char as[OWN_NAME_ROOM];
	int ret;

	if (temporary_name(s->name, s->place->uid, as))
		return entry_fail(s, "link");
	ret = create_link(s, f, as);
	if (ret)
		return ret;
	ret = entry_rename(s, as, old, true);
	/* rename(2) does nothing if both names are hard links to one inode. */
	unlinkat(s->dirfd, as, 0);
	return ret;
}

/*
 * Another run may store the same names at the same time.  A run makes its links after it replaced
 * the first name.  So the result is right if the first name is unchanged once the link is made.
 */
static int link_with_retries(const struct place_entry *s, struct first_link *f, bool free)
{
	struct stat old;
	bool made = false;
	int ret, exists;

	for (int i = 0; i < TRIES; i++) {
		exists = free && i == 0 ? 0 : entry_look(s, &old);
		if (exists < 0)
			return -1;
		if (exists && has_same_inode(&f->identity, &old) && is_first_unchanged(f))
			return 0;
		/* Only what existed before is backed up, and no link that this loop made. */
		ret = exists ? replace_with_link(s, f, made ? NULL : &old)
			     : create_link(s, f, s->name);
		if (ret > 0 && !exists && entry_check_folding(s))
			return -1;
		if (ret < 0 || (ret == 0 && is_first_unchanged(f)))
			return ret;
		made |= ret == 0;
	}
	errno = EEXIST;
	return made ? 0 : entry_fail(s, "link");
}

/* The source asked about the name (MAY) long before.  Another process may have stored a file since
 * that the options keep. */
static int check_permitted(const struct place_entry *s, const struct record_file *r,
			   const struct stat *old)
{
	const struct rules *rules = s->place->rules;
	char shown[SHOWN_ROOM];

	if (!rules->ignore_existing &&
	    !(rules->update && S_ISREG(old->st_mode) && metadata_is_newer(&r->a, old)))
		return 0;
	return fail("link %s: another process wrote this file meanwhile, and %s keeps it",
		    entry_shown(s, shown),
		    rules->ignore_existing ? "--ignore-existing" : "--update");
}

/* With --existing the name existed when the source asked about it. */
static int check_existing(const struct place_entry *s)
{
	char shown[SHOWN_ROOM];

	if (!s->place->rules->existing)
		return 0;
	return fail(
		"link %s: another process removed this file meanwhile, and --existing creates none",
		entry_shown(s, shown));
}

static int make_link(const struct place_entry *s, struct first_link *f, const struct record_file *r,
		     struct change *c)
{
	struct stat old;
	int exists = s->dir && s->dir->fresh ? 0 : entry_look(s, &old);

	if (exists < 0)
		return -1;
	/* The inode number alone may belong to another file by now. */
	if (exists && has_same_inode(&f->identity, &old) && is_first_unchanged(f)) {
		entry_forget_leftovers(s);
		return 0;
	}
	if (exists ? check_permitted(s, r, &old) : check_existing(s))
		return -1;
	c->missing = !exists;
	c->content = exists && S_ISREG(old.st_mode);
	c->type = exists && !c->content;
	if (exists && S_ISDIR(old.st_mode) && delete_check_in_the_way(s))
		return -1;
	if (s->place->rules->dry_run)
		return 0;
	/* In an earlier run this name may have been the first one, and have left a temporary. */
	entry_forget_leftovers(s);
	return link_with_retries(s, f, !exists);
}

int place_make_link(const struct place_entry *s, const struct record_file *r, struct change *change)
{
	struct place *p = s->place;
	char shown[SHOWN_ROOM];
	struct first_link f;
	int ret = hold_first(p, r->link_to, &f);

	if (ret < 0)
		return -1;
	if (ret == 0 && !p->rules->dry_run)
		return fail("link %s: the file it links to was not stored", entry_shown(s, shown));
	if (ret == 0) {
		/* A dry run stores no first name. */
		f = (struct first_link){.dirfd = -1};
	}
	ret = make_link(s, &f, r, change);
	if (f.dir && f.dirfd >= 0)
		dir_release(f.dir);
	return ret || p->rules->dry_run ? ret : entry_sync_dir(s);
}
