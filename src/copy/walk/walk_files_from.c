/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/own_files.h"
#include "copy/walk/walk_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"

static bool has_listed_below(const struct files_from_node *n)
{
	const char *name;
	size_t at = 0;

	return files_from_next(n, &at, &name) != NULL;
}

static int fail_listed_tree(struct walk *w, struct walk_dir *d, const struct files_from_node *n,
			    char path[static NAME_MAX_WIRE], size_t len, int error);

/* Fails each listed name below n, with errno error.  path: of n in d, of len bytes. */
static int fail_listed_below(struct walk *w, struct walk_dir *d, const struct files_from_node *n,
			     char path[static NAME_MAX_WIRE], size_t len, int error)
{
	const struct files_from_node *child;
	const char *name;
	size_t at = 0;
	int more;

	while ((child = files_from_next(n, &at, &name)) != NULL) {
		more = snprintf(path + len, NAME_MAX_WIRE - len, "/%s", name);
		if (more < 0 || (size_t)more >= NAME_MAX_WIRE - len)
			continue;
		if (fail_listed_tree(w, d, child, path, len + (size_t)more, error))
			return -1;
	}
	path[len] = '\0';
	return 0;
}

/* As fail_listed_below(), and for n itself if it is listed. */
static int fail_listed_tree(struct walk *w, struct walk_dir *d, const struct files_from_node *n,
			    char path[static NAME_MAX_WIRE], size_t len, int error)
{
	char room[FAIL_TEXT_MAX / 2];

	if (files_from_is_named(n)) {
		errno = error;
		fail_as(error == ENOENT ? OUT_NO_SOURCE : OUT_FILE, "open %s: %m",
			walk_shown(d, path, room, sizeof room));
		if (walk_fail(w, d, path))
			return -1;
	}
	return fail_listed_below(w, d, n, path, len, error);
}

static int fail_listed_entry(struct walk *w, struct walk_dir *d, const struct files_from_node *n,
			     const char *name, int error)
{
	char path[NAME_MAX_WIRE];
	int len = snprintf(path, sizeof path, "%s", name);

	return fail_listed_tree(w, d, n, path, (size_t)len, error);
}

static int enter_listed_dir(struct walk *w, struct walk_frame *f, const struct files_from_node *n,
			    const char *name, bool itself, bool follow)
{
	bool whole = itself && w->o.rules->recursive;
	struct walk_dir_opts o = {
		.parent = f->dir,
		.name = name,
		.want = f->dir->want,
		.flags = itself ? 0 : DIR_IMPLIED,
		.follow = follow,
		.listable = whole,
	};
	struct walk_dir *d;
	int ret = walk_dir_open(&w->dirs, &o, &d);

	if (!d) {
		w->incomplete = true;
		return walk_fail(w, f->dir, name);
	}
	return walk_enter(w, d, ret, whole, n);
}

/* A name that leads to listed names is not a directory: those fail, and the name itself is copied
 * if it is listed. */
static int scan_file_not_dir(struct walk *w, struct walk_frame *f, int fd,
			     const struct files_from_node *n, const char *name, bool itself)
{
	char path[NAME_MAX_WIRE];
	int len = snprintf(path, sizeof path, "%s", name);
	struct stat st;

	if (fail_listed_below(w, f->dir, n, path, (size_t)len, ENOTDIR))
		return -1;
	/* The link was followed only to see where it leads: copy it as a link. */
	if (!itself || walk_stat(fd, name, w->o.rules->copy_links, &st))
		return 0;
	return walk_add_mode(w, f->dir, st.st_mode, name);
}

static bool is_any_included_below(struct walk *w, struct walk_dir *d,
				  const struct files_from_node *n, char path[static NAME_MAX_WIRE],
				  size_t len, int fd);

/* Is the listed entry n, called name in fd, or anything listed below it, not excluded? */
static bool is_any_included(struct walk *w, struct walk_dir *d, const struct files_from_node *n,
			    char path[static NAME_MAX_WIRE], size_t len, int fd, const char *name)
{
	bool leads = has_listed_below(n), follow = leads || w->o.rules->copy_links, included;
	struct stat st;
	int in;

	/* The walk reports this failure when it gets there. */
	if (walk_stat(fd, name, follow, &st))
		return true;
	if (files_from_is_named(n) && !walk_excludes(w, d, path, S_ISDIR(st.st_mode)))
		return true;
	if (!leads || !S_ISDIR(st.st_mode))
		return leads;
	in = walk_open_path(fd, name, true);
	if (in < 0)
		return true;
	included = is_any_included_below(w, d, n, path, len, in);
	close(in);
	return included;
}

/* Is anything that is listed below n not excluded?  path is n's in d, of len bytes, fd its
 * descriptor. */
static bool is_any_included_below(struct walk *w, struct walk_dir *d,
				  const struct files_from_node *n, char path[static NAME_MAX_WIRE],
				  size_t len, int fd)
{
	const struct files_from_node *child;
	const char *name;
	size_t at = 0;
	bool included = false;
	int more;

	while (!included && (child = files_from_next(n, &at, &name)) != NULL) {
		more = snprintf(path + len, NAME_MAX_WIRE - len, "/%s", name);
		included = more < 0 || (size_t)more >= NAME_MAX_WIRE - len ||
			   is_any_included(w, d, child, path, len + (size_t)more, fd, name);
	}
	path[len] = '\0';
	return included;
}

/* A directory that leads only to excluded names is not made. */
static bool is_all_excluded_below(struct walk *w, struct walk_dir *d,
				  const struct files_from_node *n, int fd, const char *name)
{
	char path[NAME_MAX_WIRE];
	int len = snprintf(path, sizeof path, "%s", name), in;
	bool included;

	in = w->o.rules->filter ? walk_open_path(fd, name, true) : -1;
	if (in < 0)
		return false;
	included = is_any_included_below(w, d, n, path, (size_t)len, in);
	close(in);
	return !included;
}

/* A name that only leads to listed names may be a symbolic link, because the user wrote it.  As
 * with rsync, patterns do not apply to it. */
static int scan_listed_entry(struct walk *w, struct walk_frame *f, int fd,
			     const struct files_from_node *n, const char *name)
{
	bool leads = has_listed_below(n), follow = leads || w->o.rules->copy_links, itself;
	struct stat st;

	if (walk_stat(fd, name, follow, &st))
		return fail_listed_entry(w, f->dir, n, name, errno);
	itself = files_from_is_named(n) && !walk_excludes(w, f->dir, name, S_ISDIR(st.st_mode));
	if (!itself && !leads)
		return 0;
	if (S_ISDIR(st.st_mode) && !itself && is_all_excluded_below(w, f->dir, n, fd, name))
		return 0;
	if (S_ISDIR(st.st_mode))
		return enter_listed_dir(w, f, n, name, itself, follow);
	if (leads)
		return scan_file_not_dir(w, f, fd, n, name, itself);
	if (own_files_has(&st))
		return walk_skip_own_file(w, f->dir, name);
	return walk_add_mode(w, f->dir, st.st_mode, name);
}

bool walk_leads_to_listed(struct walk *w, struct walk_frame *f, int fd, const char *name)
{
	const struct files_from_node *n = f->listed ? files_from_child(f->listed, name) : NULL;

	return n && has_listed_below(n) && !is_all_excluded_below(w, f->dir, n, fd, name);
}

int walk_enter_leading(struct walk *w, struct walk_frame *f, const char *name)
{
	return enter_listed_dir(w, f, files_from_child(f->listed, name), name, false,
				w->o.rules->copy_links);
}

int walk_read_listed(struct walk *w, struct walk_frame *f)
{
	const struct files_from_node *n;
	const char *name;
	int fd, ret = 0;

	if (walk_dir_use(f->dir, &fd)) {
		f->over = true;
		w->incomplete = true;
		return walk_fail(w, f->dir, "");
	}
	/* Until the piece is full, or a directory was entered. */
	while (ret == 0 && w->top == f && w->count < WALK_ENTRIES && !f->over) {
		n = files_from_next(f->listed, &f->listed_at, &name);
		if (n)
			ret = scan_listed_entry(w, f, fd, n, name);
		f->over = !n;
	}
	walk_dir_release(f->dir);
	return ret;
}

int walk_check_listed(struct walk *w, struct walk_frame *f)
{
	const struct files_from_node *n;
	const char *name;
	struct stat st;
	int fd, ret = 0;
	size_t at = 0;

	if (walk_dir_use(f->dir, &fd))
		return -1;
	while (ret == 0 && (n = files_from_next(f->listed, &at, &name)) != NULL) {
		if (walk_stat(fd, name, false, &st))
			ret = fail_listed_entry(w, f->dir, n, name, errno);
	}
	walk_dir_release(f->dir);
	return ret;
}
