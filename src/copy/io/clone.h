/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_CLONE_H
#define COPY_IO_CLONE_H

/*
 * Copies that share what is on the disk (reflink), between two ends that one conductor has forked
 * on one host: these have a socket between them, over which the source passes the descriptor of
 * a file, right before it asks about it.  The sink needs no name of the source's for it, and
 * can't be given one by any other peer, since there is no such socket then.
 *
 * The answer CLONED says that the temporary has the file as it was when the sink was asked.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	OFFERS_MAX = 1024, /* descriptors on their way, that the sink has not looked at */
	PAIRS_MAX = 16,
	CLONE_MIN = 64 << 10, /* smaller files are copied as soon; no block is larger, anywhere */
};

/* Is fd on a file system where it may be worth a try? */
bool clone_suits(int fd);
/* Pass fd as that of file id; false: it can't be just now. */
bool clone_offer(int socket, uint32_t id, int fd);

/* What a sink was offered; all threads. */
struct clones {
	int socket; /* -1: none */
	pthread_mutex_t lock;
	unsigned count;
	struct {
		uint32_t id;
		int fd;
	} of[OFFERS_MAX];
	unsigned refused; /* of these: */
	struct {
		dev_t from, to;
	} pairs[PAIRS_MAX];
};
void clones_begin(struct clones *c, int socket);
void clones_end(struct clones *c);
/* The descriptor of file id, which is the caller's; -1: it was not offered. */
int clones_take(struct clones *c, uint32_t id);
/* Was it found that files can't be shared between these? */
bool clones_refused(struct clones *c, dev_t from, dev_t to);
void clones_refuse(struct clones *c, dev_t from, dev_t to);

/* Make to, empty, the same as from, or see whether that would work, by a little of it: 0; -1 with
 * errno. */
int clone_file(int from, int to);
int clone_try(int from, int to);

#endif
