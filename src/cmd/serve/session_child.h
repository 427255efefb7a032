/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_SESSION_CHILD_H
#define CMD_SERVE_SESSION_CHILD_H

/*
 * The processes of one client. The first one has the TLS connection: it admits the client, learns
 * which module is meant, and from then on carries the frames; it opens no file. The second one,
 * confined to the module, is the end, which has no key.
 */

#include "cmd/serve/module.h"
#include "cmd/serve/transports.h"
#include "session/channel/key_ring.h"

struct session_child {
	pid_t parent; /* rdcpd: without it this process ends */
	int fd; /* the client's connection, whose whole ClientHello has arrived */
	int door; /* door.h */
	struct key_ring *keys; /* wiped after the handshake */
	const struct module *modules;
	unsigned module_count;
	unsigned port;
	bool one_address; /* rdcpd listens at one only */
	unsigned idle_s; /* struct guest */
	struct transports transports;
	int family; /* AF_INET, AF_INET6, or 0 for both */
	int board; /* struct floor */
	unsigned slot; /* census.h; once rdcpd has admitted the client */
	bool json; /* log lines are JSON */
};

/* In a forked process that has no other descriptors than these and stdio. */
_Noreturn void session_child_run(struct session_child *c);

#endif
