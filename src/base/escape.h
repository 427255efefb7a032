/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

/*
 * Escapes names and texts for a terminal or a log. Control characters, C1 (also as UTF-8 0xc2
 * 0x80..0x9f), DEL, bidirectional controls and invalid UTF-8 become \n, \t, \xHH; a backslash
 * becomes two. Valid printable UTF-8 is kept.
 */

#include <stddef.h>

/* Escapes len bytes of s into to (always terminated, cut between escapes); returns to. */
char *escape(char *to, size_t size, const void *s, size_t len);

#endif
