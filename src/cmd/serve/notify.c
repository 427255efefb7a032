/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/notify.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

enum {
	SEND_S = 1, /* how long a manager may take no datagram */
	STATUS_MS = 250,
	STATE_MAX = 128
};

static struct sockaddr_un manager; /* its family is 0 without one */
static socklen_t manager_len;
static struct notify_state reported;
static uint64_t reported_ms;
static bool owes_ready; /* the manager did not take it */

/* A name that begins with @ is of the abstract namespace, and ends where its length says. */
static bool set_manager(const char *name)
{
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof manager.sun_path)
		return false;
	manager.sun_family = AF_UNIX;
	memcpy(manager.sun_path, name, len);
	if (name[0] == '@')
		manager.sun_path[0] = '\0';
	manager_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	return true;
}

void notify_begin(void)
{
	char *name = getenv("NOTIFY_SOCKET");

	if (!name)
		return;
	if (!set_manager(name))
		log_warn("NOTIFY_SOCKET=%s is no name of a Unix socket", name);
	/* Other processes of rdcpd have a copy of this memory. */
	explicit_bzero(name, strlen(name));
	unsetenv("NOTIFY_SOCKET");
}

void notify_forget(void)
{
	explicit_bzero(&manager, sizeof manager);
}

/* Returns whether the manager has taken it. Warns once, since each later state would fail, too. */
static bool send_state(const char *state, int flags)
{
	struct timeval most = {.tv_sec = SEND_S};
	static bool warned;
	bool sent;
	int fd;

	if (!manager.sun_family)
		return true;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sent = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 &&
	       connect(fd, (const struct sockaddr *)&manager, manager_len) == 0 &&
	       send(fd, state, strlen(state), MSG_NOSIGNAL | flags) >= 0;
	if (!sent && !warned && !(flags && errno == EAGAIN)) {
		log_warn("notify the service manager: %m");
		warned = true;
	}
	close_fd(fd);
	return sent;
}

static void describe_state(const struct notify_state *s, char to[static STATE_MAX])
{
	snprintf(to, STATE_MAX, "%s%u session%s%s", s->draining ? "ending after " : "", s->sessions,
		 s->sessions == 1 ? "" : "s", s->reload_failed ? "; the last reload failed" : "");
}

/* head: lines before the status. */
static bool send_with_status(const char *head, const struct notify_state *s, int flags)
{
	char text[STATE_MAX], state[2 * STATE_MAX];

	describe_state(s, text);
	snprintf(state, sizeof state, "%sSTATUS=%s\n", head, text);
	reported = *s;
	reported_ms = clock_ms();
	return send_state(state, flags);
}

void notify_ready(const struct notify_state *s)
{
	owes_ready = !send_with_status("READY=1\n", s, 0);
}

void notify_reloading(void)
{
	char state[STATE_MAX];

	snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu\n",
		 (unsigned long long)(clock_ns() / 1000));
	send_state(state, 0);
}

void notify_stopping(const struct notify_state *s, uint64_t most_ms)
{
	char head[STATE_MAX];

	snprintf(head, sizeof head, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\n",
		 (unsigned long long)(most_ms * 1000));
	send_with_status(head, s, 0);
}

void notify_status(const struct notify_state *s)
{
	if (clock_ms() < reported_ms + STATUS_MS ||
	    (s->sessions == reported.sessions && !owes_ready))
		return;
	if (send_with_status(owes_ready ? "READY=1\n" : "", s, MSG_DONTWAIT))
		owes_ready = false;
	else
		reported.sessions = UINT_MAX;
}
