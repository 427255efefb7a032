/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SAMPLES_H
#define TESTS_SAMPLES_H

/*
 * One message of each type in three sizes: the smallest valid values, values that show the position
 * of each byte, and the largest. tests/hostile/test_wire.py has the same values; wire_dump.c prints
 * these.
 */

#include <string.h>
#include "lane/head.h"
#include "protocol/message.h"

enum sample_size { SAMPLE_LEAST, SAMPLE_USUAL, SAMPLE_MOST, SAMPLE_SIZES };

/* The one of three values for this size. */
#define OF(least, usual, most)                                                                     \
	(size == SAMPLE_LEAST ? (least) : size == SAMPLE_USUAL ? (usual) : (most))

static inline void sample_text(enum sample_size size, const char *usual, char *to, size_t room)
{
	memset(to, 0, room);
	if (size == SAMPLE_USUAL)
		memcpy(to, usual, strlen(usual));
	if (size == SAMPLE_MOST) {
		for (size_t i = 0; i < room - 1; i++)
			to[i] = (char)(i % 255 + 1);
	}
}
#define TEXT(usual, field) sample_text(size, usual, (field), sizeof(field))

/* 1, 2, 3 ... or 255s. */
static inline void sample_bytes(enum sample_size size, uint8_t *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (uint8_t)OF(0, i + 1, 255);
}

static inline void sample_hello(enum sample_size size, struct writer *w)
{
	struct msg_hello m = {
		.version = PROTOCOL_VERSION,
		.role = OF(ROLE_SOURCE, ROLE_SINK, ROLE_SINK),
		.want = OF(TRANSPORT_AUTO, TRANSPORT_TCP, TRANSPORT_SSH),
		.features = OF(0, 0x0102030405060708, UINT64_MAX),
		.lanes = OF(1, 2, LANE_COUNT_MAX),
		.depth = OF(1, 12, LANE_DEPTH_MAX),
		.block_size = OF(LANE_BLOCK_MIN, 256 << 10, LANE_BLOCK_MAX),
		.memory = OF(0, 0x1112131415161718, UINT64_MAX),
		.lockable = OF(0, 8 << 20, UINT64_MAX),
		.timeout_ms = OF(0, 15000, INT32_MAX),
		.host_id = OF(0, 0x2122232425262728, UINT64_MAX),
		.rdma_op = OF(RDMA_OP_AUTO, RDMA_OP_WRITE_IMM, RDMA_OP_WRITE_SEND),
		.rails = OF(0, 2, UINT16_MAX),
		.encrypt = OF(ENCRYPT_AUTO, ENCRYPT_ON, ENCRYPT_OFF),
		.ciphers = OF(0, 0x31323334, UINT32_MAX),
	};
	sample_bytes(size, m.nonce, sizeof m.nonce);
	TEXT("storage2", m.host);
	TEXT("no active port", m.no_rdma);
	msg_hello_encode(w, &m);
}

static inline void sample_offer(enum sample_size size, struct writer *w)
{
	struct msg_offer m = {
		.round = OF(0, 1, 1),
		.session = OF(1, 0x0102030405060708, UINT64_MAX),
		.count = OF(0, 2, 2 * OFFER_MAX),
	};

	for (unsigned i = 0; i < m.count; i++) {
		struct offer_place *p = &m.places[i];

		p->transport = i % 2 ? TRANSPORT_TCP : TRANSPORT_RDMA;
		p->family = i % 2 ? 6 : 4;
		p->port = (uint16_t)(size == SAMPLE_MOST ? UINT16_MAX : 7000 + i);
		for (unsigned b = 0; b < (p->family == 4 ? 4 : 16); b++)
			p->addr[b] = (uint8_t)(16 * i + b + 1);
		p->rate = size == SAMPLE_MOST ? UINT32_MAX : 100000 * (i + 1);
		p->adapter = (uint8_t)(size == SAMPLE_MOST ? UINT8_MAX : i);
	}
	TEXT("rdma off", m.no_rdma);
	msg_offer_encode(w, &m);
}

static inline void sample_choice(enum sample_size size, struct writer *w)
{
	struct msg_choice m = {.transport = OF(TRANSPORT_RDMA, TRANSPORT_TCP, TRANSPORT_SSH)};

	TEXT("no route", m.why);
	msg_choice_encode(w, &m);
}

static inline void sample_noroute(enum sample_size size, struct writer *w)
{
	struct msg_noroute m = {.round = OF(0, 1, 1)};

	TEXT("refused", m.why);
	msg_noroute_encode(w, &m);
}

static inline void sample_lane_down(enum sample_size size, struct writer *w)
{
	struct msg_lane_down m = {
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
	};

	TEXT("reset", m.why);
	msg_lane_down_encode(w, &m);
}

static inline void sample_lane_stored(enum sample_size size, struct writer *w)
{
	struct msg_lane_stored m = {
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.stored = OF(0, 0x1112131415161718, UINT64_MAX),
		.damaged = OF(false, true, true),
	};

	msg_lane_stored_encode(w, &m);
}

static inline void sample_lane_check(enum sample_size size, struct writer *w)
{
	struct msg_lane_check m = {
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.mtu = OF(0, 0x11121314, UINT32_MAX),
	};

	msg_lane_check_encode(w, &m);
}

static inline void sample_lane_held(enum sample_size size, struct writer *w)
{
	struct msg_lane_held m = {
		.lane = OF(0, 3, LANE_COUNT_MAX - 1),
		.epoch = OF(0, 0x01020304, UINT32_MAX),
		.mtu = OF(0, 0x11121314, UINT32_MAX),
		.busy = OF(false, true, true),
	};

	msg_lane_held_encode(w, &m);
}

static inline void sample_ping(enum sample_size size, struct writer *w)
{
	struct msg_ping m = {.cookie = OF(0, 0x1112131415161718, UINT64_MAX)};

	msg_ping_encode(w, &m);
}

static inline void sample_file_result(enum sample_size size, struct writer *w)
{
	struct msg_file_result m = {
		.file = OF(0, 0x01020304, UINT32_MAX),
		.code = OF(OUT_USAGE, OUT_FILE, OUT_MEMLOCK),
	};

	TEXT("disk full", m.text);
	msg_file_result_encode(w, &m);
}

static inline void sample_stored(enum sample_size size, struct writer *w)
{
	static struct msg_stored m;

	m.count = OF(1, 3, STORED_MAX);
	for (unsigned i = 0; i < m.count; i++)
		m.files[i] = size == SAMPLE_MOST ? UINT32_MAX - i : 1 + i * 0x01020304;
	msg_stored_encode(w, &m);
}

static inline void sample_answers(enum sample_size size, struct writer *w)
{
	static struct msg_answers m;

	m.count = OF(1, 5, ANSWERS_MAX);
	for (unsigned i = 0; i < m.count; i++) {
		m.of[i].file = size == SAMPLE_MOST ? UINT32_MAX - i : 1 + i * 0x01020304;
		m.of[i].answer = (uint8_t)(ANSWER_SEND + i % 6);
	}
	msg_answers_encode(w, &m);
}

static inline void sample_cells(enum sample_size size, struct writer *w)
{
	static struct msg_cells m;

	m.file = OF(1, 0x01020304, UINT32_MAX);
	m.count = OF(1, 2, CELLS_MAX);
	m.pos = OF(0, 0x0102030405080000, INT64_MAX + UINT64_C(1) - CELLS_MAX * (uint64_t)CELL);
	for (unsigned i = 0; i < m.count; i++) {
		m.digest[i][0] = OF(0, UINT64_C(0x3132333435363738) + i, UINT64_MAX - i);
		m.digest[i][1] = OF(0, UINT64_C(0x4142434445464748) + i, UINT64_MAX - i);
	}
	msg_cells_encode(w, &m);
}

static inline struct msg_total sample_totals(enum sample_size size)
{
	return (struct msg_total){
		.files = OF(0, 0x0102030405060708, UINT64_MAX),
		.same = OF(0, 0x5152535455565758, UINT64_MAX),
		.others = OF(0, 0x6162636465666768, UINT64_MAX),
		.failed = OF(0, 0x1112131415161718, UINT64_MAX),
		.bytes = OF(0, 0x2122232425262728, UINT64_MAX),
		.digest = {OF(0, 0x3132333435363738, UINT64_MAX),
			   OF(0, 0x4142434445464748, UINT64_MAX)},
		.target = OF(0, 0x7172737475767778, UINT64_MAX),
	};
}

static inline void sample_done(enum sample_size size, struct writer *w)
{
	struct msg_total m = sample_totals(size);

	msg_total_encode(w, &m);
}

static inline void sample_end(enum sample_size size, struct writer *w)
{
	struct msg_total m = sample_totals(size);

	m.incomplete = OF(false, true, true);
	m.target = 0;
	msg_total_encode(w, &m);
}

static inline struct msg_times sample_times_of(enum sample_size size)
{
	return (struct msg_times){
		.kind = OF(KIND_NONE, KIND_PIPE, KIND_MEMORY),
		.same_host = OF(false, true, true),
		.used = OF(0, 2, LANE_COUNT_MAX),
		.cpus = OF(0, 0x0102, UINT16_MAX),
		.rtt_us = OF(0, 0x01020304, UINT32_MAX),
		.block = OF(0, 0x11121314, UINT32_MAX),
		.window = OF(0, 0x4142434445464748, UINT64_MAX),
		.moved = OF(0, 0x5152535455565758, UINT64_MAX),
		.ns_fill = OF(0, 0x6162636465666768, UINT64_MAX),
		.ns_free = OF(0, 0x7172737475767778, UINT64_MAX),
		.ns_send = OF(0, 0x2122232425262728, UINT64_MAX),
		.ns_idle = OF(0, 0x1112131415161718, UINT64_MAX),
		.ns_paced = OF(0, 0x0102030405060708, UINT64_MAX),
		.ns_block = OF(0, 0x0807060504030201, UINT64_MAX),
		.ns_store = OF(0, 0x1817161514131211, UINT64_MAX),
		.ns_finish = OF(0, 0x2827262524232221, UINT64_MAX),
		.ns_cpu = OF(0, 0x3132333435363738, UINT64_MAX),
		.ns_hottest = OF(0, 0x3837363534333231, UINT64_MAX),
		.ns_busiest = OF(0, 0x4847464544434241, UINT64_MAX),
		.ns_longest = OF(0, 0x5857565554535251, UINT64_MAX),
		.ns_cipher = OF(0, 0x6867666564636261, UINT64_MAX),
		.ns_compress = OF(0, 0x7877767574737271, UINT64_MAX),
	};
}

static inline void sample_times(enum sample_size size, struct writer *w)
{
	struct msg_times m = sample_times_of(size);

	msg_times_encode(w, &m);
}

static inline void sample_error(enum sample_size size, struct writer *w)
{
	struct msg_error m = {.code = OF(OUT_USAGE, OUT_PEER_LOST, OUT_MEMLOCK)};

	TEXT("storage2", m.host);
	TEXT("write x: No space left on device", m.text);
	msg_error_encode(w, &m);
}

static inline void sample_greeting(enum sample_size size, struct writer *w)
{
	struct msg_greeting m = {.version = OF(0, PROTOCOL_VERSION, UINT16_MAX)};

	TEXT("0.1.0", m.release);
	msg_greeting_encode(w, &m);
}

static inline void sample_module(enum sample_size size, struct writer *w)
{
	struct msg_module m = {.version = PROTOCOL_VERSION};

	TEXT("data", m.name);
	msg_module_encode(w, &m);
}

static inline void sample_entry(enum sample_size size, struct writer *w)
{
	static struct msg_entry m;

	m = (struct msg_entry){
		.kind = OF(ENTRY_MODULE, ENTRY_SYMLINK, ENTRY_SYMLINK),
		.mode = OF(0, 0640, 07777),
		.size = OF(0, 0x0102030405060708, UINT64_MAX),
		.mtime = OF(0, 0x1112131415161718, -1),
	};
	TEXT("file", m.name);
	TEXT("target", m.about);
	if (!*m.name)
		m.name[0] = '.';
	for (char *p = m.name; (p = strchr(p, '/')) != NULL;)
		*p = '_';
	msg_entry_encode(w, &m);
}

static inline void sample_start(enum sample_size size, struct writer *w)
{
	struct msg_start m = {
		.version = PROTOCOL_VERSION,
		.role = OF(ROLE_SOURCE, ROLE_SINK, ROLE_SINK),
		.want = OF(TRANSPORT_AUTO, TRANSPORT_TCP, TRANSPORT_SSH),
		.verbose = OF(0, 1, 3),
		.flags = OF(0, START_LISTENS | START_FAR | START_FILES_FROM, START_ALL),
		.lanes = OF(0, 2, LANE_COUNT_MAX),
		.depth = OF(0, 12, LANE_DEPTH_MAX),
		.block_size = OF(0, 256 << 10, LANE_BLOCK_MAX),
		.memory = OF(0, 0x1112131415161718, UINT64_MAX),
		.bwlimit = OF(0, 0x2122232425262728, UINT64_MAX),
		.timeout_ms = OF(0, 15000, INT32_MAX),
		.connect_timeout_ms = OF(0, 10000, INT32_MAX),
		.port_lo = OF(0, 7000, UINT16_MAX),
		.port_hi = OF(0, 7010, UINT16_MAX),
		.min_size = OF(0, 0x3132333435363738, UINT64_MAX),
		.max_size = OF(0, 0x4142434445464748, UINT64_MAX),
		.max_delete = OF(0, 0x5152535455565758, UINT64_MAX),
		.digest = OF(CONTENT_NONE, CONTENT_SHA256, CONTENT_ADLER32),
		.rdma_op = OF(RDMA_OP_AUTO, RDMA_OP_WRITE_IMM, RDMA_OP_WRITE_SEND),
		.rails = OF(0, 2, UINT16_MAX),
		.direct = OF(DIRECT_AUTO, DIRECT_ON, DIRECT_OFF),
		.memory_bytes = OF(0, 0x6162636465666768, UINT64_MAX),
		.tos = OF(0, 105, TOS_MOST),
		.encrypt = OF(ENCRYPT_AUTO, ENCRYPT_ON, ENCRYPT_OFF),
	};

	sample_bytes(size, m.secret, sizeof m.secret);
	TEXT("storage1", m.host);
	TEXT("storage2", m.peer);
	TEXT("10.0.0.1", m.address);
	TEXT("~/data", m.target);
	TEXT("u+rwX,go-w", m.chmod);
	TEXT("alice:users", m.chown);
	TEXT(".old", m.suffix);
	TEXT("../before", m.backup_dir);
	msg_start_encode(w, &m);
}

static inline void sample_want(enum sample_size size, struct writer *w)
{
	struct msg_want m;

	TEXT("*.dat", m.name);
	msg_want_encode(w, &m);
}

static inline void sample_go(enum sample_size size, struct writer *w)
{
	(void)size;
	(void)w;
}

static inline void sample_rule(enum sample_size size, struct writer *w)
{
	struct msg_rule m = {.include = OF(false, true, true)};

	TEXT("/build/**.o", m.pattern);
	msg_rule_encode(w, &m);
}

static inline void sample_event(enum sample_size size, struct writer *w)
{
	static char path[EVENT_PATH_MAX];
	struct msg_event m = {
		.what = OF(EVENT_FILE, EVENT_SYMLINK, EVENT_NODE),
		.code = OF(OUT_DONE, OUT_CHANGED, OUT_MEMLOCK),
		.deleted = OF(false, true, true),
		.size = OF(0, 0x0102030405060708, UINT64_MAX),
		.path = path,
	};

	TEXT("cL+++++++++", m.change);
	TEXT("0123456789abcdef", m.digest);
	TEXT("a/b c/d", path);
	m.path_len = (uint16_t)strlen(path);
	msg_event_encode(w, &m);
}

static inline void sample_finding(enum sample_size size, struct writer *w)
{
	struct msg_finding m = {
		.state = OF(FINDING_OK, FINDING_WARNING, FINDING_FAILURE),
		.family = OF(0, 4, 6),
		.rdma = OF(false, true, true),
	};

	for (unsigned i = 0; i < OF(0u, 4u, 16u); i++)
		m.addr[i] = (uint8_t)OF(0u, i + 1, 255u);
	TEXT("pcie", m.name);
	TEXT("mlx5_0 port 1", m.subject);
	TEXT("the slot is narrow", m.what);
	TEXT("use another one", m.remedy);
	msg_finding_encode(w, &m);
}

static inline void sample_note(enum sample_size size, struct writer *w)
{
	struct msg_note m = {.level = OF(0, 2, 4)};

	TEXT("tcp taken", m.text);
	msg_note_encode(w, &m);
}

static inline void sample_progress(enum sample_size size, struct writer *w)
{
	struct msg_progress m = {
		.bytes = OF(0, 0x0102030405060708, UINT64_MAX),
		.total = OF(0, 0x1112131415161718, UINT64_MAX),
		.files = OF(0, 0x2122232425262728, UINT64_MAX),
		.total_known = OF(false, true, true),
	};

	msg_progress_encode(w, &m);
}

static inline void sample_verdict(enum sample_size size, struct writer *w)
{
	struct msg_verdict m = {
		.code = OF(OUT_DONE, OUT_SOME_FILES, OUT_MEMLOCK),
		.total = sample_totals(size),
		.transport = OF(TRANSPORT_AUTO, TRANSPORT_TCP, TRANSPORT_SSH),
		.lanes = OF(0, 2, LANE_COUNT_MAX),
		.encrypted = OF(ENCRYPTED_NONE, ENCRYPTED_SOME, ENCRYPTED_ALL),
		.cipher = OF(0, 1, 2),
		.ns = OF(0, 0x5152535455565758, UINT64_MAX),
		.times = sample_times_of(size),
		.counts.regular = OF(0, 0x0101010101010101, UINT64_MAX),
		.counts.dirs = OF(0, 0x0202020202020202, UINT64_MAX),
		.counts.symlinks = OF(0, 0x0303030303030303, UINT64_MAX),
		.counts.hard_links = OF(0, 0x0404040404040404, UINT64_MAX),
		.counts.nodes = OF(0, 0x0505050505050505, UINT64_MAX),
		.counts.created = OF(0, 0x0606060606060606, UINT64_MAX),
		.counts.deleted = OF(0, 0x0707070707070707, UINT64_MAX),
		.counts.sent = OF(0, 0x0808080808080808, UINT64_MAX),
		.counts.had = OF(0, 0x0909090909090909, UINT64_MAX),
		.counts.holes = OF(0, 0x1010101010101010, UINT64_MAX),
		.counts.unkept = OF(0, 0x1111111111111111, UINT64_MAX),
	};

	TEXT("storage2", m.host);
	TEXT("1 of 2 files failed", m.text);
	TEXT("tcp 10.0.0.1:7000", m.how);
	TEXT("no active port", m.why);
	msg_verdict_encode(w, &m);
}

static inline void sample_cancel(enum sample_size size, struct writer *w)
{
	struct msg_cancel m = {.signo = OF(1, 15, 64)};

	msg_cancel_encode(w, &m);
}

static inline void sample_detour(enum sample_size size, struct writer *w)
{
	struct msg_detour m = {.port = OF(1, 7000, UINT16_MAX)};

	TEXT("no route", m.why);
	msg_detour_encode(w, &m);
}

static inline struct record_attr sample_attr(enum sample_size size)
{
	return (struct record_attr){
		.mode = OF(0, 0644, 07777),
		.uid = OF(0, 1000, UINT32_MAX),
		.gid = OF(0, 0x21222324, UINT32_MAX),
		.mtime_s = OF(INT64_MIN, 0x1112131415161718, INT64_MAX),
		.atime_s = OF(-1, 0x2122232425262728, INT64_MAX),
		.mtime_ns = OF(0, 0x01020304, 999999999),
		.atime_ns = OF(0, 0x11121314, 999999999),
	};
}

static inline uint32_t sample_id(enum sample_size size)
{
	return OF(1, 0x01020304, UINT32_MAX);
}

/* A regular file, and one of each type that has fields of its own. */
static inline void sample_files(enum sample_size size, struct writer *w)
{
	struct record_file file = {
		.id = sample_id(size),
		.want = OF(0, 0x11121314, UINT32_MAX),
		.dir = OF(0, 0x31323334, UINT32_MAX - 1),
		.flags = OF(FILE_STREAM | FILE_ORDERED, 0, FILE_FLAGS_ALL - FILE_STREAM),
		.type = TYPE_REGULAR,
		.size = OF(0, 0x0102030405060708, INT64_MAX),
		.a = sample_attr(size),
	};
	struct record_file other = {
		.id = OF(2, 0x01020305, UINT32_MAX - 1),
		.type = OF(TYPE_SYMLINK, TYPE_BLOCK, TYPE_HARD_LINK),
		.flags = OF(FILE_LINKED, 0, FILE_MANY),
		.size = OF(1, 0, 0),
		.a = sample_attr(size),
		.major = OF(0, 0x41424344, 0),
		.minor = OF(0, 0x51525354, 0),
		.link_to = OF(0, 0, UINT32_MAX),
	};

	TEXT("a b.dat", file.name);
	TEXT("sda", other.name);
	if (size == SAMPLE_MOST) {
		/* The byte that a component cannot contain. */
		file.name['/' - 1] = '_';
		other.name['/' - 1] = '_';
	}
	record_file_encode(w, &file);
	record_file_encode(w, &other);
}

static inline void sample_pieces(enum sample_size size, struct writer *w)
{
	static const uint8_t bytes[] = "bytes of a small file";
	struct record_data data = {
		.id = sample_id(size),
		.pos = OF(0, 0x0102030405060708, INT64_MAX - 21),
		.len = OF(0, 21, 21),
		.bytes = bytes,
	};
	struct record_hole hole = {
		.id = sample_id(size),
		.pos = OF(0, 0x0102030405060708, INT64_MAX - 1),
		.len = OF(1, 0x1112131415161718, 1),
	};
	struct record_have have = {
		.id = sample_id(size),
		.pos = OF(0, 0x0102030405080000, INT64_MAX + UINT64_C(1) - CELL),
		.len = OF(1, 0x1112131415161718, CELL - 1),
	};
	struct record_same same = {.id = sample_id(size)};
	struct record_file_end end = {
		.id = sample_id(size),
		.size = OF(0, 0x0102030405060708, INT64_MAX),
		.data = OF(0, 0x0102030405060706, INT64_MAX - 1),
		.holes = OF(0, 2, 1),
		.lanes = OF(0, 2, LANE_COUNT_MAX),
		.digest = {OF(0, 0x3132333435363738, UINT64_MAX),
			   OF(0, 0x4142434445464748, UINT64_MAX)},
		.code = OF(OUT_DONE, OUT_CHANGED, OUT_MEMLOCK),
		.content_len = OF(0, 4, CONTENT_DIGEST_MAX),
	};

	sample_bytes(size, end.content, sizeof end.content);
	TEXT("it shrank", end.text);
	record_data_encode(w, &data);
	record_hole_encode(w, &hole);
	record_have_encode(w, &have);
	record_same_encode(w, &same);
	record_file_end_encode(w, &end);
}

static inline void sample_tree(enum sample_size size, struct writer *w)
{
	static const uint8_t bytes[] = "a piece of a value";
	static uint8_t names[3 * NAME_ROOM];
	struct writer kept = writer_of(names, OF(0, sizeof names, sizeof names));
	struct record_dir dir = {
		.id = sample_id(size),
		.want = OF(0, 0x11121314, UINT32_MAX),
		.parent = OF(0, 0x31323334, UINT32_MAX - 1),
		.flags = OF(DIR_CONTENTS, 0, DIR_IMPLIED),
		.a = sample_attr(size),
	};
	struct record_owner owner = {
		.group = OF(false, true, true),
		.id = OF(0, 0x21222324, UINT32_MAX),
	};
	struct record_xattr xattr = {
		.id = sample_id(size),
		.size = OF(0, 0xab12, XATTR_VALUE_MAX),
		.pos = OF(0, 0x0102, XATTR_VALUE_MAX - 18),
		.len = OF(0, 18, 18),
		.bytes = bytes,
	};
	struct record_keep keep = {.dir = sample_id(size), .last = OF(true, false, true)};
	struct record_origin origin = {
		.want = OF(0, 0x11121314, UINT32_MAX),
		.parent = OF(0, 0x31323334, UINT32_MAX - 1),
		.dir = OF(true, false, true),
		.hash = {OF(0, 0x3132333435363738, UINT64_MAX),
			 OF(0, 0x4142434445464748, UINT64_MAX)},
	};
	char name[NAME_ROOM];

	TEXT("a dir", dir.name);
	TEXT("users", owner.name);
	TEXT("user.sluice", xattr.name);
	TEXT("one", name);
	TEXT("x", origin.name);
	if (size == SAMPLE_LEAST) {
		owner.name[0] = 'o';
		xattr.name[0] = 'x';
	}
	if (size == SAMPLE_MOST)
		dir.name['/' - 1] = name['/' - 1] = origin.name['/' - 1] = '_';
	while (record_keep_add(&kept, name) && size == SAMPLE_MOST)
		continue;
	keep.names = reader_of(names, kept.used);
	record_dir_encode(w, &dir);
	record_owner_encode(w, &owner);
	record_xattr_encode(w, &xattr);
	record_keep_encode(w, &keep);
	record_origin_encode(w, &origin);
}

static inline void sample_records(enum sample_size size, struct writer *w)
{
	sample_files(size, w);
	sample_pieces(size, w);
	sample_tree(size, w);
}

struct sample {
	uint8_t type; /* of the message; 0: a block of records */
	void (*encode)(enum sample_size size, struct writer *w);
};

static const struct sample samples[] = {
	{MSG_HELLO, sample_hello},
	{MSG_OFFER, sample_offer},
	{MSG_CHOICE, sample_choice},
	{MSG_NOROUTE, sample_noroute},
	{MSG_LANE_DOWN, sample_lane_down},
	{MSG_LANE_STORED, sample_lane_stored},
	{MSG_LANE_CHECK, sample_lane_check},
	{MSG_LANE_HELD, sample_lane_held},
	{MSG_PING, sample_ping},
	{MSG_PONG, sample_ping},
	{MSG_FILE_RESULT, sample_file_result},
	{MSG_END, sample_end},
	{MSG_DONE, sample_done},
	{MSG_ERROR, sample_error},
	{MSG_STORED, sample_stored},
	{MSG_ANSWERS, sample_answers},
	{MSG_CELLS, sample_cells},
	{MSG_TIMES, sample_times},
	{MSG_GREETING, sample_greeting},
	{MSG_START, sample_start},
	{MSG_WANT, sample_want},
	{MSG_GO, sample_go},
	{MSG_NOTE, sample_note},
	{MSG_PROGRESS, sample_progress},
	{MSG_VERDICT, sample_verdict},
	{MSG_CANCEL, sample_cancel},
	{MSG_DETOUR, sample_detour},
	{MSG_STUCK, sample_noroute},
	{MSG_LISTENING, sample_detour},
	{MSG_RULE, sample_rule},
	{MSG_LISTED, sample_want},
	{MSG_EVENT, sample_event},
	{MSG_FINDING, sample_finding},
	{MSG_TAKEN, sample_want},
	{MSG_MODULE, sample_module},
	{MSG_LIST, sample_want},
	{MSG_ENTRY, sample_entry},
	{0, sample_records},
};
enum { SAMPLE_COUNT = sizeof samples / sizeof *samples };

#endif
