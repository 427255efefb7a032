# SPDX-License-Identifier: Apache-2.0
"""Shrinks a failing case while it still fails in the same way, and prints cases."""

import copy

from trial import attempt
from world import below, printable


def describe(trial):
    case = trial.case
    lines = ["seed %d: rdcp %s" % (case.seed, " ".join(case.words()))]
    about = []
    if case.umask != 0o022:
        about.append("umask %03o" % case.umask)
    if case.uid:
        about.append("as user %d" % case.uid)
    about += ["%s = %s" % setting for setting in sorted(case.module.items())]
    if case.fault:
        about.append("fault " + " ".join("%s=%s" % i for i in case.fault.items()))
    if about:
        lines.append("  " + ", ".join(about))
    if case.listed:
        lines.append("  list: " + " ".join(case.listed))
    lines += ["  %-16s %r" % (p, n) for p, n in sorted(case.world.items())]
    lines.append("exit status %s%s" % (" then ".join(map(str, trial.codes)),
                                       ", no exact model: " + trial.model.inexact if trial.model.inexact else ""))
    lines += ["  | " + line for line in trial.errors.splitlines()[:12]]
    lines += ["%s: %s" % f for f in trial.found] or ["no violation"]
    return "\n".join(map(printable, lines))


def smaller(case):
    """Yields the case without one of its odd names, options, sources, rules, kills or entries."""
    if case.names:
        less = copy.deepcopy(case)
        less.names = {}
        yield less
    for name in case.names if len(case.names) > 1 else ():
        less = copy.deepcopy(case)
        del less.names[name]
        yield less
    if (case.fault or {}).get("again"):
        less = copy.deepcopy(case)
        less.fault["again"].pop()
        yield less
    for name in list(case.options):
        less = copy.deepcopy(case)
        del less.options[name]
        yield less
    for name in case.module:
        less = copy.deepcopy(case)
        del less.module[name]
        yield less
    if len(case.sources) > 1:
        for n in range(len(case.sources)):
            less = copy.deepcopy(case)
            del less.sources[n]
            yield less
    for path in sorted(case.world, key=lambda p: p.count("/")):
        if path in ("out", "list", (case.fault or {}).get("path")):
            continue
        less = copy.deepcopy(case)
        for p in [p for p in less.world if below(p, path)]:
            del less.world[p]
        yield less


def shrink(case, trial, most=400):
    want = {k for k, _ in trial.found}
    again = True
    while again and most > 0:
        again = False
        for less in smaller(case):
            most -= 1
            if most <= 0:
                break
            try:
                got = attempt(less)
            except Exception:   # there is no such case
                continue
            if want & {k for k, _ in got.found}:
                case, trial, again = less, got, True
                break
    return case, trial
