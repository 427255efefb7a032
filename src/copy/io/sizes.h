/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_SIZES_H
#define COPY_IO_SIZES_H

#include <stdbool.h>
#include <sys/stat.h>

/*
 * What the sizes of regular files mean on a file system.  On some (/proc, /sys) they mean nothing.
 * On file systems that are unknown here, such as any FUSE, a size of 0 may mean nothing.
 */
enum sizes { SIZES_TRUE, SIZES_TRUE_UNLESS_ZERO, SIZES_MEANINGLESS };
struct sizes_cache { /* of the last file system; zeroed: none */
	bool known;
	dev_t dev;
	enum sizes sizes;
};
/* fd: anything on st's file system. */
enum sizes sizes_of(struct sizes_cache *last, int fd, const struct stat *st);
static inline bool sizes_known(const struct sizes_cache *last, const struct stat *st)
{
	return last->known && last->dev == st->st_dev;
}

#endif
