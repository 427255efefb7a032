/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_ORIGIN_H
#define COPY_ATTR_ORIGIN_H

/*
 * Is what an end reads what the other one writes?  Device and inode number name a file among all of
 * a running kernel, whatever containers and mount points the ends see it by, and its boot id names
 * that kernel.  The ends exchange a hash of these: it is equal exactly where both are on one kernel
 * and have the same file.  (Machines that were restored from one snapshot of memory share a boot
 * id; where they have a file of one number as well, it is taken for one.)
 */

#include <stdint.h>
#include <sys/stat.h>

struct origin {
	uint64_t hash[2]; /* 0, 0: not known, and nobody's */
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
