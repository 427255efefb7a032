/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_STRANGERS_H
#define SESSION_CONNECT_STRANGERS_H

/*
 * Connections that have not yet authenticated, and the limits on them, for any listener.
 *
 * - A connection has STRANGER_MS to authenticate.
 * - There are at most as many as the listener wants, and at most half of the process's descriptors.
 * Beyond that, the oldest connection of the address with the most connections is closed. So a
 * newcomer always gets its chance, and many connections from one address harm only that address. An
 * IPv6 address counts by its /64.
 * - When no descriptor is left, the same connection is closed, but only if another one waits. The
 * user is warned once.
 * - A connection costs its entry here. A TLS object is made only for a whole ClientHello of at most
 * CLIENT_HELLO_MAX bytes; until then its bytes stay in the kernel.
 *
 * One thread at a time.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/address.h"
#include "session/channel/channel.h"

enum {
	STRANGERS_MAX = 1024, /* of any listener */
	STRANGERS_OF_ONE = 256, /* of a listener for one session */
	STRANGER_MS = 2000,
	CLIENT_HELLO_MAX = 2048
};
enum { TLS_HANDSHAKE = 0x16 /* first byte of a TLS handshake record */ };

struct stranger {
	int fd;
	uint64_t due; /* clock_ms: when it must have authenticated */
	uint8_t from[16]; /* its address as IPv6, only the /64; IPv4: mapped */
	unsigned address_count; /* number of strangers from that address */
	unsigned polled; /* its index in the set that was polled; 0: not polled */
	bool waits; /* its whole ClientHello is there, and nobody takes it yet */
	struct channel *tls; /* owns fd, once it exists */
	uint8_t received[LANE_HELLO_SIZE]; /* bytes read, for a lane's listener */
	size_t received_len;
};

struct strangers {
	struct stranger list[STRANGERS_MAX + 1]; /* oldest first */
	unsigned count, most;
	uint64_t accept_after; /* clock_ms: pause accepting until then, after accept failed */
	/* the user was warned that a connection could not be accepted or read, or lost its place */
	bool warned;
	/* the last connection that was lost because this process lacked something: errno, or 0, and
	 * when (clock_ms) */
	int lacked;
	uint64_t lacked_ms;
};

/* most: at most STRANGERS_MAX. */
void strangers_init(struct strangers *s, unsigned most);
/* Closes all. */
void strangers_close(struct strangers *s);
/* Closes list[i]; later entries move up. */
void stranger_close(struct strangers *s, unsigned i);
/* list[i] has authenticated: the caller owns its descriptor or channel from here on. */
void stranger_release(struct strangers *s, unsigned i);

/* Whether connections may be accepted now. If not, then from accept_after on. */
bool strangers_accepting(const struct strangers *s);
/* Accepts the connections that wait at a listener. */
void strangers_accept(struct strangers *s, int listener);
/* Adds a connection that another process has accepted, and owns it from here on. */
void strangers_add(struct strangers *s, int fd, const union address *from);
/* A connection was lost on the way here, with this errno: warns of that. */
void strangers_lost(struct strangers *s, int err);
/* When the first one must have authenticated (clock_ms); 0: there are no strangers. */
uint64_t strangers_due(const struct strangers *s);
/* Closes those whose time is over. Call it after their bytes were read, so that a stop of this
 * process does not count as their silence. */
void strangers_expire(struct strangers *s);

/* Whether a whole ClientHello of list[i] has arrived: 1 yes; 0 not yet (poll(2) reports when); -1
 * it must be closed. */
int stranger_hello(struct strangers *s, unsigned i);
/* Peeks at the whole ClientHello of list[i], without the head of its record. Returns its size, or 0
 * if the record has something else than one ClientHello. */
size_t stranger_peek_hello(const struct strangers *s, unsigned i,
			   uint8_t to[static CLIENT_HELLO_MAX]);
/* Peeks at the LANE_HELLO of list[i]; the results are those of stranger_hello(). */
int stranger_lane_hello(struct strangers *s, unsigned i, uint8_t to[static LANE_HELLO_SIZE]);
/* The first byte of list[i]; 0: none has arrived; -1: it must be closed. */
int stranger_first_byte(const struct strangers *s, unsigned i);
/* Sends a TLS alert to a stranger that has sent the beginning of a ClientHello while this end
 * serves another peer. */
void stranger_refuse(const struct stranger *s);
/* Its address, for messages. Returns to. */
const char *stranger_text(const struct stranger *s, char *to, size_t size);

#endif
