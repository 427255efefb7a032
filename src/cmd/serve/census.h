/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_CENSUS_H
#define CMD_SERVE_CENSUS_H

/* The sessions of a rdcpd: who runs them, in which module, and with how much memory. Its parent
 * asks here whether one more may begin. */

#include <stdint.h>
#include <sys/types.h>
#include "protocol/message.h"
#include "session/channel/key_ring.h"

enum { SESSIONS_MAX = 256 };

/* 0: no limit. */
struct limits {
	unsigned sessions; /* 1 to SESSIONS_MAX */
	unsigned sessions_per_user;
	uint64_t memory; /* of all sessions together, for blocks */
	unsigned idle_s; /* a session ends if nothing moves for so long */
};

/* A client that has authenticated, as its process describes it. */
struct entrant {
	char user[USER_NAME_MAX]; /* or "-" */
	char module[MODULE_NAME_MAX]; /* "": none, it asks for the list of modules */
};

struct census {
	struct {
		pid_t pid; /* 0: this slot is free */
		struct entrant who;
		uint64_t memory;
	} list[SESSIONS_MAX];
	unsigned count;
};

/* The limits that hold without any configuration: half of this host's memory, SESSIONS_MAX. */
struct limits limits_default(void);
/* Returns 0, or -1 with a failure (OUT_USAGE). */
int limits_set_memory(struct limits *l, uint64_t bytes);
/*
 * Counts a session of the process pid. most: of this module, 0: no limit. Returns 0 and how much
 * memory it may take for blocks (0 for a list of modules) and its slot in the list, which stays the
 * same; or -1 with a failure (OUT_CONNECT).
 */
int census_enter(struct census *c, const struct limits *l, unsigned most, pid_t pid,
		 const struct entrant *who, uint64_t *memory, unsigned *slot);
/* The session takes no more than this. */
void census_lower(struct census *c, pid_t pid, uint64_t memory);
/* It has ended, if it was one. */
void census_leave(struct census *c, pid_t pid);

#endif
