/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNIT_RECORDED_H
#define UNIT_RECORDED_H

/* The recorded trees of tests/sysfs. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The top of a tree, which contains sys, dev, etc and proc. */
static inline const char *recorded(const char *name)
{
	static char path[4096];
	const char *trees = getenv("SYSFS_TREES");
	const char *last = strrchr(__FILE__, '/');

	if (trees)
		snprintf(path, sizeof path, "%s/%s", trees, name);
	else
		snprintf(path, sizeof path, "%.*s/../../sysfs/%s",
			 last ? (int)(last - __FILE__) : 1, last ? __FILE__ : ".", name);
	return path;
}

#endif
