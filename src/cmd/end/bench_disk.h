/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_BENCH_DISK_H
#define CMD_END_BENCH_DISK_H

/* The disk of an end of rdbench: START_SCRATCH and START_PROBE. */

#include "cmd/end/orders.h"
#include "copy/measure/scratch.h"

/* Opens what START says to read or write; if nothing, s->fd is -1. It may have to write a file
 * first, which takes time. */
int bench_disk_open(const struct orders *e, const struct stopper *stopper, struct scratch *s);
/* The stream that replaces the user's stdin or stdout. */
struct stream bench_disk_stream(const struct scratch *s);
/* START_PROBE: reads or writes the disk alone. Calls tick several times a second. */
int bench_disk_probe(const struct orders *e, const struct scratch *s, struct tally *t,
		     void (*tick)(void *ctx), void *ctx);

#endif
