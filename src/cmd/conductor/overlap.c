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

/* The name that a source gets in the target. */
struct target_name {
	char *name;
	unsigned source; /* its index */
};

static int compare_target_names(const void *a, const void *b)
{
	const struct target_name *one = a, *two = b;
	int differ = strcmp(one->name, two->name);

	return differ ? differ : (one->source > two->source) - (one->source < two->source);
}

static void free_target_names(struct target_name *list, unsigned count)
{
	while (list && count > 0)
		free(list[--count].name);
	free(list);
}

/* In the order of their names.  NULL: out of memory. */
static struct target_name *list_target_names(const struct operand *sources, unsigned count)
{
	struct target_name *list = calloc(count, sizeof *list);
	char name[NAME_MAX_WIRE];

	for (unsigned i = 0; list && i < count; i++) {
		name_last(sources[i].path, name, sizeof name);
		list[i] = (struct target_name){.name = strdup(name), .source = i};
		if (!list[i].name) {
			free_target_names(list, i);
			list = NULL;
		}
	}
	if (list)
		qsort(list, count, sizeof *list, compare_target_names);
	return list;
}

/* The sink detects collisions within one session; this detects those between several hosts, of
 * sources of which none stands for the contents of a directory. */
static int check_names(const struct options *o, const struct operand *sources, unsigned count,
		       const char *to)
{
	struct target_name *list = list_target_names(sources, count);
	int ret = 0;

	if (!list)
		return fail_as(OUT_MEMORY, "compare the names of the sources: %m");
	for (unsigned i = 1; i < count && ret == 0; i++) {
		unsigned a = list[i - 1].source, b = list[i].source;

		if (strcmp(list[i].name, list[i - 1].name) == 0 &&
		    strcmp(sources[a].host, sources[b].host) != 0 && !name_is_pattern(list[i].name))
			ret = fail("%s and %s would be the same file in %s", o->operands[a],
				   o->operands[b], to);
	}
	free_target_names(list, count);
	return ret;
}

bool overlap_first_of_host(const struct operand *sources, unsigned i)
{
	for (unsigned k = 0; k < i; k++) {
		if (strcmp(sources[k].host, sources[i].host) == 0)
			return false;
	}
	return true;
}

unsigned overlap_count_hosts(const struct operand *sources, unsigned count)
{
	unsigned hosts = 0;

	for (unsigned i = 0; i < count; i++) {
		hosts += overlap_first_of_host(sources, i);
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
static int check_hosts(const struct options *o, const struct operand *sources, unsigned count,
		       const char *to)
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
	return check_names(o, sources, count, to);
}

int overlap_check(const struct options *o, const struct operand *sources, unsigned count,
		  const struct operand *target)
{
	const char *to = o->operands[count];

	if (check_hosts(o, sources, count, to))
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
	}
	return 0;
}
