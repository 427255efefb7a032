/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_RULES_H
#define COPY_RULES_RULES_H

/*
 * What the user asks of a copy.  Options set it; START, RULE and LISTED carry it to both ends.
 * RULES_PLAIN, all zeros except for the bounds, is a plain copy of files.  A source or sink
 * borrows it; it must not change while they run.
 */

#include <stdbool.h>
#include <stdint.h>
#include "copy/rules/filter.h"
#include "copy/rules/files_from.h"
#include "protocol/message.h"

#define RULES_FIELD(field, bit) bool field;

struct rules {
	START_RULES(RULES_FIELD) /* each is explained there */
	uint64_t min_size, max_size; /* UINT64_MAX: any */
	uint64_t max_delete; /* UINT64_MAX: any number */
	const char *backup_dir, *suffix; /* "": none */
	const char *chmod, *chown; /* "": none */
	unsigned digest; /* enum content_digest of --print-digest */
	/* Only at an end: */
	const char *incoming_chmod; /* sink: applied to the source's modes; NULL: none */
	bool spare_trees; /* sink: a backup replaces no directory that has anything in it */
	/* sink: the peer learns nothing of the contents of files, so none counts as the same
	 * because of its content, and none gets a digest without being sent */
	bool hide_contents;
	const struct filter *filter; /* NULL: everything */
	const struct files_from *listed; /* --files-from; NULL: none */
};
#define RULES_DEFAULTS                                                                             \
	.max_size = UINT64_MAX, .max_delete = UINT64_MAX, .backup_dir = "", .suffix = "",          \
	.chmod = "", .chown = ""
#define RULES_PLAIN ((struct rules){RULES_DEFAULTS})

/* Converts the rules to START's flags and back.  START's other fields are copied by name. */
uint64_t rules_flags(const struct rules *r);
void rules_set_flags(struct rules *r, uint64_t flags);

/* A hash of everything but --files-from that chooses which files are copied. */
uint64_t rules_selection(const struct rules *r);

/* Must the source ask the sink about every regular file before it sends it? */
static inline bool rules_ask(const struct rules *r)
{
	return r->quick || r->update || r->ignore_existing || r->existing || r->checksum ||
	       r->dry_run;
}

#endif
