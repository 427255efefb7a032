/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "dst_rig.h"

struct rules rules;
struct place *place;
struct place_dir *top;

int enter_dst(void **state)
{
	if (folder_enter(state))
		return -1;
	rules = rules_a;
	make_dir("dst", 0755);
	return 0;
}

void begin_dst_run(void)
{
	struct place_opts o = {.target = "dst", .peer = "h", .rules = &rules};

	place = open_place(&o);
	top = put_contents(place, 0755);
}

void end_dst_run(void)
{
	char name[256];

	finish_place(place);
	assert_int_equal(temporaries("dst", name), 0);
}
