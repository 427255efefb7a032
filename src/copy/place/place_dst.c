/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_dst.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/names/name.h"
#include "copy/names/tilde.h"

enum { LINKS_MAX = 40 /* as in the kernel */, PROC_ROOT_INODE = 1 };

static int open_dst_dir(const char *path, struct dst *s)
{
	s->dirfd = RETRIED(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (s->dirfd < 0)
		return fail("open %s: %m", path);
	return 0;
}

static int sync_made_dir(const char *path)
{
	int fd = RETRIED(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int ret = fd < 0 || fsync(fd) ? fail("fsync directory %s: %m", path) : 0;

	close_fd(fd);
	return ret;
}

/* Makes a directory and its missing parents.  durable: fsyncs what the new ones are in. */
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
			if (durable && sync_made_dir(parent))
				return -1;
		} else if (errno != EEXIST) {
			return fail("make directory %s: %m", part);
		}
	}
	return 0;
}

/* Splits a path into its parent directory and its last component. */
static int split_path(const char *path, char *dir, size_t size, char name[static NAME_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;

	if (!name_is_plain(last))
		return fail("create %s: not a file name", path);
	snprintf(name, NAME_MAX + 1, "%s", last);
	if (!slash)
		snprintf(dir, size, ".");
	else
		snprintf(dir, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return 0;
}

/* Replaces the path of a dangling symlink by the path that it leads to. */
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
			if (split_path(path, dir, sizeof dir, name))
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

/* May DST become a directory that a source makes? */
static bool is_tree_copy(const struct place_opts *o)
{
	return o->rules->recursive || o->rules->listed;
}

static int resolve_missing_dir(const struct place_opts *o, struct dst *s)
{
	if (o->rules->dry_run) {
		s->dir_missing = true;
		return 0;
	}
	return make_dirs(s->shown, o->rules->fsync) ? -1 : open_dst_dir(s->shown, s);
}

static int resolve_missing(const struct place_opts *o, bool slash, struct dst *s)
{
	char path[PATH_MAX], dir[PATH_MAX];
	struct stat st;

	/* With -T the source itself becomes DST. */
	if ((slash || o->many) && o->rules->mkpath && !o->rules->no_target_dir)
		return resolve_missing_dir(o, s);
	s->dir_only = slash;
	if (o->many || (slash && !is_tree_copy(o)))
		return dst_fail_needs_dir(o, s);
	memcpy(path, s->shown, sizeof path);
	for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
		path[len - 1] = '\0';
	if (follow_dangling(path) || split_path(path, dir, sizeof dir, s->name))
		return -1;
	if (stat(dir, &st) && errno == ENOENT) {
		if (!o->rules->mkpath)
			return fail("create %s: directory %s does not exist (--mkpath makes it)",
				    s->shown, dir);
		s->dir_missing = o->rules->dry_run;
		if (!s->dir_missing && make_dirs(dir, o->rules->fsync))
			return -1;
	}
	return s->dir_missing ? 0 : open_dst_dir(dir, s);
}

/* ---- a target that exists ------------------------------------------------------------------ */

/* A name in a held directory, while symlinks are followed one by one. */
struct trail {
	int dirfd;
	char name[NAME_MAX + 1];
	bool in_procfs; /* the directory is in a procfs */
	/* the name is a link in it that leads to an open file, whatever its text says */
	bool is_procfs_link;
};

static int stat_trail(struct trail *t, bool *is_root)
{
	struct statfs fs;
	struct stat st;

	if (RETRIED(fstatfs(t->dirfd, &fs)) || fstat(t->dirfd, &st))
		return -1;
	t->in_procfs = fs.f_type == PROC_SUPER_MAGIC;
	*is_root = st.st_ino == PROC_ROOT_INODE;
	return 0;
}

/* Follows one symlink.  1; 0: the name is no symlink, or one in procfs whose text does not count;
 * -1 with errno. */
static int follow_one_link(struct trail *t)
{
	char to[PATH_MAX], dir[PATH_MAX];
	ssize_t n = readlinkat(t->dirfd, t->name, to, sizeof to - 1);
	bool is_root;
	int fd;

	if ((n < 0 && errno != EINVAL) || stat_trail(t, &is_root))
		return -1;
	/* Directly below /proc are ordinary symlinks only (mounts, net). */
	t->is_procfs_link = n >= 0 && t->in_procfs && !is_root;
	if (n < 0 || t->is_procfs_link)
		return 0;
	to[n] = '\0';
	if (split_path(to, dir, sizeof dir, t->name)) {
		errno = EINVAL;
		return -1;
	}
	fd = RETRIED(openat(t->dirfd, dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0)
		return -1;
	close_fd(t->dirfd);
	t->dirfd = fd;
	return 1;
}

/* Resolves symlinks as the kernel does.  Resolving the text of a path would be wrong below
 * /proc/PID/root or cwd, because that text belongs to another mount namespace. */
static int follow_links(const char *path, struct trail *t)
{
	char dir[PATH_MAX];
	int ret = 1;

	*t = (struct trail){.dirfd = -1};
	if (split_path(path, dir, sizeof dir, t->name))
		return -1;
	t->dirfd = RETRIED(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (t->dirfd < 0)
		return fail("open %s: %m", dir);
	for (int i = 0; ret > 0 && i < LINKS_MAX; i++)
		ret = follow_one_link(t);
	if (ret > 0)
		errno = ELOOP;
	if (ret == 0)
		return 0;
	fail("follow %s: %m", path);
	close_fd(t->dirfd);
	return -1;
}

/* If the link is in /proc/PID/fd, or in a thread's directory, of this process: its descriptor. Else
 * -1. */
static int find_own_descriptor(const struct trail *t)
{
	char link[40], dir[64];
	ssize_t n;
	int pid, at = 0;

	if (!t->is_procfs_link || !t->name[0] || t->name[strspn(t->name, "0123456789")])
		return -1;
	snprintf(link, sizeof link, "/proc/self/fd/%d", t->dirfd);
	n = readlink(link, dir, sizeof dir - 1);
	dir[n < 0 ? 0 : n] = '\0';
	if (sscanf(dir, "/proc/%d/%n", &pid, &at) != 1 || at == 0 || pid != getpid())
		return -1;
	return atoi(t->name);
}

int dst_descriptor(const char *path)
{
	struct failure before = *failed();
	struct trail t;
	int own_fd;

	if (follow_links(path, &t)) {
		fail_again(&before);
		return -1;
	}
	own_fd = find_own_descriptor(&t);
	close_fd(t.dirfd);
	return own_fd;
}

int dst_fail_keeps_nothing(const char *shown)
{
	return fail_as(OUT_USAGE,
		       "--remove-source-files: %s is not a regular file, and does not keep what is "
		       "written to it",
		       shown);
}

/* DST cannot be replaced by a temporary: it is opened by its path. */
static int set_by_path_dst(const struct place_opts *o, const struct trail *t, struct dst *s)
{
	s->by_path = true;
	s->is_procfs_link = t->is_procfs_link;
	s->own_fd = find_own_descriptor(t);
	if (o->rules->remove_source)
		return dst_fail_keeps_nothing(s->shown);
	/* A descriptor that the user passed was recognized before this (cmd/cli/operand.h). */
	if (s->own_fd >= 0 && s->own_fd != STDERR_FILENO)
		return fail(
			"open %s: this descriptor is the program's own, not one that you opened",
			s->shown);
	return 0;
}

static int resolve_existing(const struct place_opts *o, bool regular, struct dst *s)
{
	struct trail t;

	if (follow_links(s->shown, &t))
		return -1;
	if (!regular || t.in_procfs) {
		int ret = set_by_path_dst(o, &t, s);

		close_fd(t.dirfd);
		return ret;
	}
	s->dirfd = t.dirfd;
	memcpy(s->name, t.name, sizeof s->name);
	return 0;
}

int dst_fail_needs_dir(const struct place_opts *o, const struct dst *s)
{
	if (o->rules->no_target_dir)
		return fail("create %s: not a file name", s->shown);
	return fail("%s: no such directory (--mkpath makes it)", s->shown);
}

int dst_resolve(const struct place_opts *o, struct dst *s)
{
	const char *target = *o->target ? o->target : ".";
	bool slash = target[strlen(target) - 1] == '/';
	struct stat st;

	*s = (struct dst){.dirfd = -1, .own_fd = -1};
	if (o->expand) {
		if (tilde_expand(target, s->shown, sizeof s->shown))
			return fail("%s", failed()->text);
	} else if (snprintf(s->shown, sizeof s->shown, "%s", target) >= (int)sizeof s->shown) {
		return fail("%s: name too long", target);
	}
	if (stat(s->shown, &st)) {
		if (errno != ENOENT)
			return fail("open %s: %m", s->shown);
		return resolve_missing(o, slash || o->many, s);
	}
	if (S_ISDIR(st.st_mode)) {
		if (o->rules->no_target_dir && !is_tree_copy(o))
			return fail("%s is a directory, not a file", s->shown);
		return open_dst_dir(s->shown, s);
	}
	if (o->many)
		return fail("%s is not a directory", s->shown);
	return resolve_existing(o, S_ISREG(st.st_mode), s);
}

int dst_open(const struct dst *s)
{
	if (s->own_fd >= 0)
		return fcntl(s->own_fd, F_DUPFD_CLOEXEC, 0);
	return open(s->shown, O_WRONLY | O_CLOEXEC | O_NOCTTY);
}

int dst_truncate(const struct dst *s, int fd, uint64_t size)
{
	struct stat st;

	if (!s->is_procfs_link || s->own_fd >= 0)
		return 0;
	if (fstat(fd, &st))
		return -1;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size <= size)
		return 0;
	return ftruncate(fd, (off_t)size);
}

int dst_writable(const struct dst *s, bool inplace)
{
	if (s->dir_missing)
		return 0;
	if (s->by_path)
		return eaccess(s->shown, W_OK) ? fail("open %s: %m", s->shown) : 0;
	if (inplace && faccessat(s->dirfd, s->name, F_OK, AT_EACCESS) == 0)
		return faccessat(s->dirfd, s->name, W_OK, AT_EACCESS)
			       ? fail("open %s: %m", s->shown)
			       : 0;
	return faccessat(s->dirfd, ".", W_OK | X_OK, AT_EACCESS) ? fail("create %s: %m", s->shown)
								 : 0;
}

void dst_close(struct dst *s)
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
	fd = RETRIED(openat(top, path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	return fd < 0 ? fail("open %s: %m", path) : fd;
}

int backups_find(int top, const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);
	int fd = -1;

	if (len >= sizeof part) {
		errno = ENAMETOOLONG;
		return -1;
	}
	while (fd < 0 && len > 0) {
		snprintf(part, sizeof part, "%.*s", (int)len, path);
		fd = RETRIED(openat(top, part, O_PATH | O_DIRECTORY | O_CLOEXEC));
		if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
			return -1;
		while (len > 0 && path[len - 1] == '/')
			len--;
		while (len > 0 && path[len - 1] != '/')
			len--;
	}
	if (fd < 0)
		errno = ENOENT;
	return fd;
}

int backups_find_whole(int top, const char *path)
{
	return RETRIED(openat(top, path, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

int backups_find_parent(int top, const char *path, char name[static NAME_MAX + 1])
{
	char part[PATH_MAX];
	size_t len = strlen(path), from;

	while (len > 1 && (path[len - 1] == '/' || (path[len - 1] == '.' && path[len - 2] == '/')))
		len--;
	for (from = len; from > 0 && path[from - 1] != '/';)
		from--;
	if (from == len || len - from > NAME_MAX || from >= sizeof part)
		return -1;
	snprintf(name, NAME_MAX + 1, "%.*s", (int)(len - from), path + from);
	snprintf(part, sizeof part, "%.*s", (int)from, path);
	return RETRIED(openat(top, from > 0 ? part : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

int procfs_open(void)
{
	return RETRIED(open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
}
