/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/repeated_lines.h"

#include <stdio.h>
#include <string.h>

static const char *find_reason(const char *line)
{
	const char *reason = strchr(line, ' ');

	for (const char *p = line; (p = strstr(p, ": ")); p += 2)
		reason = p + 2;
	return reason && *reason == ' ' ? reason + 1 : reason;
}

bool repeated_lines_show(struct repeated_lines *r, const char *line)
{
	const char *reason = find_reason(line);

	if (!reason || strlen(reason) >= REPEATED_LINES_TEXT)
		return true;
	for (unsigned i = 0; i < REPEATED_LINES_REASONS; i++) {
		if (!r->of[i].count)
			snprintf(r->of[i].reason, REPEATED_LINES_TEXT, "%s", reason);
		if (strcmp(r->of[i].reason, reason) == 0)
			return ++r->of[i].count <= REPEATED_LINES_SHOWN;
	}
	return true;
}

unsigned long repeated_lines_hidden(const struct repeated_lines *r, unsigned i)
{
	if (i >= REPEATED_LINES_REASONS || r->of[i].count <= REPEATED_LINES_SHOWN)
		return 0;
	return r->of[i].count - REPEATED_LINES_SHOWN;
}
