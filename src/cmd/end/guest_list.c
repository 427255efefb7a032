/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/guest_list.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/worker.h"
#include "copy/walk/walk_list.h"
#include "session/channel/framer.h"

/* How long a client may take nothing: it shows the listing to somebody who reads. */
enum { LIST_WAIT_MS = 120000 };

static int send_entry(struct channel *ch, const struct msg_entry *m)
{
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);

	msg_entry_encode(&w, m);
	return frame_write(ch, MSG_ENTRY, body, w.used, clock_ms() + LIST_WAIT_MS);
}

static int send_modules(const struct guest *g, struct channel *ch)
{
	static struct msg_entry m = {.kind = ENTRY_MODULE};

	for (unsigned i = 0; i < g->listed_count; i++) {
		snprintf(m.name, sizeof m.name, "%s", g->listed[i].name);
		snprintf(m.about, sizeof m.about, "%s", g->listed[i].comment);
		if (send_entry(ch, &m))
			return -1;
	}
	return 0;
}

static enum entry_kind kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return ENTRY_DIR;
	case S_IFLNK:
		return ENTRY_SYMLINK;
	case S_IFIFO:
		return ENTRY_FIFO;
	case S_IFCHR:
		return ENTRY_CHAR;
	case S_IFBLK:
		return ENTRY_BLOCK;
	case S_IFSOCK:
		return ENTRY_SOCKET;
	default:
		return ENTRY_FILE;
	}
}

static int on_entry(void *ctx, const char *name, const struct stat *st, const char *link)
{
	static struct msg_entry m;

	m.kind = (uint8_t)kind_of(st->st_mode);
	m.mode = st->st_mode & 07777;
	m.size = (uint64_t)st->st_size;
	m.mtime = st->st_mtim.tv_sec;
	snprintf(m.name, sizeof m.name, "%s", name);
	snprintf(m.about, sizeof m.about, "%s", link);
	return send_entry(ctx, &m);
}

int guest_list(const struct guest *g, const char *path, struct channel *ch)
{
	if (!*g->module)
		return *path ? fail_as(OUT_NO_SOURCE, "%s is in no module", path)
			     : send_modules(g, ch);
	return guest_check_list(g, path) ? -1 : walk_list(path, on_entry, ch);
}

void guest_list_await(int fd)
{
	uint64_t deadline_ms = clock_ms() + LIST_WAIT_MS;
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	while (!cancelled() && poll(&p, 1, clock_left(deadline_ms)) < 0 && errno == EINTR)
		;
}
