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

enum { TRIES = 8, COMPARED_BYTES = 256 << 10 /* at once: few reads, and little memory */ };

/* By what it is known, and what is the same as it. */
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

/* What a link is made of. */
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

int linked_remember(const struct seat *s, const struct record_file *r, const struct stat *st)
{
	size_t size = strlen(s->name) + 1;
	struct linked *l;
	void *old;
	int ret;

	if (!(r->flags & FILE_LINKED))
		return 0;
	l = calloc(1, sizeof *l + size);
	if (!l)
		return fail_as(OUT_MEMORY, "remember %s: %m", r->name);
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
	return ret ? fail_as(OUT_MEMORY, "remember %s: %m", r->name) : 0;
}

/* ---- making --------------------------------------------------------------------------------- */

/* 1: it is held. 0: there is none. */
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
	f->dirfd = l && !l->dir ? (p->is_dir ? p->top->held.fd : p->spot.dirfd) : -1;
	pthread_mutex_unlock(&p->lock);
	if (!l)
		return 0;
	if (f->dir && (f->dirfd = dir_use(f->dir)) < 0)
		return -1;
	return 1;
}

static bool has_same_inode(const struct file_identity *is, const struct stat *st)
{
	return st->st_dev == is->dev && st->st_ino == is->ino;
}

static bool is_first_unchanged(const struct first_link *f)
{
	struct stat st;

	return fstatat(f->dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       has_same_inode(&f->identity, &st);
}

/* What another run put there, is it the same? Only the times can tell that of bytes. */
static bool equals_first(const struct place *p, const struct file_identity *is,
			 const struct stat *st)
{
	struct record_attr a = {.mtime_s = is->mtime_s, .mtime_ns = is->mtime_ns};
	bool has_bytes = S_ISREG(is->type) ? is->size > 0 : S_ISLNK(is->type);

	if ((st->st_mode & S_IFMT) != is->type)
		return false;
	if (!S_ISREG(is->type) && !S_ISLNK(is->type))
		return st->st_rdev == is->rdev;
	return (uint64_t)st->st_size == is->size &&
	       (!has_bytes || (p->rules->times && metadata_same_mtime(&a, st)));
}

/* Its descriptor, whatever becomes of the name: what this run put there, or another one that
 * copies the same tree at the same time, and then f is that. */
static int open_first(const struct seat *s, struct first_link *f)
{
	int fd = RETRIED(openat(f->dirfd, f->name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	char shown[SHOWN_ROOM];
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		seat_fail(s, "link");
	} else if (has_same_inode(&f->identity, &st) || equals_first(s->place, &f->identity, &st)) {
		f->identity.dev = st.st_dev;
		f->identity.ino = st.st_ino;
		return fd;
	} else {
		fail("link %s: its first name has changed", seat_shown(s, shown));
	}
	close_fd(fd);
	return -1;
}

/* Under that name, which must be free: 0, 1 when it is not, or the first one was replaced
 * meanwhile, -1. */
static int create_link(const struct seat *s, struct first_link *f, const char *as)
{
	int fd = open_first(s, f), ret;

	if (fd < 0)
		return -1;
	ret = s->place->proc >= 0 ? temporary_link_fd(fd, s->dirfd, as, s->place->proc)
				  : linkat(f->dirfd, f->name, s->dirfd, as, 0);
	if (ret)
		ret = errno == EEXIST || errno == ENOENT ? 1 : seat_fail(s, "link");
	close_fd(fd);
	return ret;
}

/* ---- equal files ---------------------------------------------------------------------------- */

static int open_compared(int dirfd, const char *name, dev_t dev, ino_t ino)
{
	int fd = RETRIED(openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino)
		return fd;
	close_fd(fd);
	return -1;
}

static bool have_equal_bytes(const struct place *p, int a, int b)
{
	char *bytes = malloc((size_t)2 * COMPARED_BYTES), *others;
	ssize_t n = -1, m;

	if (!bytes)
		return false;
	others = bytes + COMPARED_BYTES;
	for (off_t at = 0; !place_stopped(p); at += n) {
		n = pread_full(a, bytes, COMPARED_BYTES, at);
		m = pread_full(b, others, COMPARED_BYTES, at);
		if (n <= 0 || m != n || memcmp(bytes, others, (size_t)n) != 0) {
			n = n == 0 && m == 0 ? 0 : -1;
			break;
		}
	}
	free(bytes);
	return n == 0;
}

/* A rerun finds the names of one file whole that an interrupted run did not link.  A backup of such
 * a name would replace the backup of its old content. */
static bool needs_no_backup(const struct seat *s, const struct first_link *f,
			    const struct stat *old)
{
	int first, other;
	bool equal;

	if (!place_backs_up(s->place) || !S_ISREG(old->st_mode) ||
	    !equals_first(s->place, &f->identity, old))
		return false;
	first = open_compared(f->dirfd, f->name, f->identity.dev, f->identity.ino);
	other = open_compared(s->dirfd, s->name, old->st_dev, old->st_ino);
	equal = first >= 0 && other >= 0 && have_equal_bytes(s->place, first, other);
	close_fd(other);
	close_fd(first);
	return equal;
}

/* ---- replacing ------------------------------------------------------------------------------ */

static int replace_with_link(const struct seat *s, struct first_link *f, const struct stat *old)
{
	char as[OWN_NAME_ROOM];
	int ret;

	if (old && needs_no_backup(s, f, old)) {
		if (seat_check_replacing(s, old))
			return -1;
		old = NULL;
	}
	if (temporary_name(s->name, s->place->uid, as))
		return seat_fail(s, "link");
	ret = create_link(s, f, as);
	if (ret)
		return ret;
	ret = seat_rename(s, as, old, true);
	/* Of two names of one file the kernel renames none over the other. */
	unlinkat(s->dirfd, as, 0);
	return ret;
}

/*
 * Others may be at the same names at the same time.  A run that replaces a first name makes this
 * link after that, so all is as it should be in the end if the first name is still there once the
 * link is made.
 */
static int link_with_retries(const struct seat *s, struct first_link *f, bool free)
{
	struct stat old;
	bool made = false;
	int ret, there;

	for (int i = 0; i < TRIES; i++) {
		there = free && i == 0 ? 0 : seat_look(s, &old);
		if (there < 0)
			return -1;
		if (there && has_same_inode(&f->identity, &old) && is_first_unchanged(f))
			return 0;
		/* What was there before is set aside, and not a link of ours. */
		ret = there ? replace_with_link(s, f, made ? NULL : &old)
			    : create_link(s, f, s->name);
		if (ret > 0 && !there && seat_check_folding(s))
			return -1;
		if (ret < 0 || (ret == 0 && is_first_unchanged(f)))
			return ret;
		made |= ret == 0;
	}
	errno = EEXIST;
	return made ? 0 : seat_fail(s, "link");
}

/* It was asked about long before: has a file that is to stay come there meanwhile? */
static int check_permitted(const struct seat *s, const struct record_file *r,
			   const struct stat *old)
{
	const struct rules *rules = s->place->rules;
	char shown[SHOWN_ROOM];

	if (!rules->ignore_existing &&
	    !(rules->update && S_ISREG(old->st_mode) && metadata_is_newer(&r->a, old)))
		return 0;
	return fail("link %s: a file that is to stay has come there", seat_shown(s, shown));
}

/* With --existing something was. */
static int check_existing(const struct seat *s)
{
	char shown[SHOWN_ROOM];

	if (!s->place->rules->existing)
		return 0;
	return fail("link %s: what was to be replaced is not there any more", seat_shown(s, shown));
}

static int make_link(const struct seat *s, struct first_link *f, const struct record_file *r,
		     struct change *c)
{
	struct stat old;
	int there = s->dir && s->dir->fresh ? 0 : seat_look(s, &old);

	if (there < 0)
		return -1;
	/* A number alone may be another file's by now. */
	if (there && has_same_inode(&f->identity, &old) && is_first_unchanged(f)) {
		seat_forget_leftovers(s);
		return 0;
	}
	if (there ? check_permitted(s, r, &old) : check_existing(s))
		return -1;
	c->missing = !there;
	c->content = there && S_ISREG(old.st_mode);
	c->type = there && !c->content;
	if (there && S_ISDIR(old.st_mode) && delete_check_in_the_way(s))
		return -1;
	if (s->place->rules->dry_run)
		return 0;
	/* An earlier run may have met this name first, and begun a file for it. */
	seat_forget_leftovers(s);
	return link_with_retries(s, f, !there);
}

int place_make_link(const struct seat *s, const struct record_file *r, struct change *change)
{
	struct place *p = s->place;
	char shown[SHOWN_ROOM];
	struct first_link f;
	int fd, ret = hold_first(p, r->link_to, &f);

	if (ret < 0)
		return -1;
	if (ret == 0 && !p->rules->dry_run)
		return fail("link %s: its first name is not there", seat_shown(s, shown));
	if (ret == 0) {
		/* It would be. */
		f = (struct first_link){.dirfd = -1};
	}
	ret = make_link(s, &f, r, change);
	if (f.dir && f.dirfd >= 0)
		dir_release(f.dir);
	if (ret || !p->rules->fsync || p->rules->dry_run)
		return ret;
	fd = dir_reopen(s->dirfd);
	ret = fd < 0 || fsync(fd) ? seat_fail(s, "fsync the directory of") : 0;
	close_fd(fd);
	return ret;
}
