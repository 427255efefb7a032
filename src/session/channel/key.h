/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_KEY_H
#define SESSION_CHANNEL_KEY_H

/*
 * Keys: typed ones (stretched with scrypt N=2^15, r=8, p=1: 32 MiB for a tenth of a second)
 * and made ones (32 random bytes, written by --make-key as "sluice-key-1:" and 64 hex digits,
 * used as they are).  The caller wipes with psk_wipe().
 */

#include <stdint.h>
#include <stddef.h>

enum { PSK_SIZE = 32, KEY_TEXT_MAX = 4096 };
struct psk {
	uint8_t bytes[PSK_SIZE];
};

/* From a typed key, or the text of a made one (OUT_USAGE when it is empty or a damaged made one).
 * text is not kept. */
int psk_from_text(const char *text, size_t len, struct psk *out);
/* From a file that belongs to us with no permission for others (fstat on the opened file; else
 * OUT_USAGE).  One newline at the end is not of the key. */
int psk_from_file(const char *path, struct psk *out);
/* From what can be read from fd until its end, at most KEY_TEXT_MAX bytes; fd stays open. */
int psk_from_fd(int fd, struct psk *out);
/* Make a key file, 0600, not over an existing one. */
int psk_make_file(const char *path);
void psk_wipe(struct psk *k);

#endif
