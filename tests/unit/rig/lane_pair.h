/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LANE_PAIR_H
#define TESTS_LANE_PAIR_H

/*
 * Two lanes joined by the wires of a backend, in one process, and what a session would do for
 * them: when one needs a wire, the other is told, says what it has stored, and both connect.
 *
 * Between each lane and its wire sits a meddler, which does to it what a plan says: cut it at
 * a certain step, damage or forge what comes.  So every backend can be tested with every fault
 * without knowing of it.
 *
 * Nothing in here asserts: threads leave their results in a job.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/fail.h"
#include "lane/head.h"
#include "lane/lane.h"
#include "lane/wire.h"

enum { PAIR_LANES = 5 }; /* indexes of lanes that a backend must be able to join */

struct backend {
	const char *name;
	enum rdma_op op; /* of the lanes; over verbs only */
	/* Prepare what its pairs need (a listener); 0, or -1 with a failure. */
	int (*setup)(void **state);
	void (*teardown)(void *state);
	/*
	 * Get lane l a wire of this epoch. Called in the lane's own thread, for the source and the
	 * sink of a pair at the same time; the backend decides which of them connects. Lanes are
	 * distinguished by lane_index(), below PAIR_LANES. Must return on lane_abort().
	 */
	int (*join)(void *state, struct lane *l, uint32_t epoch, const struct lane_key *key,
		    uint64_t deadline_ms, struct wire **out);
	unsigned cipher; /* enum cipher_kind of the lanes, and both demand it; 0: clear */
	uint64_t rekey_bytes; /* 0: the default */
	unsigned compress; /* the wish that both ends agreed on (lane/compress.h) */
};

/* The calls of a wire that a meddler counts, over all wires of a side. */
enum step { STEP_SEND, STEP_CREDIT, STEP_POST, STEP_RECV, STEP_GRANT, STEP_COUNT };

enum deed {
	DEED_NONE,
	DEED_CUT_BEFORE, /* the call fails without having been made */
	DEED_CUT_AFTER, /* the call is made, then the wire fails */
	/* in the block that recv returns */
	DEED_DAMAGE_DATA,
	DEED_DAMAGE_HEAD,
	DEED_FORGE_LANE,
	DEED_FORGE_EPOCH,
	DEED_FORGE_NUMBER,
	DEED_FORGE_LEN,
	DEED_FORGE_KIND,
	/* in the value that credit returns */
	DEED_CREDIT_MORE, /* than was sent */
	DEED_CREDIT_BACK, /* less than before */
};

struct plan {
	enum deed deed;
	enum step step;
	unsigned at; /* the count of the step at which it begins, from 0 */
	unsigned times; /* how many times in a row; 0: once */
	int timeout_ms; /* of the lanes; 0: the default */
	bool alone; /* the other end is not informed and must detect the break itself */
	bool abort_attach; /* the lane is aborted right before it gets its wire */
	bool exposed; /* the sink's wires count as exposed: it must copy what it parses */
	/* The depth that each end states, and the sink from its second wire on; 0: the lane's. */
	uint32_t source_states, sink_states, sink_states_later;
	bool lie_stored; /* the sink claims to have stored one block more than was sent */
};

struct pair_side {
	struct pair *pair;
	enum lane_side side;
	struct lane *lane;
	unsigned steps[STEP_COUNT];
	uint64_t wants; /* epoch + 1 of the wire it waits for */
	uint64_t has; /* epoch + 1 of the last wire it got */
};

struct pair {
	const struct backend *backend;
	void *state;
	struct lane_key key;
	struct plan plan;
	struct pair_side source, sink;
	pthread_mutex_t lock; /* protects the other fields, and signals changes of wants and has */
	pthread_cond_t changed;
	uint64_t stored;
	struct failure first; /* counted over both lanes' calls */
	const char *first_by;
	atomic_bool over; /* from now on failures do not count */
	atomic_bool mute; /* the backend's wires exchange no hellos */
	atomic_bool exceeded; /* more blocks were in flight than both ends state */
};

/* Open both lanes, without a wire; 0 or -1. */
int pair_open(struct pair *p, const struct backend *b, void *state, unsigned index, uint32_t depth,
	      uint32_t block_size, const struct plan *plan);
void pair_close(struct pair *p);
/* Abort both lanes; later failures don't count. */
void pair_end(struct pair *p);

/* The work of a thread at one end, and its result. */
struct job {
	struct pair *pair;
	unsigned blocks; /* source: how many blocks to send; then how many it sent */
	bool tends; /* source: service the lane until everything is stored, then flush it */
	atomic_bool *more; /* source: continue while it returns true; NULL: only the given number */
	uint32_t (*size)(unsigned i, uint32_t block_size);
	unsigned hold_at, hold_ms; /* sink: hold block hold_at for this long */
	atomic_bool *gate; /* sink: put nothing back before it returns true; NULL: no gate */

	_Atomic unsigned held; /* sink: blocks received; one more than done while it holds one */
	_Atomic unsigned done; /* blocks sent, put */
	uint64_t stored_at_flush; /* source: the sink's stored count when flush returned */
	int rc; /* -1: a call failed, and why: */
	struct failure failure;
	char wrong[160]; /* sink: the first wrong property; "": all were right */
	pthread_t thread;
};

/* Sends all blocks and flushes. */
void *source_job(void *job);
/* Receives, checks and puts back, until the lane is aborted. */
void *sink_job(void *job);
void job_start(struct job *j, void *(*run)(void *));
/* Wait for it, at most ms; false: it still runs. */
bool job_join(struct job *j, unsigned ms);

/* Wait until *count is at least `least', at most ms. */
bool wait_count(_Atomic unsigned *count, unsigned least, unsigned ms);
void sleep_ms(unsigned ms);

#endif
