/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Freed memory holds no copy of a secret that arrived in a frame: every free() of the library is
 * wrapped and checked here.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <malloc.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/io.h"
#include "cmd/conductor/end_pipe.h"
#include "session/channel/control.h"
#include "session/channel/framer.h"

static const char secret[32] = "a secret of thirty-two bytes....";
static _Atomic unsigned unwiped, frees;

void __real_free(void *p);
void __wrap_free(void *p);

void __wrap_free(void *p)
{
	if (p) {
		atomic_fetch_add(&frees, 1);
		if (memmem(p, malloc_usable_size(p), secret, sizeof secret))
			atomic_fetch_add(&unwiped, 1);
	}
	__real_free(p);
}

static _Atomic unsigned heard;

static int on_frame(void *ctx, const struct frame *f)
{
	(void)ctx;
	if (memmem(f->body, f->len, secret, sizeof secret))
		atomic_fetch_add(&heard, 1);
	return 0;
}

static void on_lost(void *ctx, bool clean)
{
	(void)ctx;
	(void)clean;
}

static void await_heard(unsigned least)
{
	for (unsigned i = 0; i < 20000 && atomic_load(&heard) < least; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(atomic_load(&heard), least);
}

static size_t make_frame(uint8_t to[static FRAME_HEAD + sizeof secret])
{
	frame_head_encode(MSG_START, sizeof secret, to);
	memcpy(to + FRAME_HEAD, secret, sizeof secret);
	return FRAME_HEAD + sizeof secret;
}

/* The secret arrives with bytes read before, arrives again, and is sent once. */
static void control_channel_leaves_no_secret_in_freed_memory(void **state)
{
	const struct control_handler h = {.on_frame = on_frame, .on_lost = on_lost};
	uint8_t frame[FRAME_HEAD + sizeof secret], back[sizeof frame];
	size_t len = make_frame(frame);
	struct control *c;
	struct channel *ch;
	int fd[2];

	(void)state;
	atomic_store(&unwiped, 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	assert_int_equal(channel_over_fds(fd[0], dup(fd[0]), &ch), 0);
	assert_int_equal(control_start(ch, &h, frame, len, &c), 0);
	await_heard(1);
	assert_int_equal(write_full(fd[1], frame, len), 0);
	await_heard(2);
	assert_int_equal(control_send(c, MSG_START, secret, sizeof secret), 0);
	assert_int_equal(read_full(fd[1], back, sizeof back), sizeof back);
	atomic_store(&frees, 0);
	control_close(c);
	assert_true(atomic_load(&frees) > 0);
	assert_int_equal(atomic_load(&unwiped), 0);
	close_fd(fd[1]);
}

/* Nor after writing, when the buffer grows because the pipe is full, or at the end. */
static void conductor_pipe_leaves_no_secret_in_freed_memory(void **state)
{
	static uint8_t rest[FRAME_BODY_MAX];
	static struct end_pipe l;
	int in[2], out[2];

	(void)state;
	atomic_store(&unwiped, 0);
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	end_pipe_init(&l);
	l.child.in = in[1];
	l.child.out = out[0];
	assert_int_equal(end_pipe_open(&l), 0);
	assert_int_equal(end_pipe_send(&l, MSG_START, secret, sizeof secret), 0);
	assert_int_equal(l.out_end, 0);
	assert_null(memmem(l.out, l.out_size, secret, sizeof secret));
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(end_pipe_send(&l, MSG_START, secret, sizeof secret), 0);
		assert_int_equal(end_pipe_send(&l, MSG_WANT, rest, sizeof rest), 0);
	}
	assert_true(l.out_end > l.out_start);
	atomic_store(&frees, 0);
	end_pipe_close(&l);
	assert_true(atomic_load(&frees) > 0);
	assert_int_equal(atomic_load(&unwiped), 0);
	close_fd(in[0]);
	close_fd(out[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_channel_leaves_no_secret_in_freed_memory),
		cmocka_unit_test(conductor_pipe_leaves_no_secret_in_freed_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
