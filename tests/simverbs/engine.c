/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "delay.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool running;
static int poll_fd = -1, wake_fd = -1;
static struct engine_watch *watches;
static struct engine_timer *timers; /* the earliest first */
static uint64_t last_id;
static void (*poked)(void);

void engine_lock(void)
{
	pthread_mutex_lock(&lock);
}

void engine_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static void wake_thread(void)
{
	uint64_t one = 1;

	if (write(wake_fd, &one, sizeof one) < 0)
		return;
}

static void take_wake(void)
{
	uint64_t n;

	if (read(wake_fd, &n, sizeof n) < 0)
		return;
	if (poked)
		poked();
}

void engine_on_poke(void (*fn)(void))
{
	poked = fn;
}

void engine_poke(void)
{
	wake_thread();
}

static void fire_timers(void)
{
	uint64_t now = delay_now();

	while (timers && timers->at_ns <= now) {
		struct engine_timer *t = timers;

		timers = t->next;
		t->set = false;
		t->fire(t);
	}
}

/* NULL: no timer is set. */
static struct timespec *measure_wait(struct timespec *to)
{
	uint64_t now = delay_now(), ns;

	if (!timers)
		return NULL;
	ns = timers->at_ns <= now ? 0 : timers->at_ns - now;
	*to = (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				.tv_nsec = (long)(ns % 1000000000u)};
	return to;
}

/* It may have gone since the kernel reported it, so it is known by number only. */
static struct engine_watch *find_watch(uint64_t id)
{
	struct engine_watch *w = watches;

	while (w && w->id != id)
		w = w->next;
	return w;
}

/* Valgrind 3.19 and kernels before 5.11 have no epoll_pwait2(2): then waits are whole milliseconds.
 */
static int await_event(struct epoll_event *e, const struct timespec *wait)
{
	int n = epoll_pwait2(poll_fd, e, 1, wait, NULL);

	if (n >= 0 || errno != ENOSYS)
		return n;
	return epoll_wait(poll_fd, e, 1,
			  wait ? (int)(wait->tv_sec * 1000 + (wait->tv_nsec + 999999) / 1000000)
			       : -1);
}

static void *run_engine(void *arg)
{
	(void)arg;
	pthread_setname_np(pthread_self(), "simverbs");
	engine_lock();
	for (;;) {
		struct timespec room, *wait = measure_wait(&room);
		struct engine_watch *w;
		struct epoll_event e;
		int n;

		engine_unlock();
		n = await_event(&e, wait);
		engine_lock();
		fire_timers();
		if (n <= 0)
			continue;
		w = find_watch(e.data.u64);
		if (w)
			w->ready(w);
		else if (e.data.u64 == 0)
			take_wake();
	}
	return NULL;
}

static void close_all(void)
{
	if (poll_fd >= 0)
		close(poll_fd);
	if (wake_fd >= 0)
		close(wake_fd);
	poll_fd = wake_fd = -1;
}

/* A child has neither the thread nor anything that its parent made. */
static void forget_parent(void)
{
	pthread_mutex_init(&lock, NULL);
	close_all();
	running = false;
	watches = NULL;
	timers = NULL;
}

static int start_thread(void)
{
	sigset_t all, old;
	pthread_t t;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t, NULL, run_engine, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_detach(t);
	errno = rc;
	return rc ? -1 : 0;
}

int engine_start(void)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0};
	static bool registered;

	if (running)
		return 0;
	poll_fd = epoll_create1(EPOLL_CLOEXEC);
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (poll_fd < 0 || wake_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, wake_fd, &e) ||
	    start_thread()) {
		int err = errno;

		close_all();
		errno = err;
		return -1;
	}
	if (!registered)
		pthread_atfork(engine_lock, engine_unlock, forget_parent);
	registered = true;
	running = true;
	return 0;
}

int engine_watch(struct engine_watch *w)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = ++last_id};

	w->id = last_id;
	if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, w->fd, &e))
		return -1;
	w->next = watches;
	watches = w;
	return 0;
}

void engine_unwatch(struct engine_watch *w)
{
	for (struct engine_watch **at = &watches; *at; at = &(*at)->next)
		if (*at == w) {
			*at = w->next;
			epoll_ctl(poll_fd, EPOLL_CTL_DEL, w->fd, NULL);
			return;
		}
}

void engine_set(struct engine_timer *t, uint64_t ns)
{
	struct engine_timer **at = &timers;

	engine_cancel(t);
	t->at_ns = delay_now() + ns;
	t->set = true;
	while (*at && (*at)->at_ns <= t->at_ns)
		at = &(*at)->next;
	t->next = *at;
	*at = t;
	if (timers == t)
		wake_thread();
}

void engine_cancel(struct engine_timer *t)
{
	if (!t->set)
		return;
	for (struct engine_timer **at = &timers; *at; at = &(*at)->next)
		if (*at == t) {
			*at = t->next;
			break;
		}
	t->set = false;
}
