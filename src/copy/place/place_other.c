/* SPDX-License-Identifier: Apache-2.0 */

/* Symlinks, FIFOs and devices: made under a temporary name, given their metadata, renamed. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

enum { TRIES = 8 /* if other runs keep removing or replacing the temporary */ };

struct new_entry {
	struct place_entry entry;
	const struct record_file *r;
	const char *link_target; /* NULL: not a symlink */
	const struct xattrs *xattrs;
	mode_t type; /* S_IFLNK etc. */
	bool exists;
	struct stat old;
};

/* ---- comparing with what exists ------------------------------------------------------------ */

static bool has_same_target(const struct new_entry *m)
{
	char target[LINK_TARGET_MAX + 2];
	ssize_t n = readlinkat(m->entry.dirfd, m->entry.name, target, sizeof target);

	return n >= 0 && (size_t)n == strlen(m->link_target) &&
	       memcmp(target, m->link_target, (size_t)n) == 0;
}

static bool is_already_made(const struct new_entry *m)
{
	if ((m->old.st_mode & S_IFMT) != m->type)
		return false;
	if (m->type == S_IFLNK)
		return has_same_target(m);
	return m->type == S_IFIFO || m->old.st_rdev == makedev(m->r->major, m->r->minor);
}

/* ---- making ---------------------------------------------------------------------------------- */

static int create_node(const struct new_entry *m, const char *as)
{
	if (m->type == S_IFLNK)
		return symlinkat(m->link_target, m->entry.dirfd, as);
	return mknodat(m->entry.dirfd, as, m->type | 0600, makedev(m->r->major, m->r->minor));
}

/* 1: another run has removed or replaced the temporary. */
static int set_made_metadata(struct new_entry *m, const char *as)
{
	struct place *p = m->entry.place;
	int fd = RETRIED(openat(m->entry.dirfd, as, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	struct metadata want;
	struct stat st;
	int ret = -1;

	if (fd < 0 && errno == ENOENT) {
		ret = 1;
	} else if (fd < 0 || fstat(fd, &st)) {
		entry_fail(&m->entry, "open");
	} else if ((st.st_mode & S_IFMT) != m->type) {
		ret = 1;
	} else {
		metadata_want(p, &m->r->a, m->type, NULL, true, &want);
		metadata_inherit(&m->entry, &m->r->a, &want);
		ret = metadata_set(p, fd, &st, &want, m->xattrs, &m->entry);
	}
	close_fd(fd);
	return ret;
}

static int try_make(struct new_entry *m)
{
	char as[OWN_NAME_ROOM];
	struct failure metadata_failure;
	bool metadata_failed = false;
	int ret;

	if (room_check(&m->entry))
		return -1;
	if (temporary_name(m->entry.name, m->entry.place->uid, as))
		return entry_fail(&m->entry, "create");
	if (create_node(m, as))
		return errno == EEXIST ? 1 : entry_fail(&m->entry, "create");
	ret = set_made_metadata(m, as);
	if (ret > 0)
		return 1;
	/* An entry whose metadata cannot be set gets its name nevertheless. */
	if (ret < 0) {
		metadata_failed = true;
		metadata_failure = *failed();
	}
	ret = entry_rename(&m->entry, as, m->exists ? &m->old : NULL, true);
	if (ret)
		unlinkat(m->entry.dirfd, as, 0);
	return ret == 0 && metadata_failed ? fail_again(&metadata_failure) : ret;
}

static int make_replacement(struct new_entry *m)
{
	int ret = 1;

	if (m->exists && S_ISDIR(m->old.st_mode) && delete_check_in_the_way(&m->entry))
		return -1;
	if (m->entry.place->rules->dry_run)
		return 0;
	entry_forget_leftovers(&m->entry); /* in an earlier run the name may have been a file */
	for (int i = 0; ret > 0 && i < TRIES; i++)
		ret = try_make(m);
	if (ret > 0) {
		errno = EEXIST;
		return entry_fail(&m->entry, "create");
	}
	return ret ? -1 : entry_sync_dir(&m->entry);
}

/* With --remove-source-files the source does not remove an entry whose ctime has changed.  So a
 * source that is this very entry stays. */
static int touch_unchanged(const struct new_entry *m)
{
	const struct place *p = m->entry.place;
	int fd, ret;

	if (!p->rules->remove_source || p->rules->dry_run)
		return 0;
	fd = RETRIED(openat(m->entry.dirfd, m->entry.name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	ret = fd < 0 || metadata_touch(p, fd) ? entry_fail(&m->entry, "touch") : 0;
	close_fd(fd);
	return ret;
}

static int make_other(struct new_entry *m, struct change *c)
{
	int ret = m->entry.dir && m->entry.dir->fresh ? 0 : entry_look(&m->entry, &m->old);

	if (ret < 0)
		return -1;
	m->exists = ret > 0;
	c->missing = !m->exists;
	if (m->exists && is_already_made(m)) {
		entry_forget_leftovers(&m->entry);
		if (place_mend(&m->entry, &m->r->a, &m->old, m->xattrs, c))
			return -1;
		return touch_unchanged(m);
	}
	if (m->exists) {
		c->type = (m->old.st_mode & S_IFMT) != m->type;
		c->content = !c->type;
	}
	return make_replacement(m);
}

/* Prepares for further hard links to the entry.  In a dry run it may not exist. */
static int remember_made(const struct place_entry *s, const struct record_file *r)
{
	struct stat st;
	int ret = r->flags & FILE_LINKED ? entry_look(s, &st) : 0;

	return ret > 0 ? linked_remember(s, r, &st) : ret;
}

static int check_type(struct place *p, struct place_dir *d, const struct record_file *r,
		      const char *target, mode_t *type)
{
	static const mode_t types[] = {
		[TYPE_SYMLINK] = S_IFLNK,
		[TYPE_FIFO] = S_IFIFO,
		[TYPE_CHAR] = S_IFCHR,
		[TYPE_BLOCK] = S_IFBLK,
	};
	char shown[SHOWN_ROOM];

	*type = r->type < sizeof types / sizeof *types ? types[r->type] : 0;
	if (r->type == TYPE_HARD_LINK || (*type && (*type != S_IFLNK || (target && *target))))
		return 0;
	return fail_as(OUT_PROTOCOL, "the peer sends %s with an invalid file type",
		       place_shown(p, d, r->name, shown));
}

int place_make_other(struct place *p, struct place_dir *d, const struct record_file *r,
		     const char *target, const struct xattrs *x, struct change *change)
{
	struct new_entry m = {.r = r, .link_target = target, .xattrs = x};
	int ret;

	*change = (struct change){
		.what = r->type == TYPE_SYMLINK     ? EVENT_SYMLINK
			: r->type == TYPE_HARD_LINK ? EVENT_HARD_LINK
						    : EVENT_NODE,
		.device = r->type == TYPE_CHAR || r->type == TYPE_BLOCK,
		.now = !p->rules->times,
	};
	if (check_type(p, d, r, target, &m.type) || entry_open(p, d, r, &m.entry))
		return -1;
	if (r->type == TYPE_HARD_LINK)
		ret = place_make_link(&m.entry, r, change);
	else
		ret = make_other(&m, change);
	if (ret == 0)
		ret = remember_made(&m.entry, r);
	entry_close(&m.entry);
	return ret;
}
