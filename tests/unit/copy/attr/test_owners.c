/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "copy/attr/owners.h"

/* ---- a user database ------------------------------------------------------------------- */

/*
 * Replacements for libc's functions. An entry that does not fit into a small buffer is requested
 * again.
 */
static const struct {
	bool group;
	uint32_t id;
	const char *name;
	size_t room;
} database[] = {
	{false, 0, "root", 0},  {false, 1001, "ann", 0},       {false, 1002, "bob", 200000},
	{true, 0, "root", 0},   {true, 1001, "cats", 0},       {true, 1005, "ann", 0},
	{false, 1003, "77", 0}, {true, 1006, "many", 1 << 20},
};
enum { DATABASE = sizeof database / sizeof *database };
static atomic_int lookups, interrupts;
static char long_name[400];

/* The index of the entry, or -1; *err is set as by the real functions. */
static int find(bool group, const char *name, uint32_t id, size_t size, int *err)
{
	lookups++;
	*err = 0;
	if (interrupts > 0) {
		interrupts--;
		*err = EINTR;
		return -1;
	}
	for (int i = 0; i < DATABASE; i++) {
		if (database[i].group == group &&
		    (name ? strcmp(database[i].name, name) == 0 : database[i].id == id)) {
			*err = size < database[i].room ? ERANGE : 0;
			return *err ? -1 : i;
		}
	}
	return -1;
}

static int give_user(int i, int err, char *buf, size_t size, struct passwd *pw, struct passwd **out)
{
	*out = NULL;
	if (i >= 0) {
		snprintf(buf, size, "%s", database[i].name);
		*pw = (struct passwd){.pw_name = buf, .pw_uid = database[i].id};
		*out = pw;
	}
	return err;
}

static int give_group(int i, int err, char *buf, size_t size, struct group *gr, struct group **out)
{
	*out = NULL;
	if (i >= 0) {
		snprintf(buf, size, "%s", database[i].name);
		*gr = (struct group){.gr_name = buf, .gr_gid = database[i].id};
		*out = gr;
	}
	return err;
}

int getpwuid_r(uid_t id, struct passwd *pw, char *buf, size_t size, struct passwd **out)
{
	int err, i = find(false, NULL, id, size, &err);

	if (id == 1009) {
		*pw = (struct passwd){.pw_name = long_name, .pw_uid = id};
		*out = pw;
		return 0;
	}
	return give_user(i, err, buf, size, pw, out);
}

int getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t size, struct passwd **out)
{
	int err, i = find(false, name, 0, size, &err);

	return give_user(i, err, buf, size, pw, out);
}

int getgrgid_r(gid_t id, struct group *gr, char *buf, size_t size, struct group **out)
{
	int err, i = find(true, NULL, id, size, &err);

	return give_group(i, err, buf, size, gr, out);
}

int getgrnam_r(const char *name, struct group *gr, char *buf, size_t size, struct group **out)
{
	int err, i = find(true, name, 0, size, &err);

	return give_group(i, err, buf, size, gr, out);
}

static struct owners *fresh(void)
{
	struct owners *o;

	assert_int_equal(owners_new(&o), 0);
	lookups = 0;
	interrupts = 0;
	return o;
}

/* ---- source ---------------------------------------------------------------------------- */

static void owner_is_announced_once_per_lane(void **state)
{
	struct owners *o = fresh();
	const char *name;

	(void)state;
	for (unsigned lane = 0; lane < 64; lane += 63) {
		assert_true(owners_mark_announced(o, false, 1001, lane, &name));
		assert_string_equal(name, "ann");
		assert_false(owners_mark_announced(o, false, 1001, lane, &name));
		assert_string_equal(name, "ann");
		assert_true(owners_mark_announced(o, true, 1001, lane, &name));
		assert_string_equal(name, "cats");
		assert_false(owners_mark_announced(o, true, 1001, lane, &name));
	}
	assert_false(owners_mark_announced(o, false, 1001, 0, &name));
	assert_int_equal(lookups, 2);
	owners_free(o);
}

static void owner_without_a_name_is_not_announced(void **state)
{
	struct owners *o = fresh();
	const char *name;

	(void)state;
	memset(long_name, 'x', sizeof long_name - 1);
	for (unsigned i = 0; i < 3; i++) {
		assert_false(owners_mark_announced(o, false, 4711, 0, &name));
		assert_string_equal(name, "");
		/* A name too long for a record. */
		assert_false(owners_mark_announced(o, false, 1009, 0, &name));
		assert_string_equal(name, "");
		assert_false(owners_mark_announced(o, false, 0, 0, &name));
		assert_false(owners_mark_announced(o, true, 0, 0, &name));
	}
	assert_int_equal(lookups, 2);
	owners_free(o);
}

static void long_answers_and_signals_are_handled(void **state)
{
	struct owners *o = fresh();
	const char *name;

	(void)state;
	assert_true(owners_mark_announced(o, false, 1002, 0, &name));
	assert_string_equal(name, "bob");
	assert_true(owners_mark_announced(o, true, 1006, 0, &name));
	assert_string_equal(name, "many");
	interrupts = 3;
	assert_true(owners_mark_announced(o, false, 1001, 0, &name));
	assert_string_equal(name, "ann");
	owners_free(o);
}

/* Owners beyond the sink's bound are not announced. */
static void source_keeps_to_the_bound(void **state)
{
	struct owners *o = fresh();
	const char *name;

	(void)state;
	for (uint32_t id = 10000; id < 10000 + OWNERS_MAX - 1; id++)
		assert_false(owners_mark_announced(o, false, id, 0, &name));
	assert_true(owners_mark_announced(o, true, 1001, 0, &name));
	assert_false(owners_mark_announced(o, false, 1001, 0, &name));
	assert_string_equal(name, "");
	owners_free(o);
}

/* ---- sink ------------------------------------------------------------------------------ */

static void owner_names_are_mapped(void **state)
{
	struct owners *o = fresh();

	(void)state;
	assert_int_equal(owners_add_name(o, false, 500, "ann"), 0);
	assert_int_equal(owners_add_name(o, true, 500, "ann"), 0);
	assert_int_equal(owners_add_name(o, false, 501, "nobody here"), 0);
	assert_int_equal(owners_add_name(o, false, 502, "bob"), 0);
	assert_int_equal(owners_add_name(o, false, 503, "cats"), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(owners_map(o, false, 500, false), 1001);
		assert_int_equal(owners_map(o, true, 500, false), 1005);
		assert_int_equal(owners_map(o, false, 500, true), 500);
		assert_int_equal(owners_map(o, false, 501, false), 501);
		assert_int_equal(owners_map(o, false, 502, false), 1002);
		/* A group has this name, but no user has. */
		assert_int_equal(owners_map(o, false, 503, false), 503);
		/* Never announced. */
		assert_int_equal(owners_map(o, false, 1001, false), 1001);
		assert_int_equal(owners_map(o, true, 501, false), 501);
	}
	/* bob's entry does not fit into the first buffer. */
	assert_int_equal(lookups, 5 + 3);
	owners_free(o);
}

static void root_is_never_mapped(void **state)
{
	struct owners *o = fresh();

	(void)state;
	assert_int_equal(owners_map(o, false, 0, false), 0);
	assert_int_equal(owners_add_name(o, false, 0, "ann"), 0);
	assert_int_equal(owners_add_name(o, true, 0, "cats"), 0);
	assert_int_equal(owners_map(o, false, 0, false), 0);
	assert_int_equal(owners_map(o, true, 0, false), 0);
	assert_int_equal(owners_map(o, true, 0, true), 0);
	owners_free(o);
}

static void owner_may_be_announced_again(void **state)
{
	struct owners *o = fresh();

	(void)state;
	assert_int_equal(owners_add_name(o, false, 500, "ann"), 0);
	assert_int_equal(owners_add_name(o, false, 500, "ann"), 0);
	assert_int_equal(owners_add_name(o, false, 500, "bob"), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_int_equal(owners_map(o, false, 500, false), 1001);
	owners_free(o);
}

static void owner_names_are_bounded(void **state)
{
	struct owners *o = fresh();

	(void)state;
	for (uint32_t id = 1; id <= OWNERS_MAX; id++)
		assert_int_equal(owners_add_name(o, id & 1, id, "ann"), 0);
	assert_int_equal(owners_add_name(o, false, OWNERS_MAX + 1, "ann"), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_int_equal(owners_add_name(o, false, 2, "ann"), 0);
	assert_int_equal(owners_map(o, true, OWNERS_MAX - 1, false), 1005);
	assert_int_equal(owners_map(o, false, OWNERS_MAX, false), 1001);
	owners_free(o);
}

/* ---- many threads ---------------------------------------------------------------------- */

enum { THREADS = 8, IDS = 200 };
struct crowd {
	struct owners *o;
	atomic_int told, wrong;
};

static void *one_of_many(void *arg)
{
	struct crowd *c = arg;
	const char *name;

	for (uint32_t i = 0; i < IDS; i++) {
		/* Odd ids are users with a name; all threads share the lane. */
		uint32_t id = i % 2 ? 1001 : 20000 + i;

		c->told += owners_mark_announced(c->o, false, id, 5, &name);
		c->wrong += strcmp(name, i % 2 ? "ann" : "") != 0;
		c->wrong += owners_add_name(c->o, true, 30000 + i, "cats") != 0;
		c->wrong += owners_map(c->o, true, 30000 + i, false) != 1001;
	}
	return NULL;
}

static void many_threads_map_owners(void **state)
{
	struct crowd c = {.o = fresh()};
	pthread_t t[THREADS];

	(void)state;
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, one_of_many, &c), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(c.told, 1);
	assert_int_equal(c.wrong, 0);
	owners_free(c.o);
}

/* ---- --chown --------------------------------------------------------------------------- */

static void chown_is_parsed(void **state)
{
	static const struct {
		const char *text;
		int64_t uid, gid;
	} good[] = {
		{"", -1, -1},
		{"ann", 1001, -1},
		{"ann:", 1001, -1},
		{"ann:cats", 1001, 1001},
		{":ann", -1, 1005},
		{"0:0", 0, 0},
		{"12:4294967294", 12, 4294967294},
		/* A name is tried before a number. */
		{"77:77", 1003, 77},
	};
	static const char *const bad[] = {
		":",          "bert",          "ann:dogs",
		"cats",       "ann:cats:cats", "-1",
		"4294967295", "4294967296",    "18446744073709551617",
		"12x",        "0x10:12",       " 12",
		":+5",        "ann ",
	};
	uid_t uid;
	gid_t gid;

	(void)state;
	interrupts = 0;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(owners_parse(good[i].text, &uid, &gid), 0);
		assert_int_equal(uid, (uid_t)good[i].uid);
		assert_int_equal(gid, (gid_t)good[i].gid);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		fail_clear();
		assert_int_equal(owners_parse(bad[i], &uid, &gid), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(owner_is_announced_once_per_lane),
		cmocka_unit_test(owner_without_a_name_is_not_announced),
		cmocka_unit_test(long_answers_and_signals_are_handled),
		cmocka_unit_test(source_keeps_to_the_bound),
		cmocka_unit_test(owner_names_are_mapped),
		cmocka_unit_test(root_is_never_mapped),
		cmocka_unit_test(owner_may_be_announced_again),
		cmocka_unit_test(owner_names_are_bounded),
		cmocka_unit_test(many_threads_map_owners),
		cmocka_unit_test(chown_is_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
