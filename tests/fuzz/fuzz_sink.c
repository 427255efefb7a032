/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A source's blocks against a sink, over real lanes: whatever records and extents they hold, in
 * whatever order on two lanes, the sink may not crash, hang, or leave anything behind.
 *
 * An input is a byte that says where the sink stores, one that says what END counts, and blocks:
 * a byte (lane, kind, and for extents the file), u16 length, for extents u32 position, and the
 * bytes.
 */

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cursor.h"
#include "base/log.h"
#include "session/message.h"
#include "../unit/copy_rig.h"

enum {
	TO_STREAM = 1 << 0,
	TO_FILE = 1 << 1,
	IN_PLACE = 1 << 2,
	SPARSE = 1 << 3,
	PRESERVE = 1 << 4,
	DEPTH = 16,
	STAY_MS = 2, /* that the peer does after its last word */
	INPUT_MAX = 64 << 10,
};
enum { ON_LANE_1 = 1 << 0, EXTENT = 1 << 1, FILE_SHIFT = 2 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In memory, where a file of any size costs nothing. */
static char dir[] = "/dev/shm/fuzz-sink-XXXXXX";
static char file[sizeof dir + 2];
static int null_fd;

static void remove_dir(void)
{
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	log_setup("fuzz", LOG_ERROR);
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (null_fd < 0 || !mkdtemp(dir) || atexit(remove_dir) != 0)
		abort();
	snprintf(file, sizeof file, "%s/f", dir);
	return 0;
}

/* Remove what the sink stored; a temporary of a session that was lost is kept by it. */
static void clear_target(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		abort();
	while ((e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    unlinkat(dirfd(d), e->d_name, 0) < 0)
			abort();
	closedir(d);
}

/* The first lane finds the way for all: a block of no records opens each. */
static int open_lanes(struct rig_end *e)
{
	struct block *b;

	for (unsigned i = 0; i < 2; i++)
		if (lane_get(session_lane(e->session, i), &b) < 0 ||
		    lane_send(session_lane(e->session, i), b) < 0)
			return -1;
	return 0;
}

/* The next block of the input, on its lane; false when there is none, or no room for it. */
static bool play_block(struct rig_end *e, struct reader *in, unsigned played[static 2])
{
	uint8_t what = take_u8(in);
	uint16_t len = take_u16(in);
	uint32_t pos = what & EXTENT ? take_u32(in) : 0;
	unsigned lane = what & ON_LANE_1;
	const uint8_t *bytes;
	struct block *b;

	if (in->bad)
		return false;
	if (len > in->left)
		len = (uint16_t)in->left;
	bytes = take_view(in, len);
	/* Nobody waits for a credit, which may need what comes next. */
	if (++played[lane] >= DEPTH || lane_get(session_lane(e->session, lane), &b) < 0)
		return false;
	memcpy(b->data, bytes, len);
	b->len = len;
	b->kind = what & EXTENT ? BLOCK_EXTENT : BLOCK_RECORDS;
	b->file = what & EXTENT ? what >> FILE_SHIFT : 0;
	b->pos = pos;
	return lane_send(session_lane(e->session, lane), b) == 0;
}

static int play(struct rig_end *e, void *ctx)
{
	struct reader in = *(struct reader *)ctx;
	unsigned played[2] = {1, 1};
	struct msg_total total = {.files = take_u8(&in)};
	uint8_t body[64];
	struct writer w = writer_of(body, sizeof body);

	total.failed = total.files >> 4;
	total.files &= 15;
	if (open_lanes(e) < 0)
		return -1;
	while (in.left > 0 && play_block(e, &in, played))
		continue;
	poll(NULL, 0, STAY_MS);
	msg_total_encode(&w, &total);
	session_send(e->session, MSG_END, body, w.used);
	poll(NULL, 0, STAY_MS);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char want[] = "dir/*";
	char *wants[] = {want};
	uint8_t where = size ? data[0] : 0;
	struct reader in = reader_of(data + 1, size - 1);
	struct rig r;

	if (size < 2 || size > INPUT_MAX)
		return -1;
	rig_init(&r);
	rig_names(&r, wants, 1, where & TO_FILE ? file : dir);
	r.depth = DEPTH;
	r.source.play = play;
	r.source.ctx = &in;
	r.to.inplace = where & IN_PLACE;
	r.to.sparse = where & SPARSE;
	r.to.preserve = where & PRESERVE;
	if (where & TO_STREAM)
		r.to.stream = (struct stream){.fd = null_fd, .name = "null"};
	rig_run(&r);
	clear_target();
	return 0;
}
