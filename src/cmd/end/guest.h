/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_GUEST_H
#define CMD_END_GUEST_H

/*
 * A guest: an end of rdcpd, whose conductor is the client. The client's orders are checked before
 * they have any effect. The process is confined to the module before it reads them (cmd/serve).
 */

#include <stdbool.h>
#include "base/address.h"
#include "cmd/end/orders.h"

/* A module, as LIST without a module shows it. */
struct guest_module {
	const char *name, *comment;
};

enum { GUEST_PATH_MAX = 1024 };
/* What a guest says that it did, in memory that it shares with the process that logs it. Zeros
 * until its work ends. */
struct guest_record {
	uint8_t role; /* 0: it received no orders */
	uint8_t transport;
	uint64_t files, bytes, ns;
	char path[GUEST_PATH_MAX]; /* in the module; the first one, cut off if it is longer */
	char text[TEXT_MAX]; /* why it failed, "" if it did not */
};

struct guest {
	int door; /* lanes come through this socket (session/connect/porter.h) */
	unsigned port; /* of rdcpd */
	/* what the daemon permits, and its RDMA listeners' ports and type of service (0: the
	 * client's) */
	enum transport want;
	unsigned port_lo, port_hi, tos;
	union address reached; /* where the client reached rdcpd */
	bool one_address; /* lanes may come only there */
	const char *module; /* name, for messages */
	bool may_read, may_write, may_delete, may_remove; /* what a client may do in the module */
	unsigned idle_s; /* it ends if nothing moves for so long; 0: it does not (guest_idle.h) */
	uint64_t memory; /* that it may take for blocks */
	bool anonymous; /* it has no key: messages say that others may do more */
	uint64_t refused; /* options that it may not use (refusals.h) */
	const char *incoming_chmod; /* of files that it writes; "" or NULL: none */
	bool must_encrypt, fsync; /* this end demands that, whatever the client says */
	/* what this client may see; of no use to a client that names a module */
	const struct guest_module *listed;
	unsigned listed_count;
	struct guest_record *record; /* NULL: nobody wants it */
	struct failure refusal; /* why this client gets nothing; OUT_DONE: it may go on */
};

/* What a guest says through its door when both ends have agreed. */
struct guest_sizes {
	uint64_t zero; /* makes it another size than an id */
	uint64_t memory; /* bytes of its lanes */
};

/* Checks the orders, and changes those that mean something else to a guest. Returns 0, or -1 with a
 * failure. */
int guest_check(const struct guest *g, struct orders *o);
/* Checks that the client may list path in the module. Returns 0, or -1 with a failure. */
int guest_check_list(const struct guest *g, const char *path);

/* Says how much memory the lanes take: what they do not is for other clients. */
void guest_tell_sizes(const struct guest *g, struct session *s);
/* Fills in g->record when the work has ended. */
void guest_record_work(const struct guest *g, const struct orders *o, const struct msg_verdict *v);

#endif
