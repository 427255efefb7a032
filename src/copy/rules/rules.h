/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_RULES_H
#define COPY_RULES_RULES_H

/*
 * What a user asked for of a copy, as both ends are told it in START, RULE and LISTED.  All zeros
 * (but for the bounds, see rules_plain) is a plain copy of files.  Borrowed, and unchanged while
 * a source or sink runs.
 */

#include <stdbool.h>
#include <stdint.h>
#include "copy/rules/filter.h"
#include "copy/rules/listed.h"
#include "protocol/message.h"

struct rules {
	bool recursive;
	/* what is kept */
	bool perms, times, atimes, owner, group, devices;
	bool hard_links, acls, xattrs, xattrs_all, numeric_ids;
	/* what is taken */
	bool copy_links, relative, one_file_system;
	uint64_t min_size, max_size; /* UINT64_MAX: any */
	const struct filter *filter; /* NULL: everything */
	const struct listed *listed; /* --files-from; NULL: none */
	/* what is replaced */
	bool quick, update, ignore_existing, checksum;
	bool existing; /* what is not there is not made */
	bool delete, delete_excluded;
	uint64_t max_delete; /* UINT64_MAX: any number */
	bool backup;
	const char *backup_dir, *suffix; /* "" */
	const char *chmod, *chown; /* "" */
	/* how */
	bool dry_run, verify;
	bool events; /* on_event() is wanted */
	enum content_digest digest;
};
#define RULES_PLAIN                                                                                \
	((struct rules){                                                                           \
		.max_size = UINT64_MAX,                                                            \
		.max_delete = UINT64_MAX,                                                          \
		.backup_dir = "",                                                                  \
		.suffix = "",                                                                      \
		.chmod = "",                                                                       \
		.chown = "",                                                                       \
	})

/* Must the source ask the sink about every regular file before it sends it? */
static inline bool rules_ask(const struct rules *r)
{
	return r->quick || r->update || r->ignore_existing || r->existing || r->checksum ||
	       r->dry_run;
}

#endif
