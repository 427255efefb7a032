/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_DOOR_H
#define CMD_SERVE_DOOR_H

/*
 * What rdcpd's parent and the processes of a client say to each other through the door, a socket
 * that keeps messages apart. In this order:
 *
 *	child -> parent: DOOR_ADMITTED, once the client has authenticated
 *	child -> parent: struct door_request, once it has named a module
 *	parent -> child: struct door_answer
 *	end -> parent: the id of its session (session/connect/porter.h)
 *	parent -> end: the lanes of that session
 *	end -> parent: struct door_sizes, once both ends have agreed
 */

#include <stdint.h>
#include "base/fail.h"
#include "cmd/end/guest.h"
#include "cmd/serve/census.h"

enum { DOOR_ADMITTED = 0 };

struct door_request {
	struct entrant who;
};

struct door_answer {
	uint64_t memory; /* that the session may take for blocks */
	unsigned slot; /* census.h */
	struct failure refusal; /* OUT_DONE: the client may go on */
};

union door_message {
	uint64_t word; /* DOOR_ADMITTED or a session's id */
	struct door_request request;
	struct guest_sizes sizes;
};

/* Child: asks the parent whether the client may have a session. Returns 0 and how much memory it
 * may take for blocks, and its slot; -1 with a failure. */
int door_ask(int door, const struct entrant *who, uint64_t *memory, unsigned *slot);
/* Parent: one message of a child, without waiting; texts in it end. Returns its size; 0: the child
 * is gone; -1 with errno. */
long door_read(int door, union door_message *m);
/* Parent: answers a request. Returns 0, or -1 with errno. */
int door_answer(int door, const struct door_answer *a);

#endif
