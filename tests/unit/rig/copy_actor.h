/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_COPY_ACTOR_H
#define TESTS_COPY_ACTOR_H

/*
 * A source that says what a script tells it, to a real sink.  A script is a list of records and
 * blocks; a wait in it lasts until the sink has told so many results and answers.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "copy_rig.h"
#include "protocol/message.h"

enum verb {
	SAY_NOTHING, /* the end of the list */
	SAY_FILE,
	SAY_DATA,
	SAY_HOLE,
	SAY_END_OF_FILE,
	SAY_EXTENT, /* in a block of its own */
	SAY_DIR,
	SAY_OWNER,
	SAY_XATTR, /* text is the value; xattr_size its size if that differs */
	SAY_KEEP, /* text: a name; last if len is 0 */
	SAY_HAVE,
	SAY_SAME,
	SAY_WAIT, /* send everything, then wait for this many (len) messages of the sink */
	SAY_END, /* when everything is stored: END with the totals of what was sent */
};

struct say {
	enum verb verb;
	uint32_t id, flags, want, dir;
	uint8_t type; /* 0: TYPE_REGULAR */
	uint32_t link_to, mode;
	int64_t mtime;
	uint64_t pos, len, size;
	const char *name;
	const char *text; /* bytes of DATA, else zeros */
	uint32_t xattr_size, xattr_pos;
	uint64_t data, holes; /* of a file's end */
	uint64_t have; /* announced cells that count in the digest, from 0 on */
	uint16_t lanes;
	uint8_t code, content_len;
	uint8_t content[32];
	bool wrong_digest, other_lane, wrong_total, no_digest;
	uint64_t same, others, failed; /* END: added to what was sent */
	bool incomplete;
};

enum { SAYS_MAX = 24, HEARD_MAX = 64 };

struct heard { /* one message of the sink */
	uint8_t type; /* MSG_STORED, MSG_ANSWERS, MSG_CELLS, MSG_FILE_RESULT, MSG_DONE */
	uint32_t file;
	uint8_t answer, code;
	uint64_t pos; /* of CELLS */
	unsigned cells;
	uint64_t first[2];
	char text[TEXT_MAX];
	struct msg_total total;
};

struct actor {
	struct rig_end *end;
	const struct say *script;
	struct lane *lane;
	struct block *block;
	struct writer w;
	struct msg_total total;
	uint8_t keep[512];

	pthread_mutex_t lock;
	pthread_cond_t came;
	unsigned count;
	struct heard heard[HEARD_MAX];
};

/* Makes r's source play the script; a must live until the rig is joined. */
void actor_init(struct actor *a, struct rig *r, const struct say *script);
/* The message about a file with this type (0: any) that arrived; NULL: none. After the run. */
const struct heard *actor_heard(const struct actor *a, uint8_t type, uint32_t file);
int actor_wait_over(struct rig_end *e);

#endif
