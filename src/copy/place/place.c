/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/attr/modes.h"

/* A name in the target itself that this run created.  A second file with that name is refused.  In
 * a directory below, only a malicious peer sends a name twice, and that harms nobody else. */
struct created {
	uint32_t id; /* the same file may be begun again */
	char name[];
};

static const struct rules plain = RULES_PLAIN;

/* ---- opening and closing --------------------------------------------------------------- */

static int read_groups(struct place *p)
{
	int n = getgroups(0, NULL);

	p->groups = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *p->groups);
	if (!p->groups)
		return fail_as(OUT_MEMORY, "open %s: %m", p->opts.target);
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
		return fail_as(OUT_MEMORY, "open %s: %m", p->opts.target);
	p->is_dir = !p->dst.by_path && !p->dst.name[0];
	p->top->missing = p->dst.dir_missing;
	atomic_init(&p->top->unswept, true);
	if (!p->is_dir || p->dst.dir_missing)
		return 0;
	if (fstat(p->dst.dirfd, &st))
		return fail("open %s: %m", p->dst.shown);
	p->top->held.fd = p->dst.dirfd;
	p->top->held.dev = st.st_dev;
	p->top->held.ino = st.st_ino;
	return 0;
}

static struct place *place_new(const struct place_opts *o)
{
	struct place *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->opts = *o;
	if (!p->opts.rules)
		p->opts.rules = &plain;
	p->rules = p->opts.rules;
	p->backup_dir = p->rules->backup_dir;
	p->suffix = *p->rules->suffix ? p->rules->suffix : *p->rules->backup_dir ? "" : "~";
	p->created = TABLE_BY_STRING(created, name);
	linked_begin(p);
	sharing_begin(p);
	p->umask = umask(0);
	umask(p->umask);
	p->uid = geteuid();
	clock_gettime(CLOCK_REALTIME_COARSE, &p->started);
	p->dst.dirfd = -1;
	p->backups_fd = -1;
	p->proc = procfs_open();
	p->proc_error = p->proc < 0 ? errno : 0;
	pthread_mutex_init(&p->target_lock, NULL);
	pthread_mutex_init(&p->backups_lock, NULL);
	pthread_mutex_init(&p->sweep_lock, NULL);
	pthread_mutex_init(&p->lock, NULL);
	dirs_init(p);
	return p;
}

int place_open(const struct place_opts *o, struct place **out)
{
	struct place *p = place_new(o);

	if (!p)
		return fail_as(OUT_MEMORY, "open %s: %m", o->target);
	if ((p->rules->incoming_chmod && modes_parse(p->rules->incoming_chmod, &p->incoming)) ||
	    owners_parse(p->rules->chown, &p->chown_uid, &p->chown_gid) || read_groups(p) ||
	    dst_resolve(&p->opts, &p->dst) || open_top(p) || backup_dir_begin(p)) {
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
	struct dst dst;
	int ret;

	dry.dry_run = true;
	ret = dst_resolve(&o, &dst) || dst_writable(&dst, rules->inplace) ? -1 : 0;
	dst_close(&dst);
	return ret;
}

void place_close(struct place *p)
{
	if (!p)
		return;
	dirs_free(p);
	modes_free(p->incoming);
	table_clear(&p->created, free);
	free(p->backup_lookalikes.slots);
	free(p->backups_made.slots);
	free(p->origins.slots);
	free(p->target_dirs.slots);
	free(p->backups_above);
	taken_free(&p->claimed);
	free(p->folded_names.slots);
	free(p->exact_names.slots);
	table_clear(&p->linked, free);
	sharing_end(p);
	free(p->groups);
	dst_close(&p->dst);
	close_fd(p->backups_fd);
	close_fd(p->proc);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->sweep_lock);
	pthread_mutex_destroy(&p->backups_lock);
	pthread_mutex_destroy(&p->target_lock);
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
	return p->opts.stop && p->opts.stop(p->opts.ctx);
}

bool place_close_never_fails(struct place *p, int fd, dev_t dev)
{
	struct statfs fs;

	if (atomic_load_explicit(&p->safe_close_dev, memory_order_relaxed) == dev)
		return true;
	if (RETRIED(fstatfs(fd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
		atomic_store_explicit(&p->safe_close_dev, dev, memory_order_relaxed);
		return true;
	default:
		return false;
	}
}

/* ---- paths ----------------------------------------------------------------------------- */

/* Writes the path to the end of `to', from its last component to its first, as much as fits.
 * Returns where it begins. */
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

/* ---- names ----------------------------------------------------------------------------- */

/* Call with the lock held. */
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

int place_create_once(const struct place_entry *s, uint32_t id)
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
		return fail("will not overwrite just-created %s", entry_shown(s, shown));
	return ret ? fail_as(OUT_MEMORY, "create %s: %m", entry_shown(s, shown)) : 0;
}

int place_claim(struct place *p, const char *name)
{
	int ret = 0;

	if (p->opts.taken && taken_has(p->opts.taken, name))
		return fail("will not overwrite just-created %s: a source on another host has the "
			    "same name",
			    name);
	if (p->rules->delete) {
		pthread_mutex_lock(&p->lock);
		ret = taken_add(&p->claimed, name);
		pthread_mutex_unlock(&p->lock);
	}
	if (ret == 0 && p->opts.on_taken)
		p->opts.on_taken(p->opts.ctx, name);
	return ret;
}

uint64_t place_identity(const struct place *p)
{
	struct utsname host;
	struct statfs fs;
	struct stat st;
	uint64_t where[2] = {0}, of_host;
	int fd = p->top->held.fd;

	if (!p->is_dir || fd < 0 || fstat(fd, &st))
		return 0;
	/* The number of a device may be another one tomorrow, but some file systems have no id. */
	if (RETRIED(fstatfs(fd, &fs)) == 0)
		memcpy(&where[0], &fs.f_fsid, sizeof where[0]);
	if (where[0] == 0)
		where[0] = st.st_dev;
	where[1] = st.st_ino;
	of_host = uname(&host) == 0 ? XXH3_64bits(host.nodename, strlen(host.nodename)) : 0;
	return XXH3_64bits_withSeed(where, sizeof where, of_host) | 1;
}
