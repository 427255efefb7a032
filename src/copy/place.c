/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/place_metadata.h"
#include "copy/place_resolve.h"
#include "copy/place_temporary.h"

enum { CREATED_BUCKETS = 1024, PREALLOCATE_MIN = 64 << 10 };

/* A name that this run has made: the second file of that name is refused. */
struct created {
	struct created *next;
	char name[];
};

struct place {
	struct place_opts o;
	struct spot spot;
	mode_t umask;

	pthread_mutex_t lock; /* of all below */
	struct created *created[CREATED_BUCKETS];
	bool swept, told_lost, told_kept;
};

enum how {
	BY_RENAME, /* a temporary that takes the name in the end */
	IN_PLACE, /* a regular file, written as it is */
	AS_IT_IS, /* a device, a FIFO, somebody's descriptor: nothing but written */
};

struct placement {
	struct place *place;
	enum how how;
	int fd;
	bool created; /* in place: was not there */
	char name[NAME_MAX + 1]; /* in place->spot.dirfd */
	struct temporary tmp;
	struct record_file file; /* what the source said of it */
	char shown[PATH_MAX + NAME_MAX + 2];
};

int place_open(const struct place_opts *o, struct place **out)
{
	struct place *p = calloc(1, sizeof *p);

	if (!p)
		return fail_as(OUT_MEMORY, "open %s: %m", o->target);
	p->o = *o;
	p->umask = umask(0);
	umask(p->umask);
	if (spot_resolve(o, &p->spot)) {
		free(p);
		return -1;
	}
	pthread_mutex_init(&p->lock, NULL);
	*out = p;
	return 0;
}

void place_close(struct place *p)
{
	struct created *c;

	if (!p)
		return;
	for (unsigned i = 0; i < CREATED_BUCKETS; i++) {
		while ((c = p->created[i]) != NULL) {
			p->created[i] = c->next;
			free(c);
		}
	}
	spot_close(&p->spot);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static void placement_free(struct placement *t)
{
	if (!t)
		return;
	close_fd(t->fd);
	free(t);
}

static unsigned bucket_of(const char *name)
{
	unsigned h = 5381;

	while (*name)
		h = h * 33 + (unsigned char)*name++;
	return h % CREATED_BUCKETS;
}

/* Remember the name; -1 when it is known already. */
static int create_once(struct place *p, const char *name, const char *shown)
{
	struct created **head = &p->created[bucket_of(name)];
	struct created *c;
	size_t size = strlen(name) + 1;
	int ret = 0;

	pthread_mutex_lock(&p->lock);
	for (c = *head; c && strcmp(c->name, name) != 0; c = c->next)
		;
	if (c) {
		ret = fail("will not overwrite just-created %s", shown);
	} else if ((c = malloc(sizeof *c + size)) == NULL) {
		ret = fail_as(OUT_MEMORY, "create %s: %m", shown);
	} else {
		memcpy(c->name, name, size);
		c->next = *head;
		*head = c;
	}
	pthread_mutex_unlock(&p->lock);
	return ret;
}

/* Is it the first time? Every flag of a place turns once. */
static bool first_time(struct place *p, bool *flag)
{
	bool first;

	pthread_mutex_lock(&p->lock);
	first = !*flag;
	*flag = true;
	pthread_mutex_unlock(&p->lock);
	return first;
}

static int open_waiting(struct place *p, int dirfd, const char *path, int flags)
{
	int fd;

	/* A FIFO waits for its reader. */
	do
		fd = openat(dirfd, path, flags | O_WRONLY | O_CLOEXEC | O_NOCTTY);
	while (fd < 0 && errno == EINTR && !(p->o.stop && p->o.stop(p->o.ctx)));
	return fd;
}

static int open_as_it_is(struct placement *t)
{
	const struct spot *s = &t->place->spot;
	struct stat st;

	t->how = AS_IT_IS;
	if (!s->direct)
		t->fd = open_waiting(t->place, s->dirfd, t->name, O_NOFOLLOW);
	else if (strcmp(s->shown, "/dev/stdout") == 0 && fstat(STDOUT_FILENO, &st) == 0 &&
		 S_ISREG(st.st_mode))
		t->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	else
		t->fd = open_waiting(t->place, AT_FDCWD, s->shown, 0);
	return t->fd < 0 ? fail("open %s: %m", t->shown) : 0;
}

static int open_in_place(struct placement *t, bool exists)
{
	int flags = O_NOFOLLOW | O_WRONLY | O_CLOEXEC | O_NOCTTY;
	int dirfd = t->place->spot.dirfd;

	t->how = IN_PLACE;
	t->created = !exists;
	t->fd = exists ? openat(dirfd, t->name, flags)
		       : openat(dirfd, t->name, flags | O_CREAT | O_EXCL, 0600);
	/* Not truncated: it may be the source. */
	return t->fd < 0 ? fail("open %s: %m", t->shown) : 0;
}

/* Full disks are found out at the start where the file system can tell. */
static int preallocate(struct placement *t)
{
	off_t size = (off_t)t->file.size;
	struct statfs fs;

	if ((t->file.flags & (FILE_STREAM | FILE_SPARSE)) || size < PREALLOCATE_MIN ||
	    t->place->o.sparse)
		return 0;
	if (fstatfs(t->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC) {
		/* There it would clear every page before it is written. */
		if (fs.f_blocks == 0 || (uint64_t)size / (uint64_t)fs.f_bsize <= fs.f_bavail)
			return 0;
		errno = ENOSPC;
		return fail("write %s: %m", t->shown);
	}
	while (fallocate(t->fd, 0, 0, size)) {
		if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
			return fail("write %s: %m", t->shown);
		if (errno != EINTR || (t->place->o.stop && t->place->o.stop(t->place->o.ctx)))
			break;
	}
	return 0;
}

static int open_temporary(struct placement *t)
{
	struct place *p = t->place;

	t->how = BY_RENAME;
	if (first_time(p, &p->swept))
		temporaries_sweep(p->spot.dirfd);
	if (temporary_open(p->spot.dirfd, t->name, &t->tmp))
		return fail("create %s: %m", t->shown);
	t->fd = t->tmp.fd;
	return preallocate(t);
}

static int open_target(struct placement *t)
{
	struct place *p = t->place;
	struct stat st;
	bool exists;

	if (p->spot.direct)
		return open_as_it_is(t);
	exists = fstatat(p->spot.dirfd, t->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!exists && errno != ENOENT)
		return fail("open %s: %m", t->shown);
	if (exists && S_ISDIR(st.st_mode))
		return fail("%s is a directory", t->shown);
	/* A symbolic link here was not named by the user: it is replaced, not followed. */
	if (exists && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return open_as_it_is(t);
	if (exists && S_ISREG(st.st_mode) && faccessat(p->spot.dirfd, t->name, W_OK, AT_EACCESS))
		return fail("open %s: %m", t->shown);
	if (p->o.inplace)
		return open_in_place(t, exists);
	return open_temporary(t);
}

/* Where the file goes in this place. */
static int choose_name(struct placement *t)
{
	struct place *p = t->place;
	bool in_dir = !p->spot.direct && !p->spot.name[0];

	if (!in_dir && (t->file.flags & FILE_MANY))
		return fail("%s is not a directory", p->spot.shown);
	if (!in_dir) {
		snprintf(t->name, sizeof t->name, "%s", p->spot.name);
		snprintf(t->shown, sizeof t->shown, "%s", p->spot.shown);
	} else if (!t->file.name[0]) {
		return fail("%s is a directory: a stream needs the name of a file", p->spot.shown);
	} else {
		if (!name_is_plain(t->file.name))
			return fail_as(OUT_PROTOCOL,
				       "the peer wants to create %s, which is no file's name",
				       t->file.name);
		memcpy(t->name, t->file.name, strlen(t->file.name) + 1);
		snprintf(t->shown, sizeof t->shown, "%s%s%s", p->spot.shown,
			 p->spot.shown[strlen(p->spot.shown) - 1] == '/' ? "" : "/", t->name);
	}
	return create_once(p, t->name, t->shown);
}

int place_begin(struct place *p, const struct record_file *r, struct placement **out)
{
	struct placement *t = calloc(1, sizeof *t);

	if (!t)
		return fail_as(OUT_MEMORY, "create %s: %m", r->name);
	t->place = p;
	t->fd = -1;
	t->file = *r;
	if (choose_name(t)) {
		free(t);
		return -1;
	}
	if (open_target(t)) {
		place_drop(t, false);
		return -1;
	}
	*out = t;
	return 0;
}

int placement_fd(const struct placement *t)
{
	return t->fd;
}

bool placement_fresh(const struct placement *t)
{
	return t->how == BY_RENAME || (t->how == IN_PLACE && t->created);
}

bool placement_sized(const struct placement *t)
{
	return t->how != AS_IT_IS;
}

const char *placement_name(const struct placement *t)
{
	return t->shown;
}

static int set_metadata(struct placement *t)
{
	struct place *p = t->place;
	const char *lost = NULL;
	struct stat st;
	int old = -1, ret = 0;

	if (t->how == BY_RENAME)
		old = openat(p->spot.dirfd, t->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (old >= 0 && fstat(old, &st) == 0 && S_ISREG(st.st_mode))
		ret = metadata_keep(t->fd, old, !p->o.preserve, &lost);
	else if (t->how == BY_RENAME || t->created)
		ret = fchmod(t->fd, t->file.mode & 0777 & ~p->umask);
	if (ret == 0 && p->o.preserve && !(t->file.flags & FILE_STREAM))
		ret = metadata_preserve(t->fd, &t->file);
	if (ret)
		ret = fail("set mode and times of %s: %m", t->shown);
	else if (lost && first_time(p, &p->told_lost))
		log_warn("%s: its %s could not be kept", t->shown, lost);
	close_fd(old);
	return ret;
}

static int sync_file(const struct placement *t)
{
	if (!t->place->o.fsync || fsync(t->fd) == 0)
		return 0;
	if (t->how == AS_IT_IS && (errno == EINVAL || errno == EROFS || errno == ENOTSUP))
		return 0;
	return fail("fsync %s: %m", t->shown);
}

/* Some file systems tell of a failed write at close only; the lock must outlive that. */
static int close_errors(const struct placement *t)
{
	int fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0 && close(fd) == 0)
		return 0;
	return fail("close %s: %m", t->shown);
}

static int sync_dir(const struct placement *t)
{
	int fd, ret;

	if (!t->place->o.fsync || (t->how == IN_PLACE && !t->created))
		return 0;
	fd = openat(t->place->spot.dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = fd < 0 || fsync(fd) ? fail("fsync the directory of %s: %m", t->shown) : 0;
	close_fd(fd);
	return ret;
}

static int finish(struct placement *t, uint64_t size)
{
	int dirfd = t->place->spot.dirfd;

	if (t->how == AS_IT_IS)
		return sync_file(t) || close_errors(t) ? -1 : 0;
	if (ftruncate(t->fd, (off_t)size))
		return fail("write %s: %m", t->shown);
	if (set_metadata(t) || sync_file(t) || close_errors(t))
		return -1;
	if (t->how == BY_RENAME) {
		if (renameat(dirfd, t->tmp.name, dirfd, t->name))
			return fail("rename to %s: %m", t->shown);
		t->how = IN_PLACE;
		t->created = true;
	}
	return sync_dir(t);
}

int place_finish(struct placement *t, uint64_t size)
{
	bool renamed;

	if (finish(t, size) == 0) {
		placement_free(t);
		return 0;
	}
	/* After the rename the file is whole; only that it is durable is not certain. */
	renamed = t->how == IN_PLACE && t->tmp.name[0];
	if (renamed)
		placement_free(t);
	else
		place_drop(t, false);
	return -1;
}

void place_drop(struct placement *t, bool keep)
{
	struct place *p = t->place;
	const char *name = t->how == BY_RENAME ? t->tmp.name : t->name;
	bool ours = t->fd >= 0 && (t->how == BY_RENAME || (t->how == IN_PLACE && t->created));

	if (ours && keep && t->how == BY_RENAME && !t->tmp.random) {
		if (first_time(p, &p->told_kept))
			log_warn("%s: what came of it is kept as %s, which the next run takes over",
				 t->shown, name);
	} else if (ours) {
		unlinkat(p->spot.dirfd, name, 0);
	}
	placement_free(t);
}
