/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_ALONE_H
#define CMD_SERVE_ALONE_H

/* rdcpd without modules and keys: it serves the directory in which it was started, for upload only,
 * under a key that it makes and that lasts as long as it runs. */

#include "cmd/serve/serve.h"

/* The text of a made key, which the caller wipes. */
struct alone_key {
	char text[KEY_TEXT_ROOM];
};
/* Whether nothing says what to serve and to whom. */
bool alone_is_meant(const struct options *o);
/* Returns 0, or -1 with a failure. */
int alone_load(const struct options *o, struct alone_key *key, struct settings **out);
/* Prints what to paste in a shell on a client, once s listens. Returns 0, or -1 with a failure. */
int alone_print(const struct server *s, const struct alone_key *key);

#endif
