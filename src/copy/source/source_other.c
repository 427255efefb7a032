/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "base/fail.h"
#include "base/io.h"

/* ---- what is kept until files are done with ------------------------------------------- */

enum { CHUNK = 64 << 10, ALIGN = 8 };

struct packed_other {
	struct walk_dir *dir;
	char *path;
	struct link_group *group;
	uint32_t want;
	uint32_t size; /* of this, with its name */
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
	struct packed_other *k;

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
	k = (struct packed_other *)(void *)(t->last->bytes + t->last->used);
	t->last->used += size;
	t->count++;
	k->dir = walk_dir_get(o->dir);
	k->path = path;
	k->group = o->group;
	k->want = o->want;
	k->size = (uint32_t)size;
	memcpy(k->name, o->name, len);
	return 0;
}

/* The next one; its reference and path are the caller's. */
static void pop_other(struct others *t, struct other *to)
{
	struct other_chunk *c = t->first;
	const struct packed_other *k =
		(const struct packed_other *)(const void *)(c->bytes + c->at);

	to->dir = k->dir;
	to->path = k->path;
	to->group = k->group;
	to->want = k->want;
	memcpy(to->name, k->name, strlen(k->name) + 1);
	c->at += k->size;
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

void other_drop(struct other *o)
{
	walk_dir_put(o->dir);
	free(o->path);
}

void others_free(struct others *t)
{
	struct other one;

	while (others_take(t, &one, 1))
		other_drop(&one);
}

/* ---- sending one ---------------------------------------------------------------------- */

struct sent_other {
	const struct other *o;
	struct stat st;
	struct seen seen; /* what was read: of a further name the first one's */
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

/* With --copy-links a link that is met here leads to a FIFO or a device.  One more name of a file
 * may be one, too, but nothing of that is sent. */
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

/* ---- further names of what went before ------------------------------------------------- */

/* Files are not over yet: what this is sent as is awaited before more links are sent. */
static void return_to_files(struct source *s)
{
	s->phase = 0;
}

/* As a further name of g, or (NULL) as itself. Lock held. */
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

/* 1: it is one more name of what has gone before, and waits once more. */
static int join_other_links(struct source_lane *l, struct sent_other *t)
{
	struct source *s = l->source;
	struct link_group *g;
	int ret;

	/* With these each is made for itself: the sink does not say which it left. */
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

/* It is no further name of what leads, or that failed: it goes as if it had not been met yet. */
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

enum first_state { FIRST_STORED, FIRST_AWAITED, FIRST_REPLACED, FIRST_FAILED };

/* What of the name that leads? Lock held. */
static enum first_state find_first_state(const struct source *s, const struct sent_other *t)
{
	const struct link_group *g = t->o->group;

	if (!seen_is_same_inode(&g->seen, &t->st))
		return FIRST_REPLACED;
	if (links_lead_failed(&s->links, g))
		return g->leads < LEADS_MAX ? FIRST_REPLACED : FIRST_FAILED;
	return g->round < s->links.round ? FIRST_STORED : FIRST_AWAITED;
}

/* 0: a link to the first name is to be made. 1: it is not. */
static int check_first(struct source_lane *l, struct sent_other *t)
{
	struct source *s = l->source;
	char room[FAIL_TEXT_MAX];
	enum first_state first;
	int ret = 0;

	pthread_mutex_lock(&s->copy->lock);
	first = find_first_state(s, t);
	t->r.type = TYPE_HARD_LINK;
	t->r.link_to = t->o->group->id;
	/* What is removed must be what was read of the first name. */
	t->seen = t->o->group->seen;
	if (first == FIRST_AWAITED) {
		return_to_files(s);
		ret = requeue_other(s, t->o, t->o->group) ? -2 : 1;
	}
	pthread_mutex_unlock(&s->copy->lock);
	if (first == FIRST_FAILED)
		return fail("link %s: the file it links to could not be copied",
			    format_other_path(t, room, sizeof room));
	if (first == FIRST_REPLACED)
		return send_alone(l, t) ? -2 : 1;
	return ret;
}

static int prepare_removal(struct source_lane *l, struct sent_other *t)
{
	struct source *s = l->source;

	/* What --ignore-existing or --existing left out is told as stored. */
	if (!s->removes || ((s->rules->ignore_existing || s->rules->existing) && !t->o->group))
		return 0;
	return removal_new(s, t->o->path ? NULL : t->o->dir, t->o->path ? t->o->path : t->o->name,
			   &t->seen, &t->removal);
}

/* What it takes, if it is to be in one block. */
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

	/* What fits a block is in one: that is cheaper at the sink. */
	if (need > lane_block_size(l->lane))
		need = RECORD_FILE_MAX;
	if (source_put_dir(l, t->o->dir) || source_put_owners(l, &t->r.a, t->xattrs) ||
	    source_reserve_room(l, need))
		return -1;
	record_file_encode(&l->records, &t->r);
	/* Known before its first block is sent: it may fail at once. */
	t->removal = NULL;
	source_queue_unpublished(l, &done);
	if (source_put_xattrs(l, t->r.id, t->xattrs) || put_target(l, t) ||
	    source_reserve_room(l, END_ROOM))
		return -1;
	if (t->r.size > 0)
		cells_hash(0, (const uint8_t *)t->target, (size_t)t->r.size, end.digest);
	record_file_end_encode(&l->records, &end);
	return 0;
}

static enum event_what get_other_event(const struct sent_other *t)
{
	if (t->o->group)
		return EVENT_HARD_LINK;
	return t->r.type == TYPE_SYMLINK ? EVENT_SYMLINK : EVENT_NODE;
}

/* 1: nothing of it is sent now. -1: it failed; -2: the session did. */
static int read_other(struct source_lane *l, struct sent_other *t)
{
	int ret;

	if (stat_other(l, t))
		return -1;
	walk_attr_of(&t->st, &t->r.a);
	if (t->o->group) {
		ret = check_first(l, t);
		return ret ? ret : prepare_removal(l, t);
	}
	if (fill_type(t) || read_target(l, t) || read_other_xattrs(l, t))
		return -1;
	if (t->r.type != TYPE_SYMLINK)
		t->r.a.mode = modes_apply(l->source->modes, t->r.a.mode, false);
	return prepare_removal(l, t);
}

/* A failure is the session's. */
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
		other_drop(&l->others[i]);
	}
	l->other_count = 0;
	return ret;
}
