/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/io/digest.h"

/* Names from string literals, which are never written to. */
static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void assert_copied(struct rig *r)
{
	if (rig_run(r) == 0)
		return;
	fail_msg("source %d: %s; sink %d: %s", r->source.rc, r->source.failure.text, r->sink.rc,
		 r->sink.failure.text);
}

static void assert_failed(const struct rig_end *e, enum outcome code, const char *part)
{
	if (!e->rc)
		fail_msg("the %s did not fail", e->role == ROLE_SOURCE ? "source" : "sink");
	if (e->failure.code != code || !strstr(e->failure.text, part))
		fail_msg("%s: %d \"%s\", not %d \"%s\"", e->role == ROLE_SOURCE ? "source" : "sink",
			 e->failure.code, e->failure.text, code, part);
}

static void assert_both_failed(const struct rig *r, enum outcome code, const char *part)
{
	assert_failed(&r->source, code, part);
	assert_failed(&r->sink, code, part);
}

/* One named file. */
static void set_one(struct rig *r, char *name[1], const char *target)
{
	rig_init(r);
	rig_names(r, name, 1, target);
}

static void every_size_copies_with_every_block_size(void **state)
{
	static const uint32_t blocks[] = {4096, 64 << 10, CELL, 1 << 20};
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	for (unsigned b = 0; b < 4; b++) {
		const uint64_t sizes[] = {
			0,         1,
			12,        4095,
			4096,      blocks[b] - 1,
			blocks[b], blocks[b] + 1,
			CELL - 1,  CELL,
			CELL + 1,  3 * (1 << 20) + 17,
		};

		for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			set_one(&r, name, "to");
			r.block_size = blocks[b];
			assert_int_equal(make_file("from", sizes[i], i), 0);
			assert_copied(&r);
			assert_true(same_content("from", "to"));
			assert_int_equal(r.source.result.total.bytes, sizes[i]);
			assert_int_equal(r.sink.result.total.bytes, sizes[i]);
			assert_int_equal(r.source.tally.bytes, sizes[i]);
			assert_int_equal(r.sink.tally.bytes, sizes[i]);
			assert_int_equal(r.source.tally.total, sizes[i]);
			assert_true(r.source.tally.total_known);
		}
	}
	assert_int_equal(count_files(".sluice"), 0);
}

static void one_block_copies_over_many_lanes(void **state)
{
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", 5000000, 3), 0);
	set_one(&r, name, "to");
	r.lanes = 1;
	r.depth = 1;
	assert_copied(&r);
	assert_true(same_content("from", "to"));
	set_one(&r, name, "to");
	r.lanes = 9;
	r.depth = 2;
	assert_copied(&r);
	assert_true(same_content("from", "to"));
}

static void digest_is_independent_of_block_size(void **state)
{
	char *name[] = {text("from")};
	uint64_t first[2] = {0, 0};
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", 3000001, 4), 0);
	for (uint32_t size = 4096; size <= 4 << 20; size *= 4) {
		set_one(&r, name, "to");
		r.block_size = size;
		assert_copied(&r);
		if (size == 4096)
			memcpy(first, r.sink.result.total.digest, sizeof first);
		assert_memory_equal(first, r.sink.result.total.digest, sizeof first);
	}
}

static void many_files_of_all_sizes_are_copied(void **state)
{
	enum { FILES = 300 };
	char path[FILES][32], *names[FILES];
	uint64_t bytes = 0;
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("from", 0755) | mkdir("to", 0755), 0);
	for (unsigned i = 0; i < FILES; i++) {
		uint64_t size = i % 50 == 49 ? 700000 : i * 37;

		snprintf(path[i], sizeof path[i], "from/%u", i);
		names[i] = path[i];
		assert_int_equal(make_file(path[i], size, i), 0);
		bytes += size;
	}
	rig_init(&r);
	rig_names(&r, names, FILES, "to");
	assert_copied(&r);
	assert_int_equal(r.source.result.total.files, FILES);
	assert_int_equal(r.sink.result.total.files, FILES);
	assert_int_equal(r.source.result.total.bytes, bytes);
	assert_int_equal(r.source.tally.files, FILES);
	for (unsigned i = 0; i < FILES; i++) {
		char to[32];

		snprintf(to, sizeof to, "to/%u", i);
		assert_true(same_content(path[i], to));
	}
}

static void source_expands_patterns(void **state)
{
	char *name[] = {text("d/*.c")};
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("d", 0755) | mkdir("to", 0755), 0);
	assert_int_equal(make_text("d/a.c", "a") | make_text("d/b.c", "b"), 0);
	assert_int_equal(make_text("d/c.h", "c"), 0);
	set_one(&r, name, "to");
	r.from.expand = true;
	assert_copied(&r);
	assert_true(has_text("to/a.c", "a") && has_text("to/b.c", "b"));
	assert_int_equal(access("to/c.h", F_OK), -1);
	/* Several sources into a missing name or a file: all are refused. */
	assert_int_equal(make_text("file", "old"), 0);
	for (unsigned i = 0; i < 2; i++) {
		set_one(&r, name, i ? "file" : "new");
		r.from.expand = true;
		assert_int_equal(rig_run(&r), -1);
		assert_both_failed(&r, OUT_SOME_FILES, "2 of 2");
		assert_int_equal(r.sink.told, 2);
		assert_string_equal(r.sink.told_last.text,
				    i ? "file is not a directory"
				      : "new: no such directory (--mkpath makes it)");
	}
	assert_true(has_text("file", "old"));
	assert_int_equal(access("new", F_OK), -1);
}

static void second_source_of_one_name_is_refused(void **state)
{
	char *names[] = {text("a/x"), text("b/x")};
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("a", 0755) | mkdir("b", 0755) | mkdir("to", 0755), 0);
	assert_int_equal(make_text("a/x", "a") | make_text("b/x", "b"), 0);
	rig_init(&r);
	rig_names(&r, names, 2, "to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_SOME_FILES, "1 of 2");
	assert_int_equal(r.source.told, 1);
	assert_string_equal(r.source.told_last.text,
			    "copy b/x: the earlier source a/x has the same name");
	assert_true(has_text("to/x", "a"));
}

/* ---- holes --------------------------------------------------------------------------- */

static int make_sparse(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int ret = fd < 0 || ftruncate(fd, 8 << 20) || pwrite(fd, "here", 4, (2 << 20) + 100) != 4 ||
		  pwrite(fd, "there", 5, (5 << 20) - 2) != 5;

	close(fd);
	return ret;
}

static blkcnt_t blocks_of(const char *name)
{
	struct stat st;

	assert_int_equal(stat(name, &st), 0);
	return st.st_blocks;
}

static void holes_stay_holes(void **state)
{
	char *name[] = {text("from")};
	uint64_t digest[2];
	struct rig r;

	(void)state;
	assert_int_equal(make_sparse("from"), 0);
	for (uint32_t size = 4096; size <= 4 << 20; size *= 4) {
		set_one(&r, name, "to");
		r.block_size = size;
		assert_copied(&r);
		assert_true(same_content("from", "to"));
		assert_true(blocks_of("to") * 512 <= 4 * CELL);
		assert_int_equal(r.source.tally.bytes, 8 << 20);
		assert_int_equal(r.sink.tally.bytes, 8 << 20);
		if (size == 4096)
			memcpy(digest, r.sink.result.total.digest, sizeof digest);
		assert_memory_equal(digest, r.sink.result.total.digest, sizeof digest);
	}
	set_one(&r, name, "full");
	rig_rules(&r)->no_sparse = true;
	assert_copied(&r);
	assert_true(same_content("from", "full"));
	assert_true(blocks_of("full") * 512 >= 8 << 20);
}

static void file_of_one_hole_is_copied(void **state)
{
	char *name[] = {text("from")};
	static const off_t sizes[] = {1, 100000, CELL, 10000000};
	struct rig r;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(make_text("from", ""), 0);
		assert_int_equal(truncate("from", sizes[i]), 0);
		set_one(&r, name, "to");
		assert_copied(&r);
		assert_true(same_content("from", "to"));
		assert_int_equal(blocks_of("to"), 0);
	}
}

static void sparse_makes_holes_of_zeros(void **state)
{
	char *name[] = {text("full")};
	struct rig r;

	(void)state;
	assert_int_equal(make_sparse("from"), 0);
	set_one(&r, name, "to");
	r.from.names = (char *[]){text("from")};
	r.to.wants = r.from.names;
	rig_rules(&r)->no_sparse = true;
	rig_rules(&r)->sparse = true;
	assert_copied(&r);
	assert_true(same_content("from", "to"));
	assert_true(blocks_of("to") * 512 <= 64 << 10);
}

static void old_bytes_do_not_show_through_holes(void **state)
{
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	assert_int_equal(make_sparse("from"), 0);
	assert_int_equal(make_file("to", 9 << 20, 1), 0);
	set_one(&r, name, "to");
	rig_rules(&r)->inplace = true;
	assert_copied(&r);
	assert_true(same_content("from", "to"));
}

/* The target is a hard link to the source: its bytes must survive. */
static void inplace_onto_itself_loses_nothing(void **state)
{
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", 3000000, 1) | make_file("copy", 3000000, 1), 0);
	assert_int_equal(link("from", "to"), 0);
	set_one(&r, name, "to");
	rig_rules(&r)->inplace = true;
	rig_run(&r);
	assert_true(same_content("from", "copy"));
}

/* ---- source failures ----------------------------------------------------------------- */

static void missing_source_fails(void **state)
{
	char *name[] = {text("gone")}, *pattern[] = {text("*.gone")};
	struct rig r;

	(void)state;
	set_one(&r, name, "to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_NO_SOURCE, "open gone: No such file");
	assert_int_equal(symlink("nowhere", "gone"), 0);
	set_one(&r, name, "to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_NO_SOURCE, "open gone: No such file");
	assert_int_equal(unlink("gone"), 0);
	set_one(&r, pattern, "to");
	r.from.expand = true;
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_NO_SOURCE, "*.gone");
	assert_int_equal(count_files(""), 2);
}

/* It exists when names are expanded, and is gone when it is opened. */
static void vanished_source_fails(void **state)
{
	char *names[] = {text("fifo"), text("gone")};
	struct rig r;
	int fd;

	(void)state;
	assert_int_equal(mkdir("to", 0755), 0);
	assert_int_equal(mkfifo("fifo", 0600) | make_text("gone", "x"), 0);
	rig_init(&r);
	rig_names(&r, names, 2, "to");
	r.lanes = 1;
	assert_int_equal(rig_start(&r), 0);
	/* Wait until the source has opened it. */
	fd = open("fifo", O_WRONLY | O_CLOEXEC);
	assert_int_equal(unlink("gone"), 0);
	assert_int_equal(write(fd, "data", 4), 4);
	close(fd);
	rig_join(&r);
	assert_failed(&r.source, OUT_VANISHED, "1 of 2");
	assert_failed(&r.sink, OUT_SOME_FILES, "1 of 2");
	assert_int_equal(r.source.told, 1);
	assert_int_equal(r.source.told_last.code, OUT_VANISHED);
	assert_true(has_text("to/fifo", "data"));
}

static void other_sources_are_copied_despite_a_failure(void **state)
{
	char *names[] = {text("gone"), text("one"), text("dir"), text("two"),
			 text("/proc/self/mem")};
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("to", 0755) | mkdir("dir", 0755), 0);
	assert_int_equal(make_text("one", "1") | make_file("two", 1000000, 2), 0);
	rig_init(&r);
	rig_names(&r, names, 5, "to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_SOME_FILES, "3 of 5");
	assert_int_equal(r.source.told, 3);
	assert_int_equal(r.sink.told, 0);
	assert_int_equal(r.sink.result.total.files, 2);
	assert_int_equal(r.sink.result.total.failed, 3);
	assert_true(has_text("to/one", "1") && same_content("two", "to/two"));
	assert_int_equal(access("to/mem", F_OK), -1);
}

static void directory_without_recursive_is_refused(void **state)
{
	char *name[] = {text("d")};
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	set_one(&r, name, "to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "d is a directory (-r copies it)");
}

static void read_error_is_not_end_of_file(void **state)
{
	char *name[] = {text("/proc/self/mem")};
	struct rig r;

	(void)state;
	assert_int_equal(make_text("to", "old"), 0);
	set_one(&r, name, "to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "read /proc/self/mem: Input/output error");
	assert_true(has_text("to", "old"));
	assert_int_equal(count_files(".sluice"), 0);
	assert_false(r.source.result.at_peer);
	assert_true(r.sink.result.at_peer);
}

static void proc_files_are_read_to_their_end(void **state)
{
	char *name[] = {text("/proc/self/status")};
	struct stat st;
	struct rig r;

	(void)state;
	set_one(&r, name, "to");
	assert_copied(&r);
	assert_int_equal(stat("to", &st), 0);
	assert_true(st.st_size > 100);
	assert_int_equal(st.st_mode & 07777, 0444);
}

/*
 * The source changes while it is read: the sink writes into a FIFO that is not read until the
 * change is made, and the file is larger than all buffers in between.
 */
enum { LARGE = 8 << 20 };

static void change_while_read(struct rig *r, void (*change)(void))
{
	static char *name[] = {NULL};
	static char buf[64 << 10];
	int fd;

	name[0] = text("from");
	assert_int_equal(make_file("from", LARGE, 1), 0);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	set_one(r, name, "fifo");
	assert_int_equal(rig_start(r), 0);
	/* One byte has arrived: so the file is open and being read. */
	fd = open("fifo", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, buf, 1), 1);
	change();
	while (read(fd, buf, sizeof buf) > 0)
		;
	close(fd);
	rig_join(r);
}

static void shrink(void)
{
	assert_int_equal(truncate("from", LARGE / 2), 0);
}

static void grow(void)
{
	assert_int_equal(truncate("from", LARGE + 1), 0);
}

static void overwrite(void)
{
	int fd = open("from", O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, "x", 1, 1000), 1);
	close(fd);
}

static void shrinking_source_fails(void **state)
{
	struct rig r;

	(void)state;
	change_while_read(&r, shrink);
	assert_both_failed(&r, OUT_CHANGED, "read from: source shrank");
}

static void overwritten_source_fails(void **state)
{
	struct rig r;

	(void)state;
	change_while_read(&r, overwrite);
	assert_both_failed(&r, OUT_CHANGED, "read from: source changed");
}

static void growing_source_fails(void **state)
{
	struct rig r;

	(void)state;
	change_while_read(&r, grow);
	assert_int_equal(r.source.rc, 0);
	assert_int_equal(r.sink.rc, 0);
	assert_int_equal(r.sink.result.total.bytes, LARGE);
}

/* ---- sink failures ------------------------------------------------------------------- */

static void impossible_targets_fail(void **state)
{
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", 3000000, 1), 0);
	set_one(&r, name, "no/such/to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "directory no/such does not exist (--mkpath makes it)");
	assert_int_equal(mkdir("d", 0755) | mkdir("d/from", 0755), 0);
	set_one(&r, name, "d");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "d/from is a directory");
	set_one(&r, name, "/dev/full");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "write /dev/full: No space left on device");
	assert_true(r.source.result.at_peer);
	assert_false(r.sink.result.at_peer);
}

static void full_disk_leaves_the_old_file(void **state)
{
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("full", 0755), 0);
	if (mount("none", "full", "tmpfs", 0, "size=2m"))
		skip();
	assert_int_equal(make_file("from", 5000000, 1), 0);
	assert_int_equal(make_text("full/to", "old"), 0);
	set_one(&r, name, "full/to");
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "write full/to: No space left on device");
	/* Again, without the check that detects it in advance. */
	set_one(&r, name, "full/to");
	r.from.names = (char *[]){text("/dev/zero")};
	r.to.wants = r.from.names;
	assert_int_equal(rig_run(&r), -1);
	assert_both_failed(&r, OUT_FILE, "write full/to: No space left on device");
	assert_true(has_text("full/to", "old"));
	assert_int_equal(chdir("full"), 0);
	assert_int_equal(count_files(""), 3);
	assert_int_equal(chdir(".."), 0);
	assert_int_equal(umount("full"), 0);
}

static void lost_peer_leaves_the_old_file(void **state)
{
	char *name[] = {text("/dev/zero")};
	struct rig r;

	(void)state;
	assert_int_equal(make_text("to", "old"), 0);
	set_one(&r, name, "to");
	assert_int_equal(rig_start(&r), 0);
	while (!atomic_load(&r.sink.tally.bytes))
		usleep(1000);
	rig_cut(&r);
	rig_join(&r);
	assert_int_equal(r.source.failure.code, OUT_PEER_LOST);
	assert_int_equal(r.sink.failure.code, OUT_PEER_LOST);
	assert_true(has_text("to", "old"));
	/* A stream cannot be resumed. */
	assert_int_equal(count_files(".sluice"), 0);
	assert_int_equal(make_text("from", "new"), 0);
	name[0] = text("from");
	set_one(&r, name, "to");
	assert_copied(&r);
	assert_true(has_text("to", "new"));
	assert_int_equal(count_files(".sluice"), 0);
}

/* ---- removing sources ---------------------------------------------------------------- */

static void stored_sources_are_removed(void **state)
{
	char *names[] = {text("a"), text("b"), text("link")};
	struct rig r;

	(void)state;
	assert_int_equal(mkdir("to", 0755), 0);
	assert_int_equal(make_text("a", "a") | make_file("b", 2000000, 1) | make_text("c", "c"), 0);
	assert_int_equal(symlink("c", "link"), 0);
	rig_init(&r);
	rig_names(&r, names, 3, "to");
	rig_rules(&r)->remove_source = true;
	rig_rules(&r)->fsync = true;
	assert_int_equal(rig_run(&r), -1);
	assert_int_equal(r.sink.rc, 0);
	assert_int_equal(r.source.failure.code, OUT_SOME_FILES);
	assert_int_equal(r.source.told, 1);
	assert_string_equal(r.source.told_last.text,
			    "remove link: it is a symbolic link to the copied file");
	assert_int_equal(access("a", F_OK), -1);
	assert_int_equal(access("b", F_OK), -1);
	assert_true(has_text("c", "c") && has_text("to/a", "a") && has_text("to/link", "c"));
}

static void failed_copy_removes_no_source(void **state)
{
	char *name[] = {text("from")};
	struct rig r;

	(void)state;
	assert_int_equal(make_file("from", 1000000, 1), 0);
	set_one(&r, name, "/dev/full");
	rig_rules(&r)->remove_source = true;
	r.to.rules = NULL;
	assert_int_equal(rig_run(&r), -1);
	assert_int_equal(access("from", F_OK), 0);
}

static void changed_source_is_not_removed(void **state)
{
	char *name[] = {text("from")};
	struct rig r;
	int fd;

	(void)state;
	assert_int_equal(make_text("from", "small"), 0);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	set_one(&r, name, "fifo");
	rig_rules(&r)->remove_source = true;
	r.to.rules = NULL;
	assert_int_equal(rig_start(&r), 0);
	/* It counts once it has been read; the sink waits for a reader of the FIFO. */
	while (!atomic_load(&r.source.tally.bytes))
		usleep(1000);
	usleep(50000);
	assert_int_equal(make_text("from", "other"), 0);
	fd = open("fifo", O_RDONLY | O_CLOEXEC);
	rig_join(&r);
	close(fd);
	assert_int_equal(r.sink.rc, 0);
	assert_failed(&r.source, OUT_CHANGED, "remove from: it is no longer the file");
	assert_true(has_text("from", "other"));
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(every_size_copies_with_every_block_size),
		copy_test(one_block_copies_over_many_lanes),
		copy_test(digest_is_independent_of_block_size),
		copy_test(many_files_of_all_sizes_are_copied),
		copy_test(source_expands_patterns),
		copy_test(second_source_of_one_name_is_refused),
		copy_test(holes_stay_holes),
		copy_test(file_of_one_hole_is_copied),
		copy_test(sparse_makes_holes_of_zeros),
		copy_test(old_bytes_do_not_show_through_holes),
		copy_test(inplace_onto_itself_loses_nothing),
		copy_test(missing_source_fails),
		copy_test(vanished_source_fails),
		copy_test(other_sources_are_copied_despite_a_failure),
		copy_test(directory_without_recursive_is_refused),
		copy_test(read_error_is_not_end_of_file),
		copy_test(proc_files_are_read_to_their_end),
		copy_test(shrinking_source_fails),
		copy_test(overwritten_source_fails),
		copy_test(growing_source_fails),
		copy_test(impossible_targets_fail),
		copy_test(full_disk_leaves_the_old_file),
		copy_test(lost_peer_leaves_the_old_file),
		copy_test(stored_sources_are_removed),
		copy_test(failed_copy_removes_no_source),
		copy_test(changed_source_is_not_removed),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
