/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sets owner, attributes, mode and times, in this order.  A change of owner clears set-id bits and
 * capabilities.  The group bits of a mode are the mask of an ACL, and would be the group's own
 * rights as long as there is no ACL.  Everything before the times may change them.  Rights that are
 * not to stay are removed before the owner changes, so no user ever has more rights than were asked
 * for.  All calls use descriptors; those opened with O_PATH are reached by their names in
 * /proc/self/fd.
 */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/attr/modes.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum {
	SET_ID = S_ISUID | S_ISGID,
	PERMISSIONS = 0777,
	MODE = 07777,
};
/* Times and sizes from a peer have 64 bits.  A build with fewer would store other values. */
_Static_assert(sizeof(time_t) == sizeof(int64_t) && sizeof(off_t) == sizeof(int64_t),
	       "times and sizes have 64 bits");
static const uid_t no_id = (uid_t)-1; /* no user, and no group */

/* ---- the metadata to set --------------------------------------------------------------- */

static bool may_give_group(const struct place *p, gid_t gid)
{
	if (p->uid == 0)
		return true;
	for (int i = 0; i < p->group_count; i++) {
		if (p->groups[i] == gid)
			return true;
	}
	return false;
}

static uint32_t map_owner_id(const struct place *p, bool group, uint32_t id)
{
	return p->opts.owners ? owners_map(p->opts.owners, group, id, p->rules->numeric_ids) : id;
}

static void want_owner(struct place *p, const struct record_attr *a, const struct stat *replaced,
		       struct metadata *m)
{
	const struct rules *r = p->rules;

	m->uid = m->set_uid = no_id;
	m->gid = m->set_gid = no_id;
	if (r->owner)
		m->uid = m->set_uid = map_owner_id(p, false, a->uid);
	if (p->chown_uid != no_id)
		m->uid = p->chown_uid;
	if (r->group)
		m->gid = m->set_gid = map_owner_id(p, true, a->gid);
	if (p->chown_gid != no_id)
		m->gid = p->chown_gid;
	/* Only root can change owners. */
	if (p->uid != 0)
		m->uid = no_id;
	if (m->gid != no_id && !may_give_group(p, m->gid))
		m->gid = no_id;
	m->owner_asked = m->uid != no_id;
	m->group_asked = m->gid != no_id;
	if (replaced && !m->owner_asked)
		m->uid = replaced->st_uid;
	if (replaced && !m->group_asked)
		m->gid = replaced->st_gid;
}

/* Of the source, changed as the rules of this end want it. */
static mode_t source_mode(const struct place *p, const struct record_attr *a, bool dir)
{
	return (a->mode & ~(mode_t)MODE) | modes_apply(p->incoming, a->mode & MODE, dir);
}

void place_change_acl(const struct place *p, const struct record_attr *a, bool dir,
		      struct xattrs *x)
{
	if (*p->rules->chmod || p->incoming)
		xattrs_set_mode(x, source_mode(p, a, dir));
}

static void want_mode(struct place *p, const struct record_attr *a, const struct stat *replaced,
		      bool made, struct metadata *m)
{
	m->has_mode = true;
	if (p->rules->perms) {
		m->mode = source_mode(p, a, m->is_dir) & MODE;
	} else if (replaced) {
		m->mode = replaced->st_mode & MODE;
		m->set_uid = replaced->st_uid;
		m->set_gid = replaced->st_gid;
	} else {
		m->mode = source_mode(p, a, m->is_dir) & PERMISSIONS & ~p->umask;
		m->has_mode = made;
	}
	m->keeps_setgid = m->is_dir && !p->rules->perms;
}

void metadata_want(struct place *p, const struct record_attr *a, mode_t type,
		   const struct stat *replaced, bool made, struct metadata *m)
{
	*m = (struct metadata){.is_dir = type == S_IFDIR, .replaced_fd = -1};
	want_owner(p, a, replaced, m);
	if (type != S_IFLNK)
		want_mode(p, a, replaced, made, m);
	m->has_times = p->rules->times || p->rules->atimes;
	m->times[0].tv_sec = a->atime_s;
	m->times[0].tv_nsec = p->rules->atimes ? (long)a->atime_ns : UTIME_OMIT;
	m->times[1].tv_sec = a->mtime_s;
	m->times[1].tv_nsec = p->rules->times ? (long)a->mtime_ns : UTIME_OMIT;
}

mode_t metadata_umask(struct place *p, struct place_dir *d, int fd)
{
	struct place_dir *in = d ? d : p->top;
	unsigned known = atomic_load_explicit(&in->inner_umask, memory_order_relaxed);

	if (known == 0) {
		known = xattrs_umask(fd, p->umask) + 1;
		atomic_store_explicit(&in->inner_umask, known, memory_order_relaxed);
	}
	return known - 1;
}

void metadata_inherit(const struct place_entry *s, const struct record_attr *a, struct metadata *m)
{
	if (m->has_mode && !s->place->rules->perms)
		m->mode = source_mode(s->place, a, m->is_dir) & PERMISSIONS &
			  ~metadata_umask(s->place, s->dir, s->dirfd);
}

void metadata_want_dir(const struct place_dir *d, struct metadata *m)
{
	metadata_want(d->place, &d->a, S_IFDIR, NULL, d->fresh, m);
	if (d->fresh && !d->place->rules->perms)
		m->mode = source_mode(d->place, &d->a, true) & PERMISSIONS & ~d->umask;
}

/* The mode for an entry that has this owner and group, and present_mode until now. */
static mode_t final_mode(const struct metadata *m, uid_t uid, gid_t gid, mode_t present_mode)
{
	mode_t mode = m->mode;

	if (uid != m->set_uid)
		mode &= ~(mode_t)S_ISUID;
	/* On a directory S_ISGID gives nobody any rights. */
	if (gid != m->set_gid || (uid != m->set_uid && !m->is_dir))
		mode &= ~(mode_t)S_ISGID;
	if (m->keeps_setgid)
		mode |= present_mode & S_ISGID;
	return mode;
}

/* ---- comparing ------------------------------------------------------------------------- */

/* Compares times.  A file system that stores whole seconds cuts off the rest of the source's time.
 * It is recognized by the ctime, which no program can set: on others its nanoseconds are not 0. */
static bool same_time(int64_t sec, long nsec, const struct timespec *present, const struct stat *st)
{
	bool whole_seconds = present->tv_nsec == 0 && st->st_ctim.tv_nsec == 0;

	return sec == present->tv_sec && (nsec == present->tv_nsec || whole_seconds);
}

bool metadata_is_newer(const struct record_attr *a, const struct stat *st)
{
	return st->st_mtim.tv_sec > a->mtime_s ||
	       (st->st_mtim.tv_sec == a->mtime_s && st->st_mtim.tv_nsec > (long)a->mtime_ns);
}

bool metadata_same_mtime(const struct record_attr *a, const struct stat *st)
{
	return same_time(a->mtime_s, (long)a->mtime_ns, &st->st_mtim, st);
}

bool metadata_atime_differs(const struct metadata *m, const struct stat *st)
{
	return m->times[0].tv_nsec != UTIME_OMIT &&
	       !same_time(m->times[0].tv_sec, m->times[0].tv_nsec, &st->st_atim, st);
}

void metadata_compare(const struct place *p, const struct metadata *m, const struct stat *st,
		      struct change *c)
{
	uid_t uid = m->uid == no_id ? st->st_uid : m->uid;
	gid_t gid = m->gid == no_id ? st->st_gid : m->gid;
	mode_t mode = final_mode(m, uid, gid, st->st_mode);

	c->owner = m->owner_asked && uid != st->st_uid;
	c->group = m->group_asked && gid != st->st_gid;
	c->perms = m->has_mode && mode != (st->st_mode & MODE);
	c->time = p->rules->times &&
		  !same_time(m->times[1].tv_sec, m->times[1].tv_nsec, &st->st_mtim, st);
	c->now = !p->rules->times;
}

void metadata_compare_xattrs(const struct place *p, int fd, const struct xattrs *x,
			     struct change *c)
{
	const struct rules *r = p->rules;

	if (!metadata_has_xattrs(p))
		return;
	/* Attributes that cannot be read count as different: setting them then succeeds, or reports
	 * why they cannot be read. */
	if (xattrs_differ(fd, x, r, &c->acl, &c->xattr)) {
		c->acl = r->acls;
		c->xattr = r->xattrs || r->xattrs_all;
	}
}

/* ---- setting --------------------------------------------------------------------------- */

const char *metadata_error_text(const struct place *p)
{
	return errno == ENOENT && p->proc < 0 ? "/proc is not mounted" : strerror(errno);
}

/* A call failed with errno.  0: fd was opened with O_PATH, and can be reached below p->proc.  -1
 * with the errno to report. */
static int check_procfs(const struct place *p)
{
	if (errno == EBADF && p->proc < 0)
		errno = p->proc_error;
	else if (errno == EBADF)
		return 0;
	return -1;
}

/* Without /proc, as in a module of rdcpd: since Linux 6.6 there is a call for it; before, only a
 * directory can be opened again. */
static int chmod_without_procfs(const struct place *p, int fd, mode_t mode)
{
	int dir, rc;

	if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOSYS)
		return -1;
	dir = RETRIED(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (dir < 0) {
		errno = p->proc_error;
		return -1;
	}
	rc = fchmod(dir, mode);
	close_fd(dir);
	return rc;
}

int metadata_chmod(const struct place *p, int fd, mode_t mode)
{
	char name[16];

	if (fchmod(fd, mode) == 0)
		return 0;
	if (errno == EBADF && p->proc < 0)
		return chmod_without_procfs(p, fd, mode);
	if (check_procfs(p))
		return -1;
	snprintf(name, sizeof name, "%d", fd);
	return fchmodat(p->proc, name, mode, 0);
}

static int set_times(const struct place *p, int fd, const struct timespec times[2])
{
	char name[16];

	if (futimens(fd, times) == 0)
		return 0;
	/* Since Linux 5.8 this call accepts O_PATH. */
	if (errno == EBADF && utimensat(fd, "", times, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno == EINVAL)
		errno = EBADF;
	if (check_procfs(p))
		return -1;
	snprintf(name, sizeof name, "%d", fd);
	return utimensat(p->proc, name, times, 0);
}

int metadata_touch(const struct place *p, int fd)
{
	struct timespec times[2];
	struct stat st;

	if (fstat(fd, &st))
		return -1;
	times[0] = st.st_atim;
	times[1] = (struct timespec){.tv_nsec = UTIME_OMIT};
	return set_times(p, fd, times);
}

/* Has the file system stored sec as got?  FAT stores even seconds, and whole days of the atime. */
static bool is_stored_second(int64_t sec, int64_t got, bool atime)
{
	uint64_t day = 24 * 60 * 60;

	return got == sec || (sec % 2 != 0 && got == sec - 1) ||
	       (atime && got < sec && (uint64_t)sec - (uint64_t)got < day);
}

/* A file system stores a time that it cannot represent as the nearest one that it can, without an
 * error.  Call for times before 1980 (FAT's first) or from 2038 on; all file systems store others.
 * False if this happened; *failed_second is that time.  True if fd cannot be examined. */
static bool are_times_stored(int fd, const struct timespec times[2], int64_t *failed_second)
{
	struct stat st;

	if (fstat(fd, &st))
		return true;
	for (int i = 0; i < 2; i++) {
		*failed_second = times[i].tv_sec;
		if (times[i].tv_nsec != UTIME_OMIT &&
		    !is_stored_second(times[i].tv_sec,
				      i == 0 ? st.st_atim.tv_sec : st.st_mtim.tv_sec, i == 0))
			return false;
	}
	return true;
}

static bool is_extreme_time(const struct timespec *t)
{
	enum { YEAR_1980 = 315532800 };

	return t->tv_nsec != UTIME_OMIT && (t->tv_sec < YEAR_1980 || t->tv_sec > INT32_MAX);
}

static int set_times_and_check(const struct place *p, int fd, const struct metadata *m,
			       bool symlink, const struct place_entry *s)
{
	char shown[SHOWN_ROOM];
	int64_t sec = 0;

	if (set_times(p, fd, m->times)) {
		if (symlink && (errno == EOPNOTSUPP || errno == ENOSYS))
			return 0;
		return fail("set times of %s: %s", entry_shown(s, shown), metadata_error_text(p));
	}
	if ((is_extreme_time(&m->times[0]) || is_extreme_time(&m->times[1])) &&
	    !are_times_stored(fd, m->times, &sec))
		return fail("set times of %s: its file system cannot store the time %lld",
			    entry_shown(s, shown), (long long)sec);
	return 0;
}

/* Updates *st.  False with the errno of the first call: the owner, or the group as well, could not
 * be set. */
static bool set_owner(int fd, const struct metadata *m, struct stat *st)
{
	uid_t uid = m->uid == st->st_uid ? no_id : m->uid;
	gid_t gid = m->gid == st->st_gid ? no_id : m->gid;

	if (uid == no_id && gid == no_id)
		return true;
	if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH)) {
		int error = errno;

		/* A user may often set the group, but not the owner. */
		if (uid != no_id && gid != no_id &&
		    fchownat(fd, "", no_id, gid, AT_EMPTY_PATH) == 0) {
			st->st_gid = gid;
			st->st_mode &= ~(mode_t)SET_ID;
		}
		errno = error;
		return false;
	}
	if (uid != no_id)
		st->st_uid = uid;
	if (gid != no_id)
		st->st_gid = gid;
	if (!m->is_dir)
		st->st_mode &= ~(mode_t)SET_ID;
	return true;
}

static void warn_not_kept(struct place *p, bool *flag, const struct place_entry *s,
			  const char *what)
{
	char shown[SHOWN_ROOM];

	if (place_set_flag_once(p, flag))
		log_warn("%s: its %s could not be kept", entry_shown(s, shown), what);
}

static int keep_first_failure(struct failure *first, bool *any)
{
	if (!*any)
		*first = *failed();
	*any = true;
	return -1;
}

void metadata_warn_mode_unset(struct place *p, const char *shown)
{
	int err = errno;

	if (place_set_flag_once(p, &p->warned_mode)) {
		errno = err;
		log_warn("%s: its mode could not be set: %m", shown);
	}
}

static int set_mode_or_warn(struct place *p, int fd, mode_t mode, mode_t present_mode,
			    const struct place_entry *s)
{
	char shown[SHOWN_ROOM];

	if (mode == (present_mode & MODE) || metadata_chmod(p, fd, mode) == 0)
		return 0;
	entry_shown(s, shown);
	if (p->rules->perms || (errno != EPERM && errno != EOPNOTSUPP))
		return fail("set mode of %s: %s", shown, metadata_error_text(p));
	/* The file system has no modes, and the user asked for none. */
	metadata_warn_mode_unset(p, shown);
	return 0;
}

/* Fails if the user asked for the owner or group.  One that was only to be preserved gets a
 * warning, once. */
static int fail_owner(struct place *p, const struct metadata *m, const struct stat *st,
		      const struct place_entry *s)
{
	bool owner = m->owner_asked && st->st_uid != m->uid;
	bool group = m->group_asked && st->st_gid != m->gid;
	char shown[SHOWN_ROOM];

	if (owner || group)
		return fail("set %s of %s: %m", owner ? "owner" : "group", entry_shown(s, shown));
	warn_not_kept(p, &p->warned_owner, s, "owner");
	return 0;
}

/* The entry is stored although some metadata is missing.  With --remove-source-files it fails,
 * because the source must not be removed then. */
static int report_unkept(struct place *p, mode_t mode, const struct place_entry *s,
			 const struct failure *why)
{
	char path[EVENT_PATH_MAX];

	if (!p->opts.on_unkept || p->rules->remove_source || why->code != OUT_FILE)
		return fail_again(why);
	place_path(s->dir, s->name, path, sizeof path);
	p->opts.on_unkept(p->opts.ctx, change_event_of(mode), path, why);
	return 0;
}

/* ---- attributes of a replaced file ----------------------------------------------------- */

static bool keep_xattrs(struct place *p, int fd, int old, const struct place_entry *s)
{
	if (xattrs_keep(fd, old))
		return true;
	warn_not_kept(p, &p->warned_xattrs, s, "extended attributes");
	return false;
}

/* ---- setting everything ---------------------------------------------------------------- */

/* Before the owner or group changes, removes the rights that m does not give, so that the new owner
 * or group never has them. */
static void narrow_mode(const struct place *p, int fd, const struct metadata *m, struct stat *st)
{
	mode_t excess = st->st_mode & (S_IRWXG | S_IRWXO) & ~m->mode;
	bool same = (m->uid == no_id || m->uid == st->st_uid) &&
		    (m->gid == no_id || m->gid == st->st_gid);

	if (!same && m->has_mode && excess &&
	    metadata_chmod(p, fd, st->st_mode & MODE & ~excess) == 0)
		st->st_mode &= ~excess;
}

/* Sets x, and what is preserved of a replaced file.  If an ACL could not be set, removes from *mode
 * the rights that it would have denied the group.  *now becomes the stat after that. */
static int set_all_xattrs(struct place *p, int fd, const struct metadata *m, const struct xattrs *x,
			  const struct place_entry *s, mode_t *mode, struct stat *now)
{
	struct failure why;
	char shown[SHOWN_ROOM];
	unsigned group = S_IRWXO;
	int ret = 0;

	if (m->replaced_fd >= 0 && !keep_xattrs(p, fd, m->replaced_fd, s) &&
	    xattrs_group_without_acl(fd, m->replaced_fd, entry_shown(s, shown), &group)) {
		why = *failed();
		ret = -1;
	}
	if (metadata_has_xattrs(p) && xattrs_set(fd, entry_shown(s, shown), x, p->rules)) {
		if (ret == 0)
			why = *failed();
		if (p->rules->acls)
			group &= xattrs_group_without(fd, x);
		ret = -1;
	}
	*mode &= ~(mode_t)S_IRWXG | group << 3;
	if ((m->replaced_fd >= 0 || metadata_has_xattrs(p)) && fstat(fd, now))
		return fail("stat %s: %m", entry_shown(s, shown));
	return ret ? fail_again(&why) : 0;
}

int metadata_set(struct place *p, int fd, const struct stat *st, const struct metadata *m,
		 const struct xattrs *x, const struct place_entry *s)
{
	struct stat now = *st;
	struct failure first;
	bool any = false;
	mode_t mode;

	narrow_mode(p, fd, m, &now);
	if (!set_owner(fd, m, &now) && fail_owner(p, m, &now, s))
		keep_first_failure(&first, &any);
	mode = final_mode(m, now.st_uid, now.st_gid, now.st_mode);
	/* With --acls and without --perms the mode is set before the ACL, which has the last word.
	 */
	if (m->has_mode && p->rules->acls && !p->rules->perms &&
	    set_mode_or_warn(p, fd, mode, now.st_mode, s))
		keep_first_failure(&first, &any);
	if (set_all_xattrs(p, fd, m, x, s, &mode, &now))
		keep_first_failure(&first, &any);
	if (m->has_mode && (!p->rules->acls || p->rules->perms) &&
	    set_mode_or_warn(p, fd, mode, now.st_mode, s))
		keep_first_failure(&first, &any);
	if (m->has_times && set_times_and_check(p, fd, m, S_ISLNK(st->st_mode), s))
		keep_first_failure(&first, &any);
	return any ? report_unkept(p, st->st_mode, s, &first) : 0;
}

/* ---- new directories -------------------------------------------------------------------- */

mode_t metadata_first_mode(const struct place_dir *d)
{
	const struct rules *r = d->place->rules;
	struct metadata m;

	metadata_want(d->place, &d->a, S_IFDIR, NULL, true, &m);
	if (r->perms || r->acls || m.group_asked)
		return S_IRWXU;
	return (source_mode(d->place, &d->a, true) & PERMISSIONS) | S_IRWXU;
}

void metadata_begin_dir(struct place_dir *d, int fd, struct stat *st)
{
	struct metadata m;
	mode_t mode;

	metadata_want_dir(d, &m);
	m.uid = no_id;
	set_owner(fd, &m, st);
	mode = final_mode(&m, st->st_uid, st->st_gid, st->st_mode);
	if (d->place->rules->acls)
		mode &= S_IRWXU;
	d->mode_to_restore = mode;
	d->loosened = (mode & S_IRWXU) != S_IRWXU;
	mode |= S_IRWXU;
	if (mode != (st->st_mode & MODE) && metadata_chmod(d->place, fd, mode) == 0)
		st->st_mode = (st->st_mode & S_IFMT) | mode;
}
