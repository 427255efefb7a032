/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the names under which a directory lists what other names lead to.  Where a file system
 * folds names, `foo' may lead to what is listed as `Foo', and --delete must not take that for
 * another thing.  The file system itself is asked, because only it knows which names it folds.
 */

#include "copy/place/place_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

static int compare_alias_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_inodes(const void *a, const void *b)
{
	const struct inode *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* The next entry.  NULL with errno; 0: the end. */
static const char *read_next_name(DIR *dir)
{
	const struct dirent *e;

	do {
		errno = 0;
		e = readdir(dir);
	} while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
	return e ? e->d_name : NULL;
}

/* Marks the names that the directory lists as they are.  Returns an errno. */
static int mark_listed(DIR *dir, const struct taken *names, bool *listed)
{
	const char *name;

	while ((name = read_next_name(dir)) != NULL) {
		char **at = bsearch(&name, names->names, names->count, sizeof *names->names,
				    compare_alias_names);

		if (at)
			listed[at - names->names] = true;
	}
	return errno;
}

/* Collects the inodes that all other names lead to, sorted.  Returns how many. */
static size_t find_unlisted_inodes(int dirfd, const struct taken *names, const bool *listed,
				   struct inode *found)
{
	struct stat st;
	size_t n = 0;

	for (size_t i = 0; i < names->count; i++) {
		if (!listed[i] && fstatat(dirfd, names->names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			found[n++] = (struct inode){.dev = st.st_dev, .ino = st.st_ino};
	}
	qsort(found, n, sizeof *found, compare_inodes);
	return n;
}

/* Returns an errno. */
static int report_aliases(DIR *dir, int dirfd, const struct inode *found, size_t count,
			  int (*alias)(void *ctx, const char *name), void *ctx)
{
	const char *name;
	struct stat st;

	rewinddir(dir);
	while ((name = read_next_name(dir)) != NULL) {
		struct inode inode;

		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		inode = (struct inode){.dev = st.st_dev, .ino = st.st_ino};
		if (bsearch(&inode, found, count, sizeof *found, compare_inodes) &&
		    alias(ctx, name))
			return ENOMEM;
	}
	return errno;
}

int aliases_find(int dirfd, struct taken *names, int (*alias)(void *ctx, const char *name),
		 void *ctx)
{
	struct inode *found;
	bool *listed;
	int fd, err;
	DIR *dir;
	size_t n;

	if (names->count == 0)
		return 0;
	taken_sort(names);
	fd = dir_reopen(dirfd);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		err = errno ? errno : EIO;
		close_fd(fd);
		return err;
	}
	listed = calloc(names->count, sizeof *listed);
	found = calloc(names->count, sizeof *found);
	err = listed && found ? mark_listed(dir, names, listed) : ENOMEM;
	n = err ? 0 : find_unlisted_inodes(dirfd, names, listed, found);
	if (n > 0)
		err = report_aliases(dir, dirfd, found, n, alias, ctx);
	free(listed);
	free(found);
	closedir(dir);
	return err;
}
