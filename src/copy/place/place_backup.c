/* SPDX-License-Identifier: Apache-2.0 */

/* --backup keeps what is replaced or deleted, as NAME~ or below --backup-dir. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "lane/fault.h"

enum { TRIES = 4, NAMES_BYTES_MAX = 256 << 20 /* some 16 million names */ };

bool backup_is(const struct place *p, const char *name)
{
	size_t len = strlen(name), more = strlen(p->suffix);

	return place_backs_up(p) && !*p->rules->backup_dir && len > more &&
	       strcmp(name + len - more, p->suffix) == 0;
}

static int open_backups(struct place *p)
{
	struct stat st;
	int in;

	pthread_mutex_lock(&p->lock);
	in = p->is_dir ? p->top->held.fd : p->spot.dirfd;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_lock(&p->backing);
	if (p->backups < 0)
		p->backups = backups_open(in, p->rules->backup_dir);
	in = p->backups;
	pthread_mutex_unlock(&p->backing);
	/* It would take the place of what is still to be read. */
	if (in >= 0 && fstat(in, &st) == 0 && place_is_source(p, &st))
		return fail("back up to %s: it is a source", p->rules->backup_dir);
	return in;
}

enum { OPEN_DIR = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* A new one, fd, of what is in the directory like: who may see that may see its backups, and nobody
 * else.  We have to put some there.  -1 with errno. */
static int copy_dir_access(struct place *p, int fd, int like)
{
	struct stat is, st;
	mode_t mode;

	if (like < 0)
		return 0;
	if (fstat(like, &st) || fstat(fd, &is))
		return -1;
	if (is.st_uid != p->uid)
		return 0;
	mode = (st.st_mode & 07777) | S_IWUSR | S_IXUSR;
	if (st.st_gid != is.st_gid && fchownat(fd, "", (uid_t)-1, st.st_gid, AT_EMPTY_PATH))
		mode &= ~(mode_t)(S_ISGID | S_IRWXG);
	if (st.st_uid != is.st_uid && fchownat(fd, "", st.st_uid, (gid_t)-1, AT_EMPTY_PATH))
		mode &= ~(mode_t)S_ISUID;
	if (metadata_chmod(p, fd, mode) == 0)
		return 0;
	if (errno != EPERM && errno != EOPNOTSUPP)
		return -1;
	/* Some file systems have none. */
	if ((is.st_mode & 07777) != mode)
		metadata_warn_mode_unset(p, "a directory of backups");
	return 0;
}

/* One that stayed would keep its mode, since it is no longer new.  errno stays. */
static void remove_new_dir(int at, const char *name)
{
	int err = errno;

	unlinkat(at, name, AT_REMOVEDIR);
	errno = err;
}

/* -1 with errno.  What an earlier run set aside under that name was no directory then. */
static int enter_backup_dir(struct place *p, int at, const char *name, int like)
{
	bool made;
	int fd = -1;

	for (int i = 0; fd < 0 && i < TRIES; i++) {
		made = mkdirat(at, name, 0700) == 0;
		if (!made && errno != EEXIST)
			return -1;
		fd = RETRIED(openat(at, name, OPEN_DIR));
		if (fd >= 0 && made && copy_dir_access(p, fd, like)) {
			close_fd(fd);
			remove_new_dir(at, name);
			return -1;
		}
		if (fd < 0 && errno != ENOTDIR && errno != ELOOP)
			return -1;
		if (fd < 0 && delete_old_backup(p, at, p->rules->backup_dir, name)) {
			errno = ENOTDIR;
			return -1;
		}
	}
	return fd;
}

/* Is that the first part of paths from the top, and the target itself? */
static bool is_target_name(struct place *p, const char *name)
{
	const struct place_dir *d;

	pthread_mutex_lock(&p->lock);
	for (d = p->dirs; d && !(d->is_target && strcmp(d->name, name) == 0);)
		d = d->next;
	pthread_mutex_unlock(&p->lock);
	return d != NULL;
}

/* What is called name in the directory *like, of which we are at `dir': it is closed.  -1 with
 * errno; where the target has no such directory *like is -1 from there on. */
static int open_like_subdir(struct place *p, int *like, const char *name, bool first)
{
	int in = *like;

	if (in < 0 || (first && is_target_name(p, name)))
		return 0;
	*like = RETRIED(openat(in, name, OPEN_DIR));
	close_fd(in);
	return *like >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
}

/* The directory dir below --backup-dir. */
static int open_backup_dir(struct place *p, const char *dir)
{
	int at = open_backups(p), next, like = -1;
	char name[NAME_MAX + 1];
	const char *from = dir;
	size_t len;

	if (at < 0)
		return -1;
	at = fcntl(at, F_DUPFD_CLOEXEC, 0);
	if (at >= 0 && *dir && p->top->held.fd >= 0) {
		like = fcntl(p->top->held.fd, F_DUPFD_CLOEXEC, 0);
		if (like < 0) {
			close_fd(at);
			at = -1;
		}
	}
	for (; at >= 0 && *dir; dir += len + (dir[len] == '/')) {
		len = strcspn(dir, "/");
		snprintf(name, sizeof name, "%.*s", (int)len, dir);
		next = open_like_subdir(p, &like, name, dir == from)
			       ? -1
			       : enter_backup_dir(p, at, name, like);
		close_fd(at);
		at = next;
	}
	close_fd(like);
	return at < 0 ? fail("make directory %s in %s: %s", from, p->rules->backup_dir,
			     metadata_error_text(p))
		      : at;
}

/* Errors of file systems without hard links, and of files that may not have more. */
static bool has_no_links(int err)
{
	return err == EPERM || err == EOPNOTSUPP || err == EMLINK || err == ENOSYS || err == EINVAL;
}

static bool is_same_inode(int dirfd, const char *name, int other, const char *as)
{
	struct stat a, b;

	return fstatat(dirfd, name, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(other, as, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* What an earlier run set aside is of another kind. */
static bool is_backup_blocked(int err)
{
	return err == EEXIST || err == EISDIR || err == ENOTDIR || err == ENOTEMPTY;
}

/* What is to be set aside, and where. */
struct backup_move {
	struct place *place;
	int from, to;
	const char *name, *as;
	const char *dir; /* the path of either, from the top */
};

static int move_to_backup(const struct backup_move *a, bool moved)
{
	char in[SHOWN_ROOM];
	int ret;

	snprintf(in, sizeof in, "%s%s%s", a->place->rules->backup_dir,
		 *a->place->rules->backup_dir && *a->dir ? "/" : "", a->dir);
	for (int i = 0; i < TRIES; i++) {
		ret = moved ? renameat(a->from, a->name, a->to, a->as)
			    : linkat(a->from, a->name, a->to, a->as, 0);
		/* Of two names of one file the kernel renames none over the other. */
		if (ret == 0 && moved && is_same_inode(a->from, a->name, a->to, a->as))
			ret = unlinkat(a->from, a->name, 0);
		if (ret == 0 || errno == ENOENT)
			return 0;
		if (!moved && has_no_links(errno))
			moved = true;
		else if (!is_backup_blocked(errno))
			break;
		else if (delete_old_backup(a->place, a->to, in, a->as))
			return -1;
	}
	if (errno == EXDEV && *a->place->rules->backup_dir)
		return fail(
			"back up %s%s%s: %s is on another file system, and a backup is the file "
			"itself",
			a->dir, *a->dir ? "/" : "", a->name, a->place->rules->backup_dir);
	return fail("back up %s%s%s: %m", a->dir, *a->dir ? "/" : "", a->name);
}

/* It must not be less durable than what takes its place. */
static int sync_backup(const struct place *p, int dirfd, const char *name)
{
	int fd, ret;

	if (!p->rules->fsync)
		return 0;
	fd = dir_reopen(dirfd);
	ret = fd < 0 || fsync(fd) ? fail("fsync the directory of the backup of %s: %m", name) : 0;
	close_fd(fd);
	return ret;
}

/* ---- names that the source has, too ---------------------------------------------------- */

static size_t fill_name_key(int dirfd, const char *name, struct name_key *key)
{
	struct stat st;
	bool known = fstat(dirfd, &st) == 0;

	return name_key_set(key, known ? st.st_dev : 0, known ? st.st_ino : 0, name);
}

int backup_spare(struct place *p, int dirfd, const char *name)
{
	struct name_key key;
	size_t size;
	int ret;

	if (p->rules->dry_run || !backup_is(p, name))
		return 0;
	size = fill_name_key(dirfd, name, &key);
	pthread_mutex_lock(&p->lock);
	ret = hashes_add(&p->taken, &key, size, fault_bound(NAMES_BYTES_MAX), "names of backups");
	pthread_mutex_unlock(&p->lock);
	return ret < 0 ? -1 : 0;
}

static bool is_spared(struct place *p, int dirfd, const char *name)
{
	struct name_key key;
	size_t size = fill_name_key(dirfd, name, &key);
	bool is;

	pthread_mutex_lock(&p->lock);
	is = hashes_has(&p->taken, &key, size);
	pthread_mutex_unlock(&p->lock);
	return is;
}

/* ---- making one ------------------------------------------------------------------------ */

int backup_make(struct place *p, int dirfd, const char *name, const char *dir, bool moved)
{
	char as[NAME_MAX + 1];
	size_t len = strlen(name), more = strlen(p->suffix);
	int to = dirfd, ret;

	memcpy(as, name, len + 1);
	do {
		if (len + more >= sizeof as)
			return fail("back up %s: the name with %s is too long", name, p->suffix);
		memcpy(as + len, p->suffix, more + 1);
		len += more;
	} while (!*p->rules->backup_dir && is_spared(p, dirfd, as));
	if (*p->rules->backup_dir) {
		to = open_backup_dir(p, dir);
		if (to < 0)
			return -1;
	}
	ret = move_to_backup(&(struct backup_move){p, dirfd, to, name, as, dir}, moved);
	if (to != dirfd && ret == 0)
		ret = sync_backup(p, to, name);
	if (to != dirfd)
		close_fd(to);
	return ret;
}

int backup_make_of_seat(const struct seat *s, bool moved)
{
	char *dir = place_whole_path(s->in);
	int ret = dir ? backup_make(s->place, s->dirfd, s->name, dir, moved) : -1;

	free(dir);
	return ret;
}

/* From there up to the target, or to the root. */
void backup_lineage(struct place *p, struct lineage *l)
{
	int at = -1, up;
	struct stat st;

	l->count = 0;
	if (!place_backs_up(p) || !*p->rules->backup_dir || p->top->held.fd < 0)
		return;
	at = backups_find(p->top->held.fd, p->rules->backup_dir);
	while (at >= 0 && l->count < sizeof l->of / sizeof *l->of && fstat(at, &st) == 0) {
		if (st.st_dev == p->top->held.dev && st.st_ino == p->top->held.ino)
			break;
		if (l->count > 0 && l->of[l->count - 1].ino == st.st_ino &&
		    l->of[l->count - 1].dev == st.st_dev)
			break;
		l->of[l->count++] = (struct inode){.dev = st.st_dev, .ino = st.st_ino};
		up = RETRIED(openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
		close_fd(at);
		at = up;
	}
	close_fd(at);
}

bool backup_is_in(const struct lineage *l, const struct stat *st)
{
	for (size_t i = 0; i < l->count; i++) {
		if (l->of[i].dev == st->st_dev && l->of[i].ino == st->st_ino)
			return true;
	}
	return false;
}
