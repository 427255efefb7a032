/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_CHANGE_H
#define COPY_PLACE_CHANGE_H

/* What is, or would be, different at the target: rsync's --itemize-changes. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "protocol/message.h"

struct change {
	enum event_what what;
	bool missing; /* there was nothing of that name */
	bool type, content, size, time, perms, owner, group, acl, xattr;
	/* Of no weight by themselves: */
	bool device; /* an EVENT_NODE that is no FIFO */
	bool now; /* times are not kept: what is made or sent gets the time of the copy */
};
static inline bool change_any(const struct change *c)
{
	return c->missing || c->type || c->content || c->size || c->time || c->perms || c->owner ||
	       c->group || c->acl || c->xattr;
}
/* "<f.st......": 11 letters.  sent is that the bytes go over (far: to a remote sink, "<", else
 * ">"); a hard link has "h", else what is made here "c", and what only changes "." there. */
void change_text(const struct change *c, bool sent, bool far, char to[static EVENT_CHANGE]);
/* What an entry of this type is in events. */
enum event_what change_event_of(mode_t mode);

#endif
