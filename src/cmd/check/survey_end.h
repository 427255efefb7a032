/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_SURVEY_END_H
#define CMD_CHECK_SURVEY_END_H

/* `rdcp --survey', or forked by rdcheck: sends the findings of its host, then answers PINGs until
 * `in' ends. Returns the exit code. */
int survey_end_run(int in, int out);

#endif
