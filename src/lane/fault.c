/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/fault.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAULTS_MAX = 16 };
enum fault_kind {
	FAULT_DAMAGE = 1,
	FAULT_BREAK,
	FAULT_STALL,
	FAULT_NOREJOIN,
	FAULT_BOUND,
	FAULT_TAKE,
	FAULT_REKEY
};

struct fault {
	enum fault_kind kind;
	unsigned long long lane, block, times, every, ms, by;
	unsigned long long done; /* times that the fault has occurred */
	struct block *flipped; /* the block whose data is damaged now; number: its number */
	uint64_t number;
};

static struct fault faults[FAULTS_MAX];
static unsigned count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Lanes of the same index may run in one process at a time, in tests. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noreturn)) static void abort_bad_spec(const char *spec)
{
	fprintf(stderr, "SLUICE_FAULT: invalid fault '%s'\n", spec);
	abort();
}

static void read_field(struct fault *f, const char *field, const char *spec)
{
	char name[8];
	unsigned long long value;
	int end = 0;

	if (sscanf(field, "%7[a-z]=%llu%n", name, &value, &end) != 2 || field[end] != '\0')
		abort_bad_spec(spec);
	if (strcmp(name, "lane") == 0)
		f->lane = value;
	else if (strcmp(name, "block") == 0)
		f->block = value;
	else if (strcmp(name, "times") == 0)
		f->times = value;
	else if (strcmp(name, "every") == 0 && value > 0)
		f->every = value;
	else if (strcmp(name, "ms") == 0)
		f->ms = value;
	else if (strcmp(name, "by") == 0 && value > 0)
		f->by = value;
	else
		abort_bad_spec(spec);
}

static void read_fault(char *text, const char *spec)
{
	struct fault *f = &faults[count];
	char *rest, *kind = strtok_r(text, ":", &rest);

	if (count == FAULTS_MAX || !kind)
		abort_bad_spec(spec);
	*f = (struct fault){.times = 1, .by = 1};
	if (strcmp(kind, "damage") == 0)
		f->kind = FAULT_DAMAGE;
	else if (strcmp(kind, "break") == 0)
		f->kind = FAULT_BREAK;
	else if (strcmp(kind, "stall") == 0)
		f->kind = FAULT_STALL;
	else if (strcmp(kind, "norejoin") == 0)
		f->kind = FAULT_NOREJOIN;
	else if (strcmp(kind, "bound") == 0)
		f->kind = FAULT_BOUND;
	else if (strcmp(kind, "take") == 0)
		f->kind = FAULT_TAKE;
	else if (strcmp(kind, "rekey") == 0)
		f->kind = FAULT_REKEY;
	else
		abort_bad_spec(spec);
	for (char *field; (field = strtok_r(NULL, ",", &rest));)
		read_field(f, field, spec);
	count++;
}

static void read_faults(void)
{
	const char *spec = getenv("SLUICE_FAULT");
	char *text, *rest;

	if (!spec || !(text = strdup(spec)))
		return;
	for (char *f = strtok_r(text, ";", &rest); f; f = strtok_r(NULL, ";", &rest)) {
		char one[128];

		snprintf(one, sizeof one, "%s", f);
		read_fault(one, spec);
	}
	free(text);
}

static bool is_fault_due(const struct fault *f, enum fault_kind kind, unsigned lane,
			 const struct block *b)
{
	return f->kind == kind && f->lane == lane && f->block == b->number &&
	       (f->times == 0 || f->done < f->times);
}

/* Counts one more occurrence. With `every', the next one is at that many blocks further on. */
static void advance_fault(struct fault *f)
{
	f->done++;
	if (f->every == 0)
		return;
	f->block += f->every;
	if (f->times > 0)
		f->times++;
}

static void restore_block(struct fault *f, unsigned lane, struct block *b)
{
	if (f->flipped == b && f->number == b->number && f->lane == lane) {
		b->data[b->len / 2] ^= 1;
		f->flipped = NULL;
	}
}

static void damage_block(struct fault *f, unsigned lane, struct block *b)
{
	if (b->len == 0)
		return;
	restore_block(f, lane, b);
	if (is_fault_due(f, FAULT_DAMAGE, lane, b)) {
		b->data[b->len / 2] ^= 1;
		f->flipped = b;
		f->number = b->number;
		advance_fault(f);
	}
}

void fault_restore(unsigned lane, struct block *b)
{
	if (count == 0)
		return;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++)
		restore_block(&faults[i], lane, b);
	pthread_mutex_unlock(&lock);
}

void fault_before_send(unsigned lane, struct block *b)
{
	unsigned long long ms = 0;

	pthread_once(&once, read_faults);
	if (count == 0)
		return;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++) {
		if (faults[i].kind == FAULT_DAMAGE)
			damage_block(&faults[i], lane, b);
		if (is_fault_due(&faults[i], FAULT_STALL, lane, b)) {
			ms += faults[i].ms;
			advance_fault(&faults[i]);
		}
	}
	pthread_mutex_unlock(&lock);
	if (ms > 0)
		nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000),
					     .tv_nsec = (long)(ms % 1000) * 1000000},
			  NULL);
}

bool fault_after_send(unsigned lane, const struct block *b)
{
	bool broke = false;

	if (count == 0)
		return false;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++)
		if (is_fault_due(&faults[i], FAULT_BREAK, lane, b)) {
			advance_fault(&faults[i]);
			broke = true;
		}
	pthread_mutex_unlock(&lock);
	return broke;
}

bool fault_connect(unsigned lane)
{
	bool broke = false, ordered = false;

	pthread_once(&once, read_faults);
	if (count == 0)
		return false;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++) {
		ordered |= faults[i].kind == FAULT_NOREJOIN && faults[i].lane == lane;
		broke |= faults[i].kind == FAULT_BREAK && faults[i].lane == lane &&
			 faults[i].done > 0;
	}
	pthread_mutex_unlock(&lock);
	return ordered && broke;
}

bool fault_accept(unsigned lane)
{
	bool due = false;

	pthread_once(&once, read_faults);
	if (count == 0)
		return false;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++) {
		struct fault *f = &faults[i];

		if (f->kind == FAULT_TAKE && f->lane == lane &&
		    (f->times == 0 || f->done < f->times)) {
			f->done++;
			due = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return due;
}

uint64_t fault_rekey(uint64_t bytes)
{
	pthread_once(&once, read_faults);
	for (unsigned i = 0; i < count; i++) {
		if (faults[i].kind == FAULT_REKEY)
			bytes = faults[i].by;
	}
	return bytes;
}

size_t fault_bound(size_t bytes)
{
	pthread_once(&once, read_faults);
	for (unsigned i = 0; i < count; i++) {
		if (faults[i].kind == FAULT_BOUND)
			bytes /= faults[i].by;
	}
	return bytes;
}
