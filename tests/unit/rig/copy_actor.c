/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_actor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "copy/io/digest.h"

enum { WAIT_MS = 20000 };

static const uint8_t zeros[CELL];

/* ---- receiving ------------------------------------------------------------------------ */

static struct heard *next_heard(struct actor *a, uint8_t type, uint32_t file)
{
	static struct heard spare;
	struct heard *h = a->count < HEARD_MAX ? &a->heard[a->count] : &spare;

	a->count++;
	*h = (struct heard){.type = type, .file = file};
	return h;
}

static void hear_stored(struct actor *a, const struct frame *f)
{
	struct msg_stored m;

	if (msg_stored_decode(f, &m))
		return;
	for (unsigned i = 0; i < m.count; i++)
		next_heard(a, MSG_STORED, m.files[i]);
}

static void hear_answers(struct actor *a, const struct frame *f)
{
	struct msg_answers m;

	if (msg_answers_decode(f, &m))
		return;
	for (unsigned i = 0; i < m.count; i++)
		next_heard(a, MSG_ANSWERS, m.of[i].file)->answer = m.of[i].answer;
}

static void hear_cells(struct actor *a, const struct frame *f)
{
	struct msg_cells m;
	struct heard *h;

	if (msg_cells_decode(f, &m))
		return;
	h = next_heard(a, MSG_CELLS, m.file);
	h->pos = m.pos;
	h->cells = m.count;
	memcpy(h->first, m.digest[0], sizeof h->first);
}

static void hear_result(struct actor *a, const struct frame *f)
{
	struct msg_file_result m;
	struct heard *h;

	if (msg_file_result_decode(f, &m))
		return;
	h = next_heard(a, MSG_FILE_RESULT, m.file);
	h->code = m.code;
	snprintf(h->text, sizeof h->text, "%s", m.text);
}

static int hear(struct rig_end *e, const struct frame *f)
{
	struct actor *a = e->ctx;

	pthread_mutex_lock(&a->lock);
	switch (f->type) {
	case MSG_STORED:
		hear_stored(a, f);
		break;
	case MSG_ANSWERS:
		hear_answers(a, f);
		break;
	case MSG_CELLS:
		hear_cells(a, f);
		break;
	case MSG_FILE_RESULT:
		hear_result(a, f);
		break;
	case MSG_DONE:
		msg_total_decode(f, &next_heard(a, MSG_DONE, 0)->total);
		session_ended(e->session);
		break;
	}
	pthread_cond_broadcast(&a->came);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

const struct heard *actor_heard(const struct actor *a, uint8_t type, uint32_t file)
{
	for (unsigned i = 0; i < a->count && i < HEARD_MAX; i++) {
		if (a->heard[i].file == file && (!type || a->heard[i].type == type))
			return &a->heard[i];
	}
	return NULL;
}

/* Wait until this many messages arrived and one has this type (0: any). -1: they did not arrive. */
static int wait_for(struct actor *a, unsigned count, uint8_t type)
{
	struct timespec until = clock_after(WAIT_MS);
	char host[HOST_MAX];
	struct failure f;
	int ret = 0;

	pthread_mutex_lock(&a->lock);
	while (ret == 0 && (a->count < count || (type && !actor_heard(a, type, 0)))) {
		struct timespec soon = clock_after(20);

		pthread_mutex_unlock(&a->lock);
		if (session_failed(a->end->session, &f, host))
			ret = -1;
		pthread_mutex_lock(&a->lock);
		if (ret == 0)
			pthread_cond_timedwait(&a->came, &a->lock, &soon);
		if (soon.tv_sec > until.tv_sec)
			ret = -1;
	}
	pthread_mutex_unlock(&a->lock);
	return ret;
}

/* ---- sending --------------------------------------------------------------------------- */

static int begin_block(struct actor *a)
{
	if (a->block)
		return 0;
	if (lane_get(a->lane, &a->block))
		return -1;
	a->w = writer_of(a->block->data, lane_block_size(a->lane));
	return 0;
}

static const uint8_t *bytes_of(const struct say *s)
{
	return s->text ? (const uint8_t *)s->text : zeros;
}

static int send_block(struct actor *a, enum block_kind kind, const struct say *s)
{
	struct block *b = a->block;

	b->kind = (uint8_t)kind;
	b->file = s ? s->id : 0;
	b->pos = s ? s->pos : 0;
	b->len = s ? (uint32_t)s->len : (uint32_t)a->w.used;
	if (s)
		memcpy(b->data, bytes_of(s), b->len);
	a->block = NULL;
	return lane_send(a->lane, b);
}

/* Everything buffered is sent now. */
static int send_all(struct actor *a)
{
	return a->block ? send_block(a, BLOCK_RECORDS, NULL) : 0;
}

static struct record_attr attr_of_say(const struct say *s)
{
	return (struct record_attr){
		.mode = s->mode ? s->mode : 0644,
		.uid = geteuid(),
		.gid = getegid(),
		.mtime_s = s->mtime,
		.atime_s = s->mtime,
	};
}

static void say_file(struct actor *a, const struct say *s)
{
	struct record_file r = {
		.id = s->id,
		.want = s->want,
		.dir = s->dir,
		.flags = s->flags,
		.type = s->type ? s->type : TYPE_REGULAR,
		.size = s->size,
		.a = attr_of_say(s),
		.link_to = s->link_to,
	};

	snprintf(r.name, sizeof r.name, "%s", s->name ? s->name : "f");
	record_file_encode(&a->w, &r);
}

static void say_dir(struct actor *a, const struct say *s)
{
	struct record_dir r = {
		.id = s->id,
		.want = s->want,
		.parent = s->dir,
		.flags = s->flags,
		.a = attr_of_say(s),
	};

	snprintf(r.name, sizeof r.name, "%s", s->name ? s->name : "");
	record_dir_encode(&a->w, &r);
	a->total.others++;
}

static void say_owner(struct actor *a, const struct say *s)
{
	struct record_owner r = {.id = s->id};

	snprintf(r.name, sizeof r.name, "%s", s->name);
	record_owner_encode(&a->w, &r);
}

static void say_xattr(struct actor *a, const struct say *s)
{
	uint32_t len = (uint32_t)strlen(s->text);
	struct record_xattr r = {
		.id = s->id,
		.size = s->xattr_size ? s->xattr_size : len,
		.pos = s->xattr_pos,
		.len = len,
		.bytes = (const uint8_t *)s->text,
	};

	snprintf(r.name, sizeof r.name, "%s", s->name);
	record_xattr_encode(&a->w, &r);
}

static void say_keep(struct actor *a, const struct say *s)
{
	struct record_keep r = {.dir = s->dir, .last = s->len == 0};
	struct writer names = writer_of(a->keep, sizeof a->keep);

	if (s->text)
		record_keep_add(&names, s->text);
	r.names = reader_of(a->keep, names.used);
	record_keep_encode(&a->w, &r);
}

/* The digest of the bytes from 0 on, and of cells that the sink announced. */
static void digest_of(struct actor *a, const struct say *s, uint64_t sum[2])
{
	const struct heard *told;
	struct digest *d = digest_new();

	digest_add(d, 0, bytes_of(s), s->data < CELL ? s->data : CELL);
	digest_sum(d, sum);
	digest_free(d);
	pthread_mutex_lock(&a->lock);
	told = actor_heard(a, MSG_CELLS, s->id);
	if (s->have && told)
		sum_add(sum, told->first);
	pthread_mutex_unlock(&a->lock);
}

static void say_end_of_file(struct actor *a, const struct say *s)
{
	struct record_file_end r = {
		.id = s->id,
		.size = s->size,
		.data = s->data,
		.holes = s->holes,
		.lanes = s->lanes ? s->lanes : 1,
		.code = s->code,
		.content_len = s->content_len,
	};

	memcpy(r.content, s->content, sizeof r.content);
	digest_of(a, s, r.digest);
	r.digest[0] += s->wrong_digest;
	record_file_end_encode(&a->w, &r);
	if (s->code) {
		a->total.failed++;
		return;
	}
	if (s->type > TYPE_REGULAR) {
		a->total.others++;
		return;
	}
	a->total.files++;
	a->total.bytes += s->size;
	sum_add(a->total.digest, r.digest);
}

static int say_end(struct actor *a, const struct say *s)
{
	uint8_t body[256];
	struct writer w = writer_of(body, sizeof body);

	if (send_all(a) || lane_flush(a->lane))
		return -1;
	a->total.bytes += s->wrong_total;
	a->total.same += s->same;
	a->total.others += s->others;
	a->total.failed += s->failed;
	a->total.incomplete = s->incomplete;
	msg_total_encode(&w, &a->total);
	if (session_send(a->end->session, MSG_END, body, w.used))
		return -1;
	return wait_for(a, 0, MSG_DONE);
}

static int say_record(struct actor *a, const struct say *s)
{
	switch (s->verb) {
	case SAY_FILE:
		say_file(a, s);
		return 0;
	case SAY_DATA:
		record_data_encode(&a->w, &(struct record_data){.id = s->id,
								.pos = s->pos,
								.len = (uint32_t)s->len,
								.bytes = bytes_of(s)});
		return 0;
	case SAY_HOLE:
		record_hole_encode(
			&a->w, &(struct record_hole){.id = s->id, .pos = s->pos, .len = s->len});
		return 0;
	case SAY_END_OF_FILE:
		say_end_of_file(a, s);
		return 0;
	case SAY_DIR:
		say_dir(a, s);
		return 0;
	case SAY_OWNER:
		say_owner(a, s);
		return 0;
	case SAY_XATTR:
		say_xattr(a, s);
		return 0;
	case SAY_KEEP:
		say_keep(a, s);
		return 0;
	case SAY_HAVE:
		record_have_encode(
			&a->w, &(struct record_have){.id = s->id, .pos = s->pos, .len = s->len});
		return 0;
	case SAY_SAME:
		record_same_encode(&a->w, &(struct record_same){.id = s->id});
		a->total.same++;
		return 0;
	default:
		return send_block(a, BLOCK_EXTENT, s);
	}
}

static int say(struct actor *a, const struct say *s)
{
	if (s->other_lane) {
		if (send_all(a))
			return -1;
		a->lane = session_lane(a->end->session, 1);
	}
	if (s->verb == SAY_END)
		return say_end(a, s);
	if (s->verb == SAY_WAIT)
		return send_all(a) || wait_for(a, (unsigned)s->len, 0) ? -1 : 0;
	if (s->verb == SAY_EXTENT && send_all(a))
		return -1;
	return begin_block(a) ? -1 : say_record(a, s);
}

int actor_wait_over(struct rig_end *e)
{
	char host[HOST_MAX];
	struct failure f;

	for (int i = 0; i < 10000 && !session_failed(e->session, &f, host); i++)
		usleep(1000);
	return fail_again(&f);
}

static int play(struct rig_end *e, void *ctx)
{
	struct actor *a = ctx;
	bool ended = false;
	int ret = 0;

	a->end = e;
	a->lane = session_lane(e->session, 0);
	for (const struct say *s = a->script; ret == 0 && s->verb; s++) {
		ret = say(a, s);
		ended = s->verb == SAY_END;
	}
	if (ret == 0 && !ended)
		ret = send_all(a);
	return ret == 0 && ended ? 0 : actor_wait_over(e);
}

void actor_init(struct actor *a, struct rig *r, const struct say *script)
{
	pthread_condattr_t attr;

	memset(a, 0, sizeof *a);
	a->script = script;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->came, &attr);
	pthread_condattr_destroy(&attr);
	r->source.play = play;
	r->source.hear = hear;
	r->source.ctx = a;
}
