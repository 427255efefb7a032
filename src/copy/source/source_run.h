/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_RUN_H
#define COPY_SOURCE_SOURCE_RUN_H

/* A source: it reads what was asked for and sends it.  copy.h has the rules of a run. */

#include "copy/copy.h"

struct source_opts {
	char *const *names; /* SRCs as the user wrote them: ~ and patterns are expanded here */
	unsigned count;
	struct stream stream; /* instead of names when fd >= 0 */
	bool expand; /* names are from another host: expand ~ and patterns */
	const struct rules *rules; /* NULL: plain */
	enum direct direct;
	int clones; /* a socket to the other end, if that is on this host (clone.h); 0: none */
	uint64_t memory_bytes; /* instead of names, when not 0: so many bytes that are made here */
	bool unchecked; /* these without digests: the session's lanes have no hashes either */
};

extern const struct copy_role source_role;
int source_run(struct copy *c, struct session *s, const struct source_opts *o, struct tally *t,
	       struct copy_result *r);

#endif
