/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_DELAY_H
#define SIMVERBS_DELAY_H

/*
 * The model of the link, in real time: what a process sends from a port leaves one after the other
 * at the host's bandwidth, arrives after its latency, and is acknowledged after the same time
 * again. Without the words "bandwidth" (Mbit/s) and "latency" (microseconds, one way) in the host's
 * file all of that takes no time.
 */

#include <stdint.h>

struct host_adapter;
/* When a message of this size that is sent now from a port arrives, and when its acknowledgement
 * does; in ns of CLOCK_MONOTONIC. 0: at once. With "loss N" each N-th message of a process loses
 * its last packet, which is sent again after repeat_ns. */
void delay_message(const struct host_adapter *a, unsigned port, uint64_t bytes, uint64_t repeat_ns,
		   uint64_t *arrives, uint64_t *acked);
uint64_t delay_now(void);

#endif
