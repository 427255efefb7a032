/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked in place of pthread_create() in each test that is not in `threaded' of meson.build: no
 * thread may begin there, because such a test does not run with ThreadSanitizer.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	(void)thread;
	(void)attr;
	(void)run;
	(void)arg;
	fprintf(stderr,
		"this test starts a thread, and is not in `threaded' of tests/meson.build\n");
	abort();
}
