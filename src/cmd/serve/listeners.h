/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_LISTENERS_H
#define CMD_SERVE_LISTENERS_H

/* The TCP listeners of rdcpd. */

#include "cmd/serve/serve.h"

/* Opens those that the settings want, and sets s->port. Returns 0, or -1 with a failure. */
int listeners_open(struct server *s);
void listeners_close(struct server *s);
/* What they accept from now on inherits it. Without one (0) it is that of packets that ask for
 * none. */
void listeners_set_tos(const struct server *s, unsigned tos);

#endif
