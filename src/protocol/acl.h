/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_ACL_H
#define PROTOCOL_ACL_H

/*
 * POSIX ACLs in the kernel's format of system.posix_acl_access and system.posix_acl_default
 * (linux/posix_acl_xattr.h). XATTR records carry the same bytes: u32 version 2, then entries of u16
 * tag, u16 permissions, u32 id.
 */

#include <stddef.h>
#include <stdint.h>

enum acl_tag {
	ACL_USER_OBJ = 0x01,
	ACL_USER = 0x02, /* with an id */
	ACL_GROUP_OBJ = 0x04,
	ACL_GROUP = 0x08, /* with an id */
	ACL_MASK = 0x10,
	ACL_OTHER = 0x20,
};
#define ACL_NO_ID UINT32_MAX /* the id of entries of all other tags */
enum {
	ACL_HEAD = 4,
	ACL_ENTRY = 8,
	ACL_MINIMAL = ACL_HEAD + 3 * ACL_ENTRY, /* equivalent to permission bits of a mode */
};

struct acl_entry {
	uint16_t tag;
	uint16_t perm; /* read, write, execute bits */
	uint32_t id;
};

/* An upper bound on the entries in size bytes: how many to allocate for acl_decode(). */
static inline size_t acl_room(size_t size)
{
	return size / ACL_ENTRY;
}
/* Accepts only what the kernel would: tags in order, all mandatory tags, and a mask if there are
 * users or groups. Returns the number of entries, or -1 with OUT_PROTOCOL. */
int acl_decode(const void *bytes, size_t size, struct acl_entry *to);
/* Writes the same bytes again, ACL_HEAD + count * ACL_ENTRY of them. */
void acl_encode(const struct acl_entry *of, size_t count, void *to);

#endif
