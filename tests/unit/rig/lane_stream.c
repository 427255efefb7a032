/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_stream.h"

#include <stdlib.h>
#include <sys/socket.h>
#include "base/io.h"
#include "lane/tcp/tcp_impl.h"

/* Hands one half of a socket pair to the other end of the lane. */
struct waiting {
	int fd;
	uint32_t epoch;
	enum lane_side side;
};

struct stream {
	pthread_mutex_t lock;
	struct waiting waiting[PAIR_LANES];
};

static int stream_setup(void **state)
{
	struct stream *s = calloc(1, sizeof *s);

	if (!s)
		return fail_as(OUT_MEMORY, "out of memory");
	pthread_mutex_init(&s->lock, NULL);
	for (unsigned i = 0; i < PAIR_LANES; i++)
		s->waiting[i].fd = -1;
	*state = s;
	return 0;
}

static void stream_teardown(void *state)
{
	struct stream *s = state;

	for (unsigned i = 0; i < PAIR_LANES; i++)
		close_fd(s->waiting[i].fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int stream_join(void *state, struct lane *l, uint32_t epoch, const struct lane_key *key,
		       uint64_t deadline_ms, struct wire **out)
{
	struct stream *s = state;
	struct waiting *w = &s->waiting[lane_index(l)];
	int fds[2] = {-1, -1};

	(void)key;
	(void)deadline_ms;
	pthread_mutex_lock(&s->lock);
	if (w->fd >= 0 && w->epoch == epoch && w->side != lane_side_of(l)) {
		fds[0] = w->fd;
		w->fd = -1;
	} else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0) {
		close_fd(w->fd);
		*w = (struct waiting){.fd = fds[1], .epoch = epoch, .side = lane_side_of(l)};
	}
	pthread_mutex_unlock(&s->lock);
	if (fds[0] < 0)
		return fail_as(OUT_SOCKET, "socketpair: %m");
	return tcp_wire(l, epoch, fds[0], out);
}

const struct backend stream_backend = {
	.name = "socket pair",
	.setup = stream_setup,
	.teardown = stream_teardown,
	.join = stream_join,
};
