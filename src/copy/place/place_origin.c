/* SPDX-License-Identifier: Apache-2.0 */

/* Detects a source that is its own target, or a directory that contains the target. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

enum { ORIGINS_BYTES_MAX = 16 << 20 /* of memory for their hashes */ };

static bool is_origin(const struct stat *st, const struct place_origin *o)
{
	return o->dir == (bool)S_ISDIR(st->st_mode) && origin_equals(origin_of(st), o->origin);
}

/* Is the source what exists where it would be stored?  Symlinks in DST are resolved already
 * (dst_resolve()). */
static bool is_origin_at_target(struct place *p, struct place_dir *d, const struct place_origin *o)
{
	const char *name = d || p->is_dir ? o->name : p->dst.name;
	int in = d ? dir_use(d) : p->is_dir ? p->top->held.fd : p->dst.dirfd;
	struct stat st;
	bool exists;

	if (in < 0)
		return false;
	if (!o->name[0] && o->dir && p->is_dir)
		exists = fstat(in, &st) == 0;
	else
		exists = *name && fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (d)
		dir_release(d);
	return exists && is_origin(&st, o);
}

/* Is the source a directory above the target, or above the directory that the target will be in? */
static bool is_origin_above(const struct place *p, const struct place_origin *o)
{
	int fd = dir_reopen(p->is_dir ? p->top->held.fd : p->dst.dirfd), up;
	struct stat st, below = {0};
	bool found = false;

	while (fd >= 0 && !found && fstat(fd, &st) == 0 &&
	       (st.st_dev != below.st_dev || st.st_ino != below.st_ino)) {
		found = is_origin(&st, o);
		below = st;
		up = RETRIED(openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		close_fd(fd);
		fd = up;
	}
	close_fd(fd);
	return found;
}

/* Call with target_lock held, because another lane may turn the target into a directory. */
static int check_not_target(struct place *p, struct place_dir *d, const struct place_origin *o)
{
	bool tree = p->rules->recursive || p->rules->listed;

	if (is_origin_at_target(p, d, o))
		return fail("%s and %s are the same %s", o->source, p->opts.target,
			    tree ? "directory or file" : "file");
	if (o->dir && !p->rules->listed && is_origin_above(p, o))
		return fail("%s is in %s, which can't be copied into itself", p->opts.target,
			    o->source);
	return 0;
}

static int remember_origin(struct place *p, struct origin o)
{
	int ret;

	pthread_mutex_lock(&p->lock);
	ret = hash_set_add(&p->origins, o.hash, sizeof o.hash, ORIGINS_BYTES_MAX, "sources");
	pthread_mutex_unlock(&p->lock);
	return ret < 0 ? -1 : 0;
}

bool place_is_source(struct place *p, const struct stat *st)
{
	return place_is_origin(p, origin_of(st));
}

bool place_is_origin(struct place *p, struct origin o)
{
	bool is;

	pthread_mutex_lock(&p->lock);
	is = hash_set_has(&p->origins, o.hash, sizeof o.hash);
	pthread_mutex_unlock(&p->lock);
	return is;
}

/* The source only says that it has this name in d, before it sends what a backup of that name would
 * be of. */
static int spare_name(struct place *p, struct place_dir *d, const char *name)
{
	int in, ret;

	if (d && d->missing)
		return 0;
	pthread_mutex_lock(&p->lock);
	in = p->is_dir ? p->top->held.fd : -1;
	pthread_mutex_unlock(&p->lock);
	if (d)
		in = dir_use(d);
	if (in < 0)
		return 0;
	ret = backup_spare(p, in, name);
	if (d)
		dir_release(d);
	return ret;
}

int place_check_origin(struct place *p, struct place_dir *d, const struct place_origin *o)
{
	int ret;

	if (!origin_is_known(o->origin))
		return spare_name(p, d, o->name);
	if ((p->rules->delete || p->rules->backup) && remember_origin(p, o->origin))
		return -1;
	if (p->dst.by_path || p->dst.dir_missing || (d && d->missing))
		return 0;
	pthread_mutex_lock(&p->target_lock);
	ret = check_not_target(p, d, o);
	pthread_mutex_unlock(&p->target_lock);
	return ret;
}
