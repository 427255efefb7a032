/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_CLONE_H
#define COPY_IO_CLONE_H

/*
 * Copies that share disk blocks with their source (reflink), between two ends on one host that one
 * conductor has forked.  These have a socket between them.  Over it the source passes the
 * descriptor of a file, right before it asks about the file.  So the sink needs no name of the
 * source's, and no other peer can give it one, since it has no such socket.
 *
 * The answer CLONED means that the temporary has the file as it was when the sink was asked.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	OFFERS_MAX = 1024, /* descriptors that were received and not taken */
	PAIRS_MAX = 16,
	/* smaller files are copied as quickly; no file system has larger blocks */
	CLONE_MIN = 64 << 10,
};

/* Is fd on a file system where cloning is worth a try? */
bool clone_suits(int fd);
/* Passes fd as that of file id.  False: impossible at the moment. */
bool clone_offer(int socket, uint32_t id, int fd);

/* What a sink was offered.  Any thread may take and refuse between clones_begin() and
 * clones_end(). */
struct clones {
	int socket; /* -1: none */
	pthread_mutex_t lock;
	unsigned count; /* of offers */
	struct {
		uint32_t id;
		int fd;
	} offers[OFFERS_MAX];
	unsigned refused_count;
	struct {
		dev_t from, to;
	} refused[PAIRS_MAX]; /* devices between which files cannot share blocks */
};
void clones_begin(struct clones *c, int socket);
void clones_end(struct clones *c);
/* The descriptor of file id, which the caller owns then; -1: none was offered. */
int clones_take(struct clones *c, uint32_t id);
/* Is it known that files cannot share blocks between these devices? */
bool clones_refused(struct clones *c, dev_t from, dev_t to);
void clones_refuse(struct clones *c, dev_t from, dev_t to);

/* clone_file() makes the empty file `to' a clone of `from'.  clone_try() clones its beginning, to
 * see whether that works.  -1 with errno. */
int clone_file(int from, int to);
int clone_try(int from, int to);

#endif
