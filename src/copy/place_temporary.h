/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_TEMPORARY_H
#define COPY_PLACE_TEMPORARY_H

/*
 * Temporaries: ".sluice." and 16 hex digits of a hash of the final name and the user, locked
 * (flock) while in use.  What a run that was interrupted left is taken over; where somebody
 * else is at it, or it is none of ours, a random suffix is added, and such a one is removed by
 * any later run to that directory once its lock is free.
 */

#include <stdbool.h>

enum { TEMPORARY_NAME = 40 };

struct temporary {
	int fd;
	char name[TEMPORARY_NAME];
	bool random; /* has a suffix: no later run would take it over */
};

/* An empty one for a file of this name in that directory; 0600.  -1 with errno set. */
int temporary_open(int dirfd, const char *name, struct temporary *out);
/* Remove those that runs left that are no more. */
void temporaries_sweep(int dirfd);

#endif
