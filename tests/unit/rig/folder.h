/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

/* A temporary directory for one test. Only for the main thread. */

enum { FOLDER_PATH = sizeof "/tmp/sluice-unit-XXXXXX" };

/* Make an empty one; remove it, however deep it is and whatever its modes are. */
int folder_make(char path[static FOLDER_PATH]);
int folder_remove(const char *path);
/* Setup and teardown: enter an empty one, with a umask of 022, and leave it. */
int folder_enter(void **state);
int folder_leave(void **state);

#endif
