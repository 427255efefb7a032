/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_OWNERS_H
#define COPY_ATTR_OWNERS_H

/*
 * Owners and groups go by name: the source looks up names of its numbers, the sink numbers of
 * those names.  All calls from any thread; looking up may wait for the system's user database.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct owners;

/* Source: */
int owners_new(struct owners **out);
void owners_free(struct owners *o);
/* To be told on this lane before its next use (a bit of a lane mask, set here)? Its name then; ""
 * if it has none (nothing is told then).  Remembers what the lane was told. */
bool owners_mark_announced(struct owners *o, bool group, uint32_t id, unsigned lane,
			   const char **name);

/* Sink: */
/* What OWNER said; at most OWNERS_MAX different ones (-1, OUT_PROTOCOL). */
enum { OWNERS_MAX = 1 << 16 };
int owners_add_name(struct owners *o, bool group, uint32_t id, const char *name);
/* The number here: that of the name there; where it has none, or none is known here, the number
 * itself.  root (0) is always root. numeric: always the number itself. */
uint32_t owners_map(struct owners *o, bool group, uint32_t id, bool numeric);
/* --chown USER:GROUP, USER, :GROUP, names or numbers; (uid_t)-1: not said.  OUT_USAGE for an
 * unknown one. */
int owners_parse(const char *chown, uid_t *uid, gid_t *gid);

#endif
