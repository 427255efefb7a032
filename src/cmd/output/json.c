/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/json.h"

#include <string.h>
#include "base/escape.h"

/* Bytes that are escaped at a time. */
enum { PIECE = 1024 };

/* Up to PIECE bytes, without splitting a UTF-8 sequence. */
static size_t next_piece_len(const unsigned char *s, size_t len)
{
	size_t n = PIECE;

	if (len <= PIECE)
		return len;
	while (n > PIECE - 4 && (s[n] & 0xc0) == 0x80)
		n--;
	return n;
}

void json_bytes(FILE *to, const void *s, size_t len)
{
	const unsigned char *at = s;
	char escaped[4 * PIECE + 1];

	fputc('"', to);
	while (len > 0) {
		size_t n = next_piece_len(at, len);

		escape(escaped, sizeof escaped, at, n);
		for (const char *p = escaped; *p; p++) {
			if (*p == '"' || *p == '\\')
				fputc('\\', to);
			fputc(*p, to);
		}
		at += n;
		len -= n;
	}
	fputc('"', to);
}

void json_text(FILE *to, const char *s)
{
	json_bytes(to, s, strlen(s));
}
