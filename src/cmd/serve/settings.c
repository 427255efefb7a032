/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/serve/config.h"
#include "cmd/serve/confine.h"

/* Several can be found. Each but the last is logged; the last one is the failure. */
struct faults {
	unsigned count;
	enum outcome code; /* of the first one */
	bool of_options; /* one of them is */
	struct failure last;
};

/* Takes the result of a check. */
static void note_fault(struct faults *f, int rc)
{
	if (!rc)
		return;
	if (f->count++ == 0)
		f->code = failed()->code;
	else
		log_at(LOG_ERROR, "%s", f->last.text);
	f->last = *failed();
}

static void note_option_fault(struct faults *f, int rc)
{
	f->of_options |= rc != 0;
	note_fault(f, rc);
}

static int fail_by(const struct faults *f)
{
	if (!f->count)
		return 0;
	fail_as(f->code, "%s", f->last.text);
	return f->of_options ? OPTIONS_WRONG : -1;
}

static int add_module(struct settings *s, const struct module *m)
{
	struct module *added = &s->modules[s->module_count];

	if (module_find(s->modules, s->module_count, m->name))
		return fail_as(OUT_USAGE, "module %s is given twice", m->name);
	if (s->module_count == MODULES_MAX)
		return fail_as(OUT_USAGE, "more than %d modules", MODULES_MAX);
	*added = *m;
	s->module_count++;
	return module_open(added) || confine_check(added->path, &added->account) ? -1 : 0;
}

static void add_modules(struct settings *s, const struct options *o, const struct config *c,
			struct faults *f)
{
	struct module m;

	for (unsigned i = 0; i < o->serve.modules.count; i++) {
		if (module_parse(o->serve.modules.of[i], &m))
			note_option_fault(f, -1);
		else
			note_fault(f, add_module(s, &m));
	}
	for (unsigned i = 0; i < c->module_count; i++)
		note_fault(f, add_module(s, &c->modules[i]));
	if (o->serve.modules.count + c->module_count > 0)
		return;
	if (o->serve.config)
		note_fault(f, fail_as(OUT_USAGE, "%s has no module: there is nothing to serve",
				      o->serve.config));
	else
		note_option_fault(f, fail_as(OUT_USAGE,
					     "--module is missing: there is nothing to serve"));
}

static bool takes_anonymous(const struct settings *s)
{
	for (unsigned i = 0; i < s->module_count; i++)
		if (s->modules[i].anonymous)
			return true;
	return false;
}

static int add_key_file(struct settings *s, const char *file)
{
	struct psk key;
	int rc = psk_from_made_file(file, &key) || key_ring_add(&s->keys, "-", &key) ? -1 : 0;

	psk_wipe(&key);
	return rc;
}

static void add_keys(struct settings *s, const char *file, const char *secrets, struct faults *f)
{
	bool anonymous = takes_anonymous(s);
	unsigned before = f->count;
	struct psk key;

	psk_anonymous(&key);
	if (anonymous)
		note_fault(f, key_ring_add(&s->keys, ANONYMOUS_USER, &key));
	if (secrets)
		note_fault(f, key_ring_read(&s->keys, secrets));
	if (file)
		note_fault(f, add_key_file(s, file));
	if (!file && !secrets && !anonymous)
		note_option_fault(f, fail_as(OUT_USAGE, "--key-file or --secrets is missing "
							"(--make-key makes a key)"));
	else if (f->count == before && s->keys.count == 0)
		note_fault(f, fail_as(OUT_USAGE, "%s has no keys (--make-key makes one)", secrets));
}

static const char *choose_text(const char *option, const char *configured)
{
	return option && *option ? option : *configured ? configured : NULL;
}

int settings_take_limits(struct settings *s, const struct options *o)
{
	s->limits = limits_default();
	return o->speed.memory == UINT64_MAX ? 0 : limits_set_memory(&s->limits, o->speed.memory);
}

static int take_limits(struct settings *s, const struct options *o, const struct config *c)
{
	if (settings_take_limits(s, o))
		return -1;
	if (c->limits.sessions)
		s->limits.sessions = c->limits.sessions;
	if (o->speed.memory == UINT64_MAX && c->limits.memory)
		s->limits.memory = c->limits.memory;
	if (c->has_timeout)
		s->limits.idle_s = c->limits.idle_s;
	s->limits.sessions_per_user = c->limits.sessions_per_user;
	return 0;
}

void settings_take_transports(struct settings *s, const struct options *o,
			      const struct transports *otherwise)
{
	const struct network_options *n = &o->network;
	struct transports *t = &s->transports;

	*t = *otherwise;
	if (n->want != TRANSPORT_NOT_GIVEN)
		t->want = n->want;
	if (n->tos)
		t->tos = n->tos;
	if (n->port_lo) {
		t->port_lo = n->port_lo;
		t->port_hi = n->port_hi;
	}
}

static int fill_settings(struct settings *s, const struct options *o, struct config *c)
{
	const char *address;
	struct faults f = {0};

	if (o->serve.config && config_read(o->serve.config, c))
		return -1;
	address = choose_text(o->network.address, c->address);
	snprintf(s->address, sizeof s->address, "%s", address ? address : "");
	s->port = o->serve.port != PORT_NOT_GIVEN ? o->serve.port
		  : c->has_port                   ? c->port
						  : DAEMON_PORT;
	s->drain_s = c->drain_s;
	s->allow = c->allow;
	s->deny = c->deny;
	settings_take_transports(s, o, &c->transports);
	note_option_fault(&f, take_limits(s, o, c));
	add_modules(s, o, c, &f);
	add_keys(s, choose_text(o->key.file, c->key_file), choose_text(o->key.secrets, c->secrets),
		 &f);
	return fail_by(&f);
}

int settings_load(const struct options *o, struct settings **out)
{
	struct settings *s = calloc(1, sizeof *s);
	struct config *c = calloc(1, sizeof *c);
	int ret = -1;

	if (!s || !c)
		fail_as(OUT_MEMORY, "load the configuration: %m");
	else {
		config_init(c);
		ret = fill_settings(s, o, c);
	}
	free(c);
	if (ret)
		settings_free(s);
	else
		*out = s;
	return ret;
}

void settings_free(struct settings *s)
{
	if (!s)
		return;
	key_ring_wipe(&s->keys);
	free(s);
}
