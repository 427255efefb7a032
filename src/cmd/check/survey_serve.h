/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_SURVEY_SERVE_H
#define CMD_CHECK_SURVEY_SERVE_H

/* `rdcp --survey', or forked by rdcheck: sends the findings of its host, then answers PINGs until
 * `in' ends. Returns the exit code. */
int survey_serve(int in, int out);

#endif
