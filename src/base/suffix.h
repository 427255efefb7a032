/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SUFFIX_H
#define BASE_SUFFIX_H

#include <stdbool.h>
#include <string.h>

/* Is suffix the end of s, or all of it? "" ends everything. */
static inline bool ends_with(const char *s, const char *suffix)
{
	size_t len = strlen(s), more = strlen(suffix);

	return len >= more && strcmp(s + len - more, suffix) == 0;
}

#endif
