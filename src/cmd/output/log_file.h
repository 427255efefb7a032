/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_LOG_FILE_H
#define CMD_OUTPUT_LOG_FILE_H

/* --log-file: lines with a time, appended to the file. Any thread. */

#include <stddef.h>

struct log_file;

int log_file_open(const char *path, struct log_file **out);
/* Adds a line: a word for its subject, and text, which is escaped. */
void log_file_add(struct log_file *l, const char *word, const void *text, size_t len);
void log_file_flush(struct log_file *l);
/* Flushes.  -1, with a failure, if not everything could be written; log_file_close() does not
 * report that again. */
int log_file_check(struct log_file *l);
/* Returns 0, or -1 with a failure if not everything could be written. l may be NULL. */
int log_file_close(struct log_file *l);

#endif
