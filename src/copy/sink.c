/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"

static int take_records(struct sink_lane *l, const struct block *b)
{
	struct reader reader = reader_of(b->data, b->len);
	struct record r;
	int ret;

	while ((ret = record_next(&reader, &r)) > 0) {
		switch (r.type) {
		case RECORD_FILE:
			ret = sink_take_file(l, &r.file);
			break;
		case RECORD_DATA:
			ret = sink_take_piece(l, &(struct piece){
							 .id = r.data.id,
							 .pos = r.data.pos,
							 .len = r.data.len,
							 .bytes = r.data.bytes,
						 });
			break;
		case RECORD_HOLE:
			ret = sink_take_piece(l, &(struct piece){
							 .id = r.hole.id,
							 .pos = r.hole.pos,
							 .len = r.hole.len,
						 });
			break;
		case RECORD_FILE_END:
			ret = sink_take_end(l, &r.end);
			break;
		}
		if (ret)
			return -1;
	}
	return ret;
}

static int take_block(struct sink_lane *l, const struct block *b)
{
	struct piece p = {
		.id = b->file,
		.pos = b->pos,
		.len = b->len,
		.bytes = b->data,
		.block = b,
	};

	return b->kind == BLOCK_EXTENT ? sink_take_piece(l, &p) : take_records(l, b);
}

static void *sink_lane_run(void *arg)
{
	struct sink_lane *l = arg;
	struct copy *c = l->sink->copy;
	struct block *b;
	int ret;

	do {
		ret = lane_recv(l->lane, &b);
		if (ret == 0)
			ret = take_block(l, b);
		if (ret == 0)
			ret = lane_put(l->lane, b);
	} while (ret == 0);
	if (!atomic_load(&c->over) && !atomic_load(&c->failed))
		session_fail(l->sink->session);
	return NULL;
}

void sink_wake_all(struct sink *s)
{
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++) {
		if (s->lanes[i].waits)
			pthread_cond_signal(&s->lanes[i].turn);
	}
}

/* ---- the run ------------------------------------------------------------------------- */

static int open_place(struct sink *s)
{
	const struct sink_opts *o = s->o;
	struct place_opts po = {
		.target = o->target,
		.many = o->many,
		.no_target_dir = o->no_target_dir || o->quiet_names,
		.mkpath = o->mkpath,
		.expand = o->expand,
		.fsync = o->fsync,
		.inplace = o->inplace,
		.preserve = o->preserve,
		.sparse = o->sparse,
		.stop = copy_stopped,
		.ctx = s->copy,
	};

	return o->stream.fd >= 0 ? 0 : place_open(&po, &s->place);
}

static int lanes_start(struct sink *s)
{
	unsigned lanes = session_lanes(s->session);

	for (unsigned i = 0; i < lanes; i++) {
		struct sink_lane *l = &s->lanes[i];
		char name[24];

		l->sink = s;
		l->lane = session_lane(s->session, i);
		l->index = i;
		l->digest = digest_new();
		if (!l->digest)
			return -1;
		snprintf(name, sizeof name, "sink %u", i);
		if (worker_start(&s->workers[i], name, sink_lane_run, l))
			return -1;
	}
	return 0;
}

static int await_end(struct copy *c)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	while (!c->end_came && !atomic_load(&c->failed))
		pthread_cond_wait(&c->changed, &c->lock);
	ret = atomic_load(&c->failed) ? -1 : 0;
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* Of each name that was asked for there must be a file, or the word that it failed. */
static bool answers_all(const struct sink *s, const struct msg_total *m)
{
	uint64_t asked = s->o->count ? s->o->count : 1;

	return m->files >= asked || m->failed >= asked - m->files;
}

/* The source has sent all, and we have stored all that it sent. */
static int check_total(struct sink *s)
{
	const struct msg_total *theirs = &s->copy->total, *ours = &s->ended;
	bool same = theirs->files == ours->files && theirs->failed >= ours->failed &&
		    theirs->bytes == ours->bytes && theirs->digest[0] == ours->digest[0] &&
		    theirs->digest[1] == ours->digest[1];
	int ret = 0;

	if (s->count > 0)
		ret = fail_as(OUT_PROTOCOL, "the peer said END with %u files unfinished", s->count);
	else if (!same)
		ret = fail_as(OUT_PROTOCOL, "the peer's END does not agree with what it sent");
	else if (!answers_all(s, theirs))
		ret = fail_as(OUT_PROTOCOL, "the peer said END before all that was asked for");
	/* Those that the source could not even open. */
	s->stored.failed += theirs->failed - ours->failed;
	return ret;
}

static int say_done(struct sink *s)
{
	uint8_t body[sizeof s->stored + 16];
	struct writer w = writer_of(body, sizeof body);
	bool only;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	ret = check_total(s);
	s->copy->result->total = s->stored;
	only = s->copy->total.files + s->copy->total.failed == 1;
	msg_total_encode(&w, &s->stored);
	pthread_mutex_unlock(&s->copy->lock);
	if (ret)
		return -1;
	/* Before it is said: the source goes as soon as it has heard this. */
	session_ended(s->session);
	atomic_store(&s->copy->over, true);
	if (session_send(s->session, MSG_DONE, body, w.used))
		return -1;
	session_flush(s->session);
	return only ? 1 : 0;
}

static void lanes_end(struct sink *s)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++)
		lane_abort(session_lane(s->session, i));
	copy_join(s->workers, LANE_COUNT_MAX);
}

static struct sink *sink_new(struct copy *c, struct session *session, const struct sink_opts *o)
{
	struct sink *s = calloc(1, sizeof *s);

	if (!s) {
		fail_as(OUT_MEMORY, "start a copy: %m");
		return NULL;
	}
	s->copy = c;
	s->session = session;
	s->o = o;
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++)
		pthread_cond_init(&s->lanes[i].turn, NULL);
	return s;
}

static void sink_free(struct sink *s)
{
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++) {
		pthread_cond_destroy(&s->lanes[i].turn);
		digest_free(s->lanes[i].digest);
	}
	place_close(s->place);
	free(s);
}

static void attach(struct copy *c, struct sink *s)
{
	pthread_mutex_lock(&c->lock);
	c->sink = s;
	pthread_mutex_unlock(&c->lock);
}

/* A signal or a lost peer: a later run goes on with what there is. */
static bool worth_keeping(const struct failure *f)
{
	return f->code == OUT_SIGNAL || f->code == OUT_PEER_LOST || f->code == OUT_TIMEOUT;
}

int sink_run(struct copy *c, struct session *session, const struct sink_opts *o, struct tally *t,
	     struct copy_result *r)
{
	struct sink *s = sink_new(c, session, o);
	struct failure f;
	int ret;

	r->total = (struct msg_total){0};
	r->at_peer = false;
	c->session = session;
	c->tally = t;
	c->result = r;
	if (!s)
		return session_fail(session);
	attach(c, s);
	ret = open_place(s) || lanes_start(s) || await_end(c) ? -1 : say_done(s);
	if (ret < 0) {
		session_fail(session);
		copy_join(s->workers, LANE_COUNT_MAX);
		attach(c, NULL);
		copy_session_failure(c);
		f = *failed();
		sink_drop_all(s, worth_keeping(&f));
		fail_again(&f);
	} else {
		lanes_end(s);
		attach(c, NULL);
		ret = copy_verdict(c, ret == 1);
	}
	f = *failed();
	sink_free(s);
	return ret ? fail_again(&f) : 0;
}
