/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_ASYNC_H
#define SIMVERBS_ASYNC_H

/* The asynchronous events of a context, which its async_fd counts. */

#include <infiniband/verbs.h>

struct completion;
struct context;
struct queue_pair;

void async_report_pair(struct queue_pair *q, enum ibv_event_type what);
void async_report_completion(struct completion *c, enum ibv_event_type what);
/* Of a port, or of the device, to one context. */
void async_report(struct context *c, unsigned port, enum ibv_event_type what);
/* Whatever is there comes; after it reads fail with EIO, and the descriptor stays readable. */
void async_end(struct context *c);

/* The object is about to be freed: drops its events. Real calls wait until those that the program
 * took are acknowledged, for ever if need be; this waits a little, and then ends the program. */
void async_drop_pair(struct queue_pair *q);
void async_drop_completion(struct completion *c);
/* A context is about to be freed. */
void async_drop_all(struct context *c);

#endif
