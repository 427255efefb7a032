/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/notes.h"

#include <pthread.h>
#include <stdio.h>
#include "base/log.h"
#include "cmd/watch.h"

enum { NOTES_MAX = 128 };

static struct {
	pthread_mutex_t lock;
	unsigned first, count, dropped;
	struct msg_note notes[NOTES_MAX];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(enum log_level level, const char *line)
{
	pthread_mutex_lock(&kept.lock);
	if (kept.count < NOTES_MAX) {
		struct msg_note *m = &kept.notes[(kept.first + kept.count++) % NOTES_MAX];

		m->level = (uint8_t)level;
		snprintf(m->text, sizeof m->text, "%s", line);
	} else {
		kept.dropped++;
	}
	pthread_mutex_unlock(&kept.lock);
	watch_nudge();
}

void notes_begin(void)
{
	log_to(keep);
}

bool notes_take(struct msg_note *m)
{
	bool any;

	pthread_mutex_lock(&kept.lock);
	any = kept.count || kept.dropped;
	if (kept.count) {
		*m = kept.notes[kept.first];
		kept.first = (kept.first + 1) % NOTES_MAX;
		kept.count--;
	} else if (kept.dropped) {
		m->level = LOG_WARN;
		snprintf(m->text, sizeof m->text, "%u lines more were too many to be shown",
			 kept.dropped);
		kept.dropped = 0;
	}
	pthread_mutex_unlock(&kept.lock);
	return any;
}
