/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/name.h"
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

/* A name at the target itself that this run has made: the second file of that name is refused. In
 * directories below there can't be two of a name, but by a peer's malice, which does no harm. */
struct created {
	uint32_t id; /* of the file: it may be begun again */
	char name[];
};

static const struct rules plain = RULES_PLAIN;

/* ---- the whole ------------------------------------------------------------------------- */

static int read_groups(struct place *p)
{
	int n = getgroups(0, NULL);

	p->groups = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *p->groups);
	if (!p->groups)
		return fail_as(OUT_MEMORY, "open %s: %m", p->o.target);
	p->groups[0] = getegid();
	n = n > 0 ? getgroups(n, p->groups + 1) : 0;
	p->group_count = n > 0 ? n + 1 : 1;
	return 0;
}

static int open_top(struct place *p)
{
	struct stat st;

	p->top = dir_new(p, NULL, "");
	if (!p->top)
		return fail_as(OUT_MEMORY, "open %s: %m", p->o.target);
	p->is_dir = !p->spot.direct && !p->spot.name[0];
	p->top->missing = p->spot.nowhere;
	atomic_init(&p->top->unswept, true);
	if (!p->is_dir || p->spot.nowhere)
		return 0;
	if (fstat(p->spot.dirfd, &st))
		return fail("open %s: %m", p->spot.shown);
	p->top->held.fd = p->spot.dirfd;
	p->top->held.dev = st.st_dev;
	p->top->held.ino = st.st_ino;
	return 0;
}

static struct place *place_new(const struct place_opts *o)
{
	struct place *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->o = *o;
	if (!p->o.rules)
		p->o.rules = &plain;
	p->rules = p->o.rules;
	p->suffix = *p->rules->suffix ? p->rules->suffix : *p->rules->backup_dir ? "" : "~";
	p->created = TABLE_BY_STRING(created, name);
	linked_begin(p);
	p->umask = umask(0);
	umask(p->umask);
	p->uid = geteuid();
	clock_gettime(CLOCK_REALTIME_COARSE, &p->started);
	p->spot.dirfd = -1;
	p->backups = -1;
	p->proc = procfs_open();
	p->proc_error = p->proc < 0 ? errno : 0;
	pthread_mutex_init(&p->settling, NULL);
	pthread_mutex_init(&p->backing, NULL);
	pthread_mutex_init(&p->sweeping, NULL);
	pthread_mutex_init(&p->lock, NULL);
	dirs_init(p);
	return p;
}

int place_open(const struct place_opts *o, struct place **out)
{
	struct place *p = place_new(o);

	if (!p)
		return fail_as(OUT_MEMORY, "open %s: %m", o->target);
	if (owners_parse(p->rules->chown, &p->chown_uid, &p->chown_gid) || read_groups(p) ||
	    spot_resolve(&p->o, &p->spot) || open_top(p)) {
		place_close(p);
		return -1;
	}
	*out = p;
	return 0;
}

int place_check(const char *target, const struct rules *rules)
{
	struct rules dry = *rules;
	struct place_opts o = {.target = target, .rules = &dry};
	struct spot spot;
	int ret;

	dry.dry_run = true;
	ret = spot_resolve(&o, &spot) || spot_writable(&spot, rules->inplace) ? -1 : 0;
	spot_close(&spot);
	return ret;
}

void place_close(struct place *p)
{
	if (!p)
		return;
	dirs_free(p);
	table_clear(&p->created, free);
	free(p->taken.slots);
	free(p->origins.slots);
	taken_free(&p->claimed);
	free(p->folded.slots);
	free(p->unfolded.slots);
	table_clear(&p->linked, free);
	free(p->groups);
	spot_close(&p->spot);
	close_fd(p->backups);
	close_fd(p->proc);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->sweeping);
	pthread_mutex_destroy(&p->backing);
	pthread_mutex_destroy(&p->settling);
	free(p);
}

bool place_set_flag_once(struct place *p, bool *flag)
{
	bool first;

	pthread_mutex_lock(&p->lock);
	first = !*flag;
	*flag = true;
	pthread_mutex_unlock(&p->lock);
	return first;
}

bool place_stopped(const struct place *p)
{
	return p->o.stop && p->o.stop(p->o.ctx);
}

bool place_closes_silently(struct place *p, int fd, dev_t dev)
{
	struct statfs fs;

	if (atomic_load_explicit(&p->silent_dev, memory_order_relaxed) == dev)
		return true;
	if (RETRIED(fstatfs(fd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
		atomic_store_explicit(&p->silent_dev, dev, memory_order_relaxed);
		return true;
	default:
		return false;
	}
}

/* ---- paths ----------------------------------------------------------------------------- */

/* From its end to its front, as much as there is room for. */
static size_t format_path_backwards(const struct place_dir *d, const char *name, char *to,
				    size_t size)
{
	size_t at = size - 1, len;

	to[at] = '\0';
	for (;;) {
		len = strlen(name);
		if (len > 0 && at < size - 1 && at > 0)
			to[--at] = '/';
		if (len > at)
			len = at;
		at -= len;
		memcpy(to + at, name + strlen(name) - len, len);
		if (!d || at == 0)
			return at;
		name = d->name;
		d = d->up;
	}
}

/* What the user wrote, and a name in it. */
static void format_spot_path(const struct spot *s, const char *name, char to[static SHOWN_ROOM])
{
	size_t at = format_path_backwards(NULL, name, to, SHOWN_ROOM), len = strlen(s->shown);

	if (*name && len > 0 && s->shown[len - 1] != '/')
		to[--at] = '/';
	if (len > at)
		len = at;
	memcpy(to + at - len, s->shown + strlen(s->shown) - len, len);
	memmove(to, to + at - len, SHOWN_ROOM - (at - len));
}

size_t place_path(const struct place_dir *d, const char *name, char *to, size_t size)
{
	size_t at = format_path_backwards(d, name, to, size);

	memmove(to, to + at, size - at);
	return size - at - 1;
}

char *place_whole_path(const struct place_dir *d)
{
	size_t size = 1;
	char *path;

	for (const struct place_dir *at = d; at; at = at->up)
		size += strlen(at->name) + 1;
	path = malloc(size);
	if (!path)
		fail_as(OUT_MEMORY, "allocate a path: %m");
	else
		place_path(d, "", path, size);
	return path;
}

bool place_dir_fresh(const struct place_dir *d)
{
	return d->fresh;
}

uint32_t place_dir_want(const struct place_dir *d)
{
	return d->want;
}

/* ---- names ----------------------------------------------------------------------------- */

/* With the lock held. */
static int add_created(struct place *p, const char *name, uint32_t id)
{
	size_t size = strlen(name) + 1;
	struct created *c = malloc(sizeof *c + size);

	if (!c)
		return -1;
	memcpy(c->name, name, size);
	c->id = id;
	if (table_put(&p->created, c, NULL)) {
		free(c);
		return -1;
	}
	return 0;
}

/* Remember the name; -1 when it is known already. */
int place_create_once(const struct seat *s, uint32_t id)
{
	struct place *p = s->place;
	char shown[SHOWN_ROOM];
	const struct created *c;
	int ret;

	pthread_mutex_lock(&p->lock);
	c = table_find(&p->created, s->name);
	ret = c ? c->id != id : add_created(p, s->name, id);
	pthread_mutex_unlock(&p->lock);
	if (ret > 0)
		return fail("will not overwrite just-created %s", seat_shown(s, shown));
	return ret ? fail_as(OUT_MEMORY, "create %s: %m", seat_shown(s, shown)) : 0;
}

static int check_name(const char *name)
{
	if (name_is_plain(name))
		return 0;
	return fail_as(OUT_PROTOCOL, "the peer wants to create %s, which is no file's name", name);
}

int place_claim(struct place *p, const char *name)
{
	int ret = 0;

	if (p->o.taken && taken_has(p->o.taken, name))
		return fail("will not overwrite %s: another host's source has just brought it",
			    name);
	if (p->rules->delete) {
		pthread_mutex_lock(&p->lock);
		ret = taken_add(&p->claimed, name);
		pthread_mutex_unlock(&p->lock);
	}
	if (ret == 0 && p->o.on_taken)
		p->o.on_taken(p->o.ctx, name);
	return ret;
}

static int open_seat_at_top(struct place *p, const struct record_file *r, struct seat *s)
{
	const struct spot *spot = &p->spot;
	bool is_dir;

	if ((r->flags & FILE_MANY) && place_need_dir(p))
		return -1;
	pthread_mutex_lock(&p->lock);
	is_dir = p->is_dir;
	s->dirfd = is_dir ? p->top->held.fd : spot->dirfd;
	pthread_mutex_unlock(&p->lock);
	s->name = is_dir ? r->name : spot->name;
	if (!is_dir)
		return spot->dir_only ? spot_fail_needs_dir(&p->o, spot) : 0;
	if (p->rules->no_target_dir)
		return fail("%s is a directory, not a file", spot->shown);
	if (!r->name[0])
		return fail("%s is a directory: a stream needs the name of a file", spot->shown);
	return check_name(r->name) || place_claim(p, r->name) ? -1 : 0;
}

static int open_seat_below(struct place_dir *d, const struct record_file *r, struct seat *s)
{
	if (check_name(r->name) || dir_note_led(d, r->name))
		return -1;
	if (d->missing)
		return 0;
	s->dirfd = dir_use(d);
	return s->dirfd < 0 ? -1 : 0;
}

int seat_open(struct place *p, struct place_dir *d, const struct record_file *r, struct seat *s)
{
	*s = (struct seat){.place = p, .in = d, .dirfd = -1, .name = r->name};
	if (d ? open_seat_below(d, r, s) : open_seat_at_top(p, r, s))
		return -1;
	if (s->dirfd < 0 || (backup_spare(p, s->dirfd, s->name) == 0 &&
			     (s->name == p->spot.name ||
			      place_check_name(p, d ? d : p->top, s->dirfd, s->name) == 0)))
		return 0;
	seat_close(s);
	return -1;
}

void seat_close(struct seat *s)
{
	if (s->in && s->dirfd >= 0)
		dir_release(s->in);
	s->dirfd = -1;
}

const char *seat_shown(const struct seat *s, char to[static SHOWN_ROOM])
{
	const struct spot *spot = &s->place->spot;
	bool is_target = s->name == spot->name || spot->direct;

	if (s->in)
		place_path(s->in, s->name, to, SHOWN_ROOM);
	else
		format_spot_path(spot, is_target ? "" : s->name, to);
	return to;
}

int seat_fail(const struct seat *s, const char *what)
{
	char shown[SHOWN_ROOM];

	return fail("%s %s: %m", what, seat_shown(s, shown));
}

int seat_look(const struct seat *s, struct stat *st)
{
	char shown[SHOWN_ROOM];

	if (s->dirfd < 0)
		return 0;
	if (fstatat(s->dirfd, s->name, st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : fail("look at %s: %m", seat_shown(s, shown));
}
