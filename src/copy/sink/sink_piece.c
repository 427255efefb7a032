/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <string.h>
#include "base/clock.h"
#include "base/fail.h"

/* Checks that HAVE names cells that this end has sent, and adds their digests.  Lock held. */
static int admit_have(struct sink_file *f, const struct piece *p)
{
	uint64_t end = p->pos + p->len;
	bool whole = end % CELL == 0 || end == f->r.size;

	/* A cloned file arrives as one HAVE, without digests. */
	if (f->cloned && p->pos == 0 && p->len == f->r.size && f->had == 0) {
		f->had = p->len;
		return 0;
	}
	if (!f->cells || !whole ||
	    !sent_cells_take(f->cells, p->pos, p->len, f->sum, f->nonzero_sum))
		return fail_as(OUT_PROTOCOL,
			       "the peer sends HAVE for bytes of %s that this end did not report",
			       sink_shown(f));
	f->had += p->len;
	return 0;
}

/* Checks and counts a piece.  Lock held. */
static int admit_piece(struct sink_lane *l, struct sink_file *f, const struct piece *p)
{
	uint64_t all;

	if (!f || !(f->announced & sink_lane_bit(l)))
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of a file it did not announce");
	if (p->pos > (uint64_t)INT64_MAX - p->len)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes beyond the maximum file size");
	if (!(f->r.flags & FILE_STREAM) && p->pos + p->len > f->r.size)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes beyond the end of %s",
			       sink_shown(f));
	all = f->data + f->holes + p->len;
	if (all > INT64_MAX || (!(f->r.flags & FILE_STREAM) && all > f->r.size))
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s twice", sink_shown(f));
	if (!p->bytes && !p->have && !(f->r.flags & FILE_SPARSE))
		return fail_as(OUT_PROTOCOL,
			       "the peer sends a hole in %s, which it announced without holes",
			       sink_shown(f));
	if (p->have && admit_have(f, p))
		return -1;
	*(p->bytes ? &f->data : &f->holes) += p->len;
	if ((p->bytes || p->have) && p->pos + p->len > f->reach)
		f->reach = p->pos + p->len;
	if (f->ended && (f->data > f->end.data || f->holes > f->end.holes))
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s after its end",
			       sink_shown(f));
	return 0;
}

/* What a piece adds to the sums of its file. */
struct hashed {
	uint64_t sum[2], nonzero_sum[2];
};

static void add_to_digest(struct digest *d, const struct piece *p, bool last)
{
	if (p->block)
		digest_add_block(d, p->block, last);
	else
		digest_add(d, p->pos, p->bytes, p->len);
}

void sink_drain_digest(struct digest *d, uint64_t sum[2], uint64_t nonzero_sum[2])
{
	uint64_t d_sum[2], d_nonzero_sum[2];

	digest_sum(d, d_sum);
	digest_nonzero_sum(d, d_nonzero_sum);
	sum_add(sum, d_sum);
	sum_add(nonzero_sum, d_nonzero_sum);
	digest_reset(d);
}

/* The digest of the cell that is arriving on this lane.  Other files' pieces may come before its
 * rest. */
static struct digest *get_partial_digest(struct sink_lane *l, struct sink_file *f)
{
	struct digest **d = &f->partial[l->index];

	if (!*d)
		*d = digest_new();
	if (*d && l->sink->rules->verify)
		digest_track_nonzero(*d);
	return *d;
}

/* A file may be stored in any order, but the bytes of one cell arrive in order on one lane. */
static int hash_piece(struct sink_lane *l, struct sink_file *f, const struct piece *p,
		      struct hashed *h)
{
	uint64_t end = p->pos + p->len;
	bool last = end == f->r.size, ends = last || end % CELL == 0;
	struct digest *d;

	if (l->sink->o->unchecked)
		return 0;
	if (f->ordered) {
		add_to_digest(f->digest, p, false);
		return 0;
	}
	d = p->pos % CELL == 0 && ends ? l->digest : get_partial_digest(l, f);
	if (!d)
		return -1;
	add_to_digest(d, p, last);
	if (ends)
		sink_drain_digest(d, h->sum, h->nonzero_sum);
	return 0;
}

static int store_piece(struct sink_lane *l, struct sink_file *f, const struct piece *p,
		       struct hashed *h)
{
	if (p->have)
		return 0;
	if (!p->bytes)
		return f->out.fd < 0 ? 0 : outlet_write_zeros(&f->out, p->pos, p->len);
	if (hash_piece(l, f, p, h))
		return -1;
	if (f->symlink_target)
		memcpy(f->symlink_target + p->pos, p->bytes, p->len);
	return f->out.fd < 0 ? 0 : outlet_write(&f->out, p->pos, p->bytes, p->len);
}

static void count_piece(struct sink_lane *l, const struct sink_file *f, const struct piece *p)
{
	l->sums.any = true;
	l->sums.bytes += p->len;
	if (f->r.type != TYPE_REGULAR)
		return;
	*(p->have    ? &l->sums.counts.had
	  : p->bytes ? &l->sums.counts.sent
		     : &l->sums.counts.holes) += p->len;
}

static void finish_piece(struct sink *s, struct sink_file *f, const struct piece *p,
			 const struct hashed *h)
{
	pthread_mutex_lock(&s->copy->lock);
	sum_add(f->sum, h->sum);
	sum_add(f->nonzero_sum, h->nonzero_sum);
	if (f->ordered) {
		f->storing = false;
		f->turn = p->pos + p->len;
		sink_wake(s, f);
	}
	pthread_mutex_unlock(&s->copy->lock);
}

int sink_take_piece(struct sink_lane *l, const struct piece *p)
{
	struct sink *s = l->sink;
	struct hashed h = {0};
	struct sink_file *f;
	bool dropped;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	f = *sink_file_slot(s, p->id);
	ret = admit_piece(l, f, p);
	if (ret == 0) {
		/* No lane may finish the file while this one waits for its turn. */
		f->busy++;
		ret = sink_await_turn(l, f, p);
	}
	dropped = ret == 0 && f->state == SINK_FAILED;
	pthread_mutex_unlock(&s->copy->lock);
	if (ret)
		return -1;
	if (!dropped && store_piece(l, f, p, &h) && sink_fail_file(l, f))
		return -1;
	if (!dropped)
		count_piece(l, f, p);
	finish_piece(s, f, p, &h);
	return sink_release_file(l, f);
}
