/* SPDX-License-Identifier: Apache-2.0 */

/* Examines and reads what exists, and, if the content is the same, sets its metadata. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

static int open_path_only(const struct place_entry *s)
{
	return RETRIED(openat(s->dirfd, s->name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

/* For its metadata. A module of rdcpd has no /proc, through which attributes are reached with
 * O_PATH; a regular file may be opened for reading. */
static int open_for_metadata(const struct place_entry *s, mode_t type)
{
	int fd = -1;

	if (S_ISREG(type) && s->place->proc < 0 && metadata_has_xattrs(s->place))
		fd = RETRIED(openat(s->dirfd, s->name,
				    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	return fd >= 0 ? fd : open_path_only(s);
}

static void compare_existing(const struct place_entry *s, const struct record_file *r,
			     const struct stat *st, const struct xattrs *x, struct change *c)
{
	struct metadata m;
	int fd;

	metadata_want(s->place, &r->a, S_IFREG, NULL, false, &m);
	metadata_compare(s->place, &m, st, c);
	if (!metadata_has_xattrs(s->place))
		return;
	fd = open_for_metadata(s, S_IFREG);
	if (fd >= 0)
		metadata_compare_xattrs(s->place, fd, x, c);
	close_fd(fd);
}

static void fill_looked(const struct place_entry *s, const struct record_file *r,
			const struct stat *st, const struct xattrs *x, struct looked *out)
{
	if (!S_ISREG(st->st_mode)) {
		out->change.type = true;
		return;
	}
	out->change.missing = false;
	out->same_size = (uint64_t)st->st_size == r->size;
	out->change.size = !out->same_size;
	out->newer = metadata_is_newer(&r->a, st);
	out->look = out->same_size && metadata_same_mtime(&r->a, st) ? LOOK_QUICK : LOOK_OTHER;
	if ((out->look == LOOK_QUICK || (s->place->rules->checksum && out->same_size)) &&
	    !sharing_keep(s, st)) {
		/* So it is sent, and gets a file of its own. */
		out->same_size = false;
		out->look = LOOK_OTHER;
	}
	compare_existing(s, r, st, x, &out->change);
}

int place_look(struct place *p, struct place_dir *d, const struct record_file *r,
	       const struct xattrs *x, struct looked *out)
{
	struct place_entry s;
	struct stat st;
	int ret;

	*out = (struct looked){
		.look = LOOK_MISSING,
		.change = {.what = EVENT_FILE, .now = !p->rules->times},
	};
	if (entry_open(p, d, r, &s))
		return -1;
	ret = d && d->fresh ? 0 : entry_look(&s, &st);
	if (ret == 0) {
		out->change.missing = true;
		out->absent = d || !p->dst.by_path;
	} else if (ret > 0) {
		fill_looked(&s, r, &st, x, out);
	}
	entry_close(&s);
	return ret < 0 ? -1 : 0;
}

int place_open_existing(struct place *p, struct place_dir *d, const struct record_file *r, int *fd)
{
	struct place_entry s;
	struct stat st;

	*fd = -1;
	if (entry_open(p, d, r, &s))
		return -1;
	if (s.dirfd >= 0)
		*fd = RETRIED(openat(s.dirfd, s.name,
				     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	else
		errno = ENOENT;
	entry_close(&s);
	if (*fd >= 0 && (fstat(*fd, &st) || !S_ISREG(st.st_mode))) {
		close_fd(*fd);
		*fd = -1;
		errno = EINVAL;
	}
	return *fd < 0 ? -1 : 0;
}

/* Opens the entry only if something differs, because in most runs most files are the same. */
int place_mend(const struct place_entry *s, const struct record_attr *a, struct stat *st,
	       const struct xattrs *x, struct change *c)
{
	bool by_xattrs = metadata_has_xattrs(s->place), dry = s->place->rules->dry_run;
	mode_t type = st->st_mode & S_IFMT;
	char shown[SHOWN_ROOM];
	struct metadata m;
	int fd, ret = 0;

	metadata_want(s->place, a, type, NULL, false, &m);
	metadata_compare(s->place, &m, st, c);
	if (!change_any(c) && !by_xattrs && !metadata_atime_differs(&m, st))
		return 0;
	fd = open_for_metadata(s, type);
	if (fd < 0 || fstat(fd, st))
		ret = fail("open %s: %m", entry_shown(s, shown));
	else if ((st->st_mode & S_IFMT) != type)
		ret = fail("update %s: it changed after it was compared", entry_shown(s, shown));
	if (ret == 0 && by_xattrs)
		metadata_compare_xattrs(s->place, fd, x, c);
	if (ret == 0 && !dry && (change_any(c) || metadata_atime_differs(&m, st)))
		ret = metadata_set(s->place, fd, st, &m, x, s);
	close_fd(fd);
	return ret;
}

/* With --remove-source-files the source does not remove a file whose ctime has changed.  So a
 * source that is this very file stays. */
static int touch_same(const struct place_entry *s, int fd)
{
	char shown[SHOWN_ROOM];

	if (!s->place->rules->remove_source || metadata_touch(s->place, fd) == 0)
		return 0;
	return fail("touch %s for --remove-source-files: %m", entry_shown(s, shown));
}

/* A file that this user may not open is synced with its whole file system. */
static int sync_closed(const struct place_entry *s)
{
	char shown[SHOWN_ROOM];
	int fd = open_path_only(s);
	int ret = fd < 0 || dir_sync_all(s->dirfd) ? fail("fsync %s: %m", entry_shown(s, shown))
						   : touch_same(s, fd);

	close_fd(fd);
	return ret;
}

/* Another process may have written the file a moment ago, without an fsync. */
static int sync_same(const struct place_entry *s)
{
	enum { OPEN_FLAGS = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };
	char shown[SHOWN_ROOM];
	int fd, ret;

	if (!s->place->rules->fsync)
		return 0;
	fd = RETRIED(openat(s->dirfd, s->name, O_RDONLY | OPEN_FLAGS));
	if (fd < 0)
		fd = RETRIED(openat(s->dirfd, s->name, O_WRONLY | OPEN_FLAGS));
	if (fd < 0 && errno == EACCES)
		return sync_closed(s);
	ret = fd < 0 || fsync(fd) ? fail("fsync %s: %m", entry_shown(s, shown)) : touch_same(s, fd);
	close_fd(fd);
	return ret;
}

static int accept_same(const struct place_entry *s, const struct record_file *r,
		       const struct xattrs *x)
{
	char shown[SHOWN_ROOM];
	struct change c = {.what = EVENT_FILE};
	struct stat st;
	int ret = entry_look(s, &st);

	if (ret < 0)
		return -1;
	/* In a dry run the sink answers SAME for everything. */
	if (s->place->rules->dry_run)
		return ret ? linked_remember(s, r, &st) : 0;
	if (ret == 0 || !S_ISREG(st.st_mode))
		return fail("update %s: it changed after it was compared", entry_shown(s, shown));
	entry_forget_leftovers(s);
	if (place_mend(s, &r->a, &st, x, &c) || sync_same(s))
		return -1;
	return linked_remember(s, r, &st);
}

int place_update_metadata(struct place *p, struct place_dir *d, const struct record_file *r,
			  const struct xattrs *x)
{
	struct place_entry s;
	int ret;

	if (entry_open(p, d, r, &s))
		return -1;
	ret = accept_same(&s, r, x);
	entry_close(&s);
	return ret;
}
