/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_XATTRS_IMPL_H
#define COPY_ATTR_XATTRS_IMPL_H

/* Private header of xattrs*.c. */

#include <sys/types.h>
#include "copy/attr/xattrs.h"
#include "protocol/acl.h"

struct xattr {
	char *name;
	uint8_t *value;
	uint32_t size;
	uint32_t received; /* bytes of the value that have arrived */
	/* decoded, at the source and of an existing target; NULL: not an ACL */
	struct acl_entry *acl;
	size_t entries;
};
/* Sorted by name, none twice. */
struct xattrs {
	struct xattr *list;
	size_t count, room;
	size_t name_bytes, total_bytes; /* of all names; of all names and values */
};
enum { NAMES_MAX = 64 << 10 /* bytes of all names of a file: the kernel's limit for a list */ };

/* Appends an attribute with room for its value; NULL: out of memory. */
struct xattr *xattr_append(struct xattrs *x, const char *name, uint32_t size);
struct xattrs *xattrs_make(void);
void xattrs_drop(struct xattrs *x, size_t count); /* drops all after the first count */

enum xattr_kind {
	XATTR_NEVER, /* never copied */
	XATTR_ACL,
	XATTR_PLAIN,
	XATTR_SPECIAL, /* only with rules->xattrs_all */
};
enum xattr_kind xattr_kind(const char *name);
bool xattr_wanted(const char *name, const struct rules *r);
/* Sorts by tag and id.  Entries with the same id become one, with the rights that all of them have.
 * Returns the number of entries left. */
size_t acl_tidy(struct acl_entry *e, size_t count);

/* xattrs_fd.c.  System calls for all descriptors, also those opened with O_PATH.  Results and errno
 * as the system's. */
ssize_t xattr_list(int fd, char *to, size_t size);
ssize_t xattr_get(int fd, const char *name, void *to, size_t size);
int xattr_put(int fd, const char *name, const void *value, size_t size);
int xattr_remove(int fd, const char *name);
/* After a failure: is fd a FIFO, a socket or a device, and is there no /proc?  Keeps errno. */
bool xattr_is_out_of_reach(int fd);
/* A user who may not read and write his own file cannot change its attributes either.  Widens the
 * mode for a while.  *old: the mode to restore; (mode_t)-1: unchanged. */
void xattr_widen(int fd, mode_t *old);
void xattr_narrow(int fd, mode_t old);
/* Reduces the rights of the group class to these. */
void xattr_narrow_group(int fd, unsigned rights);

/* Reads the attributes of fd that r asks for.  bounded: fails if they cannot be sent. */
int xattrs_look(int fd, const char *shown, const struct rules *r, bool bounded,
		struct xattrs **out);

#endif
