/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_HEAD_H
#define LANE_HEAD_H

/*
 * The bytes that lanes exchange: docs/protocol.md, "Lanes". head.c is the one file of this layer
 * that decodes bytes from a peer. Every decode function checks all that can be checked without the
 * lane's state. If a check fails, it returns -1 with a failure.
 */

#include "lane/lane.h"

/* Bytes of a block's head that come before its hash or tag, and that the tag covers. */
enum { LANE_HEAD_SEALED = 40 };

/* The head of a block, LANE_HEAD bytes. */
struct head {
	uint8_t kind;
	uint16_t lane;
	uint32_t epoch;
	uint64_t number; /* of the block in its lane, counted from 0 */
	uint32_t len;
	uint32_t file;
	/* bytes of the data before compression, more than len; 0: not compressed */
	uint32_t plain_len;
	uint64_t pos;
	uint64_t hash[2]; /* of the data, as in struct block; or the tag of encrypted data */
};
void head_encode(const struct head *h, uint8_t to[static LANE_HEAD]);
/* Computes the head's own checksum again, after its tag was set. */
void head_finish(uint8_t head[static LANE_HEAD]);
/* Also verifies the head's own checksum. room is the lane's block size. */
int head_decode(const uint8_t from[static LANE_HEAD], uint32_t room, struct head *h);

enum { CREDIT_SIZE = 16 };
struct credit {
	uint32_t epoch;
	uint64_t stored;
};
void credit_encode(const struct credit *c, uint8_t to[static CREDIT_SIZE]);
int credit_decode(const uint8_t from[static CREDIT_SIZE], struct credit *c);

/* A source sends this after it wrote a block into the sink's memory (RDMA_OP_WRITE_SEND). */
enum { NOTICE_SIZE = 16 };
struct notice {
	uint32_t epoch;
	uint32_t slot; /* the slot written */
	uint32_t len; /* bytes written, with the head: LANE_HEAD to LANE_HEAD + LANE_BLOCK_MAX */
};
void notice_encode(const struct notice *n, uint8_t to[static NOTICE_SIZE]);
int notice_decode(const uint8_t from[static NOTICE_SIZE], struct notice *n);

/* Where a source may write: the sink's pool, slot after slot. at is page aligned; 0: nowhere. */
struct lane_ring {
	uint64_t at;
	uint32_t key; /* the adapter's remote key, for this wire; 0 if at is 0 */
};

/* The first message on a wire in each direction. The connecting end sends first, then the accepting
 * end. */
enum { LANE_HELLO_SIZE = 72, LANE_MAC = 32, LANE_TOKEN = 16, LANE_SECRET = 32 };
struct lane_hello {
	uint8_t from; /* enum lane_side of the sender */
	uint8_t accepting; /* 0: from the connecting end, 1: from the accepting end */
	uint8_t seals; /* 1: its sender demands that the blocks of this wire are encrypted */
	/* The accepting end's (struct lane_key). At a fixed offset, so that a listener of several
	 * sessions can tell the callers apart without decoding the hello. */
	uint64_t session;
	uint16_t lane;
	uint32_t epoch;
	uint32_t block_size;
	uint16_t depth;
	struct lane_ring ring; /* only from a sink */
	uint8_t mac[LANE_MAC]; /* see lane_hello_sign() */
};
void lane_hello_encode(const struct lane_hello *h, uint8_t to[static LANE_HELLO_SIZE]);
int lane_hello_decode(const uint8_t from[static LANE_HELLO_SIZE], struct lane_hello *h);

/* The secret of both ends and their nonces (the source's first, then the sink's). The owner wipes
 * it. */
struct lane_key {
	uint8_t secret[LANE_SECRET];
	uint8_t nonces[2][32];
	/* The id under which the end that accepts the connection knows this session, as announced
	 * in its OFFER; 0: it sent none. Not secret: it identifies, and the MAC authenticates. */
	uint64_t session;
};
/* HMAC-SHA256(secret, "sluice lane" || nonces || every other field of the hello). */
void lane_hello_sign(struct lane_hello *h, const struct lane_key *key);
/* Returns 0 if the MAC is right (compared in constant time), else -1 with OUT_AUTH. */
int lane_hello_verify(const struct lane_hello *h, const struct lane_key *key);

/* Private data of an RDMA connection request; at most 56 bytes (rdma_connect(3)). */
enum { LANE_PRIVATE_SIZE = 40 };
struct lane_private {
	uint16_t lane;
	uint32_t epoch;
	uint16_t depth;
	uint32_t block_size;
	uint8_t token[LANE_TOKEN]; /* lane_token() of this session, lane and epoch; valid once */
};
void lane_private_encode(const struct lane_private *p, uint8_t to[static LANE_PRIVATE_SIZE]);
/* len may exceed what was sent, because the CM pads with zeros. */
int lane_private_decode(const void *from, size_t len, struct lane_private *p);

/* Private data of a rejected request, at most 148 bytes (InfiniBand's REJ). It gives the reason,
 * and goes only to a caller that has authenticated. */
enum { LANE_REFUSAL_SIZE = 24 };
struct lane_refusal {
	uint8_t code; /* OUT_MEMLOCK, OUT_MEMORY or OUT_TRANSPORT */
	/* OUT_MEMLOCK: the bytes that may be locked on the rejecting host, and the bytes needed */
	uint64_t limit, need;
};
void lane_refusal_encode(const struct lane_refusal *f, uint8_t to[static LANE_REFUSAL_SIZE]);
/* len may exceed what was sent. -1: the refusal has no known meaning. */
int lane_refusal_decode(const void *from, size_t len, struct lane_refusal *f);

/* The first LANE_TOKEN bytes of HMAC-SHA256(secret, "sluice token" || nonces || lane || epoch). */
void lane_token(const struct lane_key *key, uint16_t lane, uint32_t epoch,
		uint8_t to[static LANE_TOKEN]);

#endif
