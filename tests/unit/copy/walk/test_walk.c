/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/walk/walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

/*
 * What a walk reported, one line each: "dir a/b", "file a/b/f", "keep a/b/f", "kept a/b", "failed
 * a/b: …"
 */
enum { LINES = 8192, DIRS = 2048 };
struct told {
	char *lines[LINES];
	unsigned count;
	unsigned pieces;
	struct walk_dir *dirs[DIRS]; /* references held */
	unsigned dir_count;
};

static void tell(struct told *t, const char *what, const struct walk_dir *d, const char *name,
		 const char *more)
{
	char room[512];

	if (t->count == LINES || asprintf(&t->lines[t->count], "%s %s%s", what,
					  walk_path(d, name, room, sizeof room), more) < 0)
		abort();
	t->count++;
}

static int on_dir(void *ctx, struct walk_dir *d)
{
	struct told *t = ctx;

	if (t->dir_count == DIRS)
		abort();
	t->dirs[t->dir_count++] = walk_dir_get(d);
	return 0;
}

static const char *what_of(enum walk_type type)
{
	static const char *const names[] = {"none", "dir",  "named", "file",
					    "link", "fifo", "char",  "block"};

	return names[type];
}

static int on_piece(void *ctx, struct walk_piece *p)
{
	struct told *t = ctx;
	uint32_t count = p->count;
	enum walk_type type;
	const char *name;
	char more[32];

	t->pieces++;
	while (walk_piece_next(p, &type, &name)) {
		snprintf(more, sizeof more, "%s%s%s",
			 type == WALK_DIR && (p->dir->flags & DIR_CONTENTS) ? " (contents)" : "",
			 type == WALK_DIR && (p->dir->flags & DIR_IMPLIED) ? " (implied)" : "",
			 type == WALK_DIR && (p->dir->flags & DIR_AGAIN) ? " (again)" : "");
		tell(t, what_of(type), p->dir, name, more);
	}
	walk_piece_done(p, count);
	return 0;
}

static int on_keep(void *ctx, struct walk_dir *d, const char *name)
{
	tell(ctx, name ? "keep" : "kept", d, name ? name : "", "");
	return 0;
}

static int on_failed(void *ctx, struct walk_dir *d, const char *name)
{
	char why[FAIL_TEXT_MAX + 8];

	snprintf(why, sizeof why, ": %d %s", failed()->code, failed()->text);
	tell(ctx, "failed", d, name, why);
	return 0;
}

static struct walk *walk_all(struct told *t, const struct rules *r, char **names, bool inside)
{
	const struct walk_out out = {t, on_dir, on_piece, on_keep, on_failed};
	static struct found found;
	static struct rules as;
	struct walk_opts o = {.found = &found, .rules = &as};
	unsigned count = 0;
	struct walk *w;

	as = *r;
	as.no_target_dir = inside;
	*t = (struct told){0};
	while (names[count])
		count++;
	found_free(&found);
	assert_int_equal(find_sources(names, count, false, &found), 0);
	assert_int_equal(walk_new(&o, &w), 0);
	while (walk_step(w, &out) > 0)
		;
	return w;
}

static void free_walk_and_told(struct told *t, struct walk *w)
{
	for (unsigned i = 0; i < t->count; i++)
		free(t->lines[i]);
	for (unsigned i = 0; i < t->dir_count; i++)
		walk_dir_put(t->dirs[i]);
	walk_free(w);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Exactly these lines, in any order; each ends with a newline. */
static void assert_told(struct told *t, const char *want)
{
	char *all = strdup(want), *lines[LINES], *save, *line;
	unsigned count = 0;

	for (line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		lines[count++] = line;
	qsort(lines, count, sizeof *lines, by_text);
	qsort(t->lines, t->count, sizeof *t->lines, by_text);
	for (unsigned i = 0; i < count || i < t->count; i++) {
		const char *w = i < count ? lines[i] : "nothing";
		const char *g = i < t->count ? t->lines[i] : "nothing";

		if (strcmp(w, g) != 0)
			fail_msg("told \"%s\", not \"%s\"", g, w);
	}
	free(all);
}

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

#define NAMES(...) ((char *[]){__VA_ARGS__, NULL})

static struct rules recursive(void)
{
	struct rules r = RULES_PLAIN;

	r.recursive = true;
	return r;
}

static void walk_is(const struct rules *r, char **names, const char *want)
{
	struct told t;
	struct walk *w = walk_all(&t, r, names, false);

	assert_told(&t, want);
	free_walk_and_told(&t, w);
}

static void make_dirs(const char *first, ...)
{
	va_list ap;

	va_start(ap, first);
	for (const char *d = first; d; d = va_arg(ap, const char *))
		assert_int_equal(mkdir(d, 0755), 0);
	va_end(ap);
}

/* ---- the tree ------------------------------------------------------------------------ */

static void parents_come_first(void **state)
{
	struct rules r = recursive();
	struct told t;
	struct walk *w;

	(void)state;
	make_dirs("a", "a/b", "a/b/c", "a/d", NULL);
	assert_int_equal(make_text("a/f", "x") | make_text("a/b/c/g", "x"), 0);
	assert_int_equal(symlink("f", "a/d/l"), 0);
	w = walk_all(&t, &r, NAMES(text("a")), false);
	for (unsigned i = 1; i < t.dir_count; i++) {
		unsigned k = 0;

		while (k < i && t.dirs[k] != t.dirs[i]->parent)
			k++;
		assert_true(k < i);
	}
	assert_string_equal(t.lines[0], "dir a");
	assert_false(walk_incomplete(w));
	assert_false(walk_is_one_file(w));
	assert_told(&t, "dir a\ndir a/b\ndir a/b/c\ndir a/d\nfile a/f\nfile a/b/c/g\nlink a/d/l\n");
	free_walk_and_told(&t, w);
}

static void large_directories_are_read_in_pieces(void **state)
{
	enum { FILES = 3000 };
	struct rules r = recursive();
	struct told t;
	struct walk *w;
	char name[32];

	(void)state;
	make_dirs("a", NULL);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "a/%04u", i);
		assert_int_equal(make_text(name, ""), 0);
	}
	w = walk_all(&t, &r, NAMES(text("a")), false);
	assert_true(t.pieces > 2);
	assert_int_equal(t.count, FILES + 1);
	qsort(t.lines, t.count, sizeof *t.lines, by_text);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "file a/%04u", i);
		assert_string_equal(t.lines[i + 1], name);
	}
	free_walk_and_told(&t, w);
}

static unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Descend without a path, which would be too long for any call. */
static void make_deep(const char *top, unsigned levels)
{
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[128];

	assert_int_equal(mkdir(top, 0755) | chdir(top), 0);
	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = '\0';
	for (unsigned i = 0; i < levels; i++) {
		assert_int_equal(make_text("f", "x") | mkdir(name, 0755), 0);
		assert_int_equal(chdir(name), 0);
	}
	assert_int_equal(fchdir(here), 0);
	close(here);
}

static void depth_uses_bounded_descriptors(void **state)
{
	enum { LEVELS = 500 };
	struct rules r = recursive();
	unsigned before = open_descriptors();
	char room[256];
	struct told t;
	struct walk *w;
	int fd;

	(void)state;
	make_deep("a", LEVELS);
	w = walk_all(&t, &r, NAMES(text("a")), false);
	assert_int_equal(t.dir_count, LEVELS + 1);
	assert_int_equal(t.count, 2 * LEVELS + 1);
	assert_true(open_descriptors() <= before + HELD_DIRS_MAX);
	/* From the deepest level upwards: most directories have to be reopened. */
	for (unsigned i = t.dir_count; i-- > 0;) {
		assert_int_equal(walk_dir_use(t.dirs[i], &fd), 0);
		fd = walk_open_file(fd, "f", false);
		assert_true(fd >= 0 || i == LEVELS);
		close_fd(fd);
		walk_dir_release(t.dirs[i]);
	}
	assert_true(open_descriptors() <= before + HELD_DIRS_MAX);
	/* Paths that are too long are truncated at the front. */
	assert_string_equal(walk_shown(t.dirs[LEVELS], "f", room, sizeof room) + sizeof room - 4,
			    "n/f");
	free_walk_and_told(&t, w);
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(system("rm -r a"), 0);
}

static void replaced_directory_is_detected(void **state)
{
	enum { LEVELS = HELD_DIRS_MAX + 50 };
	struct rules r = recursive();
	struct told t;
	struct walk *w;
	int fd;

	(void)state;
	make_dirs("a", "a/b", NULL);
	make_deep("a/b/deep", LEVELS);
	w = walk_all(&t, &r, NAMES(text("a")), false);
	assert_string_equal(t.dirs[1]->name, "b");
	/* Its descriptor is closed by now. */
	assert_int_equal(rename("a/b", "a/c") | mkdir("a/b", 0755), 0);
	assert_int_equal(walk_dir_use(t.dirs[1], &fd), -1);
	assert_int_equal(failed()->code, OUT_CHANGED);
	assert_int_equal(rmdir("a/b") | symlink("c", "a/b"), 0);
	assert_int_equal(walk_dir_use(t.dirs[1], &fd), -1);
	assert_int_equal(unlink("a/b") | rename("a/c", "a/b"), 0);
	assert_int_equal(walk_dir_use(t.dirs[1], &fd), 0);
	walk_dir_release(t.dirs[1]);
	free_walk_and_told(&t, w);
	assert_int_equal(system("rm -r a"), 0);
}

/* ---- links --------------------------------------------------------------------------- */

static void symlinks_in_a_tree_are_not_followed(void **state)
{
	struct rules r = recursive();

	(void)state;
	make_dirs("a", "a/d", "out", NULL);
	assert_int_equal(make_text("out/f", "x"), 0);
	assert_int_equal(
		symlink("../out", "a/l") | symlink("nowhere", "a/m") | symlink("out", "named"), 0);
	walk_is(&r, NAMES(text("a")), "dir a\ndir a/d\nlink a/l\nlink a/m\n");
	/* A symlink that the user named is. */
	walk_is(&r, NAMES(text("named")), "dir named\nfile named/f\n");
	r.copy_links = true;
	walk_is(&r, NAMES(text("a")),
		"dir a\ndir a/d\ndir a/l\nfile a/l/f\n"
		"failed a/m: 11 open a/m: No such file or directory\n");
}

static void loops_are_detected(void **state)
{
	struct rules r = recursive();

	(void)state;
	make_dirs("a", "a/b", NULL);
	assert_int_equal(symlink("..", "a/b/up") | symlink(".", "a/b/here"), 0);
	r.copy_links = true;
	walk_is(&r, NAMES(text("a")),
		"dir a\ndir a/b\n"
		"failed a/b/up: 11 open a/b/up: it leads back to a directory that contains it\n"
		"failed a/b/here: 11 open a/b/here: it leads back to a directory that contains it\n");
}

static void one_file_system_skips_other_file_systems(void **state)
{
	struct rules r = recursive();

	(void)state;
	make_dirs("a", "a/b", NULL);
	/* Unprivileged users may not mount. */
	if (mount("none", "a/b", "tmpfs", 0, NULL))
		return;
	assert_int_equal(make_text("a/b/f", "x"), 0);
	walk_is(&r, NAMES(text("a")), "dir a\ndir a/b\nfile a/b/f\n");
	r.one_file_system = true;
	r.delete = true;
	/* Directories that were not read must not be deleted either. */
	walk_is(&r, NAMES(text("a")), "dir a\ndir a/b\nkeep a/b\nkept a\n");
	assert_int_equal(umount("a/b"), 0);
}

/* ---- other types ------------------------------------------------------------------------ */

static void make_socket(const char *name)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(to.sun_path, sizeof to.sun_path, "%s", name);
	assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
	close(fd);
}

static void sockets_and_devices_are_skipped(void **state)
{
	struct rules r = recursive();
	bool root = geteuid() == 0;

	(void)state;
	make_dirs("a", NULL);
	make_socket("a/s");
	assert_int_equal(mkfifo("a/p", 0600), 0);
	if (root)
		root = mknod("a/c", S_IFCHR | 0600, makedev(1, 3)) == 0;
	log_setup("test", LOG_ERROR);
	walk_is(&r, NAMES(text("a")), "dir a\n");
	r.devices = true;
	walk_is(&r, NAMES(text("a")), root ? "dir a\nfifo a/p\nchar a/c\n" : "dir a\nfifo a/p\n");
	log_setup("test", LOG_WARN);
}

static void own_temporaries_are_skipped(void **state)
{
	static const char *const ours[] = {
		".sluice.0123456789abcdef",
		".sluice.0123456789abcdef.01234567",
		".sluice.marker.0123456789abcdef",
	};
	static const char *const others[] = {
		".sluice.0123456789abcde",
		".sluice.0123456789abcdefg",
		".sluice.0123456789abcdef.0",
		".sluice.marker.0123456789abcdef.01234567",
		".sluice.0123456789abcdef.012345678",
		"sluice.0123456789abcdef",
		".sluice.0123456789ABCDEF",
		".sluice.0123456789abcdef.0123456A",
		".sluice.marker.0123456789abcdeF",
	};
	struct rules r = recursive();
	char name[64], want[1024] = "dir a\n";

	(void)state;
	make_dirs("a", NULL);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(name, sizeof name, "a/%s", ours[i]);
		assert_int_equal(make_text(name, ""), 0);
	}
	for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
		snprintf(name, sizeof name, "a/%s", others[i]);
		assert_int_equal(make_text(name, ""), 0);
		snprintf(want + strlen(want), sizeof want - strlen(want), "file %s\n", name);
	}
	walk_is(&r, NAMES(text("a")), want);
}

static void unreadable_entries_are_reported(void **state)
{
	struct rules r = recursive();
	struct told t;
	struct walk *w;

	(void)state;
	make_dirs("a", "a/b", "a/b/c", NULL);
	assert_int_equal(make_text("a/f", ""), 0);
	assert_int_equal(chmod("a/b", 0111) | chmod(".", 0755), 0);
	if (geteuid() == 0)
		assert_int_equal(seteuid(65534), 0);
	r.delete = true;
	/* The directory itself is readable. */
	w = walk_all(&t, &r, NAMES(text("a")), false);
	assert_true(walk_incomplete(w));
	assert_told(&t, "dir a\nfile a/f\nkeep a/b\nkeep a/f\nkept a\n"
			"failed a/b: 11 open a/b: Permission denied\ndir a/b\n");
	free_walk_and_told(&t, w);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(chmod("a/b", 0755), 0);
}

/* ---- selection -------------------------------------------------------------------------- */

static void filters_exclude_entries(void **state)
{
	struct rules r = recursive();
	struct filter *f;

	(void)state;
	make_dirs("a", "a/b", "a/b/c", "a/no", NULL);
	assert_int_equal(make_text("a/x.o", "") | make_text("a/x.c", "") |
				 make_text("a/b/y.o", "") | make_text("a/no/z", ""),
			 0);
	assert_int_equal(filter_new(&f), 0);
	assert_int_equal(filter_add(f, true, "b/*.o") | filter_add(f, false, "*.o") |
				 filter_add(f, false, "/a/no/"),
			 0);
	r.filter = f;
	r.delete = true;
	walk_is(&r, NAMES(text("a")),
		"dir a\ndir a/b\ndir a/b/c\nfile a/x.c\nfile a/b/y.o\nkeep a/b\nkeep a/x.c\nkept a\n"
		"keep a/b/c\nkeep a/b/y.o\nkept a/b\nkept a/b/c\n");
	filter_free(f);
}

static void roots_are_named_as_written(void **state)
{
	struct rules r = recursive();
	struct told t;
	struct walk *w;

	(void)state;
	make_dirs("a", "a/b", NULL);
	assert_int_equal(make_text("a/f", "") | make_text("g", ""), 0);
	walk_is(&r, NAMES(text("a/b/")), "dir  (contents)\n");
	walk_is(&r, NAMES(text("a/.")), "dir  (contents)\ndir b\nfile f\n");
	walk_is(&r, NAMES(text("a/b/..")), "dir  (contents)\ndir b\nfile f\n");
	walk_is(&r, NAMES(text("g"), text("a/b")), "named g\ndir b\n");
	w = walk_all(&t, &r, NAMES(text("a/b")), true);
	assert_told(&t, "dir  (contents)\n");
	free_walk_and_told(&t, w);
	w = walk_all(&t, &r, NAMES(text("g")), false);
	assert_true(walk_is_one_file(w));
	free_walk_and_told(&t, w);
	walk_is(&r, NAMES(text("gone")), "named gone\n");
	walk_is(&r, NAMES(text("a/b/"), text("b/../a/b/"), text("a/b")),
		"dir  (contents)\nnamed b/../a/b/\ndir b\n");
	walk_is(&r, NAMES(text("a/b/"), text("a/../a/b/"), text("a/b")),
		"dir  (contents)\ndir  (contents) (again)\ndir b\n");
	walk_is(&r, NAMES(text("a/b"), text("a/f"), text("a/../a/b")),
		"dir b\nnamed a/f\n"
		"failed a/../a/b: 11 copy a/../a/b: the earlier source a/b has the same name\n");
	r.recursive = false;
	walk_is(&r, NAMES(text("a")), "failed a: 11 a is a directory (-r copies it)\n");
}

static void relative_makes_implied_directories(void **state)
{
	struct rules r = recursive();

	(void)state;
	make_dirs("a", "a/b", "a/b/c", NULL);
	assert_int_equal(make_text("a/b/f", "") | make_text("a/b/c/g", ""), 0);
	r.relative = true;
	walk_is(&r, NAMES(text("a/b/f"), text("a/b/c")),
		"dir a (implied)\ndir a/b (implied)\nnamed a/b/a/b/f\ndir a/b/c\nfile a/b/c/g\n");
	walk_is(&r, NAMES(text("a/./b/c/")), "dir b (implied)\ndir b/c\nfile b/c/g\n");
	walk_is(&r, NAMES(text("a/b/./")), "dir  (contents)\nfile f\ndir c\nfile c/g\n");
	walk_is(&r, NAMES(text("a/../a/b")),
		"failed a/../a/b: 1 copy a/../a/b: --relative cannot recreate .. (a/./b "
		"recreates only b)\n");
	walk_is(&r, NAMES(text("a/../a/./b/f")), "dir b (implied)\nnamed b/a/../a/./b/f\n");
	walk_is(&r, NAMES(text("a/gone")), "named a/gone\n");
}

static struct files_from *list(const char *first, ...)
{
	struct files_from *l;
	va_list ap;

	assert_int_equal(files_from_new(&l), 0);
	va_start(ap, first);
	for (const char *n = first; n; n = va_arg(ap, const char *))
		assert_int_equal(files_from_add(l, n), 0);
	va_end(ap);
	return l;
}

static void repeated_directories_of_several_sources_are_marked(void **state)
{
	struct rules r = recursive();

	(void)state;
	make_dirs("a", "a/d", "a/d/e", "b", "b/d", "b/d/e", "b/d/n", "c", "c/d", NULL);
	walk_is(&r, NAMES(text("a/"), text("b/"), text("c/d")),
		"dir  (contents)\ndir d\ndir d/e\n"
		"dir  (contents) (again)\ndir d (again)\ndir d/e (again)\ndir d/n\n"
		"dir d (again)\n");
	walk_is(&r, NAMES(text("a"), text("b")),
		"dir a\ndir a/d\ndir a/d/e\ndir b\ndir b/d\ndir b/d/e\ndir b/d/n\n");
	r.relative = true;
	walk_is(&r, NAMES(text("a/./d"), text("b/./d")),
		"dir d\ndir d/e\ndir d (again)\ndir d/e (again)\ndir d/n\n");
}

static void only_listed_names_are_found(void **state)
{
	struct rules r = RULES_PLAIN;
	struct files_from *l;

	(void)state;
	make_dirs("a", "a/b", "a/b/c", "a/d", "a/e", NULL);
	assert_int_equal(make_text("a/b/f", "") | make_text("a/b/g", "") |
				 make_text("a/b/c/h", "") | make_text("a/d/i", "") |
				 make_text("a/e/j", ""),
			 0);
	assert_int_equal(symlink("b", "a/l"), 0);
	l = list("b/f", "b/gone", "gone/1", "gone/2", "d", "b/f/no", "l/g", NULL);
	r.listed = l;
	walk_is(&r, NAMES(text("a")),
		"dir  (contents) (implied)\ndir b (implied)\nfile b/f\n"
		"failed b/gone: 3 open a/b/gone: No such file or directory\n"
		"failed gone/1: 3 open a/gone/1: No such file or directory\n"
		"failed gone/2: 3 open a/gone/2: No such file or directory\n"
		"dir d\nfailed b/f/no: 11 open a/b/f/no: Not a directory\n"
		"dir l (implied)\nfile l/g\n");
	walk_is(&r, NAMES(text("a/b/f")),
		"failed a/b/f: 11 a/b/f is not a directory (--files-from requires one)\n");
	walk_is(&r, NAMES(text("gone")), "named gone\n");
	files_from_free(l);
	r.recursive = true;
	r.delete = true;
	l = list("b", "b/gone", "e/j", NULL);
	r.listed = l;
	walk_is(&r, NAMES(text("a")),
		"dir  (contents) (implied)\ndir b\ndir b/c\nfile b/c/h\nfile b/f\nfile b/g\n"
		"failed b/gone: 3 open a/b/gone: No such file or directory\n"
		"dir e (implied)\nfile e/j\n"
		"keep b/c\nkeep b/f\nkeep b/g\nkept b\nkeep b/c/h\nkept b/c\n");
	files_from_free(l);
}

#define walk_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		walk_test(parents_come_first),
		walk_test(large_directories_are_read_in_pieces),
		walk_test(depth_uses_bounded_descriptors),
		walk_test(replaced_directory_is_detected),
		walk_test(symlinks_in_a_tree_are_not_followed),
		walk_test(loops_are_detected),
		walk_test(one_file_system_skips_other_file_systems),
		walk_test(sockets_and_devices_are_skipped),
		walk_test(own_temporaries_are_skipped),
		walk_test(unreadable_entries_are_reported),
		walk_test(filters_exclude_entries),
		walk_test(roots_are_named_as_written),
		walk_test(relative_makes_implied_directories),
		walk_test(repeated_directories_of_several_sources_are_marked),
		walk_test(only_listed_names_are_found),
	};

	return cmocka_run_group_tests_name("walk", tests, NULL, NULL);
}
