/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/refusals.h"

#include <string.h>
#include "base/fail.h"

static bool has_backup_dir(const struct orders *o)
{
	return *o->m.backup_dir;
}

static bool has_suffix(const struct orders *o)
{
	return *o->m.suffix;
}

static bool has_chmod(const struct orders *o)
{
	return *o->m.chmod;
}

static bool has_chown(const struct orders *o)
{
	return *o->m.chown;
}

static bool has_max_size(const struct orders *o)
{
	return o->m.max_size != UINT64_MAX;
}

static bool has_min_size(const struct orders *o)
{
	return o->m.min_size > 0;
}

static bool has_max_delete(const struct orders *o)
{
	return o->m.max_delete != UINT64_MAX;
}

static bool has_patterns(const struct orders *o)
{
	return o->rules.filter;
}

static bool has_digest(const struct orders *o)
{
	return o->m.digest != CONTENT_NONE;
}

static bool has_compress(const struct orders *o)
{
	return o->m.flags >> START_COMPRESS_SHIFT;
}

/* What a rule of START means, by the name of its field. */
enum {
#define RULE_BIT(field, bit) rule_##field = (bit),
	START_RULES(RULE_BIT)
};
#define RULE(field) START_FLAG(rule_##field), NULL

static const struct {
	const char *name;
	uint64_t flag; /* 0: ask */
	bool (*has)(const struct orders *o);
} options[] = {
	{"--acls", RULE(acls)},
	{"--backup", RULE(backup)},
	{"--backup-dir", 0, has_backup_dir},
	{"--checksum", RULE(checksum)},
	{"--chmod", 0, has_chmod},
	{"--chown", 0, has_chown},
	{"--compress", 0, has_compress},
	{"--copy-links", RULE(copy_links)},
	{"--delete", RULE(delete)},
	{"--delete-excluded", RULE(delete_excluded)},
	{"--devices", RULE(devices)},
	{"--dry-run", RULE(dry_run)},
	{"--exclude", 0, has_patterns},
	{"--existing", RULE(existing)},
	{"--files-from", START_FILES_FROM, NULL},
	{"--fsync", RULE(fsync)},
	{"--group", RULE(group)},
	{"--hard-links", RULE(hard_links)},
	{"--ignore-existing", RULE(ignore_existing)},
	{"--include", 0, has_patterns},
	{"--inplace", RULE(inplace)},
	{"--max-delete", 0, has_max_delete},
	{"--max-size", 0, has_max_size},
	{"--min-size", 0, has_min_size},
	{"--mkpath", RULE(mkpath)},
	{"--no-sparse", RULE(no_sparse)},
	{"--no-target-directory", RULE(no_target_dir)},
	{"--numeric-ids", RULE(numeric_ids)},
	{"--one-file-system", RULE(one_file_system)},
	{"--owner", RULE(owner)},
	{"--perms", RULE(perms)},
	{"--print-digest", 0, has_digest},
	{"--recursive", RULE(recursive)},
	{"--relative", RULE(relative)},
	{"--remove-source-files", RULE(remove_source)},
	{"--sparse", RULE(sparse)},
	{"--suffix", 0, has_suffix},
	{"--times", RULE(times)},
	{"--update", RULE(update)},
	{"--verify", RULE(verify)},
	{"--xattrs", RULE(xattrs)},
};
enum { OPTIONS = sizeof options / sizeof *options };
_Static_assert(OPTIONS <= 64, "one bit for each");

static int find_option(const char *word, size_t len)
{
	if (len > 2 && memcmp(word, "--", 2) == 0) {
		word += 2;
		len -= 2;
	}
	for (unsigned i = 0; i < OPTIONS; i++)
		if (strlen(options[i].name) == 2 + len &&
		    memcmp(options[i].name + 2, word, len) == 0)
			return (int)i;
	return -1;
}

int refusals_parse(const char *text, uint64_t *to)
{
	static const char between[] = " \t,";

	*to = 0;
	for (text += strspn(text, between); *text; text += strspn(text, between)) {
		size_t len = strcspn(text, between);
		int i = find_option(text, len);

		if (i < 0)
			return fail_as(OUT_USAGE, "%.*s is no option that can be refused", (int)len,
				       text);
		*to |= UINT64_C(1) << i;
		text += len;
	}
	return *to ? 0 : fail_as(OUT_USAGE, "no option is given");
}

const char *refusals_find(uint64_t refused, const struct orders *o)
{
	for (unsigned i = 0; i < OPTIONS; i++) {
		if (!(refused >> i & 1))
			continue;
		if (options[i].flag ? orders_have(o, options[i].flag) : options[i].has(o))
			return options[i].name;
	}
	return NULL;
}
