/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/table.h"

enum { PAGE = 4096 }; /* the most that a file of sysfs holds */

/* ---- what is kept ---------------------------------------------------------------------------- */

static enum { READS, KEEPS, FROZEN } mode;

/* The answer to one question. */
struct kept_file {
	char *text; /* of a file, or a link; lines of names of a directory */
	char question[]; /* what was asked: a letter and the path */
};
static struct table all_kept = TABLE_BY_STRING(kept_file, question);

enum { ROOM = PATH_MAX + 1 };

static void compose_question(char kind, const char *path, char to[static ROOM])
{
	snprintf(to, ROOM, "%c%s", kind, path);
}

static void free_answer(void *kept)
{
	struct kept_file *k = kept;

	if (k)
		free(k->text);
	free(k);
}

/* Without memory the answer is not kept: it affects speed, or RDMA is not used. */
static void keep_answer(char kind, const char *path, const char *text)
{
	char question[ROOM];
	struct kept_file *k;
	void *old = NULL;

	if (mode != KEEPS)
		return;
	compose_question(kind, path, question);
	k = malloc(sizeof *k + strlen(question) + 1);
	if (!k)
		return;
	memcpy(k->question, question, strlen(question) + 1);
	k->text = strdup(text);
	if (!k->text || table_put(&all_kept, k, &old))
		free_answer(k);
	free_answer(old);
}

static const char *find_answer(char kind, const char *path)
{
	char question[ROOM];
	const struct kept_file *k;

	compose_question(kind, path, question);
	k = table_find(&all_kept, question);
	return k ? k->text : "";
}

void sysfs_keep(void)
{
	mode = KEEPS;
}

void sysfs_freeze(void)
{
	mode = FROZEN;
}

void sysfs_forget(void)
{
	mode = READS;
	table_clear(&all_kept, free_answer);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void read_first_line(const char *path, char to[static PAGE + 1])
{
	int fd = RETRIED(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t got = fd < 0 ? 0 : read(fd, to, PAGE);

	close_fd(fd);
	to[got < 0 ? 0 : got] = '\0';
	got = (ssize_t)strcspn(to, "\n");
	while (got > 0 && to[got - 1] == ' ')
		got--;
	to[got] = '\0';
}

static bool find_text(const char *path, char *to, size_t size)
{
	char line[PAGE + 1];

	if (mode == FROZEN) {
		snprintf(to, size, "%s", find_answer('f', path));
	} else {
		read_first_line(path, line);
		keep_answer('f', path, line);
		snprintf(to, size, "%s", line);
	}
	return to[0] != '\0';
}

bool sysfs_text(char *to, size_t size, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	return find_text(path, to, size);
}

long sysfs_number(long otherwise, const char *fmt, ...)
{
	char path[PATH_MAX], text[64], *end;
	va_list ap;
	long n;

	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	if (!find_text(path, text, sizeof text))
		return otherwise;
	n = strtol(text, &end, 10);
	return end == text ? otherwise : n;
}

/* ---- links ----------------------------------------------------------------------------------- */

bool sysfs_link(char *to, size_t size, const char *fmt, ...)
{
	char path[PATH_MAX], target[PATH_MAX] = "";
	const char *last;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	if (mode == FROZEN) {
		snprintf(to, size, "%s", find_answer('l', path));
		return to[0] != '\0';
	}
	last = realpath(path, target) ? strrchr(target, '/') : NULL;
	snprintf(to, size, "%s", last ? last + 1 : "");
	keep_answer('l', path, to);
	return to[0] != '\0';
}

/* ---- directories ----------------------------------------------------------------------------- */

static int not_hidden(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* One line for each name. */
static void keep_names(const char *path, struct dirent *const *names, int count)
{
	char *text = NULL;
	size_t size;
	FILE *f = mode == KEEPS ? open_memstream(&text, &size) : NULL;

	if (!f)
		return;
	for (int i = 0; i < count; i++)
		fprintf(f, "%s\n", names[i]->d_name);
	/* If it lacks memory for the last time, fclose(3) only takes the text away. */
	if (fclose(f) == 0 && text)
		keep_answer('d', path, text);
	free(text);
}

static int find_names(const char *path, struct dirent ***names)
{
	const char *text = find_answer('d', path);
	int n = 0, count = 0;

	for (const char *at = text; *at; at++)
		count += *at == '\n';
	*names = count ? calloc((size_t)count, sizeof **names) : NULL;
	for (; *names && n < count; n++, text += strcspn(text, "\n") + 1) {
		struct dirent *e = calloc(1, sizeof *e);

		if (!e)
			break;
		snprintf(e->d_name, sizeof e->d_name, "%.*s", (int)strcspn(text, "\n"), text);
		(*names)[n] = e;
	}
	return n;
}

int sysfs_names(struct dirent ***names, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	int n;

	va_start(ap, fmt);
	vsnprintf(path, sizeof path, fmt, ap);
	va_end(ap);
	if (mode == FROZEN)
		return find_names(path, names);
	n = scandir(path, names, not_hidden, versionsort);
	if (n < 0)
		*names = NULL;
	n = n < 0 ? 0 : n;
	keep_names(path, *names, n);
	return n;
}

void sysfs_names_free(struct dirent **names, int count)
{
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
}
