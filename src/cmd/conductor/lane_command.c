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
#include "base/io.h"
#include "base/log.h"
#include "base/random.h"
#include "cmd/conductor/carrier.h"
#include "cmd/conductor/loopback.h"
#include "cmd/conductor/pump.h"
#include "session/channel/key.h"

enum {
	KEEPER_MS = 10000, /* it answers within */
	SHOW_PAUSE_MS = 100, /* after it could not */
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
	/* The end of a connection is nobody's fault here. */
	if (errno == ECONNRESET || errno == EPIPE)
		return OUT_SOCKET;
	fail_as(OUT_SOCKET, "pass on its bytes: %m");
	return warn_lane_failed();
}

int lane_command_run(void)
{
	unsigned char port[2], said = 0;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	if (read_full(STDIN_FILENO, port, sizeof port) != (ssize_t)sizeof port)
		return OUT_PEER_LOST;
	fd = loopback_connect((unsigned)(port[0] << 8 | port[1]));
	if (fd < 0)
		said = (unsigned char)errno;
	if (write_full(STDOUT_FILENO, &said, 1) || said) {
		close_fd(fd);
		return OUT_CONNECT;
	}
	return pump_connection(fd);
}

/* Where the keeper shows its listening socket: an abstract name that only the token tells. */
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

static int send_fd(int to, int fd)
{
	char byte = 'l';
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof control.room};

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(to, &m, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* -1 with errno. */
static int receive_fd(int from)
{
	const struct timeval patience = {.tv_sec = KEEPER_MS / 1000};
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof control.room};
	ssize_t n;
	int fd;

	if (setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
		return -1;
	n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
	if (n < 0 && errno == EAGAIN)
		errno = ETIMEDOUT;
	if (n < 0)
		return -1;
	if (n == 0 || !CMSG_FIRSTHDR(&m) || control.head.cmsg_type != SCM_RIGHTS ||
	    control.head.cmsg_len != CMSG_LEN(sizeof fd)) {
		/* The kernel leaves out a descriptor for which there is no room. */
		errno = m.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
		return -1;
	}
	memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
	return fd;
}

/* Is the process at the other end of a unix socket this user's? */
static bool is_own_process(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == geteuid();
}

static int pass_listener(int unix_fd, int listener)
{
	int fd = accept4(unix_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return fail_as(OUT_SOCKET, "show the port to a place for a lane: %m");
	if (is_own_process(fd))
		send_fd(fd, listener);
	close_fd(fd);
	return 0;
}

/* Until the conductor is gone.  Places wait while the port can't be shown to them, KEEPER_MS. */
static void serve_listener(int unix_fd, int listener)
{
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
			      {.fd = unix_fd, .events = POLLIN}};
	bool told = false;

	while (poll(p, 2, -1) >= 0 || errno == EINTR) {
		if (p[0].revents)
			break;
		if (!p[1].revents || pass_listener(unix_fd, listener) == 0)
			continue;
		if (!told)
			warn_lane_failed();
		told = true;
		poll(p, 1, SHOW_PAUSE_MS);
	}
}

static int run_keeper(void)
{
	unsigned char says[KEEPER_SAYS];
	struct sockaddr_un un;
	unsigned port;
	int listener = loopback_listen(&port);
	int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len;

	if (listener < 0 || unix_fd < 0 || random_bytes(says + 2, TOKEN_SIZE))
		return fail_as(OUT_SOCKET, "listen on this host's loopback: %m");
	len = make_keeper_address(says + 2, &un);
	if (bind(unix_fd, (struct sockaddr *)&un, len) < 0 || listen(unix_fd, SOMAXCONN) < 0)
		return fail_as(OUT_SOCKET, "listen for lanes: %m");
	says[0] = (unsigned char)(port >> 8);
	says[1] = (unsigned char)port;
	if (write_full(STDOUT_FILENO, says, sizeof says))
		return fail_as(OUT_PEER_LOST, "tell the port: %m");
	serve_listener(unix_fd, listener);
	close_fd(listener);
	close_fd(unix_fd);
	return 0;
}

/* Wait for a connection, and take it if it is this user's: 0 with *fd, which is -1 if it is not;
 * -1 also when the conductor is gone. */
static int accept_own_connection(int listener, int *fd)
{
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = 0},
			      {.fd = listener, .events = POLLIN}};
	enum loopback_peer peer;

	if (poll(p, 2, -1) < 0)
		return errno == EINTR ? 0 : fail_as(OUT_SOCKET, "wait for a lane: %m");
	if (p[0].revents)
		return fail_as(OUT_PEER_LOST, "the conductor is gone");
	/* Several wait on it: the keeper made it non-blocking for all. */
	*fd = loopback_accept(listener);
	if (*fd < 0 &&
	    (errno == EPERM || errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return 0;
	if (*fd < 0)
		return fail_as(OUT_SOCKET, "take a lane's connection here: %m");
	peer = loopback_peer(*fd);
	if (peer == LOOPBACK_OURS)
		return 0;
	if (peer == LOOPBACK_UNKNOWN)
		fail_as(OUT_SOCKET, "find out whose connection to this host's loopback it is: %m");
	close_fd(*fd);
	*fd = -1;
	return peer == LOOPBACK_UNKNOWN ? -1 : 0;
}

/* The keeper's listening socket, or -1. */
static int receive_listener(const unsigned char token[static TOKEN_SIZE])
{
	struct sockaddr_un un;
	socklen_t len = make_keeper_address(token, &un);
	int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;

	if (unix_fd < 0 || connect(unix_fd, (struct sockaddr *)&un, len) < 0)
		fail_as(OUT_SOCKET, "connect to the keeper of the port: %m");
	else if (!is_own_process(unix_fd))
		fail_as(OUT_SOCKET, "the keeper of the port is another user's");
	else if ((fd = receive_fd(unix_fd)) < 0)
		fail_as(OUT_SOCKET, "take the port from its keeper: %m");
	close_fd(unix_fd);
	return fd;
}

/* Take one connection from the keeper's socket; -1 also when the conductor is gone. */
static int take_connection(const unsigned char token[static TOKEN_SIZE])
{
	int listener = receive_listener(token), fd = -1;

	if (listener < 0)
		return -1;
	if (write_full(STDOUT_FILENO, "r", 1)) {
		close_fd(listener);
		return fail_as(OUT_PEER_LOST, "report a place for a lane: %m");
	}
	while (accept_own_connection(listener, &fd) == 0 && fd < 0)
		;
	close_fd(listener);
	return fd;
}

int lane_command_listen(void)
{
	static const unsigned char zeros[TOKEN_SIZE];
	unsigned char token[TOKEN_SIZE];
	int fd;

	signal(SIGPIPE, SIG_IGN);
	if (read_full(STDIN_FILENO, token, sizeof token) != (ssize_t)sizeof token)
		return OUT_PEER_LOST;
	if (memcmp(token, zeros, sizeof zeros) == 0)
		return run_keeper() ? warn_lane_failed() : OUT_DONE;
	fd = take_connection(token);
	if (fd >= 0)
		return pump_connection(fd);
	return failed()->code == OUT_PEER_LOST ? OUT_PEER_LOST : warn_lane_failed();
}
