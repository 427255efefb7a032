/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_COPY_RIG_H
#define TESTS_COPY_RIG_H

/*
 * A source and a sink in one process, each in a thread of its own, with a session over a socket
 * pair and lanes over TCP on loopback.  Either can be played by the test instead.
 * Nothing in here asserts in threads: they leave their results.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/fail.h"
#include "copy/sink/sink.h"
#include "copy/source/source.h"
#include "folder.h"

struct rig;

enum { RIG_EVENTS = 64, RIG_PATH = 128 };

struct rig_event {
	uint8_t what, code;
	bool deleted;
	uint64_t size;
	char change[EVENT_CHANGE], digest[EVENT_DIGEST], path[RIG_PATH];
};

struct rig_end {
	struct rig *rig;
	enum role role;
	int fd;
	struct copy *copy;
	struct session *session;
	struct tally tally;
	struct copy_result result;
	unsigned told; /* number of calls of on_file */
	struct failure told_last;
	int rc;
	struct failure failure; /* set if rc is not 0 */
	/* Play this end instead of source_run() or sink_run(). */
	int (*play)(struct rig_end *e, void *ctx);
	int (*hear)(struct rig_end *e, const struct frame *f); /* optional for a played end */
	void *ctx;
	struct rig_event events[RIG_EVENTS]; /* with rules->events: the first ones */
	unsigned event_count;
	pthread_t thread;
};

struct rig {
	uint16_t lanes, depth; /* 0: 2 lanes of 4 blocks of 64 KiB */
	uint32_t block_size;
	int timeout_ms; /* 0: the default */
	struct source_opts from;
	struct sink_opts to;
	struct rules rules; /* rig_rules() */
	struct rig_end source, sink;
};

/* Set up from names to a target, or fill in more; then start, and join. */
void rig_init(struct rig *r);
void rig_names(struct rig *r, char *const *names, unsigned count, const char *target);
/* Default rules of both ends, to be changed before the start. */
struct rules *rig_rules(struct rig *r);
int rig_start(struct rig *r);
void rig_join(struct rig *r);
/* Start and join both; 0 when both ends succeeded. */
int rig_run(struct rig *r);
/* The event about what is at this path; NULL: none.  After the run. */
const struct rig_event *rig_event(const struct rig_end *e, const char *path);
/* Cut the control channel. */
void rig_cut(struct rig *r);

/* ---- files --------------------------------------------------------------------------- */

/* A file of that many pseudo-random bytes. */
int make_file(const char *name, uint64_t size, uint32_t seed);
int make_text(const char *name, const char *text);
/* Do both have the same content? */
bool same_content(const char *a, const char *b);
bool has_text(const char *name, const char *text);
/* The number of entries of the working directory with this prefix. */
unsigned count_files(const char *prefix);

#endif
