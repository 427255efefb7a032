/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/escape.h"
#include "base/io.h"
#include "cmd/amount.h"

enum { RATE_SAMPLE_MS = 500 };

/* What is on the terminal's last line now; the log writes above it. */
static struct {
	pthread_mutex_t lock;
	const char *program;
	char line[PROGRESS_LINE_MAX];
} shown = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_text(const char *text)
{
	/* A terminal that is gone is no fault of the copy. */
	(void)!write(STDERR_FILENO, text, strlen(text));
}

static void log_above(enum log_level level, const char *line)
{
	char escaped[2048];
	char text[sizeof escaped + PROGRESS_LINE_MAX + 64];

	(void)level;
	escape(escaped, sizeof escaped, line, strlen(line));
	pthread_mutex_lock(&shown.lock);
	snprintf(text, sizeof text, "%s%s: %s\n%s", shown.line[0] ? "\r\033[K" : "", shown.program,
		 escaped, shown.line);
	write_text(text);
	pthread_mutex_unlock(&shown.lock);
}

static void show(const char *line)
{
	char text[PROGRESS_LINE_MAX + 8];

	pthread_mutex_lock(&shown.lock);
	if (strcmp(line, shown.line) != 0) {
		snprintf(text, sizeof text, "\r%s\033[K", line);
		write_text(text);
	}
	snprintf(shown.line, sizeof shown.line, "%s", line);
	pthread_mutex_unlock(&shown.lock);
}

void progress_init(struct progress *p, const char *program, bool live, unsigned every_s)
{
	memset(p, 0, sizeof *p);
	p->program = program;
	p->live = live && isatty(STDERR_FILENO);
	p->every_s = every_s;
	if (p->live) {
		shown.program = program;
		log_to(log_above);
	}
}

bool progress_wanted(const struct progress *p)
{
	return p->live || p->every_s;
}

static void count(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	if (!p->start_ms) {
		if (!c->bytes)
			return;
		p->start_ms = now_ms;
		p->seen_ms = now_ms;
		p->moved_ms = now_ms;
		p->line_ms = now_ms;
	}
	if (c->bytes != p->last)
		p->moved_ms = now_ms;
	p->last = c->bytes;
	if (now_ms - p->seen_ms >= RATE_SAMPLE_MS) {
		double rate = (double)(c->bytes - p->seen) * 1000 / (double)(now_ms - p->seen_ms);

		p->rate = p->rate > 0 ? p->rate * 0.7 + rate * 0.3 : rate;
		p->seen = c->bytes;
		p->seen_ms = now_ms;
	}
}

char *progress_line(const struct progress *p, const struct progress_count *c, uint64_t now_ms,
		    char *to, size_t size)
{
	char done[32], total[32] = "", percent[32] = "", speed[48], eta[48] = "";

	size_text(c->bytes, done, sizeof done);
	if (c->total) {
		char t[32];
		uint64_t bytes = c->bytes < c->total ? c->bytes : c->total;

		snprintf(total, sizeof total, " of %s%s", size_text(c->total, t, sizeof t),
			 c->total_known ? "" : "+");
		snprintf(percent, sizeof percent, " %3u%%",
			 (unsigned)((double)bytes * 100 / (double)c->total));
	}
	if (p->start_ms && now_ms - p->moved_ms >= PROGRESS_STALLED_MS) {
		snprintf(speed, sizeof speed, "stalled");
	} else {
		char r[32];

		if (p->rate > 0)
			snprintf(speed, sizeof speed, "%s/s",
				 size_text((uint64_t)p->rate, r, sizeof r));
		else
			snprintf(speed, sizeof speed, "...");
		if (c->total > c->bytes && p->rate >= 1) {
			double left = (double)(c->total - c->bytes) / p->rate;

			snprintf(eta, sizeof eta, "  ETA %s",
				 left > 359999 ? "--:--"
					       : time_text((uint64_t)(left + 0.5), r, sizeof r));
		}
	}
	snprintf(to, size, "%s%s%s  %s%s", done, total, percent, speed, eta);
	return to;
}

static void plain(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	char line[PROGRESS_LINE_MAX];
	char text[2 * PROGRESS_LINE_MAX + 80];

	progress_line(p, c, now_ms, line, sizeof line);
	pthread_mutex_lock(&shown.lock);
	snprintf(text, sizeof text, "%s%s: %s\n%s", shown.line[0] ? "\r\033[K" : "", p->program,
		 line, shown.line);
	write_text(text);
	pthread_mutex_unlock(&shown.lock);
}

void progress_update(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	char line[PROGRESS_LINE_MAX];

	count(p, c, now_ms);
	if (!p->start_ms)
		return;
	if (p->live)
		show(progress_line(p, c, now_ms, line, sizeof line));
	if (p->every_s && now_ms - p->line_ms >= p->every_s * UINT64_C(1000)) {
		p->line_ms = now_ms;
		plain(p, c, now_ms);
	}
}

void progress_now(struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	count(p, c, now_ms);
	plain(p, c, now_ms);
}

/* What stays on the terminal: all of it, and how fast it was on the whole. */
static void print_whole(const struct progress *p, const struct progress_count *c, uint64_t now_ms)
{
	uint64_t ms = p->start_ms && now_ms > p->start_ms ? now_ms - p->start_ms : 1;
	char bytes[32], rate[32], took[32], text[160];

	snprintf(text, sizeof text, "%s  %s/s  in %s\n", size_text(c->bytes, bytes, sizeof bytes),
		 size_text((uint64_t)((double)c->bytes * 1000 / (double)ms), rate, sizeof rate),
		 time_text((ms + 500) / 1000, took, sizeof took));
	write_text(text);
}

void progress_end(struct progress *p, const struct progress_count *whole, uint64_t now_ms)
{
	if (!p->live)
		return;
	show("");
	if (whole && p->start_ms)
		print_whole(p, whole, now_ms);
	log_to(NULL);
	p->live = false;
}
