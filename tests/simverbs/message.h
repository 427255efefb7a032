/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_MESSAGE_H
#define SIMVERBS_MESSAGE_H

/*
 * What two processes send each other on the socket of a link: the connection manager's messages,
 * and the regions that the peer must map. One message is one datagram of a SOCK_SEQPACKET socket.
 * The socket's end is the process's end. Both are the same build on the same host.
 */

#include <netinet/in.h>
#include <stdint.h>
#include "segment.h"

enum { MESSAGE_MAGIC = 0x51d7eb01, MESSAGE_PRIVATE = 256, MESSAGE_FDS = SEGMENT_PIECES };

enum message_kind {
	MESSAGE_REQ = 1, /* with the queue pair's descriptors (enum message_queue_fd) */
	MESSAGE_REP, /* likewise */
	MESSAGE_RTU,
	MESSAGE_REJ,
	MESSAGE_DREQ,
	MESSAGE_DREP,
	MESSAGE_REGION, /* with one descriptor for each piece */
	MESSAGE_REGION_GONE,
};

/* The last is missing if the completion queue has no channel. */
enum message_queue_fd { FD_QUEUE, FD_COMPLETIONS, FD_REGIONS, FD_CHANNEL };

struct message {
	uint32_t magic, kind;
	union {
		struct message_connect { /* REQ, REP, REJ */
			struct sockaddr_storage from, to; /* REQ */
			uint32_t number; /* of the queue pair */
			/* The sender's process: numbers are counted in each. */
			uint32_t process;
			int32_t status; /* REJ */
			uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
			uint8_t ack_timeout, tos; /* REQ: of the path */
			uint32_t private_len; /* as the event reports it, with padding */
			uint8_t private_data[MESSAGE_PRIVATE];
		} connect;
		struct message_region { /* REGION; REGION_GONE: only key */
			uint32_t key, pieces;
			uint64_t addr, length, first;
			struct {
				uint64_t offset, bytes;
			} piece[SEGMENT_PIECES];
		} region;
	};
};

/* Returns 0, or -1 with errno. */
int message_send(int fd, const struct message *m, const int *fds, unsigned count);
/* Returns 1, 0 at the end of the socket, or -1 with errno (EAGAIN: nothing there). fds gets *count
 * descriptors, which the caller owns. */
int message_receive(int fd, struct message *m, int fds[MESSAGE_FDS], unsigned *count);

#endif
