/* SPDX-License-Identifier: Apache-2.0 */
#include "plug.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include "device.h"
#include "engine.h"
#include "host.h"
#include "link.h"
#include "misuse.h"
#include "queue_pair.h"

static struct engine_watch watch = {.fd = -1};
static struct engine_timer up_again;
static bool pulled, down_by_file, down_by_rule;
static _Atomic bool down;
static void (*remove_ids)(void);

static void forget_parent(void)
{
	if (watch.fd >= 0)
		close(watch.fd);
	watch.fd = -1;
	up_again.set = false;
	pulled = down_by_file = down_by_rule = false;
	atomic_store(&down, false);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

/* Not with access(), which paths.c has. */
static bool is_there(const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	if (!host_top())
		return false;
	snprintf(path, sizeof path, "%s/%s", host_top(), name);
	return lstat(path, &st) == 0;
}

bool plug_is_pulled(void)
{
	return is_there("pulled");
}

bool plug_look_down(void)
{
	return plug_is_down() || is_there("down");
}

bool plug_is_down(void)
{
	return atomic_load(&down);
}

void plug_on_removal(void (*fn)(void))
{
	remove_ids = fn;
}

/* ---- changes ---------------------------------------------------------------------------- */

static void change_port(void)
{
	bool now = down_by_file || down_by_rule;

	if (now == atomic_load(&down))
		return;
	atomic_store(&down, now);
	if (now) {
		queue_pair_silence();
	} else {
		queue_pair_listen();
		link_resume();
	}
	device_report(now ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

static void pull_out(void)
{
	queue_pair_silence();
	device_remove();
	if (remove_ids)
		remove_ids();
}

static void look(void)
{
	bool now = plug_is_pulled();

	if (now && !pulled)
		pull_out();
	pulled = now;
	down_by_file = is_there("down");
	change_port();
}

static void lift_rule(struct engine_timer *t)
{
	(void)t;
	down_by_rule = false;
	change_port();
}

void plug_take_down(unsigned ms)
{
	down_by_rule = true;
	change_port();
	up_again.fire = lift_rule;
	if (ms)
		engine_set(&up_again, (uint64_t)ms * 1000000);
}

/* ---- watching --------------------------------------------------------------------------- */

static void take_changes(struct engine_watch *w)
{
	char room[4096];

	while (read(w->fd, room, sizeof room) > 0)
		;
	look();
}

int plug_start(void)
{
	if (watch.fd >= 0)
		return 0;
	watch.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	watch.ready = take_changes;
	if (watch.fd < 0 ||
	    inotify_add_watch(watch.fd, host_top(),
			      IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO) < 0 ||
	    engine_watch(&watch)) {
		int err = errno;

		if (watch.fd >= 0)
			close(watch.fd);
		watch.fd = -1;
		errno = err;
		return -1;
	}
	look();
	return 0;
}
