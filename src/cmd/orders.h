/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_ORDERS_H
#define CMD_ORDERS_H

/* What a conductor tells its two ends to do: START with a fresh secret, the names, GO. */

#include "cmd/conductor.h"
#include "cmd/link.h"

struct orders {
	const struct job *job;
	struct link *links; /* both: LINK_SOURCE, LINK_SINK */
	int listener; /* which of them listens at first */
	bool over_ssh; /* lanes go over ssh */
};
/* 0, or -1 with a failure. */
int give_orders(const struct orders *d);

#endif
