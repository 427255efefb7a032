/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_JSON_H
#define CMD_OUTPUT_JSON_H

/* Pieces of --json's objects. */

#include <stddef.h>
#include <stdio.h>

/* Bytes as a string, escaped as for people first (escape.h), so that it is valid whatever is in
 * them, and nothing is lost. */
void json_bytes(FILE *to, const void *s, size_t len);
void json_text(FILE *to, const char *s);

#endif
