/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_VERBS_END_H
#define SIMVERBS_VERBS_END_H

/* One end of a connection over verbs, for test_simverbs.c: a queue pair with registered memory, in
 * the plainest use of librdmacm. Its functions end the process when a call fails that must not. */

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { END_BYTES = 256 << 10, END_SLOTS = 8, END_WAIT_MS = 5000 };

struct end {
	struct rdma_event_channel *events, *own;
	struct rdma_cm_id *listener, *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory; /* END_SLOTS slots of END_BYTES */
	uint8_t ack_timeout; /* for end_resolve(); 0: the adapter's */
	bool gone; /* its adapter was pulled out: what is destroyed reports EIO */
	int cqe; /* for end_equip(); 0: enough */
};

/* What an event was, with what came with it. */
struct end_event {
	enum rdma_cm_event_type what;
	int status;
	uint8_t len, data[255];
};

#define END_NEED(what) end_need((what), #what, __LINE__)
void end_need(bool good, const char *what, int line);

/* Listens; returns the port. */
uint16_t end_listen(struct end *e, const char *ip);
/* Takes the next request; does not answer it. */
void end_take(struct end *e, struct end_event *request);
/* Resolves the address and the route. */
void end_resolve(struct end *e, const char *ip, uint16_t port);
/* Makes the queue pair, registers the memory, and posts that many receives. */
void end_equip(struct end *e, unsigned receives, int access);
/* Waits for an event of the id. */
struct end_event end_expect(struct end *e);
int end_connect(struct end *e, const void *data, uint8_t len, uint8_t rnr_retry);
int end_accept(struct end *e, uint8_t rnr_retry);
void end_post(struct end *e, unsigned slot);
int end_send(struct end *e, unsigned slot, uint32_t len);
int end_write(struct end *e, enum ibv_wr_opcode opcode, uint32_t len, uint64_t to, uint32_t key);
/* Sleeps on the channel until there is a completion; its id is the slot. */
struct ibv_wc end_reap(struct end *e);
/* Disconnects if connected, and frees everything in the right order. */
void end_close(struct end *e);

#endif
