# SPDX-License-Identifier: Apache-2.0
"""Which cases of a test a run takes. Where a fixture has parameters, as `way' has, it takes each of the test's own cases
once and each value of the fixture once or more, not each case with each value. Runs over other transports and builds
combine them otherwise. All combinations are in a run with SLUICE_COUNT above one or with SLUICE_CASES=all.

@pytest.mark.each_combination: every run has all: the test is about what they do together.
@pytest.mark.each_value: a run has each value of each parameter once or more, not each combination.

With SLUICE_SHARE=K/N it takes the K-th of N parts of these cases. Any run of cases that are named takes those."""

import collections
import os
import random

import pytest

from hosts import COUNT, LAB, SIM, TRANSPORT
from parts import Part

RUN = "%s %s %s" % (TRANSPORT, SIM, os.path.basename(os.environ.get("SLUICE_TEST_BIN", "")))
ALL = COUNT > 1 or LAB or os.environ.get("SLUICE_CASES") == "all"
SHARE = Part("1/1" if LAB else os.environ.get("SLUICE_SHARE", "1/1"))


def names_of(mark):
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)


def values_of(item):
    """What has to be in a short run of this case. Parameters that are listed together count as one."""
    given = {name: id(value) for name, value in item.callspec.params.items()}
    lists = [names_of(m) for m in item.iter_markers("parametrize")]
    if not item.get_closest_marker("each_value"):
        lists = [[n for names in lists for n in names]]
    rows = [tuple((n, given.pop(n)) for n in names if n in given) for names in lists]
    return set(rows) | set(given.items())


def choose_cases(cases):
    """As few of a test's cases as have all values, or little more."""
    cases = sorted(cases, key=lambda c: c.nodeid)
    random.Random(RUN + cases[0].originalname).shuffle(cases)
    values = {c: values_of(c) for c in cases}
    missing, chosen = set().union(*values.values()), set()
    while missing:
        case = max(cases, key=lambda c: len(values[c] & missing))
        missing -= values[case]
        chosen.add(case)
    return chosen


def spare_combinations(items):
    """The cases of which others have all values."""
    tests = collections.defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("each_combination"):
            # A case that may be skipped (marks.py) stands for no other that may not, or for another reason.
            skips = frozenset(why for name, why in item.user_properties if name == "may-skip")
            tests[item.parent.nodeid, item.originalname, skips].append(item)
    return {c for cases in tests.values() for c in set(cases) - choose_cases(cases)}


def pytest_configure(config):
    config.addinivalue_line("markers", "each_combination: every run takes all cases")
    config.addinivalue_line("markers", "each_value: a run takes each value of each parameter, not each combination")


# After -m: what it leaves has to be whole.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.option.keyword or any("::" in a for a in config.args):
        return
    spare = set() if ALL else spare_combinations(items)
    left_out = {i for i in items if i in spare or not SHARE.has(RUN + i.nodeid)}
    if left_out:
        config.hook.pytest_deselected(items=[i for i in items if i in left_out])
        items[:] = [i for i in items if i not in left_out]
