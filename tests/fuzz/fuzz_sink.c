/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A source's blocks against a sink, over two real lanes. With any records and extents, in any
 * order, the sink must not crash, hang, or leave anything behind.
 *
 * An input is a byte that selects where and how the sink stores, two bytes that END counts more
 * than was sent, and blocks: a byte (lane, kind, and for extents the file), u16 length, for extents
 * u32 position, and the bytes.
 */

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "copy_rig.h"
#include "base/cursor.h"
#include "base/log.h"
#include "copy/io/digest.h"
#include "protocol/message.h"

enum {
	TO_STREAM = 1 << 0,
	TO_FILE = 1 << 1,
	IN_PLACE = 1 << 2,
	SPARSE = 1 << 3,
	PRESERVE = 1 << 4,
	TREE = 1 << 5, /* with all metadata, and deletions */
	ASKS = 1 << 6,
	INCOMPLETE = 1 << 7,
	DEPTH = 16,
	WINDOW = 8, /* blocks that a source may have in flight within a host */
	STAY_MS = 2, /* until the peer hangs up */
	INPUT_MAX = 64 << 10,
};
enum { ON_LANE_1 = 1 << 0, EXTENT = 1 << 1, FILE_SHIFT = 2 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In memory, where a sparse file of any size costs nothing. */
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

/* Replaces the C library's function: a device of any number could harm this machine. */
int mknodat(int at, const char *name, mode_t mode, dev_t dev)
{
	(void)dev;
	if (S_ISFIFO(mode))
		return mkfifoat(at, name, mode & 07777);
	errno = EPERM;
	return -1;
}

static int clear(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	if (type == FTW_DNR &&
	    (chmod(path, 0700) < 0 || nftw(path, clear, 8, FTW_DEPTH | FTW_PHYS)))
		abort();
	if (at->level > 0 && remove(path) < 0)
		abort();
	return 0;
}

/* Removes what the sink stored. The sink itself keeps temporaries of a lost session. */
static void clear_target(void)
{
	if (nftw(dir, clear, 8, FTW_DEPTH | FTW_PHYS) != 0 || chmod(dir, 0700) < 0)
		abort();
}

/* Makes entries that may be in the way, or be deleted. */
static void make_old(void)
{
	int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

	if (at < 0 || mkdirat(at, "d", 0700) < 0 || mkdirat(at, "d/e", 0700) < 0 ||
	    symlinkat("/", at, "d/l") < 0)
		abort();
	fd = openat(at, "d/a", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		abort();
	close(fd);
	close(at);
}

/* Opens all lanes, each by an empty block of records. */
static int open_lanes(struct rig_end *e)
{
	struct block *b;

	for (unsigned i = 0; i < 2; i++)
		if (lane_get(session_lane(e->session, i), &b) < 0 ||
		    lane_send(session_lane(e->session, i), b) < 0)
			return -1;
	return 0;
}

/* The totals that an honest source would send. */
struct counted {
	struct msg_total total;
	uint8_t types[256]; /* of files, by id */
	bool dirs[256];
};

static void count_end(struct counted *c, const struct record_file_end *r)
{
	if (r->code != OUT_DONE) {
		c->total.failed++;
	} else if (c->types[r->id % 256] == TYPE_REGULAR) {
		c->total.files++;
		c->total.bytes += r->size;
		sum_add(c->total.digest, r->digest);
	} else {
		c->total.others++;
	}
}

static void count_records(struct counted *c, const uint8_t *bytes, size_t len)
{
	struct reader in = reader_of(bytes, len);
	static struct record r;

	while (record_next(&in, &r) > 0) {
		if (r.type == RECORD_FILE)
			c->types[r.file.id % 256] = r.file.type;
		if (r.type == RECORD_FILE_END)
			count_end(c, &r.end);
		if (r.type == RECORD_DIR) {
			c->total.others += !c->dirs[r.dir.id % 256];
			c->dirs[r.dir.id % 256] = true;
		}
	}
}

/* Sends the next block of the input. Returns false at the end, or if the window is full. */
static bool play_block(struct rig_end *e, struct reader *in, unsigned played[static 2],
		       struct counted *counted)
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
	/* Do not wait for a credit, which may depend on a later block. */
	if (++played[lane] > WINDOW || lane_get(session_lane(e->session, lane), &b) < 0)
		return false;
	memcpy(b->data, bytes, len);
	if (!(what & EXTENT))
		count_records(counted, bytes, len);
	b->len = len;
	b->kind = what & EXTENT ? BLOCK_EXTENT : BLOCK_RECORDS;
	b->file = what & EXTENT ? what >> FILE_SHIFT : 0;
	b->pos = pos;
	return lane_send(session_lane(e->session, lane), b) == 0;
}

struct tale {
	struct reader in;
	bool incomplete;
};

static int play(struct rig_end *e, void *ctx)
{
	const struct tale *t = ctx;
	struct reader in = t->in;
	unsigned played[2] = {1, 1};
	struct counted counted = {0};
	uint8_t done = take_u8(&in), other = take_u8(&in);
	uint8_t body[128];
	struct writer w = writer_of(body, sizeof body);

	if (open_lanes(e) < 0)
		return -1;
	while (in.left > 0 && play_block(e, &in, played, &counted))
		continue;
	poll(NULL, 0, STAY_MS);
	counted.total.files += done & 15;
	counted.total.failed += done >> 4;
	counted.total.others += other & 15;
	counted.total.same += other >> 4;
	counted.total.incomplete = t->incomplete;
	msg_total_encode(&w, &counted.total);
	session_send(e->session, MSG_END, body, w.used);
	poll(NULL, 0, STAY_MS);
	return 0;
}

static struct rules rules_of(uint8_t where)
{
	struct rules rules = RULES_PLAIN;
	bool tree = where & TREE, keep = where & PRESERVE;

	rules.recursive = rules.devices = rules.hard_links = tree;
	rules.acls = rules.xattrs = rules.delete = tree;
	rules.perms = rules.times = rules.atimes = rules.owner = rules.group = keep;
	rules.checksum = where & ASKS;
	return rules;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char want[] = "dir/*";
	char *wants[] = {want};
	uint8_t where = size ? data[0] : 0;
	struct rules rules = rules_of(where);
	struct tale tale = {.incomplete = where & INCOMPLETE};
	struct rig r;

	if (size < 3 || size > INPUT_MAX)
		return -1;
	tale.in = reader_of(data + 1, size - 1);
	rig_init(&r);
	rig_names(&r, wants, 1, where & TO_FILE ? file : dir);
	r.depth = DEPTH;
	r.source.play = play;
	r.source.ctx = &tale;
	rules.inplace = where & IN_PLACE;
	rules.sparse = where & SPARSE;
	r.to.rules = &rules;
	if (where & TO_STREAM)
		r.to.stream = (struct stream){.fd = null_fd, .name = "null"};
	if (where & TREE)
		make_old();
	rig_run(&r);
	clear_target();
	return 0;
}
