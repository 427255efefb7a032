/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_END_PIPE_H
#define CMD_CONDUCTOR_END_PIPE_H

/*
 * A conductor's link to one end: the child that is the end or the ssh to it, a parser for what it
 * says and a queue for what it is told.  No call waits.
 *
 * The queue grows for the conductor's own frames, which it knows the number of; frames of the
 * other end are bounded by not reading them while end_pipe_is_full().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cmd/process/child.h"
#include "protocol/message.h"
#include "session/channel/framer.h"

enum { END_PIPE_FULL = 256 << 10, END_SOURCE = 0, END_SINK = 1 };

struct end_pipe {
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

void end_pipe_init(struct end_pipe *l);
/* The end is there: a host as ssh wants it, "" for this one. */
void end_pipe_set_host(struct end_pipe *l, const char *host);
/* The child has been started: take over its pipes. */
int end_pipe_open(struct end_pipe *l);
/* End the child and free all; for one that was never opened too. */
void end_pipe_close(struct end_pipe *l);

/* Queue a frame; 0, or -1 with OUT_MEMORY.  Nothing when the child's stdin is closed. */
int end_pipe_send(struct end_pipe *l, uint8_t type, const void *body, size_t len);
bool end_pipe_is_full(const struct end_pipe *l);
/* poll(2) says that the child takes bytes: write what there is. */
void end_pipe_write(struct end_pipe *l);
/* poll(2) says that there is something: 1, 0 at the end of the stream. Then take frames with
 * framer_next(). */
int end_pipe_read(struct end_pipe *l);

#endif
