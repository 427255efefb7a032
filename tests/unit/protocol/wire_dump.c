/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the bytes of samples.h, one a line: a name, least, usual or most, and hexadecimal
 * digits.  tests/hostile/test_wire.py compares them with what wire.py makes.
 *
 *	wire_dump          all samples
 *	wire_dump DIR      write each as a seed for the fuzz targets into DIR/fuzz_message and
 *	                   all of them, as one stream of frames, into DIR/fuzz_control
 */
#include <stdio.h>
#include <stdlib.h>
#include "lane/head.h"
#include "samples.h"

static const char *const sizes[] = {"least", "usual", "most"};

static void print(const char *name, enum sample_size size, const uint8_t *bytes, size_t len)
{
	printf("%s %s ", name, sizes[size]);
	for (size_t i = 0; i < len; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

/* ---- what lanes say --------------------------------------------------------------------- */

static void print_head(enum sample_size size)
{
	uint8_t bytes[LANE_HEAD];
	struct head h = {
		.kind = OF(BLOCK_RECORDS, BLOCK_EXTENT, BLOCK_EXTENT),
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.number = OF(0, 0x1112131415161718, UINT64_MAX),
		.len = OF(0, 0x00010203, LANE_BLOCK_MAX),
		.file = OF(0, 0x21222324, UINT32_MAX),
		.pos = OF(0, 0x3132333435363738, INT64_MAX - LANE_BLOCK_MAX),
		.hash = {OF(0, 0x4142434445464748, UINT64_MAX),
			 OF(0, 0x5152535455565758, UINT64_MAX)},
	};

	head_encode(&h, bytes);
	print("block_head", size, bytes, sizeof bytes);
}

static void print_credit(enum sample_size size)
{
	uint8_t bytes[CREDIT_SIZE];
	struct credit c = {
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.stored = OF(0, 0x1112131415161718, UINT64_MAX),
	};

	credit_encode(&c, bytes);
	print("credit", size, bytes, sizeof bytes);
}

static void print_notice(enum sample_size size)
{
	uint8_t bytes[NOTICE_SIZE];
	struct notice n = {
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.slot = OF(0, 3, LANE_DEPTH_MAX - 1),
		.len = LANE_HEAD + OF(0, 0x00010203, LANE_BLOCK_MAX),
	};

	notice_encode(&n, bytes);
	print("notice", size, bytes, sizeof bytes);
}

static struct lane_key sample_key(enum sample_size size)
{
	struct lane_key key;

	sample_bytes(size, key.secret, sizeof key.secret);
	sample_bytes(size, key.nonces[0], sizeof key.nonces[0]);
	for (unsigned i = 0; i < sizeof key.nonces[1]; i++)
		key.nonces[1][i] = (uint8_t)OF(0, 100 + i, 255);
	key.session = OF(0, 0x0102030405060708, UINT64_MAX);
	return key;
}

static void print_lane_hello(enum sample_size size)
{
	uint8_t bytes[LANE_HELLO_SIZE];
	struct lane_key key = sample_key(size);
	struct lane_hello h = {
		.from = OF(LANE_SOURCE, LANE_SINK, LANE_SINK),
		.accepting = OF(0, 1, 1),
		.session = key.session,
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.block_size = OF(LANE_BLOCK_MIN, 256 << 10, LANE_BLOCK_MAX),
		.depth = OF(1, 12, LANE_DEPTH_MAX),
		.ring = {OF(0, 0x6162636465666000, UINT64_MAX - LANE_PAGE + 1),
			 OF(0, 0x71727374, UINT32_MAX)},
	};

	lane_hello_sign(&h, &key);
	lane_hello_encode(&h, bytes);
	print("lane_hello", size, bytes, sizeof bytes);
}

static void print_lane_private(enum sample_size size)
{
	uint8_t bytes[LANE_PRIVATE_SIZE];
	struct lane_key key = sample_key(size);
	struct lane_private p = {
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.depth = OF(1, 12, LANE_DEPTH_MAX),
		.block_size = OF(LANE_BLOCK_MIN, 256 << 10, LANE_BLOCK_MAX),
	};

	lane_token(&key, p.lane, p.epoch, p.token);
	lane_private_encode(&p, bytes);
	print("lane_private", size, bytes, sizeof bytes);
}

/* ---- messages ------------------------------------------------------------------------------ */

static uint8_t body[FRAME_BODY_MAX];

static size_t make(const struct sample *s, enum sample_size size)
{
	struct writer w = writer_of(body, sizeof body);

	s->encode(size, &w);
	if (w.full)
		abort();
	return w.used;
}

static void print_sample(const struct sample *s, enum sample_size size)
{
	size_t len = make(s, size);

	print(s->type ? message_name(s->type) : "RECORDS", size, body, len);
}

static FILE *seed(const char *dir, const char *target, const char *name, const char *size)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s/%s-%s", dir, target, name, size);
	f = fopen(path, "we");
	if (!f) {
		perror(path);
		exit(1);
	}
	return f;
}

static void write_message_seed(const char *dir, const struct sample *s, enum sample_size size)
{
	const char *name = s->type ? message_name(s->type) : "RECORDS";
	FILE *f = seed(dir, "fuzz_message", name, sizes[size]);

	fputc(s->type, f);
	fwrite(body, 1, make(s, size), f);
	fclose(f);
}

static void write_seeds(const char *dir, enum sample_size size)
{
	FILE *f = seed(dir, "fuzz_control", "all", sizes[size]);

	fputc(6, f);
	for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
		uint8_t head[FRAME_HEAD];
		size_t len;

		write_message_seed(dir, &samples[i], size);
		if (samples[i].type == 0)
			continue;
		len = make(&samples[i], size);
		frame_head_encode(samples[i].type, (uint32_t)len, head);
		fwrite(head, 1, sizeof head, f);
		fwrite(body, 1, len, f);
	}
	fclose(f);
}

int main(int argc, char **argv)
{
	for (int size = 0; size < SAMPLE_SIZES; size++) {
		if (argc > 1) {
			write_seeds(argv[1], size);
			continue;
		}
		for (unsigned i = 0; i < SAMPLE_COUNT; i++)
			print_sample(&samples[i], size);
		print_head(size);
		print_credit(size);
		print_notice(size);
		print_lane_hello(size);
		print_lane_private(size);
	}
	return 0;
}
