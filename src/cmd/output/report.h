/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_REPORT_H
#define CMD_OUTPUT_REPORT_H

/* Output at the end of a run: the last lines of -v, and --json's object. */

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
	char how[HOST_MAX]; /* name of a wire; "" if there was none */
	char why[TEXT_MAX]; /* why not RDMA */
	enum encrypted encrypted;
	uint8_t cipher; /* enum cipher_kind */
	uint64_t ns; /* from the first block to the end */
	/* How the lanes of each end spent their time; all 0 if unknown. */
	struct msg_times source, sink;
	uint64_t bwlimit;
	struct failure failure;
	char host[HOST_MAX]; /* where it failed; "" for this host */
};

/* "all", "some", "none": which blocks were encrypted. */
const char *encrypted_name(enum encrypted e);

/* Lines that are written in one piece, so that output of other processes cannot come between them.
 * Print to what output_buffer_begin() returns, until output_buffer_end(). */
struct output_buffer {
	FILE *to, *text;
	char *bytes;
	size_t size;
};
FILE *output_buffer_begin(struct output_buffer *w, FILE *to);
void output_buffer_end(struct output_buffer *w);

/* Takes an end's results for the whole session: totals, lanes, time. */
void report_take(struct report *r, const struct msg_verdict *v);
/* Prints the message for the exit code. Called once, by the program that the user started. */
void report_failure(const struct report *r);
/* Prints the rate in Gb/s and the lanes; the bound; the bandwidth. */
void report_verbose(const struct report *r, FILE *to);
void report_json(const struct report *r, FILE *to);
/* Whether this outcome means that some files failed, and says nothing about the others. */
bool outcome_is_of_files(enum outcome code);
/* Finds what bounded the transfer. */
void report_bound(const struct report *r, struct bound *b);
const char *transport_name(enum transport t);

#endif
