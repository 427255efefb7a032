/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>
#include "base/fail.h"

int random_bytes(void *to, size_t len)
{
	uint8_t *at = to;

	while (len > 0) {
		ssize_t n = getrandom(at, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail("get random bytes: %m");
		at += n;
		len -= (size_t)n;
	}
	return 0;
}
