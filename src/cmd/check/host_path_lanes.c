/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Test lanes between the two ends, as rdcp would use them, over RDMA and over TCP. This host
 * generates the blocks, and the other host discards them.
 */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/worker.h"
#include "cmd/check/host_path.h"
#include "cmd/conductor/conductor.h"
#include "cmd/output/events.h"
#include "cmd/output/screen.h"
#include "cmd/process/signals.h"
#include "host/adapter.h"

/* A ping (finding "ping") is one block of a page and its credit, on an ordinary lane. */
enum {
	PING_BLOCK = 4096,
	PINGS_LEAST = 20,
	PINGS_MOST = 2000,
	PING_MS = 500, /* for all pings together, about */
	FIRST_BYTES = 1 << 20, /* takes at most seconds, even on the slowest links */
	SHORT_MS = 200, /* a shorter run is too short to measure the rate */
	RATE_MS = 1000,
	RUNS_MOST = 4,
	GROWTH_MOST = 64, /* from one run to the next */
};

struct lane_trial {
	struct host_path *p;
	struct end_pipe kept; /* to `rdcp --ends' on the far host */
	struct measure measure;
	struct report report;
	struct failure rdma, tcp; /* the result of each transport */
	uint64_t rdma_rate, tcp_rate; /* bytes a second; 0: not known */
	bool signalled;
};

/* ---- one run -----------------------------------------------------------------------------------
 */

struct trial_setting {
	enum transport want;
	uint64_t bytes;
	unsigned lanes, depth, block; /* 0: as rdcp chooses */
};

static int begin_conducting(const struct options *o, struct progress *progress)
{
	screen_begin(program_name(RDCHECK), NULL);
	if (events_begin(o, false) || signals_begin()) {
		screen_end();
		return -1;
	}
	progress_init(progress, program_name(RDCHECK), false, 0);
	return 0;
}

/* A signal that the conductor did not read cancels what follows. */
static void end_conducting(void)
{
	int signo;

	while ((signo = signals_next()) != 0)
		if (signo == SIGINT || signo == SIGTERM || signo == SIGHUP)
			cancel(signo);
	signals_end();
	screen_end();
}

/* Returns 0, or -1 with r->report.failure. */
static int run_once(struct lane_trial *r, const struct trial_setting *s)
{
	static const char *const names[] = {""};
	struct options o = *r->p->o;
	struct rule_list rules = {0};
	struct progress progress;
	struct conductor_job j = {
		.o = &o,
		.source_host = "",
		.sink_host = r->p->far,
		.names = names,
		.target = "",
		.rules = &rules,
		.progress = &progress,
		.measure = &r->measure,
	};

	o.network.want = s->want;
	o.speed.lanes = s->lanes;
	o.speed.depth = s->depth;
	o.speed.block_size = s->block;
	o.output.json = false;
	o.output.quiet = o.output.quiet || !o.output.verbose;
	r->measure = (struct measure){
		.flags = START_MEMORY,
		.bytes = s->bytes,
		.kept = &r->kept,
		.keeps_warning = o.output.quiet,
	};
	memset(&r->report, 0, sizeof r->report);
	if (begin_conducting(&o, &progress)) {
		r->report.failure = *failed();
		return -1;
	}
	/* Ends that are forked now would inherit the cancellation, and take time to report it. */
	if (!cancelled())
		conductor_run(&j, &r->report);
	end_conducting();
	events_end(&r->report);
	if (cancelled() && fail_signal(cancelled()))
		r->report.failure = *failed();
	r->signalled = r->report.failure.code == OUT_SIGNAL;
	return r->report.failure.code == OUT_DONE ? 0 : -1;
}

/* ---- measurements ------------------------------------------------------------------------------
 */

static const char *label_of_transport(enum transport t)
{
	return t == TRANSPORT_RDMA ? "rdma" : "tcp";
}

/* Sends n blocks, each after the credit of the one before. Returns the mean time in nanoseconds, or
 * 0 if it failed. */
static uint64_t time_pings(struct lane_trial *r, enum transport t, uint64_t n)
{
	struct trial_setting s = {
		.want = t,
		.bytes = n * PING_BLOCK,
		.lanes = 1,
		.depth = 1,
		.block = PING_BLOCK,
	};

	if (run_once(r, &s) || r->report.total.bytes < PING_BLOCK)
		return 0;
	/* The sink does not count the first blocks. */
	return r->report.ns / (r->report.total.bytes / PING_BLOCK);
}

static int measure_ping(struct lane_trial *r, enum transport t)
{
	uint64_t n = PINGS_LEAST, ns = time_pings(r, t, n);

	if (!ns)
		return -1;
	findings_add(r->p->findings, FINDING_OK, label_of_transport(t), "", NULL,
		     "lanes connect (%s)", r->measure.verdicts[END_SOURCE].how);
	/* The time includes the end of the session, so a few blocks are too few. */
	if (ns * n < PING_MS * UINT64_C(1000000) / 4) {
		n = PING_MS * UINT64_C(1000000) / ns;
		n = n > PINGS_MOST ? PINGS_MOST : n;
		ns = time_pings(r, t, n);
	}
	if (!ns)
		return -1;
	findings_add(r->p->findings, FINDING_OK, "ping", label_of_transport(t), NULL,
		     "a block of 4 KiB and its credit take %.1f us (mean of %llu)",
		     (double)ns / 1e3, (unsigned long long)n);
	return 0;
}

/* The rate in Mbit/s of the port that this host's lanes used; 0: unknown, or emulated. */
static unsigned find_port_rate(const char *how)
{
	struct adapter *all;
	unsigned count, rate = 0;
	char device[ADAPTER_TEXT];

	if (sscanf(how, "rdma %63[^ ,]", device) != 1 || adapters_list(NULL, &all, &count))
		return 0;
	for (unsigned i = 0; i < count; i++)
		if (strcmp(all[i].device, device) == 0 && all[i].state == PORT_ACTIVE &&
		    !all[i].software)
			rate = all[i].rate_mbits;
	free(all);
	return rate;
}

static void report_rate(struct lane_trial *r, enum transport t, uint64_t rate)
{
	unsigned link = find_port_rate(r->measure.verdicts[END_SOURCE].how);
	double gbits = (double)rate * 8 / 1e9, percent = link ? gbits * 1e5 / link : 0;
	bool slow = link && percent < 50;
	char share[80] = "";

	if (link)
		snprintf(share, sizeof share, ", %.0f %% of one port's %.0f Gbit/s", percent,
			 link / 1e3);
	findings_add(r->p->findings, slow ? FINDING_WARNING : FINDING_OK, "bandwidth",
		     label_of_transport(t),
		     slow ? "rdbench HOST shows the bottleneck and the best settings" : NULL,
		     "%.3f GB/s (%.2f Gbit/s) from memory to memory, %u lane%s%s",
		     (double)rate / 1e9, gbits, r->report.lanes, r->report.lanes == 1 ? "" : "s",
		     share);
}

/* Returns bytes per second, or 0 if it failed. */
static uint64_t measure_bandwidth(struct lane_trial *r, enum transport t)
{
	struct trial_setting s = {.want = t, .bytes = FIRST_BYTES};
	double rate = 0;

	for (unsigned i = 0; i < RUNS_MOST; i++) {
		double most = (double)s.bytes * GROWTH_MOST, next;

		if (run_once(r, &s))
			return 0;
		/* Both numbers exclude the blocks that first fill the lanes. */
		rate = r->report.ns ? (double)r->report.total.bytes * 1e9 / (double)r->report.ns
				    : 0;
		if (r->report.ns >= SHORT_MS * UINT64_C(1000000))
			break;
		next = rate * RATE_MS / 1000;
		s.bytes = (uint64_t)(next > (double)s.bytes && next < most ? next : most);
	}
	if (rate > 0)
		report_rate(r, t, (uint64_t)rate);
	return (uint64_t)rate;
}

/* ---- failures ----------------------------------------------------------------------------------
 */

/* rdcheck requests the transport, not the user, so this leaves out that it was requested. */
static const char *strip_demand(const char *text)
{
	static const char demand[] = "--transport=rdma is not possible: ";
	size_t len = sizeof demand - 1;

	return strncmp(text, demand, len) == 0 ? text + len : text;
}

/* "HOST: " for a failure of another host, unless the text begins with it. */
static const char *format_host_prefix(const struct lane_trial *r, const char *text, char *to,
				      size_t size)
{
	snprintf(to, size, "%s: ", r->report.host);
	return r->report.host[0] && strncmp(text, to, strlen(to)) != 0 ? to : "";
}

/* " (WARNING)": what an end warned of before it failed; or "". */
static const char *format_warning(const struct lane_trial *r, char *to, size_t size)
{
	to[0] = '\0';
	if (r->measure.warning[0])
		snprintf(to, size, " (%s)", r->measure.warning);
	return to;
}

static void report_no_rdma(struct lane_trial *r)
{
	const struct failure *f = &r->rdma;
	const char *text = strip_demand(f->text);
	char whose[HOST_MAX + 4], warning[sizeof r->measure.warning + 4];
	const char *remedy = "see the failures above";

	if (f->code == OUT_MEMLOCK)
		remedy = "raise the limit of locked memory on that host: see memlock above";
	else if (r->p->near_host.rdma && r->p->far_host.rdma)
		remedy = "both hosts have adapters: see routes above, and check firewalls "
			 "between the hosts";
	findings_add(r->p->findings, FINDING_FAILURE, "rdma", "", remedy,
		     "rdcp falls back to TCP: %s%s%s",
		     format_host_prefix(r, text, whose, sizeof whose), text,
		     format_warning(r, warning, sizeof warning));
}

static void report_no_tcp(struct lane_trial *r)
{
	bool must = r->p->o->network.want == TRANSPORT_TCP;
	char whose[HOST_MAX + 4], warning[sizeof r->measure.warning + 4];

	findings_add(r->p->findings, must ? FINDING_FAILURE : FINDING_WARNING, "tcp", "",
		     must ? "see firewall below"
			  : "without RDMA, rdcp sends data over ssh: see firewall below",
		     "lanes cannot connect over TCP: %s%s%s",
		     format_host_prefix(r, r->tcp.text, whose, sizeof whose), r->tcp.text,
		     format_warning(r, warning, sizeof warning));
}

/* One of the ends lacks memory or descriptors, so nothing is known about the path. */
static void report_shortage(struct lane_trial *r, enum transport t, const struct failure *f)
{
	char whose[HOST_MAX + 4];

	findings_add(r->p->findings, FINDING_FAILURE, label_of_transport(t), "",
		     "free memory, or raise the limits of the programs on that host: ulimit -a "
		     "prints them",
		     "lanes could not be tried: %s%s",
		     format_host_prefix(r, f->text, whose, sizeof whose), f->text);
}

/* The listening end could not start, so neither transport can be tried. */
static void report_no_start(struct lane_trial *r, const struct failure *f)
{
	char whose[HOST_MAX + 4];

	findings_add(r->p->findings, FINDING_FAILURE, "start", "",
		     r->p->o->network.address[0]
			     ? "give --address a name or address that HOST has"
			     : "repeat with -vv, which prints more of the cause",
		     "%s%s", format_host_prefix(r, f->text, whose, sizeof whose), f->text);
}

/* ---- both transports ---------------------------------------------------------------------------
 */

static void try_transport(struct lane_trial *r, enum transport t, struct failure *f, uint64_t *rate)
{
	if (measure_ping(r, t) == 0)
		*rate = measure_bandwidth(r, t);
	*f = r->report.failure;
	if (r->signalled)
		return;
	if (f->code == OUT_START)
		report_no_start(r, f);
	else if (f->code == OUT_MEMORY)
		report_shortage(r, t, f);
	else if (f->code != OUT_DONE && t == TRANSPORT_RDMA)
		report_no_rdma(r);
	else if (f->code != OUT_DONE)
		report_no_tcp(r);
}

enum outcome host_path_test_lanes(struct host_path *p)
{
	static struct lane_trial r;
	bool wants_rdma = p->o->network.want != TRANSPORT_TCP;

	r.p = p;
	end_pipe_init(&r.kept);
	if (wants_rdma)
		try_transport(&r, TRANSPORT_RDMA, &r.rdma, &r.rdma_rate);
	if (!r.signalled && r.rdma.code != OUT_START)
		try_transport(&r, TRANSPORT_TCP, &r.tcp, &r.tcp_rate);
	end_pipe_close(&r.kept);
	if (r.signalled) {
		fail_again(&r.report.failure);
		return OUT_SIGNAL;
	}
	if (r.rdma.code == OUT_START || r.tcp.code == OUT_START)
		return OUT_START;
	if (r.rdma.code == OUT_MEMORY || r.tcp.code == OUT_MEMORY)
		return OUT_MEMORY;
	host_path_report_firewall(p, wants_rdma ? &r.rdma : NULL, &r.tcp);
	if (cancelled() && fail_signal(cancelled()))
		return OUT_SIGNAL;
	return OUT_DONE;
}
