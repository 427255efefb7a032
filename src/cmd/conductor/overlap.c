/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/overlap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fail.h"
#include "copy/names/name.h"

static bool is_tree(const struct options *o)
{
	return o->rules.recursive || o->files_from;
}

/* Whether path stands for the contents of a directory, not the directory itself. */
static bool names_dir_contents(const struct options *o, const char *path)
{
	size_t len = strlen(path);
	char last[NAME_MAX_WIRE];

	return is_tree(o) &&
	       (o->files_from || o->rules.no_target_dir || (len && path[len - 1] == '/') ||
		!*name_last(path, last, sizeof last));
}

static bool is_same_stat(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_copied_onto_itself(const struct options *o, const struct operand *source,
				  const struct operand *target)
{
	struct stat a, b;
	char name[NAME_MAX_WIRE], path[2 * NAME_MAX_WIRE];

	if (source->host[0])
		return strcmp(source->path, target->path) == 0;
	if (stat(source->path, &a) || stat(target->path, &b) ||
	    (!S_ISREG(a.st_mode) && !(S_ISDIR(a.st_mode) && is_tree(o))))
		return false;
	if (S_ISDIR(b.st_mode) && !o->rules.no_target_dir && !names_dir_contents(o, source->path)) {
		name_last(source->path, name, sizeof name);
		snprintf(path, sizeof path, "%s/%s", target->path, name);
		/* A symlink there is replaced, not followed. */
		if (lstat(path, &b))
			return false;
	}
	return is_same_stat(&a, &b);
}

/* Removes the last component. Returns false if there is none. */
static bool cut_last_component(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || strcmp(path, "/") == 0)
		return false;
	slash[slash == path] = '\0';
	return true;
}

/* Returns the real path of the longest existing prefix of path, or NULL. The caller frees it. */
static char *real_target(const char *path)
{
	char at[NAME_MAX_WIRE];
	char *real;

	if ((size_t)snprintf(at, sizeof at, "%s", path) >= sizeof at)
		return NULL;
	while (!(real = realpath(at, NULL))) {
		if (!cut_last_component(at))
			return realpath(".", NULL);
	}
	return real;
}

/* Whether the target is inside the source directory. */
static bool is_copied_into_itself(const struct options *o, const struct operand *source,
				  const struct operand *target)
{
	struct stat dir, at;
	size_t len = strlen(source->path);
	char *real;
	bool inside = false;

	if (!o->rules.recursive || o->files_from)
		return false;
	if (source->host[0])
		return strncmp(source->path, target->path, len) == 0 && len &&
		       (source->path[len - 1] == '/' || target->path[len] == '/');
	if (stat(source->path, &dir) || !S_ISDIR(dir.st_mode))
		return false;
	real = real_target(target->path);
	if (!real)
		return false;
	do {
		inside = stat(real, &at) == 0 && is_same_stat(&dir, &at);
	} while (!inside && cut_last_component(real));
	free(real);
	return inside;
}

/* The sink detects collisions within one session; this detects those between several hosts. */
static bool would_collide(const struct options *o, const struct operand *a, const struct operand *b)
{
	char one[NAME_MAX_WIRE], two[NAME_MAX_WIRE];

	if (names_dir_contents(o, a->path) || names_dir_contents(o, b->path))
		return false;
	name_last(a->path, one, sizeof one);
	name_last(b->path, two, sizeof two);
	return strcmp(a->host, b->host) != 0 && strcmp(one, two) == 0 && !name_is_pattern(one);
}

unsigned overlap_count_hosts(const struct operand *sources, unsigned count)
{
	unsigned hosts = 0;

	for (unsigned i = 0; i < count; i++) {
		bool seen = false;

		for (unsigned k = 0; k < i && !seen; k++)
			seen = strcmp(sources[k].host, sources[i].host) == 0;
		hosts += !seen;
	}
	return hosts;
}

static int fail_several_hosts(const char *what)
{
	return fail_as(
		OUT_USAGE,
		"%s: the sources are on several hosts, which are copied one after the other: "
		"run rdcp once for each host",
		what);
}

/* A session knows only its own sources: with these options a later session would delete or
 * overwrite what an earlier one stored. */
static int check_hosts(const struct options *o, const struct operand *sources, unsigned count)
{
	if (overlap_count_hosts(sources, count) < 2)
		return 0;
	if (o->rules.delete)
		return fail_several_hosts("--delete");
	if (o->rules.remove_source)
		return fail_several_hosts("--remove-source-files");
	if (o->rules.relative)
		return fail_several_hosts("--relative");
	for (unsigned i = 0; i < count; i++) {
		if (names_dir_contents(o, sources[i].path))
			return fail_several_hosts(o->operands[i]);
	}
	return 0;
}

int overlap_check(const struct options *o, const struct operand *sources, unsigned count,
		  const struct operand *target)
{
	const char *to = o->operands[count];

	if (check_hosts(o, sources, count))
		return -1;
	for (unsigned i = 0; i < count; i++) {
		const struct operand *s = &sources[i];
		bool near = !s->stdio && !target->stdio && strcmp(s->host, target->host) == 0;

		if (near && is_copied_onto_itself(o, s, target))
			return fail("%s and %s are the same %s", o->operands[i], to,
				    is_tree(o) ? "directory or file" : "file");
		if (near && is_copied_into_itself(o, s, target))
			return fail("%s is in %s, which can't be copied into itself", to,
				    o->operands[i]);
		for (unsigned k = 0; k < i; k++) {
			if (would_collide(o, s, &sources[k]))
				return fail("%s and %s would be the same file in %s",
					    o->operands[k], o->operands[i], to);
		}
	}
	return 0;
}
