/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_CONTENT_H
#define COPY_IO_CONTENT_H

/*
 * Digests of a file's content as sha256sum, md5sum and xxh128sum print them, and adler32 as
 * hdrdmacp does (eight digits): for --print-digest.  Holes are zeros here.
 */

#include <stddef.h>
#include <stdint.h>
#include "copy/io/outlet.h"
#include "protocol/message.h"

enum { CONTENT_BYTES_MAX = 32 };
/* Bytes of such a digest. */
unsigned content_size(enum content_digest d);
/* Read size bytes of fd from base on, in order, without moving its offset; a shorter file: -1,
 * OUT_CHANGED.  Gives up when s says so (-1, with whatever failure there is). */
int content_of(int fd, const char *shown, uint64_t base, uint64_t size, enum content_digest d,
	       const struct stopper *s, uint8_t out[static CONTENT_BYTES_MAX]);
/* The same of what is in memory. */
int content_of_bytes(const void *bytes, size_t len, enum content_digest d,
		     uint8_t out[static CONTENT_BYTES_MAX]);
/* As hexadecimal digits. */
void content_text(enum content_digest d, const uint8_t *digest, char to[static EVENT_DIGEST]);

#endif
