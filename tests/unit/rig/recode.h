/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RECODE_H
#define TESTS_RECODE_H

/* Decodes a frame by its type and encodes the result: shared by tests and fuzz targets. */

#include "protocol/message.h"

union any_message {
	struct msg_hello hello;
	struct msg_offer offer;
	struct msg_choice choice;
	struct msg_noroute noroute;
	struct msg_lane_down lane_down;
	struct msg_lane_stored lane_stored;
	struct msg_lane_check lane_check;
	struct msg_lane_held lane_held;
	struct msg_ping ping;
	struct msg_file_result file_result;
	struct msg_stored stored;
	struct msg_answers answers;
	struct msg_cells cells;
	struct msg_total total;
	struct msg_times times;
	struct msg_error error;
	struct msg_greeting greeting;
	struct msg_start start;
	struct msg_want want;
	struct msg_rule rule;
	struct msg_module module;
	struct msg_entry entry;
	struct msg_event event;
	struct msg_finding finding;
	struct msg_note note;
	struct msg_progress progress;
	struct msg_verdict verdict;
	struct msg_cancel cancel;
	struct msg_detour detour;
};

#define RECODE(kind)                                                                               \
	do {                                                                                       \
		if (msg_##kind##_decode(f, &m->kind) != 0)                                         \
			return -1;                                                                 \
		msg_##kind##_encode(w, &m->kind);                                                  \
		return 0;                                                                          \
	} while (0)

static inline int recode(const struct frame *f, union any_message *m, struct writer *w)
{
	switch ((enum message_type)f->type) {
	case MSG_HELLO:
		RECODE(hello);
	case MSG_OFFER:
		RECODE(offer);
	case MSG_CHOICE:
		RECODE(choice);
	case MSG_NOROUTE:
	case MSG_STUCK:
		RECODE(noroute);
	case MSG_LANE_DOWN:
		RECODE(lane_down);
	case MSG_LANE_STORED:
		RECODE(lane_stored);
	case MSG_LANE_CHECK:
		RECODE(lane_check);
	case MSG_LANE_HELD:
		RECODE(lane_held);
	case MSG_PING:
	case MSG_PONG:
		RECODE(ping);
	case MSG_FILE_RESULT:
		RECODE(file_result);
	case MSG_STORED:
		RECODE(stored);
	case MSG_ANSWERS:
		RECODE(answers);
	case MSG_CELLS:
		RECODE(cells);
	case MSG_END:
	case MSG_DONE:
		RECODE(total);
	case MSG_TIMES:
		RECODE(times);
	case MSG_ERROR:
		RECODE(error);
	case MSG_GREETING:
		RECODE(greeting);
	case MSG_START:
		RECODE(start);
	case MSG_WANT:
	case MSG_LISTED:
	case MSG_TAKEN:
	case MSG_LIST:
		RECODE(want);
	case MSG_RULE:
		RECODE(rule);
	case MSG_MODULE:
		RECODE(module);
	case MSG_ENTRY:
		RECODE(entry);
	case MSG_EVENT:
		RECODE(event);
	case MSG_FINDING:
		RECODE(finding);
	case MSG_GO:
		return msg_empty_decode(f);
	case MSG_NOTE:
		RECODE(note);
	case MSG_PROGRESS:
		RECODE(progress);
	case MSG_VERDICT:
		RECODE(verdict);
	case MSG_CANCEL:
		RECODE(cancel);
	case MSG_DETOUR:
	case MSG_LISTENING:
		RECODE(detour);
	}
	return fail_as(OUT_PROTOCOL, "unknown type %u", f->type);
}

static inline void record_encode(struct writer *w, const struct record *r)
{
	switch (r->type) {
	case RECORD_FILE:
		record_file_encode(w, &r->file);
		break;
	case RECORD_DATA:
		record_data_encode(w, &r->data);
		break;
	case RECORD_HOLE:
		record_hole_encode(w, &r->hole);
		break;
	case RECORD_FILE_END:
		record_file_end_encode(w, &r->end);
		break;
	case RECORD_DIR:
		record_dir_encode(w, &r->dir);
		break;
	case RECORD_OWNER:
		record_owner_encode(w, &r->owner);
		break;
	case RECORD_XATTR:
		record_xattr_encode(w, &r->xattr);
		break;
	case RECORD_HAVE:
		record_have_encode(w, &r->have);
		break;
	case RECORD_SAME:
		record_same_encode(w, &r->same);
		break;
	case RECORD_KEEP:
		record_keep_encode(w, &r->keep);
		break;
	case RECORD_ORIGIN:
		record_origin_encode(w, &r->origin);
		break;
	}
}

/* The same for a block of records: the number of records, or -1. */
static inline int recode_records(const uint8_t *bytes, size_t len, struct record *r,
				 struct writer *w)
{
	struct reader from = reader_of(bytes, len);
	int count = 0;
	int rc;

	while ((rc = record_next(&from, r)) > 0) {
		record_encode(w, r);
		count++;
	}
	return rc < 0 ? -1 : count;
}

#endif
