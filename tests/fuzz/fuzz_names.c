/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: does a peer's name match what was asked for, is it one of our own names, and how is it
 * printed. An input is two names with a NUL between them.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/escape.h"
#include "cmd/output/repeated_lines.h"
#include "copy/names/name.h"
#include "copy/names/own_name.h"
#include "copy/names/tilde.h"
#include "copy/place/place.h"
#include "copy/walk/find.h"
#include "expect.h"

enum { INPUT_MAX = 8 << 10, SHOWN = 4096 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/fuzz-names-XXXXXX";
static const char *const entries[] = {"a", "b", "a.c", "[x]", "f"}; /* the last one is a file */
enum { ENTRIES = sizeof entries / sizeof *entries };

static int here, there;

static void remove_dir(void)
{
	expect(fchdir(there) == 0);
	for (size_t i = 0; i < ENTRIES; i++)
		remove(entries[i]);
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	expect(here >= 0 && mkdtemp(dir) && chdir(dir) == 0);
	for (size_t i = 0; i < ENTRIES - 1; i++)
		expect(mkdir(entries[i], 0700) == 0);
	expect(mknod(entries[ENTRIES - 1], S_IFREG | 0600, 0) == 0);
	/* The paths of libFuzzer are relative to the directory where it started. */
	there = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	expect(there >= 0 && fchdir(here) == 0 && atexit(remove_dir) == 0);
	return 0;
}

/* Escaped text must be printable, without control characters, and cut between characters. */
static void show(const char *bytes, size_t len)
{
	static char shown[SHOWN], again[SHOWN];

	escape(shown, sizeof shown, bytes, len);
	expect(strlen(shown) < sizeof shown);
	for (const char *p = shown; *p; p++)
		expect((unsigned char)*p >= ' ' && *p != 0x7f);
	escape(again, 2 + len % 40, bytes, len);
	expect(strncmp(again, shown, strlen(again)) == 0);
	expect(escape(again, 0, bytes, len) == again);
}

static void classify(const char *name)
{
	enum own_name_kind is = own_name_kind(name);

	if (is == NAME_OF_USER)
		return;
	expect(strncmp(name, ".sluice.", 8) == 0 && strlen(name) < OWN_NAME_ROOM);
	expect(name_is_plain(name) && !name_is_pattern(name));
}

/* Each own name must be recognized. */
static void make_own(const char *name, size_t len)
{
	uint64_t hash = 0;
	char own[OWN_NAME_ROOM];

	memcpy(&hash, name, len < sizeof hash ? len : sizeof hash);
	own_name_hashed(hash, own);
	expect(own_name_kind(own) == NAME_HASHED);
	own_name_marker(hash, own);
	expect(own_name_kind(own) == NAME_MARKER);
	expect(own_name_random(hash, own) == 0 && own_name_kind(own) == NAME_RANDOM);
}

static void answer(const char *name, const char *want)
{
	char last[NAME_MAX + 1];

	name_last(want, last, sizeof last);
	expect(!strchr(last, '/'));
	if (name_matches_want(name, want))
		expect(!*name || (name_is_plain(name) && !strchr(name, '/')));
	if (name_is_plain(name))
		expect(name_matches_want(name, name) || name_is_pattern(name) || name[0] == '-');
	expect(strlen(name_relative(want)) <= strlen(want));
}

/* Whether a pattern stays below the directory; glob(3) takes .* for the parent, too. */
static bool stays(const char *name)
{
	return *name && *name != '/' && *name != '.' && !strstr(name, "..") && !strstr(name, "/.");
}

static void find(char *name, char *other)
{
	char *names[] = {name, other, name};
	struct found f;
	struct stat st;
	char path[PATH_MAX];
	mode_t mode;

	path[0] = '\0';
	if (tilde_expand(name, path, sizeof path) == 0)
		expect(name[0] == '~' || strcmp(path, name) == 0);
	else
		expect_failure(OUT_NO_SOURCE, OUT_FILE);
	if (!stays(name) || !stays(other) || (name[0] == '~' && path[0]))
		return;
	expect(fchdir(there) == 0);
	expect(find_sources(names, 3, true, &f) == 0 && f.count >= 3);
	for (unsigned i = 0; i < f.count; i++) {
		expect(f.paths[i].want < 3 && f.paths[i].twin <= f.count);
		expect(find_dir(f.paths[i].path, &st) || S_ISDIR(st.st_mode));
	}
	/* The first and the last name are the same. */
	expect(found_overlap(&f) || f.paths[0].missing);
	found_free(&f);
	if (find_readable(name, &mode))
		expect_failure(OUT_NO_SOURCE, OUT_FILE);
	expect(fchdir(here) == 0);
}

/* Repeated lines must be hidden, and counted. */
static void repeat(const char *line, char *lines)
{
	struct repeated_lines r = {.of = {{.count = 0}}};
	unsigned shown = 0, hidden = 0, all = 0;

	for (char *other; (other = strsep(&lines, "\n"));) {
		for (unsigned i = 0; i < 2 * REPEATED_LINES_SHOWN; i++)
			shown += repeated_lines_show(&r, i & 1 ? line : other);
		all += 2 * REPEATED_LINES_SHOWN;
	}
	for (unsigned i = 0; i <= REPEATED_LINES_REASONS; i++)
		hidden += (unsigned)repeated_lines_hidden(&r, i);
	expect(shown + hidden == all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[INPUT_MAX + 2];
	char *other;

	if (size > INPUT_MAX)
		return -1;
	memcpy(text, data, size);
	text[size] = text[size + 1] = '\0';
	other = text + strlen(text) + 1;
	expect(setenv("HOME", size & 1 ? dir : "", 1) == 0);
	show(text, size);
	classify(text);
	make_own(text, strlen(text));
	answer(text, other);
	find(text, other);
	repeat(text, other);
	return 0;
}
