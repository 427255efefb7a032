/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/stats.h"

#include "cmd/cli/amount.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

struct msg_counts counts_join(const struct msg_counts *a, const struct msg_counts *b)
{
	return (struct msg_counts){
		.regular = max_u64(a->regular, b->regular),
		.dirs = max_u64(a->dirs, b->dirs),
		.symlinks = max_u64(a->symlinks, b->symlinks),
		.hard_links = max_u64(a->hard_links, b->hard_links),
		.nodes = max_u64(a->nodes, b->nodes),
		.created = max_u64(a->created, b->created),
		.deleted = max_u64(a->deleted, b->deleted),
		.sent = max_u64(a->sent, b->sent),
		.had = max_u64(a->had, b->had),
		.holes = max_u64(a->holes, b->holes),
		.unkept = max_u64(a->unkept, b->unkept),
	};
}

void counts_add(struct msg_counts *to, const struct msg_counts *more)
{
	to->regular += more->regular;
	to->dirs += more->dirs;
	to->symlinks += more->symlinks;
	to->hard_links += more->hard_links;
	to->nodes += more->nodes;
	to->created += more->created;
	to->deleted += more->deleted;
	to->sent += more->sent;
	to->had += more->had;
	to->holes += more->holes;
	to->unkept += more->unkept;
}

static void print_count(FILE *to, const char *what, uint64_t n)
{
	fprintf(to, "%-22s %llu\n", what, (unsigned long long)n);
}

static void print_bytes(FILE *to, const char *what, uint64_t n)
{
	char text[32];

	fprintf(to, "%-22s %llu (%s)\n", what, (unsigned long long)n,
		size_text(n, text, sizeof text));
}

void stats_print(const struct report *r, FILE *at)
{
	const struct msg_counts *c = &r->counts;
	struct output_buffer w;
	FILE *to = output_buffer_begin(&w, at);
	const struct {
		const char *what;
		uint64_t n;
	} kinds[] = {
		{"regular", c->regular},         {"directories", c->dirs},
		{"symlinks", c->symlinks},       {"hard links", c->hard_links},
		{"devices and FIFOs", c->nodes},
	};
	struct bound b;
	const char *before = "requested:             ";

	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		fprintf(to, "%s%llu %s", before, (unsigned long long)kinds[i].n, kinds[i].what);
		before = ", ";
	}
	fputc('\n', to);
	print_count(to, "files sent:", r->total.files);
	print_count(to, "files not sent:", r->total.same);
	print_count(to, "created:", c->created);
	print_count(to, "deleted:", c->deleted);
	print_count(to, "failed:", r->total.failed);
	if (c->unkept > 0)
		print_count(to, "metadata not kept:", c->unkept);
	print_bytes(to, "bytes of files sent:", r->total.bytes);
	print_bytes(to, "of these in holes:", c->holes);
	print_bytes(to, "bytes already there:", c->had);
	print_bytes(to, "bytes transferred:", c->sent);
	report_bound(r, &b);
	fprintf(to, "%-22s ", "bound by:");
	bound_print(&b, to);
	fputc('\n', to);
	output_buffer_end(&w);
}
