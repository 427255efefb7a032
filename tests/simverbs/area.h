/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_AREA_H
#define SIMVERBS_AREA_H

/*
 * Memory that two processes share: the contract between a queue pair and its peer.
 *
 * The owner of a queue pair posts receives into its ring. The peer, which is the only one that
 * sends to it, copies what it sends straight into the owner's registered memory, fills in the
 * outcome, and counts the receive as filled. The owner polls it. So data moves with one copy, in
 * the sender's thread.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { AREA_SGES = 8, AREA_REGIONS = 4096, RNR_TIMERS = 32 };

struct area_sge {
	uint64_t addr;
	uint32_t length, key;
};

/* A posted receive, and after it is filled its completion. */
struct area_receive {
	uint64_t wr_id;
	uint32_t sges;
	uint32_t status, opcode, bytes, imm, flags;
	struct area_sge sge[AREA_SGES];
	/* touch.h: sums of bytes when it was posted, and before and after something arrived. */
	uint32_t watched;
	uint64_t posted, found, left;
};

enum queue_state {
	QUEUE_IDLE, /* not connected yet: as if nothing listened */
	QUEUE_READY,
	QUEUE_BROKEN, /* by the peer's violation; the owner has not noticed yet */
	QUEUE_ERROR,
};

/* One queue pair's receive side. posted >= filled; the owner's private count of polled receives is
 * at most filled, and posted is at most slots ahead of it. */
struct queue_area {
	/* Held by whoever fills receives: the peer while it copies, the owner when it flushes. Once
	 * the owner has set QUEUE_ERROR under it, the peer touches none of its memory any more.
	 * Robust: a peer may be killed in a copy. */
	pthread_mutex_t filling;
	_Atomic uint32_t state;
	uint32_t number, pd, slots;
	/* The peer repeats a send that found no receive after the time with this code (transfer.c).
	 */
	_Atomic uint32_t rnr_timer;
	_Atomic uint64_t posted, filled;
	struct area_receive receives[];
};

/* One completion queue. */
struct completion_area {
	_Atomic uint32_t armed; /* enum completion_wish */
	_Atomic uint32_t events; /* written to the channel, not taken yet */
};
enum completion_wish { WISH_NONE, WISH_SOLICITED, WISH_ANY };

/* The regions of one process. */
struct region_area {
	struct area_region {
		_Atomic uint32_t key; /* 0: free */
		uint32_t pd, access;
		uint64_t addr, length;
	} of[AREA_REGIONS];
};

/* The entry in which a key would be. */
static inline unsigned area_key_index(uint32_t key)
{
	return (key >> 8) % AREA_REGIONS;
}

/* Makes a zeroed area; the descriptor is for the peer. NULL with errno. */
void *area_new(const char *name, size_t bytes, int *fd);
/* Maps a peer's area, of whatever size it is. NULL with errno. */
void *area_map(int fd, size_t *bytes);
void area_unmap(void *area, size_t bytes);

void area_lock_init(pthread_mutex_t *lock);
/* Works after another process died with it. */
void area_lock(pthread_mutex_t *lock);
void area_unlock(pthread_mutex_t *lock);

/* Reports a completion: writes to the channel if the queue is armed for it. channel -1: none. */
void area_signal(struct completion_area *cq, int channel, int solicited);

#endif
