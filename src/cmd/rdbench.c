/* SPDX-License-Identifier: Apache-2.0 */
/* rdbench: measure how fast data can go. */
#include <string.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "cmd/output/screen.h"
#include "cmd/process/process.h"
#include "cmd/process/signals.h"

static _Noreturn void refuse(void)
{
	log_at(LOG_ERROR, "%s", failed()->text);
	if (failed()->code == OUT_USAGE)
		print_synopsis(stderr, RDBENCH);
	exit_with((int)failed()->code);
}

static int check(const struct options *o)
{
	if (o->measure_ms < 1)
		return fail_as(OUT_USAGE, "--seconds 0: nothing can be measured in no time");
	return o->plot ? plot_check(o->plot) : 0;
}

int main(int argc, char **argv)
{
	static struct options o;
	static struct bench b;
	int code;

	take_command_line(&o, RDBENCH, argc, argv);
	if (check(&o))
		refuse();
	b.o = &o;
	b.host = o.operand_count ? o.operands[0] : "";
	link_init(&b.far);
	screen_begin(program_name(RDBENCH), NULL);
	progress_init(&b.progress, program_name(RDBENCH), false, 0);
	if (conductor_signals()) {
		screen_end();
		refuse();
	}
	code = bench_run(&b) ? (int)b.failure.code : OUT_DONE;
	bench_end(&b);
	conductor_signals_end();
	screen_end();
	if (code == OUT_DONE && o.plot && plot_write(&b, o.plot)) {
		b.failure = *failed();
		code = (int)b.failure.code;
	}
	print_summary(&b);
	if (code) {
		struct report r = {.program = program_name(RDBENCH), .failure = b.failure};

		memcpy(r.host, b.failed_host, sizeof r.host);
		report_failure(&r);
	}
	options_free(&o);
	exit_with(code);
}
