/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char here[FOLDER_PATH];

int folder_make(char path[static FOLDER_PATH])
{
	snprintf(path, FOLDER_PATH, "/tmp/sluice-unit-XXXXXX");
	return mkdtemp(path) ? 0 : -1;
}

static int remove_all(int in, const char *name)
{
	struct dirent *e;
	struct stat st;
	DIR *d;
	int fd;

	if (fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
		return unlinkat(in, name, 0);
	if (unlinkat(in, name, AT_REMOVEDIR) == 0)
		return 0;
	if (fchmodat(in, name, 0700, 0))
		return -1;
	fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || !(d = fdopendir(fd)))
		return -1;
	while ((e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			remove_all(fd, e->d_name);
	}
	closedir(d);
	return unlinkat(in, name, AT_REMOVEDIR);
}

int folder_remove(const char *path)
{
	return remove_all(AT_FDCWD, path);
}

int folder_enter(void **state)
{
	(void)state;
	umask(022);
	return folder_make(here) || chdir(here) ? -1 : 0;
}

int folder_leave(void **state)
{
	(void)state;
	return chdir("/") || folder_remove(here) ? -1 : 0;
}
