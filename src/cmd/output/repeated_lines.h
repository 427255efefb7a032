/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_REPEATED_LINES_H
#define CMD_OUTPUT_REPEATED_LINES_H

/*
 * A full or read-only target fails every file of a tree for one reason. So only the first lines of
 * each reason are shown, and the rest is counted. The reason of a line is the text after its last
 * ": ", or its first word, a name. One thread.
 */

#include <stdbool.h>

enum { REPEATED_LINES_SHOWN = 10, REPEATED_LINES_REASONS = 8, REPEATED_LINES_TEXT = 128 };

struct repeated_lines {
	struct {
		char reason[REPEATED_LINES_TEXT];
		unsigned long count;
	} of[REPEATED_LINES_REASONS];
};

/* Counts line; returns false if enough lines of its reason were shown. Initialize with zeros. Lines
 * of more reasons than fit are always shown. */
bool repeated_lines_show(struct repeated_lines *r, const char *line);
/* The number of lines of reason i that were not shown; 0: none, or no such reason. */
unsigned long repeated_lines_hidden(const struct repeated_lines *r, unsigned i);

#endif
