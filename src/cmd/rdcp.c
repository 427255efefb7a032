/* SPDX-License-Identifier: Apache-2.0 */
/* rdcp: copy files within a host or between hosts. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/carrier.h"
#include "cmd/conductor.h"
#include "cmd/end.h"
#include "cmd/events.h"
#include "cmd/process.h"
#include "cmd/signals.h"
#include "cmd/stats.h"
#include "cmd/target.h"
#include "copy/digest.h"
#include "copy/modes.h"
#include "copy/place.h"

struct plan {
	struct options o;
	struct target *sources;
	unsigned count;
	struct target target;
	const char *target_text;
	struct rule_list rules;
	struct progress progress;
};

static _Noreturn void refuse(enum program program)
{
	log_at(LOG_ERROR, "%s", failed()->text);
	if (failed()->code == OUT_USAGE)
		print_synopsis(stderr, program);
	exit_with((int)failed()->code);
}

static int parse_targets(struct plan *p)
{
	p->count = p->o.operand_count - 1;
	p->target_text = p->o.operands[p->count];
	p->sources = calloc(p->count, sizeof *p->sources);
	if (!p->sources)
		return fail_as(OUT_MEMORY, "read the command line: %m");
	for (unsigned i = 0; i < p->count; i++) {
		if (target_parse(p->o.operands[i], &p->sources[i]))
			return -1;
		if (p->sources[i].stdio && p->count > 1)
			return fail_as(OUT_USAGE, "- is stdin: it can't be one of several sources");
		/* "host:" is the home directory there. */
		if (!*p->sources[i].path)
			p->sources[i].path = ".";
	}
	if (target_parse(p->target_text, &p->target))
		return -1;
	if (!*p->target.path)
		p->target.path = ".";
	if (p->o.remove_source && p->target.stdio)
		return fail_as(OUT_USAGE, "--remove-source-files: stdout is no place to keep them");
	if (p->o.no_target_dir && p->count > 1)
		return fail_as(OUT_USAGE, "-T: several sources can't all become %s",
			       p->target_text);
	return 0;
}

/* Would this source be copied onto itself? */
static bool is_same(const struct plan *p, const struct target *source)
{
	struct stat a, b;
	char name[NAME_MAX_WIRE], path[2 * NAME_MAX_WIRE];

	if (source->stdio || p->target.stdio || strcmp(source->host, p->target.host) != 0)
		return false;
	if (source->host[0])
		return strcmp(source->path, p->target.path) == 0;
	if (stat(source->path, &a) || !S_ISREG(a.st_mode) || stat(p->target.path, &b))
		return false;
	if (S_ISDIR(b.st_mode) && !p->o.no_target_dir) {
		name_last(source->path, name, sizeof name);
		snprintf(path, sizeof path, "%s/%s", p->target.path, name);
		if (stat(path, &b))
			return false;
	}
	return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Within one session the sink sees to that; here are those of several hosts. */
static bool would_collide(const struct plan *p, unsigned i, unsigned k)
{
	const struct target *a = &p->sources[i], *b = &p->sources[k];
	char one[NAME_MAX_WIRE], two[NAME_MAX_WIRE];

	name_last(a->path, one, sizeof one);
	name_last(b->path, two, sizeof two);
	return strcmp(a->host, b->host) != 0 && strcmp(one, two) == 0 && !name_is_pattern(one);
}

static int check_same(const struct plan *p)
{
	for (unsigned i = 0; i < p->count; i++) {
		if (is_same(p, &p->sources[i]))
			return fail("%s and %s are the same file", p->o.operands[i],
				    p->target_text);
		for (unsigned k = 0; k < i; k++) {
			if (would_collide(p, i, k))
				return fail("%s and %s would be the same file in %s",
					    p->o.operands[k], p->o.operands[i], p->target_text);
		}
	}
	return 0;
}

static int check_transport(const struct plan *p)
{
	bool remote = p->target.host[0];

	for (unsigned i = 0; i < p->count; i++)
		remote = remote || p->sources[i].host[0];
	if (p->o.want == TRANSPORT_SSH && !remote)
		return fail_as(OUT_USAGE, "--transport=ssh: neither source nor DST is remote");
	return 0;
}

/* What can be known to be wrong before anything is started. */
static int check_texts(const struct plan *p)
{
	struct modes *m = NULL;
	int rc = modes_parse(p->o.chmod, &m);

	modes_free(m);
	if (!rc && p->target.stdio && p->o.recursive)
		return fail_as(OUT_USAGE, "-r: stdout takes a file, no tree: use tar(1)");
	return rc;
}

static void add_report(struct report *to, const struct report *r)
{
	to->total.files += r->total.files;
	to->total.same += r->total.same;
	to->total.others += r->total.others;
	to->total.failed += r->total.failed;
	counts_add(&to->counts, &r->counts);
	to->total.bytes += r->total.bytes;
	sum_add(to->total.digest, r->total.digest);
	to->ns += r->ns;
	to->ns_fill += r->ns_fill;
	to->ns_free += r->ns_free;
	to->ns_block += r->ns_block;
	to->ns_store += r->ns_store;
	if (to->failure.code == OUT_DONE) {
		to->failure = r->failure;
		memcpy(to->host, r->host, sizeof to->host);
	}
	to->transport = r->transport;
	to->lanes = r->lanes;
	to->bwlimit = r->bwlimit;
	memcpy(to->how, r->how, sizeof to->how);
	memcpy(to->why, r->why, sizeof to->why);
}

/* All sources that are on one host, in one session. */
static void copy_group(struct plan *p, const char *host, struct report *all)
{
	const char **names = calloc(p->count, sizeof *names);
	struct report r = {.program = all->program};
	struct job j = {
		.o = &p->o,
		.source_host = host,
		.sink_host = p->target.host,
		.names = names,
		.target = p->target.path,
		.source_stdio = p->sources[0].stdio,
		.sink_stdio = p->target.stdio,
		.many = p->count > 1,
		.rules = &p->rules,
		.progress = &p->progress,
	};

	for (unsigned i = 0; names && i < p->count; i++) {
		if (strcmp(p->sources[i].host, host) == 0)
			names[j.count++] = p->sources[i].path;
	}
	if (names) {
		conduct(&j, &r);
	} else {
		fail_as(OUT_MEMORY, "read the command line: %m");
		r.failure = *failed();
	}
	if (r.failure.code != OUT_DONE)
		report_failure(&r);
	add_report(all, &r);
	free(names);
}

static void copy_all(struct plan *p, struct report *all)
{
	unsigned groups = 0;

	for (unsigned i = 0; i < p->count && all->failure.code != OUT_SIGNAL; i++) {
		const char *host = p->sources[i].host;
		bool seen = false;

		for (unsigned k = 0; k < i; k++)
			seen = seen || strcmp(p->sources[k].host, host) == 0;
		if (seen)
			continue;
		copy_group(p, host, all);
		groups++;
	}
	if (groups > 1 && all->total.files && outcome_is_of_files(all->failure.code))
		all->failure.code = OUT_SOME_FILES;
}

static bool goes_to_stdout(const struct target *t)
{
	return t->stdio || (!t->host[0] && names_stdout(t->path));
}

static void tell(const struct plan *p, const struct report *all)
{
	if (p->o.stats && !p->o.json)
		stats_print(all, stderr);
	if (p->o.verbose && !p->o.quiet && all->failure.code == OUT_DONE)
		report_verbose(all, stderr);
}

static int run(struct plan *p)
{
	static struct report all;

	all.program = program_name(RDCP);
	if (parse_targets(p) || check_transport(p) || check_same(p) || check_texts(p) ||
	    rule_list_read(&p->o, &p->rules))
		refuse(RDCP);
	screen_begin(all.program, NULL);
	if (events_begin(&p->o, goes_to_stdout(&p->target)) || conductor_signals())
		refuse(RDCP);
	progress_init(&p->progress, all.program, !p->o.quiet && !p->o.progress_s,
		      p->o.quiet ? 0 : p->o.progress_s);
	copy_all(p, &all);
	conductor_signals_end();
	screen_end();
	progress_end(&p->progress, all.total.bytes, all.failure.code == OUT_DONE ? all.ns : 0);
	if (events_end(&all)) {
		log_at(LOG_ERROR, "%s", failed()->text);
		if (all.failure.code == OUT_DONE)
			all.failure = *failed();
	}
	tell(p, &all);
	free(p->sources);
	rule_list_free(&p->rules);
	options_free(&p->o);
	return (int)all.failure.code;
}

int main(int argc, char **argv)
{
	static struct plan p;

	take_command_line(&p.o, RDCP, argc, argv);
	switch (p.o.action) {
	case ACTION_END:
		_exit(end_run(STDIN_FILENO, STDOUT_FILENO, true));
	case ACTION_LANE:
		exit_with(lane_run());
	case ACTION_LANE_LISTEN:
		exit_with(lane_listen_run());
	default:
		exit_with(run(&p));
	}
}
