/* SPDX-License-Identifier: Apache-2.0 */
/* What options imply, and which options cannot be combined. */
#include "cmd/cli/options.h"

#include <string.h>
#include "base/fail.h"

static int check_deleting(const struct options *o)
{
	if (!o->rules.delete)
		return 0;
	if (o->files_from)
		return fail_as(OUT_USAGE,
			       "--delete and --files-from cannot be combined: a list does not show "
			       "which names SRC lacks");
	if (!o->rules.recursive)
		return fail_as(OUT_USAGE, "--delete needs -r or -a");
	return 0;
}

/* At most one list of names can come from stdin. */
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

/* Does the path consist of "." only? */
static bool is_current_dir(const char *path)
{
	return path[0] == '.' && path[strspn(path, "./")] == '\0' && !strstr(path, "..");
}

static int check_tree(const struct options *o)
{
	if (o->files_from && o->operand_count > 2)
		return fail_as(OUT_USAGE,
			       "--files-from takes one SRC, which its names are relative to");
	if (o->rules.no_target_dir && o->rules.relative)
		return fail_as(
			OUT_USAGE,
			"--no-target-directory and --relative cannot be combined: --relative "
			"creates the paths of the sources below DST");
	if (o->rules.backup && o->rules.inplace)
		return fail_as(
			OUT_USAGE,
			"--backup and --inplace cannot be combined: --inplace overwrites the "
			"old file");
	if (strchr(o->rules.suffix, '/'))
		return fail_as(
			OUT_USAGE,
			"--suffix %s: a suffix must not contain a slash; use --backup-dir for "
			"another directory",
			o->rules.suffix);
	if (is_current_dir(o->rules.backup_dir))
		return fail_as(OUT_USAGE,
			       "--backup-dir=%s is the target itself: a backup there needs another "
			       "name (--suffix)",
			       o->rules.backup_dir);
	return check_deleting(o) || check_stdin(o) ? -1 : 0;
}

/* Runs after the last option, because a later option can revoke an earlier one (--no-recursive). */
void options_settle(struct options *o)
{
	/* --files-from also lists what to copy from each directory. */
	if (o->archive_recursive && !o->files_from)
		o->rules.recursive = true;
	o->rules.delete = o->rules.delete || o->rules.delete_excluded;
	o->rules.backup = o->rules.backup || *o->rules.backup_dir;
	/* In the target itself, backups are beside their originals. */
	if (*o->rules.suffix && is_current_dir(o->rules.backup_dir))
		o->rules.backup_dir = "";
	if (o->rules.backup && !*o->rules.backup_dir && !*o->rules.suffix)
		o->rules.suffix = "~";
	/* Without it --dry-run would print nothing. */
	o->output.itemize = o->output.itemize || (o->rules.dry_run && !o->output.json);
}

struct rules options_rules(const struct options *o)
{
	struct rules r = o->rules;
	bool by_time = r.times && !o->ignore_times;

	/* The mode is part of an ACL. */
	r.perms = r.perms || r.acls;
	r.fsync = r.fsync || r.remove_source;
	/* With --times, the same size and time mean the same file. --remove-source-files needs more
	 * proof than a time. */
	r.quick = by_time && !r.checksum && !r.remove_source;
	r.checksum = r.checksum || (by_time && r.remove_source);
	r.events = options_want_events(o);
	return r;
}

int options_check_conflicts(const struct options *o)
{
	if (o->key.file && o->key.fd >= 0)
		return fail_as(OUT_USAGE,
			       "--key-file and --key-fd cannot be combined: give one key");
	if (o->rules.sparse && o->rules.no_sparse)
		return fail_as(OUT_USAGE, "--sparse and --no-sparse cannot be combined");
	if (o->rules.sparse && o->rules.inplace)
		return fail_as(
			OUT_USAGE,
			"--sparse and --inplace cannot be combined: --inplace must overwrite "
			"old data with zeros");
	if (o->network.timeout_ms < 1000)
		return fail_as(OUT_USAGE, "--timeout must be at least 1 second");
	return check_tree(o);
}
