/* SPDX-License-Identifier: Apache-2.0 */

/*
 * With --delete and --remove-source-files, the sink deletes what the source lacks, and the source
 * removes what the sink has.  If a run stops between two removals, its rerun must not take what was
 * moved for something that the source never had.  So before the first removal the source leaves a
 * marker in the directory that the user named, and removes it when the whole run has succeeded.
 * While the marker exists, the source reports itself as incomplete in END, so nothing is deleted.
 */

#include "copy/source/source_impl.h"

#include <stdlib.h>
#include "base/fail.h"
#include "base/log.h"

struct marked_dir {
	struct marked_dir *next;
	struct walk_dir *dir; /* a reference */
	bool needed; /* files in dir were removed */
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

static int add_marked_dir(struct source *s, struct walk_dir *d, bool needed)
{
	struct marked_dir *m = malloc(sizeof *m);

	if (!m)
		return fail_as(OUT_MEMORY, "note a marker: %m");
	m->dir = walk_dir_get(d);
	m->needed = needed;
	m->next = s->marked;
	s->marked = m;
	return 0;
}

int source_find_marker(struct source *s, struct walk_dir *d)
{
	char room[NAME_MAX_WIRE];
	int fd, has;

	if (!s->removes || !s->rules->delete || !is_top(d))
		return 0;
	/* What cannot be entered is reported where it is listed, and nothing is deleted then. */
	if (walk_dir_use(d, &fd))
		return 0;
	has = walk_marker_find(fd);
	walk_dir_release(d);
	if (has <= 0)
		return 0;
	log_warn("an earlier move of %s was not completed: this run completes it and deletes "
		 "nothing",
		 walk_shown(d, "", room, sizeof room));
	s->continues_move = true;
	return add_marked_dir(s, d, true);
}

int source_make_marker(struct source *s, struct walk_dir *dir)
{
	struct walk_dir *top = top_of(dir);
	char room[NAME_MAX_WIRE];
	int fd, ret = 0;

	if (!s->rules->delete || find_marked_dir(s, top))
		return 0;
	if (walk_dir_use(top, &fd))
		return -1;
	if (walk_marker_create(fd))
		ret = fail("create the marker of a move in %s: %m",
			   walk_shown(top, "", room, sizeof room));
	walk_dir_release(top);
	return ret ? -1 : add_marked_dir(s, top, false);
}

void source_need_marker(struct source *s, struct walk_dir *dir)
{
	struct marked_dir *m = find_marked_dir(s, top_of(dir));

	if (m)
		m->needed = true;
}

void source_remove_markers(struct source *s, bool needed)
{
	char room[NAME_MAX_WIRE];
	int fd;

	for (const struct marked_dir *m = s->marked; m; m = m->next) {
		if (m->needed && !needed)
			continue;
		if (walk_dir_use(m->dir, &fd)) {
			log_warn("%s", failed()->text);
			continue;
		}
		if (walk_marker_remove(fd))
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
