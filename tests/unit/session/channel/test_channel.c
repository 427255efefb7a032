/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "session/channel/channel.h"

/* Both ends run in one thread: every call is non-blocking, so they step alternately. */

static const struct psk right = {{1, 2, 3}}, wrong = {{1, 2, 4}};

static void socket_pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&a, sizeof a), 0);
	fd[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd[1] >= 0);
	close(l);
}

struct ends {
	struct channel *client, *server;
};

static struct ends ends_over(int fd[2], const struct psk *client, const struct psk *server)
{
	struct ends e;

	assert_int_equal(channel_tls_client(fd[0], client, &e.client), 0);
	assert_int_equal(channel_tls_server(fd[1], server, &e.server), 0);
	return e;
}

static struct ends ends_new(const struct psk *client, const struct psk *server)
{
	int fd[2];

	socket_pair(fd);
	return ends_over(fd, client, server);
}

static void ends_free(struct ends *e)
{
	channel_free(e->client);
	channel_free(e->server);
}

/* Both ends step until both are done or failed; the results and the failures. */
struct shaken {
	int client, server;
	struct failure client_why, server_why;
};

static struct shaken shake(struct ends *e)
{
	struct shaken s = {0};

	for (unsigned i = 0; i < 100 && (!s.client || !s.server); i++) {
		if (!s.client) {
			s.client = channel_handshake(e->client);
			s.client_why = *failed();
		}
		if (!s.server) {
			s.server = channel_handshake(e->server);
			s.server_why = *failed();
		}
	}
	return s;
}

static struct ends ends_ready(void)
{
	struct ends e = ends_new(&right, &right);
	struct shaken s = shake(&e);

	assert_int_equal(s.client, 1);
	assert_int_equal(s.server, 1);
	return e;
}

static void say(struct channel *from, struct channel *to, const char *text)
{
	char got[64];
	bool eof;

	assert_int_equal(channel_write(from, text, strlen(text)), strlen(text));
	assert_int_equal(channel_read(to, got, sizeof got, &eof), strlen(text));
	assert_memory_equal(got, text, strlen(text));
	assert_false(eof);
}

/* ---- the key ------------------------------------------------------------------------- */

static void right_key_opens_the_channel(void **state)
{
	struct ends e = ends_ready();
	struct pollfd p[2];
	char c;
	bool eof;

	(void)state;
	assert_int_equal(channel_handshake(e.client), 1);
	say(e.client, e.server, "from the source");
	say(e.server, e.client, "from the sink");
	assert_int_equal(channel_read(e.client, &c, 1, &eof), 0);
	assert_false(eof);
	assert_int_equal(channel_polls(e.client, false, p), 1);
	assert_int_equal(p[0].events, POLLIN);
	assert_int_equal(channel_polls(e.client, true, p), 1);
	assert_int_equal(p[0].events, POLLIN | POLLOUT);
	ends_free(&e);
}

static void both_ends_derive_one_secret(void **state)
{
	struct ends e = ends_ready(), other = ends_ready();
	uint8_t mine[LANE_SECRET], yours[LANE_SECRET], theirs[LANE_SECRET];

	(void)state;
	assert_int_equal(channel_secret(e.client, mine), 0);
	assert_int_equal(channel_secret(e.server, yours), 0);
	assert_int_equal(channel_secret(other.client, theirs), 0);
	assert_memory_equal(mine, yours, sizeof mine);
	/* The same key on another connection gives another secret. */
	assert_memory_not_equal(mine, theirs, sizeof mine);
	ends_free(&e);
	ends_free(&other);
}

static void nothing_is_sent_before_the_handshake(void **state)
{
	struct ends e = ends_new(&right, &right);
	uint8_t secret[LANE_SECRET];
	bool eof;

	(void)state;
	assert_int_equal(channel_secret(e.client, secret), -1);
	assert_int_equal(channel_read(e.server, secret, 1, &eof), -1);
	assert_int_equal(channel_write(e.client, "x", 1), -1);
	ends_free(&e);
}

static void both_ends_report_a_wrong_key(void **state)
{
	struct ends e = ends_new(&wrong, &right);
	struct shaken s;

	(void)state;
	channel_set_peer(e.client, "storage2");
	s = shake(&e);
	assert_int_equal(s.client, -1);
	assert_int_equal(s.server, -1);
	assert_int_equal(s.client_why.code, OUT_AUTH);
	assert_int_equal(s.server_why.code, OUT_AUTH);
	assert_string_equal(s.client_why.text, "TLS handshake with storage2: wrong key");
	assert_string_equal(s.server_why.text, "TLS handshake with the peer: wrong key");
	assert_int_equal(channel_handshake(e.server), -1);
	ends_free(&e);
}

/* ---- strangers: clients that use OpenSSL in ways that Sluice does not --------------------- */

static const char *stranger_identity;
static const char *stranger_cipher;

static int stranger_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *len,
			SSL_SESSION **session)
{
	static const unsigned char sha256[] = {0x13, 0x01}, sha384[] = {0x13, 0x02};
	bool longer = stranger_cipher && strstr(stranger_cipher, "SHA384");
	SSL_SESSION *s = SSL_SESSION_new();

	(void)md;
	SSL_SESSION_set1_master_key(s, right.bytes, sizeof right.bytes);
	SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, longer ? sha384 : sha256));
	SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION);
	*id = (const unsigned char *)stranger_identity;
	*len = strlen(stranger_identity);
	*session = s;
	return 1;
}

static void certify(SSL_CTX *ctx)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();

	assert_non_null(key);
	X509_set_pubkey(cert, key);
	X509_gmtime_adj(X509_getm_notBefore(cert), 0);
	X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
	assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
	assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
	X509_free(cert);
	EVP_PKEY_free(key);
}

/* Shake hands with our server as a stranger, until one end fails or both are done. */
static int stranger_calls(SSL_CTX *ctx, struct failure *why)
{
	struct channel *server;
	SSL *ssl;
	int fd[2], rc = 0;

	socket_pair(fd);
	assert_int_equal(fcntl(fd[0], F_SETFL, O_NONBLOCK), 0);
	ssl = SSL_new(ctx);
	SSL_set_fd(ssl, fd[0]);
	assert_int_equal(channel_tls_server(fd[1], &right, &server), 0);
	for (unsigned i = 0; i < 100 && rc == 0; i++) {
		SSL_connect(ssl);
		rc = channel_handshake(server);
	}
	*why = *failed();
	channel_free(server);
	SSL_free(ssl);
	close(fd[0]);
	return rc;
}

static SSL_CTX *stranger_new(const char *identity, const char *cipher)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	stranger_identity = identity;
	stranger_cipher = cipher;
	if (cipher)
		assert_int_equal(SSL_CTX_set_ciphersuites(ctx, cipher), 1);
	if (identity)
		SSL_CTX_set_psk_use_session_callback(ctx, stranger_key);
	return ctx;
}

static void right_identity_and_key_are_sufficient(void **state)
{
	SSL_CTX *ctx = stranger_new("sluice:source:-", NULL);
	struct failure why;

	(void)state;
	assert_int_equal(stranger_calls(ctx, &why), 1);
	SSL_CTX_free(ctx);
}

static void unknown_identity_fails_like_a_wrong_key(void **state)
{
	static const char *const unknown[] = {"sluice:source:", "sluice:source:--", "root", "x"};
	struct failure why;

	(void)state;
	for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
		SSL_CTX *ctx = stranger_new(unknown[i], NULL);

		assert_int_equal(stranger_calls(ctx, &why), -1);
		assert_int_equal(why.code, OUT_AUTH);
		assert_string_equal(why.text, "TLS handshake with the peer: wrong key");
		SSL_CTX_free(ctx);
	}
}

static void client_without_a_key_is_refused(void **state)
{
	SSL_CTX *ctx = stranger_new(NULL, NULL);
	struct failure why;

	(void)state;
	assert_int_equal(stranger_calls(ctx, &why), -1);
	assert_int_equal(why.code, OUT_AUTH);
	SSL_CTX_free(ctx);
}

static void older_tls_is_refused(void **state)
{
	SSL_CTX *ctx = stranger_new(NULL, NULL);
	struct failure why;

	(void)state;
	SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
	assert_int_equal(stranger_calls(ctx, &why), -1);
	assert_int_equal(why.code, OUT_PROTOCOL);
	SSL_CTX_free(ctx);
}

static void other_hashes_are_refused(void **state)
{
	SSL_CTX *ctx = stranger_new("sluice:source:-", "TLS_AES_256_GCM_SHA384");
	struct failure why;

	(void)state;
	assert_int_equal(stranger_calls(ctx, &why), -1);
	SSL_CTX_free(ctx);
}

static void certificate_does_not_replace_the_key(void **state)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	struct channel *client;
	int fd[2], rc = 0;
	SSL *ssl;

	(void)state;
	certify(ctx);
	socket_pair(fd);
	assert_int_equal(fcntl(fd[1], F_SETFL, O_NONBLOCK), 0);
	ssl = SSL_new(ctx);
	SSL_set_fd(ssl, fd[1]);
	assert_int_equal(channel_tls_client(fd[0], &right, &client), 0);
	for (unsigned i = 0; i < 100 && rc == 0; i++) {
		rc = channel_handshake(client);
		SSL_accept(ssl);
	}
	assert_int_equal(rc, -1);
	assert_int_equal(failed()->code, OUT_AUTH);
	channel_free(client);
	SSL_free(ssl);
	close(fd[1]);
	SSL_CTX_free(ctx);
}

/* ---- bytes that are not TLS -------------------------------------------------------------- */

static void garbage_is_refused(void **state)
{
	static const char *const said[] = {
		"GET / HTTP/1.1\r\nHost: storage2\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n",
		"\x16\x03\x01\xff\xff\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
		"\x93SLUICE\n                             ",
	};

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof said / sizeof *said; i++) {
		const char *text = said[i / 2];
		struct channel *c;
		int fd[2], rc = 0;

		socket_pair(fd);
		assert_int_equal(write(fd[1], text, strlen(text)), strlen(text));
		if (i % 2)
			assert_int_equal(channel_tls_client(fd[0], &right, &c), 0);
		else
			assert_int_equal(channel_tls_server(fd[0], &right, &c), 0);
		for (unsigned step = 0; step < 5 && rc == 0; step++)
			rc = channel_handshake(c);
		assert_int_equal(rc, -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
		channel_free(c);
		close(fd[1]);
	}
}

/* The first flight (ClientHello) of a client. */
static size_t first_flight(uint8_t *to, size_t size)
{
	struct channel *client;
	ssize_t n;
	int fd[2];

	socket_pair(fd);
	assert_int_equal(channel_tls_client(fd[0], &right, &client), 0);
	assert_int_equal(channel_handshake(client), 0);
	n = read(fd[1], to, size);
	assert_true(n > 64);
	channel_free(client);
	close(fd[1]);
	return (size_t)n;
}

static void partial_handshake_waits_for_the_rest(void **state)
{
	uint8_t flight[4096];
	size_t len = first_flight(flight, sizeof flight);

	(void)state;
	for (size_t cut = 0; cut < len; cut += 1 + len / 40) {
		struct channel *server;
		struct pollfd p[2];
		int fd[2];

		socket_pair(fd);
		assert_int_equal(channel_tls_server(fd[0], &right, &server), 0);
		assert_int_equal(write(fd[1], flight, cut), cut);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(channel_handshake(server), 0);
		assert_int_equal(channel_polls(server, true, p), 1);
		assert_int_equal(p[0].events, POLLIN);
		close(fd[1]);
		assert_int_equal(channel_handshake(server), -1);
		assert_int_equal(failed()->code, OUT_PEER_LOST);
		channel_free(server);
	}
}

static void replayed_flight_opens_nothing(void **state)
{
	uint8_t flight[4096];
	size_t len = first_flight(flight, sizeof flight);
	struct channel *server;
	int fd[2];

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_tls_server(fd[0], &right, &server), 0);
	assert_int_equal(write(fd[1], flight, len), len);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(channel_handshake(server), 0);
	channel_free(server);
	close(fd[1]);
}

static void closed_connection_is_not_a_wrong_key(void **state)
{
	struct channel *client;
	int fd[2];

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_tls_client(fd[0], &right, &client), 0);
	assert_int_equal(channel_handshake(client), 0);
	close(fd[1]);
	assert_int_equal(channel_handshake(client), -1);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	channel_free(client);
}

/* ---- the stream ---------------------------------------------------------------------------- */

static void fill(uint8_t *to, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1664525 + 1013904223;
		to[i] = (uint8_t)(seed >> 24);
	}
}

/* One direction of a stream that carries data both ways at once. */
struct way {
	struct channel *from, *to;
	uint8_t *bytes, *got;
	size_t sent, came;
};

static bool way_step(struct way *w, size_t len)
{
	bool eof;
	ssize_t n = channel_write(w->from, w->bytes + w->sent, len - w->sent);

	assert_true(n >= 0);
	w->sent += (size_t)n;
	n = channel_read(w->to, w->got + w->came, len - w->came, &eof);
	assert_true(n >= 0);
	assert_false(eof);
	w->came += (size_t)n;
	return w->came == len;
}

static void large_messages_cross_both_ways(void **state)
{
	enum { LEN = 3 << 20 };
	struct ends e = ends_ready();
	struct way ways[2] = {{.from = e.client, .to = e.server},
			      {.from = e.server, .to = e.client}};
	bool done = false;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		ways[i].bytes = malloc(LEN);
		ways[i].got = malloc(LEN);
		assert_non_null(ways[i].bytes);
		assert_non_null(ways[i].got);
		fill(ways[i].bytes, LEN, i + 1);
	}
	for (unsigned i = 0; i < 100000 && !done; i++) {
		bool one = way_step(&ways[0], LEN);
		bool other = way_step(&ways[1], LEN);

		done = one && other;
	}
	assert_true(done);
	for (unsigned i = 0; i < 2; i++) {
		assert_memory_equal(ways[i].bytes, ways[i].got, LEN);
		free(ways[i].bytes);
		free(ways[i].got);
	}
	ends_free(&e);
}

static void close_notify_is_end_of_file(void **state)
{
	struct ends e = ends_ready();
	char got[8];
	bool eof;

	(void)state;
	assert_int_equal(channel_write(e.client, "bye", 3), 3);
	channel_free(e.client);
	assert_int_equal(channel_read(e.server, got, sizeof got, &eof), 3);
	assert_false(eof);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(channel_read(e.server, got, sizeof got, &eof), 0);
		assert_true(eof);
	}
	channel_free(e.server);
}

static void eof_without_close_notify_is_a_failure(void **state)
{
	struct ends e;
	int fd[2], held;
	char got[8];
	bool eof;

	(void)state;
	socket_pair(fd);
	held = dup(fd[0]);
	e = ends_over(fd, &right, &right);
	assert_int_equal(shake(&e).server, 1);
	assert_int_equal(shutdown(held, SHUT_RDWR), 0);
	assert_int_equal(channel_read(e.server, got, sizeof got, &eof), -1);
	assert_false(eof);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	assert_int_equal(channel_read(e.server, got, sizeof got, &eof), -1);
	close(held);
	ends_free(&e);
}

/* The peer's reason for leaving can be read although nothing can be written any more. */
static void last_message_is_read_after_a_write_failure(void **state)
{
	struct ends e = ends_ready();
	ssize_t n = 0;
	char got[64];
	bool eof;

	(void)state;
	assert_int_equal(channel_write(e.server, "disk full", 9), 9);
	channel_free(e.server);
	for (unsigned i = 0; i < 100 && n >= 0; i++)
		n = channel_write(e.client, "data", 4);
	assert_int_equal(n, -1);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	assert_int_equal(channel_read(e.client, got, sizeof got, &eof), 9);
	assert_memory_equal(got, "disk full", 9);
	assert_int_equal(channel_write(e.client, "data", 4), -1);
	channel_free(e.client);
}

static void forged_byte_is_detected(void **state)
{
	struct channel *client, *server;
	int near[2], far[2], done = 0;
	uint8_t bytes[8192];
	char got[64];
	bool eof;
	ssize_t n;

	(void)state;
	socket_pair(near);
	socket_pair(far);
	assert_int_equal(fcntl(near[1], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(far[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(channel_tls_client(near[0], &right, &client), 0);
	assert_int_equal(channel_tls_server(far[1], &right, &server), 0);
	for (unsigned i = 0; i < 20 && done != 2; i++) {
		done = channel_handshake(client);
		n = read(near[1], bytes, sizeof bytes);
		assert_true(n <= 0 || write(far[0], bytes, (size_t)n) == n);
		done += channel_handshake(server);
		n = read(far[0], bytes, sizeof bytes);
		assert_true(n <= 0 || write(near[1], bytes, (size_t)n) == n);
	}
	assert_int_equal(done, 2);
	assert_int_equal(channel_write(client, "pay 10", 6), 6);
	n = read(near[1], bytes, sizeof bytes);
	assert_true(n > 10);
	bytes[8] ^= 1;
	assert_int_equal(write(far[0], bytes, (size_t)n), n);
	assert_int_equal(channel_read(server, got, sizeof got, &eof), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	channel_free(client);
	channel_free(server);
	close(near[1]);
	close(far[0]);
}

static void addresses_and_unsent_bytes_are_known(void **state)
{
	union address local, peer, other;
	struct channel *a, *b;
	uint64_t deadline = clock_ms() + 10000;
	int fd[2];

	(void)state;
	tcp_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &a), 0);
	assert_int_equal(channel_over_fds(fd[1], fd[1], &b), 0);
	assert_true(channel_addresses(a, &local, &peer));
	assert_true(channel_addresses(b, &other, &local));
	assert_int_equal(peer.in4.sin_port, other.in4.sin_port);
	assert_int_equal(peer.in4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	assert_int_equal(channel_write(a, "x", 1), 1);
	/* The kernel at the other end acknowledged it, whether it has been read or not. */
	while (channel_unsent(a) > 0 && clock_ms() < deadline)
		usleep(1000);
	assert_int_equal(channel_unsent(a), 0);
	assert_true(channel_rtt_us(a) > 0);
	channel_free(a);
	channel_free(b);
}

/* ---- descriptors ------------------------------------------------------------------------------
 */

static void channel_works_over_two_pipes(void **state)
{
	struct channel *a, *b;
	struct pollfd p[2];
	union address address;
	uint8_t secret[LANE_SECRET];
	int there[2], back[2];
	char got[16];
	bool eof;

	(void)state;
	assert_int_equal(pipe2(there, O_CLOEXEC), 0);
	assert_int_equal(pipe2(back, O_CLOEXEC), 0);
	assert_int_equal(channel_over_fds(back[0], there[1], &a), 0);
	assert_int_equal(channel_over_fds(there[0], back[1], &b), 0);
	assert_int_equal(channel_handshake(a), 1);
	assert_int_equal(channel_secret(a, secret), -1);
	assert_false(channel_addresses(a, &address, &address));
	assert_int_equal(channel_unsent(a), 0);
	assert_int_equal(channel_rtt_us(a), 0);
	assert_int_equal(channel_polls(a, false, p), 1);
	assert_int_equal(p[0].fd, back[0]);
	assert_int_equal(channel_polls(a, true, p), 2);
	assert_int_equal(p[1].fd, there[1]);
	assert_int_equal(p[1].events, POLLOUT);
	assert_int_equal(channel_read(b, got, sizeof got, &eof), 0);
	assert_false(eof);
	say(a, b, "there");
	say(b, a, "and back");
	channel_free(a);
	assert_int_equal(channel_read(b, got, sizeof got, &eof), 0);
	assert_true(eof);
	assert_int_equal(channel_write(b, "x", 1), -1);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	channel_free(b);
}

static void full_pipe_accepts_no_more(void **state)
{
	static const char zeros[65536];
	struct channel *a;
	ssize_t n, sum = 0;
	int fd[2];

	(void)state;
	socket_pair(fd);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &a), 0);
	while ((n = channel_write(a, zeros, sizeof zeros)) > 0)
		sum += n;
	assert_int_equal(n, 0);
	assert_true(sum > 0);
	channel_free(a);
	close(fd[1]);
}

/* What a failed write was to send is missing: the peer must not take later bytes for it. */
static void nothing_is_sent_after_a_write_failure(void **state)
{
	struct channel *a;
	int in[2], out[2], full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	char got[16];

	(void)state;
	assert_true(full >= 0);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(channel_over_fds(in[0], full, &a), 0);
	assert_false(channel_is_cut(a));
	assert_int_equal(channel_write(a, "head", 4), -1);
	assert_true(channel_is_cut(a));
	assert_int_equal(dup2(out[1], full), full);
	assert_int_equal(channel_write(a, "body", 4), -1);
	assert_string_equal(failed()->text, "write to the peer: No space left on device");
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	assert_int_equal(read(out[0], got, sizeof got), -1);
	channel_free(a);
	close(in[1]);
	close(out[0]);
	close(out[1]);
}

/* The open file description may be shared with another process's terminal. */
static void descriptor_flags_are_restored(void **state)
{
	struct channel *a;
	int fd[2], held;

	(void)state;
	socket_pair(fd);
	held = dup(fd[0]);
	assert_int_equal(channel_over_fds(fd[0], fd[0], &a), 0);
	assert_true(fcntl(held, F_GETFL) & O_NONBLOCK);
	channel_free(a);
	assert_false(fcntl(held, F_GETFL) & O_NONBLOCK);
	close(held);
	close(fd[1]);
	assert_int_equal(channel_over_fds(-1, -1, &a), -1);
	assert_int_equal(failed()->code, OUT_SOCKET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_key_opens_the_channel),
		cmocka_unit_test(both_ends_derive_one_secret),
		cmocka_unit_test(nothing_is_sent_before_the_handshake),
		cmocka_unit_test(both_ends_report_a_wrong_key),
		cmocka_unit_test(right_identity_and_key_are_sufficient),
		cmocka_unit_test(unknown_identity_fails_like_a_wrong_key),
		cmocka_unit_test(client_without_a_key_is_refused),
		cmocka_unit_test(older_tls_is_refused),
		cmocka_unit_test(other_hashes_are_refused),
		cmocka_unit_test(certificate_does_not_replace_the_key),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(partial_handshake_waits_for_the_rest),
		cmocka_unit_test(replayed_flight_opens_nothing),
		cmocka_unit_test(closed_connection_is_not_a_wrong_key),
		cmocka_unit_test(large_messages_cross_both_ways),
		cmocka_unit_test(close_notify_is_end_of_file),
		cmocka_unit_test(eof_without_close_notify_is_a_failure),
		cmocka_unit_test(last_message_is_read_after_a_write_failure),
		cmocka_unit_test(forged_byte_is_detected),
		cmocka_unit_test(addresses_and_unsent_bytes_are_known),
		cmocka_unit_test(channel_works_over_two_pipes),
		cmocka_unit_test(full_pipe_accepts_no_more),
		cmocka_unit_test(nothing_is_sent_after_a_write_failure),
		cmocka_unit_test(descriptor_flags_are_restored),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
