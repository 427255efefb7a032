/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

/*
 * Lines to stderr, each written by one write(2), prefixed with the program's name, and with
 * everything unprintable escaped. Levels: WARN always (unless -q), INFO with -v (in proportion to
 * sessions), DEBUG with -vv (to files and connections), TRACE with -vvv (to blocks).
 *
 * An end that has a conductor sends its lines there instead: log_to(). These lines are not escaped,
 * because the program that prints them escapes them.
 */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

void log_setup(const char *program, enum log_level most);
/* From now on lines go to sink(level, line); NULL: to stderr again. The sink may be called from any
 * thread and must not log. */
void log_to(void (*sink)(enum log_level level, const char *line));
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_trace(...) log_at(LOG_TRACE, __VA_ARGS__)

#endif
