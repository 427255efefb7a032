/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_CONTENT_DIGEST_H
#define COPY_IO_CONTENT_DIGEST_H

/*
 * For --print-digest: digests of a file's content as sha256sum, md5sum and xxh128sum print them,
 * and adler32 as hdrdmacp does (eight digits).  Holes are zeros here.
 */

#include <stddef.h>
#include <stdint.h>
#include "copy/io/outlet.h"
#include "protocol/message.h"

/* The size of such a digest in bytes. */
unsigned content_digest_size(enum content_digest d);
/* Reads size bytes of fd from base on, in order, without moving its offset.  -1, OUT_CHANGED: the
 * file is shorter.  Ends with -1 when s asks to stop, with whatever failure this thread has. */
int content_digest_of(int fd, const char *shown, uint64_t base, uint64_t size,
		      enum content_digest d, const struct stopper *s,
		      uint8_t out[static CONTENT_DIGEST_MAX]);
/* As content_digest_of(), for the bytes of a file in memory. */
int content_digest_of_bytes(const void *bytes, size_t len, const char *shown, enum content_digest d,
			    uint8_t out[static CONTENT_DIGEST_MAX]);
/* Formats a digest as hexadecimal digits. */
void content_digest_text(enum content_digest d, const uint8_t *digest,
			 char to[static EVENT_DIGEST]);

#endif
