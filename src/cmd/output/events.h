/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_EVENTS_H
#define CMD_OUTPUT_EVENTS_H

/*
 * What became of each file, as the user asked to be told: lines of --itemize-changes and
 * --print-digest, --json's objects, --failed's list, --log-file's lines.
 *
 * Names are bytes that a peer may have chosen: escaped where people read them.  One thread, but
 * for the log.
 */

#include <stdbool.h>
#include "cmd/cli/options.h"
#include "cmd/output/progress.h"
#include "cmd/output/report.h"

/* The run's, there is one.  stdout_is_data: then lines go to stderr.  After screen_begin(): the
 * log's lines come here, too.  -1 with a failure. */
int events_begin(const struct options *o, bool stdout_is_data);

/* Nothing is run after all, also where events_begin() failed: leaves no temporary of --failed. */
void events_abandon(void);
/* A session begins, from sources on one host: names as the user wrote them, without the host. */
void events_session(const char *source_host, const char *const *names, unsigned count,
		    const char *sink_host, const char *target);
void events_take(const struct msg_event *m);
void events_progress(const struct progress_count *c, uint64_t now_ms);
/* To be polled for writing; -1: nothing waits. */
int events_wait(void);
/* Hand on what was told, without waiting. */
void events_flush(void);
/* It is over: the summary, and what is told is written whole.  0, or -1 with a failure. */
int events_end(const struct report *all);

#endif
