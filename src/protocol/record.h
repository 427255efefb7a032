/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_RECORD_H
#define PROTOCOL_RECORD_H

/*
 * The records in BLOCK_RECORDS blocks, whole ones: a record never goes on in another block.
 * Part of message.h, which includes it.
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
	NAME_ROOM = 256, /* of a component's name, with its NUL */
	LINK_TARGET_MAX = 4095, /* bytes of a symlink's */
	RECORD_HEAD = 8, /* u8 type, three zeros, u32 length of body */
	RECORD_DATA_HEAD = RECORD_HEAD + 12, /* of a DATA record before its bytes */
	CONTENT_MAX = 32, /* bytes of a --print-digest */
	RECORD_FILE_MAX = RECORD_HEAD + 75 + NAME_ROOM - 1,
	RECORD_FILE_END_MAX = RECORD_HEAD + 50 + CONTENT_MAX + TEXT_MAX - 1,
	RECORD_DIR_MAX = RECORD_HEAD + 54 + NAME_ROOM - 1,
	RECORD_OWNER_MAX = RECORD_HEAD + 7 + NAME_ROOM - 1,
	RECORD_XATTR_HEAD_MAX = RECORD_HEAD + 14 + NAME_ROOM - 1, /* before its bytes */
	RECORD_ORIGIN_MAX = RECORD_HEAD + 27 + NAME_ROOM - 1,
	RECORD_KEEP_HEAD = RECORD_HEAD + 5, /* before its names */
};

/* What is kept of a file beside its bytes. Owners are numbers of the source's host. */
struct record_attr {
	uint32_t mode; /* permission bits, 07777 */
	uint32_t uid, gid;
	int64_t mtime_s, atime_s;
	uint32_t mtime_ns, atime_ns;
};

enum record_file_flags {
	FILE_STREAM = 1 << 0, /* size unknown until FILE_END; blocks are stored in order of pos */
	FILE_ORDERED =
		1 << 1, /* extents are not whole cells: hash and store them in order of pos */
	FILE_SPARSE = 1 << 2, /* has holes, which are told by HOLE records */
	FILE_MANY = 1 << 3, /* one of several files: the target must be a directory */
	FILE_ASK = 1 << 4, /* a question, nothing else of it comes before its answer */
	FILE_LINKED = 1 << 5, /* other FILEs may be TYPE_HARD_LINK to it */
	FILE_MAY = 1 << 6, /* with ASK: only, may it be replaced? */
	FILE_FLAGS_ALL = (1 << 7) - 1,
};
enum file_type {
	TYPE_REGULAR = 1,
	TYPE_SYMLINK = 2, /* its bytes are its target; 1 to LINK_TARGET_MAX, none of them NUL */
	TYPE_HARD_LINK = 3, /* one more name of link_to; no bytes */
	TYPE_FIFO = 4, /* no bytes; these also: */
	TYPE_CHAR = 5,
	TYPE_BLOCK = 6,
};
struct record_file {
	uint32_t id; /* counted from 1, never used for another file or directory */
	uint32_t want; /* which WANT it answers, from 0 */
	uint32_t dir; /* id of the directory that it is in; 0: the target, as it was resolved */
	uint32_t flags;
	uint8_t type; /* enum file_type */
	uint64_t size; /* 0 for a stream */
	struct record_attr a;
	uint32_t major, minor; /* of a device, else 0 */
	uint32_t link_to; /* of a hard link, an earlier FILE's id, else 0 */
	char name[NAME_ROOM]; /* one component; "" where there is none (stdin) */
};
void record_file_encode(struct writer *w, const struct record_file *r);

/*
 * A directory, before anything in it; on each lane that sends something in it.  Parents come
 * before their children.  Where parent is 0 it is (with DIR_CONTENTS) the target itself, else
 * one in it, or what DST becomes.
 */
enum record_dir_flags {
	DIR_CONTENTS = 1 << 0, /* name is "": what is in it goes into the target (SRC/, -T) */
	DIR_IMPLIED = 1 << 1, /* only led through to what was asked for (--relative) */
	DIR_MANY = 1 << 2, /* one of several sources: the target must be a directory */
	DIR_AGAIN = 1 << 3, /* a source before has it, too: that one's attributes count */
	DIR_FLAGS_ALL = (1 << 4) - 1,
};
struct record_dir {
	uint32_t id; /* of the same space as files' */
	uint32_t want;
	uint32_t parent; /* 0: none */
	uint32_t flags;
	struct record_attr a;
	char name[NAME_ROOM];
};
void record_dir_encode(struct writer *w, const struct record_dir *r);

/* The name of an owner or group of the source's host, on each lane before it is first used. */
struct record_owner {
	bool group;
	uint32_t id;
	char name[NAME_ROOM];
};
void record_owner_encode(struct writer *w, const struct record_owner *r);

/*
 * A piece of an extended attribute of a file (all on the lane that FILE_END comes on, before it,
 * or right behind a FILE with ASK and in the same block: a file whose attributes don't fit
 * into a block with it is sent unasked) or of a directory (anywhere before END, on one lane).
 * Pieces of one value come one after the other, and names ascend (as bytes).  An ACL is one called
 * system.posix_acl_access or system.posix_acl_default, with the kernel's bytes
 * (linux/posix_acl_xattr.h), its ids the source's.
 */
enum { XATTR_VALUE_MAX = 64 << 10, XATTRS_BYTES_MAX = 1 << 20 /* names and values of a file */ };
struct record_xattr {
	uint32_t id;
	uint32_t size; /* of the value, up to XATTR_VALUE_MAX */
	uint32_t pos; /* of these bytes in it */
	char name[NAME_ROOM];
	uint32_t len; /* not on the wire: what is left of the record; 0 only if size is */
	const uint8_t *bytes; /* into the block */
};
void record_xattr_encode(struct writer *w, const struct record_xattr *r);

/* After ANSWER_RESUME: these whole cells are as the sink said they are. Count as HOLEs in
 * FILE_END's numbers, and with the digests that the sink told in its digest. */
struct record_have {
	uint32_t id;
	uint64_t pos, len;
};
void record_have_encode(struct writer *w, const struct record_have *r);

/* After ANSWER_COMPARE: they are the same, and there is no more of this file. */
struct record_same {
	uint32_t id;
};
void record_same_encode(struct writer *w, const struct record_same *r);

/* Names in a directory of the source: what is not among them may be deleted, once `last' came.
 * Only of directories that were read to their end; on one lane, after its DIR. */
struct record_keep {
	uint32_t dir;
	bool last;
	struct reader names; /* see record_keep_next(); encoded: its bytes as they are */
};
void record_keep_encode(struct writer *w, const struct record_keep *r);
/* Put one more name at the end of a KEEP's names; false: no room for it. */
bool record_keep_add(struct writer *names, const char *name);
/* 1, 0 when there is none left, -1 with a failure. */
int record_keep_next(struct reader *names, char name[static NAME_ROOM]);

/* What a source that the user named is, on each lane before its FILE or DIR: a sink on the same
 * machine finds out that it is its own target. */
struct record_origin {
	uint32_t want;
	uint32_t parent; /* id of the directory that it will be in, 0: the target */
	bool dir; /* else a regular file */
	uint64_t hash[2]; /* see copy/attr/origin.h */
	char name[NAME_ROOM]; /* in it; "" of a directory with DIR_CONTENTS */
};
void record_origin_encode(struct writer *w, const struct record_origin *r);

struct record_data {
	uint32_t id;
	uint64_t pos;
	uint32_t len; /* not on the wire: what is left of the record */
	const uint8_t *bytes; /* into the block */
};
void record_data_encode(struct writer *w, const struct record_data *r);
/* The same without r->bytes: where the caller puts them. */
uint8_t *record_data_open(struct writer *w, const struct record_data *r);

/* So many bytes at pos are zero, are not sent, and count nothing in the digest; len > 0. */
struct record_hole {
	uint32_t id;
	uint64_t pos;
	uint64_t len;
};
void record_hole_encode(struct writer *w, const struct record_hole *r);

struct record_file_end {
	uint32_t id;
	uint64_t size; /* of the file */
	uint64_t data; /* of its bytes that were sent, holes left out */
	uint64_t holes; /* of its bytes in HOLE records */
	uint16_t lanes; /* on how many lanes its FILE record was sent, 1..LANE_COUNT_MAX */
	uint64_t digest[2];
	uint8_t code; /* enum outcome; not OUT_DONE: drop the file */
	uint8_t content_len; /* of content: 0, or what the algorithm of START has */
	uint8_t content[CONTENT_MAX]; /* --print-digest: of all bytes of the file, holes too */
	char text[TEXT_MAX];
};
void record_file_end_encode(struct writer *w, const struct record_file_end *r);

/* The next record of a block's bytes: 1, 0 when there is none left, -1 with a failure. */
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
