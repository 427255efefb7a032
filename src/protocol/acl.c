/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/acl.h"

#include <stdbool.h>
#include "base/cursor.h"
#include "base/fail.h"

enum { VERSION = 2, PERM_ALL = 7 };

static bool has_id(uint16_t tag)
{
	return tag == ACL_USER || tag == ACL_GROUP;
}

/* Tags come in ascending order, and only tags with ids come more than once. Returns the name of the
 * wrong field, or NULL. */
static const char *find_wrong_field(const struct acl_entry *e, uint16_t before)
{
	switch (e->tag) {
	case ACL_USER_OBJ:
	case ACL_USER:
	case ACL_GROUP_OBJ:
	case ACL_GROUP:
	case ACL_MASK:
	case ACL_OTHER:
		break;
	default:
		return "tag";
	}
	if (e->tag < before || (e->tag == before && !has_id(e->tag)))
		return "order";
	if (e->perm > PERM_ALL)
		return "permissions";
	if ((e->id != ACL_NO_ID) != has_id(e->tag))
		return "id";
	return NULL;
}

int acl_decode(const void *bytes, size_t size, struct acl_entry *to)
{
	unsigned required = ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER;
	struct reader r = reader_of(bytes, size);
	const char *wrong = NULL;
	unsigned seen = 0;
	uint16_t before = 0;
	int count = 0;

	if (take_u32(&r) != VERSION)
		wrong = "version";
	while (!wrong && r.left > 0) {
		struct acl_entry e;

		e.tag = take_u16(&r);
		e.perm = take_u16(&r);
		e.id = take_u32(&r);
		wrong = r.bad ? "size" : find_wrong_field(&e, before);
		if (wrong)
			break;
		before = e.tag;
		seen |= e.tag;
		to[count++] = e;
	}
	if (seen & (ACL_USER | ACL_GROUP))
		required |= ACL_MASK;
	if (!wrong && (seen & required) != required)
		wrong = "set of entries";
	return wrong ? fail_as(OUT_PROTOCOL, "malformed ACL: %s", wrong) : count;
}

void acl_encode(const struct acl_entry *of, size_t count, void *to)
{
	struct writer w = writer_of(to, ACL_HEAD + count * ACL_ENTRY);

	put_u32(&w, VERSION);
	for (size_t i = 0; i < count; i++) {
		put_u16(&w, of[i].tag);
		put_u16(&w, of[i].perm);
		put_u32(&w, of[i].id);
	}
}
