/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Measures encryption alone, as lanes do it: blocks of 256 KiB are sealed, and opened again, on one
 * thread or several. Prints two rates in GB/s, each the sum over the threads: of sealing, then of
 * opening. By default they are rates of elapsed time; with --cpu of processor time, which other
 * programs disturb less.
 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/fail.h"
#include "lane/hello.h"
#include "lane/seal.h"

enum { BLOCK = 256 << 10, BLOCKS = 4, PAGE = 4096, THREADS_MAX = 64 };

static clockid_t watch = CLOCK_MONOTONIC;
static double run_s = 3;

struct worker_of_blocks {
	pthread_t thread;
	uint8_t *memory;
	struct block blocks[BLOCKS];
	double seal_s, open_s, bytes;
};

static const struct lane_key key = {.secret = "seal_bench"};

static _Noreturn void leave(const char *what)
{
	fprintf(stderr, "seal_bench: %s: %s\n", what, failed()->text);
	exit(1);
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct cipher *open_cipher(void)
{
	struct cipher *c;

	if (cipher_open(cipher_choose(cipher_known(), cipher_known()), &key, 0, CIPHER_REKEY, &c) ||
	    cipher_begin(c, 0))
		leave("prepare a cipher");
	return c;
}

static void prepare_blocks(struct worker_of_blocks *w)
{
	if (posix_memalign((void **)&w->memory, PAGE, BLOCKS * (PAGE + BLOCK)))
		exit(1);
	for (unsigned i = 0; i < BLOCKS; i++) {
		w->blocks[i] = (struct block){
			.data = w->memory + i * (PAGE + BLOCK) + PAGE,
			.len = BLOCK,
			.kind = BLOCK_EXTENT,
			.file = 1,
			.pos = (uint64_t)i * BLOCK,
		};
		memset(w->blocks[i].data, (int)i, BLOCK);
	}
}

static void seal_all(struct worker_of_blocks *w, struct cipher *c, uint64_t number)
{
	double start = now(watch);

	for (unsigned i = 0; i < BLOCKS; i++) {
		w->blocks[i].number = number + i;
		w->blocks[i].encrypted = false;
		if (seal_encrypt(&w->blocks[i], c, 0, 0, NULL))
			leave("seal a block");
	}
	w->seal_s += now(watch) - start;
}

/* Without the digest that a sink makes of what it opened. */
static void open_all(struct worker_of_blocks *w, struct cipher *c, uint64_t number)
{
	double start = now(watch);

	for (unsigned i = 0; i < BLOCKS; i++) {
		struct unseal_terms t = {
			.cipher = c, .number = number + i, .room = BLOCK, .unchecked = true};
		struct block *b = &w->blocks[i];
		uint64_t ns = 0;

		if (block_unseal(&b, NULL, &t, &ns) != UNSEAL_WHOLE)
			leave("open a block");
	}
	w->open_s += now(watch) - start;
}

static void *run_worker(void *arg)
{
	struct worker_of_blocks *w = arg;
	struct cipher *source = open_cipher(), *sink = open_cipher();
	double end = now(CLOCK_MONOTONIC) + run_s;

	prepare_blocks(w);
	for (uint64_t number = 0; now(CLOCK_MONOTONIC) < end; number += BLOCKS) {
		seal_all(w, source, number);
		open_all(w, sink, number);
		w->bytes += (double)BLOCKS * BLOCK;
	}
	cipher_close(source);
	cipher_close(sink);
	free(w->memory);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct worker_of_blocks workers[THREADS_MAX];
	unsigned threads = 1;
	double seal = 0, opened = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--cpu") == 0)
			watch = CLOCK_THREAD_CPUTIME_ID;
		else if (i + 1 < argc && strcmp(argv[i], "--threads") == 0)
			threads = (unsigned)atoi(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
			run_s = atof(argv[++i]);
		else
			threads = 0;
	}
	if (threads < 1 || threads > THREADS_MAX) {
		fputs("usage: seal_bench [--threads N] [--seconds S] [--cpu]\n", stderr);
		return 1;
	}
	for (unsigned i = 0; i < threads; i++)
		if ((errno = pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]))) {
			perror("seal_bench: start a thread");
			return 1;
		}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		seal += workers[i].bytes / workers[i].seal_s / 1e9;
		opened += workers[i].bytes / workers[i].open_s / 1e9;
	}
	printf("%.3f %.3f\n", seal, opened);
	return 0;
}
