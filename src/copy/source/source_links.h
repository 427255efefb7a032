/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_LINKS_H
#define COPY_SOURCE_SOURCE_LINKS_H

/*
 * --hard-links: the names of an inode form a group.  The first name that may be replaced at the
 * target leads it: it is sent, and the others follow as hard links to it when its result is in.
 * If it fails the next name takes the lead, so that no name is lost by another one's trouble.  The
 * copy's lock is held in all calls.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hashes.h"
#include "base/table.h"
#include "copy/source/source_seen.h"

/* So many names try to lead: a full disk is not filled by each of a million. */
enum { LEADS_MAX = 32 };

struct link_group {
	struct seen seen; /* of the name that leads; the others are further names of that */
	uint32_t id; /* that it is sent as */
	unsigned round; /* in which it took the lead */
	unsigned leads; /* names that did */
};
struct links {
	struct table groups; /* by inode */
	struct hashes failed; /* ids */
	unsigned round; /* of sending hard links: one more when all before has its result */
	bool all_failed; /* these could not be remembered */
};
#define LINKS_NONE ((struct links){.groups = TABLE_BY(link_group, seen.inode)})

/* Here is a name of an inode that has several; id is what it would be sent as.  1: another name
 * leads.  0: this one does.  -1: OUT_MEMORY. */
int links_join(struct links *t, const struct seen *seen, uint32_t id, struct link_group **out);
/* A file failed. */
void links_fail(struct links *t, uint32_t id);
/* Did the name that leads fail? */
bool links_lead_failed(const struct links *t, const struct link_group *g);
void links_free(struct links *t);

#endif
