/* SPDX-License-Identifier: Apache-2.0 */
/* rdcp: copy files within a host or between hosts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/check/survey_serve.h"
#include "cmd/cli/operand.h"
#include "cmd/conductor/carrier.h"
#include "cmd/conductor/conductor.h"
#include "cmd/conductor/daemon_call.h"
#include "cmd/conductor/ends_command.h"
#include "cmd/conductor/listing.h"
#include "cmd/conductor/overlap.h"
#include "cmd/end/end.h"
#include "cmd/end/relay.h"
#include "cmd/output/events.h"
#include "cmd/output/stats.h"
#include "cmd/process/process.h"
#include "cmd/process/signals.h"
#include "copy/attr/modes.h"
#include "copy/io/digest.h"

struct plan {
	struct options o;
	struct operand *sources;
	unsigned count;
	struct operand target;
	const char *target_text;
	int target_fd; /* the descriptor that DST names; -1: none */
	char target_name[24]; /* "/dev/fd/N" for it */
	struct rule_list rules;
	struct name_list *list; /* --files-from, or NULL */
	bool several_hosts; /* the sources are on several hosts: one session for each */
	struct taken taken; /* names that earlier sessions put into the target */
	struct progress progress;
};

static int parse_targets(struct plan *p)
{
	p->count = p->o.operand_count - 1;
	p->target_text = p->o.operands[p->count];
	p->sources = calloc(p->count, sizeof *p->sources);
	if (!p->sources)
		return fail_as(OUT_MEMORY, "read the command line: %m");
	for (unsigned i = 0; i < p->count; i++) {
		if (operand_parse(p->o.operands[i], &p->sources[i]))
			return -1;
		if (p->sources[i].stdio && p->count > 1)
			return fail_as(OUT_USAGE, "- (stdin) cannot be one of several sources");
		/* "host:" is the home directory on that host. */
		if (!*p->sources[i].path)
			p->sources[i].path = ".";
	}
	if (p->sources[0].stdio)
		p->o.rules.perms = p->o.rules.acls = false; /* stdin has neither */
	if (operand_parse(p->target_text, &p->target))
		return -1;
	if (!*p->target.path)
		p->target.path = ".";
	p->target_fd = p->target.stdio ? STDOUT_FILENO : -1;
	if (!p->target.stdio && !p->target.host[0] &&
	    operand_descriptor(p->target.path, &p->target_fd))
		return -1;
	if (p->o.rules.remove_source && p->target_fd >= 0)
		return fail_as(OUT_USAGE,
			       "--remove-source-files needs a file or directory as DST, not %s",
			       p->target.stdio ? "stdout" : p->target_text);
	if (!p->target.stdio && p->target_fd >= 0) {
		/* The end inherits the descriptor under the same number. */
		snprintf(p->target_name, sizeof p->target_name, "/dev/fd/%d", p->target_fd);
		p->target.path = p->target_name;
	}
	if (p->o.rules.no_target_dir && p->count > 1)
		return fail_as(OUT_USAGE, "-T takes one SRC: several cannot all become %s",
			       p->target_text);
	return 0;
}

/* What a daemon cannot do, or has no way for. */
static int check_daemons(struct plan *p)
{
	bool sink = operand_is_daemon(p->target.host), source = false;

	for (unsigned i = 0; i < p->count; i++)
		source = source || operand_is_daemon(p->sources[i].host);
	if (!sink && !source)
		return 0;
	if (daemon_check_keys(&p->o))
		return -1;
	if (p->o.network.want == TRANSPORT_SSH)
		return fail_as(OUT_USAGE, "--transport=ssh: there is no ssh to a rdcpd");
	if (sink && source && p->o.network.want == TRANSPORT_RDMA)
		return fail_as(OUT_TRANSPORT, "--transport=rdma: the data of two rdcpd passes "
					      "through this host, over TCP");
	/* What -a includes, and no daemon permits. */
	if (sink && p->o.archive)
		p->o.rules.owner = p->o.rules.group = p->o.rules.devices = false;
	return 0;
}

static int check_ssh_transport(const struct plan *p)
{
	if (p->o.network.want != TRANSPORT_SSH || p->target.host[0])
		return 0;
	for (unsigned i = 0; i < p->count; i++) {
		if (!p->sources[i].host[0])
			return fail_as(OUT_USAGE, "--transport=ssh: neither %s nor %s is remote",
				       p->o.operands[i], p->target_text);
	}
	return 0;
}

/* The sink accepts only the requested path, and only the far end can expand ~. */
static int check_relative(const struct plan *p)
{
	for (unsigned i = 0; p->o.rules.relative && !p->o.files_from && i < p->count; i++) {
		const struct operand *t = &p->sources[i];

		if (t->host[0] && t->path[0] == '~' && !strstr(t->path, "/./"))
			return fail_as(OUT_USAGE,
				       "--relative: only the remote host can expand %s; write the "
				       "whole path, or ~/./a/b to create a/b in DST",
				       t->path);
	}
	return 0;
}

static int check_chmod(const struct plan *p)
{
	struct modes *m = NULL;
	int rc = modes_parse(p->o.rules.chmod, &m);

	modes_free(m);
	return rc;
}

/* A pattern may match several files: the sink refuses those. */
static int check_stdout(const struct plan *p)
{
	const char *to = p->target.stdio ? "stdout" : p->target_text;

	if (p->target_fd < 0)
		return 0;
	if (p->o.rules.recursive)
		return fail_as(OUT_USAGE, "-r: cannot copy a tree to %s; use tar(1)", to);
	if (p->o.files_from || p->o.rules.relative)
		return fail_as(OUT_USAGE, "%s: cannot copy to %s",
			       p->o.files_from ? "--files-from" : "--relative", to);
	if (p->count > 1)
		return fail_as(OUT_USAGE, "cannot copy several sources to %s", to);
	return 0;
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
	times_join(&to->source, &r->source);
	times_join(&to->sink, &r->sink);
	/* The first failure counts; that files vanished only if nothing else failed. Nothing is
	 * copied after an interruption. */
	if (to->failure.code == OUT_DONE || r->failure.code == OUT_SIGNAL ||
	    (to->failure.code == OUT_VANISHED && r->failure.code != OUT_DONE)) {
		to->failure = r->failure;
		memcpy(to->host, r->host, sizeof to->host);
	}
	to->bwlimit = r->bwlimit;
	/* A session without lanes has no transport to report. */
	if (!r->lanes && to->lanes)
		return;
	to->transport = r->transport;
	to->lanes = r->lanes;
	memcpy(to->how, r->how, sizeof to->how);
	memcpy(to->why, r->why, sizeof to->why);
	to->encrypted = r->encrypted;
	to->cipher = r->cipher;
}

/* Whether one of several source hosts failed, or some of its files did. */
static bool is_host_failure(enum outcome code)
{
	return (outcome_is_of_files(code) && code != OUT_VANISHED) || code == OUT_START ||
	       code == OUT_VERSION || code == OUT_CONNECT || code == OUT_TRANSPORT ||
	       code == OUT_TIMEOUT || code == OUT_PEER_LOST || code == OUT_MEMORY;
}

/* Adds the names that a session put into the target. With --backup also the names of their backups,
 * and the names that they would be backups of. */
static int add_taken_names(struct plan *p, const struct taken *added)
{
	const char *suffix = *p->o.rules.suffix ? p->o.rules.suffix : "~";
	size_t more = strlen(suffix);
	int ret = 0;

	for (size_t i = 0; i < added->count && ret == 0; i++) {
		const char *name = added->names[i];
		size_t len = strlen(name);
		char other[NAME_MAX_WIRE + 1];

		ret = taken_add(&p->taken, name);
		if (!p->o.rules.backup || len + more >= sizeof other)
			continue;
		snprintf(other, sizeof other, "%s%s", name, suffix);
		ret = ret || taken_add(&p->taken, other) ? -1 : 0;
		memcpy(other, name, len + 1);
		if (len <= more || strcmp(name + len - more, suffix) != 0)
			continue;
		other[len - more] = '\0';
		ret = ret || taken_add(&p->taken, other) ? -1 : 0;
	}
	taken_sort(&p->taken);
	return ret;
}

/* Copies all sources on one host in one session. Returns true if any of them is at the target. */
static bool copy_group(struct plan *p, const char *host, struct report *all)
{
	const char **names = calloc(p->count, sizeof *names);
	struct report r = {.program = all->program};
	struct taken added = TAKEN_NONE;
	struct conductor_job j = {
		.o = &p->o,
		.source_host = host,
		.sink_host = p->target.host,
		.names = names,
		.target = p->target.path,
		.source_stdio = p->sources[0].stdio,
		.sink_stdio = p->target_fd >= 0,
		.many = p->count > 1,
		.rules = &p->rules,
		.list = p->list,
		.progress = &p->progress,
		.taken = p->several_hosts ? &p->taken : NULL,
		.added = p->several_hosts ? &added : NULL,
	};

	for (unsigned i = 0; names && i < p->count; i++) {
		if (strcmp(p->sources[i].host, host) == 0)
			names[j.count++] = p->sources[i].path;
	}
	if (!names)
		fail_as(OUT_MEMORY, "read the command line: %m");
	else
		conductor_run(&j, &r);
	if (!names || add_taken_names(p, &added))
		r.failure = *failed();
	if (r.failure.code != OUT_DONE)
		report_failure(&r);
	add_report(all, &r);
	taken_free(&added);
	free(names);
	return r.failure.code == OUT_DONE || r.total.files || r.total.same || r.total.others;
}

static void copy_all_groups(struct plan *p, struct report *all)
{
	bool any = false; /* something was copied, or was at the target already */

	p->several_hosts = overlap_count_hosts(p->sources, p->count) > 1;
	for (unsigned i = 0; i < p->count && all->failure.code != OUT_SIGNAL; i++) {
		if (overlap_first_of_host(p->sources, i))
			any = copy_group(p, p->sources[i].host, all) || any;
	}
	if (p->several_hosts && any && is_host_failure(all->failure.code))
		all->failure.code = OUT_SOME_FILES;
}

/* Lines on stdout would break the live line. */
static bool prints_on_terminal(const struct options *o)
{
	return (o->output.json || o->output.itemize || o->rules.digest != CONTENT_NONE) &&
	       isatty(STDOUT_FILENO);
}

static void print_copy_report(const struct plan *p, const struct report *all)
{
	if (p->o.output.stats && !p->o.output.json)
		stats_print(all, stderr);
	if (p->o.output.verbose && !p->o.output.quiet && all->failure.code == OUT_DONE)
		report_verbose(all, stderr);
}

static int run_rdcp(struct plan *p)
{
	static struct report all;

	all.program = program_name(RDCP);
	if (parse_targets(p) || check_daemons(p) || check_ssh_transport(p) || check_relative(p) ||
	    check_chmod(p) || check_stdout(p) ||
	    overlap_check(&p->o, p->sources, p->count, &p->target) ||
	    rule_list_read(&p->o, &p->rules) ||
	    (p->o.files_from && name_list_open(p->o.files_from, p->o.from0, &p->list)))
		process_exit_failed(RDCP);
	screen_begin(all.program, NULL);
	if (events_begin(&p->o, p->target_fd == STDOUT_FILENO) || signals_begin()) {
		events_abandon();
		screen_end();
		process_exit_failed(RDCP);
	}
	progress_init(&p->progress, all.program,
		      !p->o.output.quiet && !p->o.output.progress_s && !prints_on_terminal(&p->o),
		      p->o.output.quiet ? 0 : p->o.output.progress_s);
	copy_all_groups(p, &all);
	signals_end();
	screen_end();
	progress_end(&p->progress, all.total.bytes, all.failure.code == OUT_DONE ? all.ns : 0);
	if (events_end(&all)) {
		log_at(LOG_ERROR, "%s", failed()->text);
		if (all.failure.code == OUT_DONE)
			all.failure = *failed();
	}
	print_copy_report(p, &all);
	taken_free(&p->taken);
	free(p->sources);
	name_list_close(p->list);
	rule_list_free(&p->rules);
	options_free(&p->o);
	return (int)all.failure.code;
}

int main(int argc, char **argv)
{
	static struct plan p;

	process_parse_options(&p.o, RDCP, argc, argv);
	relay_take();
	switch (p.o.action) {
	case ACTION_END:
		_exit(end_run(STDIN_FILENO, STDOUT_FILENO, true));
	case ACTION_ENDS:
		process_exit(ends_run());
	case ACTION_LANE:
		process_exit(lane_command_run());
	case ACTION_LANE_LISTEN:
		process_exit(lane_command_listen());
	case ACTION_SURVEY:
		process_exit(survey_serve(STDIN_FILENO, STDOUT_FILENO));
	default:
		if (p.o.operand_count == 1 && listing_run(&p.o, p.o.operands[0]))
			process_exit_failed(RDCP);
		if (p.o.operand_count == 1)
			process_exit(OUT_DONE);
		process_exit(run_rdcp(&p));
	}
}
