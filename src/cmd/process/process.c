/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/io.h"
#include "base/log.h"
#include "session/channel/key_ring.h"

int process_reserve_stdio(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 &&
		    RETRIED(open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY)) != fd)
			return fail("open /dev/null: %m");
	}
	return 0;
}

void process_protect_secrets(void)
{
	struct rlimit core;

	prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &core);
	}
}

void process_raise_descriptors(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

void process_start_log(const struct options *o)
{
	enum log_level most = LOG_WARN;

	if (o->output.quiet)
		most = LOG_ERROR;
	else if (o->output.verbose)
		most = o->output.verbose == 1   ? LOG_INFO
		       : o->output.verbose == 2 ? LOG_DEBUG
						: LOG_TRACE;
	log_setup(program_name(o->program), most);
}

int process_flush_stdout(void)
{
	static int first;
	bool failed_before = ferror(stdout), failed_now;

	/* What was not written stays in the buffer. */
	while ((failed_now = fflush(stdout) != 0) && errno == EINTR && !failed_before)
		clearerr(stdout);
	/* An earlier write may have failed: stdout may be unbuffered, or its buffer full. */
	if ((failed_now || failed_before) && !first)
		first = errno;
	return first;
}

_Noreturn void process_exit(int code)
{
	errno = process_flush_stdout();
	if (errno && code == OUT_DONE) {
		log_at(LOG_ERROR, "write to stdout: %m");
		code = OUT_FILE;
	}
	exit(code);
}

_Noreturn void process_exit_plainly(void)
{
	log_at(LOG_ERROR, "%s", failed()->text);
	process_exit((int)failed()->code);
}

_Noreturn void process_exit_failed(enum program program)
{
	log_at(LOG_ERROR, "%s", failed()->text);
	if (failed()->code == OUT_USAGE)
		print_synopsis(stderr, program);
	process_exit((int)failed()->code);
}

static void make_key(const struct options *o)
{
	static char text[KEY_LINE_MAX];

	if (o->key.secrets ? key_ring_make(o->key.secrets, o->key.make, text)
			   : psk_make_file(o->key.make))
		process_exit_plainly();
	if (o->key.secrets)
		puts(text);
	explicit_bzero(text, sizeof text);
	process_exit(OUT_DONE);
}

/* A signal that the parent blocked would never arrive: SIGTERM, or SIGUSR2, which wakes threads. */
static void clear_signal_mask(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void process_parse_options(struct options *o, enum program program, int argc, char **argv)
{
	int rc = process_reserve_stdio();

	clear_signal_mask();
	/* A write beyond `ulimit -f' must fail with a message, like a write to a full disk. */
	signal(SIGXFSZ, SIG_IGN);
	log_setup(program_name(program), LOG_WARN);
	if (rc || options_parse(o, program, argc, argv))
		process_exit_failed(program);
	process_start_log(o);
	switch (o->action) {
	case ACTION_HELP:
		print_help(stdout, program);
		process_exit(OUT_DONE);
	case ACTION_VERSION:
		print_version(stdout, program);
		process_exit(OUT_DONE);
	case ACTION_LIST:
		print_options(stdout, program);
		process_exit(OUT_DONE);
	case ACTION_MAKE_KEY:
		make_key(o);
		return;
	case ACTION_RUN:
	case ACTION_END:
	case ACTION_ENDS:
	case ACTION_LANE:
	case ACTION_LANE_LISTEN:
	case ACTION_SURVEY:
		return;
	}
}
