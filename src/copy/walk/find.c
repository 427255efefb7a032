/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/walk/find.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "copy/names/name.h"
#include "copy/names/tilde.h"

static int found_add(struct found *f, const char *path, unsigned want, bool missing)
{
	char *copy = strdup(path);
	struct stat st;

	if (!copy || ARRAY_ROOM(f->paths, f->count, f->room, 1)) {
		free(copy);
		return fail_as(OUT_MEMORY, "list the sources: %m");
	}
	f->paths[f->count++] = (struct found_path){
		.path = copy,
		.want = want,
		.missing = missing,
	};
	if (!missing && (lstat(path, &st) || S_ISLNK(st.st_mode)))
		f->has_links = true;
	return 0;
}

/* Follows links: a dangling link counts as missing. */
static bool is_missing(const char *path)
{
	struct stat st;

	return stat(path, &st) && (errno == ENOENT || errno == ENOTDIR);
}

/* glob() cannot list a directory.  As in a shell, nothing matches in one without permission. */
static int on_glob_error(const char *path, int err)
{
	errno = err;
	if (err == ENOENT || err == ENOTDIR || err == ELOOP || err == EACCES || err == EPERM ||
	    err == ENAMETOOLONG)
		return 0;
	return fail("list %s: %m", path);
}

static int find_pattern(const char *path, unsigned want, struct found *out)
{
	glob_t g = {0};
	int ret = glob(path, 0, on_glob_error, &g);

	if (ret == GLOB_ABORTED) {
		ret = -1;
	} else if (ret == GLOB_NOSPACE) {
		ret = fail_as(OUT_MEMORY, "match %s: out of memory", path);
	} else if (ret != 0 || g.gl_pathc == 0) {
		ret = found_add(out, path, want, true);
	} else {
		for (size_t i = 0; ret == 0 && i < g.gl_pathc; i++)
			ret = found_add(out, g.gl_pathv[i], want, is_missing(g.gl_pathv[i]));
	}
	globfree(&g);
	return ret;
}

static int find_source(const char *name, unsigned want, bool expand, struct found *out)
{
	char path[PATH_MAX];
	struct stat st;
	bool exists;

	if (lstat(name, &st) == 0 || !expand)
		return found_add(out, name, want, is_missing(name));
	if (tilde_expand(name, path, sizeof path))
		return failed()->code == OUT_NO_SOURCE ? found_add(out, name, want, true) : -1;
	/* A pattern may be longer than a name. */
	exists = lstat(path, &st) == 0 || (errno != ENOENT && errno != ENAMETOOLONG);
	if (!exists && name_is_pattern(path))
		return find_pattern(path, want, out);
	return found_add(out, path, want, is_missing(path));
}

/* The name of path at the target; "" if only its contents go there. */
static const char *name_at_target(const char *path, char *to, size_t size)
{
	size_t len = strlen(path);

	name_last(path, to, size);
	if ((len > 0 && path[len - 1] == '/') || strcmp(to, "..") == 0)
		*to = '\0';
	return to;
}

/* Orders paths by their name at the target, then as the user wrote them; missing ones come last. */
static int compare_found(const void *a, const void *b, void *found)
{
	const struct found *f = found;
	unsigned i = *(const unsigned *)a, j = *(const unsigned *)b;
	char x[NAME_MAX + 1], y[NAME_MAX + 1];
	int order = (int)f->paths[i].missing - (int)f->paths[j].missing;

	if (order == 0)
		order = strcmp(name_at_target(f->paths[i].path, x, sizeof x),
			       name_at_target(f->paths[j].path, y, sizeof y));
	return order ? order : (i > j) - (i < j);
}

/*
 * If several sources go into one directory, a second source of one name would replace the first.
 * Lanes overtake each other, so this is decided here, not by the order of arrival.
 */
static int find_twins(struct found *f)
{
	unsigned *order = calloc(f->count, sizeof *order);
	char x[NAME_MAX + 1], y[NAME_MAX + 1];
	unsigned first = 0;

	if (f->count > 0 && !order)
		return fail_as(OUT_MEMORY, "list the sources: %m");
	for (unsigned i = 0; i < f->count; i++)
		order[i] = i;
	if (order)
		qsort_r(order, f->count, sizeof *order, compare_found, f);
	for (unsigned i = 1; i < f->count && !f->paths[order[i]].missing; i++) {
		name_at_target(f->paths[order[first]].path, x, sizeof x);
		if (*x && strcmp(x, name_at_target(f->paths[order[i]].path, y, sizeof y)) == 0)
			f->paths[order[i]].twin = order[first] + 1;
		else
			first = i;
	}
	free(order);
	return 0;
}

int find_sources(char *const *names, unsigned count, bool expand, struct found *out)
{
	*out = (struct found){0};
	for (unsigned i = 0; i < count; i++) {
		if (find_source(names[i], i, expand, out)) {
			found_free(out);
			return -1;
		}
	}
	if (find_twins(out)) {
		found_free(out);
		return -1;
	}
	return 0;
}

/* What is in a directory follows it at once. */
static int place_in_order(char c)
{
	return c == '\0' ? 0 : c == '/' ? 1 : 1 + (unsigned char)c;
}

static int compare_paths(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	while (*x && *x == *y)
		x++, y++;
	return place_in_order(*x) - place_in_order(*y);
}

/* Both without links. */
static bool is_in(const char *path, const char *dir)
{
	size_t len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

bool found_overlap(const struct found *f)
{
	char **real;
	bool overlap;
	unsigned n = 0;

	if (f->count < 2)
		return false;
	real = calloc(f->count, sizeof *real);
	overlap = !real;
	for (unsigned i = 0; !overlap && i < f->count; i++) {
		if (f->paths[i].missing)
			continue;
		real[n] = realpath(f->paths[i].path, NULL);
		overlap = !real[n++];
	}
	if (!overlap)
		qsort(real, n, sizeof *real, compare_paths);
	for (unsigned i = 1; !overlap && i < n; i++)
		overlap = is_in(real[i], real[i - 1]);
	for (unsigned i = 0; real && i < n; i++)
		free(real[i]);
	free(real);
	return overlap;
}

int find_readable(const char *name, mode_t *mode)
{
	struct stat st;

	if (stat(name, &st))
		return fail_as(errno == ENOENT || errno == ENOTDIR ? OUT_NO_SOURCE : OUT_FILE,
			       "open %s: %m", name);
	if (S_ISDIR(st.st_mode))
		return fail("%s is a directory, not a file", name);
	if (eaccess(name, R_OK))
		return fail("open %s: %m", name);
	*mode = st.st_mode;
	return 0;
}

int find_dir(const char *path, struct stat *st)
{
	return stat(path, st) == 0 && S_ISDIR(st->st_mode) ? 0 : -1;
}

void found_free(struct found *f)
{
	for (unsigned i = 0; i < f->count; i++)
		free(f->paths[i].path);
	free(f->paths);
	*f = (struct found){0};
}
