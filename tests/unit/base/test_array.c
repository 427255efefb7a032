/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/array.h"

static void zeroed_array_is_empty_and_grows(void **state)
{
	uint64_t *of = NULL;
	size_t count = 0, room = 0;

	(void)state;
	for (uint64_t i = 0; i < 100000; i++) {
		assert_int_equal(ARRAY_ROOM(of, count, room, 1), 0);
		assert_true(room > count);
		of[count++] = i * i;
	}
	for (uint64_t i = 0; i < count; i++)
		assert_true(of[i] == i * i);
	free(of);
}

static void existing_room_is_used(void **state)
{
	char *of = NULL, *was;
	size_t room = 0;

	(void)state;
	assert_int_equal(ARRAY_ROOM(of, 0, room, 1000), 0);
	assert_int_equal(room, 1000);
	was = of;
	assert_int_equal(ARRAY_ROOM(of, 900, room, 100), 0);
	assert_ptr_equal(of, was);
	assert_int_equal(room, 1000);
	free(of);
}

/*
 * Growth is geometric, so appending takes linear time, and a caller that counts bytes knows them in
 * advance.
 */
static void room_doubles_or_grows_to_the_need(void **state)
{
	(void)state;
	assert_int_equal(array_wider(8, 8, 1, 24), 16);
	assert_int_equal(array_wider(8, 8, 8, 24), 16);
	assert_int_equal(array_wider(8, 8, 9, 24), 17);
	assert_int_equal(array_wider(0, 0, 1, 1000), 1);
	assert_int_equal(array_wider(0, 0, 8, 24), 8);
	/* Small elements start with several at once. */
	assert_in_range(array_wider(0, 0, 1, sizeof(char *)), 4, 64);
}

static void count_may_be_of_another_type(void **state)
{
	struct {
		uint16_t a, b, c;
	} *of = NULL;
	unsigned count = 0;
	size_t room = 0;

	(void)state;
	for (; count < 1000; count++) {
		assert_int_equal(ARRAY_ROOM(of, count, room, 1), 0);
		of[count].c = (uint16_t)count;
	}
	assert_int_equal(of[999].c, 999);
	free(of);
}

static void size_overflow_fails_with_enomem(void **state)
{
	uint64_t *of = NULL;
	size_t room = 0, most = PTRDIFF_MAX / sizeof *of;

	(void)state;
	assert_int_equal(ARRAY_ROOM(of, 0, room, 1), 0);
	of[0] = 7;
	errno = 0;
	assert_int_equal(ARRAY_ROOM(of, 1, room, SIZE_MAX), -1);
	assert_int_equal(errno, ENOMEM);
	errno = 0;
	assert_int_equal(ARRAY_ROOM(of, 1, room, most), -1);
	assert_int_equal(errno, ENOMEM);
	/* The array is unchanged. */
	assert_int_equal(of[0], 7);
	assert_int_equal(ARRAY_ROOM(of, 1, room, room), 0);
	assert_int_equal(of[0], 7);
	free(of);

	assert_int_equal(array_wider(most - 1, most - 1, 1, sizeof *of), most);
	assert_int_equal(array_wider(most, most, 1, sizeof *of), 0);
	assert_int_equal(array_wider(most / 2 + 1, most / 2 + 1, 1, sizeof *of), most / 2 * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zeroed_array_is_empty_and_grows),
		cmocka_unit_test(existing_room_is_used),
		cmocka_unit_test(room_doubles_or_grows_to_the_need),
		cmocka_unit_test(count_may_be_of_another_type),
		cmocka_unit_test(size_overflow_fails_with_enomem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
