/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/fail.h"
#include "base/io.h"

/* ---- files kept aside ---------------------------------------------------------------- */

/* Takes removal, also on failure. */
static struct aside *aside_new(const struct source_item *it, struct removal *removal)
{
	size_t name = strlen(it->name) + 1, path = it->path ? strlen(it->path) + 1 : 0;
	struct aside *a = calloc(1, sizeof *a + name + path);

	if (!a) {
		fail_as(OUT_MEMORY, "queue a file: %m");
		removal_free(removal);
		return NULL;
	}
	a->removal = removal;
	a->id = it->id;
	a->want = it->want;
	a->flags = it->flags;
	a->dir = walk_dir_get(it->dir);
	a->size = it->size;
	a->group = it->group;
	memcpy(a->name, it->name, name);
	if (it->path)
		a->path = memcpy(a->name + name, it->path, path);
	return a;
}

void aside_free(struct aside *a)
{
	if (!a)
		return;
	walk_dir_put(a->dir);
	known_cells_free(a->known);
	removal_free(a->removal);
	free(a);
}

/* Hashes what the sink compares: two records of a file that has not changed have the same hash. */
static uint64_t hash_question(const struct record_file *r)
{
	uint8_t bytes[RECORD_FILE_MAX];
	struct writer w = writer_of(bytes, sizeof bytes);
	struct record_file one = *r;

	one.id = 0;
	one.flags &= ~(uint32_t)(FILE_ASK | FILE_SPARSE);
	one.a.atime_s = 0;
	one.a.atime_ns = 0;
	record_file_encode(&w, &one);
	return XXH3_64bits(bytes, w.used) | 1;
}

bool aside_is_current(const struct source_lane *l, const struct source_item *it)
{
	struct record_file r;

	item_record(l, it, &r);
	return it->aside->question_hash == hash_question(&r);
}

/* Lock held. */
static void queue_ready_aside(struct source *s, struct aside *a)
{
	bool large = a->size > s->small_max || a->answer == ANSWER_RESUME;

	*s->asides.ready_end[large] = a;
	s->asides.ready_end[large] = &a->next;
}

int source_park(struct source_lane *l, struct source_item *it)
{
	struct source *s = l->source;
	struct aside *a = aside_new(it, NULL);

	item_close(it);
	if (!a)
		return -1;
	a->answer = ANSWER_SEND;
	pthread_mutex_lock(&s->copy->lock);
	s->asides.count++;
	queue_ready_aside(s, a);
	pthread_mutex_unlock(&s->copy->lock);
	return 0;
}

/* ---- clones -------------------------------------------------------------------------- */

bool source_may_clone(const struct source *s, const struct source_item *it)
{
	const struct rules *r = s->rules;

	return s->o->clones > 0 && !s->rules->no_sparse && !r->verify && !r->dry_run &&
	       !(it->flags & FILE_STREAM) && it->size > s->small_max && it->size >= CLONE_MIN &&
	       atomic_load(&s->clones.open) < OFFERED_MAX &&
	       (atomic_load(&s->clones.taken) || atomic_load(&s->clones.refused) < CLONE_TRIES);
}

/* Passes the file's descriptor to the sink.  A file that cannot be opened fails when it is sent. */
static bool offer_clone(struct source_lane *l, struct source_item *it)
{
	struct source *s = l->source;

	if (!source_may_clone(s, it))
		return false;
	if (it->fd < 0 && item_open(l, it)) {
		item_close(it);
		return false;
	}
	if (!clone_suits(it->fd) || !clone_offer(s->o->clones, it->id, it->fd))
		return false;
	atomic_fetch_add(&s->clones.open, 1);
	return true;
}

void source_end_offer(struct source *s, struct aside *a)
{
	if (!a->offered)
		return;
	atomic_fetch_sub(&s->clones.open, 1);
	if (a->answer == ANSWER_CLONED)
		atomic_store(&s->clones.taken, true);
	else if (a->answer == ANSWER_SEND || a->answer == ANSWER_RESUME)
		atomic_fetch_add(&s->clones.refused, 1);
}

/* ---- questions ----------------------------------------------------------------------- */

static int read_item_xattrs(struct source_lane *l, struct source_item *it, struct xattrs **x)
{
	const struct rules *rules = l->source->rules;
	char room[FAIL_TEXT_MAX];

	*x = NULL;
	if (!rules->acls && !rules->xattrs)
		return 0;
	if (it->fd < 0 && item_open(l, it))
		return -1;
	return xattrs_read(it->fd, item_shown(it, room, sizeof room), rules, x);
}

/* A question must be whole in one block.  1: it does not fit. */
static int put_question(struct source_lane *l, struct source_item *it, struct aside *a,
			const struct xattrs *x)
{
	size_t need = RECORD_FILE_MAX + source_xattrs_room(x, it->id);
	struct record_file r;

	if (need > lane_block_size(l->lane))
		return 1;
	item_record(l, it, &r);
	if (source_put_dir(l, it->dir) || source_put_owners(l, &r.a, x) ||
	    source_reserve_room(l, need))
		return -1;
	r.id = it->id;
	/* A file of unknown size is asked about with size 0, which the sink does not compare. */
	r.flags =
		(r.flags & ~(uint32_t)FILE_STREAM) | FILE_ASK | (a->permission_only ? FILE_MAY : 0);
	/* Needed only if the sink may send cells, or clone the file. */
	if (l->source->rules->checksum || r.size >= RESUME_MIN || a->offered)
		a->question_hash = hash_question(&r);
	record_file_encode(&l->records, &r);
	return source_put_xattrs(l, it->id, x);
}

/* May an empty file be removed on the answer SAME, without comparing cells?  SAME also means that
 * --ignore-existing, --update or --existing leaves the target alone.  Then the file must stay. */
static bool may_remove_same(const struct source *s, const struct source_item *it)
{
	const struct rules *r = s->rules;

	return r->checksum && !r->ignore_existing &&
	       (!(r->update || r->existing) || it->permitted) && it->size == 0 &&
	       !(it->flags & FILE_STREAM);
}

bool source_needs_permission(const struct source *s)
{
	return s->rules->update || s->rules->ignore_existing || s->rules->existing;
}

bool source_asks_all(const struct source *s, struct walk_dir *d)
{
	return s->asks_all && (source_needs_permission(s) || !walk_dir_is_made(d));
}

static int fail_too_large_to_ask(struct source_lane *l, struct source_item *it)
{
	char room[FAIL_TEXT_MAX];

	fail("ask about %s: its attributes do not fit a block of %u bytes (use a larger --block-size)",
	     item_shown(it, room, sizeof room), lane_block_size(l->lane));
	return item_report_failed(l, it);
}

int source_ask(struct source_lane *l, struct source_item *it)
{
	struct source_unpublished d = {.kind = LIVE_ASKED};
	struct removal *removal = NULL;
	struct xattrs *x;
	struct aside *a;
	bool offered;
	int ret;

	if (may_remove_same(l->source, it) && item_removal(l, it, &removal))
		return item_report_failed(l, it);
	if (read_item_xattrs(l, it, &x)) {
		removal_free(removal);
		/* If the target is left alone, its attributes are not needed. */
		if (it->fd < 0 && it->id == 0 && !it->permitted &&
		    source_needs_permission(l->source))
			return source_ask_permission(l, it);
		return item_report_failed(l, it);
	}
	if (it->id == 0 && source_take_id(l, &it->id)) {
		xattrs_free(x);
		removal_free(removal);
		return -1;
	}
	offered = offer_clone(l, it);
	a = aside_new(it, removal);
	if (a) {
		a->offered = offered;
		a->seen = seen_of(&it->st);
	}
	ret = a ? put_question(l, it, a, x) : -1;
	xattrs_free(x);
	if (ret == 0) {
		item_close(it);
		d.id = it->id;
		d.file.object = a;
		source_queue_unpublished(l, &d);
		return 0;
	}
	if (a)
		source_end_offer(l->source, a);
	aside_free(a);
	if (ret < 0)
		return -1;
	return source_needs_permission(l->source) ? fail_too_large_to_ask(l, it) : item_send(l, it);
}

int source_ask_permission(struct source_lane *l, struct source_item *it)
{
	struct source_unpublished d = {.kind = LIVE_ASKED};
	struct aside *a;

	if (source_take_id(l, &it->id))
		return -1;
	a = aside_new(it, NULL);
	if (!a)
		return -1;
	a->permission_only = true;
	if (put_question(l, it, a, NULL)) {
		aside_free(a);
		return -1;
	}
	item_close(it);
	d.id = it->id;
	d.file.object = a;
	source_queue_unpublished(l, &d);
	return 0;
}

/* ---- answers ------------------------------------------------------------------------- */

static int send_aside(struct source_lane *l, struct aside *a)
{
	struct source_item it = {
		.dir = a->dir,
		.name = a->name,
		.path = a->path,
		.want = a->want,
		.id = a->id,
		.flags = a->flags,
		.linked = true,
		.permitted = true,
		.counted = true,
		.group = a->group,
		.aside = a->id ? a : NULL,
		.fd = -1,
	};

	return item_send(l, &it);
}

/* The target may be replaced.  Considers the file anew, as if nothing had been asked. */
static int consider_permitted(struct source_lane *l, struct aside *a)
{
	struct source_item it = {
		.dir = a->dir,
		.name = a->name,
		.path = a->path,
		.want = a->want,
		.flags = a->flags & (FILE_MANY | FILE_MOVED),
		.permitted = true,
		.counted = true,
		.fd = -1,
	};

	pthread_mutex_lock(&l->source->copy->lock);
	ids_settle(&l->source->ids, a->id);
	pthread_mutex_unlock(&l->source->copy->lock);
	return item_take(l, &it);
}

int source_send_asides(struct source_lane *l)
{
	struct aside *a;
	int ret = 0;

	while (ret == 0 && (a = l->asides) != NULL) {
		l->asides = a->next;
		ret = a->permission_only ? consider_permitted(l, a) : send_aside(l, a);
		l->compared_count += a->answer == ANSWER_COMPARE;
		aside_free(a);
		/* When the sink has this block, it can forget these files. */
		if (ret == 0 && l->compared_count >= l->source->asides.compared_max)
			ret = source_send_records(l);
	}
	return ret;
}

static struct aside *find_asked(struct source *s, uint32_t id)
{
	struct aside *a = NULL;

	if (ids_kind(&s->ids, id) == LIVE_ASKED)
		a = ids_file(&s->ids, id)->object;
	if (a && a->answer == 0)
		return a;
	fail_as(OUT_PROTOCOL, "the peer answers an unknown question about file %u", id);
	return NULL;
}

static int take_answer(struct source *s, uint32_t id, uint8_t answer)
{
	struct aside *a = find_asked(s, id);

	if (!a)
		return -1;
	if (answer == ANSWER_CLONED && !a->offered)
		return fail_as(OUT_PROTOCOL,
			       "the peer reports a clone of file %u, which was not offered", id);
	a->answer = answer;
	source_end_offer(s, a);
	/* Send a file of which not all cells could be kept. */
	if (answer == ANSWER_COMPARE && known_cells_is_cut(a->known)) {
		a->answer = ANSWER_SEND;
		known_cells_free(a->known);
		a->known = NULL;
	}
	if (answer != ANSWER_SAME) {
		queue_ready_aside(s, a);
		return 0;
	}
	s->asides.count--;
	source_count_same(s, id);
	removal_hold_same(s, id, a->removal);
	a->removal = NULL;
	aside_free(a);
	return 0;
}

/* The sink reports that it made a directory (NEW). */
static int note_dir_made(struct source *s, uint32_t id)
{
	if (ids_kind(&s->ids, id) != LIVE_DIR)
		return fail_as(OUT_PROTOCOL,
			       "the peer reports a new directory %u, which was not announced", id);
	for (unsigned i = 0; i < s->top_count; i++) {
		if (s->tops[i]->id == id)
			atomic_store_explicit(&s->tops[i]->made, true, memory_order_relaxed);
	}
	return 0;
}

int source_take_answers(struct source *s, const struct msg_answers *m)
{
	for (unsigned i = 0; i < m->count; i++) {
		uint32_t id = m->of[i].file;
		uint8_t answer = m->of[i].answer;

		if (answer == ANSWER_NEW ? note_dir_made(s, id) : take_answer(s, id, answer))
			return -1;
	}
	pthread_cond_broadcast(&s->copy->changed);
	return 0;
}

int source_take_cells(struct source *s, const struct msg_cells *m)
{
	struct aside *a = find_asked(s, m->file);

	return a ? known_cells_add(&a->known, m, a->size, &s->known_bytes) : -1;
}
