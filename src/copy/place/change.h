/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_CHANGE_H
#define COPY_PLACE_CHANGE_H

/* How a target differs, or would differ: rsync's --itemize-changes. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "protocol/message.h"

struct change {
	enum event_what what;
	bool missing; /* nothing had that name */
	bool type, content, size, time, perms, owner, group, acl, xattr;
	/* These alone are no change: */
	bool device; /* an EVENT_NODE that is not a FIFO */
	bool now; /* times are not preserved: what is made or sent gets the current time */
};
static inline bool change_any(const struct change *c)
{
	return c->missing || c->type || c->content || c->size || c->time || c->perms || c->owner ||
	       c->group || c->acl || c->xattr;
}
/* Formats c like "<f.st......", 11 letters.  The first one: if bytes are transferred (sent) '<' to
 * a remote sink (far), else '>'; 'h' for a hard link; 'c' for what is made at the target; '.' if
 * only attributes change. */
void change_text(const struct change *c, bool sent, bool far, char to[static EVENT_CHANGE]);
/* What an entry of this type is in events. */
enum event_what change_event_of(mode_t mode);

#endif
