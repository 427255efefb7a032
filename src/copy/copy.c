/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/fail.h"
#include "copy/run.h"

enum { WAKE_MS = 20 };

int copy_new(const struct copy_role *role, struct copy **out)
{
	struct copy *c = calloc(1, sizeof *c);
	pthread_condattr_t attr;

	if (!c)
		return fail_as(OUT_MEMORY, "start a copy: %m");
	c->role = role;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->report_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	*out = c;
	return 0;
}

void copy_free(struct copy *c)
{
	if (!c)
		return;
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->report_lock);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static int on_times_frame(struct copy *c, const struct frame *f)
{
	struct msg_times times;
	bool due;

	if (msg_times_decode(f, &times))
		return -1;
	pthread_mutex_lock(&c->lock);
	due = c->result && !c->times_received && !c->end_received && !c->done_received;
	c->times_received = true;
	if (due)
		c->result->peer_times = times;
	pthread_mutex_unlock(&c->lock);
	return due ? 0 : fail_as(OUT_PROTOCOL, "unexpected TIMES from the peer");
}

int copy_fail_unexpected(const struct frame *f)
{
	return fail_as(OUT_PROTOCOL, "unexpected %s from the peer (message %u)",
		       message_name(f->type), f->type);
}

int copy_on_frame(void *copy, const struct frame *f)
{
	struct copy *c = copy;

	return f->type == MSG_TIMES ? on_times_frame(c, f) : c->role->on_frame(c, f);
}

void copy_on_fail(void *copy)
{
	struct copy *c = copy;

	atomic_store(&c->failed, true);
	pthread_mutex_lock(&c->lock);
	pthread_cond_broadcast(&c->changed);
	if (c->running && c->role->wake)
		c->role->wake(c->running);
	pthread_mutex_unlock(&c->lock);
}

void copy_begin(struct copy *c, struct tally *t, struct copy_result *r)
{
	r->total = (struct msg_total){0};
	r->counts = (struct msg_counts){0};
	r->at_peer = false;
	r->times = r->peer_times = (struct msg_times){0};
	c->tally = t;
	c->result = r;
}

void copy_attach(struct copy *c, struct session *session, void *running)
{
	pthread_mutex_lock(&c->lock);
	c->session = session;
	c->running = running;
	pthread_mutex_unlock(&c->lock);
}

bool copy_stopped(void *copy)
{
	struct copy *c = copy;

	return atomic_load(&c->failed) || cancelled();
}

bool copy_interrupted(struct copy *c)
{
	if (!copy_stopped(c))
		return false;
	if (cancelled())
		fail_signal(cancelled());
	return true;
}

void copy_count_failure(struct copy *c, const struct failure *f, bool at_peer)
{
	c->vanished += f->code == OUT_VANISHED;
	c->failed_here += !at_peer && f->code != OUT_VANISHED;
	if (c->failures++ == 0) {
		c->first = *f;
		c->first_at_peer = at_peer;
	}
}

void copy_count_unremoved(struct copy *c, const struct failure *f)
{
	unsigned failed_here = c->failed_here;

	copy_count_failure(c, f, false);
	c->failed_here = failed_here;
}

void copy_count_undeleted(struct copy *c, const struct failure *f, bool at_peer)
{
	c->undeleted++;
	if (f->code == OUT_MAX_DELETE)
		c->max_delete_failure = *f;
	copy_count_failure(c, f, at_peer);
}

void copy_count_unkept(struct copy *c, const struct failure *f, bool at_peer)
{
	c->unkept = *f;
	copy_count_failure(c, f, at_peer);
}

void copy_report_failure(struct copy *c, const char *name, const struct failure *f)
{
	if (!c->result->on_file)
		return;
	pthread_mutex_lock(&c->report_lock);
	c->result->on_file(c->result->ctx, name, f);
	pthread_mutex_unlock(&c->report_lock);
}

void copy_report_event(struct copy *c, const struct msg_event *e)
{
	if (!c->result->on_event)
		return;
	pthread_mutex_lock(&c->report_lock);
	c->result->on_event(c->result->ctx, e);
	pthread_mutex_unlock(&c->report_lock);
}

void copy_report_taken(void *copy, const char *name)
{
	struct copy *c = copy;

	if (!c->result->on_taken)
		return;
	pthread_mutex_lock(&c->report_lock);
	c->result->on_taken(c->result->ctx, name);
	pthread_mutex_unlock(&c->report_lock);
}

int copy_verdict(struct copy *c, bool only)
{
	const struct msg_total *t = &c->result->total;
	uint64_t all = t->files + t->same + t->others + t->failed;
	unsigned kept = c->undeleted - (c->max_delete_failure.code != OUT_DONE);
	unsigned others = c->undeleted + (c->unkept.code != OUT_DONE);

	if (c->failures == 0 && t->failed == 0)
		return 0;
	if (only && c->failures > 0) {
		c->result->at_peer = c->first_at_peer;
		return fail_again(&c->first);
	}
	/* Only the source knows that a failed file had vanished. */
	if (c->role->role == ROLE_SOURCE && c->vanished == c->failures)
		return fail_as(OUT_VANISHED, "%llu of %llu files vanished before they were read",
			       (unsigned long long)t->failed, (unsigned long long)all);
	if (t->failed > 0)
		return fail_as(OUT_SOME_FILES, "%llu of %llu files could not be copied",
			       (unsigned long long)t->failed, (unsigned long long)all);
	if (c->failures > others)
		return fail_as(OUT_SOME_FILES, "%u of %llu sources could not be removed",
			       c->failures - others, (unsigned long long)all);
	if (kept > 0)
		return fail_as(OUT_SOME_FILES, "%u file%s could not be deleted", kept,
			       kept == 1 ? "" : "s");
	c->result->at_peer = c->role->role == ROLE_SOURCE;
	return fail_again(c->unkept.code != OUT_DONE ? &c->unkept : &c->max_delete_failure);
}

int copy_send_times(struct copy *c, const struct msg_times *m)
{
	uint8_t body[sizeof *m + 16];
	struct writer w = writer_of(body, sizeof body);

	msg_times_encode(&w, m);
	return session_send(c->session, MSG_TIMES, body, w.used);
}

int copy_fail_session(struct copy *c)
{
	char host[HOST_MAX];
	struct failure f;

	if (session_failed(c->session, &f, host))
		return fail_again(&f);
	return session_fail(c->session);
}

void copy_join(struct worker *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		while (!worker_join_until(&w[i], clock_ms() + WAKE_MS))
			workers_wake();
	}
}

void tally_bytes(struct tally *t, uint64_t len)
{
	uint64_t now = clock_ns(), none = 0;
	uint64_t before = atomic_fetch_add_explicit(&t->bytes, len, memory_order_relaxed);

	if (before >= t->warm && atomic_compare_exchange_strong(&t->first_ns, &none, now))
		atomic_store(&t->first_bytes, before + len);
	atomic_store_explicit(&t->last_ns, now, memory_order_relaxed);
}
