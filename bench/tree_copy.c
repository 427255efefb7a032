/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copies a tree within a host by two threads, to compare with rdcp -a: it sends, hashes and resumes
 * nothing, but a file has a temporary name until it is whole, and keeps mode and times. Directories
 * get theirs at the end. Copies directories, regular files and symlinks; DST must not exist.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"

enum {
	THREADS = 2,
	PIECE = 256 << 10, /* read and written at a time */
	BATCH = 8 << 10, /* bytes of names of files in one job */
	QUEUED = 256, /* jobs of files; with more in the queue a thread does its own at once */
};

/* A directory of both trees. It is kept to the end, for its metadata, and open until its files are
 * copied. */
struct dir {
	struct dir *before; /* made before this one */
	char *path; /* in either tree */
	struct stat st;
	int from, to;
	atomic_uint users;
};

/* Files of dir to copy, or, without names, dir itself to read. */
struct job {
	struct job *next;
	struct dir *dir;
	size_t used;
	char names[];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job *dirs, *files; /* last in, first out: few directories are open at a time */
	unsigned files_queued, busy;
	struct dir *made;
	int from, to;
	atomic_ullong count, bytes;
	atomic_bool failed;
	atomic_uint temporaries;
} tree = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void complain(const char *what, const char *name)
{
	fprintf(stderr, "tree_copy: %s %s: %s\n", what, name, strerror(errno));
	tree.failed = true;
}

static void *must(void *p)
{
	if (!p) {
		perror("tree_copy");
		exit(1);
	}
	return p;
}

/* ---- the queue ------------------------------------------------------------------------ */

static void dir_put(struct dir *d)
{
	if (--d->users == 0) {
		close_fd(d->from);
		close_fd(d->to);
	}
}

static void push(struct job **to, struct job *j)
{
	pthread_mutex_lock(&tree.lock);
	j->next = *to;
	*to = j;
	tree.files_queued += to == &tree.files;
	pthread_cond_signal(&tree.more);
	pthread_mutex_unlock(&tree.lock);
}

/* Takes files first, because they keep directories open. NULL: everything is done. */
static struct job *pop(void)
{
	struct job **of, *j = NULL;

	pthread_mutex_lock(&tree.lock);
	tree.busy--;
	while (!tree.files && !tree.dirs && tree.busy > 0)
		pthread_cond_wait(&tree.more, &tree.lock);
	of = tree.files ? &tree.files : &tree.dirs;
	if (*of) {
		j = *of;
		*of = j->next;
		tree.files_queued -= of == &tree.files;
		tree.busy++;
	} else {
		pthread_cond_broadcast(&tree.more);
	}
	pthread_mutex_unlock(&tree.lock);
	return j;
}

/* ---- files ---------------------------------------------------------------------------- */

static int set_metadata(int fd, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if ((st->st_uid != geteuid() || st->st_gid != getegid()) &&
	    fchown(fd, st->st_uid, st->st_gid) && errno != EPERM)
		return -1;
	return fchmod(fd, st->st_mode & 07777) || futimens(fd, times) ? -1 : 0;
}

static int copy_bytes(int from, int to, uint8_t *piece)
{
	ssize_t n;

	do {
		n = read_full(from, piece, PIECE);
		if (n > 0 && write_full(to, piece, (size_t)n))
			return -1;
		if (n > 0)
			tree.bytes += (unsigned long long)n;
	} while (n == PIECE);
	return n < 0 ? -1 : 0;
}

static void copy_file(const struct dir *d, const char *name, uint8_t *piece)
{
	int from = openat(d->from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), to = -1;
	char temporary[32];
	struct stat st;

	snprintf(temporary, sizeof temporary, ".tree_copy.%08x", tree.temporaries++);
	if (from >= 0 && fstat(from, &st) == 0)
		to = openat(d->to, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0 || copy_bytes(from, to, piece) || set_metadata(to, &st) ||
	    renameat(d->to, temporary, d->to, name))
		complain("copy", name);
	else
		tree.count++;
	close_fd(from);
	close_fd(to);
}

static void copy_files(const struct job *j, uint8_t *piece)
{
	for (const char *at = j->names; at < j->names + j->used; at += strlen(at) + 1)
		copy_file(j->dir, at, piece);
}

static void copy_link(const struct dir *d, const char *name)
{
	char target[4096];
	ssize_t n = readlinkat(d->from, name, target, sizeof target - 1);
	struct stat st;

	if (n >= 0)
		target[n] = '\0';
	if (n < 0 || fstatat(d->from, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    symlinkat(target, d->to, name) ||
	    utimensat(d->to, name, (struct timespec[]){st.st_atim, st.st_mtim},
		      AT_SYMLINK_NOFOLLOW))
		complain("copy the link", name);
}

/* ---- directories ---------------------------------------------------------------------- */

static struct job *job_of(struct dir *d, size_t room)
{
	struct job *j = must(malloc(sizeof *j + room));

	d->users++;
	j->dir = d;
	j->used = 0;
	return j;
}

static void job_free(struct job *j)
{
	dir_put(j->dir);
	free(j);
}

/* Queues a directory that was found. */
static void push_dir(const char *parent, const char *name)
{
	size_t size = strlen(parent) + strlen(name) + 2;
	struct dir *d = must(calloc(1, sizeof *d));

	d->from = -1;
	d->to = -1;
	d->path = must(malloc(size));
	snprintf(d->path, size, "%s%s%s", parent, *parent ? "/" : "", name);
	push(&tree.dirs, job_of(d, 0));
}

static void push_files(struct job **j, uint8_t *piece)
{
	struct job *full = *j;
	bool many;

	if (!full)
		return;
	*j = NULL;
	pthread_mutex_lock(&tree.lock);
	many = tree.files_queued >= QUEUED;
	pthread_mutex_unlock(&tree.lock);
	if (!many)
		return push(&tree.files, full);
	copy_files(full, piece);
	job_free(full);
}

static unsigned char type_of(const struct dir *d, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type;
	return fstatat(d->from, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ? DT_UNKNOWN
								     : IFTODT(st.st_mode);
}

static void take_entry(struct dir *d, const struct dirent *e, struct job **files, uint8_t *piece)
{
	size_t len = strlen(e->d_name) + 1;

	if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
		return;
	switch (type_of(d, e)) {
	case DT_DIR:
		return push_dir(d->path, e->d_name);
	case DT_LNK:
		return copy_link(d, e->d_name);
	case DT_REG:
		break;
	default:
		fprintf(stderr, "tree_copy: %s is skipped\n", e->d_name);
		return;
	}
	if (*files && (*files)->used + len > BATCH)
		push_files(files, piece);
	if (!*files)
		*files = job_of(d, BATCH);
	memcpy((*files)->names + (*files)->used, e->d_name, len);
	(*files)->used += len;
}

static int dir_open(struct dir *d)
{
	const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	const char *path = *d->path ? d->path : ".";

	d->from = openat(tree.from, path, how);
	if (d->from < 0 || fstat(d->from, &d->st) || (*d->path && mkdirat(tree.to, path, 0700)))
		return -1;
	d->to = openat(tree.to, path, how);
	return d->to < 0 ? -1 : 0;
}

static void copy_dir(struct dir *d, uint8_t *piece)
{
	struct job *files = NULL;
	struct dirent *e;
	DIR *list;
	int fd;

	if (dir_open(d))
		return complain("copy the directory", d->path);
	fd = dup(d->from);
	list = fd < 0 ? NULL : fdopendir(fd);
	if (!list)
		return complain("read", d->path);
	pthread_mutex_lock(&tree.lock);
	d->before = tree.made;
	tree.made = d;
	pthread_mutex_unlock(&tree.lock);
	while ((e = readdir(list)))
		take_entry(d, e, &files, piece);
	push_files(&files, piece);
	closedir(list);
}

static void *run(void *arg)
{
	uint8_t *piece = must(malloc(PIECE));
	struct job *j;

	while ((j = pop())) {
		if (j->used > 0)
			copy_files(j, piece);
		else
			copy_dir(j->dir, piece);
		job_free(j);
	}
	free(piece);
	return arg;
}

/* Begins with the last one, because the contents of a directory were made after it. */
static void finish_dirs(void)
{
	for (struct dir *d = tree.made, *before; d; d = before) {
		int fd = openat(tree.to, *d->path ? d->path : ".",
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0 || set_metadata(fd, &d->st))
			complain("finish", d->path);
		close_fd(fd);
		before = d->before;
		free(d->path);
		free(d);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	uint64_t began = clock_ns();
	struct rusage used;

	if (argc != 3) {
		fputs("usage: tree_copy SRC DST\n", stderr);
		return 1;
	}
	tree.from = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tree.from < 0 || mkdir(argv[2], 0700) ||
	    (tree.to = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
		complain(tree.from < 0 ? "open" : "make", argv[tree.from < 0 ? 1 : 2]);
		return 1;
	}
	tree.busy = THREADS;
	push_dir("", "");
	for (unsigned i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, run, NULL))
			must(NULL);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	finish_dirs();
	getrusage(RUSAGE_SELF, &used);
	printf("%llu files, %llu bytes, %.3f s, %ld KiB\n", tree.count, tree.bytes,
	       (double)(clock_ns() - began) / 1e9, used.ru_maxrss);
	return tree.failed;
}
