/* SPDX-License-Identifier: Apache-2.0 */
/* rdbench: measure the throughput between hosts and of their disks. */
#include <string.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "cmd/output/screen.h"
#include "cmd/process/process.h"
#include "cmd/process/signals.h"

static int check_bench_options(const struct options *o)
{
	if (o->measure.ms < 1)
		return fail_as(OUT_USAGE, "--seconds must be greater than 0");
	return o->measure.plot ? plot_check(o->measure.plot) : 0;
}

int main(int argc, char **argv)
{
	static struct options o;
	static struct bench b;
	int code;

	process_parse_options(&o, RDBENCH, argc, argv);
	if (check_bench_options(&o))
		process_exit_failed(RDBENCH);
	b.o = &o;
	b.host = o.operand_count ? o.operands[0] : "";
	end_pipe_init(&b.far);
	screen_begin(program_name(RDBENCH), NULL);
	progress_init(&b.progress, program_name(RDBENCH), false, 0);
	if (signals_begin()) {
		screen_end();
		process_exit_failed(RDBENCH);
	}
	code = bench_run(&b) ? (int)b.failure.code : OUT_DONE;
	bench_close(&b);
	signals_end();
	screen_end();
	if (code == OUT_DONE && o.measure.plot && plot_write(&b, o.measure.plot)) {
		b.failure = *failed();
		code = (int)b.failure.code;
	}
	print_summary(&b);
	if (code == OUT_DONE && !bench_check_stdout(&b))
		code = (int)b.failure.code;
	if (code) {
		struct report r = {.program = program_name(RDBENCH), .failure = b.failure};

		memcpy(r.host, b.failed_host, sizeof r.host);
		report_failure(&r);
	}
	options_free(&o);
	process_exit(code);
}
