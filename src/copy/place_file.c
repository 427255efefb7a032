/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/clone.h"

enum how {
	BY_RENAME, /* a temporary that takes the name in the end */
	IN_PLACE, /* a regular file, written as it is */
	AS_IT_IS, /* a device, a FIFO, somebody's descriptor: nothing but written */
};

struct placement {
	struct seat seat; /* its name is file.name, or the target's */
	enum how how;
	int fd;
	bool created; /* in place: was not there */
	bool whole; /* all its bytes are at hand */
	bool known; /* tmp.st is what it is, but for size and inode */
	bool there; /* something has its name: */
	struct stat old;
	struct temporary tmp; /* fd: the same */
	struct xattrs *xattrs;
	char *shown; /* NULL: not asked for */
	struct record_file file; /* what the source said of it */
};

/* ---- opening --------------------------------------------------------------------------- */

static int open_as_it_is(struct placement *t)
{
	const struct seat *s = &t->seat;
	int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;

	t->how = AS_IT_IS;
	/* A FIFO waits for its reader. */
	do
		t->fd = s->place->spot.direct ? spot_open(&s->place->spot)
					      : openat(s->dirfd, s->name, flags);
	while (t->fd < 0 && errno == EINTR && !place_stopped(s->place));
	return t->fd < 0 ? seat_failure(&t->seat, "open") : 0;
}

/* Waits for nobody but who has a lease on it, as an NFS server's client may: the kernel asks him to
 * give it up. */
static int open_there(const struct seat *s, int flags)
{
	struct stat st;
	int fd = openat(s->dirfd, s->name, flags);

	if (fd < 0 && errno == EWOULDBLOCK &&
	    fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
		fd = openat(s->dirfd, s->name, flags & ~O_NONBLOCK);
	return fd;
}

static int open_in_place(struct placement *t)
{
	const struct rules *rules = t->seat.place->rules;
	int flags = O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct stat st;

	/* Whoever wants it looked at once more reads it back. */
	flags |= rules->verify || rules->digest ? O_RDWR : O_WRONLY;
	t->how = IN_PLACE;
	t->created = !t->there;
	t->fd = t->there ? open_there(&t->seat, flags)
			 : openat(t->seat.dirfd, t->seat.name, flags | O_CREAT | O_EXCL, 0600);
	if (t->fd < 0 && errno == EEXIST && seat_check_folding(&t->seat))
		return -1;
	/* Not truncated: it may be the source. */
	if (t->fd < 0 || fstat(t->fd, &st))
		return seat_failure(&t->seat, "open");
	if (!S_ISREG(st.st_mode)) {
		errno = EEXIST;
		return seat_failure(&t->seat, "open");
	}
	return 0;
}

static int preallocate(const struct placement *t)
{
	if ((t->file.flags & (FILE_STREAM | FILE_SPARSE)) || t->seat.place->o.sparse ||
	    t->tmp.resumed)
		return 0;
	return room_take(&t->seat, t->fd, t->file.size);
}

/* Whose the file will be, if that is not whoever we are. */
static uid_t owner_then(const struct placement *t)
{
	struct metadata m;

	if (t->seat.place->uid != 0)
		return t->seat.place->uid;
	metadata_want(t->seat.place, &t->file.a, S_IFREG,
		      t->there && S_ISREG(t->old.st_mode) ? &t->old : NULL, true, &m);
	return m.uid;
}

/* Where there is nothing yet, what is begun and finished in one go needs no name meanwhile; where
 * no later run would go on with it, nothing does. */
static bool may_be_nameless(const struct placement *t, bool adopts)
{
	struct place *p = t->seat.place;

	if (p->proc < 0 || atomic_load_explicit(&p->all_named, memory_order_relaxed))
		return false;
	return !adopts || (t->whole && !t->there && t->seat.in);
}

/* 1: it can't be done here. */
static int open_nameless(struct placement *t)
{
	struct place *p = t->seat.place;
	struct metadata m;
	mode_t mode = 0600;

	/* Nobody else can open it, so it has its mode from the start. */
	metadata_want(p, &t->file.a, S_IFREG, NULL, true, &m);
	metadata_inherit(&t->seat, &t->file.a, &m);
	if (!metadata_has_xattrs(p))
		mode = m.mode & 0777;
	if (temporary_nameless(t->seat.dirfd, mode, &t->tmp)) {
		if (errno != EOPNOTSUPP && errno != EISDIR)
			return seat_failure(&t->seat, "create");
		atomic_store_explicit(&p->all_named, true, memory_order_relaxed);
		return 1;
	}
	t->fd = t->tmp.fd;
	if (seat_born(&t->seat, t->fd, mode, &t->tmp.st, &t->known))
		return seat_failure(&t->seat, "create");
	t->known &= t->whole;
	return 0;
}

static int open_temporary(struct placement *t)
{
	struct place *p = t->seat.place;
	bool adopts = place_is_private(p, t->seat.dirfd);
	int ret = 1;

	t->how = BY_RENAME;
	seat_sweep(&t->seat);
	if (may_be_nameless(t, adopts))
		ret = open_nameless(t);
	if (ret < 0)
		return ret;
	if (ret > 0 &&
	    temporary_open(t->seat.dirfd, adopts, t->seat.name, p->uid, owner_then(t), &t->tmp))
		return seat_failure(&t->seat, "create");
	t->fd = t->tmp.fd;
	/* Where all is at hand, writing it tells as soon. */
	return t->whole ? 0 : preallocate(t);
}

/* What is there: may it be replaced, or is it to be written as it is? */
static int check_old(const struct placement *t, bool *as_it_is)
{
	/* A plain copy of files asks for more than one of a tree. */
	bool named = !t->seat.in && !t->seat.place->rules->recursive;
	char shown[SHOWN_ROOM];

	*as_it_is = !t->seat.in && !S_ISREG(t->old.st_mode) && !S_ISLNK(t->old.st_mode) &&
		    !S_ISDIR(t->old.st_mode);
	if (*as_it_is && t->seat.place->o.sources_go)
		return spot_keeps_nothing(seat_shown(&t->seat, shown));
	if (S_ISDIR(t->old.st_mode))
		return named ? fail("%s is a directory", seat_shown(&t->seat, shown))
			     : delete_is_allowed(&t->seat);
	if (named && S_ISREG(t->old.st_mode) &&
	    faccessat(t->seat.dirfd, t->seat.name, W_OK, AT_EACCESS))
		return seat_failure(&t->seat, "open");
	return 0;
}

/* In place, an old file would change before its backup is made; and with its other names that of a
 * source that is removed, and perhaps has only those. */
static bool goes_in_place(const struct placement *t)
{
	const struct place *p = t->seat.place;

	if (p->o.sources_go && t->there && S_ISREG(t->old.st_mode) && t->old.st_nlink > 1)
		return false;
	return p->o.inplace && (!t->there || (S_ISREG(t->old.st_mode) && !place_backs_up(p)));
}

static int look(struct placement *t)
{
	int ret;

	/* Nobody but us puts anything there, and we put nothing there twice. */
	if (t->seat.in && t->seat.in->fresh)
		return 0;
	ret = seat_look(&t->seat, &t->old);
	t->there = ret > 0;
	return ret < 0 || (t->there && seat_check_replacing(&t->seat, &t->old)) ? -1 : 0;
}

static int open_target(struct placement *t)
{
	char shown[SHOWN_ROOM];
	bool as_it_is = false;

	if (t->seat.place->spot.direct && !t->seat.in)
		return open_as_it_is(t);
	if (t->seat.dirfd < 0)
		return fail("create %s: its directory is not there", seat_shown(&t->seat, shown));
	if (look(t) || (t->there && check_old(t, &as_it_is)))
		return -1;
	if (as_it_is)
		return open_as_it_is(t);
	return goes_in_place(t) ? open_in_place(t) : open_temporary(t);
}

/* A symlink is replaced, and a file written anew unless it is asked for otherwise. */
static int open_rest(struct placement *t, bool *had)
{
	bool as_it_is = false;

	*had = false;
	if (t->seat.place->spot.direct || t->seat.dirfd < 0)
		return 0;
	/* What can't be begun is not gone on with. */
	if (look(t) || (t->there && check_old(t, &as_it_is)))
		return -1;
	if (as_it_is)
		return 0;
	if (goes_in_place(t)) {
		if (!t->there || t->old.st_size == 0)
			return 0;
		*had = true;
		return open_in_place(t);
	}
	t->how = BY_RENAME;
	*had = place_is_private(t->seat.place, t->seat.dirfd) &&
	       temporary_resume(t->seat.dirfd, t->seat.name, t->seat.place->uid, &t->tmp) > 0;
	t->fd = t->tmp.fd;
	return 0;
}

static struct placement *placement_new(struct place *p, struct place_dir *d,
				       const struct record_file *r)
{
	struct placement *t = malloc(sizeof *t);

	if (!t) {
		fail_as(OUT_MEMORY, "create %s: %m", r->name);
		return NULL;
	}
	t->file = *r;
	t->how = BY_RENAME;
	t->fd = -1;
	t->created = t->there = t->whole = t->known = false;
	t->xattrs = NULL;
	t->shown = NULL;
	t->tmp.name[0] = '\0';
	t->tmp.fd = -1;
	t->tmp.random = t->tmp.resumed = t->tmp.nameless = false;
	if (seat_take(p, d, &t->file, &t->seat)) {
		free(t);
		return NULL;
	}
	return t;
}

static void placement_free(struct placement *t)
{
	if (!t)
		return;
	close_fd(t->fd);
	seat_leave(&t->seat);
	xattrs_free(t->xattrs);
	free(t->shown);
	free(t);
}

static int begin(struct place *p, struct place_dir *d, const struct record_file *r, bool whole,
		 struct placement **out)
{
	struct placement *t = placement_new(p, d, r);

	if (!t)
		return -1;
	t->whole = whole;
	if (!d && place_create_once(&t->seat, r->id)) {
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
	bool as_it_is;
	int ret;

	if (!t)
		return -1;
	ret = p->spot.direct && !d ? 0 : look(t);
	if (ret == 0 && t->there)
		ret = check_old(t, &as_it_is);
	placement_free(t);
	return ret;
}

int place_begin(struct place *p, struct place_dir *d, const struct record_file *r,
		struct placement **out)
{
	return begin(p, d, r, false, out);
}

int place_begin_whole(struct place *p, struct place_dir *d, const struct record_file *r,
		      struct placement **out)
{
	return begin(p, d, r, true, out);
}

int place_clone(struct place *p, struct place_dir *d, const struct record_file *r, int from,
		struct clones *clones, struct placement **out)
{
	struct record_file as = *r;
	struct placement *t;
	bool can;

	if ((p->spot.direct && !d) || r->size < CLONE_MIN || !(t = placement_new(p, d, r)))
		return -1;
	can = seat_can_share(&t->seat, from, clones);
	placement_free(t);
	/* What is shared takes no room. */
	as.flags |= FILE_SPARSE;
	if (!can || begin(p, d, &as, false, &t))
		return -1;
	t->file.flags = r->flags;
	if (t->how != BY_RENAME || clone_file(from, t->fd)) {
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
	ret = open_rest(t, had);
	if (ret == 0 && *had && (d || place_create_once(&t->seat, r->id) == 0)) {
		*out = t;
		return 0;
	}
	placement_free(t);
	return ret || *had ? -1 : 0;
}

/* ---- what is asked of one ---------------------------------------------------------------- */

int placement_fd(const struct placement *t)
{
	return t->fd;
}

int placement_outlet(const struct placement *t, const char *name, struct outlet *out)
{
	if (t->how == AS_IT_IS)
		return outlet_of(t->fd, name, out);
	outlet_of_file(t->fd, name, out);
	out->fresh = placement_fresh(t);
	out->sized = true;
	return 0;
}

bool placement_fresh(const struct placement *t)
{
	return (t->how == BY_RENAME && !t->tmp.resumed) || (t->how == IN_PLACE && t->created);
}

bool placement_sized(const struct placement *t)
{
	return t->how != AS_IT_IS;
}

const char *placement_name(const struct placement *t)
{
	/* It is ours, and only whoever works on it asks. */
	struct placement *mine = (struct placement *)t;
	char shown[SHOWN_ROOM];

	if (!mine->shown)
		mine->shown = strdup(seat_shown(&t->seat, shown));
	return mine->shown ? mine->shown : t->file.name;
}

void placement_xattrs(struct placement *t, struct xattrs *x)
{
	xattrs_free(t->xattrs);
	t->xattrs = x;
}

static bool replaces_file(const struct placement *t)
{
	return t->how == BY_RENAME && t->there && S_ISREG(t->old.st_mode);
}

void placement_change(const struct placement *t, struct change *c)
{
	struct place *p = t->seat.place;
	struct metadata m;
	int old;

	*c = (struct change){.what = EVENT_FILE, .now = !p->rules->times};
	if (t->how == AS_IT_IS)
		return;
	c->missing = !t->there;
	c->type = t->there && !S_ISREG(t->old.st_mode);
	if (c->missing || c->type)
		return;
	metadata_want(p, &t->file.a, S_IFREG, NULL, false, &m);
	metadata_compare(p, &m, &t->old, c);
	c->size = (uint64_t)t->old.st_size != t->file.size;
	c->content = p->rules->checksum;
	if (!metadata_has_xattrs(p))
		return;
	old = openat(t->seat.dirfd, t->seat.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (old >= 0)
		metadata_compare_xattrs(p, old, t->xattrs, c);
	close_fd(old);
}

/* ---- finishing ----------------------------------------------------------------------------- */

/* What is replaced, if it is still there. */
static int open_old(struct placement *t)
{
	int old = openat(t->seat.dirfd, t->seat.name,
			 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (old >= 0 && fstat(old, &st) == 0 && S_ISREG(st.st_mode)) {
		t->old = st;
		return old;
	}
	close_fd(old);
	return -1;
}

static int set_metadata(struct placement *t, struct stat *is)
{
	struct place *p = t->seat.place;
	bool replaced = replaces_file(t);
	/* Its attributes stay, unless they are to be as the source has them. */
	int old = replaced && !p->rules->perms ? open_old(t) : -1, ret;
	struct metadata m;

	metadata_want(p, &t->file.a, S_IFREG, replaced ? &t->old : NULL,
		      t->how == BY_RENAME || t->created, &m);
	if (!replaced && (t->how == BY_RENAME || t->created))
		metadata_inherit(&t->seat, &t->file.a, &m);
	if (t->file.flags & FILE_STREAM)
		m.has_times = false;
	m.keep = old;
	ret = metadata_set(p, t->fd, is, &m, t->xattrs, &t->seat);
	close_fd(old);
	return ret;
}

static int sync_file(const struct placement *t)
{
	/* An empty one is not written, so nothing else would tell that it is the source. */
	if (t->how == IN_PLACE && t->seat.place->o.sources_go &&
	    metadata_touch(t->seat.place, t->fd))
		return seat_failure(&t->seat, "touch");
	if (!t->seat.place->o.fsync || outlet_sync(t->fd) == 0)
		return 0;
	return seat_failure(&t->seat, "fsync");
}

/* Some file systems tell of a failed write at close only; the lock must outlive that. */
static int close_errors(const struct placement *t, const struct stat *is)
{
	int fd;

	if (is && place_closes_silently(t->seat.place, t->fd, is->st_dev))
		return 0;
	fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && close(fd) == 0)
		return 0;
	return seat_failure(&t->seat, "close");
}

static int sync_dir(const struct placement *t)
{
	int fd, ret;

	if (!t->seat.place->o.fsync || (t->how == IN_PLACE && !t->created))
		return 0;
	fd = dir_reopen(t->seat.dirfd);
	ret = fd < 0 || fsync(fd) ? seat_failure(&t->seat, "fsync the directory of") : 0;
	close_fd(fd);
	return ret;
}

static int take_name(struct placement *t)
{
	return seat_take_name(&t->seat, &t->tmp, t->there ? &t->old : NULL);
}

static int look_at_written(const struct placement *t, uint64_t size, struct stat *is)
{
	if (t->known && t->how != IN_PLACE && !(t->file.flags & FILE_LINKED) &&
	    !t->seat.place->o.sparse) {
		*is = t->tmp.st;
		is->st_size = (off_t)size;
		return 0;
	}
	/* What somebody has removed meanwhile is nowhere. */
	if (fstat(t->fd, is) || (t->how == IN_PLACE && is->st_nlink == 0 && (errno = ENOENT)))
		return -1;
	return (uint64_t)is->st_size != size ? ftruncate(t->fd, (off_t)size) : 0;
}

static int finish(struct placement *t, uint64_t size, bool *in_place)
{
	struct failure lost;
	struct stat is;
	bool some = false;

	*in_place = false;
	if (t->how == AS_IT_IS) {
		if (t->seat.place->spot.direct && spot_cut(&t->seat.place->spot, t->fd, size))
			return seat_failure(&t->seat, "write");
		return sync_file(t) || close_errors(t, NULL) ? -1 : 0;
	}
	if (look_at_written(t, size, &is))
		return seat_failure(&t->seat, "write");
	/* Such a file is whole all the same. */
	if (set_metadata(t, &is)) {
		some = true;
		lost = *failed();
	}
	if (sync_file(t) || close_errors(t, &is) || (t->how == BY_RENAME && take_name(t)))
		return -1;
	*in_place = true;
	/* A run without --inplace may have begun a temporary. */
	if (t->how == IN_PLACE)
		seat_is_whole(&t->seat);
	if (linked_remember(&t->seat, &t->file, &is) || sync_dir(t))
		return -1;
	return some ? fail_again(&lost) : 0;
}

int place_finish(struct placement *t, uint64_t size)
{
	bool in_place;
	int ret = finish(t, size, &in_place);

	if (ret == 0 || in_place)
		placement_free(t);
	else
		place_drop(t, false);
	return ret;
}

void place_drop(struct placement *t, bool keep)
{
	struct place *p = t->seat.place;
	const char *name = t->how == BY_RENAME ? t->tmp.name : t->seat.name;
	bool ours = t->fd >= 0 && (t->how == BY_RENAME || (t->how == IN_PLACE && t->created));

	if (ours && keep && t->how == BY_RENAME && !t->tmp.random && !t->tmp.nameless) {
		if (place_first_time(p, &p->told_kept))
			log_warn("%s: what came of it is kept as %s, which the next run takes over",
				 placement_name(t), name);
	} else if (ours && !t->tmp.nameless) {
		unlinkat(t->seat.dirfd, name, 0);
	}
	placement_free(t);
}
