/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_DISK_H
#define CMD_END_DISK_H

/* What an end of rdbench has to do with its disk: START_SCRATCH and START_PROBE. */

#include "cmd/end/start_recv.h"
#include "copy/measure/scratch.h"

/* What is to be read or written, if START says that something is: else s->fd is -1.  A file may
 * have to be made, which takes its time. */
int disk_open(const struct start *e, const struct stopper *stopper, struct scratch *s);
/* It takes the place of the user's stdin or stdout. */
struct stream disk_stream(const struct scratch *s);
/* START_PROBE: read or write it, alone; turn is called several times a second. */
int disk_probe(const struct start *e, const struct scratch *s, struct tally *t,
	       void (*turn)(void *ctx), void *ctx);

#endif
