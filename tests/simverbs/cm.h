/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_CM_H
#define SIMVERBS_CM_H

/* The connection manager: ids, their events, and how they connect. Ids and channels are protected
 * by the engine's lock. */

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include "device.h"
#include "engine.h"
#include "host.h"
#include "link.h"

/* Reasons of a rejection in the status of InfiniBand's connection manager (IBTA 12.6.7.2). */
enum { REJ_TIMEOUT = 4, REJ_NO_SERVICE = 8, REJ_STALE = 10, REJ_BY_CONSUMER = 28 };

struct cm_channel {
	struct rdma_event_channel channel;
	struct cm_event *first;
};
static inline struct cm_channel *cm_channel_of(struct rdma_event_channel *c)
{
	return (struct cm_channel *)c;
}

struct cm_event {
	struct rdma_cm_event event;
	struct cm_event *next;
	/* A caller's: the answer came; taking the event makes the connection. */
	bool response;
	struct engine_timer late; /* if a rule delays it */
	uint8_t private_data[MESSAGE_PRIVATE];
};

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_LISTENING,
	CM_ADDR,
	CM_ROUTE,
	CM_CALLING, /* REQ is sent or about to be */
	CM_CALLED, /* REQ came; not answered yet */
	CM_ACCEPTED, /* REP is sent, RTU has not come */
	CM_CONNECTED, /* also after the peer's DREQ */
	CM_ENDING, /* DREQ is sent, DREP has not come */
	CM_ENDED,
	CM_REMOVED, /* its adapter was pulled out */
};

struct cm_id {
	struct rdma_cm_id id;
	enum cm_state state;
	struct engine_watch bound; /* fd: the bound socket, or -1 */
	struct link *link;
	/* Of this end's queue pair, as rdma_set_option() has it (0: not set), and of the path. */
	uint8_t ack_timeout, path_timeout;
	uint8_t tos; /* RDMA_OPTION_ID_TOS; a caller's id on iWARP: the listener's */
	bool reported_end; /* DISCONNECTED was queued */
	unsigned taken; /* events that were taken and not acknowledged */
	const struct host_address *peer; /* of the address that was resolved */
	struct message request; /* a caller's own, or the one that came */
	struct engine_timer timer; /* of resolving, of the request, of timewait */
	unsigned tries;
	struct message reply; /* CM_ACCEPTED: to be repeated */
	bool untaken; /* a caller's whose request nobody has taken */
	struct cm_id *next; /* of all */
};
static inline struct cm_id *cm_id_of(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

/* The adapter that the id belongs to; the first one as long as it belongs to none. */
static inline const struct host_adapter *cm_adapter(const struct cm_id *c)
{
	return c->id.verbs ? adapter_of(c->id.verbs) : host_get()->adapters;
}
static inline bool cm_is_iwarp(const struct cm_id *c)
{
	return cm_adapter(c)->p.iwarp;
}

/* ---- cm.c ---- */

struct cm_id *cm_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
/* All ids of an adapter that was pulled out. Engine's lock. */
void cm_remove_all(const struct host_adapter *a);
/* Frees an id that nobody can use any more. */
void cm_free(struct cm_id *c);
/* "": of a network that reaches all others. */
const char *cm_cable(const struct cm_id *c);
/* The name of the socket on which an address and port listens, as the port of c reaches it; any: on
 * all addresses. */
void cm_name(char *to, size_t size, const struct cm_id *c, const struct sockaddr *sa, bool any);

/* ---- cm_event.c ---- */

/* Queues an event; private data may be NULL. */
void cm_report(struct cm_id *c, enum rdma_cm_event_type what, int status,
	       const struct message_connect *with);
/* Drops the events of an id, and waits until those that were taken are acknowledged. May release
 * the lock meanwhile. */
void cm_drop_events(struct cm_id *c);
/* The event of a caller who came to a listener. */
void cm_report_caller(struct cm_id *listener, struct cm_id *caller);

/* ---- cm_connect.c ---- */

/* The events and sockets of connecting ids. */
void cm_listen_ready(struct engine_watch *w);
/* Taking the response: the queue pair becomes ready, and the peer is told. Returns -1 if the
 * connection has ended meanwhile. */
int cm_establish(struct cm_id *c);
/* Undoes what an id has with a peer. */
void cm_hang_up(struct cm_id *c);
/* The id's timer, in CM_CALLING. */
void cm_call_timeout(struct engine_timer *t);

/* ---- cm_end.c ---- */

void cm_send_plain(struct cm_id *c, enum message_kind kind);
/* Reports DISCONNECTED, once. */
void cm_report_end(struct cm_id *c, int status);
/* A DREQ or DREP came. */
void cm_hear_end(struct cm_id *c, enum message_kind kind);
/* iWARP: a queue pair that breaks ends its connection at both ends. */
void cm_break_link(struct link *l);
/* Whether a request must be rejected because its queue pair still belongs to another connection. */
bool cm_is_stale(const struct cm_id *listener, const struct message_connect *request);

#endif
