/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_RECORD_IMPL_H
#define PROTOCOL_RECORD_IMPL_H

/* Shared by record.c and record_metadata.c only. */

#include "protocol/decoder.h"

/* The length of a record is unknown until its body is written. record_begin() writes the head with
 * length zero; record_finish() fills the length in. */
struct open_record {
	uint8_t *len_at;
	size_t body_from;
};
struct open_record record_begin(struct writer *w, enum record_type type);
void record_finish(struct writer *w, struct open_record o);

void attr_put(struct writer *w, const struct record_attr *a);
void attr_take(struct decoder *d, struct record_attr *a);
/* Takes a name that is one component, or "". */
void component_take(struct decoder *d, char name[static NAME_ROOM]);

int record_dir_decode(struct decoder *d, struct record_dir *r);
int record_owner_decode(struct decoder *d, struct record_owner *r);
int record_xattr_decode(struct decoder *d, struct record_xattr *r);
int record_origin_decode(struct decoder *d, struct record_origin *r);
int record_keep_decode(struct decoder *d, struct record_keep *r);

#endif
