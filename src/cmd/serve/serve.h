/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_SERVE_H
#define CMD_SERVE_SERVE_H

/*
 * The parent of rdcpd. It has the listeners, and holds connections until their first record has
 * arrived whole (session/connect/strangers.h). For a ClientHello it forks (session_child.h), when
 * it is this client's turn (admission.h). A
 * LANE_HELLO names a session: the connection is passed to that session's end, which checks the
 * hello. The parent decodes nothing else.
 */

#include "cmd/serve/module.h"
#include "session/channel/key_ring.h"

enum { SESSIONS_MAX = 256 };

struct server {
	const struct module *modules;
	unsigned module_count;
	struct key_ring keys; /* of the users; "-": of anybody who has it */
	const char *address; /* the only one to listen at, or "" */
	int family; /* AF_INET, AF_INET6, or 0 for both */
	unsigned port; /* 0: any; serve_listen() sets it */

	/* private */
	int listeners[2];
	unsigned listener_count;
};

int serve_listen(struct server *s);
/* Serves clients until SIGTERM, SIGINT or SIGHUP, which end all sessions. Returns 0, or -1 with a
 * failure. */
int serve_run(struct server *s);

#endif
