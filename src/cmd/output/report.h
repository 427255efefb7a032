/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_REPORT_H
#define CMD_OUTPUT_REPORT_H

/* What is said when it is over: the last lines of -v, and --json's object. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/fail.h"
#include "cmd/output/bound.h"
#include "protocol/message.h"

struct report {
	const char *program;
	struct msg_total total;
	struct msg_counts counts;
	enum transport transport;
	unsigned lanes;
	char how[HOST_MAX]; /* name of a wire, "" when there was none */
	char why[TEXT_MAX]; /* why not RDMA */
	uint64_t ns; /* from the first block to the end */
	/* What the lanes of either end did with their time; all 0 where that end is not known. */
	struct msg_times source, sink;
	uint64_t bwlimit;
	struct failure failure;
	char host[HOST_MAX]; /* where it failed, "" for here */
};

/* Lines that are written in one piece, so that other processes' don't get between them: print to
 * what output_buffer_begin() returns, until output_buffer_end(). */
struct output_buffer {
	FILE *to, *text;
	char *bytes;
	size_t size;
};
FILE *output_buffer_begin(struct output_buffer *w, FILE *to);
void output_buffer_end(struct output_buffer *w);

/* What an end says of the whole of it: totals, lanes, time. */
void report_take(struct report *r, const struct msg_verdict *v);
/* Sentence, exit code: printed once, by the program that the user started. */
void report_failure(const struct report *r);
/* Gb/s and lanes; bound by; Bandwidth. */
void report_verbose(const struct report *r, FILE *to);
void report_json(const struct report *r, FILE *to);
/* Does it say of some files that they failed, and nothing of the others? */
bool outcome_is_of_files(enum outcome code);
/* What bounded the transfer. */
void report_bound(const struct report *r, struct bound *b);
const char *transport_name(enum transport t);

#endif
