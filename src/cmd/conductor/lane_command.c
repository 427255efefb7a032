/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that carry one lane on a far host: rdcp --lane and rdcp --lane-listen. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/fd_pass.h"
#include "base/io.h"
#include "base/log.h"
#include "base/random.h"
#include "cmd/conductor/carrier.h"
#include "cmd/conductor/loopback.h"
#include "cmd/conductor/pump.h"
#include "session/channel/key.h"

enum {
	KEEPER_MS = 10000, /* how long to wait for the keeper's socket */
	ACCEPT_PAUSE_MS = 100, /* after accept(2) failed */
};

static const struct pump_side stdio = {.in = STDIN_FILENO, .out = STDOUT_FILENO};

static int warn_lane_failed(void)
{
	log_warn("a lane over ssh: %s", failed()->text);
	return (int)failed()->code;
}

static int pump_connection(int fd)
{
	const struct pump_side side = {.in = fd, .out = fd};

	if (pump_run(&stdio, &side, -1) == 0)
		return OUT_DONE;
	/* Not a failure of this process: a peer closed its connection. */
	if (errno == ECONNRESET || errno == EPIPE)
		return OUT_SOCKET;
	fail_as(OUT_SOCKET, "relay its bytes: %m");
	return warn_lane_failed();
}

/* Reads what the conductor sends first.  Returns OUT_DONE, or the exit code: nobody is left to read
 * a reason if the conductor is gone. */
static int read_conductor_bytes(void *to, size_t len)
{
	ssize_t n = read_full(STDIN_FILENO, to, len);

	if (n == (ssize_t)len)
		return OUT_DONE;
	if (n >= 0)
		return OUT_PEER_LOST;
	fail_as(OUT_SOCKET, "read from the conductor: %m");
	return warn_lane_failed();
}

/* Returns the exit code: nobody is left to read a reason if the conductor is gone. */
static int fail_to_report(const char *what)
{
	if (errno == EPIPE)
		return OUT_PEER_LOST;
	fail_as(OUT_SOCKET, "tell the conductor %s: %m", what);
	return warn_lane_failed();
}

int lane_command_run(void)
{
	unsigned char port[2], error = 0;
	int rc;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	rc = read_conductor_bytes(port, sizeof port);
	if (rc != OUT_DONE)
		return rc;
	fd = loopback_connect((unsigned)(port[0] << 8 | port[1]));
	if (fd < 0)
		error = (unsigned char)errno;
	if (write_full(STDOUT_FILENO, &error, 1)) {
		rc = fail_to_report("whether the lane is connected");
		close_fd(fd);
		return rc;
	}
	return error ? OUT_CONNECT : pump_connection(fd);
}

/* The keeper passes its listening socket at an abstract name that contains the token. */
static socklen_t make_keeper_address(const unsigned char token[static TOKEN_SIZE],
				     struct sockaddr_un *un)
{
	char *at = un->sun_path + 1;

	memset(un, 0, sizeof *un);
	un->sun_family = AF_UNIX;
	at += sprintf(at, "sluice-");
	for (int i = 0; i < TOKEN_SIZE; i++)
		at += sprintf(at, "%02x", token[i]);
	return (socklen_t)(at - (char *)un);
}

/* Returns the descriptor, or -1 with errno: ECONNRESET if the other process has ended. */
static int receive_fd(int from)
{
	const struct timeval timeout = {.tv_sec = KEEPER_MS / 1000};
	char byte;
	int fd;
	ssize_t n;

	if (setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0)
		return -1;
	n = fd_receive(from, &byte, 1, &fd, 0);
	if (n < 0 && errno == EAGAIN)
		errno = ETIMEDOUT;
	else if (n == 0)
		errno = ECONNRESET;
	return fd;
}

/* Fails unless the process at the other end of a unix socket is of this user. */
static int check_own_process(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return fail_as(OUT_SOCKET, "find the owner of a process that carries lanes: %m");
	return cred.uid == geteuid()
		       ? 0
		       : fail_as(OUT_SOCKET, "a process of another user offers to carry lanes");
}

static int pass_listener(int unix_fd, int listener)
{
	int fd = accept4(unix_fd, NULL, NULL, SOCK_CLOEXEC), rc;

	if (fd < 0)
		return fail_as(OUT_SOCKET, "accept a request for the port: %m");
	rc = check_own_process(fd);
	/* A process that has ended needs no port. */
	if (rc == 0 && fd_send(fd, "l", 1, listener, 0) < 0 && errno != EPIPE &&
	    errno != ECONNRESET)
		rc = fail_as(OUT_SOCKET, "pass the port to the process of a lane: %m");
	close_fd(fd);
	return rc;
}

/* Reads a byte of the conductor: no process of a lane is left. Closes the connections that wait for
 * one. Returns 1, or 0 if the conductor is gone. */
static int close_waiting(int listener)
{
	char byte;
	ssize_t n = read(STDIN_FILENO, &byte, 1);
	int fd;

	if (n <= 0)
		return n < 0 && errno == EINTR;
	while ((fd = loopback_accept(listener)) >= 0)
		close_fd(fd);
	return 1;
}

/* Serves the processes of lanes until the conductor is gone. If that fails they wait, up to
 * KEEPER_MS. */
static int serve_listener(int unix_fd, int listener)
{
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
			      {.fd = unix_fd, .events = POLLIN}};
	bool warned = false;

	while (poll(p, 2, -1) >= 0 || errno == EINTR) {
		if (p[0].revents && !close_waiting(listener))
			return 0;
		if (!p[1].revents || pass_listener(unix_fd, listener) == 0)
			continue;
		if (!warned)
			warn_lane_failed();
		warned = true;
		poll(p, 1, ACCEPT_PAUSE_MS);
	}
	return fail_as(OUT_SOCKET, "wait for lanes: %m");
}

static int run_keeper(void)
{
	unsigned char reply[KEEPER_REPLY];
	struct sockaddr_un un;
	unsigned port;
	int listener = loopback_listen(&port), rc;
	int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len;

	if (listener < 0 || unix_fd < 0 || random_bytes(reply + 2, TOKEN_SIZE))
		return fail_as(OUT_SOCKET, "listen on this host's loopback: %m");
	len = make_keeper_address(reply + 2, &un);
	if (bind(unix_fd, (struct sockaddr *)&un, len) < 0 || listen(unix_fd, SOMAXCONN) < 0)
		return fail_as(OUT_SOCKET, "listen for lanes: %m");
	reply[0] = (unsigned char)(port >> 8);
	reply[1] = (unsigned char)port;
	if (write_full(STDOUT_FILENO, reply, sizeof reply))
		return fail_as(OUT_PEER_LOST, "report the port: %m");
	rc = serve_listener(unix_fd, listener);
	close_fd(listener);
	close_fd(unix_fd);
	return rc;
}

/* Accepts one connection. Returns 0 with *fd, which is -1 for a connection of another user; -1 with
 * a failure, also if the conductor is gone. After a failure *fd stays open until this process has
 * reported it and exits: the end that connected would fail first otherwise, without the reason. */
static int accept_own_connection(int listener, int *fd)
{
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = 0},
			      {.fd = listener, .events = POLLIN}};
	enum loopback_peer peer;

	if (poll(p, 2, -1) < 0)
		return errno == EINTR ? 0 : fail_as(OUT_SOCKET, "wait for a lane: %m");
	if (p[0].revents)
		return fail_as(OUT_PEER_LOST, "the conductor is gone");
	/* Several processes poll the listener, so it is non-blocking. */
	*fd = loopback_accept(listener);
	if (*fd < 0 &&
	    (errno == EPERM || errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return 0;
	if (*fd < 0)
		return fail_as(OUT_SOCKET, "accept a lane's connection: %m");
	peer = loopback_peer(*fd);
	if (peer == LOOPBACK_OURS)
		return 0;
	if (peer == LOOPBACK_UNKNOWN)
		return fail_as(OUT_SOCKET,
			       "find the owner of a connection to this host's loopback: %m");
	close_fd(*fd);
	*fd = -1;
	return 0;
}

/* A keeper that has ended is no news for the conductor, which ends it with the session. */
static enum outcome keeper_outcome(void)
{
	return errno == ECONNREFUSED || errno == ECONNRESET ? OUT_PEER_LOST : OUT_SOCKET;
}

/* Returns the keeper's listening socket, or -1 with a failure: OUT_PEER_LOST if it has ended. */
static int receive_listener(const unsigned char token[static TOKEN_SIZE])
{
	struct sockaddr_un un;
	socklen_t len = make_keeper_address(token, &un);
	int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;

	if (unix_fd < 0 || connect(unix_fd, (struct sockaddr *)&un, len) < 0)
		fail_as(keeper_outcome(), "connect to the process that holds the port: %m");
	else if (check_own_process(unix_fd) == 0 && (fd = receive_fd(unix_fd)) < 0)
		fail_as(keeper_outcome(), "receive the port from the process that holds it: %m");
	close_fd(unix_fd);
	return fd;
}

/* Accepts one connection at the keeper's socket. Returns -1 also if the conductor is gone. */
static int take_connection(const unsigned char token[static TOKEN_SIZE])
{
	int listener = receive_listener(token), fd = -1, rc;

	if (listener < 0)
		return -1;
	if (write_full(STDOUT_FILENO, "r", 1)) {
		close_fd(listener);
		return fail_as(errno == EPIPE ? OUT_PEER_LOST : OUT_SOCKET,
			       "report that a lane can connect: %m");
	}
	do {
		rc = accept_own_connection(listener, &fd);
	} while (rc == 0 && fd < 0);
	close_fd(listener);
	return rc ? -1 : fd;
}

const unsigned char keeper_request[TOKEN_SIZE] = {0};

int lane_command_listen(void)
{
	unsigned char token[TOKEN_SIZE];
	int fd, rc;

	signal(SIGPIPE, SIG_IGN);
	rc = read_conductor_bytes(token, sizeof token);
	if (rc != OUT_DONE)
		return rc;
	if (memcmp(token, keeper_request, sizeof token) == 0)
		return run_keeper() ? warn_lane_failed() : OUT_DONE;
	fd = take_connection(token);
	if (fd >= 0)
		return pump_connection(fd);
	return failed()->code == OUT_PEER_LOST ? OUT_PEER_LOST : warn_lane_failed();
}
