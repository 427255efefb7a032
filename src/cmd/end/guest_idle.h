/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_GUEST_IDLE_H
#define CMD_END_GUEST_IDLE_H

/*
 * Ends a guest in which nothing has moved for the time that rdcpd allows. Heartbeats do not count.
 * What does:
 * - bytes of blocks that arrive (sink) or were read to be sent (source);
 * - frames about files: an answer, a result;
 * - what the end does itself while its client waits, such as deleting, or reading files to compare
 * them: requests to a disk, or 2 % of a processor.
 *
 * A thread of its own looks, because all others may wait for the client.
 */

#include "cmd/end/end_work.h"
#include "cmd/end/guest.h"

struct guest_idle;

/* Starts to look, if g has a limit; else *out is NULL. Both are borrowed. Returns 0, or -1 with a
 * failure. */
int guest_idle_start(const struct guest *g, struct end_work *w, struct guest_idle **out);
/* i may be NULL. */
void guest_idle_stop(struct guest_idle *i);

#endif
