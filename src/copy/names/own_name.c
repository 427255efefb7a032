/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/own_name.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/random.h"

enum { HASH_DIGITS = 16, RANDOM_DIGITS = 8 };
static const char prefix[] = ".sluice.";
static const char marker[] = "marker.";

static bool skip_text(const char **at, const char *text)
{
	size_t len = strlen(text);

	if (strncmp(*at, text, len) != 0)
		return false;
	*at += len;
	return true;
}

static bool skip_digits(const char **at, size_t count)
{
	if (strspn(*at, "0123456789abcdef") != count)
		return false;
	*at += count;
	return true;
}

enum own_name_kind own_name_kind(const char *name)
{
	const char *at = name;

	if (!skip_text(&at, prefix))
		return NAME_OF_USER;
	if (skip_text(&at, marker))
		return skip_digits(&at, HASH_DIGITS) && !*at ? NAME_MARKER : NAME_OF_USER;
	if (!skip_digits(&at, HASH_DIGITS))
		return NAME_OF_USER;
	if (!*at)
		return NAME_HASHED;
	return skip_text(&at, ".") && skip_digits(&at, RANDOM_DIGITS) && !*at ? NAME_RANDOM
									      : NAME_OF_USER;
}

void own_name_hashed(uint64_t hash, char to[static OWN_NAME_ROOM])
{
	snprintf(to, OWN_NAME_ROOM, "%s%016" PRIx64, prefix, hash);
}

int own_name_random(uint64_t hash, char to[static OWN_NAME_ROOM])
{
	uint32_t suffix;

	if (random_bytes(&suffix, sizeof suffix))
		return -1;
	snprintf(to, OWN_NAME_ROOM, "%s%016" PRIx64 ".%08" PRIx32, prefix, hash, suffix);
	return 0;
}

void own_name_marker(uint64_t hash, char to[static OWN_NAME_ROOM])
{
	snprintf(to, OWN_NAME_ROOM, "%s%s%016" PRIx64, prefix, marker, hash);
}
