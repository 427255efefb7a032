/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cmd/cli/amount.h"
#include "cmd/output/screen.h"

enum { RATE_SAMPLE_MS = 500 };

void progress_init(struct progress *p, const char *program, bool live, unsigned every_s)
{
	memset(p, 0, sizeof *p);
	p->program = program;
	p->live = live && isatty(STDERR_FILENO);
	p->every_s = every_s;
}

bool progress_wanted(const struct progress *p)
{
	return p->live || p->every_s;
}

void progress_set_start(struct progress *p, uint64_t start_ms, uint64_t now_ms)
{
	if (p->start_ms)
		return;
	p->start_ms = start_ms;
	p->seen_ms = start_ms;
	p->moved_ms = now_ms;
	p->line_ms = now_ms;
}

/* A far end may send any counts, even decreasing ones. */
static uint64_t double_to_u64(double v)
{
	return v < 0x1p64 ? (uint64_t)v : UINT64_MAX;
}

static void sample_rate(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	if (!p->start_ms) {
		if (!c->bytes && !c->files)
			return;
		progress_set_start(p, now_ms, now_ms);
	}
	if (c->bytes != p->last || c->files != p->last_files)
		p->moved_ms = now_ms;
	p->last = c->bytes;
	p->last_files = c->files;
	if (now_ms - p->seen_ms >= RATE_SAMPLE_MS) {
		uint64_t more = c->bytes > p->seen ? c->bytes - p->seen : 0;
		double rate = (double)more * 1000 / (double)(now_ms - p->seen_ms);

		p->rate = p->rate > 0 ? p->rate * 0.7 + rate * 0.3 : rate;
		p->seen = c->bytes;
		p->seen_ms = now_ms;
	}
}

char *progress_line(const struct progress *p, const struct progress_count *c, uint64_t now_ms,
		    char *to, size_t size)
{
	char done[32], total[32] = "", percent[32] = "", speed[48], eta[48] = "", files[48] = "";

	size_text(c->bytes, done, sizeof done);
	if (c->total) {
		/* Files may be sent before the walk has counted them, and may grow. */
		uint64_t least = c->total > c->bytes ? c->total : c->bytes;
		bool known = c->total_known && c->total >= c->bytes;
		char t[32];

		snprintf(total, sizeof total, " of %s%s", known ? "" : "\u2265",
			 size_text(least, t, sizeof t));
		snprintf(percent, sizeof percent, " %3u%%",
			 (unsigned)((double)c->bytes * 100 / (double)least));
	}
	if (p->start_ms && now_ms - p->moved_ms >= PROGRESS_STALLED_MS) {
		snprintf(speed, sizeof speed, "stalled");
	} else {
		char r[32];

		if (p->rate > 0)
			snprintf(speed, sizeof speed, "%s/s",
				 size_text(double_to_u64(p->rate), r, sizeof r));
		else
			snprintf(speed, sizeof speed, "...");
		if (c->total > c->bytes && p->rate >= 1) {
			double left = (double)(c->total - c->bytes) / p->rate;

			snprintf(eta, sizeof eta, "  ETA %s",
				 left > 359999 ? "--:--"
					       : time_text((uint64_t)(left + 0.5), r, sizeof r));
		}
	}
	if (c->files > 1)
		snprintf(files, sizeof files, "  %llu files", (unsigned long long)c->files);
	snprintf(to, size, "%s%s%s  %s%s%s", done, total, percent, speed, eta, files);
	return to;
}

static void print_progress_line(const struct progress *p, const struct progress_count *c,
				uint64_t now_ms)
{
	char line[PROGRESS_LINE_MAX];

	screen_line(progress_line(p, c, now_ms, line, sizeof line));
}

void progress_update(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	char line[PROGRESS_LINE_MAX];

	sample_rate(p, c, now_ms);
	if (!p->start_ms)
		return;
	if (p->live)
		screen_live(progress_line(p, c, now_ms, line, sizeof line));
	if (p->every_s && now_ms - p->line_ms >= p->every_s * UINT64_C(1000)) {
		p->line_ms = now_ms;
		print_progress_line(p, c, now_ms);
	}
}

void progress_show_line(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	sample_rate(p, c, now_ms);
	print_progress_line(p, c, now_ms);
}

void progress_end(struct progress *p, uint64_t bytes, uint64_t ns)
{
	char whole[32], rate[32], took[32];

	if (p->live && ns)
		fprintf(stderr, "%s  %s/s  in %s\n", size_text(bytes, whole, sizeof whole),
			size_text(double_to_u64((double)bytes * 1e9 / (double)ns), rate,
				  sizeof rate),
			time_text((ns + 500000000) / 1000000000, took, sizeof took));
	p->live = false;
}
