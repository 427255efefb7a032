/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_OPENSSL_H
#define SESSION_CHANNEL_OPENSSL_H

/* OpenSSL loads its algorithms at first use. OpenSSL 3.0 may crash if memory runs out during that,
 * or lack them from then on. So each process that will use OpenSSL calls this before it starts
 * anything else. */
int openssl_start(void);

#endif
