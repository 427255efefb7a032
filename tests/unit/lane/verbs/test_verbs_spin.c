/* SPDX-License-Identifier: Apache-2.0 */

/* Which wires poll for completions before they sleep. Needs no adapter. */

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/cpu.h"
#include "lane/verbs/verbs_impl.h"
#include "verbs_door.h"

/* ---- a stand-in for cpu_share() (--wrap) ----------------------------------------------- */

unsigned __wrap_cpu_share(void);
unsigned __real_cpu_share(void);

static unsigned share; /* 0: the real one */

unsigned __wrap_cpu_share(void)
{
	return share ? share : __real_cpu_share();
}

/* ---- tests ----------------------------------------------------------------------------- */

static bool does_spin(void)
{
	struct lane *l = door_lane(LANE_SOURCE, 4, 16 << 10, door_never, NULL);
	struct verbs *v;
	bool spins;

	assert_non_null(l);
	assert_int_equal(verbs_new(l, 0, &v), 0);
	spins = v->spin_ns > 0;
	verbs_free(v);
	lane_close(l);
	return spins;
}

/* On fewer processors it would take one from the other threads of its end. */
static void wire_spins_with_three_processors_only(void **state)
{
	(void)state;
	for (share = 1; share <= 64; share++)
		assert_int_equal(does_spin(), share >= 3);
	share = 0;
}

static void wire_does_not_spin_where_the_process_has_one_processor(void **state)
{
	cpu_set_t all, one;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	}
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	assert_int_equal(cpu_share(), 1);
	assert_false(does_spin());
	assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wire_spins_with_three_processors_only),
		cmocka_unit_test(wire_does_not_spin_where_the_process_has_one_processor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
