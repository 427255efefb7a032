/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_DETOUR_H
#define CMD_CONDUCTOR_DETOUR_H

/*
 * If the ends can't reach each other, their lanes use further ssh connections. To a daemon, which
 * only its own port leads to, that is one of them and a connection from this host.
 *
 * A carrier is a process that carries one lane: from a loopback port on the connecting end's host
 * to the listening end's loopback port, over `ssh HOST rdcp --lane-listen' and `ssh HOST rdcp
 * --lane' if those hosts are far. It does not know which lane it carries; the ends authenticate to
 * each other through it.
 *
 * On this host one listener serves all lanes. On a far host each carrier is a spare until it
 * accepts a connection to the port there; then another spare is started. Spares that fail are
 * started again a few times, with pauses, and once more when a lane has lost its carrier.
 */

#include <poll.h>
#include <stdint.h>
#include "cmd/cli/options.h"

struct detour_way {
	const struct options *o;
	const char *from; /* the connecting end's host as ssh wants it; NULL: this host */
	const char *to; /* the listening end's host; NULL: this host, or a daemon */
	const char *daemon; /* the URL of the listening end's module, or NULL */
	unsigned port; /* on the listening end's loopback; of no use with a daemon */
	/* Announces to the connecting end this port on its loopback, and why a connection to it was
	 * not carried, or none can be for now; "" at first. Returns 0 or -1. */
	int (*announce)(void *ctx, unsigned port, const char *why);
	void *ctx;
};

enum { DETOUR_POLLS = 72 };

struct detour;
int detour_open(const struct detour_way *w, struct detour **out);
/* Fills in the descriptors to poll; returns their number. */
unsigned detour_polls(const struct detour *d, struct pollfd p[static DETOUR_POLLS]);
/* When detour_handle() must run even without an event (clock_ms); 0: never. */
uint64_t detour_due(const struct detour *d);
/* Handles the events that poll(2) returned. Returns 0 or -1. */
int detour_handle(struct detour *d, const struct pollfd *p, unsigned n);
void detour_close(struct detour *d);

#endif
