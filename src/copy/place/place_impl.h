/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_IMPL_H
#define COPY_PLACE_PLACE_IMPL_H

/*
 * A place's inside:
 *
 *	place.c            the target as a whole, and which name in it a thing gets
 *	place_resolve.c    names that the user wrote: the only ones that are looked up by a path
 *	place_hold.c       descriptors of directories: held, closed, opened again
 *	place_origin.c     a source that is its own target
 *	place_dir.c        directories: found or made; place_marker.c: what DST becomes
 *	place_file.c       files: begun; place_finish.c: finished or dropped;
 *	place_temporary.c  under which name;
 *	                   place_private.c: may a later run go on with it?
 *	place_room.c       full disks are found out first
 *	place_look.c       what is there, and is it the same?
 *	place_name.c       what is whole gets its name; place_fold.c: is that free?
 *	place_make.c       symlinks, FIFOs, devices; place_link.c: hard links
 *	place_metadata.c   owner, mode, attributes, times: which, and through descriptors
 *	place_backup.c     what is replaced or deleted, out of the way
 *	place_keep.c       what the source has in a directory; place_alias.c: as the directory
 *	                   lists it; place_delete.c: what it has not; place_clear.c: what is in
 *	                   the way
 *	place_complete.c   the end
 */

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include "base/hashes.h"
#include "base/table.h"
#include "copy/names/held_dir.h"
#include "copy/names/own_name.h"
#include "copy/place/place.h"
#include "copy/place/place_resolve.h"
#include "copy/place/place_temporary.h"

enum {
	SHOWN_ROOM = 1024, /* of a name in a message */
};

/* A name in a directory, as a member of a set. */
struct name_key {
	uint64_t dev, ino;
	char name[NAME_MAX];
};
/* Returns its size. */
static inline size_t name_key_set(struct name_key *key, dev_t dev, ino_t ino, const char *name)
{
	size_t len = strnlen(name, sizeof key->name);

	key->dev = dev;
	key->ino = ino;
	memcpy(key->name, name, len);
	return offsetof(struct name_key, name) + len;
}

struct kept;

struct place_dir {
	struct place *place;
	struct place_dir *up; /* what it is in; NULL: the target */
	struct place_dir *next; /* all of them, the last one first: children before parents */
	uint32_t id, want, flags; /* as DIR said, */
	struct record_attr a; /* and this */
	struct held_dir held;
	mode_t was; /* its mode, if loosened */
	mode_t umask; /* of one that is made: its own mode's, */
	_Atomic unsigned inner_umask; /* and that of what is in it, and one; 0: not known */
	bool is_target; /* p->top by its own name: what is below is not used */
	bool fresh; /* made by this run, and seen to be that: what is in it we made */
	bool missing; /* a dry run's: it is not there */
	bool loosened; /* its owner, us, should not have all rights */
	bool yields; /* its attributes don't count: another one is the same directory */
	bool has_temporaries; /* that earlier runs left */
	_Atomic int folds; /* place_fold.c */
	struct xattrs *xattrs;
	struct kept *kept;
	struct taken *led; /* --delete: names that an implied one leads to, the lock; or NULL */
	atomic_bool unswept; /* and has_temporaries is not known */
	atomic_bool born_known; /* whose a new file in it is: */
	uid_t born_uid;
	gid_t born_gid;

	char name[];
};

/* Directories in which --backup-dir is, or it itself: none of them is deleted. */
struct lineage {
	size_t count;
	struct inode {
		dev_t dev;
		ino_t ino;
	} of[64];
};

struct place {
	struct place_opts o;
	const struct rules *rules;
	struct spot spot;
	const char *suffix;
	mode_t umask;
	uid_t uid; /* whom we are */
	struct timespec started;
	gid_t *groups;
	int group_count;
	uid_t chown_uid; /* --chown; (uid_t)-1: not said */
	gid_t chown_gid;
	int proc; /* /proc/self/fd, or -1 for this errno: */
	int proc_error;

	_Atomic dev_t silent_dev; /* where a close tells of no failure; 0: not known */
	_Atomic int own_group; /* place_private.c */
	atomic_bool all_named; /* there are no files without a name here */
	_Atomic uint64_t deleted; /* at most rules->max_delete: */
	atomic_bool too_many; /* there was more */

	pthread_mutex_t settling; /* of the target's becoming a directory, and of: */
	char marker[OWN_NAME_ROOM]; /* "": none to be removed */
	pthread_mutex_t backing;
	int backups; /* --backup-dir, when it is open */
	pthread_mutex_t sweeping;

	struct held_dirs held; /* descriptors of directories */
	pthread_mutex_t lock; /* of all below */
	bool is_dir; /* the target is a directory, top */
	struct place_dir *top; /* never closed */
	struct place_dir *dirs;
	struct table created; /* by name */
	struct table linked; /* by id */
	struct taken claimed; /* --delete: names that sources get in the target itself */
	struct hashes origins; /* --delete, --backup: of sources that were named */
	struct hashes taken; /* what the source has under names of backups */
	struct hashes folded, unfolded; /* names in directories that were there and fold them */
	bool told_owner, told_mode, told_xattrs, told_kept;
	bool completed;
};

/* ---- place.c --------------------------------------------------------------------------- */

/* A name in a held directory: where one thing goes. */
struct seat {
	struct place *place;
	struct place_dir *in; /* NULL: the target */
	int dirfd; /* until seat_close(); -1: there is no such directory (dry run) */
	const char *name; /* r->name, or that of the target */
};
/* name is about to be used in the target itself: -1 if a session with another host brought it. */
int place_claim(struct place *p, const char *name);
/* One of several comes, so that DST has to be a directory; --mkpath makes it. */
int place_need_dir(struct place *p);
int seat_open(struct place *p, struct place_dir *d, const struct record_file *r, struct seat *out);
void seat_close(struct seat *s);
/* How people call it: returns to. Keeps errno. */
const char *seat_shown(const struct seat *s, char to[static SHOWN_ROOM]);
/* "WHAT NAME: ERRNO", as a failure. */
int seat_fail(const struct seat *s, const char *what);
/* What is there: 1, 0 when nothing is, -1 with a failure. */
int seat_look(const struct seat *s, struct stat *st);
/* -1: this run has put another file (id) of that name at the target already. */
int place_create_once(const struct seat *s, uint32_t id);
/* Is it the first time? Every flag of a place turns once. */
bool place_set_flag_once(struct place *p, bool *flag);
bool place_stopped(const struct place *p);
/* Does close never fail on the file system of fd, which is dev? */
bool place_closes_silently(struct place *p, int fd, dev_t dev);
/* place_path() as long as it is; NULL: no memory, with a failure. */
char *place_whole_path(const struct place_dir *d);

/* ---- place_hold.c ---------------------------------------------------------------------- */

/* name "" allocates one without. */
struct place_dir *dir_new(struct place *p, struct place_dir *up, const char *name);
/* Before any is added. */
void dirs_init(struct place *p);
/* It is open now, by fd, and known; held.dev and held.ino are set. */
void dir_add(struct place_dir *d, int fd);
/* Its descriptor, until dir_release(); -1 with a failure. */
int dir_use(struct place_dir *d);
void dir_release(struct place_dir *d);
/* Open a directory to be read, or with O_PATH where that is not allowed; -1 with errno. */
int dir_open(int in, const char *name, struct stat *st);
/* For its entries: the caller's own descriptor; -1 with errno. */
int dir_reopen(int fd);
void dirs_free(struct place *p);

/* ---- place_dir.c, place_marker.c ------------------------------------------------------- */

/* Before anything is put under a temporary name: remove what runs left that are no more, once for
 * each directory that was there. */
void seat_sweep(const struct seat *s);
/* What the new file fd in it is, which was opened with this mode.  In a directory of our own, of
 * which nobody else makes anything yet, new files are all alike: then its size and inode are not
 * told, and *known is true. */
int seat_stat_new(const struct seat *s, int fd, mode_t mode, struct stat *st, bool *known);
/* What is there is as it should be: nothing that earlier runs left of it is needed. */
void seat_forget_leftovers(const struct seat *s);
/* Fill in: the name of want's marker. */
void marker_name(const struct place *p, uint32_t want, const char *name,
		 char to[static OWN_NAME_ROOM]);
bool marker_is_in(const struct place *p, int fd, const char *marker);
/* Make the directory name with the marker in it: its descriptor; -1 with errno: EEXIST when there
 * is something now. */
int marker_make_dir(struct place *p, int in, const char *name, const char *marker, mode_t mode);

/* ---- place_private.c ------------------------------------------------------------------- */

/* Is that directory ours, and can nobody else put, rename or remove anything in it? */
bool place_is_private(struct place *p, int dirfd);

/* ---- place_metadata.c ------------------------------------------------------------------ */

/* What a thing is to have. */
struct metadata {
	uid_t uid; /* (uid_t)-1: as it is */
	gid_t gid;
	bool owner_asked, group_asked; /* not only kept */
	bool has_mode, inherits; /* a directory's set-group-id */
	mode_t mode; /* set-id bits only if in the end these are its owner and group: */
	uid_t set_uid;
	gid_t set_gid;
	bool has_times;
	struct timespec times[2];
	bool dir;
	int keep; /* a file of which it keeps the attributes, where permitted; -1: of none */
};
/* type: S_IFREG etc.  replaced: a regular file that it takes the place of, NULL: none.
 * made: there is none yet. */
void metadata_want(struct place *p, const struct record_attr *a, mode_t type,
		   const struct stat *replaced, bool made, struct metadata *out);
/* The same of d. */
void metadata_want_dir(const struct place_dir *d, struct metadata *out);
/* With what mode d is made, so that nobody has more rights to it than he will have. */
mode_t metadata_first_mode(const struct place_dir *d);
/*
 * Then, as fd, when it is empty and ours: group and mode, as they stay if the run is killed.  Set
 * in the end only (metadata_set): its times; another owner, who could change what is in it
 * meanwhile; a mode without all rights for us (d->loosened, d->was); what an ACL gives to others
 * than its owner.  Failures are told then, too.
 */
void metadata_begin_dir(struct place_dir *d, int fd, struct stat *st);
/* There is none yet: its mode is what the default ACL or the umask leaves. */
void metadata_inherit(const struct seat *s, const struct record_attr *a, struct metadata *m);
/* What they take away of modes of what is made in d (NULL: the target), which is fd. */
mode_t metadata_umask(struct place *p, struct place_dir *d, int fd);
/* What of that is different from st. */
void metadata_compare(const struct place *p, const struct metadata *m, const struct stat *st,
		      struct change *c);
/* Also its attributes, if fd is what x should be of.  Unreadable ones differ. */
void metadata_compare_xattrs(const struct place *p, int fd, const struct xattrs *x,
			     struct change *c);
/* Give fd (its stat is st) these, and attributes of the kinds that rules ask for: x's, NULL none.
 * fd may be one of O_PATH; name is for messages.  The rest is done although something fails; the
 * first failure goes to on_unkept(), or, without that, is returned with -1. */
int metadata_set(struct place *p, int fd, const struct stat *st, const struct metadata *m,
		 const struct xattrs *x, const struct seat *name);
bool metadata_same_mtime(const struct record_attr *a, const struct stat *st);
/* Is what is there newer than what comes? */
bool metadata_is_newer(const struct record_attr *a, const struct stat *st);
/* Never told as a change. */
bool metadata_atime_differs(const struct metadata *m, const struct stat *st);
int metadata_chmod(const struct place *p, int fd, mode_t mode);
/* A mode that nobody asked for could not be set, with errno: one warning. */
void metadata_warn_mode_unset(struct place *p, const char *shown);
/* What errno says of a mode or of times; of a descriptor of O_PATH, that /proc is missing. */
const char *metadata_error_text(const struct place *p);
/* Turn its ctime and nothing else, so that a source that is this very thing is known by that: fd
 * may be one of O_PATH.  -1 with errno. */
int metadata_touch(const struct place *p, int fd);
static inline bool metadata_has_xattrs(const struct place *p)
{
	return p->rules->acls || p->rules->xattrs || p->rules->xattrs_all;
}

/* ---- place_file.c --------------------------------------------------------------------- */

enum placement_how {
	BY_RENAME, /* a temporary that takes the name in the end */
	IN_PLACE, /* a regular file, written as it is */
	AS_IT_IS, /* a device, a FIFO, somebody's descriptor: nothing but written */
};

struct placement {
	struct seat seat; /* its name is file.name, or the target's */
	enum placement_how how;
	int fd;
	bool created; /* in place: was not there */
	bool whole; /* all its bytes are at hand */
	bool known; /* tmp.st is what it is, but for size and inode */
	bool there; /* something has its name: */
	struct stat old;
	struct temporary tmp; /* fd: the same */
	struct xattrs *xattrs;
	char *shown; /* NULL: not asked for */
	uint64_t reach; /* placement_set_reach() */
	bool full;
	struct record_file file; /* what the source said of it */
};
void placement_free(struct placement *t);

/* ---- place_clone.c --------------------------------------------------------------------- */

/* Could files there share on the disk what `from' has?  Found out by one without a name, so that
 * nothing that an earlier run left is lost. */
bool seat_can_share(const struct seat *s, int from, struct clones *clones);

/* ---- place_room.c ---------------------------------------------------------------------- */

/*
 * Take room for so many bytes, so that a full disk is found out at the start where the file system
 * can tell, by its own fallocate: the C library's would write.  On tmpfs it would clear every page
 * before it is written, and on btrfs what was allocated so is never compressed: these are asked
 * only.
 */
int room_reserve(const struct seat *s, int fd, uint64_t size);

/* ---- place_look.c ---------------------------------------------------------------------- */

/* What is there (st, of which the type must stay) is right but for metadata: make that so too,
 * unless this is a dry run. *c has what differs, as far as it has. */
int place_mend(const struct seat *s, const struct record_attr *a, struct stat *st,
	       const struct xattrs *x, struct change *c);

/* ---- place_backup.c -------------------------------------------------------------------- */

/* Is a backup made of what is replaced? */
static inline bool place_backs_up(const struct place *p)
{
	return p->rules->backup;
}
/* Put what is called name in dirfd (no directory) aside; dir: that directory's path from the top.
 * moved: it must be gone then; else it stays for what is renamed over it, where the file system
 * has hard links. Nothing there: nothing done. */
int backup_make(struct place *p, int dirfd, const char *name, const char *dir, bool moved);
/* The same, of a seat's. */
int backup_make_of_seat(const struct seat *s, bool moved);
/* The source has that name, if it is one of a backup: none takes it, but one more suffix. */
int backup_spare(struct place *p, int dirfd, const char *name);
/* Find the directories that lead to --backup-dir, before anything is deleted. */
void backup_lineage(struct place *p, struct lineage *l);
/* Is that directory one of them? */
bool backup_is_in(const struct lineage *l, const struct stat *st);
/* Is name one of a backup, next to what it is one of? */
bool backup_is(const struct place *p, const char *name);

/* ---- place_name.c ---------------------------------------------------------------------- */

/*
 * What was made under the name `as' takes s's name: what is there (old; NULL: nothing) is backed up
 * first where that is asked for, and a directory in the way removed if clears.  0; 1: `as' is
 * gone, with errno; -1.
 */
int seat_rename(const struct seat *s, const char *as, const struct stat *old, bool clears);
/* The same of a file, which may have no name yet: 0, -1. */
int seat_take_name(const struct seat *s, struct temporary *t, const struct stat *old);

/* ---- place_fold.c ---------------------------------------------------------------------- */

/* The source has that name in d (p->top: the target), which may have been there: -1, with a
 * failure, if it has another one that the file system takes for the same. */
int place_check_name(struct place *p, struct place_dir *d, int dirfd, const char *name);
/* What is there has another name, of which the file system takes this one for. */
bool name_is_folded(int dirfd, const char *name, char other[static NAME_MAX + 1]);
/* Something has s's name, in a directory that is new, or since nothing had it: -1, with a failure,
 * if it is another name's. */
int seat_check_folding(const struct seat *s);
/* The same of what is there (old) and will be replaced: only what this run may have put there.
 * Both keep errno where they return 0. */
int seat_check_replacing(const struct seat *s, const struct stat *old);

/* A name other than "" leads to something in it, and may be one that it is not listed under. */
bool name_may_fold(int dirfd, const char *name);

/* ---- place_alias.c --------------------------------------------------------------------- */

/* Call alias for each name under which the directory lists what is found by one of these names, and
 * that is not listed under it; names get sorted.  Returns an errno; ENOMEM: alias returned -1. */
int aliases_find(int dirfd, struct taken *names, int (*alias)(void *ctx, const char *name),
		 void *ctx);

/* ---- place_link.c ---------------------------------------------------------------------- */

void linked_begin(struct place *p);
/* What was put there is of r, which gets more names (or does not: then nothing). */
int linked_remember(const struct seat *s, const struct record_file *r, const struct stat *st);
int place_make_link(const struct seat *s, const struct record_file *r, struct change *change);

/* ---- place_origin.c -------------------------------------------------------------------- */

/* Is that one of the sources themselves, which are on this host then? */
bool place_is_source(struct place *p, const struct stat *st);

/* ---- place_keep.c, place_delete.c, place_clear.c --------------------------------------- */

void kept_free(struct kept *k);
/* Have all names that the source has come, and is there something that it has not? unlisted: an
 * errno, what is there could not be read. */
/* --delete: d leads to this name, which another source may not have in the same directory. */
int dir_note_led(struct place_dir *d, const char *name);
bool dir_only_leads(const struct place_dir *d);
void led_free(struct taken *led);
bool kept_has_left(const struct kept *k, int *unlisted);
/* Has the source of d neither this name, nor another source below it? */
bool dir_has_left(const struct place_dir *d, const char *name);
/* Before that is asked of the directory that all of these are: as what it lists what they lead to.
 * Returns an errno. */
int dirs_keep_aliases(struct place_dir *const *same, size_t count, int dirfd);

/* A directory in the way of something else: remove it, if it is empty or with rules->delete. */
int delete_in_the_way(const struct seat *s);
/* Would that work, as it looks?  A dry run tells what would be deleted. */
int delete_check_in_the_way(const struct seat *s);
/* Name in dirfd is to be a backup: what an earlier run set aside there goes, whatever it is.  dir:
 * the path to it. */
int delete_old_backup(struct place *p, int dirfd, const char *dir, const char *name);
/* The directory name in dirfd with all that is in it; dir: the path of what it is in, from the
 * top.  0; 1: something stays; -1. */
struct tree_removal {
	bool rehearsed; /* nothing is done, */
	bool silent; /* nor told, nor counted */
	bool backs_up; /* files go below --backup-dir */
	uint64_t count; /* out: of a silent one */
	uint64_t allowed; /* counted beforehand; out: what of these was not used */
	bool too_many; /* out: for rules->max_delete */
};
int delete_tree(struct place *p, int dirfd, const char *dir, const char *name,
		struct tree_removal *r);
/* Delete what is left in the directory that all of these (count of them) are. */
void delete_left(struct place_dir *const *same, size_t count, struct place_end *e);

#endif
