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

enum { KEY_RING_FILE_MAX = 1 << 20 };

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

	if (r->count == KEY_RING_MAX)
		return fail_as(OUT_USAGE, "more than %d keys", KEY_RING_MAX);
	if (make_room(r))
		return -1;
	k = &r->of[r->count++];
	snprintf(k->user, sizeof k->user, "%s", user);
	k->key = *key;
	return 0;
}

/* Takes one line, without its newline. Returns NULL, or what is wrong. */
static const char *take_line(struct key_ring *r, char *line)
{
	char *colon = strchr(line, ':');
	struct psk key;
	const char *wrong = NULL;

	if (!*line || *line == '#')
		return NULL;
	if (!colon || !user_name_is_valid(line, (size_t)(colon - line)))
		return "expected USER:KEY";
	*colon = '\0';
	if (user_is_anonymous(line))
		wrong = "clients without a key have this name";
	else if (key_ring_find(r, line, &key) == 0)
		wrong = "this user has a key already";
	else if (psk_from_made_text(colon + 1, strlen(colon + 1), &key))
		wrong = "the key is not one from --make-key";
	else if (key_ring_add(r, line, &key))
		wrong = "too many keys";
	psk_wipe(&key);
	return wrong;
}

/* Changes text. */
static int read_lines(struct key_ring *r, char *text, const char *path)
{
	char *end;

	for (unsigned n = 1; *text; n++, text = end) {
		size_t len = strcspn(text, "\n");
		const char *wrong;

		end = text + len + (text[len] == '\n');
		if (len > 0 && text[len - 1] == '\r')
			len--;
		text[len] = '\0';
		wrong = len < KEY_LINE_MAX ? take_line(r, text) : "the line is too long";
		if (wrong)
			return fail_as(OUT_USAGE, "%s, line %u: %s", path, n, wrong);
	}
	return 0;
}

static int read_ring(struct key_ring *r, int fd, const char *path)
{
	char *text = malloc(KEY_RING_FILE_MAX + 1);
	ssize_t n = text ? read_full(fd, text, KEY_RING_FILE_MAX + 1) : -1;
	int ret;

	if (n < 0)
		ret = fail("read the keys from %s: %m", path);
	else if (n > KEY_RING_FILE_MAX)
		ret = fail_as(OUT_USAGE, "%s is larger than 1 MiB", path);
	else if (memchr(text, 0, (size_t)n))
		ret = fail_as(OUT_USAGE, "%s has a NUL", path);
	else {
		text[n] = '\0';
		ret = read_lines(r, text, path);
	}
	if (text)
		explicit_bzero(text, KEY_RING_FILE_MAX + 1);
	free(text);
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
		return fail("read the keys from %s: %m", path);
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
