/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_OWNERS_H
#define COPY_ATTR_OWNERS_H

/*
 * Owners and groups are matched by name: the source looks up the names of its ids, the sink the ids
 * of those names.  All calls from any thread; a lookup may wait for the system's user database.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct owners;

/* Source: */
int owners_new(struct owners **out);
void owners_free(struct owners *o);
/* Must the name of this id be sent on this lane before the id is used there?  Then returns true,
 * with the name, and remembers that the lane has it.  Neither an id without a name (name "")
 * nor root (0) is sent. */
bool owners_mark_announced(struct owners *o, bool group, uint32_t id, unsigned lane,
			   const char **name);

/* Sink: */
/* Adds the name from an OWNER record.  At most OWNERS_MAX different ids (else -1, OUT_PROTOCOL). */
enum { OWNERS_MAX = 1 << 16 };
int owners_add_name(struct owners *o, bool group, uint32_t id, const char *name);
/* The id on this host: that of the same name, or the same number if the source sent no name or it
 * is unknown here.  root (0) is always root.  numeric: always the same number. */
uint32_t owners_map(struct owners *o, bool group, uint32_t id, bool numeric);
/* --chown USER:GROUP, USER, :GROUP, as names or numbers; (uid_t)-1: not given.  -1, OUT_USAGE:
 * unknown. */
int owners_parse(const char *chown, uid_t *uid, gid_t *gid);

#endif
