/* SPDX-License-Identifier: Apache-2.0 */
#include "plug.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include "device.h"
#include "engine.h"
#include "host.h"
#include "link.h"
#include "misuse.h"
#include "queue_pair.h"

/* One port of an adapter. */
struct port {
	bool down_by_file, down_by_rule;
	_Atomic bool down;
	struct engine_timer up_again;
};

static struct engine_watch watch = {.fd = -1};
static bool pulled[HOST_ADAPTERS];
static struct port ports[HOST_ADAPTERS][HOST_PORTS + 1];
static void (*remove_ids)(const struct host_adapter *a);

static void forget_parent(void)
{
	if (watch.fd >= 0)
		close(watch.fd);
	watch.fd = -1;
	memset(pulled, 0, sizeof pulled);
	memset(ports, 0, sizeof ports);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

static struct port *port_at(const struct host_adapter *a, unsigned port)
{
	return &ports[a->index][port <= HOST_PORTS ? port : 0];
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

bool plug_is_pulled(const struct host_adapter *a)
{
	char name[HOST_NAME + 16];

	if (is_there("pulled"))
		return true;
	if (!a)
		return false;
	snprintf(name, sizeof name, "pulled.%s", a->p.device);
	return is_there(name);
}

static bool is_file_down(const struct host_adapter *a, unsigned port)
{
	char name[HOST_NAME + 32];

	if (is_there("down"))
		return true;
	snprintf(name, sizeof name, "down.%s", a->p.device);
	if (is_there(name))
		return true;
	snprintf(name, sizeof name, "down.%s.%u", a->p.device, port);
	return is_there(name);
}

bool plug_look_down(const struct host_adapter *a, unsigned port)
{
	return plug_is_down(a, port) || is_file_down(a, port);
}

bool plug_is_down(const struct host_adapter *a, unsigned port)
{
	return atomic_load(&port_at(a, port)->down);
}

void plug_on_removal(void (*fn)(const struct host_adapter *a))
{
	remove_ids = fn;
}

/* ---- changes ---------------------------------------------------------------------------- */

static void change_port(const struct host_adapter *a, unsigned port)
{
	struct port *p = port_at(a, port);
	bool now = p->down_by_file || p->down_by_rule;

	if (now == atomic_load(&p->down))
		return;
	atomic_store(&p->down, now);
	if (now) {
		queue_pair_silence(a, port);
	} else {
		queue_pair_listen(a, port);
		link_resume(a, port);
	}
	device_report(a, port, now ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

static void pull_out(const struct host_adapter *a)
{
	queue_pair_silence(a, 0);
	device_remove(a);
	if (remove_ids)
		remove_ids(a);
}

static void look_at(const struct host_adapter *a)
{
	bool now = plug_is_pulled(a);

	if (now && !pulled[a->index])
		pull_out(a);
	pulled[a->index] = now;
	for (unsigned port = 1; port <= a->ports; port++) {
		port_at(a, port)->down_by_file = is_file_down(a, port);
		change_port(a, port);
	}
}

static void look(void)
{
	const struct host *h = host_get();

	for (unsigned i = 0; i < h->adapter_count; i++)
		look_at(&h->adapters[i]);
}

static void lift_rule(struct engine_timer *t)
{
	struct port *p = (struct port *)((char *)t - offsetof(struct port, up_again));
	size_t at = (size_t)(p - &ports[0][0]);

	p->down_by_rule = false;
	change_port(&host_get()->adapters[at / (HOST_PORTS + 1)], at % (HOST_PORTS + 1));
}

void plug_take_down(const struct host_adapter *a, unsigned port, unsigned ms)
{
	struct port *p = port_at(a, port);

	p->down_by_rule = true;
	change_port(a, port);
	p->up_again.fire = lift_rule;
	if (ms)
		engine_set(&p->up_again, (uint64_t)ms * 1000000);
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
