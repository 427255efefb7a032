/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

/*
 * Growing arrays. An array consists of three variables of its owner: a pointer, the number of
 * elements in use (count) and the number of elements allocated (room, a size_t). All zeros is an
 * empty array. The owner frees the pointer.
 */

#include <stddef.h>
#include <stdlib.h>

/*
 * Makes room for `more' elements behind the first `count'. Returns 0, or -1 with ENOMEM and nothing
 * changed. If the array grows, its room doubles, or becomes count + more if that is larger.
 * Evaluates its arguments more than once.
 *
 * It is a macro so that each caller has its own allocation, which tests/faults/sweep can name.
 */
#define ARRAY_ROOM(of, count, room, more)                                                          \
	__extension__({                                                                            \
		int grown_ = 0;                                                                    \
                                                                                                   \
		if ((more) > (room) - (count)) {                                                   \
			size_t wider_ = array_wider(room, count, more, sizeof *(of));              \
			void *of_ = wider_ ? reallocarray(of, wider_, sizeof *(of)) : NULL;        \
                                                                                                   \
			grown_ = of_ ? 0 : -1;                                                     \
			(room) = of_ ? wider_ : (room);                                            \
			(of) = of_ ? of_ : (of);                                                   \
		}                                                                                  \
		grown_;                                                                            \
	})

/* The room that such an array grows to; 0 with ENOMEM if the size overflows. */
size_t array_wider(size_t room, size_t count, size_t more, size_t size);

#endif
