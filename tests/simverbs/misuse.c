/* SPDX-License-Identifier: Apache-2.0 */
#include "misuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One write, so that lines of several processes do not mix. */
__attribute__((format(printf, 1, 0))) static void print_line(const char *fmt, va_list ap)
{
	char line[512];
	int n = snprintf(line, sizeof line, "simverbs: ");
	int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);

	n = m < 0 ? n : n + m;
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line(fmt, ap);
	va_end(ap);
}

void misuse(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line(fmt, ap);
	va_end(ap);
	abort();
}
