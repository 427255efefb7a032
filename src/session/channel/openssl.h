/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_OPENSSL_H
#define SESSION_CHANNEL_OPENSSL_H

/* OpenSSL loads what it works with at its first use, and 3.0 may crash if memory runs out in that,
 * or lack it from then on.  So each process that will need it does this first, before anything else
 * is begun. */
int openssl_start(void);

#endif
