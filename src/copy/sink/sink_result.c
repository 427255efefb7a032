/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <stdio.h>
#include <string.h>
#include "base/fail.h"

int sink_send(struct sink *s, uint8_t type, const struct writer *w)
{
	if (w->full)
		return fail_as(OUT_PROTOCOL, "send %s: it does not fit a frame",
			       message_name(type));
	return session_send(s->session, type, w->base, w->used);
}

/* ---- sums and batches ---------------------------------------------------------------- */

static void total_add(struct msg_total *to, const struct msg_total *from)
{
	to->files += from->files;
	to->same += from->same;
	to->others += from->others;
	to->failed += from->failed;
	to->bytes += from->bytes;
	sum_add(to->digest, from->digest);
}

static void counts_add(struct msg_counts *to, const struct msg_counts *from)
{
	to->regular += from->regular;
	to->dirs += from->dirs;
	to->symlinks += from->symlinks;
	to->hard_links += from->hard_links;
	to->nodes += from->nodes;
	to->created += from->created;
	to->deleted += from->deleted;
	to->sent += from->sent;
	to->had += from->had;
	to->holes += from->holes;
	to->unkept += from->unkept;
}

static void add_sums(struct sink_sums *to, const struct sink_sums *from)
{
	total_add(&to->ended, &from->ended);
	total_add(&to->stored, &from->stored);
	counts_add(&to->counts, &from->counts);
}

/* Call before the lane's results are sent: the source may send END as soon as it has them. */
static void add_up_lane_sums(struct sink_lane *l)
{
	struct copy *c = l->sink->copy;

	if (!l->sums.any)
		return;
	if (l->sums.bytes > 0)
		tally_bytes(c->tally, l->sums.bytes);
	atomic_fetch_add(&c->tally->files, l->sums.files);
	pthread_mutex_lock(&c->lock);
	add_sums(&l->sink->sums, &l->sums);
	pthread_mutex_unlock(&c->lock);
	l->sums = (struct sink_sums){0};
}

static int send_stored(struct sink_lane *l)
{
	struct sink_mail *m = l->mail;
	struct writer w = writer_of(m->body, sizeof m->body);

	if (m->stored.count == 0)
		return 0;
	msg_stored_encode(&w, &m->stored);
	m->stored.count = 0;
	return sink_send(l->sink, MSG_STORED, &w);
}

static int send_answers(struct sink_lane *l)
{
	struct sink_mail *m = l->mail;
	struct writer w = writer_of(m->body, sizeof m->body);

	if (m->answers.count == 0)
		return 0;
	msg_answers_encode(&w, &m->answers);
	m->answers.count = 0;
	return sink_send(l->sink, MSG_ANSWERS, &w);
}

int sink_flush(struct sink_lane *l)
{
	add_up_lane_sums(l);
	return send_stored(l) || send_answers(l) ? -1 : 0;
}

int sink_queue_stored(struct sink_lane *l, uint32_t id)
{
	struct msg_stored *m = &l->mail->stored;

	m->files[m->count++] = id;
	return m->count < STORED_MAX ? 0 : sink_flush(l);
}

int sink_queue_answer(struct sink_lane *l, uint32_t id, enum answer answer)
{
	struct msg_answers *m = &l->mail->answers;

	m->of[m->count].file = id;
	m->of[m->count].answer = (uint8_t)answer;
	m->count++;
	return m->count < ANSWERS_MAX ? 0 : sink_flush(l);
}

/* ---- failures ------------------------------------------------------------------------ */

int sink_send_result(struct sink *s, uint32_t id, const struct failure *f)
{
	struct msg_file_result m = {.file = id, .code = (uint8_t)f->code};
	uint8_t body[sizeof m + 16];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.text, sizeof m.text, "%s", f->text);
	msg_file_result_encode(&w, &m);
	return sink_send(s, MSG_FILE_RESULT, &w);
}

static void report_event_at(struct sink_lane *l, const struct sink_dir *d, const char *name,
			    struct msg_event *e)
{
	char *path = l->mail->path;
	size_t len = sink_path(d, name, path, sizeof l->mail->path);

	e->path = path;
	e->path_len = (uint16_t)len;
	copy_report_event(l->sink->copy, e);
}

void sink_note_only_failed(struct sink *s, const struct sink_dir *d, bool many)
{
	if (!many && (!d || s->rules->relative))
		s->only_failed = true;
}

int sink_report_failed(struct sink_lane *l, uint32_t id, enum event_what what,
		       const struct sink_dir *d, const char *name, bool many)
{
	struct copy *c = l->sink->copy;
	struct msg_event e = {.what = (uint8_t)what};
	struct failure why;
	bool lost;

	if (copy_interrupted(c))
		return -1;
	why = *failed();
	if (why.code == OUT_PROTOCOL)
		return -1;
	pthread_mutex_lock(&c->lock);
	copy_count_failure(c, &why, false);
	sink_note_only_failed(l->sink, d, many);
	lost = sink_dir_count_failed(l->sink, d);
	pthread_mutex_unlock(&c->lock);
	/* One message at the end counts everything that a failed directory would have had. */
	if ((many || d) && !lost) {
		sink_path(d, name, l->mail->path, sizeof l->mail->path);
		copy_report_failure(c, l->mail->path, &why);
	}
	e.code = (uint8_t)why.code;
	if (l->sink->rules->events)
		report_event_at(l, d, name, &e);
	return sink_send_result(l->sink, id, &why);
}

void sink_report_deleted(struct sink *s, enum event_what what, const char *path,
			 const struct failure *why)
{
	struct msg_event e = {.what = (uint8_t)what, .deleted = true};
	size_t len = strlen(path);

	if (!s->rules->events)
		return;
	e.code = (uint8_t)(why ? why->code : OUT_DONE);
	if (!why)
		strcpy(e.change, "*deleting  ");
	e.path = len < EVENT_PATH_MAX ? path : path + (len - EVENT_PATH_MAX + 1);
	e.path_len = (uint16_t)strlen(e.path);
	copy_report_event(s->copy, &e);
}

void sink_report_event(struct sink_lane *l, const struct sink_dir *d, const char *name,
		       const struct change *c, bool sent, uint64_t size, const char *digest)
{
	struct msg_event e = {.what = (uint8_t)c->what, .size = size};

	if (!l->sink->rules->events)
		return;
	change_text(c, sent, l->sink->o->far, e.change);
	snprintf(e.digest, sizeof e.digest, "%s", digest);
	report_event_at(l, d, name, &e);
}
