/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of all programs: which options they set, and what they refuse. */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "cmd/cli/amount.h"
#include "cmd/cli/options.h"
#include "cmd/conductor/far_command.h"

enum { WORDS = 32 };

/* Parse words (up to NULL) as the arguments of the program. */
static int parse(struct options *o, enum program p, ...)
{
	static char room[WORDS][256];
	static char *argv[WORDS + 2]; /* o points into it */
	int argc = 1;
	const char *word;
	va_list ap;

	memset(argv, 0, sizeof argv);
	argv[0] = (char *)"program";
	va_start(ap, p);
	while ((word = va_arg(ap, const char *)) && argc < WORDS) {
		strncpy(room[argc], word, sizeof room[argc] - 1);
		argv[argc] = room[argc];
		argc++;
	}
	va_end(ap);
	fail_clear();
	return options_parse(o, p, argc, argv);
}

#define refused(why, ...)                                                                          \
	do {                                                                                       \
		struct options ro;                                                                 \
		assert_int_equal(parse(&ro, __VA_ARGS__, NULL), -1);                               \
		assert_int_equal(failed()->code, OUT_USAGE);                                       \
		if (!strstr(failed()->text, why))                                                  \
			fail_msg("%s: not about %s", failed()->text, why);                         \
	} while (0)

static void defaults_match_the_manual(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "a", "b", NULL), 0);
	assert_int_equal(o.network.timeout_ms, 15000);
	assert_int_equal(o.network.connect_timeout_ms, 10000);
	assert_int_equal(o.network.want, TRANSPORT_AUTO);
	assert_int_equal(o.speed.lanes, 0);
	assert_true(o.speed.memory == UINT64_MAX);
	assert_int_equal(o.key.fd, -1);
	assert_string_equal(o.remote.rdcp_path, "rdcp");
	assert_int_equal(o.operand_count, 2);
	options_free(&o);
}

static void options_may_follow_operands(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-vv", "a", "--lanes=4", "b", "-pT", "--depth", "3",
			       "--block-size=1M", "--bwlimit", "8gbit", "--memory=2k", NULL),
			 0);
	assert_int_equal(o.output.verbose, 2);
	assert_int_equal(o.speed.lanes, 4);
	assert_int_equal(o.speed.depth, 3);
	assert_int_equal(o.speed.block_size, 1 << 20);
	assert_true(o.network.bwlimit == 1000000000);
	assert_int_equal(o.speed.memory, 2048);
	assert_true(o.rules.perms && o.rules.times && o.rules.atimes && o.rules.no_target_dir);
	assert_false(o.rules.owner || o.rules.group || o.rules.recursive);
	assert_int_equal(o.operand_count, 2);
	assert_string_equal(o.operands[1], "b");
	options_free(&o);
}

static void progress_takes_optional_seconds(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "--progress", "a", "b", NULL), 0);
	assert_true(o.output.progress);
	assert_int_equal(o.output.progress_s, 0);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--progress=7", "a", "b", NULL), 0);
	assert_int_equal(o.output.progress_s, 7);
	options_free(&o);
	refused("--progress", RDCP, "--progress=x", "a", "b");
}

static void rdcpd_takes_modules(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCPD, "--module=a=/x", "--module", "b=/y:rw", "--port=0",
			       "--key-file=k", NULL),
			 0);
	assert_int_equal(o.serve.modules.count, 2);
	assert_string_equal(o.serve.modules.of[1], "b=/y:rw");
	assert_int_equal(o.serve.port, 0);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--daemon-port=7", "a", "b", NULL), 0);
	assert_int_equal(o.serve.port, 7);
	options_free(&o);
	refused("unexpected operand a", RDCPD, "a");
	refused("--port", RDCPD, "--port=65536");
	refused("--daemon-port", RDCP, "--daemon-port=0", "a", "b");
	refused("--module", RDCPD, "--module=");
	refused("unknown option", RDCPD, "--timeout=3");
}

static void rdbench_and_rdcheck_take_one_host_at_most(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDBENCH, NULL), 0);
	assert_int_equal(o.operand_count, 0);
	assert_int_equal(o.measure.ms, 1000);
	options_free(&o);
	assert_int_equal(parse(&o, RDBENCH, "--source", "/data", "--target=t", "--seconds=0.25",
			       "--plot=p.svg", "--lanes=2", "-P", "22", "--", "host", NULL),
			 0);
	assert_string_equal(o.measure.source, "/data");
	assert_string_equal(o.measure.target, "t");
	assert_string_equal(o.measure.plot, "p.svg");
	assert_int_equal(o.measure.ms, 250);
	assert_null(o.command);
	assert_string_equal(o.operands[0], "host");
	options_free(&o);
	assert_int_equal(parse(&o, RDCHECK, "host", NULL), 0);
	options_free(&o);
	refused("unexpected operand b", RDBENCH, "a", "b");
	refused("unexpected operand b", RDCHECK, "a", "b");
	refused("is not a host name", RDBENCH, "");
	refused("is not a host name", RDCHECK, "");
	refused("is not a host name", RDCHECK, "--", "-x");
	refused("--transport", RDBENCH, "--transport=ssh");
	refused("unknown option", RDCHECK, "--lanes=2");
	refused("unknown option", RDCP, "--plot=x", "a", "b");
}

static void ssh_options_are_passed_on(void **state)
{
	static const char *const want[] = {"-p", "2222", "-i", "id", "-o", "A=b", "-J", "hop"};
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-P", "2222", "-i", "id", "-oA=b", "-J", "hop", "a", "h:b",
			       NULL),
			 0);
	assert_int_equal(o.remote.ssh_count, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_string_equal(o.remote.ssh_args[i], want[i]);
	options_free(&o);
}

static void command_follows_double_dash(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDSEND, "h", "7", "k", "--", "zfs", "-v", "send", NULL), 0);
	assert_int_equal(o.operand_count, 3);
	assert_int_equal(o.output.verbose, 0);
	assert_string_equal(o.command[0], "zfs");
	assert_string_equal(o.command[1], "-v");
	options_free(&o);
	/* Before the last required operand `--' only ends the options. */
	assert_int_equal(parse(&o, RDRECV, "--", "7", "-key", NULL), 0);
	assert_null(o.command);
	assert_string_equal(o.operands[1], "-key");
	options_free(&o);
	assert_int_equal(parse(&o, RDRECV, "--", "7", "-key", "--", "cat", NULL), 0);
	assert_string_equal(o.command[0], "cat");
	options_free(&o);
	/* Without a KEY operand `--' comes one operand earlier. */
	assert_int_equal(parse(&o, RDRECV, "--key-file", "f", "7", "--", "cat", NULL), 0);
	assert_int_equal(o.operand_count, 1);
	assert_string_equal(o.command[0], "cat");
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--", "-a", "--", NULL), 0);
	assert_int_equal(o.operand_count, 2);
	assert_string_equal(o.operands[1], "--");
	options_free(&o);
	refused("no command", RDSEND, "h", "7", "k", "--");
	refused("cannot be combined", RDSEND, "h", "7", "k", "file", "--", "cat");
}

static void operands_are_counted(void **state)
{
	struct options o;

	(void)state;
	refused("SRC and DST", RDCP, "-v");
	refused("DST is missing", RDCP, "a");
	refused("HOST is missing", RDSEND, "-v");
	refused("PORT is missing", RDSEND, "h");
	refused("KEY is missing", RDSEND, "h", "7");
	refused("PORT is missing", RDRECV, "--key-fd=3");
	refused("KEY is missing", RDRECV, "7");
	refused("unexpected operand g", RDRECV, "7", "k", "f", "g");
	assert_int_equal(parse(&o, RDRECV, "--make-key", "f", NULL), 0);
	assert_int_equal(o.action, ACTION_MAKE_KEY);
	options_free(&o);
}

static void values_out_of_range_are_refused(void **state)
{
	(void)state;
	refused("--lanes", RDCP, "--lanes=0", "a", "b");
	refused("expected N from 1 to 64: ", RDCP, "--lanes=65", "a", "b");
	refused("--lanes", RDCP, "--lanes=65", "a", "b");
	refused("--depth", RDCP, "--depth=-1", "a", "b");
	refused("--block-size", RDCP, "--block-size=3", "a", "b");
	refused("--block-size", RDCP, "--block-size=8M", "a", "b");
	refused("--block-size", RDCP, "--block-size=5000", "a", "b");
	refused("--transport", RDCP, "--transport=pigeon", "a", "b");
	refused("--transport", RDSEND, "--transport=ssh", "h", "7", "k");
	refused("--port-range", RDCP, "--port-range=9-8", "a", "b");
	refused("--timeout", RDCP, "--timeout=soon", "a", "b");
	refused("--timeout", RDCP, "--timeout=0", "a", "b");
	refused("needs an argument", RDCP, "a", "b", "--lanes");
	refused("needs an argument", RDCP, "a", "b", "-e");
	refused("no argument", RDCP, "--mkpath=x", "a", "b");
	refused("cannot be combined", RDCP, "--sparse", "--no-sparse", "a", "b");
}

static void archive_implies_the_usual_options(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-a", "a", "b", NULL), 0);
	assert_true(o.rules.recursive && o.rules.perms && o.rules.times && o.rules.owner &&
		    o.rules.group && o.rules.devices);
	assert_false(o.rules.atimes || o.rules.hard_links || o.rules.acls || o.rules.xattrs ||
		     o.rules.numeric_ids || o.rules.delete);
	assert_true(o.rules.max_size == UINT64_MAX && o.rules.min_size == 0 &&
		    o.rules.max_delete == UINT64_MAX);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "-rHAX", "--links", "a", "b", NULL), 0);
	assert_true(o.rules.recursive && o.rules.hard_links && o.rules.acls && o.rules.xattrs);
	assert_false(o.rules.perms || o.rules.times || o.rules.xattrs_all);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--xattrs=all", "a", "b", NULL), 0);
	assert_true(o.rules.xattrs && o.rules.xattrs_all);
	options_free(&o);
	refused("--xattrs", RDCP, "--xattrs=some", "a", "b");
}

/* Letters that rsync has and scp has not. */
static void rsync_letters_are_accepted(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-rtgbLWIhzxHn", "a", "b", NULL), 0);
	assert_true(o.rules.times && o.rules.group && o.rules.backup && o.rules.copy_links &&
		    o.rules.one_file_system && o.rules.hard_links && o.rules.dry_run &&
		    o.network.compress && o.ignore_times);
	assert_false(o.rules.perms || o.rules.owner);
	assert_int_equal(o.action, ACTION_RUN);
	options_free(&o);
	assert_int_equal(
		parse(&o, RDCP, "--ignore-non-existing", "--zc=zstd", "--zl=3", "a", "b", NULL), 0);
	assert_true(o.rules.existing && o.network.compress);
	options_free(&o);
	assert_int_equal(parse(&o, RDSEND, "-h", NULL), 0);
	assert_int_equal(o.action, ACTION_HELP);
	options_free(&o);
	assert_int_equal(parse(&o, RDSEND, "-vh", "h", "7", "k", NULL), 0);
	assert_int_equal(o.action, ACTION_RUN);
	options_free(&o);
}

static void no_options_undo_archive(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-a", "--no-owner", "--no-group", "--no-perms",
			       "--no-times", "--no-devices", "a", "b", NULL),
			 0);
	assert_true(o.rules.recursive);
	assert_false(o.rules.perms || o.rules.times || o.rules.owner || o.rules.group ||
		     o.rules.devices);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--no-times", "-a", "a", "b", NULL), 0);
	assert_true(o.rules.times);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "-a", "--no-recursive", "a", "b", NULL), 0);
	assert_false(o.rules.recursive);
	assert_true(o.rules.perms && o.archive);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--no-recursive", "-a", "a", "b", NULL), 0);
	assert_true(o.rules.recursive);
	options_free(&o);
}

/* As in rsync, -a does not make --files-from recursive; -r does. */
static void files_from_is_recursive_only_with_r(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-a", "--files-from=l", "a", "b", NULL), 0);
	assert_false(o.rules.recursive);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "-a", "-r", "--files-from=l", "a", "b", NULL), 0);
	assert_true(o.rules.recursive);
	options_free(&o);
	refused("one SRC", RDCP, "--files-from=l", "a", "b", "c");
}

static void filter_options_keep_their_order(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "--include=*.c", "--exclude-from", "f", "--exclude", "*",
			       "--include-from=-", "a", "b", NULL),
			 0);
	assert_int_equal(o.pattern_count, 4);
	assert_true(o.patterns[0].include && !o.patterns[0].from_file);
	assert_string_equal(o.patterns[0].text, "*.c");
	assert_true(!o.patterns[1].include && o.patterns[1].from_file);
	assert_true(!o.patterns[2].include && !o.patterns[2].from_file);
	assert_string_equal(o.patterns[2].text, "*");
	assert_true(o.patterns[3].include && o.patterns[3].from_file);
	options_free(&o);
	refused("--exclude", RDCP, "--exclude=", "a", "b");
}

static void stdin_serves_one_option_only(void **state)
{
	(void)state;
	refused("can't both", RDCP, "--files-from=-", "--exclude-from=-", "a", "b");
	refused("can't both", RDCP, "--include-from=-", "--exclude-from=-", "a", "b");
	refused("can't both", RDCP, "--exclude-from=-", "-", "b");
}

static void delete_needs_recursive_and_no_files_from(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(
		parse(&o, RDCP, "-r", "--delete-excluded", "--max-delete=0", "a", "b", NULL), 0);
	assert_true(o.rules.delete &&o.rules.delete_excluded);
	assert_int_equal(o.rules.max_delete, 0);
	options_free(&o);
	refused("needs -r", RDCP, "--delete", "a", "b");
	refused("cannot be combined", RDCP, "-r", "--delete", "--files-from=l", "a", "b");
}

static void relative_excludes_no_target_directory(void **state)
{
	struct options o;

	(void)state;
	refused("--no-target-directory and --relative", RDCP, "-T", "--relative", "a", "b");
	refused("--no-target-directory and --relative", RDCP, "--relative", "-T", "a", "b");
	assert_int_equal(parse(&o, RDCP, "-T", "a", "b", NULL), 0);
	options_free(&o);
}

static void backup_defaults_and_conflicts(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "--backup", "a", "b", NULL), 0);
	assert_string_equal(o.rules.suffix, "~");
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--backup-dir=old", "a", "b", NULL), 0);
	assert_true(o.rules.backup);
	assert_string_equal(o.rules.suffix, "");
	options_free(&o);
	refused("slash", RDCP, "--backup", "--suffix=/x", "a", "b");
	refused("cannot be combined", RDCP, "--backup", "--inplace", "a", "b");
}

static void print_digest_takes_known_algorithms(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "--print-digest", "a", "b", NULL), 0);
	assert_int_equal(o.rules.digest, CONTENT_XXH128);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "--print-digest=adler32", "a", "b", NULL), 0);
	assert_int_equal(o.rules.digest, CONTENT_ADLER32);
	options_free(&o);
	refused("--print-digest", RDCP, "--print-digest=none", "a", "b");
	refused("--print-digest", RDCP, "--print-digest=crc", "a", "b");
}

/* A dry run prints what the run would change. */
static void dry_run_implies_itemize_changes(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "-n", "a", "b", NULL), 0);
	assert_true(o.rules.dry_run && o.output.itemize);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "-n", "--json", "a", "b", NULL), 0);
	assert_false(o.output.itemize);
	options_free(&o);
}

static unsigned compress_wish(const char *first, const char *second)
{
	struct options o;
	unsigned wish;

	assert_int_equal(parse(&o, RDCP, first, second, "a", "b", NULL), 0);
	wish = o.network.compress;
	options_free(&o);
	return wish;
}

static void compression_is_understood(void **state)
{
	(void)state;
	assert_int_equal(compress_wish("-v", "-v"), COMPRESS_OFF);
	assert_int_equal(compress_wish("-avz", "-v"), COMPRESS_AUTO);
	assert_int_equal(compress_wish("-C", "-v"), COMPRESS_AUTO);
	assert_int_equal(compress_wish("--compress", "-v"), COMPRESS_AUTO);
	assert_int_equal(compress_wish("--compress=auto", "-v"), COMPRESS_AUTO);
	assert_int_equal(compress_wish("--compress=zstd", "-z"), COMPRESS_ALWAYS);
	assert_int_equal(compress_wish("-z", "--zc=zstd"), COMPRESS_ALWAYS);
	assert_int_equal(compress_wish("-z", "--zc=none"), COMPRESS_OFF);
	assert_int_equal(compress_wish("-z", "--no-compress"), COMPRESS_OFF);
	assert_int_equal(compress_wish("--zl=22", "-z"), 22 << 2 | COMPRESS_ALWAYS);
	assert_int_equal(compress_wish("--compress-level=7", "--compress-choice=zstd"),
			 7 << 2 | COMPRESS_ALWAYS);
	refused("--compress", RDCP, "--compress=0", "a", "b");
	refused("--compress", RDCP, "--compress=23", "a", "b");
	refused("--compress", RDSEND, "--compress=gzip", "h", "7", "k");
	refused("--compress-choice", RDCP, "--compress-choice=lz4", "a", "b");
	refused("unknown option", RDBENCH, "-z", "h");
}

static void unsupported_options_name_the_closest_equivalent(void **state)
{
	(void)state;
	refused("use --lanes", RDCP, "--zt=2", "a", "b");
	refused("whatever the name", RDCP, "--skip-compress=gz", "a", "b");
	refused("use --delete", RDCP, "--delete-after", "a", "b");
	refused("use --include", RDCP, "-f", "- *.o", "a", "b");
	refused("rsync's -P is --progress", RDCP, "-avP", "d", "a", "h:b");
	refused("--daemon is not supported: use rdcpd(8)", RDCP, "--daemon", "a", "b");
	refused("while it scans", RDCP, "--inc-recursive", "a", "b");
	refused("while it scans", RDCP, "--no-inc-recursive", "a", "b");
	refused("sent whole", RDCP, "--no-whole-file", "a", "b");
	refused("use --lanes", RDCP, "--compress-threads=2", "a", "b");
	refused("use --copy-links", RDCP, "--insecure-links", "a", "b");
	refused("-@ is not supported: times are compared as precisely as DST stores them; use --checksum",
		RDCP, "-@", "a", "b");
	refused("use --checksum", RDCP, "--modify-window=2", "a", "b");
	refused("use --copy-links", RDCP, "-k", "a", "b");
	refused("are never followed", RDCP, "-K", "a", "b");
	refused("find -type f | rdcp --files-from=-", RDCP, "-m", "a", "b");
	refused("rsync's -O); there is only one protocol (scp's -O)", RDCP, "-O", "a", "b");
	refused("use --devices for rsync's -D; scp's -D has no equivalent", RDCP, "-D", "a", "b");
	refused("use --relative for rsync's -R; scp's -R is the default", RDCP, "-R", "a", "b");
	refused("use --from0", RDCP, "-0", "a", "b");
	refused("-l is not supported", RDRECV, "-l", "7", "k");
	refused("-r is not supported", RDSEND, "-r", "h", "7", "k");
	refused("unknown option --no-such", RDCP, "--no-such", "a", "b");
	refused("unknown option -Y", RDCP, "-Y", "a", "b");
}

/* Every option of rsync: rdcp has it too, or names the closest equivalent. */
static bool rdcp_has(const char *name)
{
	for (unsigned i = 0; i < option_row_count; i++) {
		if ((option_rows[i].programs & RDCP) && option_rows[i].name &&
		    strcmp(option_rows[i].name, name) == 0)
			return true;
	}
	return false;
}

static void every_rsync_option_is_known(void **state)
{
	static const char *const names[] = {
		"daemon",
		"inc-recursive",
		"no-inc-recursive",
		"no-whole-file",
		"compress-threads",
		"zc",
		"zl",
		"ignore-non-existing",
		"insecure-links",
		"debug",
		"stderr",
		"no-motd",
		"checksum",
		"archive",
		"no-perms",
		"no-times",
		"no-owner",
		"no-group",
		"no-recursive",
		"recursive",
		"relative",
		"no-implied-dirs",
		"backup",
		"backup-dir",
		"suffix",
		"update",
		"append",
		"append-verify",
		"dirs",
		"old-dirs",
		"links",
		"copy-links",
		"copy-unsafe-links",
		"safe-links",
		"munge-links",
		"copy-dirlinks",
		"keep-dirlinks",
		"hard-links",
		"perms",
		"executability",
		"chmod",
		"acls",
		"xattrs",
		"owner",
		"group",
		"devices",
		"specials",
		"copy-devices",
		"write-devices",
		"times",
		"atimes",
		"open-noatime",
		"crtimes",
		"omit-dir-times",
		"omit-link-times",
		"super",
		"fake-super",
		"preallocate",
		"dry-run",
		"whole-file",
		"checksum-choice",
		"one-file-system",
		"rsync-path",
		"existing",
		"ignore-existing",
		"del",
		"delete",
		"delete-before",
		"delete-during",
		"delete-delay",
		"delete-after",
		"delete-excluded",
		"ignore-missing-args",
		"delete-missing-args",
		"ignore-errors",
		"force",
		"max-delete",
		"max-size",
		"min-size",
		"max-alloc",
		"partial",
		"partial-dir",
		"delay-updates",
		"prune-empty-dirs",
		"numeric-ids",
		"usermap",
		"groupmap",
		"chown",
		"contimeout",
		"ignore-times",
		"size-only",
		"modify-window",
		"remove-sent-files",
		"msgs2stderr",
		"no-msgs2stderr",
		"temp-dir",
		"fuzzy",
		"compare-dest",
		"copy-dest",
		"link-dest",
		"compress",
		"compress-choice",
		"compress-level",
		"skip-compress",
		"cvs-exclude",
		"filter",
		"exclude",
		"exclude-from",
		"include",
		"include-from",
		"files-from",
		"from0",
		"old-args",
		"secluded-args",
		"protect-args",
		"trust-sender",
		"copy-as",
		"port",
		"sockopts",
		"blocking-io",
		"outbuf",
		"stats",
		"8-bit-output",
		"human-readable",
		"itemize-changes",
		"remote-option",
		"out-format",
		"log-file",
		"log-file-format",
		"password-file",
		"early-input",
		"list-only",
		"stop-after",
		"stop-at",
		"write-batch",
		"only-write-batch",
		"read-batch",
		"protocol",
		"iconv",
		"checksum-seed",
		"info",
	};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		char word[64], why[96];

		snprintf(word, sizeof word, "--%s", names[i]);
		snprintf(why, sizeof why, "%s is not supported", word);
		if (!rdcp_has(names[i]))
			refused(why, RDCP, word, "a", "b");
	}
}

/* No option is both accepted and refused, and no letter or name appears twice. */
static void option_tables_agree(void **state)
{
	(void)state;
	for (unsigned i = 0; i < option_row_count; i++) {
		const struct option_row *a = &option_rows[i];

		for (unsigned k = i + 1; k < option_row_count; k++) {
			const struct option_row *b = &option_rows[k];

			if (!(a->programs & b->programs))
				continue;
			assert_false(a->letter && a->letter == b->letter);
			assert_false(a->name && b->name && strcmp(a->name, b->name) == 0);
		}
		for (unsigned k = 0; k < refused_row_count; k++) {
			const struct refused_row *r = &refused_rows[k];

			if (!(a->programs & r->programs))
				continue;
			assert_false(a->letter && a->letter == r->letter);
			assert_false(a->name && r->name && strcmp(a->name, r->name) == 0);
		}
	}
}

static void sizes_rates_and_times_are_parsed(void **state)
{
	uint64_t v;
	unsigned lo, hi;
	int ms;

	(void)state;
	assert_true(parse_size("0", &v) == 0 && v == 0);
	assert_true(parse_size("3k", &v) == 0 && v == 3072);
	assert_true(parse_size("2T", &v) == 0 && v == UINT64_C(2) << 40);
	assert_true(parse_size("18446744073709551615", &v) == 0 && v == UINT64_MAX);
	assert_int_equal(parse_size("18446744073709551616", &v), -1);
	assert_int_equal(parse_size("99999999999G", &v), -1);
	assert_int_equal(parse_size("", &v), -1);
	assert_int_equal(parse_size("k", &v), -1);
	assert_int_equal(parse_size("1kk", &v), -1);
	assert_int_equal(parse_size("-1", &v), -1);
	assert_int_equal(parse_size(" 1", &v), -1);
	assert_true(parse_rate("10gbit", &v) == 0 && v == 1250000000);
	/* 0 would be no limit. */
	assert_true(parse_rate("1bit", &v) == 0 && v == 1);
	assert_true(parse_rate("16bit", &v) == 0 && v == 2);
	assert_true(parse_rate("0bit", &v) == 0 && v == 0);
	assert_true(parse_rate("1M", &v) == 0 && v == 1 << 20);
	assert_true(parse_rate("10MB", &v) == 0 && v == 10000000);
	assert_true(parse_rate("10MiB", &v) == 0 && v == 10 << 20);
	assert_true(parse_rate("500mbit", &v) == 0 && v == 62500000);
	assert_true(parse_size("3kB", &v) == 0 && v == 3000);
	assert_int_equal(parse_size("3kBx", &v), -1);
	assert_int_equal(parse_size("3b", &v), -1);
	assert_int_equal(parse_rate("1furlong", &v), -1);
	assert_true(parse_seconds("1.5", &ms) == 0 && ms == 1500);
	assert_true(parse_seconds("0.05", &ms) == 0 && ms == 50);
	assert_int_equal(parse_seconds("1.5s", &ms), -1);
	assert_int_equal(parse_seconds("999999999", &ms), -1);
	assert_true(parse_ports("7000-7010", &lo, &hi) == 0 && lo == 7000 && hi == 7010);
	assert_true(parse_ports("7000", &lo, &hi) == 0 && lo == 7000 && hi == 7000);
	assert_int_equal(parse_ports("0", &lo, &hi), -1);
	assert_int_equal(parse_ports("1-65536", &lo, &hi), -1);
	assert_int_equal(parse_port("65536", &lo), -1);
}

static void types_of_service_are_numbers_or_names(void **state)
{
	static const struct {
		const char *text;
		unsigned octet;
	} good[] = {
		{"0", 0},     {"255", 255}, {"0xB8", 184}, {"0x1", 1},  {"cs0", 0},
		{"cs7", 224}, {"af11", 40}, {"AF43", 152}, {"ef", 184}, {"le", 4},
	};
	static const char *const bad[] = {"256", "-1", "",     "0x",   "0x100", "0x+1",
					  "0xg", "1x", "af10", "af44", "cs8",   "af"};
	struct options o;
	unsigned tos;

	(void)state;
	for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(parse_tos(good[i].text, &tos), 0);
		assert_int_equal(tos, good[i].octet + 1);
	}
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(parse_tos(bad[i], &tos), -1);
	assert_int_equal(parse(&o, RDCP, "a", "b", NULL), 0);
	assert_int_equal(o.network.tos, 0);
	options_free(&o);
	assert_int_equal(parse(&o, RDBENCH, "--tos=af21", "host", NULL), 0);
	assert_int_equal(o.network.tos, 0x48 + 1);
	options_free(&o);
	refused("--tos", RDSEND, "-T", "ef", "host", "7000");
	refused("--tos", RDCP, "--dscp=ef", "a", "b");
}

static void amounts_are_printed_with_units(void **state)
{
	char s[32];

	(void)state;
	assert_string_equal(size_text(0, s, sizeof s), "0 B");
	assert_string_equal(size_text(999, s, sizeof s), "999 B");
	assert_string_equal(size_text(1024, s, sizeof s), "1.00 KiB");
	assert_string_equal(size_text(1536 << 10, s, sizeof s), "1.50 MiB");
	assert_string_equal(size_text(UINT64_MAX, s, sizeof s), "16.0 EiB");
	assert_string_equal(time_text(3, s, sizeof s), "0:03");
	assert_string_equal(time_text(3723, s, sizeof s), "1:02:03");
}

static void remote_program_is_quoted_for_the_shell(void **state)
{
	char s[64];

	(void)state;
	assert_int_equal(shell_quote("/usr/bin/rdcp", s, sizeof s), 0);
	assert_string_equal(s, "/usr/bin/rdcp");
	assert_int_equal(shell_quote("~/bin/rdcp", s, sizeof s), 0);
	assert_string_equal(s, "~/bin/rdcp");
	assert_int_equal(shell_quote("/a b/it's", s, sizeof s), 0);
	assert_string_equal(s, "'/a b/it'\\''s'");
	assert_int_equal(shell_quote("x; rm -rf $HOME", s, sizeof s), 0);
	assert_string_equal(s, "'x; rm -rf $HOME'");
	assert_int_equal(shell_quote("~$(reboot)/rdcp", s, sizeof s), -1);
	assert_int_equal(shell_quote("''''''''''''''''''''", s, sizeof s), -1);
}

static void remote_command_is_fixed(void **state)
{
	struct far_command c;
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, RDCP, "a", "h:b", NULL), 0);
	assert_int_equal(far_command(&o, "u@h", "--end", &c), 0);
	assert_string_equal(c.argv[0], "ssh");
	assert_string_equal(c.argv[c.argc - 1], "rdcp --end");
	assert_string_equal(c.argv[c.argc - 2], "u@h");
	assert_string_equal(c.argv[c.argc - 3], "--");
	assert_null(c.argv[c.argc]);
	options_free(&o);
	assert_int_equal(parse(&o, RDCP, "-e", "docker exec -i", "--rdcp-path", "/x y", "a", "h:b",
			       NULL),
			 0);
	assert_int_equal(far_command(&o, "box", "--lane", &c), 0);
	assert_int_equal(c.argc, 6);
	assert_string_equal(c.argv[2], "-i");
	assert_string_equal(c.argv[3], "box");
	assert_string_equal(c.argv[4], "'/x y'");
	assert_string_equal(c.argv[5], "--lane");
	options_free(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_match_the_manual),
		cmocka_unit_test(options_may_follow_operands),
		cmocka_unit_test(progress_takes_optional_seconds),
		cmocka_unit_test(rdcpd_takes_modules),
		cmocka_unit_test(rdbench_and_rdcheck_take_one_host_at_most),
		cmocka_unit_test(ssh_options_are_passed_on),
		cmocka_unit_test(command_follows_double_dash),
		cmocka_unit_test(operands_are_counted),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(archive_implies_the_usual_options),
		cmocka_unit_test(rsync_letters_are_accepted),
		cmocka_unit_test(no_options_undo_archive),
		cmocka_unit_test(files_from_is_recursive_only_with_r),
		cmocka_unit_test(filter_options_keep_their_order),
		cmocka_unit_test(stdin_serves_one_option_only),
		cmocka_unit_test(delete_needs_recursive_and_no_files_from),
		cmocka_unit_test(relative_excludes_no_target_directory),
		cmocka_unit_test(backup_defaults_and_conflicts),
		cmocka_unit_test(print_digest_takes_known_algorithms),
		cmocka_unit_test(dry_run_implies_itemize_changes),
		cmocka_unit_test(compression_is_understood),
		cmocka_unit_test(unsupported_options_name_the_closest_equivalent),
		cmocka_unit_test(every_rsync_option_is_known),
		cmocka_unit_test(option_tables_agree),
		cmocka_unit_test(sizes_rates_and_times_are_parsed),
		cmocka_unit_test(types_of_service_are_numbers_or_names),
		cmocka_unit_test(amounts_are_printed_with_units),
		cmocka_unit_test(remote_program_is_quoted_for_the_shell),
		cmocka_unit_test(remote_command_is_fixed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
