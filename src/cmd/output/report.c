/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/report.h"

#include <stdlib.h>
#include <string.h>
#include "base/escape.h"
#include "base/log.h"
#include "lane/cipher.h"
#include "cmd/output/json.h"

static double elapsed_seconds(const struct report *r)
{
	return (double)r->ns / 1e9;
}

static double average_rate(const struct report *r)
{
	return r->ns ? (double)r->total.bytes / elapsed_seconds(r) : 0;
}

const char *transport_name(enum transport t)
{
	switch (t) {
	case TRANSPORT_RDMA:
		return "rdma";
	case TRANSPORT_TCP:
		return "tcp";
	case TRANSPORT_SSH:
		return "ssh";
	case TRANSPORT_AUTO:
		break;
	}
	return "none";
}

void report_bound(const struct report *r, struct bound *b)
{
	const struct bound_facts facts = {
		.source = &r->source,
		.sink = &r->sink,
		.bwlimit = r->bwlimit,
	};

	bound_find(&facts, b);
}

bool outcome_is_of_files(enum outcome code)
{
	return code == OUT_NO_SOURCE || code == OUT_FILE || code == OUT_VANISHED ||
	       code == OUT_INTEGRITY || code == OUT_CHANGED;
}

void report_take(struct report *r, const struct msg_verdict *v)
{
	r->total = v->total;
	r->counts = v->counts;
	r->transport = (enum transport)v->transport;
	r->lanes = v->lanes;
	r->ns = v->ns;
	snprintf(r->how, sizeof r->how, "%s", v->how);
	snprintf(r->why, sizeof r->why, "%s", v->why);
	r->encrypted = (enum encrypted)v->encrypted;
	r->cipher = v->cipher;
}

void report_failure(const struct report *r)
{
	if (r->host[0])
		log_at(LOG_ERROR, "%s: %s", r->host, r->failure.text);
	else
		log_at(LOG_ERROR, "%s", r->failure.text);
}

FILE *output_buffer_begin(struct output_buffer *w, FILE *to)
{
	*w = (struct output_buffer){.to = to};
	w->text = open_memstream(&w->bytes, &w->size);
	return w->text ? w->text : to;
}

void output_buffer_end(struct output_buffer *w)
{
	/* fclose(3) returns 0 without the bytes if it has no memory for them. */
	if (w->text && fclose(w->text) == 0 && w->bytes)
		fwrite(w->bytes, 1, w->size, w->to);
	free(w->bytes);
	fflush(w->to);
}

const char *encrypted_name(enum encrypted e)
{
	static const char *const names[] = {"none", "some", "all"};

	return names[e];
}

/* What holds of the data on the way. */
static void print_encryption(const struct report *r, FILE *to)
{
	const char *cipher = cipher_name((enum cipher_kind)r->cipher);

	if (r->encrypted == ENCRYPTED_ALL)
		fprintf(to, ", encrypted with %s", cipher);
	else if (r->encrypted == ENCRYPTED_SOME)
		fprintf(to, ", partly encrypted with %s", cipher);
	else
		fputs(r->transport == TRANSPORT_SSH ? ", encrypted by ssh" : ", not encrypted", to);
}

/* Bytes that lanes carried. An end that failed may have sent no times. */
static uint64_t wire_bytes(const struct report *r)
{
	return r->source.moved ? r->source.moved : r->sink.moved;
}

/* Bytes of files for each byte that lanes carried; 0: nothing was compressed. */
static double find_ratio(const struct report *r)
{
	uint64_t wire = wire_bytes(r);

	if (!wire || !(r->source.ns_compress || r->sink.ns_compress))
		return 0;
	return (double)r->counts.sent / (double)wire;
}

static double wire_rate(const struct report *r)
{
	return r->ns ? (double)wire_bytes(r) / elapsed_seconds(r) : 0;
}

void report_verbose(const struct report *r, FILE *at)
{
	char how[4 * HOST_MAX], why[4 * TEXT_MAX];
	struct output_buffer w;
	FILE *to = output_buffer_begin(&w, at);
	struct bound b;

	/* Both texts may come from a peer. */
	escape(how, sizeof how, r->how, strlen(r->how));
	escape(why, sizeof why, r->why, strlen(r->why));
	fprintf(to, "%s: %.3f Gb/s over %s, %u lane%s", r->program, average_rate(r) * 8 / 1e9,
		how[0] ? how : transport_name(r->transport), r->lanes, r->lanes == 1 ? "" : "s");
	if (how[0])
		print_encryption(r, to);
	if (find_ratio(r) > 0)
		fprintf(to, ", compressed %.2f:1 to %.3f Gb/s", find_ratio(r),
			wire_rate(r) * 8 / 1e9);
	fprintf(to, "%s%s\n", why[0] ? "; not rdma: " : "", why);
	fputs("bound by: ", to);
	report_bound(r, &b);
	bound_print(&b, to);
	fprintf(to, "\nBandwidth %.3f GB/s\n", average_rate(r) / 1e9);
	output_buffer_end(&w);
}

static void json_failure(const struct report *r, FILE *to)
{
	fputs(", \"error\": ", to);
	json_text(to, r->failure.text);
	fputs(", \"host\": ", to);
	json_text(to, r->host);
}

static void json_counts(const struct msg_counts *c, FILE *to)
{
	const struct {
		const char *name;
		uint64_t n;
	} counts[] = {
		{"regular", c->regular},       {"dirs", c->dirs},     {"symlinks", c->symlinks},
		{"hard_links", c->hard_links}, {"nodes", c->nodes},   {"created", c->created},
		{"deleted", c->deleted},       {"sent", c->sent},     {"had", c->had},
		{"holes", c->holes},           {"unkept", c->unkept},
	};

	for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
		fprintf(to, ", \"%s\": %llu", counts[i].name, (unsigned long long)counts[i].n);
}

void report_json(const struct report *r, FILE *at)
{
	struct output_buffer w;
	FILE *to = output_buffer_begin(&w, at);
	struct bound b;

	fprintf(to, "{\"v\": 1, \"type\": \"summary\", \"program\": \"%s\", \"exit\": %d, ",
		r->program, (int)r->failure.code);
	fprintf(to, "\"files\": %llu, \"same\": %llu, \"others\": %llu, \"failed\": %llu, ",
		(unsigned long long)r->total.files, (unsigned long long)r->total.same,
		(unsigned long long)r->total.others, (unsigned long long)r->total.failed);
	fprintf(to, "\"bytes\": %llu, \"seconds\": %.6f, \"bytes_per_second\": %.0f, ",
		(unsigned long long)r->total.bytes, elapsed_seconds(r), average_rate(r));
	fprintf(to,
		"\"transport\": \"%s\", \"lanes\": %u, \"wire\": ", transport_name(r->transport),
		r->lanes);
	json_text(to, r->how);
	fprintf(to, ", \"encrypted\": \"%s\", \"cipher\": \"%s\"", encrypted_name(r->encrypted),
		cipher_name((enum cipher_kind)r->cipher));
	if (find_ratio(r) > 0)
		fprintf(to, ", \"compression_ratio\": %.3f", find_ratio(r));
	else
		fputs(", \"compression_ratio\": null", to);
	fprintf(to, ", \"wire_bytes\": %llu, \"wire_bytes_per_second\": %.0f",
		(unsigned long long)wire_bytes(r), wire_rate(r));
	fputs(", \"why_not_rdma\": ", to);
	json_text(to, r->why);
	report_bound(r, &b);
	bound_json(&b, to);
	fprintf(to, ", \"digest\": \"%016llx%016llx\"", (unsigned long long)r->total.digest[1],
		(unsigned long long)r->total.digest[0]);
	json_counts(&r->counts, to);
	if (r->failure.code != OUT_DONE)
		json_failure(r, to);
	fputs("}\n", to);
	output_buffer_end(&w);
}
