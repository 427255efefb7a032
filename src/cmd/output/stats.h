/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_STATS_H
#define CMD_OUTPUT_STATS_H

/* The numbers of --stats and of --json's summary. */

#include <stdio.h>
#include "cmd/output/report.h"

/* Combines the counts of two ends of one session; each counts what it knows. */
struct msg_counts counts_join(const struct msg_counts *a, const struct msg_counts *b);
/* Adds the counts of a later session. */
void counts_add(struct msg_counts *to, const struct msg_counts *more);
/* Prints lines for people. */
void stats_print(const struct report *r, FILE *to);

#endif
