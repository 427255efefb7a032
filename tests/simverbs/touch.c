/* SPDX-License-Identifier: Apache-2.0 */
#include "touch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "misuse.h"
#include "segment.h"

enum { PAGE = 4096 };

bool touch_is_watched(void)
{
	return getenv("SIMVERBS_TOUCH") != NULL;
}

uint64_t touch_mix(uint64_t sum, const uint8_t *at, uint32_t bytes)
{
	for (; bytes > 0;) {
		uint32_t n = bytes < sizeof sum ? bytes : sizeof sum;
		uint64_t word = 0;

		memcpy(&word, at, n);
		sum = (sum ^ word) * 0x9e3779b97f4a7c15;
		sum ^= sum >> 32;
		at += n;
		bytes -= n;
	}
	return sum;
}

/* ---- pages ------------------------------------------------------------------------------ */

/* The whole pages of a range, from *first on. Returns their bytes, which may be 0. */
static uint32_t find_pages(const struct area_sge *s, uint64_t *first)
{
	uint64_t end = (s->addr + s->length) & ~(uint64_t)(PAGE - 1);

	*first = (s->addr + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	return *first < end ? (uint32_t)(end - *first) : 0;
}

static void protect_pages(const struct area_receive *r, int access)
{
	for (uint32_t i = 0; i < r->sges; i++) {
		uint64_t first;
		uint32_t bytes = find_pages(&r->sge[i], &first);

		if (bytes && mprotect((void *)(uintptr_t)first, bytes, access))
			misuse("mprotect %u bytes of a receive: %s", bytes, strerror(errno));
	}
}

/* ---- faults ----------------------------------------------------------------------------- */

static struct sigaction others; /* who handled it before */

static void report_fault(int signo, siginfo_t *info, void *context)
{
	if (segment_has(info->si_addr))
		misuse("the memory of a posted receive was touched at %p before its completion",
		       info->si_addr);
	if (others.sa_flags & SA_SIGINFO && others.sa_sigaction) {
		others.sa_sigaction(signo, info, context);
		return;
	}
	/* The instruction faults again. */
	signal(signo, SIG_DFL);
}

/* Again if somebody else has taken the signal. */
static void install_handler(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct sigaction ours = {.sa_sigaction = report_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
	struct sigaction now;

	pthread_mutex_lock(&lock);
	if (!sigaction(SIGSEGV, NULL, &now) && now.sa_sigaction != report_fault) {
		others = now;
		sigaction(SIGSEGV, &ours, NULL);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- receives --------------------------------------------------------------------------- */

uint64_t touch_sum(const struct area_receive *r, const uint8_t *const at[AREA_SGES])
{
	uint64_t sum = 1;

	if (!r->watched)
		return 0;
	for (uint32_t i = 0; i < r->sges; i++) {
		const struct area_sge *s = &r->sge[i];
		uint64_t first;
		uint32_t pages = find_pages(s, &first);
		uint32_t before = pages ? (uint32_t)(first - s->addr) : s->length;

		if (!s->length)
			continue;
		sum = touch_mix(sum, at[i], before);
		if (pages)
			sum = touch_mix(sum, at[i] + before + pages, s->length - before - pages);
	}
	return sum ? sum : 1;
}

static uint64_t sum_own(const struct area_receive *r)
{
	const uint8_t *at[AREA_SGES];

	for (uint32_t i = 0; i < r->sges; i++)
		at[i] = (const uint8_t *)(uintptr_t)r->sge[i].addr;
	return touch_sum(r, at);
}

void touch_post(struct area_receive *r)
{
	r->watched = touch_is_watched();
	r->found = r->left = 0;
	if (!r->watched)
		return;
	install_handler();
	r->posted = sum_own(r);
	protect_pages(r, PROT_NONE);
}

void touch_return(const struct area_receive *r)
{
	if (r->watched)
		protect_pages(r, PROT_READ | PROT_WRITE);
}

void touch_take(const struct area_receive *r, uint32_t number)
{
	bool cut_off;

	touch_return(r);
	if (!r->watched)
		return;
	/* A sender that was killed while it wrote has found what it left a part of. */
	cut_off = r->found && !r->left;
	if ((r->found && r->found != r->posted) ||
	    (!cut_off && sum_own(r) != (r->left ? r->left : r->posted)))
		misuse("queue pair %#x: the memory of a posted receive was written to before its "
		       "completion",
		       number);
}
