/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SESSION_PAIR_H
#define TESTS_SESSION_PAIR_H

/*
 * Two sessions in one process: a relay between their control channels, as a conductor is one,
 * which remembers, holds, changes and forges frames; and on demand a proxy between their lanes
 * that cuts connections, flips bits and hides.
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

/* What goes on at one lane's end. */
struct lane_job {
	struct pair *p;
	struct lane *lane;
	unsigned end, index;
	uint64_t count; /* blocks to send */
	_Atomic uint64_t done; /* sent, or put */
	bool disorder; /* a block that is not the next one, or not what was sent */
	int rc;
	struct failure why;
	struct worker worker;
};

struct pair_end {
	struct session_opts o;
	int fd; /* its control channel, for the session */
	int relay_fd; /* the relay's end */
	struct session *s; /* NULL: it did not open, or failed to */
	struct failure why; /* it did not open because, and where that was; "": here */
	char why_host[HOST_MAX];
	_Atomic unsigned fails; /* calls of on_fail */
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

struct proxy {
	int listener, stop;
	unsigned port;
	_Atomic unsigned target;
	struct worker worker;
	_Atomic unsigned cuts; /* raise it to cut all connections */
	unsigned cuts_done;
	_Atomic bool closed; /* newcomers are turned away */
	_Atomic unsigned flips; /* of so many more connections a bit is flipped ... */
	_Atomic uint64_t flip_at; /* ... at this byte from the connecting end */
	_Atomic unsigned mutes; /* so many more connections end at the first answer */
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
	/* May look into and change a frame on its way; in the relay's thread. */
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
	bool through_proxy;
	struct proxy proxy;
};

/* The sink listens, 2 lanes of 4 blocks of 4 KiB. */
void pair_init(struct pair *p);
/* Lanes go through the proxy from now on. */
int pair_use_proxy(struct pair *p);
/* Both sessions open: 0, or -1 when one didn't (see ends[].why). */
int pair_open(struct pair *p);
/* Start to carry so many blocks on each lane. */
void pair_start(struct pair *p, uint64_t count);
/* Until all are stored: 0, or -1 when a lane failed. */
int pair_finish(struct pair *p);
void pair_close(struct pair *p);
/* How often on_fail was called at an end, once it was at all: it comes last of all that a failure
 * does, after lanes have ended of it.  0 after 20 s. */
unsigned pair_fails(struct pair *p, unsigned end);

/* Cut the control channel. */
void pair_cut(struct pair *p);
/* What the relay saw of a type from an end. */
unsigned pair_seen(struct pair *p, unsigned from, uint8_t type);
/* Until at least so many were seen; false after 20 s. */
bool pair_await(struct pair *p, unsigned from, uint8_t type, unsigned count);
/* The nth of them. */
struct seen pair_nth(struct pair *p, unsigned from, uint8_t type, unsigned n);
/* Let what was held go on its way, and hold nothing more of it. */
void pair_release(struct pair *p);
void pair_forge(struct pair *p, unsigned to, uint8_t type, const void *body, size_t len);
/* Until a counter is at least this; false after 20 s. */
bool await_count(_Atomic uint64_t *counter, uint64_t least);
void pause_ms(unsigned ms);

/* In a filter, for an OFFER: lanes go to this port of loopback and nowhere else; returns the
 * port that was offered. */
unsigned offer_redirect(uint8_t *body, uint32_t *len, unsigned port);

#endif
