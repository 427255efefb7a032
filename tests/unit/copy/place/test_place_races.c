/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A second process of the same user exchanges directories, and their entries, with symlinks that
 * lead outside, as fast as it can, while the target is changed. Many calls fail then; nothing
 * outside may change.
 */

#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/log.h"
#include "place_rig.h"

enum { SHORT_MS = 500, LONG_MS = 10000, MANIFEST = 8192, EVICTING = 200 };

/* ---- the outside, which must not change ---------------------------------------------------- */

static const char stale[] = ".sluice.0123456789abcdef.01234567";

static void add_one(char *to, size_t *len, const char *dir, const char *name)
{
	char path[512], text[16] = "", xattr[16] = "";
	struct stat st;
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	assert_int_equal(lstat(path, &st), 0);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && S_ISREG(st.st_mode))
		assert_true(read(fd, text, sizeof text - 1) >= 0);
	if (fd >= 0) {
		if (fgetxattr(fd, "user.t", xattr, sizeof xattr - 1) < 0)
			xattr[0] = '\0';
		close(fd);
	}
	*len += (size_t)snprintf(to + *len, MANIFEST - *len,
				 "%s %o %u:%u %lu %lld %ld.%09ld %ld.%09ld [%s] [%s]\n", path,
				 st.st_mode, st.st_uid, st.st_gid, (unsigned long)st.st_nlink,
				 (long long)st.st_size, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
				 (long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec, text, xattr);
	assert_true(*len < MANIFEST);
}

static void add_all(char *to, size_t *len, const char *dir)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort);

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		if (strcmp(names[i]->d_name, "..") != 0)
			add_one(to, len, dir, names[i]->d_name);
		free(names[i]);
	}
	free(names);
}

static void manifest(char to[static MANIFEST])
{
	size_t len = 0;

	add_all(to, &len, "outside");
	add_all(to, &len, "outside/sub");
}

static char before[MANIFEST];

static int enter(void **state)
{
	char path[64];

	if (folder_enter(state))
		return -1;
	make_dir("outside", 0755);
	make("outside/f", "mine", 0604);
	make("outside/old", "mine", 0604);
	make_dir("outside/sub", 0705);
	make("outside/sub/f", "mine", 0604);
	snprintf(path, sizeof path, "outside/%s", stale);
	make(path, "mine", 0600);
	make_dir("dst", 0755);
	make_dir("dst/d", 0755);
	manifest(before);
	return 0;
}

/* ---- the attacker --------------------------------------------------------------------------- */

/* Exchange the entry name in `in' with a symlink to where. */
static void flip(int in, const char *name, const char *link, const char *where, unsigned *n)
{
	char away[32];
	struct stat a, b;

	if (fstatat(in, link, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	    fstatat(in, name, &a, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(a.st_mode) &&
	    !S_ISLNK(b.st_mode)) {
		/* A real object replaced the symlink. */
		snprintf(away, sizeof away, "away%u", (*n)++);
		(void)!renameat(in, link, in, away);
	}
	(void)!symlinkat(where, in, link);
	(void)!syscall(SYS_renameat2, in, name, in, link, RENAME_EXCHANGE);
}

static void fill(int in)
{
	int fd = openat(in, "f", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	(void)!mkdirat(in, "sub", 0700);
	fd = openat(in, stale, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

static void flip_all(bool leaves)
{
	int top = open("dst", O_RDONLY | O_DIRECTORY | O_CLOEXEC), in;
	unsigned n = 0, m = 0;

	for (;;) {
		flip(top, "d", "s", "../outside", &n);
		(void)!mkdirat(top, "d", 0755);
		if (!leaves)
			continue;
		in = openat(top, "d", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (in < 0)
			continue;
		fill(in);
		flip(in, "f", "s", "../../outside/f", &m);
		flip(in, "sub", "t", "../../outside/sub", &m);
		close(in);
	}
}

static pid_t start_flipping(bool leaves)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			flip_all(leaves);
		_exit(1);
	}
	return pid;
}

/* ---- the operations -------------------------------------------------------------------------- */

static struct rules rules;
static unsigned done;

static void with_dir(void (*work)(struct place *p, struct place_dir *top, struct place_dir *d))
{
	struct place_opts o = {.target = "dst", .peer = "h", .rules = &rules};
	struct place *p = open_place(&o);
	struct place_dir *top = put_contents(p, 0755), *d;
	struct record_dir r = dir_record("d", 0700);
	struct end_seen seen;
	struct change c;

	if (place_make_dir(p, top, &r, &d, &c) == 0)
		work(p, top, d);
	complete(p, true, &seen);
	place_close(p);
}

static void temporary(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct record_file r = file_record("f", 0600, 1);
	struct placement *t;

	(void)top;
	if (place_begin(p, d, &r, &t))
		return;
	done++;
	place_drop(t, false);
}

/* Kept, and not needed afterwards. */
static void partial(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct record_file r = file_record("f", 0600, 0);
	struct placement *t;

	(void)top;
	if (place_begin(p, d, &r, &t))
		return;
	place_drop(t, true);
	done += place_update_metadata(p, d, &r, NULL) == 0;
}

static void whole(struct place *p, struct place_dir *top, struct place_dir *d)
{
	(void)top;
	done += try_file(p, d, "f", "theirs") == 0;
}

/* The same file, with all metadata different. */
static void same(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct record_file r = file_record("f", 0777, 0);
	struct record_xattr v = {
		.id = r.id,
		.size = 6,
		.len = 6,
		.name = "user.t",
		.bytes = (const uint8_t *)"theirs",
	};
	struct xattrs *x = NULL;

	(void)top;
	r.a.uid = r.a.gid = 1;
	r.a.mtime_ns = done;
	assert_int_equal(xattrs_add(&x, &v), 0);
	done += place_update_metadata(p, d, &r, rules.xattrs ? x : NULL) == 0;
	xattrs_free(x);
}

static void directory(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct record_dir r = dir_record("sub", 0777);
	struct place_dir *sub;
	struct change c;

	(void)top;
	if (place_make_dir(p, d, &r, &sub, &c))
		return;
	done += try_file(p, sub, "f", "theirs") == 0;
}

static void symlinks(struct place *p, struct place_dir *top, struct place_dir *d)
{
	char to[32];
	struct change c;

	(void)top;
	snprintf(to, sizeof to, "%u", done);
	done += try_symlink(p, d, "f", to, &c) == 0;
}

static void hard_links(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct record_file r = file_record("f", 0600, 0), l = file_record("old", 0600, 0);
	struct placement *t;
	struct change c;

	r.flags = FILE_LINKED;
	if (place_begin(p, d, &r, &t) || place_finish_file(t, 0))
		return;
	l.type = TYPE_HARD_LINK;
	l.link_to = r.id;
	done += place_make_other(p, d, &l, NULL, NULL, &c) == 0;
	done += place_make_other(p, top, &l, NULL, NULL, &c) == 0;
}

static void nodes(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct record_file r = file_record("f", 0777, 0);
	struct change c;

	(void)top;
	r.type = done % 2 ? TYPE_FIFO : TYPE_SYMLINK;
	r.a.uid = r.a.gid = 1;
	done += place_make_other(p, d, &r, "x", NULL, &c) == 0;
}

static void deletions(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct reader none = reader_of("", 0);

	(void)p;
	(void)top;
	done += place_dir_keep(d, &none, true) == 0;
}

/* The same, deeper in the tree; d is the deleted directory. */
static void deletions_above(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct reader none = reader_of("", 0);

	(void)p;
	(void)d;
	done += place_dir_keep(top, &none, true) == 0;
}

static void reopening(struct place *p, struct place_dir *top, struct place_dir *d)
{
	struct place_dir *sub;
	struct record_dir r = dir_record("sub", 0777);
	struct change c;
	char name[16];

	if (place_make_dir(p, d, &r, &sub, &c))
		return;
	for (unsigned i = 0; i < EVICTING; i++) {
		snprintf(name, sizeof name, "e%u", i);
		if (try_dir(p, top, name, &c))
			return;
	}
	done += try_file(p, sub, "f", "theirs") == 0;
}

/*
 * ---- the tests --------------------------------------------------------------------------------
 */

static unsigned budget_ms(void)
{
	const char *count = getenv("SLUICE_COUNT");

	return count && atoi(count) > 1 ? LONG_MS : SHORT_MS;
}

static void race(void (*work)(struct place *, struct place_dir *, struct place_dir *), bool leaves)
{
	char after[MANIFEST];
	pid_t pid = start_flipping(leaves);
	uint64_t until = clock_ms() + budget_ms();

	done = 0;
	while (clock_ms() < until)
		with_dir(work);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	/* Without the attacker the operation succeeds. */
	unlink("dst/d");
	if (mkdir("dst/d", 0755) == 0 || unlink("dst/d/f") == 0 || rmdir("dst/d/f") == 0)
		errno = 0;
	make("dst/d/f", "", 0600);
	done = 0;
	with_dir(work);
	assert_true(done > 0);
	manifest(after);
	assert_string_equal(after, before);
}

static void plain(void)
{
	rules = rules_r;
	log_setup("test", LOG_ERROR);
}

static void race_while_temporaries_are_opened(void **state)
{
	(void)state;
	plain();
	race(temporary, true);
}

static void race_while_temporaries_are_renamed(void **state)
{
	(void)state;
	plain();
	race(whole, true);
}

static void race_while_modes_are_set(void **state)
{
	(void)state;
	plain();
	rules.perms = true;
	race(same, true);
}

static void race_while_owners_are_set(void **state)
{
	(void)state;
	plain();
	rules.owner = rules.group = true;
	race(same, true);
}

static void race_while_times_are_set(void **state)
{
	(void)state;
	plain();
	rules.times = true;
	race(same, true);
}

static void race_while_attributes_are_set(void **state)
{
	(void)state;
	plain();
	rules.xattrs = true;
	race(same, true);
}

static void race_while_directories_are_made(void **state)
{
	(void)state;
	plain();
	rules.perms = rules.times = true;
	race(directory, true);
}

static void race_while_symlinks_are_made(void **state)
{
	(void)state;
	plain();
	rules.times = rules.owner = true;
	race(symlinks, true);
}

static void race_while_hard_links_are_made(void **state)
{
	(void)state;
	plain();
	race(hard_links, true);
}

static void race_while_nodes_are_made(void **state)
{
	(void)state;
	plain();
	rules.perms = rules.owner = rules.times = true;
	race(nodes, true);
}

static void race_while_partial_files_are_removed(void **state)
{
	(void)state;
	plain();
	race(partial, true);
}

static void race_while_names_are_deleted(void **state)
{
	(void)state;
	plain();
	rules.delete = true;
	race(deletions, true);
}

static void race_while_directories_are_deleted(void **state)
{
	(void)state;
	plain();
	rules.delete = true;
	race(deletions_above, true);
}

static void race_while_directories_are_reopened(void **state)
{
	(void)state;
	plain();
	race(reopening, false);
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(race_while_temporaries_are_opened),
		place_test(race_while_temporaries_are_renamed),
		place_test(race_while_modes_are_set),
		place_test(race_while_owners_are_set),
		place_test(race_while_times_are_set),
		place_test(race_while_attributes_are_set),
		place_test(race_while_directories_are_made),
		place_test(race_while_symlinks_are_made),
		place_test(race_while_hard_links_are_made),
		place_test(race_while_nodes_are_made),
		place_test(race_while_partial_files_are_removed),
		place_test(race_while_names_are_deleted),
		place_test(race_while_directories_are_deleted),
		place_test(race_while_directories_are_reopened),
	};

	return cmocka_run_group_tests_name("place_races", tests, NULL, NULL);
}
