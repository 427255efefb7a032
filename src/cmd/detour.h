/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_DETOUR_H
#define CMD_DETOUR_H

/*
 * Where the ends can't reach each other, their lanes take the way that ssh has found.
 *
 * A carrier is a process that carries one lane: from a loopback port on the connecting end's
 * host to the listening end's loopback port, over `ssh HOST rdcp --lane-listen' and `ssh HOST
 * rdcp --lane' where those hosts are far.  Which lane it is, it does not know: the ends prove
 * themselves to each other through it.
 *
 * On this host one listener serves all lanes.  On a far one every carrier has a port of its own,
 * and a new one is started for each that is used.
 */

#include <poll.h>
#include "cmd/options.h"

struct detour_way {
	const struct options *o;
	const char *from; /* the connecting end's host as ssh wants it, NULL: here */
	const char *to; /* the listening end's, NULL: here */
	unsigned port; /* on its loopback */
	/* Tell the connecting end of this port on its loopback, and why the last connection to it
	 * could not be carried, "" at first. 0 or -1. */
	int (*announce)(void *ctx, unsigned port, const char *why);
	void *ctx;
};

enum { DETOUR_POLLS = 72 };

struct detour;
int detour_open(const struct detour_way *w, struct detour **out);
/* Fill in what to wait for; how many. */
unsigned detour_polls(const struct detour *d, struct pollfd p[static DETOUR_POLLS]);
/* Look after what happened. 0 or -1. */
int detour_turn(struct detour *d, const struct pollfd *p, unsigned n);
void detour_close(struct detour *d);

#endif
