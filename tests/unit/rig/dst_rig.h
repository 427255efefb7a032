/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DST_RIG_H
#define TESTS_DST_RIG_H

/* Runs into the directory dst of the working directory, one after the other. */

#include "place_rig.h"

extern struct rules rules; /* of the next run; those of -a unless a test changes them */
extern struct place *place; /* of the run that begin_dst_run() began */
extern struct place_dir *top; /* dst itself */

/* Setup: makes an empty dst. folder_leave() is the teardown. */
int enter_dst(void **state);
void begin_dst_run(void);
/* Expects no reports, and no temporary in dst. */
void end_dst_run(void);

#endif
