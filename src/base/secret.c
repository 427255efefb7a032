/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void secret_guard(const void *at, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)at & ~(page - 1);
	size_t len = (((uintptr_t)at + size + page - 1) & ~(page - 1)) - first;
	int saved = errno;

	(void)!mlock((void *)first, len);
	(void)!madvise((void *)first, len, MADV_DONTDUMP);
	errno = saved;
}
