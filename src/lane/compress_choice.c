/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/compress_choice.h"

/* Of a probe, the blocks behind the window are timed: those in it find room in buffers. */
enum { PROBE_TIMED = 8 };
/* The time between two tries is so many times the processor time of one. */
enum { TRY_RARELY = 128 };
static const uint64_t patience_least_ns = 500000000, patience_most_ns = 30000000000;
/* Blocks that shrink less are not worth the time of the other end. */
static const double worth = 0.9;
/* A lane that waits for this share of its time waits for its wire. */
static const double waits = 0.05;

static void update_average(double *average, double value)
{
	*average += (value - *average) / 8;
}

void choice_begin(struct compress_choice *c, enum compress_mode mode)
{
	*c = (struct compress_choice){.mode = mode, .patience_ns = patience_least_ns};
}

static void turn_on(struct compress_choice *c, uint64_t now)
{
	c->state = CHOICE_ON;
	c->next_ns = now + c->patience_ns;
	c->cycle_on = 0;
	c->wait = 0;
}

static void turn_off(struct compress_choice *c, uint64_t now, uint64_t worked)
{
	if (c->state != CHOICE_OFF)
		c->wait = 0;
	c->state = CHOICE_OFF;
	c->patience_ns = patience_least_ns;
	c->next_ns = now + TRY_RARELY * worked;
}

/* The blocks of a probe have been sent. */
static void judge_probe(struct compress_choice *c, uint64_t now)
{
	if (c->cycle_probe < c->cycle_on) {
		/* Waits in this state decide whether to return. */
		turn_off(c, now, c->patience_ns / TRY_RARELY);
		return;
	}
	if (c->patience_ns < patience_most_ns)
		c->patience_ns *= 2;
	turn_on(c, now);
}

static bool continue_probe(struct compress_choice *c, uint64_t now, double cycle)
{
	if (c->probe_left < PROBE_TIMED)
		c->cycle_probe += cycle / PROBE_TIMED;
	if (c->probe_left-- > 0)
		return false;
	judge_probe(c, now);
	return c->state == CHOICE_ON;
}

bool choice_tries(struct compress_choice *c, uint64_t now, uint32_t len, uint64_t waited,
		  uint32_t window)
{
	double bytes = len ? len : 1, cycle = (double)(now - c->last_ns) / bytes;

	if (c->mode != COMPRESS_AUTO)
		return c->mode == COMPRESS_ALWAYS;
	if (c->last_ns == 0) {
		c->last_ns = now;
		turn_on(c, now);
		return true;
	}
	c->last_ns = now;
	update_average(&c->wait, (double)waited / bytes);
	if (c->state == CHOICE_PROBE)
		return continue_probe(c, now, cycle);
	if (c->state == CHOICE_OFF)
		return now >= c->next_ns;
	update_average(&c->cycle_on, cycle);
	if (now < c->next_ns)
		return true;
	if (c->wait >= waits * c->cycle_on) {
		c->next_ns = now + c->patience_ns;
		return true;
	}
	c->state = CHOICE_PROBE;
	c->probe_left = window + PROBE_TIMED;
	c->cycle_probe = 0;
	return false;
}

void choice_learns(struct compress_choice *c, uint64_t now, uint32_t len, uint32_t packed,
		   uint64_t spent, uint64_t worked)
{
	double ratio = packed ? (double)packed / len : 1;

	if (c->mode != COMPRESS_AUTO)
		return;
	if (ratio > worth)
		turn_off(c, now, worked);
	else if (c->state == CHOICE_OFF && (double)spent / len < c->wait * (1 - ratio))
		turn_on(c, now);
	else if (c->state == CHOICE_OFF)
		turn_off(c, now, worked);
}
