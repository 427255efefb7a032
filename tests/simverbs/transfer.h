/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_TRANSFER_H
#define SIMVERBS_TRANSFER_H

/* Moves what a queue pair sends into its peer's memory, in the order in which it was posted. */

#include <infiniband/verbs.h>
#include "engine.h"

struct queue_pair;

/* Goes on with sends that had to wait. With the engine's lock. */
void transfer_continue(struct queue_pair *q);
/* The same, from a queue pair's timer. */
void transfer_retry(struct engine_timer *t);

/* touch.h: ends the program if the memory of a send is not as it was when it was posted. To be
 * called when its completion is polled; until then the memory is the adapter's, even if the data
 * has arrived. */
struct send_entry;
void transfer_check_untouched(const struct queue_pair *q, const struct send_entry *e);

#endif
