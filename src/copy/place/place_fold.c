/* SPDX-License-Identifier: Apache-2.0 */

/*
 * File systems that fold names: without case, or to one normal form.  Two names of the source that
 * fold to one must not overwrite each other.  A directory lists a thing under the name that it was
 * made with.  So if a name leads to something that is not listed under it, and this run put that
 * there, it is another thing of the source.
 */

#include "copy/place/place_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

enum { NOT_KNOWN, FOLDS_NOT, FOLDS }; /* place_dir.folds */
enum { NAMES_BYTES_MAX = 256 << 20 /* of memory for each set of hashes */ };

static bool leads_to_inode(int dirfd, const char *name, const struct stat *as)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == as->st_dev &&
	       st.st_ino == as->st_ino;
}

/* Of letters of ISO 8859-1, which XFS folds if it was made so (xfs_ascii_ci_xfrm). */
static unsigned char swap_letter(unsigned char c)
{
	if (c < 0x80)
		return (unsigned char)(islower(c) ? toupper(c) : tolower(c));
	if (c >= 0xc0 && c <= 0xde && c != 0xd7)
		return c + 0x20;
	return c >= 0xe0 && c <= 0xfe && c != 0xf7 ? c - 0x20 : c;
}

static void swap_case(const char *name, char to[static NAME_MAX + 1])
{
	size_t i = 0;

	for (; name[i] && i < NAME_MAX; i++)
		to[i] = (char)swap_letter((unsigned char)name[i]);
	to[i] = '\0';
}

/* Can names in dirfd fold by swap_case() at most?  So it is on btrfs (which does not fold), on XFS,
 * and in directories that have no flag for it on ext4, F2FS and tmpfs. */
static bool folds_letters_only(int dirfd)
{
	struct statfs fs;
	int flags;

	if (RETRIED(fstatfs(dirfd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case BTRFS_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
		return true;
	case EXT4_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case TMPFS_MAGIC:
		return ioctl(dirfd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_CASEFOLD_FL);
	default:
		return false;
	}
}

/* Rules out most names with a few calls: a name that is not found with its case swapped does not
 * fold by letters.  Beyond ASCII, and by a dot or blank at its end, which may be dropped, it may
 * fold on some file systems. */
static bool may_fold(int dirfd, const char *name, const struct stat *st)
{
	size_t len = strlen(name);
	char swapped[NAME_MAX + 1];
	bool letters = false, other = strchr(". ", name[len - 1]) != NULL;

	if (len >= sizeof swapped)
		return true;
	swap_case(name, swapped);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)name[i];

		other |= c >= 0x80;
		letters |= swapped[i] != name[i];
	}
	if (other && !folds_letters_only(dirfd))
		return true;
	return letters && leads_to_inode(dirfd, swapped, st);
}

bool name_may_fold(int dirfd, const char *name)
{
	struct stat st;
	bool folds = false;

	/* Another process may replace the entry between the two calls. */
	for (int i = 0; i < 3 && !folds; i++) {
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
			return false;
		folds = may_fold(dirfd, name, &st);
	}
	return folds;
}

/* Is st, which name leads to, listed under another name only?  other: that name, or "" if it was
 * not found. */
static bool is_listed_otherwise(int dirfd, const char *name, const struct stat *st,
				char other[static NAME_MAX + 1])
{
	int fd = dir_reopen(dirfd);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool listed = dir == NULL;
	struct dirent *e;

	other[0] = '\0';
	if (!dir)
		close_fd(fd);
	while (!listed && (errno = 0, e = readdir(dir)) != NULL) {
		listed = strcmp(e->d_name, name) == 0;
		if (e->d_ino == st->st_ino || (!*other && strcasecmp(e->d_name, name) == 0))
			snprintf(other, NAME_MAX + 1, "%s", e->d_name);
	}
	listed |= errno != 0;
	if (dir)
		closedir(dir);
	/* Another process may have removed the entry meanwhile. */
	return !listed && leads_to_inode(dirfd, name, st);
}

bool name_is_folded(int dirfd, const char *name, char other[static NAME_MAX + 1])
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && may_fold(dirfd, name, &st) &&
	       is_listed_otherwise(dirfd, name, &st, other);
}

int entry_check_folding(const struct place_entry *s)
{
	char other[NAME_MAX + 1], shown[SHOWN_ROOM];
	int err = errno;

	if (s->place->rules->dry_run || !name_is_folded(s->dirfd, s->name, other)) {
		errno = err;
		return 0;
	}
	return fail(
		"create %s: the file system does not distinguish this name from %s, which this run created",
		entry_shown(s, shown), *other ? other : "another name");
}

/* ---- directories that existed before ----------------------------------------------------- */

/* Does this name, which exists, show whether its directory folds?  It needs ASCII letters and
 * nothing beyond ASCII.  A dot or blank at its end may be another reason why it is found. */
static bool shows_folding(const char *name)
{
	size_t len = strlen(name);
	bool letters = false;

	if (len == 0 || len > NAME_MAX || name[len - 1] == '.' || name[len - 1] == ' ')
		return false;
	for (const char *at = name; *at; at++) {
		if ((unsigned char)*at >= 0x80)
			return false;
		letters |= isalpha((unsigned char)*at) != 0;
	}
	return letters;
}

static bool dir_folds(struct place_dir *d, int dirfd, const char *name)
{
	int folds = atomic_load_explicit(&d->folds, memory_order_relaxed);
	char swapped[NAME_MAX + 1], other[NAME_MAX + 1];
	struct stat st;

	if (folds != NOT_KNOWN)
		return folds == FOLDS;
	if (!shows_folding(name) || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	swap_case(name, swapped);
	/* If both names are listed, they are hard links. */
	folds = leads_to_inode(dirfd, swapped, &st) &&
				is_listed_otherwise(dirfd, swapped, &st, other)
			? FOLDS
			: FOLDS_NOT;
	atomic_store_explicit(&d->folds, folds, memory_order_relaxed);
	return folds == FOLDS;
}

/* 1: the source has another name that folds to the same. */
static int add_folded_name(struct place *p, const struct place_dir *d, const char *name)
{
	static const char what[] = "names in directories without case";
	struct name_key key;
	size_t size = name_key_set(&key, d->held.dev, d->held.ino, name);
	int added, folded_added = -1;

	pthread_mutex_lock(&p->lock);
	added = hash_set_add(&p->exact_names, &key, size, NAMES_BYTES_MAX, what);
	for (size_t i = 0; name[i] && i < sizeof key.name; i++)
		key.name[i] = (char)tolower((unsigned char)name[i]);
	if (added >= 0)
		folded_added = hash_set_add(&p->folded_names, &key, size, NAMES_BYTES_MAX, what);
	pthread_mutex_unlock(&p->lock);
	return folded_added < 0 ? -1 : added && !folded_added;
}

int place_check_name(struct place *p, struct place_dir *d, int dirfd, const char *name)
{
	char other[NAME_MAX + 1] = "", shown[SHOWN_ROOM];
	struct place_entry s = {
		.place = p, .dir = d != p->top ? d : NULL, .dirfd = dirfd, .name = name};
	int ret;

	if (d->fresh || !dir_folds(d, dirfd, name))
		return 0;
	ret = add_folded_name(p, d, name);
	if (ret <= 0)
		return ret;
	name_is_folded(dirfd, name, other);
	return fail(
		"create %s: the file system does not distinguish this name from %s, which the source also has",
		entry_shown(&s, shown), *other ? other : "another name");
}
