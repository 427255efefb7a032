/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/walk/walk_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/names/own_name.h"
#include "copy/walk/walk_dir.h"
#include "protocol/message.h"

static int fail_to_list(const char *path)
{
	enum outcome code = errno == ENOENT || errno == ENOTDIR ? OUT_NO_SOURCE : OUT_FILE;

	return fail_as(code, "list %s: %m", path);
}

/* Passes name on; one that is not there any more is left out. */
static int list_name(int dirfd, const char *name, walk_list_each *each, void *ctx)
{
	char link[LINK_TARGET_MAX + 1] = "";
	struct stat st;

	if (walk_stat(dirfd, name, false, &st))
		return errno == ENOENT ? 0 : fail("list %s: %m", name);
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = walk_read_link(dirfd, name, link, sizeof link);

		link[n < 0 ? 0 : n] = '\0';
	}
	return each(ctx, name, &st, link);
}

static int list_dir(const char *path, walk_list_each *each, void *ctx)
{
	const char *opened = *path ? path : ".";
	int fd = RETRIED(open(opened, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ret = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		ret = fail_to_list(opened);
		close_fd(fd);
		return ret;
	}
	while (ret == 0 && (errno = 0, e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    own_name_kind(e->d_name) == NAME_OF_USER)
			ret = list_name(fd, e->d_name, each, ctx);
	}
	if (ret == 0 && errno)
		ret = fail("list %s: %m", opened);
	closedir(dir);
	return ret;
}

/* The directory that path is in is opened, then path's last component in it. */
static int list_one(const char *path, walk_list_each *each, void *ctx)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char parent[PATH_MAX] = ".";
	struct stat st;
	int fd, ret;

	if (lstat(path, &st))
		return fail_to_list(path);
	if (slash && (size_t)(slash - path) < sizeof parent) {
		memcpy(parent, path, (size_t)(slash - path));
		parent[slash - path] = '\0';
	}
	fd = RETRIED(open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0)
		return fail_to_list(path);
	ret = list_name(fd, name, each, ctx);
	close_fd(fd);
	return ret;
}

int walk_list(const char *path, walk_list_each *each, void *ctx)
{
	size_t len = strlen(path);

	return len == 0 || path[len - 1] == '/' ? list_dir(path, each, ctx)
						: list_one(path, each, ctx);
}
