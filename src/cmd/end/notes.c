/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/notes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cmd/process/watch.h"

/* Room for bursts: many files of a tree may fail at a time, and each failure is a line. */
enum { BYTES_MAX = 4 << 20 };

struct note {
	struct note *next;
	enum log_level level;
	char text[];
};

static struct {
	pthread_mutex_t lock;
	struct note *first, **end;
	size_t bytes;
	unsigned dropped;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &kept.first};

static size_t note_size(size_t len)
{
	return sizeof(struct note) + len + 1;
}

static void queue_note(enum log_level level, const char *line)
{
	size_t len = strlen(line);
	struct note *n;

	pthread_mutex_lock(&kept.lock);
	n = kept.bytes + note_size(len) <= BYTES_MAX ? malloc(note_size(len)) : NULL;
	if (n) {
		n->next = NULL;
		n->level = level;
		memcpy(n->text, line, len + 1);
		*kept.end = n;
		kept.end = &n->next;
		kept.bytes += note_size(len);
	} else {
		kept.dropped++;
	}
	pthread_mutex_unlock(&kept.lock);
	watch_nudge();
}

void notes_begin(void)
{
	log_to(queue_note);
}

static void pop_note(struct msg_note *m)
{
	struct note *n = kept.first;

	m->level = (uint8_t)n->level;
	snprintf(m->text, sizeof m->text, "%s", n->text);
	kept.first = n->next;
	if (!kept.first)
		kept.end = &kept.first;
	kept.bytes -= note_size(strlen(n->text));
	free(n);
}

bool notes_take(struct msg_note *m)
{
	bool any;

	pthread_mutex_lock(&kept.lock);
	any = kept.first || kept.dropped;
	if (kept.first) {
		pop_note(m);
	} else if (kept.dropped) {
		m->level = LOG_WARN;
		snprintf(m->text, sizeof m->text,
			 "%u more lines were dropped because the connection to rdcp is too slow",
			 kept.dropped);
		kept.dropped = 0;
	}
	pthread_mutex_unlock(&kept.lock);
	return any;
}
