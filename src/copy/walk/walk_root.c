/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/name.h"
#include "copy/names/own_files.h"
#include "copy/walk/walk_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"

/* One component of a path: the path up to its end, and its name. */
struct component {
	size_t end;
	char name[NAME_MAX + 1];
};

/* With --relative: finds the next component of path from *at on.  False: there is none.  A
 * component that is too long for a name is cut, because nothing can be opened by it. */
static bool next_component(const char *path, size_t *at, struct component *c)
{
	size_t from, len;

	do {
		from = *at + strspn(path + *at, "/");
		len = strcspn(path + from, "/");
		*at = from + len;
	} while (len == 1 && path[from] == '.');
	c->end = *at;
	snprintf(c->name, sizeof c->name, "%.*s", (int)(len < NAME_MAX ? len : NAME_MAX),
		 path + from);
	return len > 0;
}

static void drop_implied(struct walk *w, unsigned from)
{
	while (w->implied_count > from)
		walk_dir_put(w->implied[--w->implied_count]);
}

/* Enters the implied directory path[0..end], unless the root before this one led through it, too.
 * -1: that failed.  -2: the walk fails. */
static int enter_implied_dir(struct walk *w, const struct found_path *p, const struct component *c,
			     unsigned depth)
{
	struct walk_dir *parent = depth ? w->implied[depth - 1] : NULL;
	struct walk_dir_opts o = {
		.parent = parent,
		.name = c->name,
		.want = p->want,
		.flags = DIR_IMPLIED,
	};
	struct walk_dir *d;
	char *path = strndup(p->path, c->end);
	int ret = -1;

	if (depth < w->implied_count && path && strcmp(w->implied[depth]->path, path) == 0) {
		free(path);
		return 0;
	}
	drop_implied(w, depth);
	if (!path || ARRAY_ROOM(w->implied, w->implied_count, w->implied_room, 1)) {
		free(path);
		return fail_as(OUT_MEMORY, "read directories of %s: %m", p->path);
	}
	o.path = path;
	if (walk_dir_open(&w->dirs, &o, &d) == 0) {
		w->implied[w->implied_count++] = d;
		ret = w->out->dir(w->out->ctx, d) || walk_add(w, WALK_DIR, "") ||
				      walk_emit(w, d, NULL)
			      ? -2
			      : 0;
	} else if (d) {
		walk_dir_put(d);
	}
	free(path);
	return ret;
}

/* Enters all components of the path but the last one, which goes to *last ("": there is none).  -1:
 * that failed.  -2: the walk fails. */
static int enter_leading_dirs(struct walk *w, const struct found_path *p, struct component *last,
			      unsigned *depth)
{
	size_t at = (size_t)(name_relative(p->path) - p->path);
	struct component c;
	int ret = 0;

	last->name[0] = '\0';
	*depth = 0;
	while (ret == 0 && next_component(p->path, &at, &c)) {
		if (strcmp(c.name, "..") == 0)
			return fail_as(
				OUT_USAGE,
				"copy %s: --relative cannot recreate .. (a/./b recreates only b)",
				p->path);
		if (last->name[0])
			ret = enter_implied_dir(w, p, last, (*depth)++);
		*last = c;
	}
	return ret;
}

static int fail_root(struct walk *w, const struct found_path *p)
{
	return walk_fail(w, NULL, p->path) ? -1 : 1;
}

static int enter_root(struct walk *w, const struct found_path *p, const struct walk_dir_opts *o,
		      bool whole, const struct files_from_node *listed)
{
	struct walk_dir *d;
	int ret = walk_dir_open(&w->dirs, o, &d);

	if (!d) {
		w->incomplete = true;
		return fail_root(w, p);
	}
	w->dev = d->held.dev;
	return walk_enter(w, d, ret, whole, listed) ? -1 : 1;
}

/* Do only the contents of the root go to the target? */
static bool root_means_contents(const struct walk *w, const char *path, const char *name)
{
	return w->o.rules->no_target_dir || !*name || strcmp(name, "..") == 0 ||
	       path[strlen(path) - 1] == '/';
}

bool walk_merges(const struct walk_opts *o)
{
	char name[NAME_MAX + 1];

	if (o->found->count < 2 || o->rules->listed)
		return false;
	for (unsigned i = 0; i < o->found->count; i++) {
		const char *path = o->found->paths[i].path;

		name_last(path, name, sizeof name);
		if (o->rules->relative || !*name || strcmp(name, "..") == 0 ||
		    path[strlen(path) - 1] == '/')
			return o->rules->recursive || o->rules->relative;
	}
	return false;
}

/* Claims the root's name in the target.  0, or what walk_next_root() has to return.  flags: of a
 * directory; NULL: a file. */
static int claim_root_name(struct walk *w, const struct found_path *p, struct walk_dir *in,
			   const char *name, uint32_t *flags)
{
	enum walk_name first;

	/* With -T a file becomes the target itself, which fails later if that is a directory. */
	if (p->missing || w->o.rules->no_target_dir)
		return 0;
	first = walk_claim_name(w, in, name, flags);
	/* It is the same file.  A second copy would turn the first one into the backup. */
	if (first == WALK_NAME_TAKEN && w->names_one_file)
		return 1;
	if (first == WALK_NAME_AGAIN && flags)
		*flags |= DIR_AGAIN;
	if (first == WALK_NAME_AGAIN)
		return 0;
	if (first == WALK_NAME_NEW || first == WALK_NAME_FAILED)
		return first == WALK_NAME_NEW ? 0 : -1;
	fail("copy %s: an earlier source has the same name", p->path);
	return fail_root(w, p);
}

static uint32_t contents_flags(struct walk *w)
{
	uint32_t flags = DIR_CONTENTS | (w->has_contents ? DIR_AGAIN : 0);

	w->has_contents = true;
	return flags;
}

static int enter_tree(struct walk *w, const struct found_path *p)
{
	char name[NAME_MAX + 1];
	struct walk_dir_opts o = {
		.path = p->path,
		.name = name_last(p->path, name, sizeof name),
		.want = p->want,
		.listable = true,
	};
	int ret;

	if (root_means_contents(w, p->path, name)) {
		name[0] = '\0';
		o.flags = contents_flags(w);
	} else if (walk_excludes(w, NULL, name, true)) {
		return 1;
	} else if ((ret = claim_root_name(w, p, NULL, name, &o.flags)) != 0) {
		return ret;
	} else if (w->o.found->count > 1) {
		o.flags |= DIR_MANY;
	}
	return enter_root(w, p, &o, true, NULL);
}

static int enter_listed_root(struct walk *w, const struct found_path *p)
{
	const struct files_from_node *top = files_from_top(w->o.rules->listed);
	bool itself = files_from_is_named(top), whole = itself && w->o.rules->recursive;
	struct walk_dir_opts o = {
		.path = p->path,
		.name = "",
		.want = p->want,
		.flags = DIR_CONTENTS | (itself ? 0 : DIR_IMPLIED),
		.listable = whole,
	};

	return enter_root(w, p, &o, whole, top);
}

static int add_named_root(struct walk *w, const struct found_path *p, struct walk_dir *in,
			  const char *name)
{
	int ret;

	/* A missing source is reported even if its name is excluded. */
	if (!p->missing && walk_excludes(w, in, name, false))
		return 1;
	ret = claim_root_name(w, p, in, name, NULL);
	if (ret)
		return ret;
	return walk_add(w, WALK_NAMED, p->path) || walk_emit(w, in, p) ? -1 : 1;
}

/* Is the root excluded?  Then the directories that lead to it are not made either. */
static bool excludes_relative(struct walk *w, const char *path, bool is_dir)
{
	char whole[NAME_MAX_WIRE] = "";
	size_t at = (size_t)(name_relative(path) - path), len = 0;
	struct component c;

	while (next_component(path, &at, &c)) {
		size_t more = strlen(c.name) + (len > 0);

		if (len + more >= sizeof whole)
			return false;
		sprintf(whole + len, "%s%s", len > 0 ? "/" : "", c.name);
		len += more;
	}
	return len > 0 && walk_excludes(w, NULL, whole, is_dir);
}

static int enter_relative(struct walk *w, const struct found_path *p, bool is_dir)
{
	struct component last;
	unsigned depth;
	int ret;
	struct walk_dir_opts o = {
		.path = p->path,
		.want = p->want,
		.listable = true,
	};

	if (excludes_relative(w, p->path, is_dir))
		return 1;
	ret = enter_leading_dirs(w, p, &last, &depth);
	if (ret)
		return ret == -1 ? fail_root(w, p) : -1;
	o.name = last.name;
	o.parent = depth ? w->implied[depth - 1] : NULL;
	if (!is_dir)
		return add_named_root(w, p, o.parent, last.name);
	if (!last.name[0])
		o.flags = contents_flags(w);
	else if (walk_excludes(w, o.parent, last.name, true))
		return 1;
	else if ((ret = claim_root_name(w, p, o.parent, last.name, &o.flags)) != 0)
		return ret;
	return enter_root(w, p, &o, true, NULL);
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* 1: the root exists; links are followed.  0: it does not, or is a dangling link.  -1: failure. */
static int stat_root(const char *path, struct stat *st)
{
	struct stat link;

	*st = (struct stat){.st_mode = 0};
	if (stat(path, st)) {
		int err = errno;
		bool is_failure = err == EIO || err == ENOMEM || err == ESTALE;

		/* A link to where this user has no permission is still a link. */
		if (err == EACCES)
			is_failure = lstat(path, &link) != 0 || !S_ISLNK(link.st_mode);
		errno = err;
		return is_failure ? fail("stat %s: %m", path) : 0;
	}
	return 1;
}

/* The earlier source that has its name.  A directory without -r fails, so it does not count. */
static const struct found_path *find_twin(const struct walk *w, const struct found_path *p)
{
	const struct rules *r = w->o.rules;
	const struct found_path *first;

	if (!p->twin || r->relative || r->listed)
		return NULL;
	first = &w->o.found->paths[p->twin - 1];
	if (r->recursive)
		return first;
	for (const struct found_path *q = first; q < p; q++) {
		if ((q == first || q->twin == p->twin) && !is_directory(q->path))
			return q;
	}
	return NULL;
}

int walk_next_root(struct walk *w)
{
	const struct rules *r = w->o.rules;
	const struct found_path *p = &w->o.found->paths[w->next_root], *twin;
	struct stat st;
	bool is_dir;
	char name[NAME_MAX + 1];
	int exists;

	if (w->next_root >= w->o.found->count)
		return 0;
	w->next_root++;
	twin = find_twin(w, p);
	if (twin) {
		fail("copy %s: the earlier source %s has the same name", p->path, twin->path);
		return fail_root(w, p);
	}
	exists = stat_root(p->path, &st);
	is_dir = S_ISDIR(st.st_mode);
	/* Its contents are unknown, so nothing may be deleted. */
	if (exists <= 0)
		w->incomplete = true;
	if (exists > 0 && own_files_has(&st)) {
		fail("copy %s: this command writes it", p->path);
		return fail_root(w, p);
	}
	if (exists < 0)
		return fail_root(w, p);
	if (is_dir && r->listed)
		return enter_listed_root(w, p);
	if (r->listed && !p->missing) {
		fail("%s is not a directory (--files-from requires one)", p->path);
		return fail_root(w, p);
	}
	if (is_dir && !r->recursive) {
		fail("%s is a directory (-r copies it)", p->path);
		return fail_root(w, p);
	}
	if (r->relative && !p->missing)
		return enter_relative(w, p, is_dir);
	if (is_dir)
		return enter_tree(w, p);
	return add_named_root(w, p, NULL, name_last(p->path, name, sizeof name));
}

bool walk_is_one_file(const struct walk *w)
{
	const struct rules *r = w->o.rules;
	const struct found *f = w->o.found;

	return f->count == 1 && !((r->recursive || r->listed) && is_directory(f->paths[0].path));
}
