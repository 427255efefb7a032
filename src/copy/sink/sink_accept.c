/* SPDX-License-Identifier: Apache-2.0 */

/* Accepts only what the user asked for. */

#include "copy/names/name.h"
#include "copy/sink/sink_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/fail.h"

static int refuse_name(const struct sink *s, const char *name, uint32_t want)
{
	return fail_as(OUT_PROTOCOL, "the peer sends %.300s, which %s%.300s", name,
		       s->rules->listed ? "--files-from does not list" : "does not match ",
		       s->rules->listed ? "" : s->o->wants[want]);
}

static int refuse_entry(const char *name, const char *why)
{
	return fail_as(OUT_PROTOCOL, "the peer sends %.300s, %s", name, why);
}

/* ---- --relative ----------------------------------------------------------------------- */

/* Returns the next component and sets *len; NULL: there is none. */
static const char *next_path_component(const char **at, size_t *len)
{
	const char *from;

	do {
		*at += strspn(*at, "/");
		from = *at;
		*len = strcspn(from, "/");
		*at += *len;
	} while (*len == 1 && from[0] == '.');
	return *len > 0 ? from : NULL;
}

/* part: a component of want, of part_len bytes; a pattern may be longer than a name. */
static bool component_matches(const char *name, size_t name_len, const char *part, size_t part_len,
			      const char *want)
{
	char one[NAME_ROOM], other[NAME_MAX_WIRE];

	if (name_len >= sizeof one || part_len >= sizeof other)
		return false;
	memcpy(one, name, name_len);
	one[name_len] = '\0';
	memcpy(other, part, part_len);
	other[part_len] = '\0';
	return name_matches_component(one, other, want);
}

enum want_match {
	MATCH_FAILED /* with this thread's failure */,
	MATCH_NOTHING,
	MATCH_LEADS,
	MATCH_WHOLE
};

/* Does path match want, or lead to it? */
static enum want_match match_path(const char *path, const char *want)
{
	const char *wants = name_relative(want), *name, *part;
	size_t name_len, part_len;

	while ((name = next_path_component(&path, &name_len)) != NULL) {
		part = next_path_component(&wants, &part_len);
		if (!part || !component_matches(name, name_len, part, part_len, want))
			return MATCH_NOTHING;
	}
	return next_path_component(&wants, &part_len) ? MATCH_LEADS : MATCH_WHOLE;
}

/* For a parent of which the user did not ask for everything. */
static enum want_match match_relative_path(const struct sink *s, const struct sink_dir *parent,
					   const char *name, uint32_t want)
{
	enum want_match match = MATCH_NOTHING;
	char *path = malloc(EVENT_PATH_MAX);

	if (!path) {
		fail_as(OUT_MEMORY, "allocate the path of %s: %m", name);
		return MATCH_FAILED;
	}
	sink_path(parent, name, path, EVENT_PATH_MAX);
	match = match_path(path, s->o->wants[want]);
	free(path);
	return match;
}

/* ---- names ---------------------------------------------------------------------------- */

/* Do the contents of the source go into the target, instead of the source itself? */
static bool wants_contents(const struct sink *s, const char *want)
{
	const char *last = strrchr(want, '/'), *kept = name_relative(want);
	size_t len;

	if (s->rules->listed)
		return true;
	if (s->rules->relative)
		return !next_path_component(&kept, &len);
	last = last ? last + 1 : want;
	return s->rules->no_target_dir || !*last || strcmp(last, ".") == 0 ||
	       strcmp(last, "..") == 0;
}

static const struct files_from_node *find_listed_dir(const struct sink *s,
						     const struct sink_dir *dir)
{
	if (!s->rules->listed)
		return NULL;
	return dir ? dir->listed : files_from_top(s->rules->listed);
}

static bool is_all_listed(const struct sink *s, const struct files_from_node *n)
{
	return n && s->rules->recursive && files_from_is_named(n);
}

/* Did the user ask for everything in dir (NULL: the target)? */
static bool is_all_wanted(const struct sink *s, const struct sink_dir *dir)
{
	return dir ? dir->all_wanted : is_all_listed(s, find_listed_dir(s, NULL));
}

static int accept_contents(const struct sink *s, const struct record_dir *r, struct sink_dir *d)
{
	if (!wants_contents(s, s->o->wants[r->want]))
		return refuse_name(s, "the contents of a directory", r->want);
	d->listed = find_listed_dir(s, NULL);
	d->all_wanted = s->rules->listed ? is_all_listed(s, d->listed) : s->rules->recursive;
	return 0;
}

static int accept_listed_dir(const struct sink *s, const struct record_dir *r, struct sink_dir *d)
{
	const struct files_from_node *in = find_listed_dir(s, d->parent);

	d->listed = in ? files_from_child(in, r->name) : NULL;
	d->all_wanted = is_all_listed(s, d->listed);
	return d->listed ? 0 : refuse_name(s, r->name, r->want);
}

static int accept_top_dir(const struct sink *s, const struct record_dir *r, struct sink_dir *d)
{
	const char *want = s->o->wants[r->want];

	if (wants_contents(s, want) || !name_matches_want(r->name, want))
		return refuse_name(s, r->name, r->want);
	d->all_wanted = true;
	return 0;
}

static int accept_relative_dir(const struct sink *s, const struct record_dir *r, struct sink_dir *d)
{
	switch (match_relative_path(s, d->parent, r->name, r->want)) {
	case MATCH_FAILED:
		return -1;
	case MATCH_NOTHING:
		return refuse_name(s, r->name, r->want);
	case MATCH_LEADS:
		return 0;
	case MATCH_WHOLE:
		d->all_wanted = s->rules->recursive;
		return s->rules->recursive ? 0 : refuse_name(s, r->name, r->want);
	}
	return -1;
}

int sink_accept_dir(const struct sink *s, const struct record_dir *r, struct sink_dir *d)
{
	const struct rules *rules = s->rules;

	if (!s->place || s->o->single_stream ||
	    (!rules->recursive && !rules->listed && !rules->relative))
		return refuse_entry(r->name, "a directory, but only files were requested");
	if (r->want >= s->o->count)
		return fail_as(OUT_PROTOCOL, "the peer sends an unknown source number %u", r->want);
	if (!(r->flags & DIR_CONTENTS) && !name_is_plain(r->name))
		return refuse_entry(r->name, "which is not a valid directory name");
	if (r->flags & DIR_CONTENTS)
		return accept_contents(s, r, d);
	if (is_all_wanted(s, d->parent)) {
		d->all_wanted = true;
		return 0;
	}
	if (rules->listed)
		return accept_listed_dir(s, r, d);
	if (rules->relative)
		return accept_relative_dir(s, r, d);
	return d->parent ? refuse_name(s, r->name, r->want) : accept_top_dir(s, r, d);
}

/* ---- files ---------------------------------------------------------------------------- */

static int accept_type(const struct sink *s, const struct record_file *r, bool in_tree)
{
	const struct rules *rules = s->rules;

	if ((r->flags & FILE_LINKED) && !rules->hard_links)
		return refuse_entry(r->name,
				    "which has hard links, but --hard-links was not given");
	if (r->type == TYPE_REGULAR)
		return 0;
	if (!in_tree)
		return refuse_entry(r->name, "which is not a regular file");
	if (r->type == TYPE_SYMLINK && rules->copy_links)
		return refuse_entry(r->name, "a symbolic link, but --copy-links was given");
	if (r->type == TYPE_HARD_LINK && !rules->hard_links)
		return refuse_entry(r->name, "a hard link, but --hard-links was not given");
	if (r->type != TYPE_SYMLINK && r->type != TYPE_HARD_LINK && !rules->devices)
		return refuse_entry(r->name, "a device or FIFO, but --devices was not given");
	return 0;
}

static bool is_listed(const struct sink *s, const struct record_file *r, const struct sink_dir *d)
{
	const struct files_from_node *in = find_listed_dir(s, d);
	const struct files_from_node *n =
		in && name_is_plain(r->name) ? files_from_child(in, r->name) : NULL;

	return n && files_from_is_named(n);
}

/* 1: yes.  0: no.  -1: failure. */
static int is_wanted(const struct sink *s, const struct record_file *r, const struct sink_dir *d)
{
	enum want_match match;

	if (s->rules->listed)
		return is_listed(s, r, d);
	if (s->rules->relative && name_is_plain(r->name)) {
		match = match_relative_path(s, d, r->name, r->want);
		return match == MATCH_FAILED ? -1 : match == MATCH_WHOLE;
	}
	return !d && name_matches_want(r->name, s->o->wants[r->want]);
}

int sink_accept_file(const struct sink *s, const struct record_file *r, const struct sink_dir *d)
{
	int wanted;

	/* If the target is a single file or stream, one regular file of any name is accepted. */
	if (!s->place || s->o->single_stream) {
		/* The source of rdcp does not know that the target is a stream, so it may ask.
		 * rdsend never asks. */
		bool asks = (r->flags & FILE_ASK) && s->o->single_stream;

		if (!s->place && (r->flags & FILE_MANY))
			return fail("%s is not a directory", s->o->stream.name);
		if (r->dir || r->type != TYPE_REGULAR || asks)
			return refuse_entry(r->name, "but one regular file was requested");
		return 0;
	}
	if (r->want >= s->o->count)
		return fail_as(OUT_PROTOCOL, "the peer sends an unknown source number %u", r->want);
	if (accept_type(s, r,
			d || s->rules->listed ||
				(r->type == TYPE_HARD_LINK && (r->flags & FILE_MANY))))
		return -1;
	if (is_all_wanted(s, d))
		return name_is_plain(r->name)
			       ? 0
			       : refuse_entry(r->name, "which is not a valid file name");
	wanted = is_wanted(s, r, d);
	return wanted == 0 ? refuse_name(s, r->name, r->want) : wanted < 0 ? -1 : 0;
}

bool sink_wants_name(const struct sink *s, const char *name)
{
	for (size_t i = 0; s->o->count > 1 && i < s->o->count; i++) {
		const char *want = s->o->wants[i], *at = name_relative(want), *part;
		size_t len;

		if (wants_contents(s, want))
			continue;
		part = s->rules->relative ? next_path_component(&at, &len) : NULL;
		if (part ? component_matches(name, strlen(name), part, len, want)
			 : name_matches_want(name, want))
			return true;
	}
	return false;
}
