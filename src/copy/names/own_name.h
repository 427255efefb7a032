/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_OWN_NAME_H
#define COPY_NAMES_OWN_NAME_H

/*
 * The names of Sluice's own files.  The source skips them, --delete knows them, and the sweep
 * removes what killed runs left.
 *
 *	.sluice.H		a temporary that a later run may take over
 *	.sluice.H.R		any other temporary
 *	.sluice.marker.H	a marker (place_marker.c, source_marker.c)
 *
 * H is a hash in 16 lower-case hex digits, R is random in 8.  Any other name is the user's.
 */

#include <stdint.h>

enum { OWN_NAME_ROOM = 40 };

enum own_name_kind {
	NAME_OF_USER,
	NAME_HASHED,
	NAME_RANDOM,
	NAME_MARKER,
};
enum own_name_kind own_name_kind(const char *name);

void own_name_hashed(uint64_t hash, char to[static OWN_NAME_ROOM]);
/* -1 with errno: the kernel has no random bytes. */
int own_name_random(uint64_t hash, char to[static OWN_NAME_ROOM]);
void own_name_marker(uint64_t hash, char to[static OWN_NAME_ROOM]);

#endif
