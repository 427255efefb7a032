/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/key_ring.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/secret.h"
#include "base/text_file.h"

static const char name_letters[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

bool user_name_is_valid(const char *name, size_t len)
{
	if (len == 0 || len >= USER_NAME_MAX || (len == 1 && *name == '-'))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!name[i] || !strchr(name_letters, name[i]))
			return false;
	return true;
}

bool user_is_anonymous(const char *user)
{
	return strcmp(user, ANONYMOUS_USER) == 0;
}

int key_ring_find(const struct key_ring *r, const char *user, struct psk *out)
{
	for (unsigned i = 0; i < r->count; i++) {
		if (strcmp(r->of[i].user, user) == 0) {
			*out = r->of[i].key;
			return 0;
		}
	}
	return -1;
}

/* realloc() could leave a copy of keys in freed memory. */
static int make_room(struct key_ring *r)
{
	size_t room = r->room ? 2 * r->room : 16;
	struct key_of_user *bigger;

	if (r->count < r->room)
		return 0;
	bigger = calloc(room, sizeof *bigger);
	if (!bigger)
		return fail_as(OUT_MEMORY, "store the keys: %m");
	secret_guard(bigger, room * sizeof *bigger);
	if (r->of) {
		memcpy(bigger, r->of, r->count * sizeof *bigger);
		explicit_bzero(r->of, r->count * sizeof *bigger);
		free(r->of);
	}
	r->of = bigger;
	r->room = room;
	return 0;
}

int key_ring_add(struct key_ring *r, const char *user, const struct psk *key)
{
	struct key_of_user *k;

	if (make_room(r))
		return -1;
	k = &r->of[r->count++];
	snprintf(k->user, sizeof k->user, "%s", user);
	k->key = *key;
	return 0;
}

/* Parses USER:KEY; line becomes the user. Returns NULL, or what is wrong. */
static const char *parse_line(const struct key_ring *r, char *line, struct psk *key)
{
	char *colon = strchr(line, ':');

	if (!colon || !user_name_is_valid(line, (size_t)(colon - line)))
		return "expected USER:KEY";
	*colon = '\0';
	if (user_is_anonymous(line))
		return "clients without a key have this name";
	if (key_ring_find(r, line, key) == 0)
		return "this user has a key already";
	if (psk_from_made_text(colon + 1, strlen(colon + 1), key))
		return "the key is not one from --make-key";
	return r->count >= KEY_RING_MAX ? "too many keys" : NULL;
}

/* Takes line n, without its newline. */
static int take_line(struct key_ring *r, char *line, const char *path, unsigned n)
{
	const char *wrong = NULL;
	struct psk key;
	int ret;

	if (!*line || *line == '#')
		return 0;
	wrong = strlen(line) < KEY_LINE_MAX ? parse_line(r, line, &key) : "the line is too long";
	ret = wrong ? fail_as(OUT_USAGE, "%s, line %u: %s", path, n, wrong)
		    : key_ring_add(r, line, &key);
	psk_wipe(&key);
	return ret;
}

/* Changes text. */
static int read_lines(struct key_ring *r, char *text, const char *path)
{
	char *end;

	for (unsigned n = 1; *text; n++, text = end) {
		size_t len = strcspn(text, "\n");

		end = text + len + (text[len] == '\n');
		if (len > 0 && text[len - 1] == '\r')
			len--;
		text[len] = '\0';
		if (take_line(r, text, path, n))
			return -1;
	}
	return 0;
}

static int read_ring(struct key_ring *r, int fd, const char *path)
{
	char *text = text_file_read(fd, path);
	int ret = text ? read_lines(r, text, path) : -1;

	text_file_free(text);
	return ret;
}

int key_ring_read(struct key_ring *r, const char *path)
{
	int fd = key_file_open(path, O_RDONLY);
	int ret = fd < 0 ? -1 : read_ring(r, fd, path);

	close_fd(fd);
	return ret;
}

static int append_line(int fd, const char *user, const char *key, const char *path)
{
	char line[KEY_LINE_MAX + USER_NAME_MAX], last = '\n';
	off_t size = lseek(fd, 0, SEEK_END);
	int len, ret = 0;

	/* An editor may have left the last line without its end. */
	if (size > 0 && pread_full(fd, &last, 1, size - 1) != 1)
		return fail("read %s: %m", path);
	len = snprintf(line, sizeof line, "%s%s:%s\n", last == '\n' ? "" : "\n", user, key);

	if (write_full(fd, line, (size_t)len) || fsync(fd))
		ret = fail("write the key to %s: %m", path);
	explicit_bzero(line, sizeof line);
	return ret;
}

int key_ring_make(const char *path, const char *user, char text[static KEY_LINE_MAX])
{
	struct key_ring r = {NULL, 0, 0};
	struct psk key;
	int fd, ret;

	if (!user_name_is_valid(user, strlen(user)))
		return fail_as(OUT_USAGE,
			       "--make-key %s: a user has at most %d letters, digits, _, . and -",
			       user, USER_NAME_MAX - 1);
	if (user_is_anonymous(user))
		return fail_as(OUT_USAGE, "--make-key %s: clients without a key have this name",
			       user);
	fd = key_file_open(path, O_RDWR | O_CREAT | O_APPEND);
	if (fd < 0)
		return -1;
	if (RETRIED(flock(fd, LOCK_EX)))
		ret = fail("lock %s: %m", path);
	else
		ret = read_ring(&r, fd, path);
	if (!ret && key_ring_find(&r, user, &key) == 0) {
		psk_wipe(&key);
		ret = fail_as(OUT_USAGE, "%s: user %s has a key already", path, user);
	}
	if (!ret)
		ret = psk_make_text(text) || append_line(fd, user, text, path) ? -1 : 0;
	close_fd(fd);
	key_ring_wipe(&r);
	return ret;
}

void key_ring_wipe(struct key_ring *r)
{
	if (r->of)
		explicit_bzero(r->of, r->room * sizeof *r->of);
	free(r->of);
	*r = (struct key_ring){NULL, 0, 0};
}
