/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/failed_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"

struct failed_list {
	const char *path;
	char *temporary; /* NULL: path is not a regular file, and is written in place */
	FILE *file;
	bool any;
	int error; /* errno of the first failed write */
};

static int open_list_temporary(struct failed_list *l)
{
	mode_t mask = umask(0);
	int fd;

	umask(mask);
	if (asprintf(&l->temporary, "%s.XXXXXX", l->path) < 0) {
		l->temporary = NULL;
		return -1;
	}
	fd = mkstemp(l->temporary);
	if (fd < 0) {
		free(l->temporary);
		l->temporary = NULL;
		return -1;
	}
	fchmod(fd, 0666 & ~mask);
	l->file = fdopen(fd, "w");
	return l->file ? 0 : -1;
}

int failed_list_open(const char *path, struct failed_list **out)
{
	struct failed_list *l = calloc(1, sizeof *l);
	struct stat st;
	int rc;

	if (!l)
		return fail_as(OUT_MEMORY, "write %s: %m", path);
	l->path = path;
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		l->file = fopen(path, "we");
		rc = l->file ? 0 : -1;
	} else {
		rc = open_list_temporary(l);
	}
	if (rc) {
		fail("write %s: %m", path);
		failed_list_close(l, false);
		return -1;
	}
	*out = l;
	return 0;
}

void failed_list_add(struct failed_list *l, const char *name, size_t len)
{
	l->any = true;
	fwrite(name, 1, len, l->file);
	fputc('\0', l->file);
	if (ferror(l->file) && !l->error)
		l->error = errno;
}

bool failed_list_empty(const struct failed_list *l)
{
	return !l->any;
}

int failed_list_close(struct failed_list *l, bool keep)
{
	int rc = 0;

	if (!l)
		return 0;
	if (l->file && fclose(l->file) && !l->error)
		l->error = errno;
	errno = l->error;
	if (l->error && keep)
		rc = fail("write %s: %m", l->path);
	if (l->temporary && keep && !rc && rename(l->temporary, l->path))
		rc = fail("rename %s to %s: %m", l->temporary, l->path);
	if (l->temporary && (!keep || rc))
		unlink(l->temporary);
	free(l->temporary);
	free(l);
	return rc;
}
