/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_JSON_H
#define CMD_OUTPUT_JSON_H

/* Parts of --json's objects. */

#include <stddef.h>
#include <stdio.h>

/* Prints bytes as a string. They are first escaped as for people (escape.h), so the string is
 * always valid and loses nothing. */
void json_bytes(FILE *to, const void *s, size_t len);
void json_text(FILE *to, const char *s);

#endif
