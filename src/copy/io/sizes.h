/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_SIZES_H
#define COPY_IO_SIZES_H

#include <stdbool.h>
#include <sys/stat.h>

/*
 * What the sizes of regular files mean on a file system.  On some (/proc, /sys) they mean nothing.
 * On file systems that are unknown here, such as any FUSE, a size of 0 may mean nothing.
 */
enum sizes { SIZES_TRUE, SIZES_BUT_ZERO, SIZES_MADE_UP };
struct sizes_of { /* cache of the last file system; zeroed: none */
	bool known;
	dev_t dev;
	enum sizes sizes;
};
/* fd: anything on st's file system. */
enum sizes sizes_of(struct sizes_of *last, int fd, const struct stat *st);
static inline bool sizes_known(const struct sizes_of *last, const struct stat *st)
{
	return last->known && last->dev == st->st_dev;
}

#endif
