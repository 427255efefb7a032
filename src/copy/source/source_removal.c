/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/timestamp.h"

/* A source name that is removed once it is stored. */
struct removal {
	struct removal *next;
	uint32_t id; /* set by removal_hold_same() */
	struct walk_dir *dir; /* a reference */
	struct seen seen; /* what was read; the name must still be that */
	bool same; /* it was compared, so the target may be the source itself */
	bool named;
	const char *name; /* in dir; points into path */
	char path[]; /* as the user named it; else only the name */
};

void removal_free(struct removal *r)
{
	if (!r)
		return;
	walk_dir_put(r->dir);
	free(r);
}

/* Opens the directory of a source that the user named.  Sources in one directory share it.  The
 * lock is held during the open, because that is rare. */
static struct walk_dir *open_named_dir(struct source *s, const char *path, size_t len)
{
	struct walk_dir_opts o = {.name = ""};
	char *dir = len ? strndup(path, len) : strdup(".");
	struct walk_dir *d = NULL;

	if (!dir) {
		fail_as(OUT_MEMORY, "open the directory of %s: %m", path);
		return NULL;
	}
	o.path = dir;
	if (s->named_dir && strcmp(s->named_dir->path, dir) == 0) {
		d = walk_dir_get(s->named_dir);
	} else if (walk_dir_open(walk_dirs_of(s->walk), &o, &d) == 0) {
		walk_dir_put(s->named_dir);
		s->named_dir = walk_dir_get(d);
	} else {
		walk_dir_put(d);
		d = NULL;
	}
	free(dir);
	return d;
}

int removal_new(struct source *s, struct walk_dir *dir, const char *name, const struct seen *seen,
		struct removal **out)
{
	size_t len = strlen(name) + 1;
	const char *slash = dir ? NULL : strrchr(name, '/');
	size_t at = slash ? (size_t)(slash - name) + 1 : 0;
	struct removal *r = calloc(1, sizeof *r + len);

	if (!r)
		return fail_as(OUT_MEMORY, "queue the removal of %s: %m", name);
	memcpy(r->path, name, len);
	r->name = r->path + at;
	r->named = !dir;
	r->seen = *seen;
	if (dir) {
		r->dir = walk_dir_get(dir);
	} else {
		pthread_mutex_lock(&s->copy->lock);
		r->dir = open_named_dir(s, name, at);
		pthread_mutex_unlock(&s->copy->lock);
	}
	if (!r->dir) {
		removal_free(r);
		return -1;
	}
	*out = r;
	return 0;
}

/* How often the suffix of backups is at the end of a name; 0: it looks like that of no backup. */
static unsigned count_suffixes(const struct source *s, const char *name)
{
	const struct rules *r = s->rules;
	size_t len = strlen(name), more = strlen(r->suffix);
	unsigned count = 0;

	if (!r->backup || *r->backup_dir || more == 0)
		return 0;
	while (len > more && memcmp(name + len - more, r->suffix, more) == 0) {
		len -= more;
		count++;
	}
	return count;
}

static void make_due(struct source *s, struct removal *r)
{
	r->next = NULL;
	*s->removals.due_end = r;
	s->removals.due_end = &r->next;
}

void removal_queue(struct source *s, struct removal *r)
{
	if (!r)
		return;
	if (count_suffixes(s, r->name) > 0) {
		r->next = s->removals.lookalikes;
		s->removals.lookalikes = r;
		return;
	}
	/* Wait until all names have been found.  One that is found after the others were removed
	 * would not look like a hard link. */
	if (s->rules->hard_links && r->seen.links > 1 && s->phase == 0) {
		r->next = s->removals.linked;
		s->removals.linked = r;
		return;
	}
	make_due(s, r);
}

void removals_queue_linked(struct source *s)
{
	struct removal *r;

	while ((r = s->removals.linked) != NULL) {
		s->removals.linked = r->next;
		removal_queue(s, r);
	}
}

void removals_queue_lookalikes(struct source *s)
{
	struct removal *r;

	/* f~ before f~~: if the first one stays, its backup by a rerun is the second. */
	for (unsigned suffixes = 1; s->removals.lookalikes; suffixes++) {
		struct removal **at = &s->removals.lookalikes;

		while ((r = *at) != NULL) {
			if (count_suffixes(s, r->name) == suffixes) {
				*at = r->next;
				make_due(s, r);
			} else {
				at = &r->next;
			}
		}
	}
}

void removal_hold_same(struct source *s, uint32_t id, struct removal *r)
{
	if (!r)
		return;
	r->id = id;
	r->same = true;
	r->next = s->removals.same;
	s->removals.same = r;
}

void removals_queue_same(struct source *s)
{
	struct removal *r;

	while ((r = s->removals.same) != NULL) {
		s->removals.same = r->next;
		/* A failure would have settled the id. */
		if (ids_kind(&s->ids, r->id) == LIVE_SAME)
			removal_queue(s, r);
		else
			removal_free(r);
	}
}

/* ---- further names of an inode that lost one -------------------------------------------- */

/* Is it as it was read, except for names that this run has removed since? */
static bool is_still_as_read(const struct source *s, const struct removal *r,
			     const struct stat *now)
{
	const struct unlinked *u;

	if (seen_is_untouched(&r->seen, now))
		return true;
	if (!seen_has_content(&r->seen, now))
		return false;
	u = table_find(&s->removals.unlinked, &r->seen.inode);
	return u && time_equals(&now->st_ctim, &u->until) &&
	       !time_is_before(&r->seen.ctime, &u->since) &&
	       !time_is_before(&u->until, &r->seen.ctime);
}

/* This run removed a name of fd, whose status was *before.  -1 with errno. */
static int note_unlinked(struct source *s, const struct stat *before, int fd)
{
	struct inode_key inode = {.dev = before->st_dev, .ino = before->st_ino};
	struct unlinked *u;
	struct stat after;

	if (fstat(fd, &after))
		return -1;
	if (after.st_nlink == 0)
		return 0;
	u = table_find(&s->removals.unlinked, &inode);
	if (!u) {
		u = calloc(1, sizeof *u);
		if (!u)
			return -1;
		u->inode = inode;
		if (table_put(&s->removals.unlinked, u, NULL)) {
			free(u);
			return -1;
		}
		u->since = before->st_ctim;
	} else if (!time_equals(&u->until, &before->st_ctim)) {
		u->since = before->st_ctim;
	}
	u->until = after.st_ctim;
	return 0;
}

/* ---- removing ----------------------------------------------------------------------------- */

/* Is it still what was copied? */
static int check_still_as_read(const struct source *s, const struct removal *r,
			       const struct stat *now, const char *shown)
{
	if (S_ISLNK(now->st_mode) && !S_ISLNK(r->seen.mode))
		return fail("remove %s: it is a symbolic link to the copied file", shown);
	if (is_still_as_read(s, r, now))
		return 0;
	if (!r->same && !seen_has_content(&r->seen, now))
		return fail_as(OUT_CHANGED, "remove %s: it is no longer the file that was copied",
			       shown);
	return fail_as(
		OUT_CHANGED,
		r->same ? "remove %s: it changed after it was compared, or is the target itself"
			: "remove %s: it changed after it was read",
		shown);
}

/* No system call removes a name only if it is that of a given inode.  So nothing happens between
 * the check and the removal. */
static int unlink_source(struct source *s, const struct removal *r, int dirfd, const char *shown)
{
	struct stat now, after;
	int fd = walk_open_path(dirfd, r->name, false), ret;

	/* The user named it twice, or another process removed it. */
	if (fd < 0 && errno == ENOENT)
		ret = 0;
	else if (fd < 0 || walk_refresh(dirfd, r->name) || fstat(fd, &now) ||
		 walk_stat(dirfd, r->name, false, &after))
		ret = fail("remove %s: %m", shown);
	else if (check_still_as_read(s, r, &after, shown) || check_still_as_read(s, r, &now, shown))
		ret = -1;
	else if (walk_remove(dirfd, r->name) && errno != ENOENT)
		ret = fail("remove %s: %m", shown);
	else
		ret = 0;
	/* The removal changed the ctime, which the check of the next name has to expect. */
	if (ret == 0 && fd >= 0 && now.st_nlink > 1 && note_unlinked(s, &now, fd))
		log_warn("stat %s after removing it: %m; its other hard links may be kept", shown);
	close_fd(fd);
	return ret;
}

/* May a rerun store a file whose backup would have this name?  In this run that backup has another
 * name, but only because the source has this one. */
static int check_no_backup_comes(struct source *s, const struct removal *r, const char *shown)
{
	unsigned failures; /* of what a rerun does again */

	if (count_suffixes(s, r->name) == 0)
		return 0;
	pthread_mutex_lock(&s->copy->lock);
	failures = s->copy->failures - s->copy->undeleted;
	pthread_mutex_unlock(&s->copy->lock);
	if (failures == 0)
		return 0;
	return fail(
		"remove %s: it is removed last, and not all others were moved: a rerun may make "
		"a backup of that name",
		shown);
}

static int remove_one_source(struct source *s, const struct removal *r, const char *shown)
{
	struct failure why;
	int dirfd, ret;

	/* Nothing shows whether a FIFO or a device got more bytes meanwhile. */
	if (r->named && !S_ISREG(r->seen.mode))
		return fail("remove %s: it is not a regular file", shown);
	if (!r->named && source_make_marker(s, r->dir)) {
		why = *failed();
		return fail_as(why.code, "remove %s: %s", shown, why.text);
	}
	if (walk_dir_use(r->dir, &dirfd))
		return -1;
	ret = check_no_backup_comes(s, r, shown) ? -1 : unlink_source(s, r, dirfd, shown);
	walk_dir_release(r->dir);
	if (ret == 0 && !r->named)
		source_need_marker(s, r->dir);
	return ret;
}

void removals_choose_time(struct source *s)
{
	/* A source that was reached through a link, or in another source, may still have to be read
	 * by its own name, or the other way round. */
	s->removals.late = s->rules->delete || s->rules->copy_links || s->found.has_links ||
			   (s->removes && found_overlap(&s->found));
}

bool removals_may_begin(const struct source *s)
{
	return s->removals.due && (!s->removals.late || s->copy->done_received);
}

void removals_do_next(struct source *s)
{
	struct removal *r = s->removals.due;
	char room[NAME_MAX_WIRE];
	const char *shown;
	struct failure why;
	int ret;

	s->removals.due = r->next;
	if (!s->removals.due)
		s->removals.due_end = &s->removals.due;
	pthread_mutex_unlock(&s->copy->lock);
	shown = r->named ? r->path : walk_shown(r->dir, r->name, room, sizeof room);
	ret = remove_one_source(s, r, shown);
	atomic_fetch_add(&s->copy->tally->removed, 1);
	if (ret) {
		why = *failed();
		if (!s->only)
			copy_report_failure(s->copy, shown, &why);
	}
	pthread_mutex_lock(&s->copy->lock);
	if (ret)
		copy_count_unremoved(s->copy, &why);
	removal_free(r);
}

static void free_removals(struct removal *r)
{
	while (r) {
		struct removal *next = r->next;

		removal_free(r);
		r = next;
	}
}

void removals_free(struct source *s)
{
	free_removals(s->removals.due);
	free_removals(s->removals.same);
	free_removals(s->removals.linked);
	free_removals(s->removals.lookalikes);
	table_clear(&s->removals.unlinked, free);
	walk_dir_put(s->named_dir);
}
