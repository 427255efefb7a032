/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_PROGRESS_H
#define CMD_OUTPUT_PROGRESS_H

/*
 * Progress on stderr: one line that is written over on a terminal, or a line every few
 * seconds where that was asked for, or one line now (SIGUSR1).
 *
 * One thread feeds it; what it shows goes to the screen (screen.h).
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
	unsigned every_s; /* a plain line every so often; 0: none */
	uint64_t
		start_ms; /* when bytes began to move, or files were done without any; 0: not yet */
	uint64_t seen_ms; /* when `seen' was sampled, for the rate */
	uint64_t seen;
	uint64_t moved_ms; /* when bytes or files last grew */
	uint64_t last, last_files;
	uint64_t line_ms; /* of the last line */
	double rate; /* bytes a second, smoothed */
};

enum { PROGRESS_STALLED_MS = 5000, PROGRESS_TICK_MS = 250, PROGRESS_LINE_MAX = SCREEN_LINE_MAX };

/* live is only taken for a terminal on stderr. */
void progress_init(struct progress *p, const char *program, bool live, unsigned every_s);
/* Is there anything to show at all? */
bool progress_wanted(const struct progress *p);
/* Take in what was counted at now_ms (clock_ms) and show it where it is time to. */
void progress_update(struct progress *p, const struct progress_count *c, uint64_t now_ms);
/* Nothing was taken in yet, and bytes have moved since then: so the rate is known. */
void progress_began(struct progress *p, uint64_t start_ms, uint64_t now_ms);
/* One line now. */
void progress_now(struct progress *p, const struct progress_count *c, uint64_t now_ms);
/* After screen_end(): where there was a live line, what was copied and how fast stays in its
 * place; ns 0: nothing does. */
void progress_end(struct progress *p, uint64_t bytes, uint64_t ns);

/* The line without its end; to is returned. */
char *progress_line(const struct progress *p, const struct progress_count *c, uint64_t now_ms,
		    char *to, size_t size);

#endif
