/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_PROGRESS_H
#define CMD_OUTPUT_PROGRESS_H

/*
 * Progress on stderr: one line on a terminal that is rewritten in place, or a line every few
 * seconds if the user requested it, or one line now (SIGUSR1).
 *
 * One thread updates it; its output goes to the screen (screen.h).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cmd/output/screen.h"

struct progress_count {
	uint64_t bytes; /* stored */
	uint64_t total; /* 0: unknown */
	bool total_known; /* else it may still grow */
	uint64_t files;
};

struct progress {
	const char *program;
	bool live;
	unsigned every_s; /* seconds between plain lines; 0: none */
	uint64_t
		/* When bytes began to move, or, without any bytes, when files were completed; 0:
		 * not yet. */
		start_ms;
	uint64_t seen_ms; /* when `seen' was sampled, for the rate */
	uint64_t seen;
	uint64_t moved_ms; /* when bytes or files last grew */
	uint64_t last, last_files;
	uint64_t line_ms; /* time of the last line */
	double rate; /* bytes per second, smoothed */
};

enum { PROGRESS_STALLED_MS = 5000, PROGRESS_TICK_MS = 250, PROGRESS_LINE_MAX = SCREEN_LINE_MAX };

/* live applies only if stderr is a terminal. */
void progress_init(struct progress *p, const char *program, bool live, unsigned every_s);
/* Whether any progress is to be shown. */
bool progress_wanted(const struct progress *p);
/* Takes the counts at now_ms (clock_ms) and shows them if it is time. */
void progress_update(struct progress *p, const struct progress_count *c, uint64_t now_ms);
/* Call before the first update if bytes have moved since start_ms: then the rate is known. */
void progress_set_start(struct progress *p, uint64_t start_ms, uint64_t now_ms);
/* Shows one line now. */
void progress_show_line(struct progress *p, const struct progress_count *c, uint64_t now_ms);
/* Call after screen_end(). If there was a live line, prints in its place how much was copied and
 * how fast; ns 0: prints nothing. */
void progress_end(struct progress *p, uint64_t bytes, uint64_t ns);

/* The line without its newline; returns to. */
char *progress_line(const struct progress *p, const struct progress_count *c, uint64_t now_ms,
		    char *to, size_t size);

#endif
