/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/io/clone.h"

/* ---- opening --------------------------------------------------------------------------- */

static int open_as_is(struct placement *t)
{
	const struct place_entry *s = &t->entry;
	int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;

	t->method = AS_IS;
	/* Opening a FIFO blocks until it has a reader, and must be interruptible. */
	do
		t->fd = s->place->dst.by_path ? dst_open(&s->place->dst)
					      : openat(s->dirfd, s->name, flags);
	while (t->fd < 0 && errno == EINTR && !place_stopped(s->place));
	return t->fd < 0 ? entry_fail(&t->entry, "open") : 0;
}

/* Does not block, except until another process gives up its lease on the file, as an NFS server
 * holds one for a client. */
static int open_existing(const struct place_entry *s, int flags)
{
	struct stat st;
	int fd = RETRIED(openat(s->dirfd, s->name, flags));

	if (fd < 0 && errno == EWOULDBLOCK &&
	    fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
		fd = RETRIED(openat(s->dirfd, s->name, flags & ~O_NONBLOCK));
	return fd;
}

static int open_in_place(struct placement *t)
{
	const struct rules *rules = t->entry.place->rules;
	int flags = O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct stat st;

	/* --verify and --print-digest read the file back. */
	flags |= rules->verify || rules->digest ? O_RDWR : O_WRONLY;
	t->method = IN_PLACE;
	t->created = !t->exists;
	if (t->created && room_check(&t->entry))
		return -1;
	t->fd = t->exists ? open_existing(&t->entry, flags)
			  : RETRIED(openat(t->entry.dirfd, t->entry.name, flags | O_CREAT | O_EXCL,
					   0600));
	if (t->fd < 0 && errno == EEXIST && entry_check_folding(&t->entry))
		return -1;
	/* The file is not truncated, because it may be the source. */
	if (t->fd < 0 || fstat(t->fd, &st))
		return entry_fail(&t->entry, "open");
	if (!S_ISREG(st.st_mode)) {
		errno = EEXIST;
		return entry_fail(&t->entry, "open");
	}
	return 0;
}

static int preallocate_file(const struct placement *t)
{
	if ((t->file.flags & (FILE_STREAM | FILE_SPARSE)) || t->entry.place->rules->sparse ||
	    t->tmp.resumed)
		return 0;
	return room_reserve(&t->entry, t->fd, t->file.size);
}

/* The uid that the file will have. */
static uid_t predict_owner(const struct placement *t)
{
	struct metadata m;

	if (t->entry.place->uid != 0)
		return t->entry.place->uid;
	metadata_want(t->entry.place, &t->file.a, S_IFREG,
		      t->exists && S_ISREG(t->old.st_mode) ? &t->old : NULL, true, &m);
	return m.uid;
}

/* Can this run make nameless files, as far as is known? */
static bool supports_nameless(struct place *p)
{
	return p->proc >= 0 && !atomic_load_explicit(&p->no_nameless_files, memory_order_relaxed);
}

/* No later run resumes such a file, so it may be nameless even in a private directory. */
static bool is_whole_and_new(const struct placement *t)
{
	return t->whole && !t->exists && t->entry.dir;
}

/* 1: the file system has no nameless files. */
static int open_nameless_target(struct placement *t)
{
	struct place *p = t->entry.place;
	struct metadata m;
	mode_t mode = 0600;

	/* No other process can open a nameless file, so it may have its final mode at once. */
	metadata_want(p, &t->file.a, S_IFREG, NULL, true, &m);
	metadata_inherit(&t->entry, &t->file.a, &m);
	if (!metadata_has_xattrs(p))
		mode = m.mode & 0777;
	if (temporary_nameless(t->entry.dirfd, mode, &t->tmp)) {
		if (errno != EOPNOTSUPP && errno != EISDIR)
			return entry_fail(&t->entry, "create");
		atomic_store_explicit(&p->no_nameless_files, true, memory_order_relaxed);
		return 1;
	}
	t->fd = t->tmp.fd;
	if (entry_stat_new(&t->entry, t->fd, mode, &t->tmp.st, &t->st_predicted))
		return entry_fail(&t->entry, "create");
	t->st_predicted &= t->whole;
	return 0;
}

static int open_temporary_target(struct placement *t)
{
	struct place *p = t->entry.place;
	bool nameless = supports_nameless(p), never_resumed = nameless && is_whole_and_new(t);
	bool resumable = !never_resumed && place_is_private(p, t->entry.dirfd);
	int ret = 1;

	t->method = BY_RENAME;
	entry_sweep(&t->entry);
	if (room_check(&t->entry))
		return -1;
	if (nameless && !resumable)
		ret = open_nameless_target(t);
	if (ret < 0)
		return ret;
	if (ret > 0 && never_resumed)
		resumable = place_is_private(p, t->entry.dirfd);
	if (ret > 0 && temporary_open(t->entry.dirfd, resumable, t->entry.name, p->uid,
				      predict_owner(t), &t->tmp))
		return entry_fail(&t->entry, "create");
	t->fd = t->tmp.fd;
	/* The single write of a whole file detects a full disk as early. */
	return t->whole ? 0 : preallocate_file(t);
}

/* May what exists (t->old) be replaced?  *as_is: it is to be written as it is instead. */
static int check_old(const struct placement *t, bool *as_is)
{
	/* A copy of single files is stricter than one of a tree, as cp(1) is: it replaces no
	 * directory, and no file that the user may not write. */
	bool named = !t->entry.dir && !t->entry.place->rules->recursive;
	char shown[SHOWN_ROOM];

	*as_is = !t->entry.dir && !S_ISREG(t->old.st_mode) && !S_ISLNK(t->old.st_mode) &&
		 !S_ISDIR(t->old.st_mode);
	if (*as_is && t->entry.place->rules->remove_source)
		return dst_fail_keeps_nothing(entry_shown(&t->entry, shown));
	if (S_ISDIR(t->old.st_mode))
		return named ? fail("%s is a directory", entry_shown(&t->entry, shown))
			     : delete_check_in_the_way(&t->entry);
	if (named && S_ISREG(t->old.st_mode) &&
	    faccessat(t->entry.dirfd, t->entry.name, W_OK, AT_EACCESS))
		return entry_fail(&t->entry, "open");
	return 0;
}

/* An existing file is not written in place if it is backed up, because it would change before the
 * backup is made; nor if it has more hard links that must not change: one of them may be the
 * source. */
static bool goes_in_place(const struct placement *t)
{
	const struct place *p = t->entry.place;

	return p->rules->inplace && (!t->exists || (S_ISREG(t->old.st_mode) && !place_backs_up(p) &&
						    sharing_write(&t->entry, &t->old)));
}

static int stat_old(struct placement *t)
{
	int ret;

	/* In a fresh directory nothing exists before this run creates it, and no name comes twice.
	 */
	if (t->entry.dir && t->entry.dir->fresh)
		return 0;
	ret = entry_look(&t->entry, &t->old);
	t->exists = ret > 0;
	return ret < 0 || (t->exists && entry_check_replacing(&t->entry, &t->old)) ? -1 : 0;
}

static int open_target(struct placement *t)
{
	char shown[SHOWN_ROOM];
	bool as_is = false;

	if (t->entry.place->dst.by_path && !t->entry.dir)
		return open_as_is(t);
	if (t->entry.dirfd < 0)
		return fail("create %s: its directory does not exist",
			    entry_shown(&t->entry, shown));
	if (stat_old(t) || (t->exists && check_old(t, &as_is)))
		return -1;
	if (as_is)
		return open_as_is(t);
	return goes_in_place(t) ? open_in_place(t) : open_temporary_target(t);
}

/* Opens what an earlier run left of the file: a temporary, or with --inplace the file itself. */
static int open_leftover(struct placement *t, bool *had)
{
	bool as_is = false;

	*had = false;
	if (t->entry.place->dst.by_path || t->entry.dirfd < 0)
		return 0;
	/* The same checks as in open_target(). */
	if (stat_old(t) || (t->exists && check_old(t, &as_is)))
		return -1;
	if (as_is)
		return 0;
	if (goes_in_place(t)) {
		if (!t->exists || t->old.st_size == 0)
			return 0;
		*had = true;
		return open_in_place(t);
	}
	t->method = BY_RENAME;
	*had = place_is_private(t->entry.place, t->entry.dirfd) &&
	       temporary_resume(t->entry.dirfd, t->entry.name, t->entry.place->uid, &t->tmp) > 0;
	t->fd = t->tmp.fd;
	return 0;
}

static struct placement *placement_new(struct place *p, struct place_dir *d,
				       const struct record_file *r)
{
	struct placement *t = malloc(sizeof *t);
	char shown[SHOWN_ROOM];

	if (!t) {
		fail_as(OUT_MEMORY, "create %s: %m", place_shown(p, d, r->name, shown));
		return NULL;
	}
	t->file = *r;
	t->method = BY_RENAME;
	t->fd = -1;
	t->created = t->exists = t->whole = t->st_predicted = t->full = false;
	t->reach = 0;
	t->xattrs = NULL;
	t->shown = NULL;
	t->tmp.name[0] = '\0';
	t->tmp.fd = -1;
	t->tmp.random = t->tmp.resumed = t->tmp.nameless = t->tmp.beside = false;
	if (entry_open(p, d, &t->file, &t->entry)) {
		free(t);
		return NULL;
	}
	return t;
}

void placement_free(struct placement *t)
{
	if (!t)
		return;
	close_fd(t->fd);
	entry_close(&t->entry);
	xattrs_free(t->xattrs);
	free(t->shown);
	free(t);
}

static int begin_placement(struct place *p, struct place_dir *d, const struct record_file *r,
			   bool whole, struct placement **out)
{
	struct placement *t = placement_new(p, d, r);

	if (!t)
		return -1;
	t->whole = whole;
	if (!d && place_create_once(&t->entry, r->id)) {
		placement_free(t);
		return -1;
	}
	if (open_target(t)) {
		place_drop(t, false);
		return -1;
	}
	*out = t;
	return 0;
}

int place_rehearse(struct place *p, struct place_dir *d, const struct record_file *r)
{
	struct placement *t = placement_new(p, d, r);
	bool as_is;
	int ret;

	if (!t)
		return -1;
	ret = p->dst.by_path && !d ? 0 : stat_old(t);
	if (ret == 0 && t->exists)
		ret = check_old(t, &as_is);
	placement_free(t);
	return ret;
}

int place_begin(struct place *p, struct place_dir *d, const struct record_file *r,
		struct placement **out)
{
	return begin_placement(p, d, r, false, out);
}

int place_begin_whole(struct place *p, struct place_dir *d, const struct record_file *r,
		      struct placement **out)
{
	return begin_placement(p, d, r, true, out);
}

int place_clone(struct place *p, struct place_dir *d, const struct record_file *r, int from,
		struct clones *clones, struct placement **out)
{
	struct record_file sparse = *r;
	struct placement *t;
	bool can;

	if ((p->dst.by_path && !d) || r->size < CLONE_MIN || !(t = placement_new(p, d, r)))
		return -1;
	can = entry_can_share(&t->entry, from, clones);
	placement_free(t);
	/* Shared blocks take no space, so nothing is preallocated. */
	sparse.flags |= FILE_SPARSE;
	if (!can || begin_placement(p, d, &sparse, false, &t))
		return -1;
	t->file.flags = r->flags;
	if (t->method != BY_RENAME || clone_file(from, t->fd)) {
		place_drop(t, false);
		return -1;
	}
	t->tmp.resumed = true;
	*out = t;
	return 0;
}

int place_resume(struct place *p, struct place_dir *d, const struct record_file *r,
		 struct placement **out, bool *had)
{
	struct placement *t = placement_new(p, d, r);
	int ret;

	*out = NULL;
	*had = false;
	if (!t)
		return -1;
	ret = open_leftover(t, had);
	if (ret == 0 && *had && (d || place_create_once(&t->entry, r->id) == 0)) {
		*out = t;
		return 0;
	}
	placement_free(t);
	return ret || *had ? -1 : 0;
}

/* ---- files in progress -------------------------------------------------------------------- */

int placement_fd(const struct placement *t)
{
	return t->fd;
}

int placement_outlet(const struct placement *t, const char *name, struct outlet *out)
{
	if (t->method == AS_IS)
		return outlet_of(t->fd, name, out);
	outlet_of_file(t->fd, name, out);
	out->fresh = placement_fresh(t);
	out->sized = true;
	return 0;
}

bool placement_fresh(const struct placement *t)
{
	return (t->method == BY_RENAME && !t->tmp.resumed) || (t->method == IN_PLACE && t->created);
}

const char *placement_name(const struct placement *t)
{
	/* A placement is on the heap, and one thread at a time uses it. */
	struct placement *mine = (struct placement *)t;
	char shown[SHOWN_ROOM];

	if (!mine->shown)
		mine->shown = strdup(entry_shown(&t->entry, shown));
	return mine->shown ? mine->shown : t->file.name;
}

void placement_set_reach(struct placement *t, uint64_t reach, bool full)
{
	t->reach = reach;
	t->full = full;
}

void placement_xattrs(struct placement *t, struct xattrs *x)
{
	xattrs_free(t->xattrs);
	t->xattrs = x;
}

void placement_change(const struct placement *t, struct change *c)
{
	struct place *p = t->entry.place;
	struct metadata m;
	int old;

	*c = (struct change){.what = EVENT_FILE, .now = !p->rules->times};
	if (t->method == AS_IS)
		return;
	c->missing = !t->exists;
	c->type = t->exists && !S_ISREG(t->old.st_mode);
	if (c->missing || c->type)
		return;
	metadata_want(p, &t->file.a, S_IFREG, NULL, false, &m);
	metadata_compare(p, &m, &t->old, c);
	c->size = (uint64_t)t->old.st_size != t->file.size;
	c->content = p->rules->checksum;
	if (!metadata_has_xattrs(p))
		return;
	old = RETRIED(openat(t->entry.dirfd, t->entry.name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (old >= 0)
		metadata_compare_xattrs(p, old, t->xattrs, c);
	close_fd(old);
}
