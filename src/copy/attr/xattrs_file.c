/* SPDX-License-Identifier: Apache-2.0 */

/* Reads, sets and compares the attributes of files. */

#include "copy/attr/xattrs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"

enum {
	LIST_SHORT = 1 << 10,
	VALUE_MAX = 64 << 10, /* the kernel's limit */
	TRIES = 8, /* if the value keeps growing between two calls */
};

/* ---- reading ------------------------------------------------------------------------------ */

static bool is_absent_error(int err)
{
	return err == EOPNOTSUPP || err == ENODATA || err == ENOSYS;
}

/* *list becomes short_list, or memory that the caller frees. */
static ssize_t list_xattr_names(int fd, char short_list[static LIST_SHORT], char **list)
{
	ssize_t n = xattr_list(fd, short_list, LIST_SHORT);

	*list = short_list;
	if (n < 0 && errno == ERANGE) {
		*list = malloc(NAMES_MAX);
		if (*list)
			n = xattr_list(fd, *list, NAMES_MAX);
		else
			*list = short_list;
	}
	return n < 0 && is_absent_error(errno) ? 0 : n;
}

/* Appends the attribute to x.  1; 0: it does not exist any more; -1 with errno. */
static int read_xattr_value(int fd, const char *name, struct xattrs *x)
{
	for (int i = 0; i < TRIES; i++) {
		size_t count = x->count;
		ssize_t n = xattr_get(fd, name, NULL, 0);
		struct xattr *a;

		if (n >= 0) {
			a = xattr_append(x, name, (uint32_t)n);
			if (!a)
				return -1;
			/* getxattr(2) with a size of zero would return the size again. */
			n = n > 0 ? xattr_get(fd, name, a->value, (size_t)n) : 0;
			if (n >= 0) {
				x->total_bytes -= a->size - (size_t)n;
				a->size = (uint32_t)n;
				a->received = a->size;
				return 1;
			}
			xattrs_drop(x, count);
		}
		if (errno != ERANGE)
			return is_absent_error(errno) ? 0 : -1;
	}
	return -1;
}

/* False: out of memory (a->acl NULL), or the ACL cannot be decoded. */
static bool decode_acl_value(struct xattrs *x, struct xattr *a)
{
	int n;

	a->acl = calloc(acl_room(a->size) + 1, sizeof *a->acl);
	if (!a->acl)
		return false;
	n = acl_decode(a->value, a->size, a->acl);
	if (n < 0)
		return false;
	a->entries = acl_tidy(a->acl, (size_t)n);
	x->total_bytes -= a->size;
	a->size = (uint32_t)(ACL_HEAD + a->entries * ACL_ENTRY);
	a->received = a->size;
	x->total_bytes += a->size;
	acl_encode(a->acl, a->entries, a->value);
	return true;
}

static int read_xattr(int fd, const char *shown, const char *name, bool bounded, struct xattrs *x)
{
	int rc = read_xattr_value(fd, name, x);
	struct xattr *a;

	if (rc < 0)
		return fail("read %s of %s: %m", name, shown);
	if (rc == 0)
		return 0;
	a = &x->list[x->count - 1];
	if (bounded && (strlen(name) >= NAME_ROOM || x->total_bytes > XATTRS_BYTES_MAX))
		return fail("%s has more than %d bytes of extended attributes", shown,
			    XATTRS_BYTES_MAX);
	if (xattr_kind(name) != XATTR_ACL)
		return 0;
	/* An ACL of the target that cannot be decoded only has to differ from that of the source.
	 */
	if (!decode_acl_value(x, a) && bounded)
		return a->acl ? fail("read ACL of %s: it names a user or group without an id in this "
				     "user namespace, or is damaged",
				     shown)
			      : fail_as(OUT_MEMORY, "read %s of %s: %m", name, shown);
	/* Some file systems report the mode as an ACL. */
	if (a->entries * ACL_ENTRY + ACL_HEAD == ACL_MINIMAL &&
	    strcmp(name, "system.posix_acl_access") == 0)
		xattrs_drop(x, x->count - 1);
	return 0;
}

static int compare_xattr_names(const void *a, const void *b)
{
	return strcmp(((const struct xattr *)a)->name, ((const struct xattr *)b)->name);
}

int xattrs_look(int fd, const char *shown, const struct rules *r, bool bounded, struct xattrs **out)
{
	char short_list[LIST_SHORT], *list;
	struct xattrs *x = NULL;
	ssize_t n;
	int rc = 0;

	*out = NULL;
	if (!r->acls && !r->xattrs && !r->xattrs_all)
		return 0;
	n = list_xattr_names(fd, short_list, &list);
	/* Of what a module permits these can have only an ACL. */
	if (n < 0 && !r->acls && !r->xattrs_all && xattr_is_out_of_reach(fd))
		n = 0;
	if (n < 0)
		rc = fail("list extended attributes of %s: %s", shown,
			  errno == ENOENT ? "/proc is not mounted" : strerror(errno));
	for (const char *at = list; rc == 0 && at < list + n; at += strlen(at) + 1) {
		if (!xattr_wanted(at, r))
			continue;
		if (!x && !(x = xattrs_make()))
			rc = fail_as(OUT_MEMORY, "read attributes of %s: %m", shown);
		else
			rc = read_xattr(fd, shown, at, bounded, x);
	}
	if (list != short_list)
		free(list);
	if (rc || (x && x->count == 0)) {
		xattrs_free(x);
		return rc;
	}
	if (x)
		qsort(x->list, x->count, sizeof *x->list, compare_xattr_names);
	*out = x;
	return 0;
}

/* ---- comparing and setting ------------------------------------------------------------------ */

/* Lustre's layouts, and ACLs other than POSIX ACLs. */
static bool is_layout(const char *name)
{
	return xattr_kind(name) == XATTR_SPECIAL && strncmp(name, "security.", 9) != 0;
}

/* The host or the file system gives such attributes to files by itself (labels, layouts).  If the
 * source has none, they stay. */
static bool is_native(const char *name)
{
	static const char *const names[] = {"security.selinux", "security.SMACK64",
					    "security.apparmor", "security.ima", "security.evm"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	}
	return is_layout(name);
}

/* Only root can read and set trusted.*. */
static bool is_out_of_reach(const char *name)
{
	return strncmp(name, "trusted.", 8) == 0 && geteuid() != 0;
}

/* One name that either list has, while both are walked in parallel. */
struct xattr_pair {
	size_t actual_at, wanted_at;
	const struct xattr *actual, *wanted; /* NULL: that list lacks the name */
	const char *name;
};
static bool pair_next(struct xattr_pair *p, const struct xattrs *actual,
		      const struct xattrs *wanted)
{
	const struct xattr *a =
		actual && p->actual_at < actual->count ? &actual->list[p->actual_at] : NULL;
	const struct xattr *b =
		wanted && p->wanted_at < wanted->count ? &wanted->list[p->wanted_at] : NULL;
	int order = a && b ? strcmp(a->name, b->name) : a ? -1 : 1;

	if (!a && !b)
		return false;
	p->actual = order <= 0 ? a : NULL;
	p->wanted = order >= 0 ? b : NULL;
	p->actual_at += p->actual != NULL;
	p->wanted_at += p->wanted != NULL;
	p->name = p->actual ? p->actual->name : p->wanted->name;
	return true;
}

/* Must the attribute be set or removed? */
static bool pair_differs(const struct xattr_pair *p, const struct rules *r)
{
	if (!xattr_wanted(p->name, r) || is_out_of_reach(p->name))
		return false;
	if (!p->wanted)
		return !is_native(p->name);
	return !p->actual || p->actual->size != p->wanted->size ||
	       memcmp(p->actual->value, p->wanted->value, p->actual->size) != 0;
}

int xattrs_differ(int fd, const struct xattrs *x, const struct rules *r, bool *acls, bool *others)
{
	struct xattr_pair p = {0};
	struct xattrs *actual;

	*acls = false;
	*others = false;
	if (xattrs_look(fd, "the target", r, false, &actual))
		return -1;
	while (pair_next(&p, actual, x)) {
		/* Layouts differ from file to file. */
		if (!pair_differs(&p, r) || (p.actual && is_layout(p.name)))
			continue;
		if (xattr_kind(p.name) == XATTR_ACL)
			*acls = true;
		else
			*others = true;
	}
	xattrs_free(actual);
	return 0;
}

static const char access_acl[] = "system.posix_acl_access";

/* The rights of the owning group itself, bounded by the mask.  None if the ACL cannot be decoded.
 */
static unsigned read_acl_group(const void *bytes, size_t size)
{
	struct acl_entry *e = calloc(acl_room(size) + 1, sizeof *e);
	int n = e ? acl_decode(bytes, size, e) : -1;
	unsigned group = 0, mask = 7;

	for (int i = 0; i < n; i++) {
		if (e[i].tag == ACL_GROUP_OBJ)
			group = e[i].perm;
		else if (e[i].tag == ACL_MASK)
			mask = e[i].perm;
	}
	free(e);
	return group & mask;
}

static void set_acl_mode(struct xattr *acl, mode_t mode)
{
	struct acl_entry *e = calloc(acl_room(acl->size) + 1, sizeof *e);
	int n = e ? acl_decode(acl->value, acl->size, e) : -1;
	bool masked = false;

	for (int i = 0; i < n; i++)
		masked |= e[i].tag == ACL_MASK;
	for (int i = 0; i < n; i++) {
		if (e[i].tag == ACL_USER_OBJ)
			e[i].perm = mode >> 6 & 7;
		else if (e[i].tag == (masked ? ACL_MASK : ACL_GROUP_OBJ))
			e[i].perm = mode >> 3 & 7;
		else if (e[i].tag == ACL_OTHER)
			e[i].perm = mode & 7;
	}
	if (n > 0)
		acl_encode(e, (size_t)n, acl->value);
	free(e);
}

void xattrs_set_mode(struct xattrs *x, mode_t mode)
{
	for (size_t i = 0; x && i < x->count; i++) {
		if (strcmp(x->list[i].name, access_acl) == 0)
			set_acl_mode(&x->list[i], mode);
	}
}

static unsigned read_group_without(int fd, const struct xattr *acl)
{
	void *actual = malloc(acl->size + 1);
	ssize_t n = actual ? xattr_get(fd, access_acl, actual, acl->size + 1) : -1;
	bool same = n == (ssize_t)acl->size && memcmp(actual, acl->value, acl->size) == 0;

	free(actual);
	return same ? 7 : read_acl_group(acl->value, acl->size);
}

unsigned xattrs_group_without(int fd, const struct xattrs *x)
{
	for (size_t i = 0; x && i < x->count; i++) {
		if (strcmp(x->list[i].name, access_acl) == 0)
			return read_group_without(fd, &x->list[i]);
	}
	return 7;
}

int xattrs_group_without_acl(int fd, int old, const char *shown, unsigned *group)
{
	const struct rules acls = {.acls = true};
	struct xattrs *x;
	int ret = xattrs_look(old, shown, &acls, false, &x);

	*group = ret ? 0 : xattrs_group_without(fd, x);
	xattrs_free(x);
	return ret;
}

static int pair_set(int fd, const char *shown, const struct xattr_pair *p)
{
	if (!p->wanted) {
		/* Without the ACL the group would get the mask of all that the ACL names. */
		if (strcmp(p->name, access_acl) == 0)
			xattr_narrow_group(fd, read_acl_group(p->actual->value, p->actual->size));
		if (xattr_remove(fd, p->name) && errno != ENODATA)
			return fail("remove %s from %s: %m", p->name, shown);
		return 0;
	}
	if (xattr_put(fd, p->name, p->wanted->value, p->wanted->size) == 0)
		return 0;
	return fail("set %s of %s: %m", p->name, shown);
}

/* Sets the ACLs, or all other attributes.  *first: the first failure. */
static void set_xattr_pairs(int fd, const char *shown, const struct xattrs *actual,
			    const struct xattrs *x, const struct rules *r, bool acls,
			    struct failure *first)
{
	struct xattr_pair p = {0};

	while (pair_next(&p, actual, x)) {
		if ((xattr_kind(p.name) == XATTR_ACL) == acls && pair_differs(&p, r) &&
		    pair_set(fd, shown, &p) && first->code == OUT_DONE)
			*first = *failed();
	}
}

int xattrs_set(int fd, const char *shown, const struct xattrs *x, const struct rules *r)
{
	struct failure first = {.code = OUT_DONE};
	struct xattrs *actual;
	mode_t mode;

	if (!r->acls && !r->xattrs && !r->xattrs_all)
		return 0;
	if (!x && xattr_list(fd, NULL, 0) == 0)
		return 0;
	xattr_widen(fd, &mode);
	if (xattrs_look(fd, shown, r, false, &actual))
		first = *failed();
	set_xattr_pairs(fd, shown, actual, x, r, false, &first);
	/* An access ACL changes the mode, so it is set after the mode was restored. */
	xattr_narrow(fd, mode);
	set_xattr_pairs(fd, shown, actual, x, r, true, &first);
	xattrs_free(actual);
	return first.code == OUT_DONE ? 0 : fail_again(&first);
}

/* ---- attributes of a replaced file ---------------------------------------------------------- */

/* Not capabilities, which are dropped like set-id bits, nor hashes (IMA, EVM), which belong to the
 * old content. */
static bool survives_replacement(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 ||
	       strcmp(name, access_acl) == 0 || strcmp(name, "security.selinux") == 0;
}

static bool keep_xattr(int fd, int old, const char *name, char *value)
{
	ssize_t n = xattr_get(old, name, value, VALUE_MAX);

	if (n < 0 && is_absent_error(errno))
		return true;
	/* The host's policy may forbid setting a label; that is no failure. */
	return (n >= 0 && xattr_put(fd, name, value, (size_t)n) == 0) ||
	       strncmp(name, "security.", 9) == 0;
}

bool xattrs_keep(int fd, int old)
{
	ssize_t n = xattr_list(old, NULL, 0);
	bool all = true;
	char *list;

	if (n <= 0)
		return n == 0 || is_absent_error(errno);
	list = malloc(NAMES_MAX + VALUE_MAX);
	if (!list)
		return false;
	n = xattr_list(old, list, NAMES_MAX);
	if (n < 0)
		all = is_absent_error(errno);
	for (char *at = list; n > 0 && at < list + n; at += strlen(at) + 1) {
		if (survives_replacement(at))
			all = keep_xattr(fd, old, at, list + NAMES_MAX) && all;
	}
	free(list);
	return all;
}
