/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/log_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/escape.h"
#include "base/fail.h"
#include "copy/names/own_files.h"
#include "protocol/message.h"

enum { TEXT_MOST = 64 << 10 };

struct log_file {
	const char *path;
	FILE *file; /* its lock also protects the other fields */
	int error; /* errno of the first failed write */
	bool reported;
	time_t stamp_second; /* the time that stamp shows */
	char stamp[40];
};

int log_file_open(const char *path, struct log_file **out)
{
	struct log_file *l = calloc(1, sizeof *l);

	if (!l)
		return fail_as(OUT_MEMORY, "write %s: %m", path);
	l->path = path;
	l->file = fopen(path, "ae");
	if (!l->file) {
		fail("open %s: %m", path);
		free(l);
		return -1;
	}
	own_files_add(fileno(l->file));
	*out = l;
	return 0;
}

static const char *format_stamp(struct log_file *l)
{
	time_t now = time(NULL);
	struct tm tm;

	if (now != l->stamp_second) {
		l->stamp_second = now;
		localtime_r(&now, &tm);
		strftime(l->stamp, sizeof l->stamp, "%Y-%m-%dT%H:%M:%S%z", &tm);
	}
	return l->stamp;
}

static void note_error(struct log_file *l)
{
	if (ferror(l->file) && !l->error)
		l->error = errno;
}

void log_file_add(struct log_file *l, const char *word, const void *text, size_t len)
{
	static char escaped[4 * TEXT_MOST + 1];
	char first[4 * EVENT_CHANGE];

	flockfile(l->file);
	escape(escaped, sizeof escaped, text, len);
	/* An itemized change comes from a peer. */
	escape(first, sizeof first, word, strlen(word));
	fprintf(l->file, "%s [%d] %s %s\n", format_stamp(l), (int)getpid(), first, escaped);
	note_error(l);
	funlockfile(l->file);
}

void log_file_flush(struct log_file *l)
{
	flockfile(l->file);
	fflush(l->file);
	note_error(l);
	funlockfile(l->file);
}

static int report_log_error(struct log_file *l)
{
	if (!l->error || l->reported)
		return 0;
	l->reported = true;
	errno = l->error;
	return fail("write %s: %m", l->path);
}

int log_file_check(struct log_file *l)
{
	log_file_flush(l);
	return report_log_error(l);
}

int log_file_close(struct log_file *l)
{
	int rc;

	if (!l)
		return 0;
	if (fclose(l->file) && !l->error)
		l->error = errno;
	rc = report_log_error(l);
	free(l);
	return rc;
}
