/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/failed_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/random.h"
#include "copy/names/own_files.h"

enum { TRIES = 100 };

struct failed_list {
	const char *path;
	char *temporary; /* NULL: path is not a regular file, and is written in place */
	FILE *file;
	bool any;
	int error; /* errno of the first failed write */
};

/* Makes a new file FILE.XXXXXX with the mode that FILE would get. */
static int make_list_temporary(struct failed_list *l)
{
	uint8_t r[3];
	int fd = -1;

	for (int try = 0; fd < 0 && (try == 0 || (errno == EEXIST && try < TRIES)); try++) {
		free(l->temporary);
		l->temporary = NULL;
		if (random_bytes(r, sizeof r))
			return -1;
		if (asprintf(&l->temporary, "%s.%02x%02x%02x", l->path, r[0], r[1], r[2]) < 0) {
			l->temporary = NULL;
			return -1;
		}
		fd = RETRIED(open(l->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
	}
	return fd;
}

static int open_list_temporary(struct failed_list *l)
{
	int fd = make_list_temporary(l);

	if (fd < 0) {
		free(l->temporary);
		l->temporary = NULL;
		return -1;
	}
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
	own_files_add(fileno(l->file));
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
