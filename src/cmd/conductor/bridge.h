/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_BRIDGE_H
#define CMD_CONDUCTOR_BRIDGE_H

/*
 * The lanes between two daemons. No daemon connects to anybody, so a process beside the conductor
 * connects to both for each lane, introduces them to each other (session/between.h), and relays the
 * bytes. When a wire breaks it makes the next one, with a new epoch, until the conductor ends it.
 */

#include <poll.h>
#include "cmd/cli/options.h"
#include "lane/head.h"
#include "session/between.h"
#include "session/channel/framer.h"

struct bridge_way {
	const struct options *o;
	const char *urls[2]; /* of the source's module, and of the sink's */
	const char *names[2]; /* of their hosts, for messages */
};

enum { BRIDGE_POLLS = LANE_COUNT_MAX };

struct bridge;
int bridge_open(const struct bridge_way *w, const uint8_t secret[static LANE_SECRET],
		struct bridge **out);
/* HELLO and OFFER of an end (0: the source). When all are there, lane 0 is begun. Return 0, or -1
 * with a failure. */
int bridge_take_hello(struct bridge *b, int end, const struct frame *f);
int bridge_take_offer(struct bridge *b, int end, const struct frame *f);
/* Fills in the descriptors to poll; returns their number. */
unsigned bridge_polls(const struct bridge *b, struct pollfd p[static BRIDGE_POLLS]);
/* Handles the events that poll(2) returned. Returns 1 when lane 0 is connected, which happens once:
 * all other lanes are begun then; else 0, or -1 with a failure. */
int bridge_handle(struct bridge *b, const struct pollfd *p, unsigned n);
/* The session is over: the lanes need no more wires. */
void bridge_release(struct bridge *b);
/* Ends all lanes. b may be NULL. */
void bridge_close(struct bridge *b);

#endif
