/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_TOUCH_H
#define SIMVERBS_TOUCH_H

/*
 * With SIMVERBS_TOUCH in the environment: memory that was posted is the adapter's until its
 * completion is polled, and touching it before ends the program.
 *
 * A send may be read meanwhile. So its bytes are summed when it is posted, and when it is polled
 * (transfer.c). A receive may be neither written nor read. Its whole pages are inaccessible to the
 * program; the peer writes to them through a mapping of its own. The bytes beside them, and small
 * receives, are summed: by the program when it posts and polls, and by the peer before and after
 * it copies.
 */

#include <stdbool.h>
#include <stdint.h>
#include "area.h"

bool touch_is_watched(void);
/* Any change of one word changes the sum. */
uint64_t touch_mix(uint64_t sum, const uint8_t *at, uint32_t bytes);

/* The receive is about to be posted: its pages become inaccessible. */
void touch_post(struct area_receive *r);
/* The program gets its pages back, without a check. */
void touch_return(const struct area_receive *r);
/* Its completion is polled: the same, after which the bytes beside the pages must be as they were
 * posted, or as they arrived. */
void touch_take(const struct area_receive *r, uint32_t number);
/* The bytes beside the pages, for who has each range mapped at `at'; 0 if they are not watched. */
uint64_t touch_sum(const struct area_receive *r, const uint8_t *const at[AREA_SGES]);

#endif
