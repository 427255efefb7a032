/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/clone.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>
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

union fd_message {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

bool clone_offer(int socket, uint32_t id, int fd)
{
	struct iovec iov = {.iov_base = &id, .iov_len = sizeof id};
	union fd_message control = {0};
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof control.room,
	};

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof id;
}

/* Call with the lock held.  Receives one more offer; false: none has arrived. */
static bool receive_offer(struct clones *c)
{
	uint32_t id;
	struct iovec iov = {.iov_base = &id, .iov_len = sizeof id};
	union fd_message control = {0};
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof control.room,
	};
	struct cmsghdr *head;

	if (recvmsg(c->socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof id)
		return false;
	head = CMSG_FIRSTHDR(&m);
	if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int)))
		return true;
	c->offers[c->count].id = id;
	memcpy(&c->offers[c->count].fd, CMSG_DATA(head), sizeof(int));
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
