/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_END_PIPE_H
#define CMD_CONDUCTOR_END_PIPE_H

/*
 * A conductor's connection to one end: the child that is the end or the ssh to it, a framer for its
 * frames, and a queue for frames to it. No call but end_pipe_await_exit() and end_pipe_close()
 * waits.
 *
 * The queue grows for the conductor's own frames, whose number is bounded. Frames of the other end
 * are bounded because the conductor does not read them while end_pipe_is_full().
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
	char name[HOST_MAX]; /* of its host, for messages and START */
	bool daemon; /* far, and of a rdcpd */
	const char
		*ssh_host; /* far end: the host as ssh wants it, or the URL of a daemon's module */
	bool greeted, gone; /* gone: nothing more will arrive */
	/* It has sent a frame to the other end, so its session reports its own failures. */
	bool relayed_frame;
	bool relayed_done; /* one of them was DONE: the other end knows how the copy ended */
	/* It is `rdcp --ends': frames before its greeting come from an earlier end. */
	bool reused;
	int share; /* its end's half of a socket between the two ends; 0: none */
	union address *dialed; /* shared by both: where the rdcpd of one was reached; or NULL */
	uint64_t last_read_ms; /* when its last byte arrived (clock_ms) */
	uint64_t give_up_ms; /* its process is gone: when to give it up; 0: never */
	bool has_verdict;
	struct msg_greeting greeting;
	struct msg_verdict verdict;
	struct msg_progress progress;
	unsigned loopback_port; /* from its LISTENING; 0: none */

	struct framer in;
	uint8_t *out;
	size_t out_start, out_end, out_size;
};

void end_pipe_init(struct end_pipe *l);
/* Sets the host of the end, as ssh_host; "" for this host. */
void end_pipe_set_host(struct end_pipe *l, const char *host);
/* Takes over the pipes of the started child. Returns 0, or -1 with OUT_START. */
int end_pipe_open(struct end_pipe *l);
/* The end has sent its verdict, and begins anew. */
void end_pipe_renew(struct end_pipe *l);
/* Waits for the child to exit. Returns true if a signal ended the wait: a stop signal does so if
 * interrupted, that is, if it is not the first one. */
bool end_pipe_await_exit(struct end_pipe *l, uint64_t deadline_ms, bool interrupted);
/* Terminates the child, which it waits for as child_stop() does, and frees all; l need not have
 * been opened. */
void end_pipe_close(struct end_pipe *l);

/* Queues a frame. Returns 0, or -1 with OUT_MEMORY. Does nothing if the child's stdin is closed. */
int end_pipe_send(struct end_pipe *l, uint8_t type, const void *body, size_t len);
bool end_pipe_is_full(const struct end_pipe *l);
/* Writes what is queued, when poll(2) reports that the child takes bytes. */
void end_pipe_write(struct end_pipe *l);
/* Reads when poll(2) reports input. Returns 1, or 0 at the end of the stream. Then take the frames
 * with framer_next(). */
int end_pipe_read(struct end_pipe *l);

#endif
