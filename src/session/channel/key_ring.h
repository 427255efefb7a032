/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_KEY_RING_H
#define SESSION_CHANNEL_KEY_RING_H

/*
 * The keys of a listener that knows several users. A file of them has a line USER:KEY for each,
 * with a generated key; empty lines and those that begin with # are skipped. Lines are added up to
 * KEY_RING_MAX keys.
 */

#include <stdbool.h>
#include <stddef.h>
#include "session/channel/key.h"

enum { USER_NAME_MAX = 64, KEY_RING_MAX = 4096, KEY_LINE_MAX = 256 };

struct key_of_user {
	char user[USER_NAME_MAX];
	struct psk key;
};
struct key_ring {
	struct key_of_user *of;
	unsigned count;
	size_t room;
};

/* The user of clients without a key. No other user can have this name. */
#define ANONYMOUS_USER "anonymous"
bool user_is_anonymous(const char *user);

/* Letters, digits, _, . and -, and not only a -, which stands for any holder of a key. */
bool user_name_is_valid(const char *name, size_t len);
/* Adds the keys of a file, which is checked as psk_from_file() does. The caller must wipe the ring,
 * also after a failure. Returns 0, or -1 with a failure that names the line. */
int key_ring_read(struct key_ring *r, const char *path);
/* Adds one key, of this user. */
int key_ring_add(struct key_ring *r, const char *user, const struct psk *key);
/* Returns 0, or -1 if the user has no key here. Sets no failure. */
int key_ring_find(const struct key_ring *r, const char *user, struct psk *out);
/* Makes a key for a user: adds its line to the file, which is made if it does not exist, and puts
 * the text of the key into text. Fails if the user has one. */
int key_ring_make(const char *path, const char *user, char text[static KEY_LINE_MAX]);
/* Clears all keys, and frees them. */
void key_ring_wipe(struct key_ring *r);

#endif
