/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_IMPL_H
#define COPY_PLACE_PLACE_IMPL_H

/*
 * Private header of the place:
 *
 *	place.c               the target as a whole, paths in it, and the names that are used up
 *	place_dst.c           names that the user wrote: the only ones looked up by a path
 *	place_hold.c          descriptors of directories: held, closed, opened again
 *	place_origin.c        a source that is its own target
 *	place_dir.c           finds or makes directories; place_marker.c: what DST becomes
 *	place_file.c          begins files; place_finish_file.c: finishes or drops them
 *	place_temporary.c     the names of temporaries
 *	place_private.c       whether a later run may take one over
 *	place_room.c          detects full disks early
 *	place_clone.c         reflinks
 *	place_look.c          what exists, and whether it is the same
 *	place_entry.c         one name in a directory; gives a whole file its name
 *	place_fold.c          names that fold to one
 *	place_other.c         symlinks, FIFOs, devices; place_link.c: hard links
 *	place_metadata.c      owner, mode, attributes, times: which, and how they are set
 *	place_backup.c        backs up what is replaced or deleted
 *	place_backup_dir.c    what --backup-dir must not overlap
 *	place_keep.c          the names that the source has in a directory; place_alias.c: as the
 *	                      directory lists them
 *	place_delete.c        deletes the others; place_clear.c: directories in the way
 *	place_sharing.c       names of the target that are one inode
 *	place_rights.c        what deletions need
 *	place_finish_run.c    the end of a run: deletions, metadata of directories
 */

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include "base/hash_set.h"
#include "base/table.h"
#include "copy/names/held_dir.h"
#include "copy/names/own_name.h"
#include "copy/place/place.h"
#include "copy/place/place_dst.h"
#include "copy/place/place_temporary.h"

/* A name in a directory, as a key of a hash set. */
struct name_key {
	uint64_t dev, ino;
	char name[NAME_MAX];
};
/* Returns the size of the key. */
static inline size_t name_key_set(struct name_key *key, dev_t dev, ino_t ino, const char *name)
{
	size_t len = strnlen(name, sizeof key->name);

	key->dev = dev;
	key->ino = ino;
	memcpy(key->name, name, len);
	return offsetof(struct name_key, name) + len;
}

/* Of a name in the directory dirfd. */
size_t name_key_fill(int dirfd, const char *name, struct name_key *key);

struct inode {
	dev_t dev;
	ino_t ino;
};

struct kept;

struct place_dir {
	struct place *place;
	struct place_dir *up; /* the parent; NULL: the target */
	struct place_dir *next; /* all directories, the last one first: children before parents */
	struct place_dir *next_target;
	uint32_t id, flags; /* from DIR */
	struct record_attr a; /* from DIR */
	struct held_dir held;
	mode_t mode_to_restore; /* if loosened: set again at the end */
	mode_t umask; /* the umask for its own mode, if it is new */
	_Atomic unsigned inner_umask; /* 1 + the umask for new things in it; 0: not known yet */
	bool is_target; /* this is p->top under its own name: p->top's descriptor is used */
	bool fresh; /* made by this run, and verified to be that: everything in it is ours */
	bool missing; /* dry run: it does not exist */
	bool loosened; /* we are the owner, and gave ourselves rights that we shall not keep */
	bool superseded; /* another place_dir of the same directory has its final attributes */
	bool has_temporaries; /* left by earlier runs */
	bool unread; /* the source could not read its attributes: its metadata stays as it is */
	unsigned order; /* how many were added before it */
	_Atomic int folds; /* do names in it fold?  An enum of place_fold.c */
	struct xattrs *xattrs;
	struct kept *kept;
	/* --delete, under the lock: names that sources have in an implied directory; or NULL */
	struct taken *source_names;
	atomic_bool unswept; /* it was not swept yet, and has_temporaries is not known */
	atomic_bool new_file_owner_known;
	uid_t new_file_uid; /* the owner that the file system gives new files in it */
	gid_t new_file_gid;
	char name[];
};

/* The directories that lead to --backup-dir, and it.  None of them is deleted. */
struct lineage {
	size_t count;
	struct inode dirs[64];
};

struct place {
	struct place_opts opts;
	const struct rules *rules;
	struct modes *incoming; /* of rules->incoming_chmod, or NULL */
	struct dst dst;
	const char *suffix;
	const char *backup_dir; /* "": backups are beside their originals */
	mode_t umask;
	uid_t uid; /* our effective uid */
	struct timespec started;
	gid_t *groups;
	int group_count;
	uid_t chown_uid; /* --chown; (uid_t)-1: not given */
	gid_t chown_gid;
	int proc; /* /proc/self/fd; -1: not available, see proc_error */
	int proc_error;

	/* device of a file system on which close(2) never fails; 0: none known */
	_Atomic dev_t safe_close_dev;
	_Atomic int own_group; /* is our group ours alone?  An enum of place_private.c */
	atomic_bool no_nameless_files; /* the file system does not support them */
	_Atomic uint64_t deleted; /* how many were deleted; at most rules->max_delete */
	atomic_bool too_many; /* rules->max_delete left some */

	/* held while the target becomes a directory; protects marker */
	pthread_mutex_t target_lock;
	char marker[OWN_NAME_ROOM]; /* "": there is none to remove */
	pthread_mutex_t backups_lock;
	int backups_fd; /* --backup-dir; -1: not open yet */
	struct origin *backups_above; /* with backups_fd: it, and all directories above it */
	size_t backups_above_count, backups_above_room;
	pthread_mutex_t sweep_lock;

	struct held_dirs held; /* descriptors of directories */
	pthread_mutex_t lock; /* protects everything below */
	bool is_dir; /* the target is a directory: top */
	struct place_dir *top; /* its descriptor is never closed */
	struct place_dir *dirs;
	unsigned dir_count;
	struct table created; /* by name */
	struct table linked; /* by id */
	atomic_bool completes_move; /* FILE_MOVED, DIR_MOVED */
	struct table shared_inodes; /* place_sharing.c */
	struct taken claimed; /* --delete: names that sources have in the target itself */
	struct hash_set origins; /* --delete, --backup: of the sources that the user named */
	struct hash_set backup_lookalikes; /* names of the source that look like names of backups */
	struct hash_set backups_made; /* names of backups of this run that another one could get */
	struct inode backups_inode; /* of --backup-dir; all zeros: it does not exist yet */
	struct hash_set target_dirs; /* inodes of the directories that files go to */
	struct place_dir *targets; /* those with is_target and a name, by next_target */
	/* names of the source in directories that existed before and fold names: in lower case, and
	 * as they are */
	struct hash_set folded_names, exact_names;
	bool warned_owner, warned_mode, warned_xattrs, warned_partial;
	bool completed;
};

/* ---- place.c --------------------------------------------------------------------------- */

/* Call before name is used in the target itself.  -1: a session with another host has used it. */
int place_claim(struct place *p, const char *name);
/* One of several sources has arrived, so DST must be a directory.  Makes it with --mkpath. */
int place_need_dir(struct place *p);
struct place_entry;
/* -1: this run has already put another file (another id) under that name into the target. */
int place_create_once(const struct place_entry *s, uint32_t id);
/* Sets *flag.  True for the first caller. */
bool place_set_flag_once(struct place *p, bool *flag);
bool place_stopped(const struct place *p);
/* Is close(2) known never to fail on the file system of fd, which is dev? */
bool place_close_never_fails(struct place *p, int fd, dev_t dev);
/* place_path() without a limit; the caller frees it.  NULL: out of memory, with a failure. */
char *place_whole_path(const struct place_dir *d);

/* ---- place_entry.c --------------------------------------------------------------------- */

/* A name in a held directory, which something has or is to get. */
struct place_entry {
	struct place *place;
	struct place_dir *dir; /* NULL: the target */
	int dirfd; /* valid until entry_close(); -1: the directory does not exist (dry run) */
	const char *name; /* r->name, or the name of the target */
};
int entry_open(struct place *p, struct place_dir *d, const struct record_file *r,
	       struct place_entry *out);
void entry_close(struct place_entry *s);
/* The path for messages, written to `to', which it returns.  Preserves errno. */
const char *entry_shown(const struct place_entry *s, char to[static SHOWN_ROOM]);
/* Fails with "WHAT NAME: ERRNO". */
int entry_fail(const struct place_entry *s, const char *what);
/* place_whole_path() of the directory of s. NULL: out of memory, with a failure that names s. */
char *entry_whole_dir(const struct place_entry *s);
/* With --fsync: fsyncs the directory that holds the name. */
int entry_sync_dir(const struct place_entry *s);
/* 1: something exists, and st is set; 0: nothing exists; -1 with a failure. */
int entry_look(const struct place_entry *s, struct stat *st);
/* Call before a temporary is made: removes temporaries of runs that have ended, once for each
 * directory that existed before. */
void entry_sweep(const struct place_entry *s);
/* Stats fd, a new file in the entry that was opened with this mode.  In a directory that this run
 * made all new files are alike.  Then *predicted is true, and size and inode of st are not set. */
int entry_stat_new(const struct place_entry *s, int fd, mode_t mode, struct stat *st,
		   bool *predicted);
/* What exists under the entry's name is as it should be: removes what earlier runs left of it. */
void entry_forget_leftovers(const struct place_entry *s);
/*
 * Renames `as' to s's name.  First backs up what exists there (old; NULL: nothing) if asked to, and
 * with clears removes a directory in the way.  0; 1: `as' no longer exists, with errno; -1.
 */
int entry_rename(const struct place_entry *s, const char *as, const struct stat *old, bool clears);
/* Gives t the name of s; t may be nameless.  0, -1. */
int entry_take_name(const struct place_entry *s, struct temporary *t, const struct stat *old);

/* ---- place_hold.c ---------------------------------------------------------------------- */

/* Allocates a directory; name may be "". */
struct place_dir *dir_new(struct place *p, struct place_dir *up, const char *name);
/* Call before any is added. */
void dirs_init(struct place *p);
/* d is open as fd; adds it to the list.  held.dev and held.ino are set already. */
void dir_add(struct place_dir *d, int fd);
/* The descriptor of d, valid until dir_release(); -1 with a failure. */
int dir_use(struct place_dir *d);
void dir_release(struct place_dir *d);
/* Opens a directory for reading, or with O_PATH where reading is not allowed.  -1 with errno. */
int dir_open(int in, const char *name, struct stat *st);
/* Opens the directory fd again, to list it.  The caller owns the result.  -1 with errno. */
int dir_reopen(int fd);
/* fsyncs the directory fd, which may be open with O_PATH.  -1 with errno. */
int dir_sync(int fd);
/* The same for the whole file system that the directory is on. */
int dir_sync_all(int fd);
void dirs_free(struct place *p);

/* ---- place_marker.c -------------------------------------------------------------------- */

/* The name of the marker of this want. */
void marker_name(const struct place *p, uint32_t want, const char *name,
		 char to[static OWN_NAME_ROOM]);
bool marker_is_in(const struct place *p, int fd, const char *marker);
/* Makes the directory name with the marker in it.  Returns its descriptor; -1 with errno, EEXIST if
 * something has that name by now. */
int marker_make_dir(struct place *p, int parent, const char *name, const char *marker, mode_t mode);

/* ---- place_private.c ------------------------------------------------------------------- */

/* Is that directory ours, and can no other user put, rename or remove anything in it? */
bool place_is_private(struct place *p, int dirfd);

/* ---- place_metadata.c ------------------------------------------------------------------ */

/* The metadata that a thing is to get. */
struct metadata {
	uid_t uid; /* (uid_t)-1: unchanged */
	gid_t gid;
	bool owner_asked, group_asked; /* asked for by the user, not only preserved */
	bool has_mode, keeps_setgid;
	mode_t mode; /* set-id bits only apply if set_uid and set_gid become the owner */
	uid_t set_uid;
	gid_t set_gid;
	bool has_times;
	struct timespec times[2];
	bool is_dir;
	/* -1: none; the attributes of this file are preserved where permitted */
	int replaced_fd;
};
/* type: S_IFREG etc.  replaced: the regular file that it replaces; NULL: none.  made: it is new. */
void metadata_want(struct place *p, const struct record_attr *a, mode_t type,
		   const struct stat *replaced, bool made, struct metadata *out);
/* As metadata_want(), for d. */
void metadata_want_dir(const struct place_dir *d, struct metadata *out);
/* The mode that d is made with, so that no user ever has more rights to it than he will keep. */
mode_t metadata_first_mode(const struct place_dir *d);
/*
 * Sets group and mode of the new, empty directory fd, which is ours, as they remain if the run is
 * killed.  Leaves to metadata_set() at the end: its times; another owner, who could change the
 * contents meanwhile; a mode that denies us rights (d->loosened, d->mode_to_restore); rights that
 * an ACL gives to others than the owner.  Failures are reported then, too.
 */
void metadata_begin_dir(struct place_dir *d, int fd, struct stat *st);
/* For something new: the default ACL or the umask limits its mode. */
void metadata_inherit(const struct place_entry *s, const struct record_attr *a, struct metadata *m);
/* The umask for new things in d (NULL: the target), which is open as fd. */
mode_t metadata_umask(struct place *p, struct place_dir *d, int fd);
/* Sets the fields of c for which m differs from st. */
void metadata_compare(const struct place *p, const struct metadata *m, const struct stat *st,
		      struct change *c);
/* Compares the attributes of fd with x.  Unreadable ones count as different. */
void metadata_compare_xattrs(const struct place *p, int fd, const struct xattrs *x,
			     struct change *c);
/* Sets the metadata m of fd (st: its present stat), and attributes of the kinds that the rules ask
 * for: x, or none if NULL.  fd may be opened with O_PATH; name is for messages.  Continues after a
 * failure.  Reports the first failure to on_unkept(), or returns it with -1 if there is no
 * on_unkept(). */
int metadata_set(struct place *p, int fd, const struct stat *st, const struct metadata *m,
		 const struct xattrs *x, const struct place_entry *name);
/* Has the existing file (st) the mtime of a, as precisely as its file system stores times? */
bool metadata_same_mtime(const struct record_attr *a, const struct stat *st);
/* Has the existing file (st) a later mtime than a? */
bool metadata_is_newer(const struct record_attr *a, const struct stat *st);
/* Is not reported as a change. */
bool metadata_atime_differs(const struct metadata *m, const struct stat *st);
int metadata_chmod(const struct place *p, int fd, mode_t mode);
/* A mode that the user did not ask for could not be set, with errno: warns, once. */
void metadata_warn_mode_unset(struct place *p, const char *shown);
/* The text of errno after setting a mode or times.  For a descriptor opened with O_PATH it may be
 * that /proc is not mounted. */
const char *metadata_error_text(const struct place *p);
/* Changes the ctime and nothing else, so that a source that shares this inode can be detected.  fd
 * may be opened with O_PATH.  -1 with errno. */
int metadata_touch(const struct place *p, int fd);
static inline bool metadata_has_xattrs(const struct place *p)
{
	return p->rules->acls || p->rules->xattrs || p->rules->xattrs_all;
}

/* ---- place_file.c --------------------------------------------------------------------- */

enum placement_method {
	BY_RENAME, /* a temporary, renamed at the end */
	IN_PLACE, /* a regular file, written in place */
	AS_IS, /* a device, a FIFO, another process's file: written, nothing else is set */
};

struct placement {
	struct place_entry entry; /* its name is file.name, or the target's */
	enum placement_method method;
	int fd;
	bool created; /* in place: it did not exist */
	bool whole; /* all its bytes are in memory */
	bool st_predicted; /* tmp.st is right, except for size and inode */
	bool exists; /* something exists under its name: old */
	struct stat old;
	struct temporary tmp; /* tmp.fd equals fd */
	struct xattrs *xattrs;
	char *shown; /* made when first asked for; else NULL */
	uint64_t reach; /* from placement_set_reach() */
	bool full;
	struct record_file file; /* as the source announced it */
};
void placement_free(struct placement *t);

/* ---- place_clone.c --------------------------------------------------------------------- */

/* Can files in s's directory share disk blocks with `from'?  Tries it on a nameless file, so that
 * nothing that an earlier run left is lost. */
bool entry_can_share(const struct place_entry *s, int from, struct clones *clones);

/* ---- place_room.c ---------------------------------------------------------------------- */

/*
 * Reserves size bytes, to detect a full disk at the start, if the file system supports it.  Calls
 * the kernel's fallocate, because the C library's would write.  On tmpfs and btrfs only asks for
 * the free space: on tmpfs fallocate clears every page before it is written, and on btrfs allocated
 * extents are never compressed.
 */
int room_reserve(const struct place_entry *s, int fd, uint64_t size);
/* Nothing is made below a floor (copy/io/floor.h).  Returns 0, or -1 with a failure. */
int room_check(const struct place_entry *s);

/* ---- place_look.c ---------------------------------------------------------------------- */

/* What exists (st, whose type must not change) is right except for its metadata: sets that too,
 * unless this is a dry run.  *c gets the differences found so far. */
int place_mend(const struct place_entry *s, const struct record_attr *a, struct stat *st,
	       const struct xattrs *x, struct change *c);

/* ---- place_sharing.c ------------------------------------------------------------------- */

void sharing_begin(struct place *p);
void sharing_end(struct place *p);
/* With --inplace: may what exists under this name (st) count as the same, if it is?  Then it is not
 * written any more under another name. */
bool sharing_keep(const struct place_entry *s, const struct stat *st);
/* May it be written in place?  Then it counts as the same under no other name. */
bool sharing_write(const struct place_entry *s, const struct stat *st);

/* ---- place_backup.c -------------------------------------------------------------------- */

/* Is what is replaced backed up? */
static inline bool place_backs_up(const struct place *p)
{
	return p->rules->backup;
}
/* Backs up name in dirfd, which must not be a directory unless moved.  dir: the path of dirfd from
 * the top.  moved: the name must be free afterwards; else the file stays until something is renamed
 * over it, where the file system has hard links.  Does nothing if the name does not exist. */
int backup_make(struct place *p, int dirfd, const char *name, const char *dir, bool moved);
/* As backup_make(), for the name of an entry. */
int backup_make_of_entry(const struct place_entry *s, bool moved);
/* Has the file `as', which is to replace the entry's (old), the same bytes?  An interrupted run may
 * have stored it.  A backup of it would replace the backup of the content before that. */
bool backup_is_needless(const struct place_entry *s, const char *as, const struct stat *old);
/* The source has this name.  If it looks like a backup's, backups get one more suffix instead.
 * place_check_origin() calls it before the file that the backup is of is stored. */
int backup_spare(struct place *p, int dirfd, const char *name);
/* Finds the directories that lead to --backup-dir, to delete what is in `of'.  Call before anything
 * is deleted.  -1, with a failure: nothing may be deleted, because it could be one of them. */
int backup_lineage(struct place *p, const char *of, struct lineage *l);
/* Is that directory one of l? */
bool backup_is_in(const struct lineage *l, const struct stat *st);
/* Is name that of a backup beside its original? */
bool backup_is(const struct place *p, const char *name);

/* ---- place_backup_dir.c ---------------------------------------------------------------- */

/* Call when the target is resolved.  -1: --backup-dir is the target, and without a suffix a backup
 * would have the name of its original.  With a suffix backups are beside their originals then. */
int backup_dir_begin(struct place *p);
/* name in dirfd is a name of the source.  -1, with a failure, if --backup-dir has it, which need
 * not exist yet. */
int backup_dir_check_name(struct place *p, int dirfd, const char *name);
/* Files of the source go to the directory st, which has that name.  -1, with a failure, if it is
 * --backup-dir. */
int backup_dir_add_target(struct place *p, const char *name, const struct stat *st);
/* Do files of the source go to the directory st? */
bool place_fills_dir(struct place *p, const struct stat *st);
/* The descriptor of --backup-dir, for a backup of the file `of'; it is made if it is missing.  -1,
 * with a failure, if it is a directory that files go to, or is in a source. */
int backup_dir_open(struct place *p, const char *of);
/* A backup of the file `of' goes to the directory fd, name below --backup-dir.  -1, with a failure,
 * if files of the source go there too, or if it is a source. */
int backup_dir_check_entered(struct place *p, int fd, const char *name, const char *of);
/* A backup is to replace what st describes.  -1, with a failure, if that is a source, or a
 * directory that files of the source go to. */
int backup_dir_check_replaced(struct place *p, const char *name, const struct stat *st);
/* With --backup-dir, as place_fills_dir(); without it false. */
bool backup_dir_is_target(struct place *p, const struct stat *st);

/* ---- place_fold.c ---------------------------------------------------------------------- */

/* The source has that name in d (p->top: the target), where it may have existed before.  -1, with a
 * failure, if the source has another name that folds to the same one. */
int place_check_name(struct place *p, struct place_dir *d, int dirfd, const char *name);
/* Does name lead to something that the directory lists under another name?  other: that name, or ""
 * if it was not found. */
bool name_is_folded(int dirfd, const char *name, char other[static NAME_MAX + 1]);
/* Something exists under s's name, although the directory is new or nothing had the name before.
 * -1, with a failure, if it exists under another name that folds to it. */
int entry_check_folding(const struct place_entry *s);
/* As entry_check_folding(), for something (old) that will be replaced, and only if this run may
 * have put it there.  Both preserve errno when they return 0. */
int entry_check_replacing(const struct place_entry *s, const struct stat *old);

/* May name lead to something that the directory lists under another name?  name is not "". */
bool name_may_fold(int dirfd, const char *name);

/* ---- place_alias.c --------------------------------------------------------------------- */

/* Calls alias for each name under which the directory lists what one of these names leads to, if
 * the two names differ.  Sorts names.  Returns an errno; ENOMEM: alias returned -1. */
int aliases_find(int dirfd, struct taken *names, int (*alias)(void *ctx, const char *name),
		 void *ctx);

/* ---- place_link.c ---------------------------------------------------------------------- */

void linked_begin(struct place *p);
/* Remembers what was stored for r if r gets more names (FILE_LINKED); else does nothing. */
int linked_remember(const struct place_entry *s, const struct record_file *r,
		    const struct stat *st);
int place_make_link(const struct place_entry *s, const struct record_file *r,
		    struct change *change);

/* ---- place_origin.c -------------------------------------------------------------------- */

/* Is st one of the sources themselves, which are then on this host? */
bool place_is_source(struct place *p, const struct stat *st);
/* The same for a known origin. */
bool place_is_origin(struct place *p, struct origin o);

/* ---- place_keep.c, place_delete.c, place_clear.c --------------------------------------- */

void kept_free(struct kept *k);
/* With --delete: a source has this name in d, which is an implied directory.  Another source may
 * lack it in the same directory. */
int dir_add_source_name(struct place_dir *d, const char *name);
bool dir_is_only_implied(const struct place_dir *d);
void source_names_free(struct taken *names);
/* Have all names of the source arrived, and does something exist that is not among them?
 * *unlisted: an errno, if what exists could not be listed. */
bool kept_has_left(const struct kept *k, int *unlisted);
/* Does neither the source of d have this name, nor a source below it? */
bool dir_has_left(const struct place_dir *d, const char *name);
/* Call before dir_has_left() for a directory that all of these are: adds the names under which the
 * directory lists what the source's names lead to.  Returns an errno. */
int dirs_keep_aliases(struct place_dir *const *same, size_t count, int dirfd);

/* Removes a directory that is in the way, if it is empty or with rules->delete. */
int delete_in_the_way(const struct place_entry *s);
/* Would delete_in_the_way() succeed, as far as can be seen?  A dry run reports what would be
 * deleted. */
int delete_check_in_the_way(const struct place_entry *s);
/* name in dirfd is to become a backup: removes what an earlier run backed up there, of any type,
 * but no directory with anything in it under the rule spare_trees.
 * dir: the path of dirfd. */
int delete_old_backup(struct place *p, int dirfd, const char *dir, const char *name);
/* Deletes the directory name in dirfd with everything in it.  dir: the path of dirfd from the top.
 * 0; 1: something remains; -1. */
struct tree_removal {
	bool rehearsed; /* do nothing */
	bool silent; /* report and count nothing */
	bool keeps; /* rehearsed: the directory will be renamed, so nothing in it need be deletable
		     */
	bool backs_up; /* move files to --backup-dir */
	uint64_t count; /* out: how many, if silent */
	uint64_t reserved; /* counted beforehand; out: how many of these were not needed */
	bool too_many; /* out: rules->max_delete was exceeded */
};
int delete_tree(struct place *p, int dirfd, const char *dir, const char *name,
		struct tree_removal *r);
/* place_finish_run.c.  The target itself is not changed if it existed and is only led through
 * (--relative, --files-from). */
bool dir_needs_metadata(const struct place_dir *d);
/* place_rights.c.  Is the directory fd the top of a mounted tree, also of one of the same file
 * system?  1; 0: it is not, or the kernel is older than 5.8 and does not tell; -1 with errno. */
int rights_is_mount(int fd);
/* May the name be removed from dirfd, and the directory's names from fd?  -1 with errno: it is
 * known not to work. */
int rights_check_entry(const struct place *p, int dirfd, const char *name,
		       const struct stat *entry);
int rights_check_dir(const struct place *p, int fd, const struct stat *dir);
/* Gives us all rights to a directory of ours.  *fd may become a new descriptor.  1: its mode was
 * changed; 0: there is no need, or it is not ours; -1 with errno. */
int rights_loosen(const struct place *p, int *fd, const struct stat *dir);
/* Deletes what the source lacks in the directory that all of these (count of them) are. */
void delete_left(struct place_dir *const *same, size_t count, struct place_finish *f);

#endif
