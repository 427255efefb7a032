/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_actor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/io.h"
#include "copy/io/digest.h"
#include "copy/place/place.h"

/*
 * Which trees a sink accepts and which it refuses: a scripted source and a real sink. The working
 * directory contains only the directory "to", the target, and "safe", where nothing may change.
 */

enum { OPENING_US = 200000 };

struct scene {
	struct rules rules;
	const char *want[3];
	const char *target; /* NULL: "to" */
	bool no_target_dir;
	const char *listed[4];
	struct say say[SAYS_MAX];
	enum outcome code; /* the exit code of the sink */
	const char *text; /* part of its failure */
	const char *made, *not_made; /* exists in the end */
};

int __real_place_make_dir(struct place *p, struct place_dir *parent, const struct record_dir *r,
			  struct place_dir **out, struct change *change);
int __wrap_place_make_dir(struct place *p, struct place_dir *parent, const struct record_dir *r,
			  struct place_dir **out, struct change *change);

static struct rig rig;
static struct actor actor;

/* Names from string literals, which are never written to. */
static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void play(const struct scene *scene)
{
	static char *wants[3];
	struct rules rules = scene->rules;
	struct files_from *listed = NULL;
	unsigned count = 0;

	for (; count < 3 && scene->want[count]; count++)
		wants[count] = text(scene->want[count]);
	rules.max_size = UINT64_MAX;
	rules.max_delete = rules.max_delete ? rules.max_delete : UINT64_MAX;
	rules.backup_dir = rules.suffix = rules.chmod = rules.chown = "";
	if (scene->listed[0])
		assert_int_equal(files_from_new(&listed), 0);
	for (unsigned i = 0; i < 4 && scene->listed[i]; i++)
		assert_int_equal(files_from_add(listed, scene->listed[i]), 0);
	rules.listed = listed;
	rig_init(&rig);
	rig_names(&rig, wants, count, scene->target ? scene->target : "to");
	rules.no_target_dir = scene->no_target_dir;
	rig.to.rules = &rules;
	rig.to.peer = "sourcehost";
	actor_init(&actor, &rig, scene->say);
	rig_run(&rig);
	files_from_free(listed);
}

static void check(const struct scene *scene)
{
	const struct rig_end *k = &rig.sink;
	struct stat st;

	if (scene->code ? !k->rc || k->failure.code != scene->code ||
				  !strstr(k->failure.text, scene->text)
			: k->rc != 0)
		fail_msg("sink %d: %d \"%s\", not %d \"%s\"", k->rc, k->failure.code,
			 k->failure.text, scene->code, scene->text ? scene->text : "");
	if (scene->made && lstat(scene->made, &st))
		fail_msg("there is no %s", scene->made);
	if (scene->not_made && lstat(scene->not_made, &st) == 0)
		fail_msg("%s was made", scene->not_made);
	assert_true(has_text("safe/f", "safe"));
}

static int clear(void)
{
	return system("rm -rf to safe && mkdir to safe && printf safe > safe/f");
}

static void play_all(const struct scene *scenes, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(clear(), 0);
		play(&scenes[i]);
		check(&scenes[i]);
	}
}
#define PLAY(scenes) play_all(scenes, sizeof scenes / sizeof *scenes)

#define TREE .rules = {.recursive = true}
#define DIR_D                                                                                      \
	{                                                                                          \
		.verb = SAY_DIR, .id = 1, .name = "d", .mode = 0755                                \
	}
#define FILE_IN(of, n, what)                                                                       \
	{                                                                                          \
		.verb = SAY_FILE, .id = n, .dir = of, .size = 2, .name = what                      \
	}
#define DATA_OF(n)                                                                                 \
	{                                                                                          \
		.verb = SAY_DATA, .id = n, .len = 2, .text = "hi"                                  \
	}
#define END_OF(n)                                                                                  \
	{                                                                                          \
		.verb = SAY_END_OF_FILE, .id = n, .size = 2, .data = 2, .text = "hi"               \
	}
#define FILE_WHOLE(of, n, what) FILE_IN(of, n, what), DATA_OF(n), END_OF(n)
#define END_OF_ALL                                                                                 \
	{                                                                                          \
		.verb = SAY_END                                                                    \
	}

/* ---- directories ---------------------------------------------------------------------- */

static void tree_is_accepted(void **state)
{
	static const struct scene scene = {
		TREE,
		.want = {"d"},
		.say = {DIR_D,
			FILE_WHOLE(1, 2, "x"),
			{.verb = SAY_DIR, .id = 3, .dir = 1, .name = "deep", .mode = 0700},
			FILE_WHOLE(3, 4, "y"),
			FILE_IN(3, 5, "z"),
			{.verb = SAY_EXTENT, .id = 5, .len = 2, .text = "hi"},
			END_OF(5),
			END_OF_ALL},
		.made = "to/d/deep/z",
	};

	(void)state;
	assert_int_equal(clear(), 0);
	play(&scene);
	check(&scene);
	assert_int_equal(rig.source.rc, 0);
	assert_true(has_text("to/d/x", "hi") && has_text("to/d/deep/y", "hi"));
	assert_true(has_text("to/d/deep/z", "hi"));
	assert_int_equal(rig.sink.result.total.files, 3);
	assert_int_equal(rig.sink.result.total.others, 2);
	assert_int_equal(rig.sink.result.counts.dirs, 2);
	assert_int_equal(rig.sink.result.counts.created, 5);
	for (uint32_t id = 2; id <= 5; id++)
		assert_int_equal(actor_heard(&actor, MSG_STORED, id) != NULL, id != 3);
	assert_int_equal(actor_heard(&actor, MSG_DONE, 0)->total.others, 2);
}

static void invalid_directories_are_refused(void **state)
{
	static const struct scene scenes[] = {
		{TREE, .want = {"d"}, .say = {DIR_D, DIR_D}, .code = OUT_PROTOCOL,
		 .text = "announces directory 1 twice"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_DIR, .id = 1, .name = "d", .mode = 0700, .other_lane = true}},
		 .code = OUT_PROTOCOL, .text = "announces directory 1 twice"},
		{TREE, .want = {"d"}, .say = {{.verb = SAY_DIR, .id = 2, .dir = 1, .name = "e"}},
		 .code = OUT_PROTOCOL, .text = "in a directory it did not announce"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_DIR, .id = 2, .dir = 1, .name = "e", .other_lane = true}},
		 .code = OUT_PROTOCOL, .text = "in a directory it did not announce"},
		{TREE, .want = {"d"}, .say = {FILE_IN(1, 2, "x")}, .code = OUT_PROTOCOL,
		 .text = "in a directory it did not announce"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE,
			  .id = 2,
			  .dir = 1,
			  .size = 2,
			  .name = "x",
			  .other_lane = true}},
		 .code = OUT_PROTOCOL, .text = "in a directory it did not announce"},
		{TREE, .want = {"d"}, .say = {DIR_D, FILE_IN(1, 1, "x")}, .code = OUT_PROTOCOL,
		 .text = "record from the peer: dir"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_DIR, .id = 2, .dir = 1, .name = "e"},
			 FILE_IN(1, 2, "x")},
		 .code = OUT_PROTOCOL, .text = "with the id of a directory"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 FILE_IN(1, 2, "x"),
			 {.verb = SAY_DIR, .id = 2, .dir = 1, .name = "e"}},
		 .code = OUT_PROTOCOL, .text = "with the id of a file"},
		/* No directory was requested. */
		{.want = {"d"},
		 .say = {DIR_D},
		 .code = OUT_PROTOCOL,
		 .text = "a directory, but only files",
		 .not_made = "to/d"},
		{TREE, .want = {"x"}, .say = {DIR_D}, .code = OUT_PROTOCOL,
		 .text = "d, which does not match x", .not_made = "to/d"},
		{TREE, .want = {"d"}, .say = {{.verb = SAY_DIR, .id = 1, .want = 1, .name = "d"}},
		 .code = OUT_PROTOCOL, .text = "unknown source number"},
		/* Invalid names. */
		{TREE, .want = {"d"}, .say = {DIR_D, FILE_IN(1, 2, "..")}, .code = OUT_PROTOCOL,
		 .text = "name"},
		{TREE, .want = {"d"}, .say = {DIR_D, FILE_IN(1, 2, "../../safe/f")},
		 .code = OUT_PROTOCOL, .text = "name"},
		{TREE, .want = {"d"}, .say = {DIR_D, FILE_IN(1, 2, "")}, .code = OUT_PROTOCOL,
		 .text = "not a valid file name"},
		{TREE, .want = {"d"},
		 .say = {DIR_D, {.verb = SAY_DIR, .id = 2, .dir = 1, .name = ".."}},
		 .code = OUT_PROTOCOL, .text = "name"},
		/* Contents where the name was requested, and the converse. */
		{TREE, .want = {"d"}, .say = {{.verb = SAY_DIR, .id = 1, .flags = DIR_CONTENTS}},
		 .code = OUT_PROTOCOL, .text = "which does not match d"},
		{TREE, .want = {"d/"}, .say = {DIR_D}, .code = OUT_PROTOCOL,
		 .text = "which does not match d/"},
		{TREE, .want = {"d"}, .no_target_dir = true, .say = {DIR_D}, .code = OUT_PROTOCOL,
		 .text = "which does not match d"},
		{TREE, .want = {"d"}, .say = {{.verb = SAY_END, .others = 1}}, .code = OUT_PROTOCOL,
		 .text = "differ from what it sent"},
		{TREE, .want = {"d", "e"}, .say = {DIR_D, END_OF_ALL}, .code = OUT_PROTOCOL,
		 .text = "before all requested files"},
	};

	(void)state;
	PLAY(scenes);
}

static bool slow_to_open;

/* The lane that opens a directory is overtaken. */
int __wrap_place_make_dir(struct place *p, struct place_dir *parent, const struct record_dir *r,
			  struct place_dir **out, struct change *change)
{
	if (slow_to_open)
		usleep(OPENING_US);
	return __real_place_make_dir(p, parent, r, out, change);
}

static void directory_that_opens_is_not_announced_to_other_lanes(void **state)
{
	static const struct scene scenes[] = {
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_DIR, .id = 2, .dir = 1, .name = "e", .other_lane = true}},
		 .code = OUT_PROTOCOL, .text = "in a directory it did not announce"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_DIR, .id = 2, .dir = 1, .name = "e"},
			 {.verb = SAY_DIR, .id = 3, .dir = 2, .name = "f", .other_lane = true}},
		 .code = OUT_PROTOCOL, .text = "in a directory it did not announce"},
	};

	(void)state;
	slow_to_open = true;
	PLAY(scenes);
	slow_to_open = false;
}

static void directory_contents_are_accepted(void **state)
{
#define CONTENTS                                                                                   \
	{                                                                                          \
		.verb = SAY_DIR, .id = 1, .flags = DIR_CONTENTS, .mode = 0755                      \
	}
	static const struct scene scenes[] = {
		{TREE, .want = {"d/"}, .say = {CONTENTS, FILE_WHOLE(1, 2, "x"), END_OF_ALL},
		 .made = "to/x"},
		{TREE, .want = {"."}, .say = {CONTENTS, FILE_WHOLE(1, 2, "x"), END_OF_ALL},
		 .made = "to/x"},
		{TREE, .want = {"../.."}, .say = {CONTENTS, FILE_WHOLE(1, 2, "x"), END_OF_ALL},
		 .made = "to/x"},
		{TREE, .want = {"d"}, .no_target_dir = true, .target = "to/new",
		 .say = {CONTENTS, FILE_WHOLE(1, 2, "x"), END_OF_ALL}, .made = "to/new/x"},
		/* The contents of two directories into one target. */
		{TREE, .want = {"d/", "e/"},
		 .say = {CONTENTS,
			 FILE_WHOLE(1, 2, "x"),
			 {.verb = SAY_DIR, .id = 3, .want = 1, .flags = DIR_CONTENTS},
			 FILE_WHOLE(3, 4, "y"),
			 END_OF_ALL},
		 .made = "to/y"},
		{TREE, .want = {"*"},
		 .say = {DIR_D,
			 {.verb = SAY_DIR, .id = 2, .name = "e"},
			 FILE_WHOLE(0, 3, "x"),
			 END_OF_ALL},
		 .made = "to/e"},
		{TREE, .want = {"*"}, .say = {{.verb = SAY_DIR, .id = 2, .name = ".e"}},
		 .code = OUT_PROTOCOL, .text = ".e, which does not match *"},
	};

	(void)state;
	PLAY(scenes);
}

static void relative_paths_are_accepted(void **state)
{
#define RELATIVE .rules = {.recursive = true, .relative = true }
#define DIR_AT(n, of, what)                                                                        \
	{                                                                                          \
		.verb = SAY_DIR, .id = n, .dir = of, .name = what, .mode = 0755                    \
	}
	static const struct scene scenes[] = {
		{RELATIVE, .want = {"/a//b/./c/d"},
		 .say = {DIR_AT(1, 0, "c"), DIR_AT(2, 1, "d"), FILE_WHOLE(2, 3, "x"), END_OF_ALL},
		 .made = "to/c/d/x"},
		{RELATIVE, .want = {"/a//b/c*/"},
		 .say = {DIR_AT(1, 0, "a"), DIR_AT(2, 1, "b"), DIR_AT(3, 2, "cc"),
			 FILE_WHOLE(3, 4, "x"), END_OF_ALL},
		 .made = "to/a/b/cc/x"},
		{RELATIVE, .want = {"a/f", "a/g"},
		 .say = {DIR_AT(1, 0, "a"),
			 FILE_WHOLE(1, 2, "f"),
			 {.verb = SAY_FILE, .id = 3, .dir = 1, .want = 1, .size = 2, .name = "g"},
			 DATA_OF(3),
			 END_OF(3),
			 END_OF_ALL},
		 .made = "to/a/g"},
		{RELATIVE, .want = {"a/b/c"}, .say = {DIR_AT(1, 0, "b")}, .code = OUT_PROTOCOL,
		 .text = "b, which does not match a/b/c", .not_made = "to/b"},
		{RELATIVE, .want = {"a/b/c"}, .say = {DIR_AT(1, 0, "a"), FILE_IN(1, 2, "x")},
		 .code = OUT_PROTOCOL, .text = "x, which does not match", .not_made = "to/a/x"},
		{RELATIVE, .want = {"a/b/c"}, .say = {DIR_AT(1, 0, "a"), FILE_IN(1, 2, "b")},
		 .code = OUT_PROTOCOL, .text = "b, which does not match"},
		{.rules = {.relative = true},
		 .want = {"a/b"},
		 .say = {DIR_AT(1, 0, "a"), DIR_AT(2, 1, "b")},
		 .code = OUT_PROTOCOL,
		 .text = "b, which does not match"},
		{RELATIVE, .want = {"."}, .say = {CONTENTS, FILE_WHOLE(1, 2, "x"), END_OF_ALL},
		 .made = "to/x"},
		{RELATIVE, .want = {"a/"}, .say = {CONTENTS}, .code = OUT_PROTOCOL,
		 .text = "the contents of a directory, which does not match a/"},
	};

	(void)state;
	PLAY(scenes);
}

static void only_listed_names_are_accepted(void **state)
{
	static const struct scene scenes[] = {
		{.want = {"d"},
		 .listed = {"x", "e/y"},
		 .say = {CONTENTS, FILE_WHOLE(1, 2, "x"), DIR_AT(3, 1, "e"), FILE_WHOLE(3, 4, "y"),
			 END_OF_ALL},
		 .made = "to/e/y"},
		{.want = {"d"},
		 .listed = {"x"},
		 .say = {CONTENTS, FILE_IN(1, 2, "y")},
		 .code = OUT_PROTOCOL,
		 .text = "y, which --files-from does not list",
		 .not_made = "to/y"},
		{.want = {"d"},
		 .listed = {"e/y"},
		 .say = {CONTENTS, DIR_AT(3, 1, "e"), FILE_IN(3, 4, "x")},
		 .code = OUT_PROTOCOL,
		 .text = "x, which --files-from does not list"},
		/* It leads to a listed name without being listed. */
		{.want = {"d"},
		 .listed = {"e/y"},
		 .say = {CONTENTS, FILE_IN(1, 4, "e")},
		 .code = OUT_PROTOCOL,
		 .text = "e, which --files-from does not list"},
		{.want = {"d"},
		 .listed = {"e"},
		 .say = {CONTENTS, DIR_AT(2, 1, "e"), FILE_IN(2, 3, "x")},
		 .code = OUT_PROTOCOL,
		 .text = "x, which --files-from does not list"},
		{TREE, .want = {"d"}, .listed = {"e"},
		 .say = {CONTENTS, DIR_AT(2, 1, "e"), FILE_WHOLE(2, 3, "x"), END_OF_ALL},
		 .made = "to/e/x"},
		{TREE, .want = {"d"}, .listed = {"."},
		 .say = {CONTENTS, FILE_WHOLE(1, 3, "x"), END_OF_ALL}, .made = "to/x"},
	};

	(void)state;
	PLAY(scenes);
}

/* ---- types other than files ------------------------------------------------------------ */

#define LINK_IN(of, n, what)                                                                       \
	{                                                                                          \
		.verb = SAY_FILE, .id = n, .dir = of, .type = TYPE_SYMLINK, .size = 2,             \
		.name = what                                                                       \
	}
#define LINK_END(n)                                                                                \
	{                                                                                          \
		.verb = SAY_END_OF_FILE, .id = n, .type = TYPE_SYMLINK, .size = 2, .data = 2,      \
		.text = "hi"                                                                       \
	}
#define LINK_WHOLE(of, n, what) LINK_IN(of, n, what), DATA_OF(n), LINK_END(n)

static void links_and_devices_follow_the_rules(void **state)
{
	static const struct scene scenes[] = {
		{TREE, .want = {"d"}, .say = {DIR_D, LINK_WHOLE(1, 2, "l"), END_OF_ALL},
		 .made = "to/d/l"},
		/* The link target in an extent, on another lane than its end. */
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 LINK_IN(1, 2, "l"),
			 {.verb = SAY_EXTENT, .id = 2, .len = 2, .text = "hi"},
			 LINK_END(2),
			 END_OF_ALL},
		 .made = "to/d/l"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 LINK_IN(1, 2, "l"),
			 {.verb = SAY_DATA, .id = 2, .len = 2, .text = "h\0"},
			 {.verb = SAY_END_OF_FILE,
			  .id = 2,
			  .type = TYPE_SYMLINK,
			  .size = 2,
			  .data = 2,
			  .text = "h\0"}},
		 .code = OUT_PROTOCOL, .text = "with a NUL in it", .not_made = "to/d/l"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE,
			  .id = 2,
			  .dir = 1,
			  .type = TYPE_SYMLINK,
			  .size = 4096,
			  .name = "l"}},
		 .code = OUT_PROTOCOL, .text = "size"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE, .id = 2, .dir = 1, .type = TYPE_SYMLINK, .name = "l"}},
		 .code = OUT_PROTOCOL, .text = "size"},
		/* Nothing goes through a symlink that was sent. */
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE,
			  .id = 2,
			  .dir = 1,
			  .type = TYPE_SYMLINK,
			  .size = 10,
			  .name = "l"},
			 {.verb = SAY_DATA, .id = 2, .len = 10, .text = "../../safe"},
			 {.verb = SAY_END_OF_FILE,
			  .id = 2,
			  .type = TYPE_SYMLINK,
			  .size = 10,
			  .data = 10,
			  .text = "../../safe"},
			 DIR_AT(3, 1, "l"),
			 FILE_WHOLE(3, 4, "f"),
			 END_OF_ALL},
		 .made = "to/d/l/f"},
		{TREE, .want = {"d"}, .say = {LINK_IN(0, 2, "d")}, .code = OUT_PROTOCOL,
		 .text = "which is not a regular file"},
		{.rules = {.recursive = true, .copy_links = true},
		 .want = {"d"},
		 .say = {DIR_D, LINK_IN(1, 2, "l")},
		 .code = OUT_PROTOCOL,
		 .text = "a symbolic link"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE, .id = 2, .dir = 1, .type = TYPE_FIFO, .name = "p"}},
		 .code = OUT_PROTOCOL, .text = "a device or FIFO, but --devices",
		 .not_made = "to/d/p"},
		{.rules = {.recursive = true, .devices = true},
		 .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE, .id = 2, .dir = 1, .type = TYPE_FIFO, .name = "p"},
			 {.verb = SAY_END_OF_FILE, .id = 2, .type = TYPE_FIFO},
			 END_OF_ALL},
		 .made = "to/d/p"},
		{.rules = {.recursive = true, .devices = true},
		 .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE, .id = 2, .dir = 1, .type = TYPE_FIFO, .name = "p"},
			 {.verb = SAY_DATA, .id = 2, .len = 1}},
		 .code = OUT_PROTOCOL,
		 .text = "beyond the end"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 FILE_WHOLE(1, 2, "x"),
			 {.verb = SAY_FILE,
			  .id = 3,
			  .dir = 1,
			  .type = TYPE_HARD_LINK,
			  .link_to = 2,
			  .name = "y"}},
		 .code = OUT_PROTOCOL, .text = "a hard link, but --hard-links",
		 .not_made = "to/d/y"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE,
			  .id = 2,
			  .dir = 1,
			  .flags = FILE_LINKED,
			  .size = 2,
			  .name = "x"}},
		 .code = OUT_PROTOCOL, .text = "but --hard-links"},
		{.rules = {.recursive = true, .hard_links = true},
		 .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_FILE,
			  .id = 2,
			  .dir = 1,
			  .flags = FILE_LINKED,
			  .size = 2,
			  .name = "x"},
			 DATA_OF(2),
			 END_OF(2),
			 {.verb = SAY_FILE,
			  .id = 3,
			  .dir = 1,
			  .type = TYPE_HARD_LINK,
			  .link_to = 2,
			  .name = "y"},
			 {.verb = SAY_END_OF_FILE, .id = 3, .type = TYPE_HARD_LINK},
			 END_OF_ALL},
		 .made = "to/d/y"},
	};

	(void)state;
	PLAY(scenes);
}

static void links_and_fifos_are_counted(void **state)
{
	static const struct scene scene = {
		.rules = {.recursive = true, .devices = true, .events = true},
		.want = {"d"},
		.say = {DIR_D,
			LINK_WHOLE(1, 2, "l"),
			FILE_WHOLE(1, 3, "x"),
			{.verb = SAY_FILE, .id = 4, .dir = 1, .type = TYPE_FIFO, .name = "p"},
			{.verb = SAY_END_OF_FILE, .id = 4, .type = TYPE_FIFO},
			END_OF_ALL},
		.made = "to/d/p",
	};

	(void)state;
	assert_int_equal(clear(), 0);
	play(&scene);
	check(&scene);
	assert_int_equal(rig.sink.result.total.files, 1);
	assert_int_equal(rig.sink.result.total.bytes, 2);
	assert_int_equal(rig.sink.result.total.others, 3);
	assert_int_equal(rig.sink.result.counts.symlinks, 1);
	assert_int_equal(rig.sink.result.counts.nodes, 1);
	assert_int_equal(rig.sink.event_count, 4);
	assert_string_equal(rig_event(&rig.sink, "d")->change, "cd+++++++++");
	assert_string_equal(rig_event(&rig.sink, "d/l")->change, "cL+++++++++");
	assert_string_equal(rig_event(&rig.sink, "d/x")->change, ">f+++++++++");
	assert_string_equal(rig_event(&rig.sink, "d/p")->change, "cS+++++++++");
	assert_int_equal(rig_event(&rig.sink, "d/x")->size, 2);
}

/* ---- single failures -------------------------------------------------------------------- */

/* A directory that can't be made fails with all its entries; nothing else fails. */
static void failed_directory_fails_its_entries_only(void **state)
{
	static const struct scene scene = {
		.rules = {.recursive = true, .events = true},
		.want = {"d"},
		.say = {DIR_D,
			DIR_AT(2, 1, "no"),
			FILE_WHOLE(2, 3, "x"),
			DIR_AT(4, 2, "deep"),
			FILE_IN(4, 5, "y"),
			{.verb = SAY_EXTENT, .id = 5, .len = 2, .text = "hi"},
			END_OF(5),
			LINK_WHOLE(4, 6, "l"),
			FILE_WHOLE(1, 7, "x"),
			END_OF_ALL},
		.code = OUT_SOME_FILES,
		.text = "5 of 7 files",
		.made = "to/d/x",
		.not_made = "to/d/no/x",
	};

	(void)state;
	assert_int_equal(clear(), 0);
	assert_int_equal(mkdir("to/d", 0755) | make_text("to/d/no", ""), 0);
	/* A mount point can be neither removed nor replaced, not even by root. */
	if (mount("safe/f", "to/d/no", NULL, MS_BIND, NULL))
		skip();
	play(&scene);
	assert_int_equal(umount("to/d/no"), 0);
	check(&scene);
	for (uint32_t id = 2; id <= 6; id++)
		assert_non_null(actor_heard(&actor, MSG_FILE_RESULT, id));
	assert_non_null(strstr(actor_heard(&actor, MSG_FILE_RESULT, 3)->text,
			       "its parent directory could not be created"));
	assert_non_null(actor_heard(&actor, MSG_STORED, 7));
	assert_int_equal(rig.sink.result.total.failed, 5);
	assert_int_equal(rig.sink.result.total.others, 1);
	assert_int_equal(rig_event(&rig.sink, "d/no/deep/y")->code, OUT_FILE);
	assert_int_equal(rig.sink.told, 1);
}

static void wrong_content_digest_fails_the_file(void **state)
{
	static const struct scene scene = {
		TREE,
		.want = {"d"},
		.say = {DIR_D,
			FILE_IN(1, 2, "x"),
			DATA_OF(2),
			{.verb = SAY_END_OF_FILE,
			 .id = 2,
			 .size = 2,
			 .data = 2,
			 .text = "hi",
			 .wrong_digest = true},
			FILE_WHOLE(1, 3, "y"),
			END_OF_ALL},
		.code = OUT_SOME_FILES,
		.text = "1 of 3 files",
		.made = "to/d/y",
		.not_made = "to/d/x",
	};

	(void)state;
	assert_int_equal(clear(), 0);
	play(&scene);
	check(&scene);
	assert_int_equal(actor_heard(&actor, MSG_FILE_RESULT, 2)->code, OUT_INTEGRITY);
}

/* ---- attributes, owners, names to keep --------------------------------------------------- */

static void directory_records_are_checked(void **state)
{
#define XATTRS .rules = {.recursive = true, .xattrs = true }
#define KEEPS .rules = {.recursive = true, .delete = true}
	static const struct scene scenes[] = {
		{XATTRS, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_XATTR, .id = 1, .name = "user.a", .text = "v"},
			 FILE_IN(1, 2, "x"),
			 {.verb = SAY_XATTR, .id = 2, .name = "user.b", .text = "w"},
			 DATA_OF(2),
			 END_OF(2),
			 END_OF_ALL},
		 .made = "to/d/x"},
		{XATTRS, .want = {"d"},
		 .say = {{.verb = SAY_XATTR, .id = 1, .name = "user.a", .text = "v"}},
		 .code = OUT_PROTOCOL, .text = "it did not announce"},
		{XATTRS, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_XATTR,
			  .id = 1,
			  .name = "user.a",
			  .text = "v",
			  .other_lane = true}},
		 .code = OUT_PROTOCOL, .text = "it did not announce"},
		{XATTRS, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_XATTR,
			  .id = 1,
			  .name = "user.a",
			  .text = "v",
			  .xattr_size = 2},
			 END_OF_ALL},
		 .code = OUT_PROTOCOL, .text = "truncated attribute of d"},
		{XATTRS, .want = {"d"},
		 .say = {DIR_D,
			 FILE_IN(1, 2, "x"),
			 {.verb = SAY_XATTR,
			  .id = 2,
			  .name = "user.a",
			  .text = "v",
			  .xattr_size = 2},
			 DATA_OF(2),
			 END_OF(2)},
		 .code = OUT_PROTOCOL, .text = "truncated attribute of d/x", .not_made = "to/d/x"},
		{XATTRS, .want = {"d"},
		 .say = {DIR_D,
			 FILE_IN(1, 2, "x"),
			 {.verb = SAY_XATTR, .id = 2, .name = "security.capability", .text = "v"},
			 DATA_OF(2),
			 END_OF(2)},
		 .code = OUT_PROTOCOL, .text = "was not asked for", .not_made = "to/d/x"},
		{TREE, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_XATTR, .id = 1, .name = "user.a", .text = "v"},
			 END_OF_ALL},
		 .code = OUT_PROTOCOL, .text = "was not asked for"},
		{TREE, .want = {"d"}, .say = {DIR_D, {.verb = SAY_KEEP, .dir = 1, .text = "x"}},
		 .code = OUT_PROTOCOL, .text = "but --delete was not given"},
		{KEEPS, .want = {"d"}, .say = {{.verb = SAY_KEEP, .dir = 1, .text = "x"}},
		 .code = OUT_PROTOCOL, .text = "it did not announce"},
		{KEEPS, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_KEEP, .dir = 1, .text = "x"},
			 {.verb = SAY_KEEP, .dir = 1, .text = "y"}},
		 .code = OUT_PROTOCOL, .text = "KEEP after the last one"},
		{KEEPS, .want = {"d"},
		 .say = {DIR_D,
			 {.verb = SAY_KEEP, .dir = 1, .text = "x", .len = 1},
			 {.verb = SAY_DIR, .id = 1, .name = "d", .mode = 0755, .other_lane = true},
			 {.verb = SAY_KEEP, .dir = 1, .text = "y"}},
		 .code = OUT_PROTOCOL, .text = "on two lanes"},
		{KEEPS, .want = {"d"},
		 .say = {DIR_D, {.verb = SAY_KEEP, .dir = 1, .text = "..", .len = 1}},
		 .code = OUT_PROTOCOL, .text = ""},
	};

	(void)state;
	PLAY(scenes);
}

#define copy_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		copy_test(tree_is_accepted),
		copy_test(invalid_directories_are_refused),
		copy_test(directory_that_opens_is_not_announced_to_other_lanes),
		copy_test(directory_contents_are_accepted),
		copy_test(relative_paths_are_accepted),
		copy_test(only_listed_names_are_accepted),
		copy_test(links_and_devices_follow_the_rules),
		copy_test(links_and_fifos_are_counted),
		copy_test(failed_directory_fails_its_entries_only),
		copy_test(wrong_content_digest_fails_the_file),
		copy_test(directory_records_are_checked),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("copy_trees", tests, NULL, NULL);
}
