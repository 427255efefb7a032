/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_LINKS_H
#define COPY_SOURCE_SOURCE_LINKS_H

/*
 * --hard-links: the names of an inode form a group.  The first name that may be replaced at the
 * target leads the group.  It is sent, and the others follow as hard links to it when its result is
 * in.  If it fails, the next name takes the lead, so no name is lost because of another one.
 *
 * The copy's lock is held in all calls.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hash_set.h"
#include "base/table.h"
#include "copy/source/source_seen.h"

/* This many names try to lead, so that a full disk is not filled again by each of a million
 * names. */
enum { LEADS_MAX = 32 };

struct link_group {
	struct seen seen; /* of the leading name; the others are further names of that inode */
	uint32_t id; /* under which it is sent */
	unsigned round; /* links.round when it took the lead */
	unsigned leads; /* how many names have led so far */
};
struct links {
	struct table groups; /* by inode */
	struct hash_set failed; /* ids of failed files */
	/* of sending hard links; starts anew when everything before has its result */
	unsigned round;
	bool all_failed; /* failed ids could not be remembered, so all count as failed */
};
#define LINKS_NONE ((struct links){.groups = TABLE_BY(link_group, seen.inode)})

/* A name of an inode with several names was found; id is what it would be sent as.  1: another name
 * leads.  0: this one does.  -1: OUT_MEMORY. */
int links_join(struct links *t, const struct seen *seen, uint32_t id, struct link_group **out);
/* The file of that id failed. */
void links_fail(struct links *t, uint32_t id);
/* Did the leading name fail? */
bool links_lead_failed(const struct links *t, const struct link_group *g);
void links_free(struct links *t);

#endif
