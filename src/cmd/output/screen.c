/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/screen.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/escape.h"
#include "base/log.h"

/* A pipe that polls writable takes WRITE_MAX bytes without blocking (PIPE_BUF). */
enum { WRITE_MAX = 4096, TEXT_ROOM = 2048 };

static struct {
	pthread_mutex_t lock;
	const char *program;
	void (*wake)(void);
	char kept[SCREEN_KEPT_MAX];
	size_t len;
	unsigned dropped; /* lines for which kept[] had no room */
	char live[SCREEN_LINE_MAX]; /* the live line to show */
	char shown[SCREEN_LINE_MAX]; /* the live line on the terminal */
} screen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool has_pending_output(void)
{
	return screen.len > 0 || strcmp(screen.live, screen.shown) != 0;
}

/* The caller of each function below holds the lock. */
static void keep_line(const char *text)
{
	int n = snprintf(screen.kept + screen.len, sizeof screen.kept - screen.len, "%s: %s\n",
			 screen.program, text);

	if (n > 0 && (size_t)n < sizeof screen.kept - screen.len)
		screen.len += (size_t)n;
	else
		screen.dropped++;
}

/* Writes once. Returns false if stderr is closed. */
static bool write_once(const char *text, size_t len, size_t *written)
{
	ssize_t n = write(STDERR_FILENO, text, len);

	*written = n > 0 ? (size_t)n : 0;
	return n >= 0 || errno == EINTR || errno == EAGAIN;
}

/* In the background the live line would overwrite the shell's prompt. */
static bool is_in_background(void)
{
	pid_t front = tcgetpgrp(STDERR_FILENO);

	return front > 0 && front != getpgrp();
}

static bool erase_live_line(void)
{
	static const char erase[] = "\r\033[K";
	size_t written;

	screen.shown[0] = '\0';
	if (is_in_background())
		return true;
	return write_once(erase, sizeof erase - 1, &written);
}

static bool write_kept(void)
{
	size_t len = screen.len < WRITE_MAX ? screen.len : WRITE_MAX, written;
	bool ok;

	if (screen.shown[0] && !erase_live_line())
		return false;
	ok = write_once(screen.kept, len, &written);
	screen.len -= written;
	memmove(screen.kept, screen.kept + written, screen.len);
	if (screen.len == 0 && screen.dropped) {
		char text[64];

		snprintf(text, sizeof text, "%u more lines were dropped because stderr is too slow",
			 screen.dropped);
		screen.dropped = 0;
		keep_line(text);
	}
	return ok;
}

/* The bytes of UTF-8 text that fit the line. The last column stays free: a terminal wraps a full
 * line, and a carriage return then returns only to the start of its last part. */
static int count_fitting_bytes(const char *text)
{
	struct winsize size;
	int left, at = 0;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return (int)strlen(text);
	for (left = size.ws_col - 1; text[at] && left > 0; left--) {
		at++;
		while ((text[at] & 0xc0) == 0x80)
			at++;
	}
	return at;
}

static bool write_live(void)
{
	char text[SCREEN_LINE_MAX + 8];
	size_t written;

	memcpy(screen.shown, screen.live, sizeof screen.shown);
	if (is_in_background())
		return true;
	snprintf(text, sizeof text, "\r%.*s\033[K", count_fitting_bytes(screen.live), screen.live);
	return write_once(text, strlen(text), &written);
}

static void drop_pending_output(void)
{
	screen.len = 0;
	memcpy(screen.shown, screen.live, sizeof screen.shown);
}

/* Writes while stderr accepts output. ms: how long to wait for that each time; -1: forever. */
static void write_pending_output(int ms)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	while (has_pending_output() && poll(&p, 1, ms) > 0) {
		if (!(screen.len ? write_kept() : write_live()))
			drop_pending_output();
	}
}

static void show_log_line(enum log_level level, const char *line)
{
	char text[TEXT_ROOM];

	(void)level;
	escape(text, sizeof text, line, strlen(line));
	screen_line(text);
}

void screen_begin(const char *program, void (*wake)(void))
{
	screen.program = program;
	screen.wake = wake;
	log_to(show_log_line);
}

void screen_line(const char *text)
{
	bool left;

	pthread_mutex_lock(&screen.lock);
	keep_line(text);
	write_pending_output(0);
	left = has_pending_output();
	pthread_mutex_unlock(&screen.lock);
	if (left && screen.wake)
		screen.wake();
}

void screen_live(const char *text)
{
	pthread_mutex_lock(&screen.lock);
	snprintf(screen.live, sizeof screen.live, "%s", text);
	write_pending_output(0);
	pthread_mutex_unlock(&screen.lock);
}

bool screen_is_pending(void)
{
	bool is;

	pthread_mutex_lock(&screen.lock);
	is = has_pending_output();
	pthread_mutex_unlock(&screen.lock);
	return is;
}

void screen_flush(void)
{
	pthread_mutex_lock(&screen.lock);
	write_pending_output(0);
	pthread_mutex_unlock(&screen.lock);
}

void screen_end(void)
{
	log_to(NULL);
	pthread_mutex_lock(&screen.lock);
	screen.live[0] = '\0';
	write_pending_output(-1);
	pthread_mutex_unlock(&screen.lock);
}
