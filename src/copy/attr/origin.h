/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_ORIGIN_H
#define COPY_ATTR_ORIGIN_H

/*
 * Detects that one end reads what the other end writes.  Device and inode number identify a file
 * within a running kernel, across all containers and mount points, and the boot id identifies that
 * kernel.  The ends exchange a hash of the three.  It is equal exactly if both ends are on one
 * kernel and have the same file.  (Machines that were restored from one memory snapshot share a
 * boot id.  If they have files with the same numbers as well, these are mistaken for one.)
 */

#include <stdint.h>
#include <sys/stat.h>

struct origin {
	uint64_t hash[2]; /* 0, 0: unknown, equal to none */
};

struct origin origin_of(const struct stat *st);
static inline int origin_is_known(struct origin o)
{
	return (o.hash[0] | o.hash[1]) != 0;
}
static inline int origin_equals(struct origin a, struct origin b)
{
	return origin_is_known(a) && a.hash[0] == b.hash[0] && a.hash[1] == b.hash[1];
}

#endif
