/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/decoder.h"
#include "protocol/message.h"

#include <string.h>

static const char *const names[] = {
	[MSG_HELLO] = "HELLO",
	[MSG_OFFER] = "OFFER",
	[MSG_CHOICE] = "CHOICE",
	[MSG_NOROUTE] = "NOROUTE",
	[MSG_LANE_DOWN] = "LANE_DOWN",
	[MSG_LANE_STORED] = "LANE_STORED",
	[MSG_PING] = "PING",
	[MSG_PONG] = "PONG",
	[MSG_FILE_RESULT] = "FILE_RESULT",
	[MSG_END] = "END",
	[MSG_DONE] = "DONE",
	[MSG_ERROR] = "ERROR",
	[MSG_STORED] = "STORED",
	[MSG_ANSWERS] = "ANSWERS",
	[MSG_CELLS] = "CELLS",
	[MSG_TIMES] = "TIMES",
	[MSG_LANE_CHECK] = "LANE_CHECK",
	[MSG_LANE_HELD] = "LANE_HELD",
	[MSG_GREETING] = "GREETING",
	[MSG_START] = "START",
	[MSG_WANT] = "WANT",
	[MSG_GO] = "GO",
	[MSG_NOTE] = "NOTE",
	[MSG_PROGRESS] = "PROGRESS",
	[MSG_VERDICT] = "VERDICT",
	[MSG_CANCEL] = "CANCEL",
	[MSG_DETOUR] = "DETOUR",
	[MSG_STUCK] = "STUCK",
	[MSG_LISTENING] = "LISTENING",
	[MSG_RULE] = "RULE",
	[MSG_LISTED] = "LISTED",
	[MSG_EVENT] = "EVENT",
	[MSG_FINDING] = "FINDING",
	[MSG_TAKEN] = "TAKEN",
	[MSG_MODULE] = "MODULE",
	[MSG_LIST] = "LIST",
	[MSG_ENTRY] = "ENTRY",
};

static bool is_type_known(uint8_t type)
{
	return type < sizeof names / sizeof *names && names[type];
}

const char *message_name(uint8_t type)
{
	return is_type_known(type) ? names[type] : "unknown";
}

int decoder_finish(struct decoder *d)
{
	if (!d->wrong && d->r.bad)
		d->wrong = "truncated";
	if (!d->wrong && d->r.left)
		d->wrong = "trailing bytes";
	if (!d->wrong)
		return 0;
	return fail_as(OUT_PROTOCOL, "malformed %s from the peer: %s", d->what, d->wrong);
}

int msg_empty_decode(const struct frame *f)
{
	struct decoder d = decoder_of(f);

	return decoder_finish(&d);
}

/* ---- frames ------------------------------------------------------------------------ */

void frame_head_encode(uint8_t type, uint32_t len, uint8_t to[static FRAME_HEAD])
{
	struct writer w = writer_of(to, FRAME_HEAD);

	put_u32(&w, len);
	put_u8(&w, type);
	put_zeros(&w, 3);
}

int frame_head_decode(const uint8_t from[static FRAME_HEAD], uint8_t *type, uint32_t *len)
{
	struct reader r = reader_of(from, FRAME_HEAD);

	*len = take_u32(&r);
	*type = take_u8(&r);
	if (take_u8(&r) || take_u16(&r))
		return fail_as(OUT_PROTOCOL, "malformed frame from the peer: padding");
	if (!is_type_known(*type))
		return fail_as(OUT_PROTOCOL, "malformed frame from the peer: unknown type %u",
			       *type);
	if (*len > FRAME_BODY_MAX)
		return fail_as(OUT_PROTOCOL, "malformed frame from the peer: %s of %u bytes",
			       names[*type], *len);
	return 0;
}

/* ---- between ends ------------------------------------------------------------------ */

void msg_hello_encode(struct writer *w, const struct msg_hello *m)
{
	put_u16(w, m->version);
	put_u8(w, m->role);
	put_u8(w, m->want);
	put_u64(w, m->features);
	put_u16(w, m->lanes);
	put_u16(w, m->depth);
	put_u32(w, m->block_size);
	put_u64(w, m->memory);
	put_u64(w, m->lockable);
	put_u32(w, m->timeout_ms);
	put_u64(w, m->host_id);
	put_u8(w, m->rdma_op);
	put_u16(w, m->rails);
	put_u8(w, m->encrypt);
	put_u32(w, m->ciphers);
	put_bytes(w, m->nonce, sizeof m->nonce);
	put_str(w, m->host);
	put_str(w, m->no_rdma);
}

int msg_hello_decode(const struct frame *f, struct msg_hello *m)
{
	struct decoder d = decoder_of(f);

	m->version = take_u16(&d.r);
	if (!d.r.bad && m->version != PROTOCOL_VERSION)
		return fail_as(OUT_VERSION, "the peer speaks protocol %u, this end speaks %u",
			       m->version, PROTOCOL_VERSION);
	m->role = take_u8(&d.r);
	decoder_require(&d, m->role == ROLE_SOURCE || m->role == ROLE_SINK, "role");
	m->want = take_u8(&d.r);
	decoder_require(&d, m->want <= TRANSPORT_SSH, "want");
	m->features = take_u64(&d.r);
	m->lanes = take_u16(&d.r);
	decoder_require(&d, m->lanes >= 1 && m->lanes <= LANE_COUNT_MAX, "lanes");
	m->depth = take_u16(&d.r);
	decoder_require(&d, m->depth >= LANE_DEPTH_MIN && m->depth <= LANE_DEPTH_MAX, "depth");
	m->block_size = take_u32(&d.r);
	decoder_require(&d, block_size_fits(m->block_size), "block_size");
	m->memory = take_u64(&d.r);
	m->lockable = take_u64(&d.r);
	m->timeout_ms = take_u32(&d.r);
	decoder_require(&d, m->timeout_ms <= INT32_MAX, "timeout_ms");
	m->host_id = take_u64(&d.r);
	m->rdma_op = take_u8(&d.r);
	decoder_require(&d, m->rdma_op <= RDMA_OP_WRITE_SEND, "rdma_op");
	m->rails = take_u16(&d.r);
	m->encrypt = take_u8(&d.r);
	decoder_require(&d, m->encrypt < ENCRYPT_WISHES, "encrypt");
	m->ciphers = take_u32(&d.r);
	take_bytes(&d.r, m->nonce, sizeof m->nonce);
	decoder_require(&d, true, "nonce");
	take_text(&d, m->host, sizeof m->host, "host");
	take_text(&d, m->no_rdma, sizeof m->no_rdma, "no_rdma");
	return decoder_finish(&d);
}

void msg_offer_encode(struct writer *w, const struct msg_offer *m)
{
	put_u8(w, m->round);
	put_u64(w, m->session);
	put_u8(w, m->count);
	for (unsigned i = 0; i < m->count; i++) {
		put_u8(w, m->places[i].transport);
		put_u8(w, m->places[i].family);
		put_u16(w, m->places[i].port);
		put_bytes(w, m->places[i].addr, sizeof m->places[i].addr);
		put_u32(w, m->places[i].rate);
		put_u8(w, m->places[i].adapter);
	}
	put_str(w, m->no_rdma);
}

static void take_offer_place(struct decoder *d, struct offer_place *p)
{
	static const uint8_t zeros[12];

	p->transport = take_u8(&d->r);
	decoder_require(d, p->transport == TRANSPORT_RDMA || p->transport == TRANSPORT_TCP,
			"transport");
	p->family = take_u8(&d->r);
	decoder_require(d, p->family == 4 || p->family == 6, "family");
	p->port = take_u16(&d->r);
	decoder_require(d, p->port != 0, "port");
	take_bytes(&d->r, p->addr, sizeof p->addr);
	decoder_require(d, p->family != 4 || memcmp(p->addr + 4, zeros, sizeof zeros) == 0, "addr");
	p->rate = take_u32(&d->r);
	p->adapter = take_u8(&d->r);
}

int msg_offer_decode(const struct frame *f, struct msg_offer *m)
{
	struct decoder d = decoder_of(f);
	unsigned rdma = 0;

	m->round = take_u8(&d.r);
	decoder_require(&d, m->round <= 1, "round");
	m->session = take_u64(&d.r);
	decoder_require(&d, m->session != 0, "session");
	m->count = take_u8(&d.r);
	decoder_require(&d, m->count <= 2 * OFFER_MAX, "count");
	for (unsigned i = 0; i < m->count && !d.wrong; i++) {
		take_offer_place(&d, &m->places[i]);
		rdma += m->places[i].transport == TRANSPORT_RDMA;
	}
	decoder_require(&d, d.wrong || (rdma <= OFFER_MAX && m->count - rdma <= OFFER_MAX),
			"count");
	take_text(&d, m->no_rdma, sizeof m->no_rdma, "no_rdma");
	return decoder_finish(&d);
}

void msg_choice_encode(struct writer *w, const struct msg_choice *m)
{
	put_u8(w, m->transport);
	put_str(w, m->why);
}

int msg_choice_decode(const struct frame *f, struct msg_choice *m)
{
	struct decoder d = decoder_of(f);

	m->transport = take_u8(&d.r);
	decoder_require(&d, m->transport >= TRANSPORT_RDMA && m->transport <= TRANSPORT_SSH,
			"transport");
	take_text(&d, m->why, sizeof m->why, "why");
	return decoder_finish(&d);
}

void msg_noroute_encode(struct writer *w, const struct msg_noroute *m)
{
	put_u8(w, m->round);
	put_str(w, m->why);
}

int msg_noroute_decode(const struct frame *f, struct msg_noroute *m)
{
	struct decoder d = decoder_of(f);

	m->round = take_u8(&d.r);
	decoder_require(&d, m->round <= 1, "round");
	take_text(&d, m->why, sizeof m->why, "why");
	return decoder_finish(&d);
}

void msg_lane_down_encode(struct writer *w, const struct msg_lane_down *m)
{
	put_u16(w, m->lane);
	put_u32(w, m->epoch);
	put_str(w, m->why);
}

int msg_lane_down_decode(const struct frame *f, struct msg_lane_down *m)
{
	struct decoder d = decoder_of(f);

	m->lane = take_u16(&d.r);
	decoder_require(&d, m->lane < LANE_COUNT_MAX, "lane");
	m->epoch = take_u32(&d.r);
	take_text(&d, m->why, sizeof m->why, "why");
	return decoder_finish(&d);
}

void msg_lane_stored_encode(struct writer *w, const struct msg_lane_stored *m)
{
	put_u16(w, m->lane);
	put_u32(w, m->epoch);
	put_u64(w, m->stored);
	put_u8(w, m->damaged);
}

int msg_lane_stored_decode(const struct frame *f, struct msg_lane_stored *m)
{
	struct decoder d = decoder_of(f);

	m->lane = take_u16(&d.r);
	decoder_require(&d, m->lane < LANE_COUNT_MAX, "lane");
	m->epoch = take_u32(&d.r);
	m->stored = take_u64(&d.r);
	m->damaged = take_bool(&d, "damaged");
	return decoder_finish(&d);
}

void msg_lane_check_encode(struct writer *w, const struct msg_lane_check *m)
{
	put_u16(w, m->lane);
	put_u32(w, m->epoch);
	put_u32(w, m->mtu);
}

int msg_lane_check_decode(const struct frame *f, struct msg_lane_check *m)
{
	struct decoder d = decoder_of(f);

	m->lane = take_u16(&d.r);
	decoder_require(&d, m->lane < LANE_COUNT_MAX, "lane");
	m->epoch = take_u32(&d.r);
	m->mtu = take_u32(&d.r);
	return decoder_finish(&d);
}

void msg_lane_held_encode(struct writer *w, const struct msg_lane_held *m)
{
	put_u16(w, m->lane);
	put_u32(w, m->epoch);
	put_u32(w, m->mtu);
	put_u8(w, m->busy);
}

int msg_lane_held_decode(const struct frame *f, struct msg_lane_held *m)
{
	struct decoder d = decoder_of(f);

	m->lane = take_u16(&d.r);
	decoder_require(&d, m->lane < LANE_COUNT_MAX, "lane");
	m->epoch = take_u32(&d.r);
	m->mtu = take_u32(&d.r);
	m->busy = take_bool(&d, "busy");
	return decoder_finish(&d);
}

void msg_ping_encode(struct writer *w, const struct msg_ping *m)
{
	put_u64(w, m->cookie);
}

int msg_ping_decode(const struct frame *f, struct msg_ping *m)
{
	struct decoder d = decoder_of(f);

	m->cookie = take_u64(&d.r);
	return decoder_finish(&d);
}

void msg_file_result_encode(struct writer *w, const struct msg_file_result *m)
{
	put_u32(w, m->file);
	put_u8(w, m->code);
	put_str(w, m->text);
}

int msg_file_result_decode(const struct frame *f, struct msg_file_result *m)
{
	struct decoder d = decoder_of(f);

	m->file = take_u32(&d.r);
	m->code = take_outcome(&d, false);
	take_text(&d, m->text, sizeof m->text, "text");
	return decoder_finish(&d);
}

static uint16_t take_count(struct decoder *d, uint16_t most)
{
	uint16_t count = take_u16(&d->r);

	decoder_require(d, count >= 1 && count <= most, "count");
	return d->wrong ? 0 : count;
}

void msg_stored_encode(struct writer *w, const struct msg_stored *m)
{
	put_u16(w, m->count);
	for (unsigned i = 0; i < m->count; i++)
		put_u32(w, m->files[i]);
}

int msg_stored_decode(const struct frame *f, struct msg_stored *m)
{
	struct decoder d = decoder_of(f);

	m->count = take_count(&d, STORED_MAX);
	for (unsigned i = 0; i < m->count && !d.wrong; i++) {
		m->files[i] = take_u32(&d.r);
		decoder_require(&d, m->files[i] != 0, "file");
	}
	return decoder_finish(&d);
}

void msg_answers_encode(struct writer *w, const struct msg_answers *m)
{
	put_u16(w, m->count);
	for (unsigned i = 0; i < m->count; i++) {
		put_u32(w, m->of[i].file);
		put_u8(w, m->of[i].answer);
	}
}

int msg_answers_decode(const struct frame *f, struct msg_answers *m)
{
	struct decoder d = decoder_of(f);

	m->count = take_count(&d, ANSWERS_MAX);
	for (unsigned i = 0; i < m->count && !d.wrong; i++) {
		m->of[i].file = take_u32(&d.r);
		decoder_require(&d, m->of[i].file != 0, "file");
		m->of[i].answer = take_u8(&d.r);
		decoder_require(&d,
				m->of[i].answer >= ANSWER_SEND && m->of[i].answer <= ANSWER_CLONED,
				"answer");
	}
	return decoder_finish(&d);
}

void msg_cells_encode(struct writer *w, const struct msg_cells *m)
{
	put_u32(w, m->file);
	put_u64(w, m->pos);
	put_u16(w, m->count);
	for (unsigned i = 0; i < m->count; i++) {
		put_u64(w, m->digest[i][0]);
		put_u64(w, m->digest[i][1]);
	}
}

int msg_cells_decode(const struct frame *f, struct msg_cells *m)
{
	struct decoder d = decoder_of(f);

	m->file = take_u32(&d.r);
	decoder_require(&d, m->file != 0, "file");
	m->pos = take_u64(&d.r);
	decoder_require(&d, m->pos % CELL == 0 && m->pos <= INT64_MAX, "pos");
	m->count = take_count(&d, CELLS_MAX);
	/* The last cell may be shorter than CELL, but it begins below the largest file size.
	 */
	decoder_require(&d, d.wrong || m->pos + (uint64_t)(m->count - 1) * CELL <= INT64_MAX,
			"count");
	for (unsigned i = 0; i < m->count && !d.wrong; i++) {
		m->digest[i][0] = take_u64(&d.r);
		m->digest[i][1] = take_u64(&d.r);
	}
	return decoder_finish(&d);
}

void msg_total_encode(struct writer *w, const struct msg_total *m)
{
	put_u64(w, m->files);
	put_u64(w, m->same);
	put_u64(w, m->others);
	put_u64(w, m->failed);
	put_u64(w, m->bytes);
	put_u64(w, m->digest[0]);
	put_u64(w, m->digest[1]);
	put_u8(w, m->incomplete);
	put_u64(w, m->target);
}

void total_take(struct decoder *d, struct msg_total *m)
{
	m->files = take_u64(&d->r);
	m->same = take_u64(&d->r);
	m->others = take_u64(&d->r);
	m->failed = take_u64(&d->r);
	m->bytes = take_u64(&d->r);
	m->digest[0] = take_u64(&d->r);
	m->digest[1] = take_u64(&d->r);
	m->incomplete = take_bool(d, "incomplete");
	m->target = take_u64(&d->r);
}

int msg_total_decode(const struct frame *f, struct msg_total *m)
{
	struct decoder d = decoder_of(f);

	total_take(&d, m);
	decoder_require(&d, f->type != MSG_DONE || !m->incomplete, "incomplete");
	decoder_require(&d, f->type == MSG_DONE || m->target == 0, "target");
	return decoder_finish(&d);
}

void msg_times_encode(struct writer *w, const struct msg_times *m)
{
	put_u8(w, m->kind);
	put_u8(w, m->same_host);
	put_u16(w, m->used);
	put_u16(w, m->cpus);
	put_u32(w, m->rtt_us);
	put_u32(w, m->block);
	put_u64(w, m->window);
	put_u64(w, m->moved);
	put_u64(w, m->ns_fill);
	put_u64(w, m->ns_free);
	put_u64(w, m->ns_send);
	put_u64(w, m->ns_idle);
	put_u64(w, m->ns_paced);
	put_u64(w, m->ns_block);
	put_u64(w, m->ns_store);
	put_u64(w, m->ns_finish);
	put_u64(w, m->ns_cpu);
	put_u64(w, m->ns_hottest);
	put_u64(w, m->ns_busiest);
	put_u64(w, m->ns_longest);
	put_u64(w, m->ns_cipher);
	put_u64(w, m->ns_compress);
}

void times_take(struct decoder *d, struct msg_times *m)
{
	m->kind = take_u8(&d->r);
	decoder_require(d, m->kind < STAGE_KINDS, "kind");
	m->same_host = take_bool(d, "same_host");
	m->used = take_u16(&d->r);
	decoder_require(d, m->used <= LANE_COUNT_MAX, "used");
	m->cpus = take_u16(&d->r);
	m->rtt_us = take_u32(&d->r);
	m->block = take_u32(&d->r);
	m->window = take_u64(&d->r);
	m->moved = take_u64(&d->r);
	m->ns_fill = take_u64(&d->r);
	m->ns_free = take_u64(&d->r);
	m->ns_send = take_u64(&d->r);
	m->ns_idle = take_u64(&d->r);
	m->ns_paced = take_u64(&d->r);
	m->ns_block = take_u64(&d->r);
	m->ns_store = take_u64(&d->r);
	m->ns_finish = take_u64(&d->r);
	m->ns_cpu = take_u64(&d->r);
	m->ns_hottest = take_u64(&d->r);
	m->ns_busiest = take_u64(&d->r);
	m->ns_longest = take_u64(&d->r);
	m->ns_cipher = take_u64(&d->r);
	m->ns_compress = take_u64(&d->r);
}

int msg_times_decode(const struct frame *f, struct msg_times *m)
{
	struct decoder d = decoder_of(f);

	times_take(&d, m);
	return decoder_finish(&d);
}

void msg_error_encode(struct writer *w, const struct msg_error *m)
{
	put_u8(w, m->code);
	put_str(w, m->host);
	put_str(w, m->text);
}

int msg_error_decode(const struct frame *f, struct msg_error *m)
{
	struct decoder d = decoder_of(f);

	m->code = take_outcome(&d, false);
	take_text(&d, m->host, sizeof m->host, "host");
	take_text(&d, m->text, sizeof m->text, "text");
	return decoder_finish(&d);
}
