/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_KEY_H
#define SESSION_CHANNEL_KEY_H

/*
 * Keys of rdsend and rdrecv. Typed keys are stretched with scrypt N=2^15, r=8, p=1: 32 MiB for a
 * tenth of a second. Generated keys are 32 random bytes, which --make-key writes as "sluice-key-1:"
 * and 64 hex digits; they are used as they are. The caller wipes a key with psk_wipe().
 */

#include <stdint.h>
#include <stddef.h>

enum { PSK_SIZE = 32, KEY_TEXT_MAX = 4096 };
struct psk {
	uint8_t bytes[PSK_SIZE];
};

/* From a typed key, or the text of a generated one. OUT_USAGE if the text is empty or a damaged
 * generated key. Does not keep text. */
int psk_from_text(const char *text, size_t len, struct psk *out);
/* From a file that we own, without permissions for others (fstat on the open file; else OUT_USAGE).
 * One newline at the end is not part of the key. */
int psk_from_file(const char *path, struct psk *out);
/* The same, but of a generated key only. */
int psk_from_made_file(const char *path, struct psk *out);
/* From fd up to its end, at most KEY_TEXT_MAX bytes. fd stays open. */
int psk_from_fd(int fd, struct psk *out);
/* Opens a file of keys that we own, without permissions for others; flags: as in open(2). Returns
 * the descriptor, or -1. */
int key_file_open(const char *path, int flags);
/* A new generated key as text, and such a text as a key. */
enum { KEY_TEXT_ROOM = 128 };
int psk_make_text(char to[static KEY_TEXT_ROOM]);
int psk_from_made_text(const char *text, size_t len, struct psk *out);
/* Makes a key file with mode 0600. Does not overwrite an existing file. */
int psk_make_file(const char *path);
/* The key of clients that have none, which everybody knows. */
void psk_anonymous(struct psk *out);
void psk_wipe(struct psk *k);

#endif
