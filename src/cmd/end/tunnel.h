/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_TUNNEL_H
#define CMD_END_TUNNEL_H

/* A control channel over TLS that a process carries for another one: the conductor's side of a
 * connection to rdcpd, and rdcpd's. */

#include "session/channel/channel.h"

/*
 * Carries bytes between ch and the descriptors until either side ends. already_read: bytes of ch
 * that belong to out. What came from one side is delivered to the other one before this returns,
 * for 30 s at most, and from the last byte on as long as that takes some of it each second. A
 * process that reads out no more must say something each two seconds, or end. Closes in and out,
 * and frees ch. Returns 0, or -1 if ch failed, or OUT_SOCKET if in or out did.
 */
int tunnel_run(struct channel *ch, const void *already_read, size_t len, int in, int out);
/* From here on SIGTERM ends tunnel_run(), and not this process, which has one thread. */
void tunnel_end_on_sigterm(void);

#endif
