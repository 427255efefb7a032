/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SESSION_PAIR_H
#define TESTS_SESSION_PAIR_H

/*
 * Two sessions in one process: a relay between their control channels, as a conductor is one,
 * which remembers, holds, changes and forges frames; and on demand a proxy between their lanes
 * that cuts connections, changes bytes and hides.
 *
 * Nothing in here asserts: threads leave their results in what they were given.
 */

#include <pthread.h>
#include <stdatomic.h>
#include "base/worker.h"
#include "session/channel/framer.h"
#include "session/session.h"

enum { PAIR_LANES = 4, LOG_MAX = 4096, HELD_MAX = 64, PROXY_MAX = 32 };
enum { SOURCE, SINK };

struct pair;
struct lane_job;

/* The state of one lane's end. */
struct lane_job {
	struct pair *p;
	struct lane *lane;
	unsigned end, index;
	uint64_t count; /* blocks to send */
	_Atomic uint64_t done; /* sent, or put back */
	bool disorder; /* a block was out of order, or not as sent */
	int rc;
	struct failure why;
	struct worker worker;
};

struct pair_end {
	struct session_opts o;
	int fd; /* its control channel, given to the session */
	int relay_fd; /* the relay's end of it */
	struct session *s; /* NULL: it did not open, or failed to */
	struct failure why; /* why it did not open, and on which host; "": here */
	char why_host[HOST_MAX];
	_Atomic unsigned fails; /* number of calls of on_fail */
	struct worker worker;
	struct lane_job jobs[PAIR_LANES];
};

/* A frame that the relay saw. */
struct seen {
	unsigned from;
	uint8_t type;
	uint16_t lane;
	uint32_t epoch;
	uint64_t stored;
	bool damaged;
	char text[TEXT_MAX];
};

enum verdict { PASS, DROP, HOLD };
struct held {
	unsigned to;
	uint8_t type;
	uint32_t len;
	uint8_t *body;
};

/* What the proxy does to the bytes of a connection at one place. The ranges are of CHANGED_BYTES,
 * or of what has arrived. */
enum change_kind {
	FLIP, /* flips bits of one byte */
	CUT, /* ends the connection */
	LOSE, /* leaves out a range */
	REPEAT, /* sends a range twice */
	SWAP, /* exchanges two ranges */
	CHANGE_KINDS
};
enum { CHANGED_BYTES = 80 };

struct proxy {
	int listener, stop;
	unsigned port;
	_Atomic unsigned target;
	struct worker worker;
	_Atomic unsigned cuts; /* raise it to cut all connections */
	unsigned cuts_done;
	_Atomic bool closed; /* new connections are rejected */
	_Atomic unsigned flips; /* in this many further connections bytes are changed ... */
	_Atomic unsigned flip_kind; /* ... in this way (enum change_kind); bits are flipped ... */
	_Atomic unsigned flip_with; /* ... with these, in pair_init() one of them, ... */
	_Atomic uint64_t flip_at; /* ... at this byte from the connecting end */
	_Atomic unsigned mutes; /* this many further connections end at the first answer */
	_Atomic unsigned came;
	struct {
		int fd[2];
		uint64_t bytes;
		bool flip, mute;
	} c[PROXY_MAX];
	unsigned count;
};

struct pair {
	struct pair_end ends[2];
	/* Can inspect and change a frame in transit; runs in the relay's thread. */
	enum verdict (*filter)(struct pair *p, unsigned from, uint8_t type, uint8_t *body,
			       uint32_t *len);
	/* The file call: between recv and put (sink), get and send (source). */
	void (*work)(struct lane_job *j, struct block *b, uint64_t number);
	void *arg;

	pthread_mutex_t lock;
	struct seen log[LOG_MAX];
	unsigned seen;
	struct held held[HELD_MAX];
	unsigned held_count;
	struct worker relay;
	int relay_stop;
	bool through_proxy; /* offers name the proxy; set it before the pair is open */
	struct proxy proxy;
};

/* The sink listens; 2 lanes of 4 blocks of 4 KiB. */
void pair_init(struct pair *p);
/* From now on lanes go through the proxy. */
int pair_use_proxy(struct pair *p);
/* Open both sessions: 0, or -1 when one failed (see ends[].why). */
int session_pair_open(struct pair *p);
/* Start to send this many blocks on each lane. */
void pair_start(struct pair *p, uint64_t count);
/* Wait until all are stored: 0, or -1 when a lane failed. */
int pair_finish(struct pair *p);
void session_pair_close(struct pair *p);
/*
 * How many times on_fail was called at an end, after the first call: it is the last step of a
 * failure, after lanes have ended because of it. 0 after 20 s.
 */
unsigned pair_fails(struct pair *p, unsigned end);

/* Cut the control channel. */
void pair_cut(struct pair *p);
/* The number of frames of a type that the relay saw from an end. */
unsigned pair_seen(struct pair *p, unsigned from, uint8_t type);
/* Wait for at least this many; false after 20 s. */
bool pair_await(struct pair *p, unsigned from, uint8_t type, unsigned count);
/* The nth of them. */
struct seen pair_nth(struct pair *p, unsigned from, uint8_t type, unsigned n);
/* Release the held frames, and hold no more. */
void pair_release(struct pair *p);
void pair_forge(struct pair *p, unsigned to, uint8_t type, const void *body, size_t len);
/* Wait until a counter is at least this; false after 20 s. */
bool await_count(_Atomic uint64_t *counter, uint64_t least);
void pause_ms(unsigned ms);

/* In a filter, for an OFFER: lanes go only to this port of loopback; returns the offered port. */
unsigned offer_redirect(uint8_t *body, uint32_t *len, unsigned port);

#endif
