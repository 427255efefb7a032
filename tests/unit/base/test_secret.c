/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

enum { PAGES = 3 };

static size_t page;

/* Whether the mapping with this address has a flag in smaps. */
static int has_flag(const void *at, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned long first, last;
	int inside = 0, found = -1;

	assert_non_null(f);
	while (found < 0 && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
			inside = (uintptr_t)at >= first && (uintptr_t)at < last;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, flag) != NULL;
	}
	fclose(f);
	return found;
}

static uint8_t *make_pages(void)
{
	void *p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void test_every_page_of_a_secret_is_left_out_of_core_files(void **state)
{
	uint8_t *p = make_pages();

	(void)state;
	/* Its last byte is the first one of the second page. */
	secret_guard(p + page - 31, 32);
	assert_int_equal(has_flag(p, " dd"), 1);
	assert_int_equal(has_flag(p + page, " dd"), 1);
	assert_int_equal(has_flag(p + 2 * page, " dd"), 0);
	munmap(p, PAGES * page);
}

static void test_a_limit_of_locked_memory_is_no_failure(void **state)
{
	struct rlimit before, none;
	uint8_t *p = make_pages();

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	p[0] = 'x';
	errno = 0;
	secret_guard(p, 1);
	assert_int_equal(errno, 0);
	assert_int_equal(p[0], 'x');
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
	munmap(p, PAGES * page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_page_of_a_secret_is_left_out_of_core_files),
		cmocka_unit_test(test_a_limit_of_locked_memory_is_no_failure),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
