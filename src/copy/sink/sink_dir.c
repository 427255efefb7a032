/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/fail.h"
#include "base/log.h"
#include "lane/fault.h"

/* ---- the table ------------------------------------------------------------------------ */

struct sink_dir *sink_dir_find(struct sink *s, uint32_t id)
{
	return table_find(&s->dirs.by_id, &id);
}

static int add_sink_dir(struct sink_dirs *t, struct sink_dir *d, const char *name)
{
	t->bytes += SINK_DIR_COST + strlen(name);
	if (t->bytes > fault_bound(SINK_DIRS_BYTES_MAX))
		return fail_as(OUT_MEMORY, "keep %zu directories in memory: the limit is %d MiB",
			       t->by_id.count, SINK_DIRS_BYTES_MAX >> 20);
	if (table_put(&t->by_id, d, NULL))
		return fail_as(OUT_MEMORY, "keep directories in memory: %m");
	*(t->last ? &t->last->later : &t->first) = d;
	t->last = d;
	return 0;
}

static void free_sink_dir(void *dir)
{
	struct sink_dir *d = dir;

	xattrs_free(d->xattrs);
	free(d->name);
	free(d);
}

void sink_dirs_free(struct sink *s)
{
	table_clear(&s->dirs.by_id, free_sink_dir);
	s->dirs.first = s->dirs.last = NULL;
}

struct place_dir *sink_dir_place(const struct sink_dir *d)
{
	return d ? d->place : NULL;
}

static bool prepend_part(const char *to, char **at, const char *part)
{
	size_t len = strlen(part);

	/* Leave room for the path before it. */
	if (len + 1 + NAME_ROOM >= (size_t)(*at - to))
		return false;
	if (len > 0 && **at)
		*--*at = '/';
	*at -= len;
	memcpy(*at, part, len);
	return true;
}

/* The path of directories without a place is built from its end. */
size_t sink_path(const struct sink_dir *d, const char *name, char *to, size_t size)
{
	char *at = to + size - 1;
	size_t head, tail;

	*at = '\0';
	while (d && !d->place && prepend_part(to, &at, name)) {
		name = d->name;
		d = d->parent;
	}
	tail = (size_t)(to + size - 1 - at);
	if (tail == 0)
		return place_path(sink_dir_place(d), name, to, size);
	head = place_path(sink_dir_place(d), name, to, (size_t)(at - to));
	if (head > 0)
		to[head++] = '/';
	memmove(to + head, at, tail + 1);
	return head + tail;
}

const char *sink_name_shown(const struct sink *s, const struct sink_dir *d, const char *name,
			    char to[static SHOWN_ROOM])
{
	if (s->place && (!d || d->place))
		return place_shown(s->place, sink_dir_place(d), name, to);
	sink_path(d, name, to, SHOWN_ROOM);
	return to;
}

int sink_take_file_xattrs(const struct sink *s, const struct record_file *r, struct xattrs *x,
			  const struct sink_dir *d)
{
	if (sink_take_xattrs(s, x, d, r->name))
		return -1;
	if (s->place)
		place_change_acl(s->place, &r->a, false, x);
	return 0;
}

int sink_take_xattrs(const struct sink *s, struct xattrs *x, const struct sink_dir *d,
		     const char *name)
{
	char shown[SHOWN_ROOM];

	if (!x)
		return 0;
	sink_name_shown(s, d, name, shown);
	if (!xattrs_whole(x))
		return fail_as(OUT_PROTOCOL, "the peer sends a truncated attribute of %s", shown);
	return xattrs_check(x, shown, s->rules) ||
			       xattrs_localize(x, shown, s->owners, s->rules->numeric_ids)
		       ? -1
		       : 0;
}

/* ---- DIR ------------------------------------------------------------------------------ */

/* All DIR records of one directory have the same hash. */
static uint64_t hash_dir_record(const struct record_dir *r)
{
	uint8_t bytes[RECORD_DIR_MAX];
	struct writer w = writer_of(bytes, sizeof bytes);
	struct record_dir one = *r;

	/* Reading a directory changes its atime. */
	one.a.atime_s = 0;
	one.a.atime_ns = 0;
	record_dir_encode(&w, &one);
	return XXH3_64bits(bytes, w.used);
}

/* Lock held. */
static int reannounce_dir(struct sink_lane *l, struct sink_dir *d, const struct record_dir *r)
{
	if ((d->announced & sink_lane_bit(l)) || d->hash != hash_dir_record(r))
		return fail_as(OUT_PROTOCOL, "the peer announces directory %u twice", r->id);
	d->announced |= sink_lane_bit(l);
	while (d->state == SINK_OPENING && !atomic_load(&l->sink->copy->failed))
		sink_wait(l, d, 0);
	/* The lane that opens it failed, and with it the copy: the directory has no name. */
	return d->state == SINK_OPENING ? -1 : 0;
}

/* Lock held. */
static int announce_dir(struct sink_lane *l, const struct record_dir *r, struct sink_dir **out)
{
	struct sink *s = l->sink;
	struct sink_dir *parent = r->parent ? sink_dir_find(s, r->parent) : NULL;
	char shown[SHOWN_ROOM];
	struct sink_dir *d;

	if (r->parent && (!parent || !(parent->announced & sink_lane_bit(l))))
		/* Another lane may still open the parent: until then it has no name to show. */
		return fail_as(OUT_PROTOCOL,
			       "the peer sends a directory in a directory it did not announce");
	if (*sink_file_slot(s, r->id))
		return fail_as(OUT_PROTOCOL, "the peer sends a directory with the id of a file");
	d = calloc(1, sizeof *d);
	if (!d)
		return fail_as(OUT_MEMORY, "create %s: %m",
			       sink_name_shown(s, parent, r->name, shown));
	d->id = r->id;
	d->want = r->want;
	d->parent = parent;
	d->hash = hash_dir_record(r);
	d->state = SINK_OPENING;
	d->announced = sink_lane_bit(l);
	if (add_sink_dir(&s->dirs, d, r->name)) {
		free_sink_dir(d);
		return -1;
	}
	*out = d;
	return 0;
}

static bool is_failed_dir(const struct sink_dir *d)
{
	return d && !d->place && !d->left_out;
}

int sink_dir_check(const struct sink *s, const struct sink_dir *d, const char *name)
{
	char shown[SHOWN_ROOM];

	if (!is_failed_dir(d))
		return 0;
	return fail("create %s: its parent directory could not be created",
		    sink_name_shown(s, d, name, shown));
}

bool sink_dir_count_failed(struct sink *s, const struct sink_dir *d)
{
	if (!is_failed_dir(d))
		return false;
	while (is_failed_dir(d->parent))
		d = d->parent;
	sink_dir_find(s, d->id)->failed_inside++;
	return true;
}

void sink_dirs_report_failed(struct sink *s)
{
	char path[NAME_MAX_WIRE];
	const struct sink_dir *d;

	for (d = s->dirs.first; d; d = d->later) {
		if (d->failed_inside == 0)
			continue;
		sink_path(d, "", path, sizeof path);
		log_at(LOG_ERROR, "%s could not be created, nor could %llu %s in it",
		       *path ? path : "DST", (unsigned long long)d->failed_inside,
		       d->failed_inside == 1 ? "entry" : "entries");
	}
}

static void count_dir(struct sink_lane *l, const struct change *c)
{
	l->sums.any = true;
	l->sums.counts.dirs++;
	l->sums.ended.others++;
	if (!c)
		l->sums.stored.failed++;
	else
		l->sums.stored.others++;
	if (c && c->missing)
		l->sums.counts.created++;
}

static void set_dir_state(struct sink *s, struct sink_dir *d, enum sink_state state)
{
	pthread_mutex_lock(&s->copy->lock);
	d->state = state;
	sink_wake(s, d);
	pthread_mutex_unlock(&s->copy->lock);
}

static int name_dir(const struct sink *s, struct sink_dir *d, const struct record_dir *r)
{
	char shown[SHOWN_ROOM];

	d->name = strdup(r->name);
	return d->name ? 0
		       : fail_as(OUT_MEMORY, "create %s: %m",
				 sink_name_shown(s, d->parent, r->name, shown));
}

/* d fails, with this thread's failure. */
static int fail_dir(struct sink_lane *l, struct sink_dir *d, const struct record_dir *r)
{
	struct failure why = *failed();

	if (name_dir(l->sink, d, r))
		return -1;
	fail_again(&why);
	if (sink_report_failed(l, r->id, EVENT_DIR, d->parent, r->name, true))
		return -1;
	count_dir(l, NULL);
	set_dir_state(l->sink, d, SINK_FAILED);
	return 0;
}

/* Leaves out d: with --ignore-existing something else exists, with --existing nothing exists, or
 * its parent is left out. */
static int leave_out_dir(struct sink_lane *l, struct sink_dir *d, const struct record_dir *r)
{
	struct change none = {.what = EVENT_DIR};

	d->left_out = true;
	if (name_dir(l->sink, d, r))
		return -1;
	count_dir(l, &none);
	set_dir_state(l->sink, d, SINK_OPEN);
	return 0;
}

static int make_dir(struct sink_lane *l, struct sink_dir *d, const struct record_dir *r)
{
	struct sink *s = l->sink;
	struct change change = {.what = EVENT_DIR};
	struct place_dir *place = NULL;
	bool left_out;
	int ret = 0;

	if (sink_accept_dir(s, r, d))
		return -1;
	if (sink_dir_check(s, d->parent, r->name))
		return fail_dir(l, d, r);
	left_out =
		sink_dir_is_left_out(d->parent) ||
		(ret = place_make_dir(s->place, sink_dir_place(d->parent), r, &place, &change)) > 0;
	if (left_out)
		return leave_out_dir(l, d, r);
	if (ret)
		return fail_dir(l, d, r);
	d->place = place;
	count_dir(l, &change);
	set_dir_state(s, d, SINK_OPEN);
	d->change = change;
	d->reported_last = (s->rules->acls || s->rules->xattrs) && !change.missing && !change.type;
	if (!d->reported_last)
		sink_report_event(l, d, "", &change, false, 0, "");
	/* Send NEW at once: until it arrives, the source asks about the files in d. */
	if (d->parent || !place_dir_fresh(place))
		return 0;
	return sink_queue_answer(l, r->id, ANSWER_NEW) || sink_flush(l) ? -1 : 0;
}

int sink_take_dir(struct sink_lane *l, const struct record_dir *r)
{
	struct sink *s = l->sink;
	struct sink_dir *d, *new = NULL;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	d = sink_dir_find(s, r->id);
	ret = d ? reannounce_dir(l, d, r) : announce_dir(l, r, &new);
	pthread_mutex_unlock(&s->copy->lock);
	if (ret == 0 && new)
		ret = make_dir(l, new, r);
	l->dir = ret ? NULL : d ? d : new;
	return ret;
}

int sink_require_dir(struct sink_lane *l, uint32_t id, struct sink_dir **out)
{
	struct sink *s = l->sink;
	struct sink_dir *d = l->dir;

	*out = NULL;
	if (id == 0)
		return 0;
	if (!d || d->id != id) {
		pthread_mutex_lock(&s->copy->lock);
		d = sink_dir_find(s, id);
		if (d && !(d->announced & sink_lane_bit(l)))
			d = NULL;
		pthread_mutex_unlock(&s->copy->lock);
	}
	if (!d)
		return fail_as(OUT_PROTOCOL,
			       "the peer sends a file in a directory it did not announce");
	l->dir = d;
	*out = d;
	return 0;
}

/* ---- what belongs to directories ------------------------------------------------------ */

/* All records of this kind must arrive on one lane.  Lock held. */
static int check_one_lane(const struct sink_lane *l, uint8_t *lane)
{
	if (*lane == 0)
		*lane = (uint8_t)(l->index + 1);
	if (*lane == l->index + 1)
		return 0;
	return fail_as(OUT_PROTOCOL, "the peer describes a directory on two lanes at once");
}

int sink_take_keep(struct sink_lane *l, const struct record_keep *r)
{
	struct sink *s = l->sink;
	struct sink_dir *d;
	int ret;

	if (!s->rules->delete)
		return fail_as(OUT_PROTOCOL, "the peer sends KEEP, but --delete was not given");
	if (sink_require_dir(l, r->dir, &d))
		return -1;
	pthread_mutex_lock(&s->copy->lock);
	ret = check_one_lane(l, &d->keep_lane);
	if (ret == 0 && d->keep_complete)
		ret = fail_as(OUT_PROTOCOL, "the peer sends KEEP after the last one");
	d->keep_complete |= r->last;
	pthread_mutex_unlock(&s->copy->lock);
	if (ret || !d->place)
		return ret;
	return place_dir_keep(d->place, &(struct reader){.at = r->names.at, .left = r->names.left},
			      r->last);
}

int sink_take_origin(struct sink_lane *l, const struct record_origin *r)
{
	struct sink *s = l->sink;
	struct place_origin o = {
		.origin = {.hash = {r->hash[0], r->hash[1]}},
		.dir = r->dir,
		.name = r->name,
	};
	struct sink_dir *d;

	if (sink_require_dir(l, r->parent, &d))
		return -1;
	if (!s->place || s->o->single_stream || (d && !d->place))
		return 0;
	if (r->want >= s->o->count)
		return fail_as(OUT_PROTOCOL, "the peer sends an unknown source number %u", r->want);
	o.source = s->o->wants[r->want];
	return place_check_origin(s->place, sink_dir_place(d), &o);
}

int sink_take_owner(struct sink_lane *l, const struct record_owner *r)
{
	return owners_add_name(l->sink->owners, r->group, r->id, r->name);
}

int sink_take_dir_xattr(struct sink_lane *l, const struct record_xattr *r)
{
	struct sink *s = l->sink;
	struct sink_dir *d;
	int ret = 0;

	pthread_mutex_lock(&s->copy->lock);
	d = sink_dir_find(s, r->id);
	if (!d || !(d->announced & sink_lane_bit(l)))
		ret = 1;
	else if (check_one_lane(l, &d->xattr_lane))
		ret = -1;
	else if (strcmp(r->name, XATTRS_UNREAD) == 0)
		d->unread = true;
	else if (xattrs_add(&d->xattrs, r))
		ret = -1;
	if (ret == 0) {
		s->dir_xattr_bytes += r->pos > 0 ? 0 : SINK_XATTR_COST + strlen(r->name) + r->size;
		if (s->dir_xattr_bytes > fault_bound(SINK_DIR_XATTRS_MAX))
			ret = fail_as(OUT_MEMORY,
				      "keep attributes of directories in memory: the limit is "
				      "%d MiB",
				      SINK_DIR_XATTRS_MAX >> 20);
	}
	pthread_mutex_unlock(&s->copy->lock);
	return ret;
}

static int give_dir_xattrs(struct sink *s, struct sink_dir *d)
{
	struct xattrs *x = d->xattrs;

	if (!d->place)
		return 0;
	if (d->unread)
		place_dir_unread(d->place);
	if (sink_take_xattrs(s, x, d, ""))
		return -1;
	if (x) {
		d->xattrs = NULL;
		place_dir_xattrs(d->place, x);
	}
	if (d->reported_last && s->rules->events) {
		place_dir_compare(d->place, x, &d->change);
		sink_report_event(&s->lanes[0], d, "", &d->change, false, 0, "");
	}
	return 0;
}

int sink_dirs_give_xattrs(struct sink *s)
{
	struct sink_dir *d;

	for (d = s->dirs.first; d; d = d->later) {
		if (give_dir_xattrs(s, d))
			return -1;
	}
	return 0;
}
