/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text_file.h"

#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/io.h"

enum { ROOM = TEXT_FILE_MAX + 1 };

static int fill_text(int fd, const char *path, char *text)
{
	ssize_t n = read_full(fd, text, ROOM);

	if (n < 0)
		return fail("read %s: %m", path);
	if (n > TEXT_FILE_MAX)
		return fail_as(OUT_USAGE, "%s is larger than 1 MiB", path);
	if (memchr(text, 0, (size_t)n))
		return fail_as(OUT_USAGE, "%s has a NUL", path);
	text[n] = '\0';
	return 0;
}

char *text_file_read(int fd, const char *path)
{
	char *text = malloc(ROOM);

	if (!text) {
		fail_as(OUT_MEMORY, "read %s: %m", path);
		return NULL;
	}
	if (fill_text(fd, path, text)) {
		text_file_free(text);
		return NULL;
	}
	return text;
}

void text_file_free(char *text)
{
	if (text)
		explicit_bzero(text, ROOM);
	free(text);
}
