/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_RAW_H
#define SIMVERBS_RAW_H

/* System calls that these libraries also offer to the program, as segment.c has them. */

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int raw_munmap(void *at, size_t bytes)
{
	return (int)syscall(SYS_munmap, at, bytes);
}

static inline int raw_madvise(void *at, size_t bytes, int advice)
{
	return (int)syscall(SYS_madvise, at, bytes, advice);
}

#endif
