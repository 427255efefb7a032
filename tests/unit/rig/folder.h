/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

/* A directory of a test's own.  Only for the main thread. */

enum { FOLDER_PATH = sizeof "/tmp/sluice-unit-XXXXXX" };

/* An empty one; and away with it, however deep it got and whatever its modes are. */
int folder_make(char path[static FOLDER_PATH]);
int folder_remove(const char *path);
/* Setup and teardown: into an empty one, with a umask of 022, and out of it again. */
int folder_enter(void **state);
int folder_leave(void **state);

#endif
