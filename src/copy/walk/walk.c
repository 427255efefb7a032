/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/name.h"
#include "copy/walk/walk_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/worker.h"
#include "copy/names/own_files.h"
#include "copy/names/own_name.h"

enum {
	TRIES_MAX = 64, /* of one step, to find something to pass on */
	SUB_BYTES = 16, /* of an entry of walk_frame.subs, roughly */
};

/* As getdents64(2) returns it.  Not all versions of glibc have a struct for it. */
struct dent {
	uint64_t ino;
	int64_t off; /* where the next one begins */
	uint16_t len;
	uint8_t type;
	char name[];
};

/* ---- pieces -------------------------------------------------------------------------- */

int walk_fail(struct walk *w, struct walk_dir *d, const char *name)
{
	return w->out->failed(w->out->ctx, d, name);
}

bool walk_excludes(struct walk *w, struct walk_dir *d, const char *name, bool dir)
{
	const struct filter *f = w->o.rules->filter;

	return f && filter_excludes(f, walk_path(d, name, w->path, sizeof w->path), dir);
}

int walk_add(struct walk *w, enum walk_type type, const char *name)
{
	size_t len = strlen(name) + 1;

	if (ARRAY_ROOM(w->bytes, w->used, w->size, len + 1))
		return fail_as(OUT_MEMORY, "read a directory: %m");
	w->bytes[w->used] = (char)type;
	memcpy(w->bytes + w->used + 1, name, len);
	w->used += len + 1;
	w->count++;
	return 0;
}

int walk_emit(struct walk *w, struct walk_dir *dir, const struct found_path *p)
{
	struct walk_piece *piece;

	if (w->count == 0)
		return 0;
	piece = malloc(sizeof *piece + w->used);
	if (!piece)
		return fail_as(OUT_MEMORY, "read a directory: %m");
	*piece = (struct walk_piece){
		.dir = walk_dir_get(dir),
		.want = p ? p->want : dir->want,
		.missing = p && p->missing,
		.count = w->count,
		.at = piece->bytes,
	};
	atomic_init(&piece->left, w->count);
	memcpy(piece->bytes, w->bytes, w->used);
	w->used = 0;
	w->count = 0;
	w->emitted = true;
	return w->out->piece(w->out->ctx, piece);
}

bool walk_piece_next(struct walk_piece *p, enum walk_type *type, const char **name)
{
	if (p->count == 0)
		return false;
	p->count--;
	*type = (enum walk_type)p->at[0];
	*name = p->at + 1;
	p->at += strlen(*name) + 2;
	return true;
}

void walk_piece_done(struct walk_piece *p, uint32_t entries)
{
	if (atomic_fetch_sub_explicit(&p->left, entries, memory_order_acq_rel) > entries)
		return;
	walk_dir_put(p->dir);
	free(p);
}

/* ---- entries ------------------------------------------------------------------------- */

static int skip_entry(struct walk *w, struct walk_dir *d, const char *name, const char *why)
{
	log_warn("skipped %s: %s", walk_shown(d, name, w->path, sizeof w->path), why);
	return 0;
}

/* It would change while it is read. */
int walk_skip_own_file(struct walk *w, struct walk_dir *d, const char *name)
{
	return skip_entry(w, d, name, "this command writes it");
}

static int skip_taken_name(struct walk *w, struct walk_dir *d, const char *name)
{
	static const char why[] = "an earlier source has the same name";

	if (w->names_one_file)
		return 0;
	if (!w->o.rules->remove_source)
		return skip_entry(w, d, name, why);
	/* It was to be moved.  A rerun no longer sees the earlier one. */
	fail("move %s: %s, and a rerun would replace that with it",
	     walk_shown(d, name, w->path, sizeof w->path), why);
	return walk_fail(w, d, name);
}

/* A file and a directory cannot share a name, so this is a failure, not only a warning. */
static int fail_name_clash(struct walk *w, struct walk_dir *d, const char *name, bool dir)
{
	fail("copy %s: an earlier source has a %s of that name",
	     walk_shown(d, name, w->path, sizeof w->path), dir ? "file" : "directory");
	return walk_fail(w, d, name);
}

/* Why an entry of this mode is not copied; NULL: it is copied. */
static const char *explain_skip(const struct walk *w, mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFLNK:
	case S_IFDIR:
		return NULL;
	case S_IFIFO:
		return w->o.rules->devices ? NULL : "it is a FIFO (use --devices to recreate it)";
	case S_IFCHR:
	case S_IFBLK:
		return w->o.rules->devices ? NULL : "it is a device (use --devices to recreate it)";
	case S_IFSOCK:
		return "it is a socket";
	default:
		return "files of its type cannot be copied";
	}
}

static enum walk_type mode_to_walk_type(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFLNK:
		return WALK_SYMLINK;
	case S_IFIFO:
		return WALK_FIFO;
	case S_IFCHR:
		return WALK_CHAR;
	case S_IFBLK:
		return WALK_BLOCK;
	default:
		return WALK_REGULAR;
	}
}

int walk_add_mode(struct walk *w, struct walk_dir *d, mode_t mode, const char *name)
{
	const char *why = explain_skip(w, mode);

	return why ? skip_entry(w, d, name, why) : walk_add(w, mode_to_walk_type(mode), name);
}

static int add_subdir(struct walk_frame *f, const char *name, enum walk_sub kind)
{
	size_t len = strlen(name) + 1;

	if (ARRAY_ROOM(f->subs, f->subs_used, f->subs_size, 1 + len))
		return fail_as(OUT_MEMORY, "read a directory: %m");
	f->subs[f->subs_used] = (char)kind;
	memcpy(f->subs + f->subs_used + 1, name, len);
	f->subs_used += 1 + len;
	return 0;
}

static int keep_name(struct walk *w, struct walk_frame *f, const char *name)
{
	return w->o.rules->delete ? w->out->keep(w->out->ctx, f->dir, name) : 0;
}

/* The type of an entry is unknown, with errno.  Sets this thread's failure. */
static int fail_unknown_mode(struct walk *w, struct walk_frame *f, int fd, const char *name)
{
	enum outcome code = errno == ENOENT ? OUT_VANISHED : OUT_FILE;
	struct stat st;
	int err = errno;

	/* A dangling link has not vanished. */
	if (code == OUT_VANISHED && walk_stat(fd, name, false, &st) == 0 && S_ISLNK(st.st_mode))
		code = OUT_FILE;
	errno = err;
	return fail_as(code, "open %s: %m", walk_shown(f->dir, name, w->path, sizeof w->path));
}

/* Finds the type of an entry, with stat(2) if the directory does not have it or a link is followed.
 */
static int find_mode(struct walk *w, struct walk_frame *f, int fd, const struct dent *e,
		     mode_t *mode)
{
	bool follow = w->o.rules->copy_links;
	struct stat st;

	*mode = DTTOIF(e->type);
	if (e->type != DT_UNKNOWN && !(e->type == DT_LNK && follow))
		return 0;
	if (walk_stat(fd, e->name, follow, &st))
		return fail_unknown_mode(w, f, fd, e->name);
	*mode = st.st_mode;
	return 0;
}

/* Only a regular file can be a temporary or a marker.  Anything else keeps its name at the target
 * with --delete. */
static int skip_own_name(struct walk *w, struct walk_frame *f, int fd, const struct dent *e)
{
	bool known;
	mode_t mode;

	known = find_mode(w, f, fd, e, &mode) == 0;
	if (!(known && S_ISREG(mode)) &&
	    !walk_excludes(w, f->dir, e->name, known && S_ISDIR(mode)) && keep_name(w, f, e->name))
		return -1;
	return skip_entry(w, f->dir, e->name, "its name is that of an unfinished copy");
}

/* Does this command write the entry? */
static bool is_own_file(const struct walk *w, int fd, const struct dent *e)
{
	bool follow = (e->type == DT_LNK || e->type == DT_UNKNOWN) && w->o.rules->copy_links;
	struct stat st;

	return (follow || own_files_may_have(e->ino)) && walk_stat(fd, e->name, follow, &st) == 0 &&
	       own_files_has(&st);
}

static int scan_dent(struct walk *w, struct walk_frame *f, int fd, const struct dent *e)
{
	enum walk_name first;
	const char *why;
	mode_t mode;

	if (e->name[0] == '.' && (!e->name[1] || (e->name[1] == '.' && !e->name[2])))
		return 0;
	if (e->name[0] == '.' && own_name_kind(e->name) != NAME_OF_USER)
		return skip_own_name(w, f, fd, e);
	if (find_mode(w, f, fd, e, &mode)) {
		if (walk_excludes(w, f->dir, e->name, false))
			return 0;
		return walk_fail(w, f->dir, e->name) ? -1 : keep_name(w, f, e->name);
	}
	if (walk_excludes(w, f->dir, e->name, S_ISDIR(mode)))
		return S_ISDIR(mode) && walk_leads_to_listed(w, f, fd, e->name)
			       ? add_subdir(f, e->name, WALK_SUB_LEADS)
			       : 0;
	if (keep_name(w, f, e->name))
		return -1;
	/* What is skipped does not claim its name, so another source may have it. */
	if (is_own_file(w, fd, e))
		return walk_skip_own_file(w, f->dir, e->name);
	why = explain_skip(w, mode);
	if (why)
		return skip_entry(w, f->dir, e->name, why);
	first = walk_claim_name(w, f->dir, e->name, S_ISDIR(mode));
	switch (first) {
	case WALK_NAME_FAILED:
		return -1;
	case WALK_NAME_TAKEN:
		return skip_taken_name(w, f->dir, e->name);
	case WALK_NAME_CLASHES:
		return fail_name_clash(w, f->dir, e->name, S_ISDIR(mode));
	case WALK_NAME_NEW:
	case WALK_NAME_AGAIN:
		break;
	}
	if (S_ISDIR(mode))
		return add_subdir(f, e->name,
				  first == WALK_NAME_AGAIN ? WALK_SUB_AGAIN : WALK_SUB_NEW);
	return walk_add_mode(w, f->dir, mode, e->name);
}

/* ---- directories --------------------------------------------------------------------- */

static long get_dents(struct walk *w, int fd)
{
	long n;

	do
		n = syscall(SYS_getdents64, fd, w->dents, sizeof w->dents);
	while (n < 0 && errno == EINTR && !cancelled());
	return n;
}

/* The directory cannot be read, with this thread's failure.  What was read of it is copied. */
static int abandon_dir(struct walk *w, struct walk_frame *f)
{
	f->over = true;
	w->incomplete = true;
	return walk_fail(w, f->dir, "");
}

static int read_dents(struct walk *w, struct walk_frame *f, int fd)
{
	while (w->count + f->subs_used / SUB_BYTES < WALK_ENTRIES) {
		long n = get_dents(w, fd);
		const struct dent *e;

		if (n < 0)
			fail("read %s: %m", walk_shown(f->dir, "", w->path, sizeof w->path));
		if (n < 0)
			return abandon_dir(w, f);
		f->over = n == 0;
		if (n == 0)
			return keep_name(w, f, NULL);
		for (long at = 0; at < n; at += e->len) {
			e = (const struct dent *)(const void *)(w->dents + at);
			f->pos = e->off;
			if (scan_dent(w, f, fd, e))
				return -1;
		}
	}
	return 0;
}

static int read_dir_piece(struct walk *w, struct walk_frame *f)
{
	int fd, ret;

	if (walk_dir_use(f->dir, &fd))
		return abandon_dir(w, f);
	/* The descriptor may be a new one, which begins at 0. */
	if (f->pos)
		lseek(fd, f->pos, SEEK_SET);
	ret = f->listed && f->pos == 0 ? walk_check_listed(w, f) : 0;
	if (ret == 0)
		ret = read_dents(w, f, fd);
	walk_dir_release(f->dir);
	return ret;
}

static int push_frame(struct walk *w, struct walk_dir *d, bool whole,
		      const struct files_from_node *listed)
{
	struct walk_frame *f = calloc(1, sizeof *f);

	if (!f) {
		walk_dir_put(d);
		return fail_as(OUT_MEMORY, "read a directory: %m");
	}
	f->below = w->top;
	f->dir = d;
	f->whole = whole;
	f->listed = listed;
	w->top = f;
	return w->out->dir(w->out->ctx, d);
}

static void pop_frame(struct walk *w)
{
	struct walk_frame *f = w->top;

	w->top = f->below;
	walk_dir_put(f->dir);
	free(f->subs);
	free(f);
}

int walk_enter(struct walk *w, struct walk_dir *d, int ret, bool whole,
	       const struct files_from_node *listed)
{
	char room[FAIL_TEXT_MAX / 2];

	if (ret == 0 && walk_dir_loops(d)) {
		fail("open %s: it leads back to a directory that contains it",
		     walk_shown(d, "", room, sizeof room));
		ret = walk_fail(w, d->parent, d->name);
		walk_dir_put(d);
		return ret;
	}
	if (push_frame(w, d, whole, listed))
		return -1;
	if (ret)
		return abandon_dir(w, w->top);
	if (w->o.rules->one_file_system && d->held.dev != w->dev)
		w->top->over = true;
	return 0;
}

static int enter_subdir(struct walk *w, struct walk_frame *f)
{
	const char *name = f->subs + f->subs_at + 1;
	enum walk_sub kind = (enum walk_sub)name[-1];
	struct walk_dir_opts o = {
		.parent = f->dir,
		.name = name,
		.want = f->dir->want,
		.flags = kind == WALK_SUB_AGAIN ? DIR_AGAIN : 0,
		.follow = w->o.rules->copy_links,
		.listable = true,
	};
	struct walk_dir *d;
	int ret;

	f->subs_at += 1 + strlen(name) + 1;
	if (kind == WALK_SUB_LEADS)
		return walk_enter_leading(w, f, name);
	ret = walk_dir_open(&w->dirs, &o, &d);
	if (!d) {
		w->incomplete = true;
		return walk_fail(w, f->dir, name);
	}
	return walk_enter(w, d, ret, true, f->listed ? files_from_child(f->listed, name) : NULL);
}

/* ---- the walk ------------------------------------------------------------------------ */

static int step_frame(struct walk *w, struct walk_frame *f)
{
	int ret;

	if (f->subs_at < f->subs_used)
		return enter_subdir(w, f);
	f->subs_at = 0;
	f->subs_used = 0;
	if (f->announced && f->over) {
		pop_frame(w);
		return 0;
	}
	if (!f->announced && walk_add(w, WALK_DIR, ""))
		return -1;
	f->announced = true;
	ret = 0;
	if (!f->over)
		ret = f->whole ? read_dir_piece(w, f) : walk_read_listed(w, f);
	return ret ? -1 : walk_emit(w, f->dir, NULL);
}

int walk_step(struct walk *w, const struct walk_out *o)
{
	int ret = 1;

	w->out = o;
	w->emitted = false;
	/* Go on until something is passed on, but not too long if everything is left out. */
	for (unsigned i = 0; ret > 0 && !w->emitted && i < TRIES_MAX; i++) {
		if (w->top)
			ret = step_frame(w, w->top) ? -1 : 1;
		else
			ret = walk_next_root(w);
	}
	return ret;
}

struct walk_dirs *walk_dirs_of(struct walk *w)
{
	return &w->dirs;
}

bool walk_incomplete(const struct walk *w)
{
	return w->incomplete;
}

static size_t cut_length(const char *path)
{
	return (size_t)(name_relative(path) - path);
}

static bool is_one_file_per_name(const struct walk_opts *o)
{
	const struct found *f = o->found;

	if (!o->rules->relative)
		return false;
	for (unsigned i = 1; i < f->count; i++) {
		size_t cut = cut_length(f->paths[i].path);

		if (cut != cut_length(f->paths[0].path) ||
		    memcmp(f->paths[i].path, f->paths[0].path, cut) != 0)
			return false;
	}
	return true;
}

int walk_new(const struct walk_opts *o, struct walk **out)
{
	struct walk *w = calloc(1, sizeof *w);

	if (!w)
		return fail_as(OUT_MEMORY, "read directories: %m");
	w->o = *o;
	w->names_one_file = is_one_file_per_name(o);
	w->names.wanted = walk_merges(o);
	walk_dirs_init(&w->dirs);
	*out = w;
	return 0;
}

void walk_free(struct walk *w)
{
	if (!w)
		return;
	while (w->top)
		pop_frame(w);
	for (unsigned i = 0; i < w->implied_count; i++)
		walk_dir_put(w->implied[i]);
	free(w->implied);
	free(w->bytes);
	free(w->names.dirs.slots);
	free(w->names.others.slots);
	walk_dirs_destroy(&w->dirs);
	free(w);
}
