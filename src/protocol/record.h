/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_RECORD_H
#define PROTOCOL_RECORD_H

/*
 * The records in BLOCK_RECORDS blocks. A record never continues in another block. Part of
 * message.h, which includes this file.
 */

#include "protocol/message.h"

enum record_type {
	RECORD_FILE = 1,
	RECORD_DATA = 2,
	RECORD_FILE_END = 3,
	RECORD_HOLE = 4,
	RECORD_DIR = 5,
	RECORD_OWNER = 6,
	RECORD_XATTR = 7,
	RECORD_HAVE = 8,
	RECORD_SAME = 9,
	RECORD_KEEP = 10,
	RECORD_ORIGIN = 11,
};
enum {
	NAME_ROOM = 256, /* bytes of one component of a path, with its NUL */
	LINK_TARGET_MAX = 4095, /* bytes of a symlink's target */
	RECORD_HEAD = 8, /* u8 type, three zeros, u32 length of body */
	RECORD_DATA_HEAD = RECORD_HEAD + 12, /* bytes of a DATA record before its data */
	CONTENT_DIGEST_MAX = 32, /* bytes of a --print-digest digest */
	RECORD_FILE_MAX = RECORD_HEAD + 75 + NAME_ROOM - 1,
	RECORD_FILE_END_MAX = RECORD_HEAD + 50 + CONTENT_DIGEST_MAX + TEXT_MAX - 1,
	RECORD_DIR_MAX = RECORD_HEAD + 54 + NAME_ROOM - 1,
	RECORD_OWNER_MAX = RECORD_HEAD + 7 + NAME_ROOM - 1,
	RECORD_XATTR_HEAD_MAX = RECORD_HEAD + 14 + NAME_ROOM - 1, /* before its bytes */
	RECORD_ORIGIN_MAX = RECORD_HEAD + 27 + NAME_ROOM - 1,
	RECORD_KEEP_HEAD = RECORD_HEAD + 5, /* before its names */
};

/* The metadata of a file that is preserved. Owner and group are the numbers of the source's
 * host. */
struct record_attr {
	uint32_t mode; /* permission bits, 07777 */
	uint32_t uid, gid;
	int64_t mtime_s, atime_s;
	uint32_t mtime_ns, atime_ns;
};

enum record_file_flags {
	FILE_STREAM = 1 << 0, /* size unknown until FILE_END; blocks are stored in order of pos */
	/* Extents are not whole cells: hash and store them in order of pos. */
	FILE_ORDERED = 1 << 1,
	FILE_SPARSE = 1 << 2, /* has holes; HOLE records list them */
	FILE_MANY = 1 << 3, /* one of several files: the target must be a directory */
	FILE_ASK = 1 << 4, /* a question: no other record of this file comes before the answer */
	FILE_LINKED = 1 << 5, /* later FILEs may be TYPE_HARD_LINK to it */
	FILE_MAY = 1 << 6, /* with ASK: asks only whether the file may be replaced */
	FILE_MOVED = 1 << 7, /* as DIR_MOVED; for a file that is in no directory of the source */
	FILE_FLAGS_ALL = (1 << 8) - 1,
};
enum file_type {
	TYPE_REGULAR = 1,
	/* Its data is the target: 1 to LINK_TARGET_MAX bytes without NUL. */
	TYPE_SYMLINK = 2,
	TYPE_HARD_LINK = 3, /* another name of link_to; no data */
	TYPE_FIFO = 4, /* no data; the next two have none either */
	TYPE_CHAR = 5,
	TYPE_BLOCK = 6,
};
struct record_file {
	uint32_t id; /* counted from 1, never reused for another file or directory */
	uint32_t want; /* the WANT that it belongs to, counted from 0 */
	uint32_t dir; /* id of its directory; 0: the target, as the sink resolved it */
	uint32_t flags;
	uint8_t type; /* enum file_type */
	uint64_t size; /* 0 for a stream */
	struct record_attr a;
	uint32_t major, minor; /* of a device, else 0 */
	uint32_t link_to; /* hard link: the id of an earlier FILE; else 0 */
	char name[NAME_ROOM]; /* one component; "" if it has no name (stdin) */
};
void record_file_encode(struct writer *w, const struct record_file *r);

/*
 * A directory. It is sent before anything in it, on each lane that sends something in it. Parents
 * come before their children. If parent is 0, the directory is the target itself (with
 * DIR_CONTENTS), else a directory in the target or the one that DST becomes.
 */
enum record_dir_flags {
	DIR_CONTENTS = 1 << 0, /* name is "": its entries go into the target itself (SRC/, -T) */
	DIR_IMPLIED = 1 << 1, /* only leads to what the user asked for (--relative) */
	DIR_MANY = 1 << 2, /* one of several sources: the target must be a directory */
	DIR_AGAIN = 1 << 3, /* an earlier source has it too: that source's attributes apply */
	DIR_MOVED = 1 << 4, /* a move was not completed: no directory makes room for a file */
	DIR_FLAGS_ALL = (1 << 5) - 1,
};
struct record_dir {
	uint32_t id; /* from the same id space as files */
	uint32_t want;
	uint32_t parent; /* 0: none */
	uint32_t flags;
	struct record_attr a;
	char name[NAME_ROOM];
};
void record_dir_encode(struct writer *w, const struct record_dir *r);

/* The name of an owner or group of the source's host. Sent on each lane before its first use. */
struct record_owner {
	bool group;
	uint32_t id;
	char name[NAME_ROOM];
};
void record_owner_encode(struct writer *w, const struct record_owner *r);

/*
 * A piece of an extended attribute of a file or directory. All those of a file come on the lane of
 * its FILE_END, before it; or right behind a FILE with ASK and in the same block (a file whose
 * attributes don't fit into one block with it is sent without asking). Those of a directory may
 * come at any time before END, on one lane. The pieces of a value come in sequence, and names
 * ascend (compared as bytes). An ACL is an attribute named system.posix_acl_access or
 * system.posix_acl_default. It has the kernel's bytes (linux/posix_acl_xattr.h) with the source's
 * ids.
 */
/* The name of an XATTR without a value in place of those of a directory, if they could not be read:
 * the metadata of the directory stays as it is at the sink. */
#define XATTRS_UNREAD "sluice.unread"
/* total of names and values of one file */
enum { XATTR_VALUE_MAX = 64 << 10, XATTRS_BYTES_MAX = 1 << 20 };
struct record_xattr {
	uint32_t id;
	uint32_t size; /* of the whole value, up to XATTR_VALUE_MAX */
	uint32_t pos; /* of these bytes in the value */
	char name[NAME_ROOM];
	uint32_t len; /* not on the wire: the rest of the record; 0 only if size is 0 */
	const uint8_t *bytes; /* points into the block */
};
void record_xattr_encode(struct writer *w, const struct record_xattr *r);

/* After ANSWER_RESUME: these whole cells equal what the sink reported. They count as HOLEs in
 * FILE_END's numbers. In FILE_END's digest they count with the digests that the sink sent. After
 * ANSWER_CLONED: one for the whole file, which adds nothing to the digest. */
struct record_have {
	uint32_t id;
	uint64_t pos, len;
};
void record_have_encode(struct writer *w, const struct record_have *r);

/* After ANSWER_COMPARE: the files are equal; no further record of this file follows. */
struct record_same {
	uint32_t id;
};
void record_same_encode(struct writer *w, const struct record_same *r);

/* Names in a directory of the source. Once `last' was received, the sink may delete any name
 * that was not listed. Sent only for directories that were read completely; on one lane, after
 * its DIR. */
struct record_keep {
	uint32_t dir;
	bool last;
	struct reader names; /* see record_keep_next(); the encoder copies its bytes */
};
void record_keep_encode(struct writer *w, const struct record_keep *r);
/* Appends a name to a KEEP's names; returns false if it does not fit. */
bool record_keep_add(struct writer *names, const char *name);
/* Returns 1 with a name, 0 at the end, or -1 with a failure. */
int record_keep_next(struct reader *names, char name[static NAME_ROOM]);

/* Identifies a source that the user named. Sent on each lane before its FILE or DIR, so that a sink
 * on the same machine can detect that the source is its own target. With hash 0 it only says that
 * the source has the name, which looks like that of a backup. */
struct record_origin {
	uint32_t want;
	uint32_t parent; /* id of its future parent directory; 0: the target */
	bool dir; /* a directory, else a regular file */
	uint64_t hash[2]; /* see copy/attr/origin.h */
	char name[NAME_ROOM]; /* name in the parent; "" for a directory with DIR_CONTENTS */
};
void record_origin_encode(struct writer *w, const struct record_origin *r);

struct record_data {
	uint32_t id;
	uint64_t pos;
	uint32_t len; /* not on the wire: the rest of the record */
	const uint8_t *bytes; /* points into the block */
};
void record_data_encode(struct writer *w, const struct record_data *r);
/* The same without r->bytes. Returns the address where the caller must put them. */
uint8_t *record_data_open(struct writer *w, const struct record_data *r);

/* len bytes at pos are zero. They are not sent and do not count in the digest. len > 0. */
struct record_hole {
	uint32_t id;
	uint64_t pos;
	uint64_t len;
};
void record_hole_encode(struct writer *w, const struct record_hole *r);

struct record_file_end {
	uint32_t id;
	uint64_t size; /* of the file */
	uint64_t data; /* bytes of the file that were sent, without holes */
	uint64_t holes; /* bytes of the file in HOLE records */
	uint16_t lanes; /* number of lanes that carried its FILE record, 1..LANE_COUNT_MAX */
	uint64_t digest[2];
	uint8_t code; /* enum outcome; if not OUT_DONE, the sink drops the file */
	uint8_t content_len; /* bytes in content: 0, or the length of START's algorithm */
	/* --print-digest: of all bytes of the file, with holes */
	uint8_t content[CONTENT_DIGEST_MAX];
	char text[TEXT_MAX];
};
void record_file_end_encode(struct writer *w, const struct record_file_end *r);

/* The next record of a block's bytes. record_next() returns 1, 0 at the end, or -1 with a
 * failure. */
struct record {
	enum record_type type;
	union {
		struct record_file file;
		struct record_data data;
		struct record_hole hole;
		struct record_file_end end;
		struct record_dir dir;
		struct record_owner owner;
		struct record_xattr xattr;
		struct record_have have;
		struct record_same same;
		struct record_keep keep;
		struct record_origin origin;
	};
};
int record_next(struct reader *r, struct record *out);

#endif
