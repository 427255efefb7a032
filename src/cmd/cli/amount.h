/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_AMOUNT_H
#define CMD_CLI_AMOUNT_H

/* Parses sizes, rates, times and the like, and prints some. */

#include <stddef.h>
#include <stdint.h>
#include "protocol/message.h"

/* "4096", "64k", "2G", "2GiB": binary; "2GB": decimal, as in rsync(1). Returns 0, or -1 if text is
 * not a size, or is too big. */
int parse_size(const char *text, uint64_t *out);
/* Bytes per second: a size, or "10gbit", "500mbit", "64kbit" (decimal, as links are sold). */
int parse_rate(const char *text, uint64_t *out);
/* Seconds, optionally with a fraction, as milliseconds; at most a day. */
int parse_seconds(const char *text, int *ms);
/* A decimal number between least and most, with nothing before or after it. */
int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);
/* A TCP port, 0 to 65535. */
int parse_port(const char *text, unsigned *out);
/* A type of service: 0 to 255, "0x68", or the name of a DSCP, "af31" (ssh_config(5), IPQoS); as in
 * base/tos.h. */
int parse_tos(const char *text, unsigned *out);
/* "auto", "rdma", "tcp" or "ssh". */
int parse_transport(const char *text, enum transport *out);
/* "7000" or "7000-7010". */
int parse_ports(const char *text, unsigned *lo, unsigned *hi);

/* "999 B", "1.50 MiB", "12.0 GiB"; returns to. */
char *size_text(uint64_t bytes, char *to, size_t size);
/* "1:02:03", "2:03", "0:03". */
char *time_text(uint64_t seconds, char *to, size_t size);

#endif
