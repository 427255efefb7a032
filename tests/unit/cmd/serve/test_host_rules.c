/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and networks of "hosts allow" and "hosts deny". */
#include "base/fail.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "cmd/serve/host_rules.h"

static union address address_of(const char *text)
{
	union address a = {.in6 = {.sin6_family = AF_INET6}};

	if (inet_pton(AF_INET6, text, &a.in6.sin6_addr) != 1) {
		a = (union address){.in4 = {.sin_family = AF_INET}};
		assert_int_equal(inet_pton(AF_INET, text, &a.in4.sin_addr), 1);
	}
	return a;
}

static bool match(const char *rules, const char *address)
{
	struct host_rules r;
	union address a = address_of(address);

	if (host_rules_parse(rules, &r))
		fail_msg("%s: %s", rules, failed()->text);
	return host_rules_match(&r, &a);
}

static void networks_are_matched_by_their_bits(void **state)
{
	(void)state;
	assert_true(match("10.1.2.3", "10.1.2.3"));
	assert_false(match("10.1.2.3", "10.1.2.2"));
	assert_true(match("10.0.0.0/8", "10.255.0.1"));
	assert_false(match("10.0.0.0/8", "11.0.0.1"));
	assert_true(match("10.128.0.0/9", "10.128.0.0"));
	assert_false(match("10.128.0.0/9", "10.127.255.255"));
	assert_true(match("192.168.1.4/31", "192.168.1.5"));
	assert_false(match("192.168.1.4/31", "192.168.1.6"));
	assert_true(match("0.0.0.0/0", "1.2.3.4"));
	assert_true(match("2001:db8::/32", "2001:db8:ffff::1"));
	assert_false(match("2001:db8::/32", "2001:db9::1"));
	assert_true(match("2001:db8::8/125", "2001:db8::f"));
	assert_false(match("2001:db8::8/125", "2001:db8::10"));
	assert_true(match("::/0", "::1"));
}

static void families_are_kept_apart(void **state)
{
	(void)state;
	assert_false(match("0.0.0.0/0", "::1"));
	assert_false(match("::/0", "1.2.3.4"));
	assert_true(match("10.0.0.0/8", "::ffff:10.1.1.1"));
	assert_false(match("::/0", "::ffff:10.1.1.1"));
	assert_true(match("*", "::1"));
	assert_true(match("*", "1.2.3.4"));
}

static void lists_have_blanks_and_commas(void **state)
{
	(void)state;
	assert_true(match("10.0.0.1,10.0.0.2", "10.0.0.2"));
	assert_true(match(" 10.0.0.1\t , 10.0.0.2 ", "10.0.0.1"));
	assert_false(match("10.0.0.1 10.0.0.2", "10.0.0.3"));
}

static void refused(const char *text)
{
	struct host_rules r;

	fail_clear();
	if (!host_rules_parse(text, &r))
		fail_msg("%s was taken", text);
	assert_int_equal(failed()->code, OUT_USAGE);
}

static void what_is_no_address_is_refused(void **state)
{
	char many[HOST_RULES_MAX * 9 + 16] = "";

	(void)state;
	refused("");
	refused(" , ");
	refused("localhost");
	refused("10.0.0");
	refused("10.0.0.0/");
	refused("10.0.0.0/33");
	refused("10.0.0.0/-1");
	refused("10.0.0.0/+1");
	refused("10.0.0.0/8x");
	refused("10.0.0.0/255.0.0.0");
	refused("::/129");
	refused("*.example.org");
	refused("/8");
	refused("1111111111111111111111111111111111111111111111111111111111111111111111111111111");
	for (unsigned i = 0; i <= HOST_RULES_MAX; i++)
		strcat(many, "10.0.0.1 ");
	refused(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(networks_are_matched_by_their_bits),
		cmocka_unit_test(families_are_kept_apart),
		cmocka_unit_test(lists_have_blanks_and_commas),
		cmocka_unit_test(what_is_no_address_is_refused),
	};

	return cmocka_run_group_tests_name("host_rules", tests, NULL, NULL);
}
