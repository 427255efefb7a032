/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_END_PIPE_H
#define CMD_CONDUCTOR_END_PIPE_H

/*
 * A conductor's link to one end: the child that is the end or the ssh to it, a parser for what it
 * says and a queue for what it is told.  No call waits.
 *
 * The queue grows for the conductor's own frames, which it knows the number of; frames of the
 * other end are bounded by not reading them while link_is_full().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cmd/process/child.h"
#include "protocol/message.h"
#include "session/channel/framer.h"

enum { LINK_FULL = 256 << 10, LINK_SOURCE = 0, LINK_SINK = 1 };

struct link {
	struct child child;
	bool far;
	char name[HOST_MAX]; /* of its host, for messages and for START */
	const char *ssh_host; /* far: as ssh wants it */
	bool greeted, gone; /* gone: it says nothing more */
	bool spoke; /* to the other end: its session has begun, and says itself how it fails */
	bool again; /* `rdcp --ends': what comes before its greeting is an earlier end's */
	int share; /* what its end gets of a socket between the two; 0: nothing */
	uint64_t heard_ms; /* its last byte came then (clock_ms) */
	uint64_t lost_ms; /* its process is gone: when it is given up, 0: never */
	bool has_verdict;
	struct msg_greeting greeting;
	struct msg_verdict verdict;
	struct msg_progress progress;
	unsigned loopback_port; /* of its LISTENING, 0: none */

	struct framer in;
	uint8_t *out;
	size_t out_start, out_end, out_size;
};

void link_init(struct link *l);
/* The end is there: a host as ssh wants it, "" for this one. */
void link_name(struct link *l, const char *host);
/* The child has been started: take over its pipes. */
int link_open(struct link *l);
/* End the child and free all; for one that was never opened too. */
void link_close(struct link *l);

/* Queue a frame; 0, or -1 with OUT_MEMORY.  Nothing when the child's stdin is closed. */
int link_send(struct link *l, uint8_t type, const void *body, size_t len);
bool link_is_full(const struct link *l);
/* poll(2) says that the child takes bytes: write what there is. */
void link_write(struct link *l);
/* poll(2) says that there is something: 1, 0 at the end of the stream. Then take frames with
 * framer_next(). */
int link_read(struct link *l);

#endif
