/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of names and patterns in files: a byte that selects the kind of list, then its bytes. The
 * list is read from a file, and in pieces from stdin. Both ways must give the same names.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>
#include "cmd/cli/name_list.h"
#include "cmd/cli/rule_list.h"
#include "expect.h"

enum { NUL = 1 << 0, INCLUDE = 1 << 1, PIECE_SHIFT = 2, INPUT_MAX = 80 << 10, PACKETS_MAX = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct names {
	unsigned count;
	uint64_t sum;
	int rc;
};

static int take(void *ctx, const char *name)
{
	struct names *n = ctx;
	size_t len = strlen(name);

	expect(len > 0 && len < NAME_MAX_WIRE);
	n->count++;
	n->sum = n->sum * 31 + XXH3_64bits(name, len);
	/* The caller of name_list may refuse a name. */
	return strcmp(name, "refused") == 0 ? fail_as(OUT_USAGE, "refused") : 0;
}

static struct names read_all(const char *path, bool nul)
{
	struct names n = {0};
	struct name_list *l;

	expect(name_list_open(path, nul, &l) == 0 && name_list_fd(l) >= 0);
	while ((n.rc = name_list_read(l, take, &n)) > 0)
		continue;
	if (n.rc < 0)
		expect(failed()->code == OUT_USAGE);
	name_list_close(l);
	return n;
}

/* Reads the list from stdin, a socket of packets, so that each packet is one read. */
static struct names read_pieces(const uint8_t *bytes, size_t len, size_t piece, bool nul)
{
	struct names n;
	int fds[2];

	if (piece * PACKETS_MAX < len)
		piece = len / PACKETS_MAX + 1;
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	while (len > 0) {
		size_t now = len < piece ? len : piece;

		if (send(fds[1], bytes, now, 0) != (ssize_t)now)
			break;
		bytes += now;
		len -= now;
	}
	close(fds[1]);
	expect(dup2(fds[0], STDIN_FILENO) == STDIN_FILENO);
	close(fds[0]);
	n = read_all("-", nul);
	/* If not all of it fit into the socket, the result does not count. */
	if (len > 0)
		n.rc = 1;
	return n;
}

/* The pattern of an option has no newline. */
static void read_rules(const char *text, const char *path, uint8_t kind)
{
	struct option_pattern rules[] = {
		{.include = true, .text = text},
		{.include = kind & INCLUDE, .from_file = true, .text = path},
		{.from_file = true, .text = "/nowhere"},
	};
	struct options o = {.patterns = rules,
			    .pattern_count = 2 + !!(kind & NUL),
			    .from0 = kind & NUL};
	struct rule_list l = {0};

	if (rule_list_read(&o, &l))
		expect(failed()->code == OUT_USAGE);
	for (unsigned i = 1; i < l.count; i++)
		expect(strlen(l.of[i].pattern) < RULE_TEXT_MAX &&
		       l.of[i].include == !!(kind & INCLUDE));
	rule_list_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[INPUT_MAX];
	struct names whole, pieces;
	struct name_list *none;
	char path[64];
	int fd;

	if (size < 1 || size > INPUT_MAX)
		return -1;
	fd = memfd_create("list", MFD_CLOEXEC);
	expect(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)size - 1);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	whole = read_all(path, data[0] & NUL);
	pieces = read_pieces(data + 1, size - 1, 1 + (data[0] >> PIECE_SHIFT), data[0] & NUL);
	expect(pieces.rc > 0 ||
	       (pieces.count == whole.count && pieces.sum == whole.sum && pieces.rc == whole.rc));
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	read_rules(text, path, data[0]);
	close(fd);
	expect(name_list_open(path, false, &none) == -1 && failed()->code == OUT_USAGE);
	expect(read_all("/", false).rc == -1);
	name_list_close(NULL);
	return 0;
}
