/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of rdcpd may order. */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "cmd/end/guest.h"
#include "cmd/end/refusals.h"

/* The orders of the latest call; rules borrow from them. */
static struct orders o;

static void plain(enum role role)
{
	memset(&o, 0, sizeof o);
	o.m.role = (uint8_t)role;
	o.m.flags = START_LISTENS | START_FAR;
	o.m.memory = UINT64_MAX;
	orders_settle(&o);
}

static struct guest anything = {.module = "m", .may_read = true, .may_write = true};

static void refused(enum outcome code, const char *why)
{
	fail_clear();
	assert_int_equal(guest_check(&anything, &o), -1);
	assert_int_equal(failed()->code, code);
	if (!strstr(failed()->text, why))
		fail_msg("%s: %s", why, failed()->text);
}

static void plain_orders_are_taken(void **state)
{
	(void)state;
	plain(ROLE_SINK);
	strcpy(o.m.target, "a/b..c/..d");
	assert_int_equal(guest_check(&anything, &o), 0);
	assert_int_equal(o.m.want, TRANSPORT_AUTO);
	assert_int_equal(o.m.flags, START_LISTENS);
	assert_true(o.m.memory < UINT64_MAX);
	plain(ROLE_SOURCE);
	o.m.want = TRANSPORT_TCP;
	assert_int_equal(guest_check(&anything, &o), 0);
}

static void each_flag_is_refused(void **state)
{
	static const uint64_t always[] = {START_MEMORY, START_UNCHECKED, START_PROBE, START_SCRATCH,
					  START_STDIO};

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		plain(i % 2 ? ROLE_SINK : ROLE_SOURCE);
		o.m.flags |= always[i / 2];
		refused(OUT_USAGE, "does not permit");
	}
	for (int i = 0; i < 2; i++) {
		enum role role = i ? ROLE_SINK : ROLE_SOURCE;

		plain(role);
		o.rules.xattrs_all = true;
		refused(OUT_USAGE, "--xattrs=all");
	}
	plain(ROLE_SOURCE);
	o.rules.remove_source = true;
	refused(OUT_USAGE, "--remove-source-files");
	anything.may_remove = true;
	assert_int_equal(guest_check(&anything, &o), 0);
	anything.may_remove = false;
	plain(ROLE_SINK);
	o.rules.remove_source = true;
	assert_int_equal(guest_check(&anything, &o), 0);
}

static void a_sink_deletes_where_that_is_permitted(void **state)
{
	struct guest deleting = anything;

	(void)state;
	deleting.may_delete = true;
	for (unsigned excluded = 0; excluded < 2; excluded++) {
		plain(ROLE_SINK);
		o.rules.delete = !excluded;
		o.rules.delete_excluded = excluded;
		refused(OUT_USAGE, "--delete");
		assert_int_equal(guest_check(&deleting, &o), 0);
		/* It is the client's sink that deletes. */
		o.m.role = ROLE_SOURCE;
		assert_int_equal(guest_check(&anything, &o), 0);
	}
}

static void a_module_may_demand_fsync(void **state)
{
	struct guest syncing = anything;

	(void)state;
	syncing.fsync = true;
	plain(ROLE_SINK);
	assert_int_equal(guest_check(&syncing, &o), 0);
	assert_true(o.rules.fsync);
	plain(ROLE_SINK);
	assert_int_equal(guest_check(&anything, &o), 0);
	assert_false(o.rules.fsync);
}

static void a_module_may_demand_encryption(void **state)
{
	static const enum encrypt wishes[] = {ENCRYPT_AUTO, ENCRYPT_ON};
	bool before = anything.must_encrypt;

	(void)state;
	anything.must_encrypt = true;
	for (int role = 0; role < 2; role++) {
		for (unsigned i = 0; i < 2; i++) {
			plain(role ? ROLE_SINK : ROLE_SOURCE);
			o.m.encrypt = (uint8_t)wishes[i];
			assert_int_equal(guest_check(&anything, &o), 0);
		}
		o.m.encrypt = ENCRYPT_OFF;
		refused(OUT_TRANSPORT, "--encrypt=off");
	}
	anything.must_encrypt = before;
	assert_int_equal(guest_check(&anything, &o), 0);
}

static void a_sink_takes_no_owners(void **state)
{
	(void)state;
	plain(ROLE_SINK);
	o.rules.owner = true;
	refused(OUT_USAGE, "--owner");
	plain(ROLE_SINK);
	o.rules.group = true;
	refused(OUT_USAGE, "--group");
	plain(ROLE_SINK);
	o.rules.devices = true;
	refused(OUT_USAGE, "--devices");
	plain(ROLE_SINK);
	o.rules.chown = "0:0";
	refused(OUT_USAGE, "--chown");
	plain(ROLE_SOURCE);
	o.rules.owner = o.rules.group = o.rules.devices = true;
	assert_int_equal(guest_check(&anything, &o), 0);
}

static void names_stay_in_the_module(void **state)
{
	static const char *const wrong[] = {"/", "/a", "..", "../a", "a/..", "a/../b", "a//../b"};

	(void)state;
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char *wants[] = {(char *)(uintptr_t)wrong[i]};

		plain(ROLE_SINK);
		strcpy(o.m.target, wrong[i]);
		refused(OUT_USAGE, "module m");
		plain(ROLE_SINK);
		strcpy(o.m.backup_dir, wrong[i]);
		refused(OUT_USAGE, "module m");
		/* It is the client's sink that makes backups. */
		o.m.role = ROLE_SOURCE;
		assert_int_equal(guest_check(&anything, &o), 0);
		plain(ROLE_SOURCE);
		o.wants = wants;
		o.want_count = 1;
		refused(OUT_USAGE, "module m");
		/* A sink's names are those of the other host. */
		o.m.role = ROLE_SINK;
		assert_int_equal(guest_check(&anything, &o), 0);
	}
}

static void modules_limit_the_role(void **state)
{
	struct guest g = {.module = "m"};

	(void)state;
	plain(ROLE_SINK);
	assert_int_equal(guest_check(&g, &o), -1);
	assert_non_null(strstr(failed()->text, "read only"));
	plain(ROLE_SOURCE);
	assert_int_equal(guest_check(&g, &o), -1);
	assert_non_null(strstr(failed()->text, "write only"));
	g.may_write = true;
	plain(ROLE_SINK);
	assert_int_equal(guest_check(&g, &o), 0);
	g.refusal.code = OUT_NO_SOURCE;
	assert_int_equal(guest_check(&g, &o), -1);
	assert_int_equal(failed()->code, OUT_NO_SOURCE);
}

static void lanes_come_to_it(void **state)
{
	(void)state;
	plain(ROLE_SINK);
	o.m.flags = START_FAR;
	refused(OUT_USAGE, "connects to no other host");
	plain(ROLE_SINK);
	o.m.want = TRANSPORT_SSH;
	refused(OUT_TRANSPORT, "no data over ssh");
}

static void the_daemon_chooses_transports(void **state)
{
	static const enum transport tcp = TRANSPORT_TCP, rdma = TRANSPORT_RDMA;
	static const struct {
		enum transport daemon, client, got;
	} cases[] = {
		{TRANSPORT_AUTO, TRANSPORT_AUTO, TRANSPORT_AUTO},
		{TRANSPORT_AUTO, rdma, rdma},
		{TRANSPORT_AUTO, tcp, tcp},
		{rdma, TRANSPORT_AUTO, rdma},
		{tcp, TRANSPORT_AUTO, tcp},
		{tcp, tcp, tcp},
	};
	struct guest before = anything;

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		plain(ROLE_SINK);
		anything.want = cases[i].daemon;
		o.m.want = (uint8_t)cases[i].client;
		o.m.lanes = 40;
		assert_int_equal(guest_check(&anything, &o), 0);
		assert_int_equal(o.m.want, cases[i].got);
		assert_int_equal(o.m.lanes, cases[i].got == tcp ? 40 : 16);
	}
	plain(ROLE_SINK);
	o.m.want = TRANSPORT_RDMA;
	refused(OUT_TRANSPORT, "over TCP only");
	anything.want = TRANSPORT_RDMA;
	plain(ROLE_SINK);
	o.m.want = TRANSPORT_TCP;
	refused(OUT_TRANSPORT, "over RDMA only");
	anything = before;
}

static void options_of_the_module_are_refused(void **state)
{
	struct guest before = anything;
	uint64_t none;

	(void)state;
	assert_int_equal(refusals_parse(" checksum,--compress max-size ", &anything.refused), 0);
	plain(ROLE_SINK);
	assert_int_equal(guest_check(&anything, &o), -1); /* max_size is 0 here */
	plain(ROLE_SOURCE);
	o.m.max_size = UINT64_MAX;
	assert_int_equal(guest_check(&anything, &o), 0);
	plain(ROLE_SOURCE);
	o.m.max_size = UINT64_MAX;
	o.m.flags |= START_FLAG(34);
	refused(OUT_USAGE, "does not permit --checksum in module m");
	plain(ROLE_SINK);
	o.m.max_size = UINT64_MAX;
	o.m.flags |= START_FLAG(START_COMPRESS_SHIFT);
	refused(OUT_USAGE, "does not permit --compress in module m");
	plain(ROLE_SINK);
	refused(OUT_USAGE, "does not permit --max-size in module m");
	assert_int_equal(refusals_parse("checksums", &none), -1);
	assert_int_equal(refusals_parse("--", &none), -1);
	assert_int_equal(refusals_parse("", &none), -1);
	anything = before;
}

static void modes_of_the_module_come_with_the_orders(void **state)
{
	struct guest before = anything;

	(void)state;
	anything.incoming_chmod = "F600";
	plain(ROLE_SOURCE);
	assert_int_equal(guest_check(&anything, &o), 0);
	assert_null(o.rules.incoming_chmod);
	plain(ROLE_SINK);
	assert_int_equal(guest_check(&anything, &o), 0);
	assert_string_equal(o.rules.incoming_chmod, "F600");
	plain(ROLE_SINK);
	o.rules.acls = true;
	refused(OUT_USAGE, "does not permit --acls");
	anything = before;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_orders_are_taken),
		cmocka_unit_test(options_of_the_module_are_refused),
		cmocka_unit_test(modes_of_the_module_come_with_the_orders),
		cmocka_unit_test(each_flag_is_refused),
		cmocka_unit_test(a_sink_deletes_where_that_is_permitted),
		cmocka_unit_test(a_module_may_demand_fsync),
		cmocka_unit_test(a_module_may_demand_encryption),
		cmocka_unit_test(a_sink_takes_no_owners),
		cmocka_unit_test(names_stay_in_the_module),
		cmocka_unit_test(modules_limit_the_role),
		cmocka_unit_test(lanes_come_to_it),
		cmocka_unit_test(the_daemon_chooses_transports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
