/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_DEVICE_H
#define SIMVERBS_DEVICE_H

/* The devices of the host, their contexts, and protection domains. */

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "host.h"

struct async;

struct context {
	_Atomic bool gone; /* its adapter was pulled out */
	const struct host_adapter *adapter;
	struct async *events; /* async.c */
	struct context *next;
	struct verbs_context verbs; /* the last one, as verbs.h wants it */
};
static inline struct context *context_of(struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, verbs.context));
}
static inline const struct host_adapter *adapter_of(struct ibv_context *c)
{
	return context_of(c)->adapter;
}
static inline bool device_is_gone(struct ibv_context *c)
{
	return atomic_load(&context_of(c)->gone);
}
/* uverbs_main.c: "Userspace will see a EIO errno for all future access." */
#define FAIL_IF_GONE(context, result)                                                              \
	do {                                                                                       \
		if (device_is_gone(context)) {                                                     \
			errno = EIO;                                                               \
			return result;                                                             \
		}                                                                                  \
	} while (0)

/*
 * Destroying what is on an adapter that was pulled out. The kernel has freed its part, but
 * libibverbs keeps what it has and returns EIO, unless RDMAV_ALLOW_DISASSOC_DESTROY is set
 * (cmd_write.h, verbs_is_destroy_err()). A failure that a rule orders does the same. Keeps the
 * object until the process ends, or frees it, and returns what the call returns.
 */
int device_end_object(struct ibv_context *context, void *object, int ordered);
/* Keeps it until the process ends. */
void device_keep_object(void *object);

struct pd {
	struct ibv_pd pd;
	_Atomic unsigned users; /* regions and queue pairs */
};
static inline struct pd *pd_of(struct ibv_pd *pd)
{
	return (struct pd *)pd;
}

/* An event for all contexts of an adapter; the port counts for events of ports. */
void device_report(const struct host_adapter *a, unsigned port, enum ibv_event_type what);
/* All contexts of an adapter are gone. Engine's lock. */
void device_remove(const struct host_adapter *a);

/* The context that librdmacm opens once for all ids of an adapter, and keeps. NULL with errno. */
struct ibv_context *device_context(const struct host_adapter *a);
/* A protection domain of that context for ids that were given none; kept. NULL with errno. */
struct ibv_pd *device_pd(const struct host_adapter *a);
/* The least power of two that is at least n. */
uint32_t device_round(uint32_t n);

#endif
