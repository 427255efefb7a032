/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_EVENTS_H
#define CMD_OUTPUT_EVENTS_H

/*
 * Reports the result for each file as the user requested: lines of --itemize-changes and
 * --print-digest, objects of --json, the list of --failed, lines of --log-file.
 *
 * Names are bytes that a peer may have chosen. They are escaped wherever people read them. For one
 * thread only, except the log.
 */

#include <stdbool.h>
#include "cmd/cli/options.h"
#include "cmd/output/progress.h"
#include "cmd/output/report.h"

/* Begins the events of the run; a run has one set. stdout_is_data: lines go to stderr. Call it
 * after screen_begin(): lines of the log come here too. Returns -1 with a failure. */
int events_begin(const struct options *o, bool stdout_is_data);

/* Call if nothing is run after all, even if events_begin() failed. Removes the temporary of
 * --failed. */
void events_abandon(void);
/* A session begins, from sources on one host. names: as the user wrote them, without the host. */
void events_session(const char *source_host, const char *const *names, unsigned count,
		    const char *sink_host, const char *target);
void events_take(const struct msg_event *m);
void events_progress(const struct progress_count *c, uint64_t now_ms);
/* The descriptor to poll for writing; -1: nothing is pending. */
int events_pending_fd(void);
/* Writes what is pending, without waiting. */
void events_flush(void);
/* As events_flush().  -1, with a failure, if stdout or the log can't be written any more. */
int events_check(void);
/* Ends the events: adds the summary and writes everything. Returns 0, or -1 with a failure. */
int events_end(const struct report *all);

#endif
