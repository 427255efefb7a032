/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_DEVICE_H
#define SIMVERBS_DEVICE_H

/* The device of the host, its contexts, and protection domains. */

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include "host.h"

struct pd {
	struct ibv_pd pd;
	_Atomic unsigned users; /* regions and queue pairs */
};
static inline struct pd *pd_of(struct ibv_pd *pd)
{
	return (struct pd *)pd;
}

/* The context that librdmacm opens once for all ids, and keeps. NULL with errno. */
struct ibv_context *device_context(void);
/* A protection domain for ids that were given none; kept. NULL with errno. */
struct ibv_pd *device_pd(void);
/* The least power of two that is at least n. */
uint32_t device_round(uint32_t n);

#endif
