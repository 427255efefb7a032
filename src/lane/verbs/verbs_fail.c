/* SPDX-License-Identifier: Apache-2.0 */

/* Records why a wire broke. */

#include <stdarg.h>
#include <stdio.h>
#include "lane/verbs/verbs_impl.h"

__attribute__((format(printf, 4, 0))) static int record_reason(struct verbs *v, enum outcome code,
							       bool is_cause, const char *fmt,
							       va_list ap)
{
	struct failure f = {.code = code};

	if (v->why.code && (v->wire.knows_cause || !is_cause))
		return fail_again(&v->why);
	vsnprintf(f.text, sizeof f.text, fmt, ap);
	v->why = f;
	v->wire.knows_cause = is_cause;
	return fail_again(&v->why);
}

int verbs_fail(struct verbs *v, enum outcome code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record_reason(v, code, true, fmt, ap);
	va_end(ap);
	return -1;
}

int verbs_ended(struct verbs *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record_reason(v, OUT_PEER_LOST, false, fmt, ap);
	va_end(ap);
	return -1;
}
