/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/bench.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "cmd/output/screen.h"
#include "cmd/process/process.h"
#include "cmd/process/signals.h"

enum {
	RUNS_MOST = 4, /* of a point, until it takes about as long as the user asked for */
	RETRIES = 3, /* of a point whose connection failed, with growing pauses: */
	PAUSE_MS = 1000,
	BYTES_LEAST = 256 << 10,
	EXIT_WAIT_MS = 1000,
};
#define BYTES_MOST (UINT64_C(64) << 30)

static const uint64_t stage_flags[STAGES] = {
	[STAGE_MEMORY] = START_MEMORY,      [STAGE_NETWORK] = START_MEMORY | START_UNCHECKED,
	[STAGE_SOURCE] = START_PROBE,       [STAGE_TARGET] = START_PROBE,
	[STAGE_END_TO_END] = START_SCRATCH,
};

static void fill_point(struct point *p, const struct report *r, const struct measure *m)
{
	int end = p->stage == STAGE_SOURCE ? END_SOURCE : END_SINK;
	const struct msg_verdict *v = &m->verdicts[end];
	const struct msg_times *t = &m->verdicts[END_SOURCE].times;

	p->bytes = v->total.bytes;
	p->ns = v->ns ? v->ns : 1;
	p->transport = r->transport;
	p->encrypted = r->encrypted;
	p->lanes = v->lanes;
	/* Over TCP a small window does not mean that memory was short. */
	if (p->transport == TRANSPORT_RDMA && t->used && p->set.block_size)
		p->depth = (unsigned)(t->window / t->used / p->set.block_size);
	p->shrunk = (v->lanes && v->lanes < p->set.lanes) || (p->depth && p->depth < p->set.depth);
	/* The source's text names its wire to the sink. */
	snprintf(p->how, sizeof p->how, "%s", m->verdicts[END_SOURCE].how);
	snprintf(p->why, sizeof p->why, "%s", r->why);
}

static void show_point(struct bench *b, const struct point *p)
{
	char line[SCREEN_LINE_MAX], set[64], count[32] = "";
	uint64_t every_ms = b->o->output.progress_s * UINT64_C(1000), now = clock_ms();

	if (b->o->output.quiet || (every_ms ? now - b->line_ms < every_ms : !isatty(STDERR_FILENO)))
		return;
	/* The first points only find out what there is. */
	if (b->planned)
		snprintf(count, sizeof count, "%u/%u  ", b->done + 1, b->planned);
	snprintf(line, sizeof line, "%s%s, %s", count, stage_name(p->stage),
		 setting_text(&p->set, set, sizeof set));
	b->line_ms = now;
	if (every_ms)
		screen_line(line);
	else
		screen_live(line);
	screen_flush();
}

/* Without a reader of the results nothing is measured. */
bool bench_check_stdout(struct bench *b)
{
	errno = process_flush_stdout();
	if (!errno)
		return true;
	fail("write to stdout: %m");
	b->failure = *failed();
	return false;
}

int bench_measure(struct bench *b, enum bench_stage stage, const struct setting *s, uint64_t bytes,
		  struct point *out)
{
	bool reads = stage == STAGE_SOURCE || stage == STAGE_END_TO_END;
	bool writes = stage == STAGE_TARGET || stage == STAGE_END_TO_END;
	struct options o = *b->o;
	static struct report r;
	static struct measure m;
	const char *names[] = {b->o->measure.source};
	struct conductor_job j = {
		.o = &o,
		.source_host = "",
		.sink_host = b->host,
		.names = names,
		.count = reads ? 1 : 0,
		.target = writes ? b->o->measure.target : "",
		.progress = &b->progress,
		.measure = &m,
	};

	memset(&r, 0, sizeof r);
	memset(&m, 0, sizeof m);
	m.flags = stage_flags[stage];
	m.bytes = bytes;
	m.kept = &b->far;
	*out = (struct point){.stage = stage, .set = *s};
	o.rules.fsync = writes;
	o.network.want = s->transport;
	o.speed.rdma_op = s->op;
	o.speed.lanes = s->lanes;
	o.speed.depth = s->depth;
	o.speed.block_size = s->block_size;
	/* There are no files to report. */
	o.output.json = false;
	/* Only the first session logs its properties. */
	o.output.quiet = o.output.quiet || (b->began && o.output.verbose < 2);
	b->began = true;
	if (!bench_check_stdout(b))
		return -1;
	show_point(b, out);
	conductor_run(&j, &r);
	if (r.failure.code != OUT_DONE) {
		b->failure = r.failure;
		memcpy(b->failed_host, r.host, sizeof b->failed_host);
		return -1;
	}
	fill_point(out, &r, &m);
	return 0;
}

static uint64_t choose_bytes(const struct bench *b, const struct setting *s, uint64_t most)
{
	uint64_t block = s->block_size ? s->block_size : 256 << 10;
	uint64_t least = 4 * block * (s->lanes ? s->lanes : 1);
	uint64_t warm = block * s->lanes * s->depth;
	double bytes = b->expected_rate * b->o->measure.ms / 1000;

	/* The sink does not count the bytes that first fill the lanes, up to half of all. */
	bytes += bytes < (double)warm ? bytes : (double)warm;

	if (least < BYTES_LEAST)
		least = BYTES_LEAST;
	if (most > BYTES_MOST)
		most = BYTES_MOST;
	if (bytes >= (double)most)
		return most;
	return bytes > (double)least ? (uint64_t)bytes : least;
}

/* One failed point must not discard the results of earlier points. */
static bool may_retry(struct bench *b)
{
	enum outcome code = b->failure.code;

	if (b->done == 0 || b->retries >= RETRIES ||
	    (code != OUT_CONNECT && code != OUT_TRANSPORT && code != OUT_TIMEOUT &&
	     code != OUT_PEER_LOST))
		return false;
	log_warn("measuring again after a failure: %s", b->failure.text);
	b->failure = (struct failure){0};
	b->retries++;
	/* The network may recover meanwhile. */
	signals_pause(PAUSE_MS * (int)b->retries);
	return true;
}

int bench_point(struct bench *b, enum bench_stage stage, const struct setting *s, uint64_t most,
		struct point *out)
{
	uint64_t wanted_ns = (uint64_t)b->o->measure.ms * 1000000, bytes = 0, next;

	for (unsigned i = 0; i < RUNS_MOST; i++) {
		next = choose_bytes(b, s, most);
		/* More bytes are not possible. */
		if (bytes && next <= bytes)
			break;
		bytes = next;
		while (bench_measure(b, stage, s, bytes, out)) {
			if (!may_retry(b))
				return -1;
		}
		b->expected_rate = point_rate(out);
		if (out->ns >= wanted_ns / 2)
			break;
		/* The source has no more bytes. */
		if (stage >= STAGE_SOURCE && out->bytes < bytes)
			break;
	}
	b->done++;
	b->retries = 0;
	return 0;
}

void bench_close(struct bench *b)
{
	int status;

	child_close_in(&b->far.child);
	if (b->far.child.pid)
		child_wait(&b->far.child, &status, clock_ms() + EXIT_WAIT_MS);
	end_pipe_close(&b->far);
}
