/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "session/channel/channel.h"

static int on_frame(void *ctx, const struct frame *f)
{
	struct rig_end *e = ctx;

	/* A played end need not have a listener. */
	if (e->play)
		return e->hear ? e->hear(e, f) : 0;
	return copy_on_frame(e->copy, f);
}

static void on_fail(void *ctx)
{
	struct rig_end *e = ctx;

	copy_on_fail(e->copy);
}

static void on_file(void *ctx, const char *name, const struct failure *f)
{
	struct rig_end *e = ctx;

	(void)name;
	e->told++;
	e->told_last = *f;
}

static void on_event(void *ctx, const struct msg_event *m)
{
	struct rig_end *e = ctx;
	struct rig_event *to = &e->events[e->event_count < RIG_EVENTS ? e->event_count : 0];

	e->event_count++;
	*to = (struct rig_event){
		.what = m->what,
		.code = m->code,
		.deleted = m->deleted,
		.size = m->size,
	};
	snprintf(to->change, sizeof to->change, "%s", m->change);
	snprintf(to->digest, sizeof to->digest, "%s", m->digest);
	snprintf(to->path, sizeof to->path, "%.*s", (int)m->path_len, m->path);
}

const struct rig_event *rig_event(const struct rig_end *e, const char *path)
{
	for (unsigned i = 0; i < e->event_count && i < RIG_EVENTS; i++) {
		if (strcmp(e->events[i].path, path) == 0)
			return &e->events[i];
	}
	return NULL;
}

static int open_session(struct rig_end *e)
{
	bool sink = e->role == ROLE_SINK;
	struct session_opts o = {
		.role = e->role,
		.want = TRANSPORT_TCP,
		.listens = sink,
		.lanes = e->rig->lanes,
		.depth = e->rig->depth,
		.block_size = e->rig->block_size,
		.memory = UINT64_MAX,
		.timeout_ms = e->rig->timeout_ms,
		.on_frame = on_frame,
		.on_fail = on_fail,
		.ctx = e,
	};
	char host[HOST_MAX];
	struct channel *ch;

	memset(o.secret, 7, sizeof o.secret);
	snprintf(o.host, sizeof o.host, "%s", sink ? "sinkhost" : "sourcehost");
	snprintf(o.peer, sizeof o.peer, "%s", sink ? "sourcehost" : "sinkhost");
	if (channel_over_fds(e->fd, e->fd, &ch))
		return -1;
	return session_open(ch, NULL, 0, &o, host, &e->session);
}

static int run(struct rig_end *e)
{
	if (open_session(e))
		return -1;
	if (e->play)
		return e->play(e, e->ctx);
	if (e->role == ROLE_SOURCE)
		return source_run(e->copy, e->session, &e->rig->from, &e->tally, &e->result);
	return sink_run(e->copy, e->session, &e->rig->to, &e->tally, &e->result);
}

static void *end_thread(void *arg)
{
	struct rig_end *e = arg;

	e->rc = run(e);
	if (e->rc)
		e->failure = *failed();
	if (e->session)
		session_flush(e->session);
	session_close(e->session);
	e->session = NULL;
	return NULL;
}

static void end_init(struct rig *r, struct rig_end *e, enum role role)
{
	e->rig = r;
	e->role = role;
	e->result.on_file = on_file;
	e->result.on_event = on_event;
	e->result.ctx = e;
}

void rig_init(struct rig *r)
{
	*r = (struct rig){.lanes = 2, .depth = 4, .block_size = 64 << 10};
	r->from.stream.fd = -1;
	r->to.stream.fd = -1;
	end_init(r, &r->source, ROLE_SOURCE);
	end_init(r, &r->sink, ROLE_SINK);
}

void rig_names(struct rig *r, char *const *names, unsigned count, const char *target)
{
	r->from.names = names;
	r->from.count = count;
	r->to.wants = names;
	r->to.count = count;
	r->to.target = target;
	r->to.many = count > 1;
}

struct rules *rig_rules(struct rig *r)
{
	if (!r->from.rules)
		r->rules = RULES_PLAIN;
	r->from.rules = r->to.rules = &r->rules;
	return &r->rules;
}

int rig_start(struct rig *r)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		return -1;
	r->source.fd = fd[0];
	r->sink.fd = fd[1];
	if (copy_new(&source_role, &r->source.copy) || copy_new(&sink_role, &r->sink.copy))
		return -1;
	if (pthread_create(&r->source.thread, NULL, end_thread, &r->source) ||
	    pthread_create(&r->sink.thread, NULL, end_thread, &r->sink))
		return -1;
	return 0;
}

void rig_join(struct rig *r)
{
	pthread_join(r->source.thread, NULL);
	pthread_join(r->sink.thread, NULL);
	copy_free(r->source.copy);
	copy_free(r->sink.copy);
}

int rig_run(struct rig *r)
{
	if (rig_start(r))
		return -1;
	rig_join(r);
	return r->source.rc || r->sink.rc ? -1 : 0;
}

void rig_cut(struct rig *r)
{
	shutdown(r->source.fd, SHUT_RDWR);
}

/* ---- files --------------------------------------------------------------------------- */

int make_file(const char *name, uint64_t size, uint32_t seed)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	uint8_t buf[4096];
	int ret = fd < 0 ? -1 : 0;

	while (ret == 0 && size > 0) {
		size_t n = size < sizeof buf ? (size_t)size : sizeof buf;

		for (size_t i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			buf[i] = (uint8_t)(seed >> 24);
		}
		ret = write_full(fd, buf, n);
		size -= n;
	}
	close_fd(fd);
	return ret;
}

int make_text(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int ret = fd < 0 ? -1 : write_full(fd, text, strlen(text));

	close_fd(fd);
	return ret;
}

static uint8_t *load(const char *name, size_t *len)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	uint8_t *bytes = NULL;
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0) {
		bytes = malloc((size_t)st.st_size + 1);
		*len = (size_t)st.st_size;
	}
	if (bytes && read_full(fd, bytes, *len) != (ssize_t)*len) {
		free(bytes);
		bytes = NULL;
	}
	close_fd(fd);
	return bytes;
}

bool same_content(const char *a, const char *b)
{
	size_t la = 0, lb = 0;
	uint8_t *x = load(a, &la), *y = load(b, &lb);
	bool same = x && y && la == lb && memcmp(x, y, la) == 0;

	free(x);
	free(y);
	return same;
}

bool has_text(const char *name, const char *text)
{
	size_t len = 0;
	uint8_t *x = load(name, &len);
	bool same = x && len == strlen(text) && memcmp(x, text, len) == 0;

	free(x);
	return same;
}

unsigned count_files(const char *prefix)
{
	DIR *d = opendir(".");
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)) != NULL)
		n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
	if (d)
		closedir(d);
	return n;
}
