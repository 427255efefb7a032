/* SPDX-License-Identifier: Apache-2.0 */
/* What options imply, and which options contradict each other. */
#include "cmd/cli/options.h"

#include <string.h>
#include "base/fail.h"

static int check_deleting(const struct options *o)
{
	if (!o->rules.delete)
		return 0;
	if (o->files_from)
		return fail_as(
			OUT_USAGE,
			"--delete and --files-from contradict each other: what is not in the "
			"list is not known");
	if (!o->rules.recursive)
		return fail_as(OUT_USAGE, "--delete needs -r or -a: it deletes in a tree");
	return 0;
}

/* Lists of names that come over stdin: it can be read once only. */
static int check_stdin(const struct options *o)
{
	const char *first = NULL;

	if (o->files_from && strcmp(o->files_from, "-") == 0)
		first = "--files-from";
	for (unsigned i = 0; i < o->pattern_count; i++) {
		const struct option_pattern *r = &o->patterns[i];
		const char *name = r->include ? "--include-from" : "--exclude-from";

		if (!r->from_file || strcmp(r->text, "-") != 0)
			continue;
		if (first)
			return fail_as(OUT_USAGE, "%s and %s can't both be read from stdin", first,
				       name);
		first = name;
	}
	for (unsigned i = 0; first && i + 1 < o->operand_count; i++) {
		if (strcmp(o->operands[i], "-") == 0)
			return fail_as(OUT_USAGE, "%s and - can't both be read from stdin", first);
	}
	return 0;
}

static int check_tree(const struct options *o)
{
	if (o->files_from && o->operand_count > 2)
		return fail_as(OUT_USAGE, "--files-from: its names are in one SRC, not in several");
	if (o->rules.no_target_dir && o->rules.relative)
		return fail_as(OUT_USAGE,
			       "--no-target-directory and --relative contradict each other: the "
			       "paths of the sources are made below DST");
	if (o->rules.backup && o->rules.inplace)
		return fail_as(OUT_USAGE, "--backup and --inplace contradict each other: there the "
					  "old file is written over");
	if (strchr(o->rules.suffix, '/'))
		return fail_as(OUT_USAGE, "--suffix %s: it has a slash; see --backup-dir",
			       o->rules.suffix);
	return check_deleting(o) || check_stdin(o) ? -1 : 0;
}

/* What options imply that others may have taken back, or that depends on all of them. */
void options_settle(struct options *o)
{
	/* A list names what is wanted of directories, too. */
	if (o->archive && !o->files_from)
		o->rules.recursive = true;
	o->rules.delete = o->rules.delete || o->rules.delete_excluded;
	o->rules.backup = o->rules.backup || *o->rules.backup_dir;
	if (o->rules.backup && !*o->rules.backup_dir && !*o->rules.suffix)
		o->rules.suffix = "~";
	/* Otherwise it would say nothing. */
	o->itemize = o->itemize || (o->rules.dry_run && !o->json);
}

struct rules options_rules(const struct options *o)
{
	struct rules r = o->rules;
	bool by_time = r.times && !o->ignore_times;

	/* An ACL is a mode, too. */
	r.perms = r.perms || r.acls;
	r.fsync = r.fsync || r.remove_source;
	/* Where times are kept, one that is the same says that the file is; but nothing is removed
	 * because of a time. */
	r.quick = by_time && !r.checksum && !r.remove_source;
	r.checksum = r.checksum || (by_time && r.remove_source);
	r.remove_source = r.remove_source && !r.dry_run;
	r.events = options_want_events(o);
	return r;
}

int options_check_conflicts(const struct options *o)
{
	if (o->key_file && o->key_fd >= 0)
		return fail_as(OUT_USAGE, "--key-file and --key-fd: only one key is needed");
	if (o->rules.sparse && o->rules.no_sparse)
		return fail_as(OUT_USAGE, "--sparse and --no-sparse contradict each other");
	if (o->rules.sparse && o->rules.inplace)
		return fail_as(OUT_USAGE,
			       "--sparse and --inplace contradict each other: zeros must be "
			       "written over what is there");
	if (o->timeout_ms < 1000)
		return fail_as(OUT_USAGE, "--timeout must be at least a second");
	return check_tree(o);
}
