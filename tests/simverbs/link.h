/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_LINK_H
#define SIMVERBS_LINK_H

/*
 * A socket between two ids of the connection manager, and the peer's memory that came through it.
 * Abstract Unix sockets work between users and need no file system; between network namespaces only
 * paths do. Everything here is called with the engine's lock held, but for link_region_added() and
 * link_region_gone().
 */

#include "engine.h"
#include "message.h"
#include "queue_pair.h"
#include "region.h"
#include "remote.h"

struct link {
	struct engine_watch watch; /* its fd is the socket */
	struct remote remote;
	struct queue_pair *q; /* ours; its regions are announced */
	/* Messages that the link does not process itself, and the socket's end (once). In both the
	 * link may be closed. */
	void (*heard)(struct link *l, const struct message *m);
	void (*ended)(struct link *l);
	/* iWARP: our queue pair is broken, and so is the connection. */
	void (*broken)(struct link *l);
	void *owner;
	const struct host_adapter *adapter; /* the end here */
	unsigned port;
	bool unheard; /* the last DREQ was lost */
	bool paused; /* the port is down, and something is to be read */
	struct link *next;
};

/* A bound socket; errno EADDRINUSE if another has the name. */
int link_bind(const char *name);
/* Connects from a port; the link is watched from then on. ECONNREFUSED: nobody listens by that
 * name. EAGAIN: the listener is too busy. */
int link_dial(const char *name, const struct host_adapter *a, unsigned port, struct link **out);
/* Takes the next connection of a port's listening socket; EAGAIN: none. */
int link_accept(int fd, const struct host_adapter *a, unsigned port, struct link **out);
/* Starts to call heard and ended. Returns 0, or -1 with errno. */
int link_start(struct link *l);
void link_close(struct link *l);
/* The port is up again. */
void link_resume(const struct host_adapter *a, unsigned port);
/* The owner for which this is true; NULL: none. */
void *link_find_owner(bool (*fits)(const void *owner, const void *arg), const void *arg);
/* Closes all links of an owner. */
void link_close_owned(const void *owner);

int link_send(struct link *l, const struct message *m);
/* Sends m with the descriptors of q, and announces the regions of its protection domain. */
int link_send_queue(struct link *l, const struct message *m, struct queue_pair *q);
/* The link's queue pair is about to be freed. */
void link_forget_queue(struct link *l);

/* A region of this process was made, or is gone: tells the peers of its protection domain. Without
 * the lock. */
void link_region_added(const struct region *r);
void link_region_gone(const struct region *r);

#endif
