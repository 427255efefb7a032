/* SPDX-License-Identifier: Apache-2.0 */
#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Decodes the code point at s, and its length into *used. Returns false if it is not valid UTF-8.
 */
static bool decode_utf8(const uint8_t *s, size_t len, uint32_t *cp, size_t *used)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n;

	if (s[0] < 0x80)
		n = 1;
	else if ((s[0] & 0xe0) == 0xc0)
		n = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3;
	else if ((s[0] & 0xf8) == 0xf0)
		n = 4;
	else
		return false;
	if (n > len)
		return false;
	*cp = n == 1 ? s[0] : s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return false;
		*cp = *cp << 6 | (s[i] & 0x3f);
	}
	*used = n;
	return *cp >= least[n] && *cp <= 0x10ffff && !(*cp >= 0xd800 && *cp <= 0xdfff);
}

static bool is_printable(uint32_t cp)
{
	if (cp < 0x20 || (cp >= 0x7f && cp <= 0x9f))
		return false;
	/* Bidirectional controls, and separators that some terminals treat as the end of a line. */
	return cp != 0x061c && cp != 0x200e && cp != 0x200f && !(cp >= 0x2028 && cp <= 0x202e) &&
	       !(cp >= 0x2066 && cp <= 0x2069);
}

static size_t escape_bytes(char *to, const uint8_t *s, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*to++ = '\\';
		*to++ = 'x';
		*to++ = digits[s[i] >> 4];
		*to++ = digits[s[i] & 15];
	}
	return 4 * n;
}

/* Escapes one character of s into at most 16 bytes. *used: how many bytes of s it has. */
static size_t escape_char(char *to, const uint8_t *s, size_t len, size_t *used)
{
	uint32_t cp = 0;

	if (!decode_utf8(s, len, &cp, used)) {
		*used = 1;
		return escape_bytes(to, s, 1);
	}
	switch (cp) {
	case '\n':
		memcpy(to, "\\n", 2);
		return 2;
	case '\t':
		memcpy(to, "\\t", 2);
		return 2;
	case '\\':
		memcpy(to, "\\\\", 2);
		return 2;
	}
	if (!is_printable(cp))
		return escape_bytes(to, s, *used);
	memcpy(to, s, *used);
	return *used;
}

char *escape(char *to, size_t size, const void *s, size_t len)
{
	const uint8_t *from = s;
	size_t at = 0;

	if (size == 0)
		return to;
	while (len > 0) {
		char shown[16];
		size_t used;
		size_t n = escape_char(shown, from, len, &used);

		if (n > size - 1 - at)
			break;
		memcpy(to + at, shown, n);
		at += n;
		from += used;
		len -= used;
	}
	to[at] = '\0';
	return to;
}
