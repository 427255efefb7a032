/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/own_files.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include "base/io.h"

enum { OUTPUTS = 4 };

static struct {
	dev_t dev;
	ino_t ino;
	bool listed_otherwise; /* directories list it with another number */
} own[OUTPUTS];
static unsigned count;

void own_files_add(int fd)
{
	struct statfs fs = {.f_type = 0};
	struct stat st;

	if (count == OUTPUTS || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return;
	own[count].dev = st.st_dev;
	own[count].ino = st.st_ino;
	own[count].listed_otherwise =
		RETRIED(fstatfs(fd, &fs)) || (unsigned long)fs.f_type == OVERLAYFS_SUPER_MAGIC;
	count++;
}

bool own_files_may_have(uint64_t ino)
{
	for (unsigned i = 0; i < count; i++) {
		if (own[i].ino == ino || own[i].listed_otherwise)
			return true;
	}
	return false;
}

bool own_files_has(const struct stat *st)
{
	for (unsigned i = 0; i < count; i++) {
		if (own[i].ino == st->st_ino && own[i].dev == st->st_dev)
			return true;
	}
	return false;
}
