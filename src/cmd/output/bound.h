/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_BOUND_H
#define CMD_OUTPUT_BOUND_H

/*
 * Finds the stage that bounded a transfer, from how the lanes of both ends spent their time.
 *
 * A stage that bounds the transfer is busy nearly all the time, and all others wait for it: the
 * source's threads read, or the sink's threads write. If both ends wait, the bound lies between
 * them. It is the window if the bytes that may be in flight are no more than what the reached rate
 * transmits in a round-trip time. Threads that compute or wait for a processor wait for none of
 * these, however it looks from outside. What takes the most time of a lane is the bound, if that is
 * compression or encryption.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "protocol/message.h"

struct bound_facts {
	const struct msg_times *source, *sink; /* all 0: that end sent no times */
	uint64_t bwlimit; /* the requested limit in bytes per second; 0: none, or unknown */
};

/* Shares of the busiest lane's time, 0 to 1; negative: unknown. */
struct bound {
	const char *name; /* "target disk" */
	bool found; /* else there was nothing to measure */
	double source, sink; /* share of time that the end was busy */
	double compression; /* share that the lanes of the end with the most of it compressed */
	double encryption; /* share that the lanes of the end with the most of it encrypted */
	double network; /* share that the busier end did neither */
	double held_back; /* by --bwlimit */
	double processors; /* share that threads ran or were ready to run */
	uint64_t window; /* bytes that could be in flight; 0: unknown */
	uint32_t rtt_us; /* 0: unknown */
};

void bound_find(const struct bound_facts *f, struct bound *b);
/* "target disk (source busy 3 %, network 1 %, sink busy 97 %)" */
void bound_print(const struct bound *b, FILE *to);
/* ", "bound_by": "target disk", "source_busy": 0.030, …" */
void bound_json(const struct bound *b, FILE *to);

/* Adds the times of a later session. */
void times_join(struct msg_times *to, const struct msg_times *more);

#endif
