/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

/*
 * Arrays that grow.  An array is three variables of its owner: a pointer, the number of elements
 * in use (count) and the number that have room (size_t).  Zeroed it is empty; its owner frees the
 * pointer.
 */

#include <stddef.h>
#include <stdlib.h>

/*
 * Make room for more elements behind the first count.  Returns 0, or -1 with ENOMEM and nothing
 * changed.  Where the array grows, its room becomes twice what it was, or count + more if that is
 * larger.  Evaluates its arguments more than once.
 *
 * A macro, so that each user has an allocation of its own, which tests/faults/sweep can name.
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

/* The room that such an array grows to; 0, with ENOMEM: no memory is that large. */
size_t array_wider(size_t room, size_t count, size_t more, size_t size);

#endif
