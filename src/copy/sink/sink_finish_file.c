/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "copy/io/content_digest.h"
#include "copy/io/stored.h"

enum event_what sink_event_what(uint8_t type)
{
	switch (type) {
	case TYPE_SYMLINK:
		return EVENT_SYMLINK;
	case TYPE_HARD_LINK:
		return EVENT_HARD_LINK;
	case TYPE_FIFO:
	case TYPE_CHAR:
	case TYPE_BLOCK:
		return EVENT_NODE;
	default:
		return EVENT_FILE;
	}
}

int sink_check_file_end(const struct sink *s, const struct sink_dir *d, const struct record_file *r,
			const struct record_file_end *e, const uint64_t sum[2])
{
	char shown[SHOWN_ROOM];

	if (e->data + e->holes != e->size || (!(r->flags & FILE_STREAM) && e->size != r->size))
		return fail_as(OUT_PROTOCOL, "the peer sends FILE_END of %s with bytes missing",
			       sink_name_shown(s, d, r->name, shown));
	if (sum[0] != e->digest[0] || sum[1] != e->digest[1])
		return fail_as(OUT_INTEGRITY,
			       "%s: the digest of the received data differs from the source's",
			       sink_name_shown(s, d, r->name, shown));
	return 0;
}

/* ---- counts --------------------------------------------------------------------------- */

static uint64_t *find_type_count(struct msg_counts *c, uint8_t type)
{
	switch (sink_event_what(type)) {
	case EVENT_SYMLINK:
		return &c->symlinks;
	case EVENT_HARD_LINK:
		return &c->hard_links;
	case EVENT_NODE:
		return &c->nodes;
	default:
		return &c->regular;
	}
}

static void count_in_total(struct msg_total *t, const struct record_file *r,
			   const struct record_file_end *e)
{
	if (r->type != TYPE_REGULAR) {
		t->others++;
		return;
	}
	t->files++;
	t->bytes += e->size;
	sum_add(t->digest, e->digest);
}

void sink_count_file_end(struct sink_lane *l, const struct record_file *r,
			 const struct record_file_end *e, bool good)
{
	struct sink_sums *sums = &l->sums;

	sums->any = true;
	*find_type_count(&sums->counts, r->type) += 1;
	if (e->code != OUT_DONE)
		sums->ended.failed++;
	else
		count_in_total(&sums->ended, r, e);
	if (good)
		count_in_total(&sums->stored, r, e);
	else
		sums->stored.failed++;
	sums->files += good;
}

/* ---- checks of what was stored -------------------------------------------------------- */

static int verify_stored(struct sink_lane *l, const struct sink_whole *w, int fd, const char *shown)
{
	if (w->bytes || w->end->size == 0)
		return sink_verify_small(l, fd, shown, w->bytes, (size_t)w->end->size);
	return sink_verify(l, fd, shown, w->out->base, w->end->size, w->nonzero_sum);
}

/* --print-digest: reads the file back and compares its digest with the source's. */
static int check_content(struct sink_lane *l, const struct sink_whole *w, int fd, const char *shown)
{
	struct sink *s = l->sink;
	enum content_digest d = s->rules->digest;
	struct stopper stopper = {.stop = copy_stopped, .ctx = s->copy};
	uint8_t digest[CONTENT_DIGEST_MAX];

	if (content_digest_of(fd, shown, w->out->base, w->end->size, d, &stopper, digest))
		return -1;
	if (memcmp(digest, w->end->content, content_digest_size(d)) != 0)
		return fail_as(OUT_INTEGRITY,
			       "%s: the digest of the stored data differs from the source's",
			       shown);
	return 0;
}

static bool is_read_back(const struct rules *r)
{
	return r->verify || r->digest;
}

/* Checks that --verify and --print-digest make before the file gets its name. */
static int read_back_stored(struct sink_lane *l, const struct sink_whole *w, int fd,
			    const char *shown, char digest[static EVENT_DIGEST])
{
	const struct rules *rules = l->sink->rules;
	/* A file with a size was opened for reading, too. */
	bool readable = w->placement && w->out->sized;

	/* A hole at its end does not exist yet. */
	if (readable && ftruncate(fd, (off_t)w->end->size))
		return fail("write %s: %m", shown);
	if (rules->verify && readable && verify_stored(l, w, fd, shown))
		return -1;
	if (!rules->digest)
		return 0;
	if (w->end->content_len != content_digest_size(rules->digest))
		return fail_as(OUT_PROTOCOL, "the peer sends no digest of %s for --print-digest",
			       shown);
	if (readable && check_content(l, w, fd, shown))
		return -1;
	content_digest_text(rules->digest, w->end->content, digest);
	return 0;
}

/* An output whose size is not set at the end may be a regular file, which then must reach w->reach.
 */
static int check_stream_reach(const struct sink_whole *w, int fd, const char *shown)
{
	return w->out->seekable ? stored_check_stream(fd, w->out->base + w->reach, shown) : 0;
}

/* ---- each kind ------------------------------------------------------------------------ */

static struct outlet name_outlet(const struct sink_whole *w, const char *shown)
{
	struct outlet o = *w->out;

	o.name = shown;
	return o;
}

static int seek_to_end(const struct sink_whole *w, const char *shown)
{
	struct outlet o = name_outlet(w, shown);

	return outlet_seek_to_end(&o, w->end->size);
}

/* Into a command, which may end well without having read it. */
static int drain_pipe(const struct sink_whole *w, const char *shown)
{
	struct outlet o = name_outlet(w, shown);

	return outlet_drain(&o);
}

static int store_stream(struct sink_lane *l, const struct sink_whole *w,
			char digest[static EVENT_DIGEST])
{
	struct sink *s = l->sink;
	const struct stream *stream = &s->o->stream;

	if (check_stream_reach(w, stream->fd, stream->name) ||
	    (is_read_back(s->rules) && read_back_stored(l, w, stream->fd, stream->name, digest)))
		return -1;
	if (seek_to_end(w, stream->name))
		return -1;
	if (s->rules->fsync && outlet_sync(stream->fd))
		return fail("fsync %s: %m", stream->name);
	if (stream->drains && drain_pipe(w, stream->name))
		return -1;
	return stream->finish ? stream->finish(stream->ctx) : 0;
}

static int store_placed(struct sink_lane *l, struct sink_whole *w, struct change *change,
			char digest[static EVENT_DIGEST])
{
	struct placement *t = w->placement;

	if ((!w->out->sized && check_stream_reach(w, placement_fd(t), placement_name(t))) ||
	    (is_read_back(l->sink->rules) &&
	     read_back_stored(l, w, placement_fd(t), placement_name(t), digest)))
		return -1;
	/* Processes that share the offset expect it behind the last byte. */
	if (!w->out->sized && seek_to_end(w, placement_name(t)))
		return -1;
	if (w->xattrs)
		placement_xattrs(t, w->xattrs);
	w->xattrs = NULL;
	placement_change(t, change);
	placement_set_reach(t, w->reach, w->end->holes == 0);
	w->placement = NULL;
	return place_finish_file(t, w->end->size);
}

/* --dry-run: reports a file that was not asked about, or whose content differs. */
static int rehearse_store(struct sink_lane *l, const struct sink_whole *w, struct change *change)
{
	struct looked k;

	if (place_look(l->sink->place, sink_dir_place(w->dir), w->r, w->xattrs, &k) ||
	    place_rehearse(l->sink->place, sink_dir_place(w->dir), w->r))
		return -1;
	*change = k.change;
	change->content = l->sink->rules->checksum && !change->missing && !change->type;
	return 0;
}

/* Does --ignore-existing or --existing leave it out?  Regular files and hard links were asked about
 * before. */
static int check_left_out(struct sink_lane *l, const struct sink_whole *w, bool *left_out)
{
	const struct rules *rules = l->sink->rules;
	struct looked k;

	*left_out = false;
	if (!(rules->ignore_existing || rules->existing) || w->r->type == TYPE_HARD_LINK)
		return 0;
	if (place_look(l->sink->place, sink_dir_place(w->dir), w->r, w->xattrs, &k))
		return -1;
	*left_out = (rules->ignore_existing && !k.change.missing) || (rules->existing && k.absent);
	return 0;
}

static int store_other(struct sink_lane *l, const struct sink_whole *w, struct change *change)
{
	bool left_out;

	if (w->symlink_target && memchr(w->symlink_target, '\0', (size_t)w->r->size))
		return fail_as(OUT_PROTOCOL, "the peer sends a symbolic link with a NUL in it");
	if (check_left_out(l, w, &left_out))
		return -1;
	return left_out ? 0
			: place_make_other(l->sink->place, sink_dir_place(w->dir), w->r,
					   w->symlink_target, w->xattrs, change);
}

static int store_whole(struct sink_lane *l, struct sink_whole *w, struct change *change,
		       char digest[static EVENT_DIGEST])
{
	struct sink *s = l->sink;

	digest[0] = '\0';
	if (sink_take_file_xattrs(s, w->r, w->xattrs, w->dir))
		return -1;
	if (w->placement)
		return store_placed(l, w, change, digest);
	if (s->o->discard)
		return 0;
	if (!s->place)
		return store_stream(l, w, digest);
	return w->r->type == TYPE_REGULAR ? rehearse_store(l, w, change)
					  : store_other(l, w, change);
}

int sink_finish_file(struct sink_lane *l, struct sink_whole *w)
{
	struct change change = {.what = sink_event_what(w->r->type)};
	char digest[EVENT_DIGEST];
	bool left_out = w->left_out || sink_dir_is_left_out(w->dir);
	int ret = left_out ? 0 : store_whole(l, w, &change, digest);

	if (w->placement) {
		struct failure why = *failed();

		place_drop(w->placement, false);
		fail_again(&why);
	}
	w->placement = NULL;
	xattrs_free(w->xattrs);
	w->xattrs = NULL;
	if (ret)
		return -1;
	if (left_out)
		return 0;
	change.what = sink_event_what(w->r->type);
	l->sums.counts.created += change.missing;
	sink_report_event(l, w->dir, w->r->name, &change, w->r->type == TYPE_REGULAR, w->end->size,
			  digest);
	return 0;
}
