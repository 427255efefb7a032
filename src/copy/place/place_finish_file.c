/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/timestamp.h"
#include "copy/io/stored.h"

static bool replaces_file(const struct placement *t)
{
	return t->method == BY_RENAME && t->exists && S_ISREG(t->old.st_mode);
}

/* Opens the file that is replaced, and updates t->old.  *old -1: it is no regular file any more. */
static int open_old(struct placement *t, int *old)
{
	const struct place_entry *s = &t->entry;
	enum { OPEN_FLAGS = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };
	struct stat st;

	*old = RETRIED(openat(s->dirfd, s->name, O_RDONLY | OPEN_FLAGS));
	/* O_PATH opens a file that this user may not read. */
	if (*old < 0 && errno != ENOENT)
		*old = RETRIED(openat(s->dirfd, s->name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (*old < 0)
		return errno == ENOENT ? 0 : entry_fail(s, "open");
	if (fstat(*old, &st)) {
		entry_fail(s, "stat");
		close_fd(*old);
		return -1;
	}
	if (S_ISREG(st.st_mode)) {
		t->old = st;
		return 0;
	}
	close_fd(*old);
	*old = -1;
	return 0;
}

/* Without --perms the new file keeps the attributes of the old one. Fails if they can't be read:
 * then the old one stays. */
static int open_kept(struct placement *t, int *old)
{
	*old = -1;
	return replaces_file(t) && !t->entry.place->rules->perms ? open_old(t, old) : 0;
}

/* Closes old, the file that is replaced, or -1. */
static int set_file_metadata(struct placement *t, struct stat *st, int old)
{
	struct place *p = t->entry.place;
	bool replaced = replaces_file(t);
	struct metadata m;
	int ret;

	metadata_want(p, &t->file.a, S_IFREG, replaced ? &t->old : NULL,
		      t->method == BY_RENAME || t->created, &m);
	if (!replaced && (t->method == BY_RENAME || t->created))
		metadata_inherit(&t->entry, &t->file.a, &m);
	if (t->file.flags & FILE_STREAM)
		m.has_times = false;
	m.replaced_fd = old;
	ret = metadata_set(p, t->fd, st, &m, t->xattrs, &t->entry);
	close_fd(old);
	return ret;
}

static int sync_content(const struct placement *t)
{
	if (!t->entry.place->rules->fsync || outlet_sync(t->fd) == 0)
		return 0;
	return entry_fail(&t->entry, "fsync");
}

static int sync_file(const struct placement *t)
{
	/* If the file is the source itself, the source detects that by the new ctime.  An empty
	 * file is not written, so its ctime is bumped here. */
	if (t->method == IN_PLACE && t->entry.place->rules->remove_source &&
	    metadata_touch(t->entry.place, t->fd))
		return entry_fail(&t->entry, "touch");
	return sync_content(t);
}

/* Some file systems report a failed write only when a descriptor is closed.  Closes a duplicate, so
 * that the lock stays.  st NULL: unknown. */
static int check_close(const struct placement *t, const struct stat *st)
{
	int fd;

	if (st && place_close_never_fails(t->entry.place, t->fd, st->st_dev))
		return 0;
	fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && close(fd) == 0)
		return 0;
	return entry_fail(&t->entry, "close");
}

static int sync_file_parent(const struct placement *t)
{
	return t->method == IN_PLACE && !t->created ? 0 : entry_sync_dir(&t->entry);
}

static int take_final_name(struct placement *t)
{
	return entry_take_name(&t->entry, &t->tmp, t->exists ? &t->old : NULL);
}

static int check_written(const struct placement *t, uint64_t size, const struct stat *st)
{
	bool fresh = placement_fresh(t), gaps = fresh && t->entry.place->rules->sparse;
	struct stored s = {
		.reach = gaps ? 0 : t->reach,
		.size_max = fresh ? size : UINT64_MAX,
		.full = t->full,
	};
	enum stored_result result = stored_check(t->fd, st, &s);
	char shown[SHOWN_ROOM];

	return result == STORED_ALL ? 0 : stored_fail(entry_shown(&t->entry, shown), result);
}

static int stat_written(const struct placement *t, uint64_t size, struct stat *st)
{
	/* No other process can have the file open, so only its length can be wrong. */
	if (t->st_predicted && t->method != IN_PLACE && !(t->file.flags & FILE_LINKED) &&
	    !t->entry.place->rules->sparse && lseek(t->fd, 0, SEEK_END) == (off_t)size) {
		*st = t->tmp.st;
		st->st_size = (off_t)size;
		return 0;
	}
	/* Another process may have removed a file that is written in place. */
	if (fstat(t->fd, st) || (t->method == IN_PLACE && st->st_nlink == 0 && (errno = ENOENT)))
		return entry_fail(&t->entry, "write");
	if (check_written(t, size, st))
		return -1;
	if ((uint64_t)st->st_size != size && ftruncate(t->fd, (off_t)size))
		return entry_fail(&t->entry, "write");
	return 0;
}

/* *named: the file has its final name, even if something failed after that. */
static int finish_placement(struct placement *t, uint64_t size, bool *named)
{
	struct failure metadata_failure;
	struct stat st;
	bool metadata_failed = false;
	int old;

	*named = false;
	if (t->method == AS_IS) {
		if (t->entry.place->dst.by_path && dst_truncate(&t->entry.place->dst, t->fd, size))
			return entry_fail(&t->entry, "write");
		return sync_file(t) || check_close(t, NULL) ? -1 : 0;
	}
	if (stat_written(t, size, &st))
		return -1;
	/* The next run takes a file with the source's size and mtime for whole.  So the content
	 * must be on disk before they are. */
	if (t->method == IN_PLACE && sync_content(t))
		return -1;
	if (open_kept(t, &old))
		return -1;
	/* A file whose metadata cannot be set gets its name nevertheless. */
	if (set_file_metadata(t, &st, old)) {
		metadata_failed = true;
		metadata_failure = *failed();
	}
	if (sync_file(t) || check_close(t, &st) || (t->method == BY_RENAME && take_final_name(t)))
		return -1;
	*named = true;
	/* An earlier run without --inplace may have left a temporary.  Or a run that was
	 * interrupted still used it when this one began, and has ended since. */
	if (t->method == IN_PLACE)
		entry_forget_leftovers(&t->entry);
	else if (t->tmp.beside)
		temporary_forget(t->entry.dirfd, t->entry.name, t->entry.place->uid);
	if (linked_remember(&t->entry, &t->file, &st) || sync_file_parent(t))
		return -1;
	return metadata_failed ? fail_again(&metadata_failure) : 0;
}

int place_finish_file(struct placement *t, uint64_t size)
{
	bool named;
	int ret = finish_placement(t, size, &named);

	if (ret == 0 || named)
		placement_free(t);
	else
		place_drop(t, false);
	return ret;
}

/* Has another run completed the same file since this one began?  Any other file there, as of an
 * editor, does not replace what this run has stored. */
static bool is_superseded(const struct placement *t)
{
	const struct place_entry *s = &t->entry;
	struct stat now;

	if (fstatat(s->dirfd, s->name, &now, AT_SYMLINK_NOFOLLOW) || !S_ISREG(now.st_mode) ||
	    (uint64_t)now.st_size != t->file.size)
		return false;
	if (s->place->rules->times && !metadata_same_mtime(&t->file.a, &now))
		return false;
	return !t->exists || now.st_ino != t->old.st_ino || now.st_dev != t->old.st_dev ||
	       !time_equals(&now.st_mtim, &t->old.st_mtim);
}

/* The lock ends first: a run that gives its file the name after that removes the temporary. */
static void leave_to_next_run(struct placement *t)
{
	const struct place_entry *s = &t->entry;
	struct stat left;

	close_fd(t->fd);
	t->fd = -1;
	if (is_superseded(t))
		temporary_forget(s->dirfd, s->name, s->place->uid);
	if (fstatat(s->dirfd, t->tmp.name, &left, AT_SYMLINK_NOFOLLOW) == 0 &&
	    place_set_flag_once(s->place, &s->place->warned_partial))
		log_warn("%s: the incomplete file is kept as temporary %s, which the next run "
			 "takes over",
			 placement_name(t), t->tmp.name);
}

void place_drop(struct placement *t, bool keep)
{
	const char *name = t->method == BY_RENAME ? t->tmp.name : t->entry.name;
	bool ours = t->fd >= 0 && (t->method == BY_RENAME || (t->method == IN_PLACE && t->created));

	if (ours && keep && t->method == BY_RENAME && !t->tmp.random && !t->tmp.nameless)
		leave_to_next_run(t);
	else if (ours && !t->tmp.nameless)
		unlinkat(t->entry.dirfd, name, 0);
	placement_free(t);
}
