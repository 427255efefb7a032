/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_RELAY_H
#define CMD_END_RELAY_H

/*
 * The end of a stream across a relay, `rdrecv … -- rdsend NEXT …'.
 *
 * When a rdrecv is killed, its command reads the same end of input as after a complete stream.
 * So rdrecv confirms the end: its command inherits one of a pair of sockets, and RELAY_VARIABLE
 * names it ("descriptor:inode").  rdrecv writes a byte into the other one when it has stored and
 * verified everything.  A socket that only hangs up means that rdrecv died or failed.  Readers
 * never read it, so that every rdsend below the command sees the confirmation.
 *
 * An rdsend whose stdin is a pipe writes a byte, too, when it has read the end of its input.  If
 * the command reads nothing more from then on, each would wait for the other for ever; so rdrecv
 * asks relay_is_awaited().
 *
 * The inode detects a descriptor that a program in between has closed or replaced.  Then no end of
 * the input can be trusted, and the reader fails.  Without the variable the end counts as it is.
 */

#include <stdbool.h>
#include <sys/types.h>

#define RELAY_VARIABLE "SLUICE_INPUT_CONFIRM"

/* For rdrecv. */
struct relay {
	int confirm; /* our end; -1: none */
	int inherit; /* the command's end; close-on-exec until the command starts */
	char env[sizeof RELAY_VARIABLE + 40]; /* NAME=VALUE for the command */
};
int relay_open(struct relay *r);
/* Call when the command has started. */
void relay_started(struct relay *r);
/* Call when the command has the whole stream. Returns 0, or -1 with a failure. */
int relay_confirm(struct relay *r);
/* Has an rdsend below the command read the end of its input, and stdin is a pipe? */
bool relay_is_awaited(const struct relay *r);
/* Without a confirmation before, readers learn that none will come. Call it before the command is
 * stopped: its signal is then not taken for the cause. */
void relay_close(struct relay *r);

/* For rdsend, and for a rdcp that reads stdin: takes the descriptor that RELAY_VARIABLE names, and
 * removes the variable. The descriptor is not passed on to other programs; forked processes keep
 * it. Call this before starting any thread or child. From then on a signal that comes when rdrecv
 * has failed counts as that failure (fail_signal_by()). */
void relay_take(void);
/* Returns 0; -1 with OUT_PEER_LOST if a program in between has closed or replaced the descriptor.
 */
int relay_check(void);
/* Waits for the confirmation, if there is such a descriptor. Returns 0; -1 with OUT_PEER_LOST if it
 * can no longer come, OUT_SIGNAL if cancelled(). Any thread. */
int relay_await(void);
/* At the end of the input: tells the upstream rdrecv, and waits. For stream.finish in copy.h; ctx
 * is unused. */
int relay_finish(void *ctx);

#endif
