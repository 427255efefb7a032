/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SURVEY_END_H
#define CMD_SURVEY_END_H

/* rdcp --survey: what rdcheck starts on a far host.  It says what it finds there, then answers
 * PINGs until its stdin ends.  Returns the exit code. */
int survey_end_run(void);

#endif
