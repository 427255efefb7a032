/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "lane/cipher.h"
#include "protocol/decoder.h"
#include "protocol/message.h"

#include <string.h>

enum { GREETING_MAGIC_SIZE = sizeof GREETING_MAGIC - 1, VERBOSE_MAX = 3, SIGNAL_MAX = 64 };

void msg_greeting_encode(struct writer *w, const struct msg_greeting *m)
{
	put_bytes(w, GREETING_MAGIC, GREETING_MAGIC_SIZE);
	put_u16(w, m->version);
	put_str(w, m->release);
}

int msg_greeting_decode(const struct frame *f, struct msg_greeting *m)
{
	struct decoder d = decoder_of(f);
	uint8_t magic[GREETING_MAGIC_SIZE];

	take_bytes(&d.r, magic, sizeof magic);
	decoder_require(&d, memcmp(magic, GREETING_MAGIC, sizeof magic) == 0, "magic");
	m->version = take_u16(&d.r);
	take_text(&d, m->release, sizeof m->release, "release");
	return decoder_finish(&d);
}

void msg_module_encode(struct writer *w, const struct msg_module *m)
{
	put_u16(w, m->version);
	put_str(w, m->name);
}

int msg_module_decode(const struct frame *f, struct msg_module *m)
{
	struct decoder d = decoder_of(f);

	m->version = take_u16(&d.r);
	if (!d.r.bad && m->version != PROTOCOL_VERSION)
		return fail_as(OUT_VERSION, "the client has protocol version %u, this rdcpd has %d",
			       m->version, PROTOCOL_VERSION);
	take_text(&d, m->name, sizeof m->name, "name");
	return decoder_finish(&d);
}

void msg_entry_encode(struct writer *w, const struct msg_entry *m)
{
	put_u8(w, m->kind);
	put_u16(w, m->mode);
	put_u64(w, m->size);
	put_u64(w, (uint64_t)m->mtime);
	put_str(w, m->name);
	put_str(w, m->about);
}

int msg_entry_decode(const struct frame *f, struct msg_entry *m)
{
	struct decoder d = decoder_of(f);

	m->kind = take_u8(&d.r);
	decoder_require(&d, m->kind >= ENTRY_MODULE && m->kind <= ENTRY_SOCKET, "kind");
	m->mode = take_u16(&d.r);
	decoder_require(&d, m->mode <= 07777, "mode");
	m->size = take_u64(&d.r);
	m->mtime = (int64_t)take_u64(&d.r);
	take_text(&d, m->name, sizeof m->name, "name");
	decoder_require(&d, d.r.bad || (*m->name && !strchr(m->name, '/')), "name");
	take_text(&d, m->about, sizeof m->about, "about");
	decoder_require(&d,
			d.r.bad || !*m->about || m->kind == ENTRY_MODULE ||
				m->kind == ENTRY_SYMLINK,
			"about");
	return decoder_finish(&d);
}

void msg_start_encode(struct writer *w, const struct msg_start *m)
{
	put_u16(w, m->version);
	put_u8(w, m->role);
	put_u8(w, m->want);
	put_u8(w, m->verbose);
	put_u64(w, m->flags);
	put_bytes(w, m->secret, sizeof m->secret);
	put_u16(w, m->lanes);
	put_u16(w, m->depth);
	put_u32(w, m->block_size);
	put_u64(w, m->memory);
	put_u64(w, m->bwlimit);
	put_u32(w, m->timeout_ms);
	put_u32(w, m->connect_timeout_ms);
	put_u16(w, m->port_lo);
	put_u16(w, m->port_hi);
	put_str(w, m->host);
	put_str(w, m->peer);
	put_str(w, m->address);
	put_str(w, m->target);
	put_u64(w, m->min_size);
	put_u64(w, m->max_size);
	put_u64(w, m->max_delete);
	put_u8(w, m->digest);
	put_str(w, m->chmod);
	put_str(w, m->chown);
	put_str(w, m->suffix);
	put_str(w, m->backup_dir);
	put_u8(w, m->rdma_op);
	put_u16(w, m->rails);
	put_u8(w, m->direct);
	put_u64(w, m->memory_bytes);
	put_u16(w, m->tos);
	put_u8(w, m->encrypt);
}

static void start_take_limits(struct decoder *d, struct msg_start *m)
{
	m->lanes = take_u16(&d->r);
	decoder_require(d, m->lanes <= LANE_COUNT_MAX, "lanes");
	m->depth = take_u16(&d->r);
	decoder_require(d, m->depth <= LANE_DEPTH_MAX, "depth");
	m->block_size = take_u32(&d->r);
	decoder_require(d, m->block_size == 0 || block_size_fits(m->block_size), "block_size");
	m->memory = take_u64(&d->r);
	m->bwlimit = take_u64(&d->r);
	m->timeout_ms = take_u32(&d->r);
	decoder_require(d, m->timeout_ms <= INT32_MAX, "timeout_ms");
	m->connect_timeout_ms = take_u32(&d->r);
	decoder_require(d, m->connect_timeout_ms <= INT32_MAX, "connect_timeout_ms");
	m->port_lo = take_u16(&d->r);
	m->port_hi = take_u16(&d->r);
	decoder_require(d, m->port_lo <= m->port_hi && (m->port_lo || !m->port_hi), "port_hi");
}

static void start_take_tree(struct decoder *d, struct msg_start *m)
{
	m->min_size = take_u64(&d->r);
	m->max_size = take_u64(&d->r);
	m->max_delete = take_u64(&d->r);
	m->digest = take_u8(&d->r);
	decoder_require(d, m->digest < CONTENT_DIGESTS, "digest");
	take_text(d, m->chmod, sizeof m->chmod, "chmod");
	take_text(d, m->chown, sizeof m->chown, "chown");
	take_text(d, m->suffix, sizeof m->suffix, "suffix");
	take_text(d, m->backup_dir, sizeof m->backup_dir, "backup_dir");
	m->rdma_op = take_u8(&d->r);
	decoder_require(d, m->rdma_op <= RDMA_OP_WRITE_SEND, "rdma_op");
	m->rails = take_u16(&d->r);
	m->direct = take_u8(&d->r);
	decoder_require(d, m->direct < DIRECTS, "direct");
	m->memory_bytes = take_u64(&d->r);
	m->tos = take_u16(&d->r);
	decoder_require(d, m->tos <= TOS_MOST, "tos");
	m->encrypt = take_u8(&d->r);
	decoder_require(d, m->encrypt < ENCRYPT_WISHES, "encrypt");
}

int msg_start_decode(const struct frame *f, struct msg_start *m)
{
	struct decoder d = decoder_of(f);

	m->version = take_u16(&d.r);
	if (!d.r.bad && m->version != PROTOCOL_VERSION)
		return fail_as(OUT_VERSION, "the conductor speaks protocol %u, this end speaks %u",
			       m->version, PROTOCOL_VERSION);
	m->role = take_u8(&d.r);
	decoder_require(&d, m->role == ROLE_SOURCE || m->role == ROLE_SINK, "role");
	m->want = take_u8(&d.r);
	decoder_require(&d, m->want <= TRANSPORT_SSH, "want");
	m->verbose = take_u8(&d.r);
	decoder_require(&d, m->verbose <= VERBOSE_MAX, "verbose");
	m->flags = take_u64(&d.r);
	decoder_require(&d, (m->flags & ~START_ALL) == 0, "flags");
	take_bytes(&d.r, m->secret, sizeof m->secret);
	decoder_require(&d, true, "secret");
	start_take_limits(&d, m);
	take_text(&d, m->host, sizeof m->host, "host");
	take_text(&d, m->peer, sizeof m->peer, "peer");
	take_text(&d, m->address, sizeof m->address, "address");
	take_text(&d, m->target, sizeof m->target, "target");
	start_take_tree(&d, m);
	return decoder_finish(&d);
}

void msg_want_encode(struct writer *w, const struct msg_want *m)
{
	put_str(w, m->name);
}

int msg_want_decode(const struct frame *f, struct msg_want *m)
{
	struct decoder d = decoder_of(f);

	take_text(&d, m->name, sizeof m->name, "name");
	return decoder_finish(&d);
}

void msg_rule_encode(struct writer *w, const struct msg_rule *m)
{
	put_u8(w, m->include);
	put_str(w, m->pattern);
}

int msg_rule_decode(const struct frame *f, struct msg_rule *m)
{
	struct decoder d = decoder_of(f);

	m->include = take_bool(&d, "include");
	take_text(&d, m->pattern, sizeof m->pattern, "pattern");
	return decoder_finish(&d);
}

void msg_event_encode(struct writer *w, const struct msg_event *m)
{
	put_u8(w, m->what);
	put_u8(w, m->code);
	put_u8(w, m->deleted);
	put_u64(w, m->size);
	put_str(w, m->change);
	put_str(w, m->digest);
	put_u16(w, m->path_len);
	put_bytes(w, m->path, m->path_len);
}

int msg_event_decode(const struct frame *f, struct msg_event *m)
{
	struct decoder d = decoder_of(f);

	m->what = take_u8(&d.r);
	decoder_require(&d, m->what >= EVENT_FILE && m->what <= EVENT_NODE, "what");
	m->code = take_outcome(&d, true);
	m->deleted = take_bool(&d, "deleted");
	m->size = take_u64(&d.r);
	take_text(&d, m->change, sizeof m->change, "change");
	take_text(&d, m->digest, sizeof m->digest, "digest");
	m->path_len = take_u16(&d.r);
	decoder_require(&d, m->path_len < EVENT_PATH_MAX, "path");
	m->path = (const char *)take_view(&d.r, m->path_len);
	decoder_require(&d, d.r.bad || m->path_len == 0 || !memchr(m->path, '\0', m->path_len),
			"path");
	return decoder_finish(&d);
}

void msg_finding_encode(struct writer *w, const struct msg_finding *m)
{
	put_u8(w, m->state);
	put_u8(w, m->family);
	put_u8(w, m->rdma);
	put_bytes(w, m->addr, sizeof m->addr);
	put_str(w, m->name);
	put_str(w, m->subject);
	put_str(w, m->what);
	put_str(w, m->remedy);
}

int msg_finding_decode(const struct frame *f, struct msg_finding *m)
{
	static const uint8_t zeros[sizeof m->addr];
	struct decoder d = decoder_of(f);
	unsigned len;

	m->state = take_u8(&d.r);
	decoder_require(&d, m->state >= FINDING_OK && m->state <= FINDING_FAILURE, "state");
	m->family = take_u8(&d.r);
	decoder_require(&d, m->family == 0 || m->family == 4 || m->family == 6, "family");
	m->rdma = take_bool(&d, "rdma");
	take_bytes(&d.r, m->addr, sizeof m->addr);
	len = m->family == 6 ? 16 : m->family == 4 ? 4 : 0;
	decoder_require(&d, memcmp(m->addr + len, zeros, sizeof zeros - len) == 0, "addr");
	take_text(&d, m->name, sizeof m->name, "name");
	take_text(&d, m->subject, sizeof m->subject, "subject");
	take_text(&d, m->what, sizeof m->what, "what");
	take_text(&d, m->remedy, sizeof m->remedy, "remedy");
	return decoder_finish(&d);
}

void msg_note_encode(struct writer *w, const struct msg_note *m)
{
	put_u8(w, m->level);
	put_str(w, m->text);
}

int msg_note_decode(const struct frame *f, struct msg_note *m)
{
	struct decoder d = decoder_of(f);

	m->level = take_u8(&d.r);
	decoder_require(&d, m->level <= LOG_TRACE, "level");
	take_text(&d, m->text, sizeof m->text, "text");
	return decoder_finish(&d);
}

void msg_progress_encode(struct writer *w, const struct msg_progress *m)
{
	put_u64(w, m->bytes);
	put_u64(w, m->total);
	put_u64(w, m->files);
	put_u8(w, m->total_known);
}

int msg_progress_decode(const struct frame *f, struct msg_progress *m)
{
	struct decoder d = decoder_of(f);

	m->bytes = take_u64(&d.r);
	m->total = take_u64(&d.r);
	m->files = take_u64(&d.r);
	m->total_known = take_bool(&d, "total_known");
	return decoder_finish(&d);
}

static void counts_put(struct writer *w, const struct msg_counts *c)
{
	put_u64(w, c->regular);
	put_u64(w, c->dirs);
	put_u64(w, c->symlinks);
	put_u64(w, c->hard_links);
	put_u64(w, c->nodes);
	put_u64(w, c->created);
	put_u64(w, c->deleted);
	put_u64(w, c->sent);
	put_u64(w, c->had);
	put_u64(w, c->holes);
	put_u64(w, c->unkept);
}

static void counts_take(struct reader *r, struct msg_counts *c)
{
	c->regular = take_u64(r);
	c->dirs = take_u64(r);
	c->symlinks = take_u64(r);
	c->hard_links = take_u64(r);
	c->nodes = take_u64(r);
	c->created = take_u64(r);
	c->deleted = take_u64(r);
	c->sent = take_u64(r);
	c->had = take_u64(r);
	c->holes = take_u64(r);
	c->unkept = take_u64(r);
}

void msg_verdict_encode(struct writer *w, const struct msg_verdict *m)
{
	put_u8(w, m->code);
	put_str(w, m->host);
	put_str(w, m->text);
	msg_total_encode(w, &m->total);
	put_u8(w, m->transport);
	put_u16(w, m->lanes);
	put_str(w, m->how);
	put_str(w, m->why);
	put_u8(w, m->encrypted);
	put_u8(w, m->cipher);
	put_u64(w, m->ns);
	msg_times_encode(w, &m->times);
	counts_put(w, &m->counts);
}

int msg_verdict_decode(const struct frame *f, struct msg_verdict *m)
{
	struct decoder d = decoder_of(f);

	m->code = take_outcome(&d, true);
	take_text(&d, m->host, sizeof m->host, "host");
	take_text(&d, m->text, sizeof m->text, "text");
	total_take(&d, &m->total);
	m->transport = take_u8(&d.r);
	decoder_require(&d, m->transport <= TRANSPORT_SSH, "transport");
	m->lanes = take_u16(&d.r);
	decoder_require(&d, m->lanes <= LANE_COUNT_MAX, "lanes");
	take_text(&d, m->how, sizeof m->how, "how");
	take_text(&d, m->why, sizeof m->why, "why");
	m->encrypted = take_u8(&d.r);
	decoder_require(&d, m->encrypted < ENCRYPTED_STATES, "encrypted");
	m->cipher = take_u8(&d.r);
	decoder_require(&d, m->cipher <= CIPHER_CHACHA20_POLY1305, "cipher");
	m->ns = take_u64(&d.r);
	times_take(&d, &m->times);
	counts_take(&d.r, &m->counts);
	return decoder_finish(&d);
}

void msg_cancel_encode(struct writer *w, const struct msg_cancel *m)
{
	put_u8(w, m->signo);
}

int msg_cancel_decode(const struct frame *f, struct msg_cancel *m)
{
	struct decoder d = decoder_of(f);

	m->signo = take_u8(&d.r);
	decoder_require(&d, m->signo >= 1 && m->signo <= SIGNAL_MAX, "signo");
	return decoder_finish(&d);
}

void msg_detour_encode(struct writer *w, const struct msg_detour *m)
{
	put_u16(w, m->port);
	put_str(w, m->why);
}

int msg_detour_decode(const struct frame *f, struct msg_detour *m)
{
	struct decoder d = decoder_of(f);

	m->port = take_u16(&d.r);
	decoder_require(&d, m->port != 0, "port");
	take_text(&d, m->why, sizeof m->why, "why");
	return decoder_finish(&d);
}
