/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_REPEATS_H
#define CMD_CLI_REPEATS_H

/*
 * A full or read-only target fails every file of a tree for one reason.  The first lines of each
 * reason are shown, the rest is counted.  The reason of a line is what follows its last ": ", or
 * its first word, a name. One thread.
 */

#include <stdbool.h>

enum { REPEATS_SHOWN = 10, REPEATS_REASONS = 8, REPEATS_TEXT = 128 };

struct repeats {
	struct {
		char reason[REPEATS_TEXT];
		unsigned long count;
	} of[REPEATS_REASONS];
};

/* Count line; false when enough of its reason were shown.  All zeros is an empty one; lines of
 * more reasons than there is room for are always shown. */
bool repeats_show(struct repeats *r, const char *line);
/* How many of reason i were not shown; 0: none, or there is no such reason. */
unsigned long repeats_hidden(const struct repeats *r, unsigned i);

#endif
