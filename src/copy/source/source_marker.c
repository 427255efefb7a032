/* SPDX-License-Identifier: Apache-2.0 */

/*
 * With --delete and --remove-source-files, the sink deletes what the source lacks, and the source
 * removes what the sink has.  If a run stops between two removals, its rerun must not take what was
 * moved for something that the source never had.  So before the first removal the source leaves a
 * marker in the directory that the user named, with a hash of where the files went and of the
 * options that choose files.  It removes it when the whole run has succeeded.
 *
 * A run that finds a marker, in any directory or above a SRC, deletes nothing: the source reports
 * itself as incomplete in END, and its DIRs and FILEs have the flag MOVED, so that no directory
 * makes room for a file either.  If the marker is for another target, too, this run does not
 * complete that move, so the marker stays.
 */

#include "copy/source/source_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/fail.h"
#include "base/log.h"

struct marked_dir {
	struct marked_dir *next;
	struct walk_dir *dir; /* a reference */
	bool needed; /* files in dir were removed */
	bool found; /* an earlier run left it */
	bool made; /* this run's target is in it */
};

/* Does --delete empty directories like d, but not the one above it? */
static bool is_top(const struct walk_dir *d)
{
	return !(d->flags & DIR_IMPLIED) && (!d->parent || (d->parent->flags & DIR_IMPLIED));
}

static struct walk_dir *top_of(struct walk_dir *d)
{
	while (!is_top(d) && d->parent)
		d = d->parent;
	return d;
}

/* NULL: no marker was found or made there. */
static struct marked_dir *find_marked_dir(const struct source *s, const struct walk_dir *top)
{
	struct marked_dir *m = s->marked;

	while (m && m->dir != top)
		m = m->next;
	return m;
}

/* What a marker in d has for this run: where in the target d goes, and which files go. */
static uint64_t marker_target(const struct source *s, const struct walk_dir *d)
{
	const uint64_t run[] = {s->copy->total.target, rules_selection(s->rules)};
	char room[NAME_MAX_WIRE];
	const char *path = walk_path(d, "", room, sizeof room);

	return XXH3_64bits_withSeed(path, strlen(path), XXH3_64bits(run, sizeof run));
}

static int add_marked_dir(struct source *s, struct walk_dir *d, bool found)
{
	struct marked_dir *m = calloc(1, sizeof *m);

	if (!m)
		return fail_as(OUT_MEMORY, "note a marker: %m");
	m->dir = walk_dir_get(d);
	m->needed = m->found = found;
	m->next = s->marked;
	s->marked = m;
	return 0;
}

/* It may be there, so nothing is deleted; nor moved, because it cannot be created. */
static void report_unread_marker(struct source *s, const char *shown)
{
	struct failure why;

	fail("read the marker of a move in %s: %m", shown);
	why = *failed();
	copy_report_failure(s->copy, shown, &why);
	pthread_mutex_lock(&s->copy->lock);
	copy_count_undeleted(s->copy, &why, false);
	pthread_mutex_unlock(&s->copy->lock);
}

/* A file may be sent before the walk comes to the directory with the marker. */
void source_find_first_markers(struct source *s)
{
	if (!s->removes || !s->rules->delete)
		return;
	for (unsigned i = 0; i < s->found.count; i++) {
		const char *path = s->found.paths[i].path;

		switch (walk_marker_find_upward(walk_open_named_dir(path))) {
		case MARKER_NOT_UPWARD:
			continue;
		case MARKER_ABOVE:
			log_warn("an earlier move of a directory above %s was not completed: this "
				 "run deletes nothing",
				 path);
			break;
		case MARKER_HERE: /* the walk reports it */
			break;
		}
		s->moved_before = s->continues_move = true;
	}
}

int source_find_marker(struct source *s, struct walk_dir *d)
{
	char room[NAME_MAX_WIRE];
	const char *shown;
	int fd, has, ret;

	if (!s->removes || !s->rules->delete)
		return 0;
	if (s->moved_before)
		d->flags |= DIR_MOVED;
	/* What cannot be entered is reported where it is listed, and nothing is deleted then. */
	if (walk_dir_use(d, &fd))
		return 0;
	has = walk_marker_find(fd, 0);
	if (has == MARKER_NONE) {
		walk_dir_release(d);
		return 0;
	}
	shown = walk_shown(d, "", room, sizeof room);
	if (has < 0)
		report_unread_marker(s, shown);
	else
		log_warn("an earlier move of %s was not completed: this run deletes nothing",
			 shown);
	walk_dir_release(d);
	d->flags |= DIR_MOVED;
	pthread_mutex_lock(&s->copy->lock);
	s->continues_move = true;
	ret = has < 0 ? 0 : add_marked_dir(s, d, true);
	pthread_mutex_unlock(&s->copy->lock);
	return ret;
}

int source_make_marker(struct source *s, struct walk_dir *dir)
{
	struct walk_dir *top = top_of(dir);
	struct marked_dir *m = find_marked_dir(s, top);
	char room[NAME_MAX_WIRE];
	int fd, ret = 0;

	if (!s->rules->delete || (m && m->made))
		return 0;
	if (!m && add_marked_dir(s, top, false))
		return -1;
	if (walk_dir_use(top, &fd))
		return -1;
	if (walk_marker_create(fd, marker_target(s, top)))
		ret = fail("create the marker of a move in %s: %m",
			   walk_shown(top, "", room, sizeof room));
	else
		find_marked_dir(s, top)->made = true;
	walk_dir_release(top);
	return ret;
}

void source_need_marker(struct source *s, struct walk_dir *dir)
{
	struct marked_dir *m = find_marked_dir(s, top_of(dir));

	if (m)
		m->needed = true;
}

/* An earlier run left the marker.  Is it for another target? */
static bool has_other_target(struct source *s, const struct marked_dir *m)
{
	int fd, is;

	if (walk_dir_use(m->dir, &fd))
		return true;
	is = walk_marker_find(fd, is_top(m->dir) ? marker_target(s, m->dir) : 0);
	walk_dir_release(m->dir);
	return is < 0 || is == MARKER_OTHERS;
}

static void report_other_target(struct source *s, const struct marked_dir *m)
{
	char room[NAME_MAX_WIRE];

	if (m->found && has_other_target(s, m))
		log_warn(
			"another move of %s was not completed: until its command has completed it, "
			"or .sluice.marker.* is removed from there, nothing is deleted",
			walk_shown(m->dir, "", room, sizeof room));
}

void source_remove_markers(struct source *s, bool needed)
{
	char room[NAME_MAX_WIRE];
	int fd;

	for (const struct marked_dir *m = s->marked; m; m = m->next) {
		if (needed)
			report_other_target(s, m);
		if ((m->needed && !needed) || !is_top(m->dir))
			continue;
		if (walk_dir_use(m->dir, &fd)) {
			log_warn("%s", failed()->text);
			continue;
		}
		if (walk_marker_remove(fd, marker_target(s, m->dir)))
			log_warn("remove the marker of a move from %s: %m; the next one deletes "
				 "nothing",
				 walk_shown(m->dir, "", room, sizeof room));
		walk_dir_release(m->dir);
	}
}

void source_free_markers(struct source *s)
{
	struct marked_dir *m;

	while ((m = s->marked) != NULL) {
		s->marked = m->next;
		walk_dir_put(m->dir);
		free(m);
	}
}
