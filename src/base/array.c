/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <errno.h>
#include <stdint.h>

enum {
	FIRST_BYTES = 128 /* room for a few elements, even if an array begins with one */
};

size_t array_wider(size_t room, size_t count, size_t more, size_t size)
{
	size_t most = PTRDIFF_MAX / size, wider;

	if (count > most || more > most - count) {
		errno = ENOMEM;
		return 0;
	}
	wider = room ? 2 * (room < most / 2 ? room : most / 2) : FIRST_BYTES / size;
	return wider < count + more ? count + more : wider;
}
