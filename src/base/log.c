/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/escape.h"

/* A line has at most PIPE_BUF bytes, so that write(2) does not mix lines of several processes. */
enum { TEXT_ROOM = 2048, LINE_ROOM = 4096 };

typedef void (*line_fn)(enum log_level level, const char *line);

static const char *_Atomic program = "sluice";
static atomic_int max_level = LOG_WARN;
static _Atomic(line_fn) line_handler;

void log_setup(const char *name, enum log_level most)
{
	atomic_store(&program, name);
	atomic_store(&max_level, most);
}

void log_to(void (*to)(enum log_level level, const char *line))
{
	atomic_store(&line_handler, to);
}

static void write_line(const char *text)
{
	char line[LINE_ROOM];
	size_t len;
	ssize_t n;

	snprintf(line, sizeof line, "%.64s: ", atomic_load(&program));
	len = strlen(line);
	escape(line + len, sizeof line - len - 1, text, strlen(text));
	len += strlen(line + len);
	line[len++] = '\n';
	/* Do not repeat after a partial write: the rest could land in another process's line. */
	do {
		n = write(STDERR_FILENO, line, len);
	} while (n < 0 && errno == EINTR);
}

void log_at(enum log_level level, const char *fmt, ...)
{
	int err = errno;
	char text[TEXT_ROOM];
	line_fn to = atomic_load(&line_handler);
	va_list ap;

	if ((int)level > atomic_load(&max_level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (to)
		to(level, text);
	else
		write_line(text);
	errno = err;
}
