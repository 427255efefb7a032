/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "base/fail.h"
#include "base/io.h"

/* ---- entries that wait for the files -------------------------------------------------- */

enum { CHUNK = 64 << 10, ALIGN = 8 };

struct packed_other {
	struct walk_dir *dir;
	char *path;
	struct link_group *group;
	uint32_t want;
	uint32_t size; /* of this struct with the name */
	char name[];
};

struct other_chunk {
	struct other_chunk *next;
	size_t at, used;
	_Alignas(ALIGN) char bytes[CHUNK];
};

int others_add(struct others *t, const struct new_other *o)
{
	size_t len = strlen(o->name) + 1;
	size_t size = (sizeof(struct packed_other) + len + ALIGN - 1) / ALIGN * ALIGN;
	char *path = o->path ? strdup(o->path) : NULL;
	struct packed_other *packed;

	if (o->path && !path)
		return fail_as(OUT_MEMORY, "queue a link: %m");
	if (!t->last || CHUNK - t->last->used < size) {
		struct other_chunk *c = malloc(sizeof *c);

		if (!c) {
			free(path);
			return fail_as(OUT_MEMORY, "queue a link: %m");
		}
		c->next = NULL;
		c->at = 0;
		c->used = 0;
		*(t->last ? &t->last->next : &t->first) = c;
		t->last = c;
	}
	packed = (struct packed_other *)(void *)(t->last->bytes + t->last->used);
	t->last->used += size;
	t->count++;
	packed->dir = walk_dir_get(o->dir);
	packed->path = path;
	packed->group = o->group;
	packed->want = o->want;
	packed->size = (uint32_t)size;
	memcpy(packed->name, o->name, len);
	return 0;
}

/* Moves the first entry to *to.  The caller owns its reference and path then. */
static void pop_other(struct others *t, struct other *to)
{
	struct other_chunk *c = t->first;
	const struct packed_other *packed =
		(const struct packed_other *)(const void *)(c->bytes + c->at);

	to->dir = packed->dir;
	to->path = packed->path;
	to->group = packed->group;
	to->want = packed->want;
	memcpy(to->name, packed->name, strlen(packed->name) + 1);
	c->at += packed->size;
	t->count--;
	if (c->at < c->used)
		return;
	t->first = c->next;
	if (!c->next)
		t->last = NULL;
	free(c);
}

unsigned others_take(struct others *t, struct other *to, unsigned most)
{
	unsigned n = 0;

	while (n < most && t->count > 0)
		pop_other(t, &to[n++]);
	return n;
}

static void drop_other(struct other *o)
{
	walk_dir_put(o->dir);
	free(o->path);
}

void others_free(struct others *t)
{
	struct other one;

	while (others_take(t, &one, 1))
		drop_other(&one);
}

/* ---- sending one ---------------------------------------------------------------------- */

struct sent_other {
	const struct other *o;
	struct stat st;
	struct seen seen; /* what was read; of a further name, under the leading name */
	struct record_file r;
	struct xattrs *xattrs;
	struct removal *removal;
	char target[LINK_TARGET_MAX + 1];
};

static const char *format_other_path(const struct sent_other *t, char *to, size_t size)
{
	return t->o->path ? t->o->path : walk_shown(t->o->dir, t->o->name, to, size);
}

static int fill_type(struct sent_other *t)
{
	char room[FAIL_TEXT_MAX];

	switch (t->st.st_mode & S_IFMT) {
	case S_IFLNK:
		t->r.type = TYPE_SYMLINK;
		return 0;
	case S_IFIFO:
		t->r.type = TYPE_FIFO;
		return 0;
	case S_IFCHR:
	case S_IFBLK:
		t->r.type = S_ISCHR(t->st.st_mode) ? TYPE_CHAR : TYPE_BLOCK;
		t->r.major = major(t->st.st_rdev);
		t->r.minor = minor(t->st.st_rdev);
		return 0;
	default:
		return fail_as(OUT_CHANGED, "read %s: its type changed",
			       format_other_path(t, room, sizeof room));
	}
}

static int read_target(struct source_lane *l, struct sent_other *t)
{
	char room[FAIL_TEXT_MAX];
	ssize_t n;

	if (t->r.type != TYPE_SYMLINK)
		return 0;
	n = walk_read_link(l->dirfd, t->o->name, t->target, sizeof t->target);
	if (n <= 0)
		return fail("read %s: %m", format_other_path(t, room, sizeof room));
	t->r.size = (uint64_t)n;
	return 0;
}

/* Symbolic links have no ACLs. */
static int read_other_xattrs(struct source_lane *l, struct sent_other *t)
{
	const struct rules *rules = l->source->rules;
	char room[FAIL_TEXT_MAX];
	int fd, ret;

	if (!rules->xattrs && (!rules->acls || t->r.type == TYPE_SYMLINK))
		return 0;
	fd = walk_open_path(l->dirfd, t->o->name, rules->copy_links);
	if (fd < 0)
		return fail("open %s: %m", format_other_path(t, room, sizeof room));
	ret = xattrs_read(fd, format_other_path(t, room, sizeof room), rules, &t->xattrs);
	close_fd(fd);
	return ret;
}

/* With --copy-links a link here leads to a FIFO or a device.  Of a further name of a file nothing
 * that this reads is sent. */
static int stat_other(struct source_lane *l, struct sent_other *t)
{
	bool follow = l->source->rules->copy_links;
	char room[FAIL_TEXT_MAX];
	int ret;

	if (t->o->path) {
		ret = source_file_look(t->o->path, &t->st);
	} else {
		if (source_use_dir(l, t->o->dir))
			return -1;
		ret = walk_stat(l->dirfd, t->o->name, follow, &t->st);
	}
	if (ret)
		return fail_as(errno == ENOENT ? OUT_VANISHED : OUT_FILE, "read %s: %m",
			       format_other_path(t, room, sizeof room));
	t->seen = seen_of(&t->st);
	return 0;
}

/* ---- further names of an inode --------------------------------------------------------- */

/* Returns to the phase of files: the result of what is sent now is awaited before more links are
 * sent. */
static void return_to_files(struct source *s)
{
	s->phase = 0;
}

/* Queues o again, as a further name of g, or (NULL) as an entry of its own.  Lock held. */
static int requeue_other(struct source *s, const struct other *o, struct link_group *g)
{
	const struct new_other more = {
		.dir = o->dir,
		.path = o->path,
		.name = o->name,
		.want = o->want,
		.group = g,
	};

	return others_add(g ? &s->hard_links : &s->others, &more);
}

/* 1: another name leads, and this one was queued again as a link to it. */
static int join_other_links(struct source_lane *l, struct sent_other *t)
{
	struct source *s = l->source;
	struct link_group *g;
	int ret;

	/* With these options each name is made for itself, because the sink does not report which
	 * ones it left out. */
	if (!s->rules->hard_links || t->st.st_nlink < 2 || s->rules->ignore_existing ||
	    s->rules->existing)
		return 0;
	pthread_mutex_lock(&s->copy->lock);
	ret = links_join(&s->links, &t->seen, t->r.id, &g);
	if (ret == 1)
		ret = requeue_other(s, t->o, g) ? -1 : 1;
	else if (ret == 0)
		t->r.flags |= FILE_LINKED;
	pthread_mutex_unlock(&s->copy->lock);
	return ret;
}

/* The name is no longer one of the leading name's inode, or the leading name failed.  Sends it as
 * if it had just been found. */
static int send_alone(struct source_lane *l, const struct sent_other *t)
{
	struct source *s = l->source;
	struct source_item it = {
		.dir = t->o->dir,
		.name = t->o->name,
		.path = t->o->path,
		.want = t->o->want,
		.flags = FILE_MANY,
		.permitted = seen_is_same_inode(&t->seen, &t->st),
		.fd = -1,
	};
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	return_to_files(s);
	l->counts.hard_links -= S_ISREG(t->seen.mode);
	ret = S_ISREG(t->st.st_mode) || t->o->path ? 0 : requeue_other(s, t->o, NULL);
	pthread_mutex_unlock(&s->copy->lock);
	if (ret || (!S_ISREG(t->st.st_mode) && !t->o->path))
		return ret;
	return item_take(l, &it);
}

enum lead_state { LEAD_STORED, LEAD_AWAITED, LEAD_REPLACED, LEAD_FAILED };

/* The state of the leading name.  Lock held. */
static enum lead_state find_lead_state(const struct source *s, const struct sent_other *t)
{
	const struct link_group *g = t->o->group;

	if (!seen_is_same_inode(&g->seen, &t->st))
		return LEAD_REPLACED;
	if (links_lead_failed(&s->links, g))
		return g->leads < LEADS_MAX ? LEAD_REPLACED : LEAD_FAILED;
	return g->round < s->links.round ? LEAD_STORED : LEAD_AWAITED;
}

/* 0: send a link to the leading name.  1: the name was queued or sent otherwise.  -1: it failed.
 * -2: the session failed. */
static int check_lead(struct source_lane *l, struct sent_other *t)
{
	struct source *s = l->source;
	char room[FAIL_TEXT_MAX];
	enum lead_state lead;
	int ret = 0;

	pthread_mutex_lock(&s->copy->lock);
	lead = find_lead_state(s, t);
	t->r.type = TYPE_HARD_LINK;
	t->r.link_to = t->o->group->id;
	/* The name is removed only if it is what was read under the leading name. */
	t->seen = t->o->group->seen;
	if (lead == LEAD_AWAITED) {
		return_to_files(s);
		ret = requeue_other(s, t->o, t->o->group) ? -2 : 1;
	}
	pthread_mutex_unlock(&s->copy->lock);
	if (lead == LEAD_FAILED)
		return fail("link %s: the file it links to could not be copied",
			    format_other_path(t, room, sizeof room));
	if (lead == LEAD_REPLACED)
		return send_alone(l, t) ? -2 : 1;
	return ret;
}

static int prepare_removal(struct source_lane *l, struct sent_other *t)
{
	struct source *s = l->source;

	/* The sink reports what --ignore-existing or --existing leaves out as stored. */
	if (!s->removes || ((s->rules->ignore_existing || s->rules->existing) && !t->o->group))
		return 0;
	return removal_new(s, t->o->path ? NULL : t->o->dir, t->o->path ? t->o->path : t->o->name,
			   &t->seen, &t->removal);
}

/* The bytes that it takes to be whole in one block. */
static size_t measure_other(const struct sent_other *t)
{
	return RECORD_FILE_MAX + RECORD_DATA_HEAD + (size_t)t->r.size + END_ROOM +
	       source_xattrs_room(t->xattrs, t->r.id);
}

static int put_target(struct source_lane *l, const struct sent_other *t)
{
	struct record_data d = {.id = t->r.id};
	size_t left = (size_t)t->r.size;

	while (left > 0) {
		size_t room;

		if (source_reserve_room(l, RECORD_DATA_HEAD + 1))
			return -1;
		room = l->records.size - l->records.used - RECORD_DATA_HEAD;
		d.bytes = (const uint8_t *)t->target + d.pos;
		d.len = (uint32_t)(left < room ? left : room);
		record_data_encode(&l->records, &d);
		d.pos += d.len;
		left -= d.len;
	}
	return 0;
}

static int put_other_records(struct source_lane *l, struct sent_other *t)
{
	struct record_file_end end = {
		.id = t->r.id,
		.size = t->r.size,
		.data = t->r.size,
		.lanes = 1,
	};
	struct source_unpublished done = {.id = t->r.id,
					  .kind = LIVE_OTHER,
					  .file.object = t->removal};
	size_t need = measure_other(t);

	/* Put what fits one block into one, because that is cheaper at the sink. */
	if (need > lane_block_size(l->lane))
		need = RECORD_FILE_MAX;
	if (source_put_dir(l, t->o->dir) ||
	    source_put_lookalikes(l, t->o->want, t->o->dir, t->r.name) ||
	    source_put_owners(l, &t->r.a, t->xattrs) || source_reserve_room(l, need))
		return -1;
	record_file_encode(&l->records, &t->r);
	/* Queue it before its first block is sent: the sink may report a failure at once. */
	t->removal = NULL;
	source_queue_unpublished(l, &done);
	if (source_put_xattrs(l, t->r.id, t->xattrs) || put_target(l, t) ||
	    source_reserve_room(l, END_ROOM))
		return -1;
	if (t->r.size > 0)
		cell_hash_of(0, (const uint8_t *)t->target, (size_t)t->r.size, end.digest);
	record_file_end_encode(&l->records, &end);
	return 0;
}

static enum event_what get_other_event(const struct sent_other *t)
{
	if (t->o->group)
		return EVENT_HARD_LINK;
	return t->r.type == TYPE_SYMLINK ? EVENT_SYMLINK : EVENT_NODE;
}

/* 1: nothing of it is sent now.  -1: it failed.  -2: the session failed. */
static int read_other(struct source_lane *l, struct sent_other *t)
{
	int ret;

	if (stat_other(l, t))
		return -1;
	walk_attr_of(&t->st, &t->r.a);
	if (t->o->group) {
		ret = check_lead(l, t);
		return ret ? ret : prepare_removal(l, t);
	}
	if (fill_type(t) || read_target(l, t) || read_other_xattrs(l, t))
		return -1;
	if (t->r.type != TYPE_SYMLINK)
		t->r.a.mode = modes_apply(l->source->modes, t->r.a.mode, false);
	return prepare_removal(l, t);
}

/* -1: the session fails. */
static int put_other(struct source_lane *l, struct sent_other *t)
{
	int ret;

	if (source_take_id(l, &t->r.id))
		return -1;
	ret = t->o->group ? 0 : join_other_links(l, t);
	if (ret == 0)
		return put_other_records(l, t);
	source_return_id(l, t->r.id);
	return ret < 0 ? -1 : 0;
}

static int send_other(struct source_lane *l, const struct other *o)
{
	struct sent_other t = {.o = o};
	int ret;

	t.r.want = o->want;
	t.r.dir = o->dir ? o->dir->id : 0;
	t.r.flags = FILE_MANY;
	memcpy(t.r.name, o->name, strlen(o->name) + 1);
	ret = read_other(l, &t);
	if (ret == -1)
		ret = source_report_failed(l, get_other_event(&t), o->dir, o->name, o->path);
	else if (ret == 0)
		ret = put_other(l, &t);
	xattrs_free(t.xattrs);
	removal_free(t.removal);
	return ret < 0 ? -1 : 0;
}

int source_send_others(struct source_lane *l)
{
	int ret = 0;

	for (unsigned i = 0; i < l->other_count; i++) {
		if (ret == 0)
			ret = send_other(l, &l->others[i]);
		drop_other(&l->others[i]);
	}
	l->other_count = 0;
	return ret;
}
