# SPDX-License-Identifier: Apache-2.0
"""The promises of the manual hold with any options, on any trees, with any fault.

Each seed makes one case; tests/properties/run SEED prints it, what it broke, and a smaller case that
breaks the same. SLUICE_PROPERTIES is the number of cases, by default SHARE times SLUICE_COUNT. The
seeds begin with 1."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import generate     # noqa: E402
import judge    # noqa: E402
import names    # noqa: E402
from known import KNOWN     # noqa: E402
from model import Model, matches    # noqa: E402
from trial import attempt, programs     # noqa: E402
from world import Node, printable     # noqa: E402

SHARE = 360
AT_ONCE = 20
COUNT = int(os.environ.get("SLUICE_PROPERTIES") or SHARE * int(os.environ.get("SLUICE_COUNT", "1")))


@pytest.mark.parametrize("first", range(1, COUNT + 1, AT_ONCE))
def test_promises_of_the_manual_hold(first, record_property):
    broken, known = [], []
    for seed in range(first, min(first + AT_ONCE, COUNT + 1)):
        case = generate.generate(seed)
        trial = attempt(case)
        found = trial.found
        if found and seed in KNOWN:
            known.append("seed %d: %s" % (seed, KNOWN[seed]))
        elif found:
            broken.append("seed %d: rdcp %s\n  %s" % (seed, printable(" ".join(trial.case.words())), "\n  ".join(
                printable("%s: %s" % f) for f in found[:6])))
    for line in known:
        print("known: " + line)
    record_property("known", len(known))
    assert not broken, "tests/properties/run SEED prints more\n" + "\n".join(broken)


def test_every_option_is_generated():
    """ELSEWHERE lists the options that no case has, with the reason."""
    listed = subprocess.run([programs() / "rdcp", "--list-options"], stdout=subprocess.PIPE, check=True).stdout.decode()
    names = set()
    for line in listed.splitlines():
        long = [w[2:] for w in line.split() if w.startswith("--")]
        names.add(long[0] if long else line.split()[0])
    generated = set(generate.FLAGS) | set(generate.VALUES) | generate.MADE
    new = sorted(names - generated - set(generate.ELSEWHERE))
    assert not new, "tests/properties/generate.py does not have these options"
    # --list-options omits the --no-X that undo an option.
    gone = {n for n in generated | set(generate.ELSEWHERE) if not n.startswith("no-")} - names
    assert not gone, "there are no such options"
    assert not generated & set(generate.ELSEWHERE)


def test_seed_determines_the_case():
    for seed in range(1, 40):
        one, two = generate.generate(seed), generate.generate(seed)
        assert one.words() == two.words() and repr(sorted(one.world.items())) == repr(sorted(two.world.items()))
        assert one.names == two.names and one.fault == two.fault and one.module == two.module


def test_daemons_get_what_their_manual_permits_and_refuses():
    missing = {"delete into", "delete out of", "removal", "followed links", "owners", "a pattern", "a file of that name", "another user",
               "a FIFO", "trusted attributes", "backups beside", "refused", "43", *("settings: " + s for s in (
                   "delete", "remove sources", "incoming chmod", "refuse options", "encryption required", "fsync"))}
    for case in filter(lambda c: c.daemons, map(generate.generate, range(1, 1501))):
        push, pull = case.target[0] in case.daemons, any(h in case.daemons for h, _ in case.sources)
        why, codes = Model(case, case.world).find_what_modules_refuse()
        has = {"delete into": push and case.has("delete"), "delete out of": pull and case.has("delete"), "43": 43 in codes,
               "removal": pull and case.has("remove-source-files"), "followed links": case.has("copy-links"),
               "owners": push and any(map(case.has, ("owner", "group", "devices", "chown"))), "another user": case.uid,
               "a pattern": any(p in generate.MODULE_PATTERNS for _, p in case.sources),
               "a file of that name": any(p in generate.MODULE_PATTERNS for p in case.world),
               "a FIFO": case.target[1] == "pipe", "trusted attributes": any("trusted.a" in (n.xattrs or {}) for n in case.world.values()),
               "backups beside": case.options.get("backup-dir") == "../aside", "refused": why}
        missing -= {what for what, is_there in has.items() if is_there} | {"settings: " + s for s in case.module}
    assert not missing


def test_exit_status_of_a_fault_is_judged():
    """A run may exit with what its fault causes, or as without the fault; then the model has to be met."""
    case = generate.Case(0)
    case.options, case.sources = {"recursive": True}, [("", "s1/")]
    state = {"s1": Node("dir", mode=0o755), "s1/a": Node("file", "a:8"), "t": Node("dir", mode=0o755)}
    model = Model(case, state)
    done = {p: n.copy() for p, n in model.after.items()}
    for code, after, failures, want in ((0, done, {44}, []), (44, state, {44}, []), (0, state, {44}, ["missing"]),
                                        (23, state, {44}, ["exit", "missing"]), (23, state, {11, 23}, []),
                                        (23, done, {11, 23}, ["exit"]), (-9, state, {44}, ["exit", "missing"])):
        assert [k for k, _ in judge.status(model, after, code, failures)] == want


def test_patterns_of_odd_names_match_only_them():
    class Rules:
        def __init__(self, rule):
            self.o = {"rules": [rule]}

    tried = 0
    for case in map(generate.generate, range(1, 200)):
        renamer = names.Renamer(case.names, "~")
        for name, odd in case.names.items():
            for pattern, path in ((name, odd), ("/" + name, odd), ("**/" + name, "x/" + odd), ("*" + name, "xy" + odd)):
                rules = Rules(("exclude", renamer.pattern("exclude", pattern)))
                assert Model.excluded(rules, path, False), (rules.o, path)
                assert not Model.excluded(rules, path + "z", False), (rules.o, path)
                tried += 1
    assert tried > 100


@pytest.mark.parametrize("pattern, path, dir, want", [
    ("*.o", "a/b.o", False, True), ("/a", "a", False, True), ("/a", "b/a", False, False), ("b/", "b", False, False),
    ("b/", "a/b", True, True), ("d/*", "x/d/e", False, True), ("d/*", "d/e/f", False, False), ("a/**", "a/b/c", False, True),
    ("**/e.o", "e.o", False, True), ("?", "a/b", False, True), ("?", "ab", False, False),
    ("a\\b", "a\\b", False, True), ("a\\*", "a*", False, True), ("a\\*", "ab", False, False), ("?", "é", False, False),
    ("??", "é", False, True), ("*", "a\nb", False, True), ("\\[a]", "[a]", False, True)])
def test_model_matches_patterns(pattern, path, dir, want):
    assert matches(pattern, path, dir) is want
