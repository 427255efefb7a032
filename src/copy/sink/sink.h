/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SINK_SINK_H
#define COPY_SINK_SINK_H

/* A sink stores what a source sends.  copy.h has the rules of a run. */

#include "copy/copy.h"

struct taken;
struct sink_opts {
	const char *target; /* DST */
	char *const *wants; /* SRCs as the user wrote them: names that match none are refused */
	unsigned count;
	struct stream stream; /* instead of target when fd >= 0 */
	bool many; /* several sources: the target must be a directory */
	const struct rules *rules; /* NULL: plain */
	const char *peer; /* the source's host; "" */
	bool far; /* this end is on another host than the conductor: changes begin with '<' */
	bool expand; /* expand ~ in target */
	bool single_stream; /* for one unnamed stream: target is the file itself (rdrecv FILE) */
	enum direct direct;
	int clones; /* a socket to the source, if that is on this host (clone.h); 0: none */
	bool discard; /* check what arrives, then discard it */
	bool unchecked; /* without digests, as at the source; only with discard */
	const struct taken *taken; /* names in target that must not be replaced; NULL: none */
};

extern const struct copy_role sink_role;
int sink_run(struct copy *c, struct session *s, const struct sink_opts *o, struct tally *t,
	     struct copy_result *r);

#endif
