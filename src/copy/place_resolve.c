/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/find.h"

enum { LINKS_MAX = 40 };

static int hold_dir(const char *path, struct spot *s)
{
	s->dirfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0)
		return fail("open %s: %m", path);
	return 0;
}

static int sync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = fd < 0 || fsync(fd) ? fail("fsync the directory %s: %m", path) : 0;

	close_fd(fd);
	return ret;
}

/* Make a directory and all that lead to it; durable: those that are new. */
static int make_dirs(const char *path, bool durable)
{
	char part[PATH_MAX], parent[PATH_MAX] = ".";
	size_t len = 0;

	while (path[len]) {
		len += strspn(path + len, "/");
		if (len > 0)
			snprintf(parent, sizeof parent, "%.*s", (int)len, path);
		len += strcspn(path + len, "/");
		snprintf(part, sizeof part, "%.*s", (int)len, path);
		if (mkdir(part, 0777) == 0) {
			if (durable && sync_dir(parent))
				return -1;
		} else if (errno != EEXIST) {
			return fail("make directory %s: %m", part);
		}
	}
	return 0;
}

/* The directory that a path's last component is in, and that component. */
static int split(const char *path, char *dir, size_t size, char name[static NAME_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;

	if (!name_is_plain(last))
		return fail("create %s: not the name of a file", path);
	snprintf(name, NAME_MAX + 1, "%s", last);
	if (!slash)
		snprintf(dir, size, ".");
	else
		snprintf(dir, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return 0;
}

/* A symbolic link that leads nowhere yet: to where it leads. */
static int follow_dangling(char path[static PATH_MAX])
{
	char to[PATH_MAX], dir[PATH_MAX], joined[2 * PATH_MAX];
	char name[NAME_MAX + 1];

	for (int i = 0; i < LINKS_MAX; i++) {
		ssize_t n = readlink(path, to, sizeof to - 1);

		if (n < 0)
			return 0;
		to[n] = '\0';
		if (to[0] == '/') {
			snprintf(joined, sizeof joined, "%s", to);
		} else {
			if (split(path, dir, sizeof dir, name))
				return -1;
			snprintf(joined, sizeof joined, "%s/%s", dir, to);
		}
		if (strlen(joined) >= PATH_MAX)
			return fail("follow %s: name too long", path);
		memcpy(path, joined, strlen(joined) + 1);
	}
	errno = ELOOP;
	return fail("follow %s: %m", path);
}

/* Does it name a directory that trees may make? */
static bool holds_trees(const struct place_opts *o)
{
	return o->rules->recursive || o->rules->listed;
}

static int resolve_missing_dir(const struct place_opts *o, struct spot *s)
{
	if (o->rules->dry_run) {
		s->nowhere = true;
		return 0;
	}
	return make_dirs(s->shown, o->fsync) ? -1 : hold_dir(s->shown, s);
}

static int resolve_missing(const struct place_opts *o, bool slash, struct spot *s)
{
	char path[PATH_MAX], dir[PATH_MAX];
	struct stat st;

	if ((slash || o->many) && o->mkpath)
		return resolve_missing_dir(o, s);
	s->dir_only = slash;
	if (o->many || (slash && !holds_trees(o)))
		return spot_needs_dir(s);
	memcpy(path, s->shown, sizeof path);
	for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
		path[len - 1] = '\0';
	if (follow_dangling(path) || split(path, dir, sizeof dir, s->name))
		return -1;
	if (stat(dir, &st) && errno == ENOENT) {
		if (!o->mkpath)
			return fail("create %s: directory %s does not exist (--mkpath makes it)",
				    s->shown, dir);
		s->nowhere = o->rules->dry_run;
		if (!s->nowhere && make_dirs(dir, o->fsync))
			return -1;
	}
	return s->nowhere ? 0 : hold_dir(dir, s);
}

/* Names of descriptors lead to files that somebody holds open: not to be replaced. */
static bool names_descriptor(const char *path)
{
	return strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0 ||
	       strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/", 6) == 0;
}

static int resolve_file(struct spot *s)
{
	char dir[PATH_MAX];
	char *real = realpath(s->shown, NULL);
	int ret;

	if (!real)
		return fail("open %s: %m", s->shown);
	ret = split(real, dir, sizeof dir, s->name);
	if (ret == 0)
		ret = hold_dir(dir, s);
	free(real);
	return ret;
}

int spot_needs_dir(const struct spot *s)
{
	return fail("%s: no such directory (--mkpath makes it)", s->shown);
}

int spot_resolve(const struct place_opts *o, struct spot *s)
{
	const char *target = *o->target ? o->target : ".";
	bool slash = target[strlen(target) - 1] == '/';
	struct stat st;

	*s = (struct spot){.dirfd = -1};
	if (o->expand) {
		if (expand_tilde(target, s->shown, sizeof s->shown))
			return -1;
	} else if (snprintf(s->shown, sizeof s->shown, "%s", target) >= (int)sizeof s->shown) {
		return fail("%s: name too long", target);
	}
	if (stat(s->shown, &st)) {
		if (errno != ENOENT)
			return fail("open %s: %m", s->shown);
		return resolve_missing(o, slash || o->many, s);
	}
	if (S_ISDIR(st.st_mode)) {
		if (o->no_target_dir && !holds_trees(o))
			return fail("%s is a directory, not a file", s->shown);
		return hold_dir(s->shown, s);
	}
	if (o->many)
		return fail("%s is not a directory", s->shown);
	s->direct = !S_ISREG(st.st_mode) || names_descriptor(s->shown);
	return s->direct ? 0 : resolve_file(s);
}

int spot_open(const struct spot *s)
{
	struct stat st;

	if (strcmp(s->shown, "/dev/stdout") == 0 && fstat(STDOUT_FILENO, &st) == 0 &&
	    S_ISREG(st.st_mode))
		return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	return open(s->shown, O_WRONLY | O_CLOEXEC | O_NOCTTY);
}

void spot_close(struct spot *s)
{
	close_fd(s->dirfd);
	s->dirfd = -1;
}

int backups_open(int top, const char *path)
{
	char part[PATH_MAX];
	size_t len = 0;
	int fd;

	if (strlen(path) >= sizeof part)
		return fail("make directory %s: name too long", path);
	while (path[len]) {
		len += strspn(path + len, "/");
		len += strcspn(path + len, "/");
		snprintf(part, sizeof part, "%.*s", (int)len, path);
		if (mkdirat(top, part, 0777) && errno != EEXIST)
			return fail("make directory %s: %m", part);
	}
	fd = openat(top, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? fail("open %s: %m", path) : fd;
}

int backups_find(int top, const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);
	int fd = -1;

	if (len >= sizeof part)
		return -1;
	while (fd < 0 && len > 0) {
		snprintf(part, sizeof part, "%.*s", (int)len, path);
		fd = openat(top, part, O_PATH | O_DIRECTORY | O_CLOEXEC);
		while (len > 0 && path[len - 1] == '/')
			len--;
		while (len > 0 && path[len - 1] != '/')
			len--;
	}
	return fd;
}

int procfs_open(void)
{
	return open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
}
