/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_SERVE_H
#define CMD_SERVE_SERVE_H

/*
 * The parent of rdcpd. It has the listeners, and holds connections until their first record has
 * arrived whole (session/connect/strangers.h). For a ClientHello it forks (session_child.h), when
 * it is this client's turn (admission.h). A LANE_HELLO names a session: the connection is passed to
 * that session's end, which checks the hello. The parent decodes nothing else.
 */

#include "cmd/serve/replay.h"
#include "cmd/serve/settings.h"

struct server {
	const struct options *options; /* to load the settings again; NULL: they stay */
	struct settings *settings; /* owned */
	bool json; /* --log-json */
	int family; /* AF_INET, AF_INET6, or 0 for both */
	unsigned port; /* serve_listen() sets it: that of the settings, or any if that is 0 */

	/* private */
	bool one_address; /* it listens there only */
	int listeners[2];
	unsigned listener_count;
	int board; /* of all ends (copy/io/floor.h) */
	struct replay replay;
};

/* From here on signals have the meaning that serve_run() describes. */
int serve_listen(struct server *s);
/* Serves clients until a signal. SIGTERM: takes no new clients, and ends with the last session, or
 * when the settings' time is over. A second SIGTERM, or SIGINT, ends all sessions at once. SIGHUP
 * loads the settings again, for later sessions; if that fails, the settings stay as they are.
 * Reports all of that to a service manager (notify.h). */
void serve_run(struct server *s);

#endif
