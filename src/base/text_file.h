/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_TEXT_FILE_H
#define BASE_TEXT_FILE_H

/* Small text files, which may contain secrets. */

enum { TEXT_FILE_MAX = 1 << 20 };

/* Reads all of fd as text that ends with a NUL; the caller may change it, and must free it with
 * text_file_free(). path: for messages. Returns NULL with a failure: OUT_USAGE if the file is
 * larger than TEXT_FILE_MAX or has a NUL. */
char *text_file_read(int fd, const char *path);
/* Clears the text first. */
void text_file_free(char *text);

#endif
