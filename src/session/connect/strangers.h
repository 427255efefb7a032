/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_STRANGERS_H
#define SESSION_CONNECT_STRANGERS_H

/*
 * Connections that have not yet authenticated, and the limits on them, for whoever listens.
 *
 * - A connection has STRANGER_MS to authenticate.
 * - There are at most STRANGERS_MAX, and at most half of the process's descriptors.  Beyond that
 *   the oldest connection of the busiest address leaves: a newcomer always gets its chance, and
 *   many connections from one address cost only that address.  An IPv6 address counts by its /64.
 * - When no descriptor is left the same one leaves, but only if another connection waits.  The
 *   user is warned once.
 * - A connection costs its entry here.  A TLS object is made for a whole ClientHello of at most
 *   CLIENT_HELLO_MAX bytes; until then its bytes stay in the kernel.
 *
 * One thread at a time.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/address.h"
#include "session/channel/channel.h"

enum { STRANGERS_MAX = 256, STRANGER_MS = 2000, CLIENT_HELLO_MAX = 2048 };
enum { TLS_HANDSHAKE = 0x16 /* a record's first byte */ };

struct stranger {
	int fd;
	uint64_t due; /* clock_ms: authenticated by then, or gone */
	uint8_t from[16]; /* its address as IPv6, of which only the /64; IPv4: mapped */
	unsigned crowd; /* how many there are from there */
	unsigned polled; /* its place in the set that was polled, 0: it was not */
	struct channel *tls; /* owns fd, when it is there */
	uint8_t said[LANE_HELLO_SIZE]; /* for a lane's listener */
	size_t said_len;
};

struct strangers {
	struct stranger list[STRANGERS_MAX + 1]; /* oldest first */
	unsigned count, most;
	uint64_t accept_after; /* clock_ms: after nobody could be accepted */
	bool told; /* the user knows why one could not, or cost another its place */
};

void strangers_init(struct strangers *s);
/* All leave. */
void strangers_leave(struct strangers *s);
/* list[i] leaves; those behind it move up. */
void stranger_leave(struct strangers *s, unsigned i);
/* list[i] has authenticated: its descriptor or channel is the caller's now. */
void stranger_release(struct strangers *s, unsigned i);

/* May connections be accepted now?  If not, from accept_after on. */
bool strangers_accepting(const struct strangers *s);
/* Let in what waits at a listener. */
void strangers_accept(struct strangers *s, int listener);
/* When the first one is due (clock_ms), 0: there is none. */
uint64_t strangers_due(const struct strangers *s);
/* Those whose time is over leave.  After their bytes have been looked at: a stop of this process
 * is not their silence. */
void strangers_expire(struct strangers *s);

/* Is a whole ClientHello there?  1 yes, 0 not yet (poll(2) says when), -1 it has to leave. */
int stranger_hello(const struct stranger *s);
/* It has said the beginning of a ClientHello to one who serves another: an alert explains. */
void stranger_refuse(const struct stranger *s);
/* Its address, for messages. Returns to. */
const char *stranger_text(const struct stranger *s, char *to, size_t size);

#endif
