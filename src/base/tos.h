/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_TOS_H
#define BASE_TOS_H

/*
 * The type of service of packets: the octet that IPv4 calls ToS and IPv6 the traffic class. Its
 * upper six bits are the DSCP (RFC 2474), its lower two belong to ECN (RFC 3168).
 *
 * A `tos' is this octet plus 1, and 0 if the host's default applies, so that an unset field asks
 * for nothing.
 */

enum { TOS_MOST = 256 };

/* Sets the octet in everything that a TCP socket sends; the sockets that a listener accepts inherit
 * it. Does nothing if tos is 0. Returns 0, or -1 with errno. The kernel ignores the two ECN bits.
 */
int tos_set(int fd, int family, unsigned tos);

#endif
