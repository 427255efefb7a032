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
#include "base/suffix.h"
#include "copy/names/own_files.h"
#include "lane/fault.h"

enum { COMPARED_BYTES = 256 << 10 /* at once: few reads, and little memory */ };
enum { TRIES = 4, NAMES_BYTES_MAX = 256 << 20 /* some 16 million names */ };

bool backup_is(const struct place *p, const char *name)
{
	return place_backs_up(p) && !*p->backup_dir && ends_with(name, p->suffix);
}

enum { OPEN_DIR = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* Only root may give a directory to another user; a user may give it to one of the user's groups.
 * Some file systems have no owners. */
static bool is_not_permitted(int err)
{
	return err == EPERM || err == EACCES || err == EINVAL || err == EOPNOTSUPP || err == ENOSYS;
}

/* Gives the new backup directory fd the owner, group and mode of the directory model_fd, so that
 * exactly the users that may read a file may read its backups.  Adds the rights that this process
 * needs to put backups there.  model_fd -1: changes nothing.  -1 with errno. */
static int copy_dir_access(struct place *p, int fd, int model_fd)
{
	struct stat st, model;
	unsigned group;
	mode_t mode;

	if (model_fd < 0)
		return 0;
	if (fstat(model_fd, &model) || fstat(fd, &st))
		return -1;
	if (st.st_uid != p->uid)
		return 0;
	/* The group bits of a directory with an ACL are the rights of everyone whom that names. */
	(void)xattrs_group_without_acl(fd, model_fd, "the directory of a backup", &group);
	mode = (model.st_mode & (07777 & ~(mode_t)S_IRWXG)) | S_IWUSR | S_IXUSR |
	       (model.st_mode & S_IRWXG & (mode_t)group << 3);
	if (model.st_gid != st.st_gid && fchownat(fd, "", (uid_t)-1, model.st_gid, AT_EMPTY_PATH)) {
		if (!is_not_permitted(errno))
			return -1;
		mode &= ~(mode_t)(S_ISGID | S_IRWXG);
	}
	if (model.st_uid != st.st_uid && fchownat(fd, "", model.st_uid, (gid_t)-1, AT_EMPTY_PATH)) {
		if (!is_not_permitted(errno))
			return -1;
		mode &= ~(mode_t)S_ISUID;
	}
	if (metadata_chmod(p, fd, mode) == 0)
		return 0;
	if (errno != EPERM && errno != EOPNOTSUPP)
		return -1;
	/* The file system has no modes. */
	if ((st.st_mode & 07777) != mode)
		metadata_warn_mode_unset(p, "a backup directory");
	return 0;
}

/* If it stayed, a later call would not set its mode, because it would no longer be new.  Preserves
 * errno. */
static void remove_new_dir(int at, const char *name)
{
	int err = errno;

	unlinkat(at, name, AT_REMOVEDIR);
	errno = err;
}

/* Preserves errno. */
static bool is_dir_at(int at, const char *name)
{
	struct stat st;
	int err = errno;
	bool is = fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);

	errno = err;
	return is;
}

/* If a backup of an earlier run has the name and is no directory, removes it.  -1 with errno. */
static int enter_backup_dir(struct place *p, int at, const char *name, int model_fd)
{
	bool made = false;
	int fd = -1;

	for (int i = 0; fd < 0 && i < TRIES; i++) {
		if (mkdirat(at, name, 0700) == 0)
			made = true;
		else if (errno != EEXIST)
			return -1;
		fd = RETRIED(openat(at, name, OPEN_DIR));
		if (fd >= 0 && made && copy_dir_access(p, fd, model_fd)) {
			close_fd(fd);
			remove_new_dir(at, name);
			return -1;
		}
		if (fd < 0 && errno != ENOTDIR && errno != ELOOP)
			return -1;
		/* A directory may have backups of this run. */
		if (fd < 0 && !is_dir_at(at, name) &&
		    delete_old_backup(p, at, p->backup_dir, name)) {
			errno = ENOTDIR;
			return -1;
		}
	}
	return fd;
}

/* Is name the first component of paths, and does it stand for the target itself? */
static bool is_target_name(struct place *p, const char *name)
{
	const struct place_dir *d;

	pthread_mutex_lock(&p->lock);
	for (d = p->targets; d && strcmp(d->name, name) != 0;)
		d = d->next_target;
	pthread_mutex_unlock(&p->lock);
	return d != NULL;
}

/* Replaces the descriptor *model_fd by that of the directory name in it; -1 if the target has no
 * such directory.  first: name is the first component of the path.  -1 with errno. */
static int open_like_subdir(struct place *p, int *model_fd, const char *name, bool first)
{
	int in = *model_fd;

	if (in < 0 || (first && is_target_name(p, name)))
		return 0;
	*model_fd = RETRIED(openat(in, name, OPEN_DIR));
	close_fd(in);
	return *model_fd >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
}

static int fail_backup_dir(const struct place *p, const char *dir, const char *of)
{
	const char *why = metadata_error_text(p);

	if (*dir)
		return fail("back up %s: make directory %s in %s: %s", of, dir, p->backup_dir, why);
	return fail("back up %s: open %s: %s", of, p->backup_dir, why);
}

/* Opens the directory dir below --backup-dir, for a backup of the file `of'; makes it if it is
 * missing. */
static int open_backup_dir(struct place *p, const char *dir, const char *of)
{
	int at = backup_dir_open(p, of), next, model_fd = -1;
	char name[NAME_MAX + 1];
	const char *from = dir;
	size_t len;

	if (at < 0)
		return -1;
	at = fcntl(at, F_DUPFD_CLOEXEC, 0);
	if (at >= 0 && *dir && p->top->held.fd >= 0) {
		model_fd = fcntl(p->top->held.fd, F_DUPFD_CLOEXEC, 0);
		if (model_fd < 0) {
			close_fd(at);
			at = -1;
		}
	}
	for (; at >= 0 && *dir; dir += len + (dir[len] == '/')) {
		len = strcspn(dir, "/");
		snprintf(name, sizeof name, "%.*s", (int)len, dir);
		next = open_like_subdir(p, &model_fd, name, dir == from)
			       ? -1
			       : enter_backup_dir(p, at, name, model_fd);
		close_fd(at);
		at = next;
		if (at >= 0 && backup_dir_check_entered(p, at, name, of)) {
			close_fd(at);
			close_fd(model_fd);
			return -1;
		}
	}
	close_fd(model_fd);
	return at < 0 ? fail_backup_dir(p, from, of) : at;
}

/* The file system has no hard links, or the file may not have another one. */
static bool is_link_unsupported(int err)
{
	return err == EPERM || err == EOPNOTSUPP || err == EMLINK || err == ENOSYS || err == EINVAL;
}

/* A backup of an earlier run is in the way, and of another type. */
static bool is_backup_blocked(int err)
{
	return err == EEXIST || err == EISDIR || err == ENOTDIR || err == ENOTEMPTY;
}

struct backup_move {
	struct place *place;
	int from_dirfd, to_dirfd;
	const char *name, *backup_name;
	const char *dir; /* of from_dirfd from the top, of to_dirfd below --backup-dir */
};

/* Are both names hard links to one inode?  1 yes, 0 no, -1 with errno. */
static int is_linked_to_backup(const struct backup_move *m)
{
	struct stat original, backup;

	if (fstatat(m->to_dirfd, m->backup_name, &backup, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -1;
	if (fstatat(m->from_dirfd, m->name, &original, AT_SYMLINK_NOFOLLOW))
		return -1;
	/* rename(2) says so too, but a link that was made for it would have to be removed. */
	if (S_ISDIR(backup.st_mode) && !S_ISDIR(original.st_mode)) {
		errno = EISDIR;
		return -1;
	}
	return original.st_dev == backup.st_dev && original.st_ino == backup.st_ino;
}

/* -1 with errno, and then the name is still there. */
static int rename_to_backup(const struct backup_move *m)
{
	int linked = is_linked_to_backup(m);

	if (linked < 0)
		return -1;
	/* rename(2) does nothing if both names are hard links to one inode. */
	if (linked)
		return unlinkat(m->from_dirfd, m->name, 0);
	return renameat(m->from_dirfd, m->name, m->to_dirfd, m->backup_name);
}

/* Links the name over an older backup, which has its name until the new one has it: whenever the
 * run or the host dies, there is a backup.  The temporary is where later runs look for them. */
static int link_over_backup(const struct backup_move *m)
{
	char temporary[OWN_NAME_ROOM];
	int linked = is_linked_to_backup(m), err;

	if (linked)
		return linked < 0 ? -1 : 0;
	for (int i = 0; i < TRIES; i++) {
		if (temporary_name(m->name, m->place->uid, temporary) ||
		    linkat(m->from_dirfd, m->name, m->from_dirfd, temporary, 0))
			return -1;
		if (renameat(m->from_dirfd, temporary, m->to_dirfd, m->backup_name) == 0)
			return 0;
		err = errno;
		unlinkat(m->from_dirfd, temporary, 0);
		/* ENOENT: another run took it for a leftover. */
		errno = err == ENOENT ? EBUSY : err;
		if (err != ENOENT)
			return -1;
	}
	return -1;
}

/* -1 with errno. */
static int link_to_backup(const struct backup_move *m)
{
	if (linkat(m->from_dirfd, m->name, m->to_dirfd, m->backup_name, 0) == 0)
		return 0;
	return errno == EEXIST ? link_over_backup(m) : -1;
}

static int check_replaced(const struct backup_move *m)
{
	struct stat st;

	if (fstatat(m->to_dirfd, m->backup_name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (own_files_has(&st))
		return fail("replace backup %s: this command writes it", m->backup_name);
	if (!*m->place->backup_dir)
		return 0;
	return backup_dir_check_replaced(m->place, m->backup_name, &st);
}

static int move_to_backup(const struct backup_move *m, bool moved)
{
	char in[SHOWN_ROOM];
	int ret;

	if (check_replaced(m))
		return -1;
	snprintf(in, sizeof in, "%s%s%s", m->place->backup_dir,
		 *m->place->backup_dir && *m->dir ? "/" : "", m->dir);
	for (int i = 0; i < TRIES; i++) {
		ret = moved ? rename_to_backup(m) : link_to_backup(m);
		if (ret == 0)
			break;
		if (errno == ENOENT)
			return 0;
		if (!moved && is_link_unsupported(errno))
			moved = true;
		else if (!is_backup_blocked(errno))
			break;
		else if (delete_old_backup(m->place, m->to_dirfd, in, m->backup_name))
			return -1;
		else
			errno = EEXIST; /* in case this was the last try */
	}
	if (ret == 0)
		return 0;
	if (errno == EXDEV && *m->place->backup_dir)
		return fail("back up %s%s%s: --backup-dir=%s is on another file system than the "
			    "file, which is moved and not copied",
			    m->dir, *m->dir ? "/" : "", m->name, m->place->backup_dir);
	return fail("back up %s%s%s: %m", m->dir, *m->dir ? "/" : "", m->name);
}

/* The backup must be on disk before the file that replaces the original. */
static int sync_backup(const struct place *p, int dirfd, const char *name)
{
	if (!p->rules->fsync || dir_sync(dirfd) == 0)
		return 0;
	return fail("fsync the directory of the backup of %s: %m", name);
}

/* ---- names of the source that look like names of backups ------------------------------- */

size_t name_key_fill(int dirfd, const char *name, struct name_key *key)
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
	size = name_key_fill(dirfd, name, &key);
	pthread_mutex_lock(&p->lock);
	ret = hash_set_add(&p->backup_lookalikes, &key, size, fault_bound(NAMES_BYTES_MAX),
			   "names of backups");
	pthread_mutex_unlock(&p->lock);
	return ret < 0 ? -1 : 0;
}

static bool is_spared(struct place *p, int dirfd, const char *name)
{
	struct name_key key;
	size_t size = name_key_fill(dirfd, name, &key);
	bool is;

	pthread_mutex_lock(&p->lock);
	is = hash_set_has(&p->backup_lookalikes, &key, size);
	pthread_mutex_unlock(&p->lock);
	return is;
}

/* ---- making a backup ------------------------------------------------------------------- */

/* May the backup of name have the name `as'?  1; 0: the source or another backup of this run has
 * it; -1 with a failure.  appended: how many suffixes. */
static int claim_backup_name(struct place *p, int dirfd, const char *name, const char *as,
			     unsigned appended)
{
	const struct backup_move m = {p, dirfd, dirfd, name, as, ""};
	struct name_key key;
	size_t size;
	int ret;

	if (is_spared(p, dirfd, as))
		return 0;
	/* Else no other name of this directory can get this backup. */
	if (appended == 1 && !backup_is(p, name))
		return 1;
	size = name_key_fill(dirfd, as, &key);
	pthread_mutex_lock(&p->lock);
	ret = hash_set_add(&p->backups_made, &key, size, fault_bound(NAMES_BYTES_MAX),
			   "names of backups");
	pthread_mutex_unlock(&p->lock);
	/* A backup that is made again, because replacing the file failed, has the same name. */
	return ret == 0 && is_linked_to_backup(&m) > 0 ? 1 : ret;
}

/* Chooses the name of the backup of name. */
static int choose_backup_name(struct place *p, int dirfd, const char *name,
			      char as[static NAME_MAX + 1])
{
	size_t len = strlen(name), more = strlen(p->suffix);
	unsigned appended = 0;
	int ret;

	memcpy(as, name, len + 1);
	do {
		if (len + more > NAME_MAX)
			return fail(
				"back up %s: the name with suffix %s is too long (--suffix sets "
				"another one)",
				name, p->suffix);
		memcpy(as + len, p->suffix, more + 1);
		len += more;
		appended++;
		ret = *p->backup_dir ? 1 : claim_backup_name(p, dirfd, name, as, appended);
	} while (ret == 0);
	return ret < 0 ? -1 : 0;
}

int backup_make(struct place *p, int dirfd, const char *name, const char *dir, bool moved)
{
	char as[NAME_MAX + 1];
	int to = dirfd, ret;

	if (choose_backup_name(p, dirfd, name, as))
		return -1;
	if (*p->backup_dir) {
		to = open_backup_dir(p, dir, name);
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

/* ---- what needs no backup ------------------------------------------------------------------ */

static int open_compared(int dirfd, const char *name, struct stat *st)
{
	int fd = RETRIED(openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));

	if (fd >= 0 && fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	close_fd(fd);
	return -1;
}

static bool have_equal_bytes(const struct place *p, int a, int b)
{
	char *bytes = malloc((size_t)2 * COMPARED_BYTES), *others;
	ssize_t n = -1, m;

	if (!bytes)
		return false;
	others = bytes + COMPARED_BYTES;
	for (off_t at = 0; !place_stopped(p); at += n) {
		n = pread_full(a, bytes, COMPARED_BYTES, at);
		m = pread_full(b, others, COMPARED_BYTES, at);
		if (n <= 0 || m != n || memcmp(bytes, others, (size_t)n) != 0) {
			n = n == 0 && m == 0 ? 0 : -1;
			break;
		}
	}
	free(bytes);
	return n == 0;
}

bool backup_is_needless(const struct place_entry *s, const char *as, const struct stat *old)
{
	struct stat new, now;
	bool equal = false;
	int a, b;

	if (!S_ISREG(old->st_mode) || fstatat(s->dirfd, as, &new, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(new.st_mode) || new.st_size != old->st_size)
		return false;
	a = open_compared(s->dirfd, as, &new);
	b = open_compared(s->dirfd, s->name, &now);
	if (a >= 0 && b >= 0 && now.st_dev == old->st_dev && now.st_ino == old->st_ino)
		equal = have_equal_bytes(s->place, a, b);
	close_fd(b);
	close_fd(a);
	return equal;
}

int backup_make_of_entry(const struct place_entry *s, bool moved)
{
	char *dir = entry_whole_dir(s);
	int ret = dir ? backup_make(s->place, s->dirfd, s->name, dir, moved) : -1;

	free(dir);
	return ret;
}

/* Is st the target, or the root, which is its own parent? */
static bool is_end_of_lineage(const struct place *p, const struct lineage *l, const struct stat *st)
{
	const struct inode *last = l->count > 0 ? &l->dirs[l->count - 1] : NULL;

	return l->count == sizeof l->dirs / sizeof *l->dirs ||
	       (st->st_dev == p->top->held.dev && st->st_ino == p->top->held.ino) ||
	       (last && last->ino == st->st_ino && last->dev == st->st_dev);
}

/* From --backup-dir up to the target, or to the root. */
int backup_lineage(struct place *p, const char *of, struct lineage *l)
{
	int at, up;
	struct stat st;

	l->count = 0;
	if (!place_backs_up(p) || !*p->backup_dir || p->top->held.fd < 0)
		return 0;
	at = backups_find(p->top->held.fd, p->backup_dir);
	if (at < 0 && errno == ENOENT)
		return 0;
	while (at >= 0 && fstat(at, &st) == 0) {
		if (is_end_of_lineage(p, l, &st)) {
			close_fd(at);
			return 0;
		}
		l->dirs[l->count++] = (struct inode){.dev = st.st_dev, .ino = st.st_ino};
		up = RETRIED(openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
		close_fd(at);
		at = up;
	}
	fail("delete in %s: find directory %s: %m", *of ? of : p->dst.shown, p->backup_dir);
	close_fd(at);
	return -1;
}

bool backup_is_in(const struct lineage *l, const struct stat *st)
{
	for (size_t i = 0; i < l->count; i++) {
		if (l->dirs[i].dev == st->st_dev && l->dirs[i].ino == st->st_ino)
			return true;
	}
	return false;
}
