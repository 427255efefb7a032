/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_BOUND_H
#define CMD_OUTPUT_BOUND_H

/*
 * Which stage bounded a transfer, from what the lanes of both ends did with their time.
 *
 * A stage that bounds is busy nearly all the time, and all others wait for it: the source's
 * threads are in reading, or the sink's are in writing.  Where both ends wait it is what lies
 * between them; that is the window, when what may be under way is not more than what a round
 * trip takes at the rate that was reached.  Threads that compute, or wait for a processor, wait
 * for none of these, however it looks from outside.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "protocol/message.h"

struct bound_facts {
	const struct msg_times *source, *sink; /* all 0: that end did not say */
	uint64_t bwlimit; /* bytes a second that were asked for; 0: none, or not known */
};

/* Shares of the busiest lane's time, 0 to 1; less than 0: not known. */
struct bound {
	const char *name; /* "target disk" */
	bool found; /* else there was nothing to measure */
	double source, sink; /* the end was busy */
	double network; /* what the busier of both waited */
	double held_back; /* by --bwlimit */
	double processors; /* threads ran, or were ready to */
	uint64_t window; /* bytes that could be under way; 0: not known */
	uint32_t rtt_us; /* 0: not known */
};

void bound_find(const struct bound_facts *f, struct bound *b);
/* "target disk (source busy 3 %, network 1 %, sink busy 97 %)" */
void bound_print(const struct bound *b, FILE *to);
/* ", "bound_by": "target disk", "source_busy": 0.030, …" */
void bound_json(const struct bound *b, FILE *to);

/* Of one session after another. */
void times_join(struct msg_times *to, const struct msg_times *more);

#endif
