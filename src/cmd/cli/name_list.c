/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/name_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "protocol/message.h"

enum { READ_SIZE = 64 << 10 };

struct name_list {
	const char *path;
	int fd;
	bool nul;
	size_t used; /* bytes of the incomplete name, at the start of bytes[] */
	char bytes[READ_SIZE];
};

int name_list_open(const char *path, bool nul, struct name_list **out)
{
	struct name_list *l = calloc(1, sizeof *l);

	if (!l)
		return fail_as(OUT_MEMORY, "read %s: %m", path);
	l->nul = nul;
	l->path = strcmp(path, "-") == 0 ? "stdin" : path;
	l->fd = l->path == path ? RETRIED(open(path, O_RDONLY | O_CLOEXEC)) : STDIN_FILENO;
	if (l->fd < 0) {
		fail_as(OUT_USAGE, "open %s: %m", path);
		free(l);
		return -1;
	}
	*out = l;
	return 0;
}

void name_list_close(struct name_list *l)
{
	if (!l)
		return;
	if (l->fd != STDIN_FILENO)
		close_fd(l->fd);
	free(l);
}

int name_list_fd(const struct name_list *l)
{
	return l->fd;
}

static bool is_comment(const struct name_list *l, const char *name)
{
	return !l->nul && (*name == '#' || *name == ';');
}

/* name has len bytes, and room for a NUL after them. */
static int deliver_name(const struct name_list *l, char *name, size_t len,
			int (*take)(void *ctx, const char *name), void *ctx)
{
	if (!l->nul && len > 0 && name[len - 1] == '\r')
		len--;
	name[len] = '\0';
	if (len == 0 || is_comment(l, name))
		return 0;
	if (len >= NAME_MAX_WIRE)
		return fail_as(OUT_USAGE, "%s: a name of %zu bytes is too long", l->path, len);
	if (strlen(name) != len)
		return fail_as(OUT_USAGE,
			       "%s: a name contains a NUL: use --from0 if the names end with NULs",
			       l->path);
	return take(ctx, name);
}

int name_list_read(struct name_list *l, int (*take)(void *ctx, const char *name), void *ctx)
{
	/* One byte stays free, for the NUL after a last name without a terminator. */
	ssize_t n = read(l->fd, l->bytes + l->used, sizeof l->bytes - 1 - l->used);
	char *at = l->bytes, *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (n < 0)
		return fail_as(OUT_USAGE, "read %s: %m", l->path);
	l->used += (size_t)n;
	while ((end = memchr(at, l->nul ? '\0' : '\n', l->used))) {
		size_t len = (size_t)(end - at);

		if (deliver_name(l, at, len, take, ctx))
			return -1;
		l->used -= len + 1;
		at = end + 1;
	}
	memmove(l->bytes, at, l->used);
	if (n == 0) {
		if (deliver_name(l, l->bytes, l->used, take, ctx))
			return -1;
		l->used = 0;
		return 0;
	}
	/* A comment may be longer than the buffer: keep only its first byte. */
	if (l->used > NAME_MAX_WIRE && is_comment(l, l->bytes))
		l->used = 1;
	if (l->used > NAME_MAX_WIRE)
		return fail_as(OUT_USAGE, "%s: a name is longer than %d bytes", l->path,
			       NAME_MAX_WIRE - 1);
	return 1;
}
