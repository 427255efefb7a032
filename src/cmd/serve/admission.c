/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/admission.h"

#include <string.h>
#include "base/clock.h"

static unsigned count_from(const struct admission *a, const uint8_t from[static 16])
{
	unsigned n = 0;

	for (unsigned i = 0; i < a->count; i++)
		n += memcmp(a->list[i].from, from, sizeof a->list[i].from) == 0;
	return n;
}

int admission_choose(const struct admission *a, const struct strangers *s)
{
	unsigned least = ADMISSIONS_MAX + 1;
	int chosen = -1;

	for (unsigned i = s->count; i-- > 0 && least > 0;) {
		unsigned n;

		if (!s->list[i].waits)
			continue;
		n = count_from(a, s->list[i].from);
		if (n < least) {
			least = n;
			chosen = (int)i;
		}
	}
	return chosen;
}

bool admission_is_full(const struct admission *a)
{
	return a->count == ADMISSIONS_MAX;
}

void admission_add(struct admission *a, pid_t pid, const struct stranger *s)
{
	unsigned i = a->count++;

	a->list[i].pid = pid;
	a->list[i].since = clock_ms();
	memcpy(a->list[i].from, s->from, sizeof a->list[i].from);
}

void admission_remove(struct admission *a, pid_t pid)
{
	for (unsigned i = 0; i < a->count; i++) {
		if (a->list[i].pid != pid)
			continue;
		a->count--;
		memmove(&a->list[i], &a->list[i + 1], (a->count - i) * sizeof a->list[i]);
		return;
	}
}

pid_t admission_victim(const struct admission *a)
{
	uint64_t now = clock_ms();
	unsigned most = 0;
	pid_t pid = 0;

	if (!admission_is_full(a))
		return 0;
	for (unsigned i = 0; i < a->count && a->list[i].since + ADMISSION_MS <= now; i++) {
		unsigned n = count_from(a, a->list[i].from);

		if (n > most) {
			most = n;
			pid = a->list[i].pid;
		}
	}
	return pid;
}

uint64_t admission_due(const struct admission *a)
{
	return admission_is_full(a) ? a->list[0].since + ADMISSION_MS : 0;
}
