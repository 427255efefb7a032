/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes and ACLs, in a peer's records and in a file that any user may have written.
 * An input: a byte of rules, a byte with the properties of the file system, a u32 length, and so
 * many bytes of records; then the attributes of the file: u8 which calls fail, u8 length of the
 * name, the name, u16 length of the value, the value.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "copy/attr/xattrs_impl.h"
#include "expect.h"

enum { ACLS = 1 << 0, PLAIN = 1 << 1, SPECIAL = 1 << 2, NUMERIC = 1 << 3 };
enum { PATH_ONLY = 1 << 0, NO_LIST = 1 << 1, NO_XATTRS = 1 << 2 };
enum { GROWS = 1 << 0, IS_GONE = 1 << 1, CANT_READ = 1 << 2, CANT_SET = 1 << 3 };
enum { OF_FILE = 64, INPUT_MAX = 160 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the file: replaces calls of the C library ---------------------------------------------- */

static struct {
	uint8_t fails;
	char name[256];
	const uint8_t *value;
	uint16_t len;
} has[OF_FILE];
static unsigned count;
static uint8_t is;
static struct owners *told;

static int refuse(int err)
{
	errno = err;
	return -1;
}

static ssize_t list(char *to, size_t size)
{
	size_t used = 0;

	if (is & NO_XATTRS)
		return refuse(EOPNOTSUPP);
	if (is & NO_LIST)
		return refuse(EIO);
	for (unsigned i = 0; i < count; i++) {
		size_t len = strlen(has[i].name) + 1;

		if (size > 0 && used + len > size)
			return refuse(ERANGE);
		if (size > 0)
			memcpy(to + used, has[i].name, len);
		used += len;
	}
	return (ssize_t)used;
}

static ssize_t get(const char *name, void *to, size_t size)
{
	unsigned i = 0;

	while (i < count && strcmp(has[i].name, name) != 0)
		i++;
	if (i == count || has[i].fails & IS_GONE)
		return refuse(ENODATA);
	if (has[i].fails & CANT_READ)
		return refuse(EACCES);
	if (size > 0 && (size < has[i].len || has[i].fails & GROWS))
		return refuse(ERANGE);
	if (size > 0)
		memcpy(to, has[i].value, has[i].len);
	return has[i].len;
}

static int change(const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (has[i].fails & CANT_SET && strcmp(has[i].name, name) == 0)
			return refuse(EPERM);
	return 0;
}

ssize_t flistxattr(int fd, char *to, size_t size)
{
	(void)fd;
	return is & PATH_ONLY ? refuse(EBADF) : list(to, size);
}

ssize_t listxattr(const char *path, char *to, size_t size)
{
	(void)path;
	return list(to, size);
}

ssize_t fgetxattr(int fd, const char *name, void *to, size_t size)
{
	(void)fd;
	return is & PATH_ONLY ? refuse(EBADF) : get(name, to, size);
}

ssize_t getxattr(const char *path, const char *name, void *to, size_t size)
{
	(void)path;
	return get(name, to, size);
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	(void)fd, (void)value, (void)flags;
	expect(size <= XATTR_VALUE_MAX);
	return is & PATH_ONLY ? refuse(EBADF) : change(name);
}

int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
	(void)path, (void)value, (void)size, (void)flags;
	return change(name);
}

int fremovexattr(int fd, const char *name)
{
	(void)fd;
	return is & PATH_ONLY ? refuse(EBADF) : change(name);
}

int removexattr(const char *path, const char *name)
{
	(void)path;
	return change(name);
}

static void make_file(struct reader *in)
{
	for (count = 0; count < OF_FILE && in->left > 0; count++) {
		size_t len;

		has[count].fails = take_u8(in);
		len = take_u8(in);
		take_bytes(in, has[count].name, len);
		has[count].name[len] = '\0';
		has[count].len = take_u16(in);
		has[count].value = take_view(in, has[count].len);
		if (in->bad || !has[count].name[0])
			return;
	}
}

/* ---- the code under test --------------------------------------------------------------------- */

/* An owner is announced once to each lane, always with the same name. */
static void tell(bool group, uint32_t id)
{
	const char *first, *again;

	owners_mark_announced(told, group, id, 0, &first);
	expect(!owners_mark_announced(told, group, id, 0, &again) && strcmp(first, again) == 0);
	expect(owners_map(told, group, id, true) == id);
}

/* Sends all pieces, which must be accepted again, and all owners that ACLs name. */
static void send_all(const struct xattrs *x)
{
	struct xattrs *again = NULL;
	struct record_xattr piece;
	size_t at = 0;
	uint32_t pos = 0, id;
	bool group;

	while (xattrs_next_piece(x, &at, &pos, 777, 1, &piece))
		/* A file system may list a name twice. */
		if (xattrs_add(&again, &piece))
			break;
	xattrs_free(again);
	at = 0;
	while (xattrs_next_owner(x, &at, &group, &id)) {
		expect(id != ACL_NO_ID);
		tell(group, id);
	}
}

static void look(int fd, const struct rules *r)
{
	struct xattrs *x;
	unsigned group;

	if (xattrs_read(fd, "file", r, &x) == 0)
		send_all(x);
	else
		expect(failed()->code == OUT_FILE);
	xattrs_free(x);
	xattrs_umask(fd, 022);
	expect(xattrs_group_without_acl(fd, fd, "file", &group) || group <= 7);
	xattrs_keep(fd, fd);
}

static void store(int fd, struct xattrs *x, const struct rules *r, struct owners *o)
{
	bool acls, others;

	if (!xattrs_whole(x) || xattrs_check(x, "file", r) ||
	    xattrs_localize(x, "file", o, r->numeric_ids)) {
		expect(!xattrs_whole(x) || failed()->code == OUT_PROTOCOL);
		return;
	}
	xattrs_set_mode(x, 0640);
	expect(xattrs_check(x, "file", r) == 0);
	xattrs_differ(fd, x, r, &acls, &others);
	xattrs_set(fd, "file", x, r);
	expect(xattrs_group_without(fd, x) <= 7);
	send_all(x);
}

static void receive(int fd, struct reader *in, const struct rules *r)
{
	static struct record record;
	struct xattrs *x = NULL;
	struct owners *o;

	expect(owners_new(&o) == 0);
	while (record_next(in, &record) > 0) {
		if (record.type == RECORD_OWNER)
			owners_add_name(o, record.owner.group, record.owner.id, record.owner.name);
		else if (record.type == RECORD_XATTR && xattrs_add(&x, &record.xattr))
			break;
	}
	store(fd, x, r, o);
	xattrs_free(x);
	owners_free(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reader all = reader_of(data, size), records;
	struct rules r = RULES_PLAIN;
	uint8_t kinds = take_u8(&all);
	size_t len;
	int fd;

	is = take_u8(&all);
	len = take_u32(&all);
	if (all.bad || size > INPUT_MAX)
		return -1;
	r.acls = kinds & ACLS;
	r.xattrs = kinds & PLAIN;
	r.xattrs_all = kinds & SPECIAL;
	r.numeric_ids = kinds & NUMERIC;
	len = len < all.left ? len : all.left;
	records = reader_of(take_view(&all, len), len);
	make_file(&all);
	fd = memfd_create("file", MFD_CLOEXEC);
	expect(fd >= 0);
	expect(owners_new(&told) == 0);
	look(fd, &r);
	receive(fd, &records, &r);
	owners_free(told);
	owners_free(NULL);
	close(fd);
	return 0;
}
