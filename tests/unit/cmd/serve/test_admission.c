/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "base/clock.h"

static struct strangers strangers;
static struct admission admission;

/* A stranger from an address that ends with this byte. */
static struct stranger from_address(uint8_t last, bool waits)
{
	struct stranger s = {.fd = -1, .waits = waits};

	s.from[10] = s.from[11] = 0xff;
	s.from[15] = last;
	return s;
}

static int begin(void **state)
{
	(void)state;
	memset(&strangers, 0, sizeof strangers);
	memset(&admission, 0, sizeof admission);
	return 0;
}

static void come(uint8_t last, bool waits)
{
	strangers.list[strangers.count++] = from_address(last, waits);
}

static void admit(pid_t pid, uint8_t last, unsigned age_ms)
{
	struct stranger s = from_address(last, true);

	admission_add(&admission, pid, &s);
	admission.list[admission.count - 1].since = clock_ms() - age_ms;
}

static void test_only_a_whole_hello_is_chosen(void **state)
{
	(void)state;
	assert_int_equal(admission_choose(&admission, &strangers), -1);
	come(1, false);
	come(2, true);
	come(1, true);
	assert_int_equal(admission_choose(&admission, &strangers), 2);
}

static void test_the_address_with_the_fewest_processes_is_next(void **state)
{
	(void)state;
	admit(100, 1, 0);
	admit(101, 1, 0);
	admit(102, 2, 0);
	come(1, true);
	come(2, true);
	come(1, true);
	assert_int_equal(admission_choose(&admission, &strangers), 1);
	come(3, true);
	assert_int_equal(admission_choose(&admission, &strangers), 3);
	admission_remove(&admission, 100);
	admission_remove(&admission, 101);
	assert_int_equal(admission_choose(&admission, &strangers), 3);
	admit(103, 3, 0);
	assert_int_equal(admission_choose(&admission, &strangers), 2);
}

static void test_nobody_makes_room_while_there_is_some(void **state)
{
	(void)state;
	for (pid_t pid = 1; pid < ADMISSIONS_MAX; pid++)
		admit(pid, 1, 100 * ADMISSION_MS);
	assert_false(admission_is_full(&admission));
	assert_int_equal(admission_victim(&admission), 0);
}

static void test_the_oldest_of_the_busiest_address_makes_room(void **state)
{
	(void)state;
	admit(1, 1, 10000);
	admit(2, 2, 9000);
	admit(3, 2, 8000);
	for (pid_t pid = 4; pid < ADMISSIONS_MAX; pid++)
		admit(pid, (uint8_t)pid, 7000);
	admit(ADMISSIONS_MAX, 1, 0);
	assert_true(admission_is_full(&admission));
	/* Both 1 and 2 have two; address 1 has the older one. */
	assert_int_equal(admission_victim(&admission), 1);
	admission_remove(&admission, 1);
	admit(40, 40, 0);
	assert_int_equal(admission_victim(&admission), 2);
}

static void test_a_young_handshake_goes_on(void **state)
{
	uint64_t due;

	(void)state;
	for (pid_t pid = 1; pid <= ADMISSIONS_MAX; pid++) {
		assert_int_equal(admission_due(&admission), 0);
		admit(pid, 1, 0);
	}
	due = admission_due(&admission);
	assert_true(due > clock_ms() && due <= clock_ms() + ADMISSION_MS);
	assert_int_equal(admission_victim(&admission), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_only_a_whole_hello_is_chosen, begin),
		cmocka_unit_test_setup(test_the_address_with_the_fewest_processes_is_next, begin),
		cmocka_unit_test_setup(test_nobody_makes_room_while_there_is_some, begin),
		cmocka_unit_test_setup(test_the_oldest_of_the_busiest_address_makes_room, begin),
		cmocka_unit_test_setup(test_a_young_handshake_goes_on, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
