/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_NOTIFY_H
#define CMD_SERVE_NOTIFY_H

/*
 * Tells a service manager about the state of rdcpd, as sd_notify(3) describes it: one datagram for
 * each state, to the Unix socket that NOTIFY_SOCKET names. Without that variable nothing is sent.
 *
 * No descriptor stays open, so that no other process inherits one.
 */

#include <stdbool.h>
#include <stdint.h>

/* Takes the name of the socket, and removes it from the environment. Call it before any other
 * process is started. Warns if it is no socket's name. */
void notify_begin(void);
/* Forgets the name, in a process that serves a client. */
void notify_forget(void);

/* What STATUS= shows to people. */
struct notify_state {
	unsigned sessions;
	bool draining;
	bool reload_failed; /* the last one */
};

/* rdcpd serves now. */
void notify_ready(const struct notify_state *s);
/* The settings are being loaded again; notify_ready() follows. */
void notify_reloading(void);
/* rdcpd ends, which takes at most this long. */
void notify_stopping(const struct notify_state *s, uint64_t most_ms);
/* Call it often: it reports changes only, a few times a second at most, and does not wait for the
 * manager. */
void notify_status(const struct notify_state *s);

#endif
