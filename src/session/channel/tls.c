/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 with an external pre-shared key and nothing else: no certificates, no tickets, no early
 * data, no resumption. A peer that completes a handshake has the key. The end of the handshake
 * checks again that the key was used, and not a certificate in its place.
 */
#include "base/random.h"
#include "session/channel/channel.h"
#include "session/channel/channel_ops.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/secret.h"

/* An identity names the connecting end's role and user ("-": any holder of the key). Its form never
 * changes. */
static const char *const roles[] = {
	[CALLER_SOURCE] = "sluice:source:",
	[CALLER_CONDUCTOR] = "sluice:conductor:",
};
enum { IDENTITY_MAX = USER_NAME_MAX + 32 };
#define SECRET_LABEL "EXPORTER-sluice-lane"

/* Both with SHA-256, because an external PSK is bound to that hash. */
#define CIPHERSUITES "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"

enum { ALERT_REASON = 1000, CERTIFICATES_MAX = 4096 };

struct tls {
	struct channel channel;
	SSL *ssl;
	enum caller_role caller;
	/* Of the client, its own; of a server, the one that the client claims to be. */
	char user[USER_NAME_MAX];
	char identity[IDENTITY_MAX]; /* client: what it sends */
	const struct key_ring
		*ring; /* server: the keys of its users, until the handshake; NULL: key */
	struct psk key; /* wiped when the handshake is over */
	bool handshake_done;
	bool broken; /* OpenSSL may only be called to free */
	bool write_failed; /* what the peer sent before can still be read */
	bool wants_write; /* reading, or the handshake, waits for room to write */
};

/* ---- contexts: one for each role, made once ------------------------------------------ */

static SSL_CTX *client_ctx, *server_ctx;
static pthread_once_t contexts_made = PTHREAD_ONCE_INIT;

static SSL_SESSION *make_session(SSL *ssl, const struct psk *key)
{
	static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s && cipher && SSL_SESSION_set1_master_key(s, key->bytes, sizeof key->bytes) &&
	    SSL_SESSION_set_cipher(s, cipher) &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
		   SSL_SESSION **session)
{
	struct tls *t = SSL_get_app_data(ssl);

	/* md is set once the server has chosen a hash, which must be the key's. */
	if (md && !EVP_MD_is_a(md, "SHA256"))
		return 0;
	*session = make_session(ssl, &t->key);
	snprintf(t->identity, sizeof t->identity, "%s%s", roles[t->caller], t->user);
	*id = (const unsigned char *)t->identity;
	*id_len = strlen(t->identity);
	return *session != NULL;
}

/* Finds out which user an identity names. Returns false if it names none. */
static bool take_user(struct tls *t, const unsigned char *id, size_t id_len)
{
	size_t len = strlen(roles[t->caller]);
	const char *user = (const char *)id + len;

	t->user[0] = '\0';
	if (id_len <= len || memcmp(id, roles[t->caller], len) != 0)
		return false;
	len = id_len - len;
	if ((len != 1 || *user != '-') && !user_name_is_valid(user, len))
		return false;
	memcpy(t->user, user, len);
	t->user[len] = '\0';
	return true;
}

/* An unknown identity gets a random key, so that it fails like a wrong key. */
static int find_key(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
	struct tls *t = SSL_get_app_data(ssl);
	struct psk key = t->key;
	bool known = take_user(t, id, id_len);

	if (known && t->ring)
		known = key_ring_find(t->ring, t->user, &key) == 0;
	else if (known)
		known = strcmp(t->user, "-") == 0;
	if (!known && random_bytes(key.bytes, sizeof key.bytes) != 0)
		return 0;
	*session = make_session(ssl, &key);
	psk_wipe(&key);
	return *session != NULL;
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (!ctx)
		return NULL;
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_max_cert_list(ctx, CERTIFICATES_MAX);
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) &&
	    SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) &&
	    SSL_CTX_set_ciphersuites(ctx, CIPHERSUITES) && SSL_CTX_set_num_tickets(ctx, 0) &&
	    SSL_CTX_set_max_early_data(ctx, 0))
		return ctx;
	SSL_CTX_free(ctx);
	return NULL;
}

static void make_contexts(void)
{
	client_ctx = context_new(TLS_client_method());
	server_ctx = context_new(TLS_server_method());
	if (client_ctx) {
		SSL_CTX_set_psk_use_session_callback(client_ctx, use_key);
		/* No CA is trusted, so a certificate in place of the key is rejected. */
		SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
	}
	if (server_ctx)
		SSL_CTX_set_psk_find_session_callback(server_ctx, find_key);
}

/* ---- failures ------------------------------------------------------------------------ */

/* OpenSSL's text for its first error. */
static const char *openssl_reason(unsigned long err)
{
	const char *text = ERR_reason_error_string(err);

	return text ? text : "no reason given";
}

/* A reason's number is only unique within one library of OpenSSL, except for general reasons. */
static int reason_of(unsigned long err)
{
	int why = ERR_GET_REASON(err);

	return ERR_GET_LIB(err) == ERR_LIB_SSL || why == ERR_R_MALLOC_FAILURE ? why : 0;
}

static bool is_wrong_key(int why)
{
	switch (why) {
	case SSL_R_BINDER_DOES_NOT_VERIFY: /* server: the client has another key */
	case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM: /* server: the client offered no PSK of ours */
	case SSL_R_CERTIFICATE_VERIFY_FAILED: /* client: the server sent a certificate */
	case SSL_R_DIGEST_CHECK_FAILED: /* the peer's Finished */
	case ALERT_REASON + SSL_AD_ILLEGAL_PARAMETER: /* client: the server rejects our binder */
	case ALERT_REASON + SSL_AD_DECRYPT_ERROR:
	case ALERT_REASON + SSL_AD_UNKNOWN_PSK_IDENTITY:
		return true;
	default:
		return false;
	}
}

static int handshake_failed(struct tls *t, int ssl_error, int err)
{
	unsigned long e = ERR_peek_error();
	int why = reason_of(e);
	const char *peer = t->channel.peer;

	t->broken = true;
	if (ssl_error == SSL_ERROR_SYSCALL && err) {
		errno = err;
		return channel_broken(&t->channel, "TLS handshake with");
	}
	if (ssl_error != SSL_ERROR_SSL || why == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		return fail_as(OUT_PEER_LOST,
			       "TLS handshake with %s: the peer closed the connection", peer);
	if (why == ALERT_REASON + SSL_AD_ACCESS_DENIED)
		return fail_as(OUT_PEER_LOST, "TLS handshake with %s: it %s", peer,
			       t->caller == CALLER_SOURCE
				       ? "is serving another peer (rdrecv takes one; rdcpd(8) "
					 "serves many)"
				       : "takes no new session now");
	if (why == ERR_R_MALLOC_FAILURE)
		return fail_as(OUT_MEMORY, "TLS handshake with %s: %s", peer, strerror(ENOMEM));
	if (is_wrong_key(why))
		return fail_as(OUT_AUTH, "TLS handshake with %s: wrong key", peer);
	return fail_as(OUT_PROTOCOL, "TLS handshake with %s: %s", peer, openssl_reason(e));
}

static int stream_failed(struct tls *t, const char *what, int ssl_error, int err)
{
	unsigned long e = ERR_peek_error();
	int why = reason_of(e);

	if (ssl_error == SSL_ERROR_SYSCALL && err) {
		errno = err;
		return channel_broken(&t->channel, what);
	}
	if (ssl_error != SSL_ERROR_SSL || why == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		return fail_as(OUT_PEER_LOST, "%s %s: the connection ended without a TLS close",
			       what, t->channel.peer);
	if (why == ERR_R_MALLOC_FAILURE)
		return fail_as(OUT_MEMORY, "%s %s: TLS: %s", what, t->channel.peer,
			       strerror(ENOMEM));
	return fail_as(OUT_PROTOCOL, "%s %s: TLS: %s", what, t->channel.peer, openssl_reason(e));
}

/* Records what to poll for if the call cannot continue now. Returns false if the call failed. */
static bool tls_waits(struct tls *t, int ssl_error)
{
	t->wants_write = ssl_error == SSL_ERROR_WANT_WRITE;
	return t->wants_write || ssl_error == SSL_ERROR_WANT_READ;
}

/* ---- the channel ----------------------------------------------------------------------- */

static int tls_handshake(struct channel *c)
{
	struct tls *t = (struct tls *)c;
	int rc, why, err;

	if (t->handshake_done)
		return 1;
	if (t->broken)
		return fail_as(OUT_PEER_LOST, "TLS handshake with %s has already failed", c->peer);
	ERR_clear_error();
	errno = 0;
	rc = SSL_do_handshake(t->ssl);
	err = errno;
	if (rc != 1) {
		why = SSL_get_error(t->ssl, rc);
		return tls_waits(t, why) ? 0 : handshake_failed(t, why, err);
	}
	psk_wipe(&t->key);
	t->wants_write = false;
	if (!SSL_session_reused(t->ssl)) {
		t->broken = true;
		return fail_as(OUT_AUTH, "TLS handshake with %s: completed without the key",
			       c->peer);
	}
	t->handshake_done = true;
	return 1;
}

static int tls_secret(struct channel *c, uint8_t *to)
{
	struct tls *t = (struct tls *)c;

	if (!t->handshake_done ||
	    SSL_export_keying_material(t->ssl, to, LANE_SECRET, SECRET_LABEL,
				       sizeof SECRET_LABEL - 1, NULL, 0, 0) != 1)
		return fail_as(OUT_PROTOCOL, "derive the lanes' secret from TLS with %s: %s",
			       c->peer,
			       t->handshake_done ? "the export failed"
						 : "the handshake is not complete");
	return 0;
}

static ssize_t tls_read(struct channel *c, void *to, size_t len, bool *eof)
{
	struct tls *t = (struct tls *)c;
	size_t n = 0;
	int rc, why, err;

	if (t->broken || !t->handshake_done)
		return fail_as(OUT_PEER_LOST, "read from %s: the connection is broken", c->peer);
	ERR_clear_error();
	errno = 0;
	rc = SSL_read_ex(t->ssl, to, len, &n);
	err = errno;
	if (rc == 1) {
		t->wants_write = false;
		return (ssize_t)n;
	}
	why = SSL_get_error(t->ssl, rc);
	*eof = why == SSL_ERROR_ZERO_RETURN;
	if (*eof || tls_waits(t, why))
		return 0;
	t->broken = true;
	return stream_failed(t, "read from", why, err);
}

static ssize_t tls_write(struct channel *c, const void *from, size_t len)
{
	struct tls *t = (struct tls *)c;
	size_t n = 0;
	int rc, why, err;

	if (t->broken || t->write_failed || !t->handshake_done)
		return fail_as(OUT_PEER_LOST, "write to %s: the connection is broken", c->peer);
	ERR_clear_error();
	errno = 0;
	rc = SSL_write_ex(t->ssl, from, len, &n);
	err = errno;
	if (rc == 1)
		return (ssize_t)n;
	why = SSL_get_error(t->ssl, rc);
	if (why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ)
		return 0;
	t->write_failed = true;
	t->broken = why == SSL_ERROR_SSL;
	return stream_failed(t, "write to", why, err);
}

static int tls_polls(struct channel *c, bool want_write, struct pollfd *p)
{
	struct tls *t = (struct tls *)c;

	p[0] = (struct pollfd){.fd = c->in, .events = POLLIN};
	if (t->wants_write || (t->handshake_done && want_write))
		p[0].events |= POLLOUT;
	return 1;
}

static void tls_free(struct channel *c)
{
	struct tls *t = (struct tls *)c;

	ERR_clear_error();
	if (t->handshake_done && !t->broken && !t->write_failed)
		SSL_shutdown(t->ssl);
	SSL_free(t->ssl);
	ERR_clear_error();
	psk_wipe(&t->key);
	close_fd(c->in);
	free(t);
}

static const struct channel_ops tls_ops = {
	.handshake = tls_handshake,
	.secret = tls_secret,
	.read = tls_read,
	.write = tls_write,
	.polls = tls_polls,
	.free = tls_free,
};

static int tls_new(int fd, const struct psk *key, SSL_CTX *ctx, struct channel **out)
{
	struct tls *t = calloc(1, sizeof *t);
	int on = 1;

	if (!t || !ctx)
		goto no_memory;
	channel_init(&t->channel, &tls_ops, fd, fd);
	secret_guard(t, sizeof *t);
	if (key)
		t->key = *key;
	snprintf(t->user, sizeof t->user, "-");
	if (descriptor_unblock(fd, NULL) != 0)
		goto fail;
	/* Messages are small, and the peer waits for each one. Sockets of other families reject
	 * the option. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	ERR_clear_error();
	t->ssl = SSL_new(ctx);
	if (!t->ssl || SSL_set_fd(t->ssl, fd) != 1 || SSL_set_app_data(t->ssl, t) != 1)
		goto no_memory;
	if (ctx == client_ctx)
		SSL_set_connect_state(t->ssl);
	else
		SSL_set_accept_state(t->ssl);
	*out = &t->channel;
	return 0;

no_memory:
	fail_as(OUT_MEMORY, "start TLS: out of memory, or OpenSSL lacks an algorithm");
fail:
	if (t) {
		SSL_free(t->ssl);
		psk_wipe(&t->key);
		free(t);
	}
	close_fd(fd);
	return -1;
}

void channel_set_caller(struct channel *c, enum caller_role caller, const char *user)
{
	struct tls *t = (struct tls *)c;

	t->caller = caller;
	snprintf(t->user, sizeof t->user, "%s", user);
}

void channel_set_ring(struct channel *c, const struct key_ring *ring)
{
	struct tls *t = (struct tls *)c;

	t->caller = CALLER_CONDUCTOR;
	t->ring = ring;
}

const char *channel_user(const struct channel *c)
{
	return ((const struct tls *)c)->user;
}

void channel_forget(struct channel *c)
{
	struct tls *t = (struct tls *)c;

	SSL_set_quiet_shutdown(t->ssl, 1);
	channel_free(c);
}

int channel_tls_client(int fd, const struct psk *key, struct channel **out)
{
	pthread_once(&contexts_made, make_contexts);
	return tls_new(fd, key, client_ctx, out);
}

int channel_tls_server(int fd, const struct psk *key, struct channel **out)
{
	pthread_once(&contexts_made, make_contexts);
	return tls_new(fd, key, server_ctx, out);
}
