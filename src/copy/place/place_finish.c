/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/io/stored.h"

static bool replaces_file(const struct placement *t)
{
	return t->method == BY_RENAME && t->exists && S_ISREG(t->old.st_mode);
}

/* What is replaced, with its attributes; *old -1: it is not there any more. */
static int open_old(struct placement *t, int *old)
{
	const struct seat *s = &t->seat;
	enum { HOW = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };
	struct stat st;

	*old = RETRIED(openat(s->dirfd, s->name, O_RDONLY | HOW));
	/* What this user may not read. */
	if (*old < 0 && errno != ENOENT)
		*old = RETRIED(openat(s->dirfd, s->name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (*old < 0)
		return errno == ENOENT ? 0 : seat_fail(s, "open");
	if (fstat(*old, &st)) {
		seat_fail(s, "look at");
		close_fd(*old);
		return -1;
	}
	if (S_ISREG(st.st_mode)) {
		t->old = st;
		return 0;
	}
	close_fd(*old);
	*old = -1;
	return 0;
}

static int set_file_metadata(struct placement *t, struct stat *is)
{
	struct place *p = t->seat.place;
	bool replaced = replaces_file(t);
	struct metadata m;
	int old = -1, ret;

	/* Its attributes stay, unless they are to be as the source has them. */
	if (replaced && !p->rules->perms && open_old(t, &old))
		return -1;
	metadata_want(p, &t->file.a, S_IFREG, replaced ? &t->old : NULL,
		      t->method == BY_RENAME || t->created, &m);
	if (!replaced && (t->method == BY_RENAME || t->created))
		metadata_inherit(&t->seat, &t->file.a, &m);
	if (t->file.flags & FILE_STREAM)
		m.has_times = false;
	m.replaced_fd = old;
	ret = metadata_set(p, t->fd, is, &m, t->xattrs, &t->seat);
	close_fd(old);
	return ret;
}

static int sync_content(const struct placement *t)
{
	if (!t->seat.place->rules->fsync || outlet_sync(t->fd) == 0)
		return 0;
	return seat_fail(&t->seat, "fsync");
}

static int sync_file(const struct placement *t)
{
	/* An empty one is not written, so nothing else would tell that it is the source. */
	if (t->method == IN_PLACE && t->seat.place->rules->remove_source &&
	    metadata_touch(t->seat.place, t->fd))
		return seat_fail(&t->seat, "touch");
	return sync_content(t);
}

/* Some file systems tell of a failed write at close only; the lock must outlive that. */
static int check_close(const struct placement *t, const struct stat *is)
{
	int fd;

	if (is && place_close_never_fails(t->seat.place, t->fd, is->st_dev))
		return 0;
	fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && close(fd) == 0)
		return 0;
	return seat_fail(&t->seat, "close");
}

static int sync_file_parent(const struct placement *t)
{
	int fd, ret;

	if (!t->seat.place->rules->fsync || (t->method == IN_PLACE && !t->created))
		return 0;
	fd = dir_reopen(t->seat.dirfd);
	ret = fd < 0 || fsync(fd) ? seat_fail(&t->seat, "fsync the directory of") : 0;
	close_fd(fd);
	return ret;
}

static int take_final_name(struct placement *t)
{
	return seat_take_name(&t->seat, &t->tmp, t->exists ? &t->old : NULL);
}

static int check_written(const struct placement *t, uint64_t size, const struct stat *is)
{
	bool fresh = placement_fresh(t), gaps = fresh && t->seat.place->rules->sparse;
	struct stored s = {
		.reach = gaps ? 0 : t->reach,
		.longest = fresh ? size : UINT64_MAX,
		.full = t->full,
	};
	enum stored_how how = stored_look(t->fd, is, &s);
	char shown[SHOWN_ROOM];

	return how == STORED_ALL ? 0 : stored_fail(seat_shown(&t->seat, shown), how);
}

static int stat_written(const struct placement *t, uint64_t size, struct stat *is)
{
	/* Nobody else can have it open: its length is all that can be wrong. */
	if (t->st_predicted && t->method != IN_PLACE && !(t->file.flags & FILE_LINKED) &&
	    !t->seat.place->rules->sparse && lseek(t->fd, 0, SEEK_END) == (off_t)size) {
		*is = t->tmp.st;
		is->st_size = (off_t)size;
		return 0;
	}
	/* What somebody has removed meanwhile is dir_missing. */
	if (fstat(t->fd, is) || (t->method == IN_PLACE && is->st_nlink == 0 && (errno = ENOENT)))
		return seat_fail(&t->seat, "write");
	if (check_written(t, size, is))
		return -1;
	if ((uint64_t)is->st_size != size && ftruncate(t->fd, (off_t)size))
		return seat_fail(&t->seat, "write");
	return 0;
}

static int finish_placement(struct placement *t, uint64_t size, bool *in_place)
{
	struct failure lost;
	struct stat is;
	bool some = false;

	*in_place = false;
	if (t->method == AS_IS) {
		if (t->seat.place->spot.by_path && spot_truncate(&t->seat.place->spot, t->fd, size))
			return seat_fail(&t->seat, "write");
		return sync_file(t) || check_close(t, NULL) ? -1 : 0;
	}
	if (stat_written(t, size, &is))
		return -1;
	/* The source's size and time make a file a whole one for the next run, and a disk may get
	 * them before the content. */
	if (t->method == IN_PLACE && sync_content(t))
		return -1;
	/* Such a file is whole all the same. */
	if (set_file_metadata(t, &is)) {
		some = true;
		lost = *failed();
	}
	if (sync_file(t) || check_close(t, &is) || (t->method == BY_RENAME && take_final_name(t)))
		return -1;
	*in_place = true;
	/* A run without --inplace may have begun a temporary. */
	if (t->method == IN_PLACE)
		seat_forget_leftovers(&t->seat);
	if (linked_remember(&t->seat, &t->file, &is) || sync_file_parent(t))
		return -1;
	return some ? fail_again(&lost) : 0;
}

int place_finish(struct placement *t, uint64_t size)
{
	bool in_place;
	int ret = finish_placement(t, size, &in_place);

	if (ret == 0 || in_place)
		placement_free(t);
	else
		place_drop(t, false);
	return ret;
}

void place_drop(struct placement *t, bool keep)
{
	struct place *p = t->seat.place;
	const char *name = t->method == BY_RENAME ? t->tmp.name : t->seat.name;
	bool ours = t->fd >= 0 && (t->method == BY_RENAME || (t->method == IN_PLACE && t->created));

	if (ours && keep && t->method == BY_RENAME && !t->tmp.random && !t->tmp.nameless) {
		if (place_set_flag_once(p, &p->warned_partial))
			log_warn("%s: what came of it is kept as %s, which the next run takes over",
				 placement_name(t), name);
	} else if (ours && !t->tmp.nameless) {
		unlinkat(t->seat.dirfd, name, 0);
	}
	placement_free(t);
}
