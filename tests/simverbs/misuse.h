/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_MISUSE_H
#define SIMVERBS_MISUSE_H

/* What a program may not do with verbs. An adapter punishes it later or not at all; here it ends
 * the program, so that no test passes by luck. */

/* Prints "simverbs: …" to stderr and calls abort(). */
_Noreturn void misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));
/* Prints the same line, and returns. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));

/* Marks the calls that the libraries export. */
#define EXPORT __attribute__((visibility("default")))

#endif
