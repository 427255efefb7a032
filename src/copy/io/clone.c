/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/clone.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fd_pass.h"
#include "base/io.h"

bool clone_suits(int fd)
{
	struct statfs fs;

	if (RETRIED(fstatfs(fd, &fs)))
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		return false;
	default:
		return true;
	}
}

/* ---- passing descriptors --------------------------------------------------------------- */

bool clone_offer(int socket, uint32_t id, int fd)
{
	return fd_send(socket, &id, sizeof id, fd, MSG_DONTWAIT) == (ssize_t)sizeof id;
}

/* Call with the lock held.  Receives one more offer; false: none has arrived. */
static bool receive_offer(struct clones *c)
{
	uint32_t id;
	int fd;

	if (fd_receive(c->socket, &id, sizeof id, &fd, MSG_DONTWAIT) != (ssize_t)sizeof id) {
		close_fd(fd);
		return false;
	}
	if (fd < 0)
		return true;
	c->offers[c->count].id = id;
	c->offers[c->count].fd = fd;
	c->count++;
	return true;
}

void clones_begin(struct clones *c, int socket)
{
	c->socket = socket;
	c->count = 0;
	c->refused_count = 0;
	pthread_mutex_init(&c->lock, NULL);
}

void clones_end(struct clones *c)
{
	while (c->count > 0)
		close_fd(c->offers[--c->count].fd);
	pthread_mutex_destroy(&c->lock);
}

int clones_take(struct clones *c, uint32_t id)
{
	int fd = -1;

	if (c->socket < 0)
		return -1;
	pthread_mutex_lock(&c->lock);
	while (c->count < OFFERS_MAX && receive_offer(c))
		;
	for (unsigned i = 0; fd < 0 && i < c->count; i++) {
		if (c->offers[i].id != id)
			continue;
		fd = c->offers[i].fd;
		c->offers[i] = c->offers[--c->count];
	}
	pthread_mutex_unlock(&c->lock);
	return fd;
}

/* ---- sharing --------------------------------------------------------------------------- */

bool clones_refused(struct clones *c, dev_t from, dev_t to)
{
	bool found = false;

	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->refused_count; i++)
		found |= c->refused[i].from == from && c->refused[i].to == to;
	pthread_mutex_unlock(&c->lock);
	return found;
}

void clones_refuse(struct clones *c, dev_t from, dev_t to)
{
	pthread_mutex_lock(&c->lock);
	if (c->refused_count < PAIRS_MAX) {
		c->refused[c->refused_count].from = from;
		c->refused[c->refused_count++].to = to;
	}
	pthread_mutex_unlock(&c->lock);
}

int clone_file(int from, int to)
{
	return ioctl(to, FICLONE, from);
}

int clone_try(int from, int to)
{
	struct file_clone_range range = {.src_fd = from, .src_length = CLONE_MIN};

	return ioctl(to, FICLONERANGE, &range);
}
