/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_FIND_H
#define COPY_WALK_FIND_H

/*
 * Sources as a user writes them: ~ and ~user, and glob patterns where expand is set; a name
 * that exists literally wins over the pattern.  No shell is involved.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct found_path {
	char *path;
	unsigned want; /* which name it came from */
	bool missing; /* there is no such file, or nothing matches */
	unsigned
		twin; /* an earlier path whose last component is the same, its index + 1; 0: none */
};
struct found {
	struct found_path *paths; /* in the order asked for, a pattern's sorted */
	unsigned count;
	size_t room;
};
/* A name or pattern without a file is in out too, as missing: the others are copied. */
int find_sources(char *const *names, unsigned count, bool expand, struct found *out);
void found_free(struct found *f);
/* Can this file or stream be read, as far as is known without opening it?  0 with its mode, or -1:
 * OUT_NO_SOURCE, or OUT_FILE also for a directory. */
int find_readable(const char *name, mode_t *mode);

#endif
