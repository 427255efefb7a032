/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sysfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"

bool sysfs_text(char *to, size_t size, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	ssize_t got;
	int fd;

	to[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	fd = RETRIED(open(path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return false;
	got = read(fd, to, size - 1);
	close_fd(fd);
	to[got < 0 ? 0 : got] = '\0';
	got = (ssize_t)strcspn(to, "\n");
	while (got > 0 && to[got - 1] == ' ')
		got--;
	to[got] = '\0';
	return got > 0;
}

long sysfs_number(long otherwise, const char *fmt, ...)
{
	char path[PATH_MAX], text[64], *end;
	va_list ap;
	long n;

	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	if (!sysfs_text(text, sizeof text, "%s", path))
		return otherwise;
	n = strtol(text, &end, 10);
	return end == text ? otherwise : n;
}

bool sysfs_link(char *to, size_t size, const char *fmt, ...)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *last;
	va_list ap;

	to[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	if (!realpath(path, target))
		return false;
	last = strrchr(target, '/');
	snprintf(to, size, "%s", last + 1);
	return to[0] != '\0';
}

static int not_hidden(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

int sysfs_names(struct dirent ***names, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	int n;

	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	n = scandir(path, names, not_hidden, versionsort);
	if (n < 0)
		*names = NULL;
	return n < 0 ? 0 : n;
}

void sysfs_names_free(struct dirent **names, int count)
{
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
}
