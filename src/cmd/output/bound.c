/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/bound.h"

#include "cmd/cli/amount.h"

/* Shorter transfers are not judged: starting up dominates them. */
static const double min_ns = 5e7;
/* Share of the time of all processors, or of a thread; context switches take the rest. */
static const double processors_full = 0.9;
/* Within one host there is no network: an end that waits, waits for threads of the other end. */
static const double processors_within_host = 0.5;
/* --bwlimit is the bound if the rate reaches this share of it, and lanes were held back for at
 * least this share of the time. */
static const double limit_reached = 0.9, min_held_back = 0.02;
/* A smaller share for compression or encryption is not printed. */
static const double min_work = 0.02;
/* Share of the window that is in flight on average when the window is the bound. */
static const double window_full = 0.7;

static double max_double(double a, double b)
{
	return a > b ? a : b;
}

static double compute_share(double part, double all)
{
	return all > 0 ? (part < all ? part / all : 1) : 0;
}

/* ---- shares -------------------------------------------------------------------------- */

static unsigned count_used_lanes(const struct bound_facts *f)
{
	unsigned used = f->source->used > f->sink->used ? f->source->used : f->sink->used;

	return used ? used : 1;
}

/* The lanes of both ends live equally long, but one end may have sent no times. */
static double lanes_ns(const struct bound_facts *f)
{
	return max_double((double)f->source->ns_longest, (double)f->sink->ns_longest);
}

/* Counts what an end's lanes did beside their input or output; returns the share of all of it. */
static double add_shares(const struct msg_times *t, double io, double ns, struct bound *b)
{
	double held_back = compute_share((double)t->ns_paced / t->used, ns);
	double encryption = compute_share((double)t->ns_cipher / t->used, ns);
	double packing = compute_share((double)t->ns_compress / t->used, ns);

	b->held_back = max_double(b->held_back, held_back);
	b->encryption = max_double(b->encryption, encryption);
	b->compression = max_double(b->compression, packing);
	return io + held_back + encryption + packing;
}

/* The time in which the sink finishes alone counts for both ends: the source's lanes idle in it. */
static void find_shares(const struct bound_facts *f, struct bound *b)
{
	const struct msg_times *source = f->source, *sink = f->sink;
	double finish = (double)sink->ns_finish, busy = 0;

	if (source->used) {
		double ns = (double)source->ns_longest + finish;

		b->source = compute_share((double)source->ns_busiest, ns);
		busy = add_shares(source, b->source, ns, b);
	}
	if (sink->used) {
		double ns = (double)sink->ns_longest + finish;

		b->sink = compute_share((double)sink->ns_busiest + finish, ns);
		busy = max_double(busy, add_shares(sink, b->sink, ns, b));
	}
	b->network = busy < 1 ? 1 - busy : 0;
}

/* The load of an end's busiest thread, or of its host's processors, whichever is greater.
 * other_cpu_ns: processor time of the other end, if it is on the same host. */
static double compute_load(const struct msg_times *t, double ns, double other_cpu_ns)
{
	double thread = compute_share((double)t->ns_hottest, ns);
	double host = compute_share((double)t->ns_cpu + other_cpu_ns, (double)t->cpus * ns);

	return t->ns_cpu ? max_double(thread, host) : 0;
}

static void find_load(const struct bound_facts *f, struct bound *b)
{
	const struct msg_times *source = f->source, *sink = f->sink;
	bool same_host = source->same_host || sink->same_host;
	double ns = lanes_ns(f) + (double)sink->ns_finish;

	if (!source->ns_cpu && !sink->ns_cpu)
		return;
	b->processors = max_double(compute_load(source, ns, same_host ? (double)sink->ns_cpu : 0),
				   compute_load(sink, ns, same_host ? (double)source->ns_cpu : 0));
}

/* ---- the bound ------------------------------------------------------------------------- */

static bool is_limited(const struct bound_facts *f, const struct bound *b)
{
	double rate = (double)f->source->moved / (lanes_ns(f) / 1e9);

	if (b->held_back < min_held_back)
		return false;
	if (f->bwlimit && rate >= limit_reached * (double)f->bwlimit)
		return true;
	return b->held_back >= max_double(b->source, max_double(b->sink, b->network));
}

/*
 * By Little's law the average bytes in a stage are the rate times the time in it. If their sum is
 * the window, nothing queues: no stage is the bottleneck, and a larger window would raise the rate.
 */
static bool is_windowed(const struct bound_facts *f, const struct bound *b)
{
	double at_ends = (max_double(b->source, 0) + max_double(b->sink, 0)) * f->source->block *
			 count_used_lanes(f);
	double in_flight = (double)f->source->moved * b->rtt_us * 1000 / lanes_ns(f);

	return b->window && at_ends + in_flight >= window_full * (double)b->window;
}

static const char *const compression = "compression";
static const char *const sources[STAGE_KINDS] = {"source", "source disk", "source pipe",
						 "source memory"};
static const char *const targets[STAGE_KINDS] = {"target", "target disk", "target pipe",
						 "target memory"};

/* Also if the processors are full: then it is what fills them. */
static bool is_work(const struct bound *b, double share)
{
	return share >= min_work && share >= max_double(b->source, max_double(b->sink, b->network));
}

static const char *name_bound(const struct bound_facts *f, const struct bound *b)
{
	bool source = b->source >= 0, sink = b->sink >= 0;

	if (is_limited(f, b))
		return "--bwlimit";
	if (is_work(b, b->compression) && b->compression >= b->encryption)
		return compression;
	if (is_work(b, b->encryption))
		return "encryption";
	if (b->processors >= processors_full)
		return "processors";
	if (sink && b->sink >= b->source && b->sink >= b->network)
		return targets[f->sink->kind];
	if (source && b->source >= b->network)
		return sources[f->source->kind];
	if (!sink)
		return "network or target";
	if (!source)
		return "network or source";
	if ((f->source->same_host || f->sink->same_host) && b->processors >= processors_within_host)
		return "processors";
	return is_windowed(f, b) ? "window" : "network";
}

void bound_find(const struct bound_facts *f, struct bound *b)
{
	uint32_t there = f->source->rtt_us, back = f->sink->rtt_us;

	*b = (struct bound){
		.name = "nothing that could be measured",
		.source = -1,
		.sink = -1,
		.encryption = -1,
		.compression = -1,
		.network = -1,
		.held_back = -1,
		.processors = -1,
		.window = f->source->window,
		.rtt_us = there && (there < back || !back) ? there : back,
	};
	if (lanes_ns(f) + (double)f->sink->ns_finish < min_ns)
		return;
	b->found = true;
	find_shares(f, b);
	find_load(f, b);
	b->name = name_bound(f, b);
}

/* ---- output -------------------------------------------------------------------------- */

static void print_share(const char **before, const char *name, double share, FILE *to)
{
	if (share < 0)
		return;
	fprintf(to, "%s%s %.0f %%", *before, name, share * 100);
	*before = ", ";
}

void bound_print(const struct bound *b, FILE *to)
{
	const char *before = " (";
	char text[32];

	fputs(b->name, to);
	if (!b->found)
		return;
	print_share(&before, "source busy", b->source, to);
	if (b->compression >= min_work)
		print_share(&before, "compression", b->compression, to);
	if (b->encryption >= min_work)
		print_share(&before, "encryption", b->encryption, to);
	print_share(&before, "network", b->network, to);
	print_share(&before, "sink busy", b->sink, to);
	if (b->held_back >= min_held_back)
		print_share(&before, "held back", b->held_back, to);
	if (b->processors >= processors_within_host)
		print_share(&before, "processors", b->processors, to);
	if (b->network > 0.5 && b->window && b->rtt_us)
		fprintf(to, "; window %s, round trip %.3g ms",
			size_text(b->window, text, sizeof text), b->rtt_us / 1e3);
	if (b->name == compression)
		fputs("; a lower level of -z or more --lanes may be faster", to);
	fputc(')', to);
}

static void json_share(const char *name, double share, FILE *to)
{
	if (share < 0)
		fprintf(to, ", \"%s\": null", name);
	else
		fprintf(to, ", \"%s\": %.3f", name, share);
}

void bound_json(const struct bound *b, FILE *to)
{
	fprintf(to, ", \"bound_by\": \"%s\"", b->name);
	json_share("source_busy", b->source, to);
	json_share("compression", b->compression, to);
	json_share("encryption", b->encryption, to);
	json_share("network", b->network, to);
	json_share("sink_busy", b->sink, to);
	json_share("held_back", b->held_back, to);
	json_share("processors", b->processors, to);
	fprintf(to, ", \"window\": %llu, \"round_trip_us\": %u", (unsigned long long)b->window,
		b->rtt_us);
}

/* ---- several sessions ------------------------------------------------------------------ */

/* Fields that are not sums come from the last session. */
void times_join(struct msg_times *to, const struct msg_times *more)
{
	struct msg_times sum = *more;

	if (!more->used)
		return;
	sum.used = to->used > more->used ? to->used : more->used;
	sum.same_host = to->same_host || more->same_host;
	sum.moved += to->moved;
	sum.ns_fill += to->ns_fill;
	sum.ns_free += to->ns_free;
	sum.ns_send += to->ns_send;
	sum.ns_idle += to->ns_idle;
	sum.ns_paced += to->ns_paced;
	sum.ns_block += to->ns_block;
	sum.ns_store += to->ns_store;
	sum.ns_finish += to->ns_finish;
	sum.ns_cpu += to->ns_cpu;
	sum.ns_cipher += to->ns_cipher;
	sum.ns_compress += to->ns_compress;
	sum.ns_hottest += to->ns_hottest;
	sum.ns_busiest += to->ns_busiest;
	sum.ns_longest += to->ns_longest;
	*to = sum;
}
