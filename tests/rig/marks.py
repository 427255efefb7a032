# SPDX-License-Identifier: Apache-2.0
"""Markers beside a test that declare where it is skipped.

@pytest.mark.needs(WHAT..., why=): the test is skipped where one of WHAT (NEEDS) is missing.
@pytest.mark.may_skip(KIND, WHY, on=, cases=): the test, or a fixture of it, calls pytest.skip() itself.
    KIND is a kind of machine (tests/skips). on: the transport; cases: a pattern of the parameters' ids.

./check accepts a skip only on a machine of a declared kind: tests/summary reads the property `may-skip' of the
JUnit file. A skip without one of these markers fails there."""

import fnmatch
import os
import zlib

import pytest

from hosts import HAS_ADAPTER, IWARP, LAB, TRANSPORT, USER

# What a test can need: (whether it is here, the kinds of machine that may lack it).
NEEDS = {
    "root": (not USER, ["user"]),
    "host": (not LAB, ["lab"]),
    "lab": (LAB, ["host"]),
    "no adapter": (not HAS_ADAPTER, ["rdma", "lab"] if TRANSPORT != "sim" else ["any"]),
    "kernel verbs": (TRANSPORT not in ("tcp", "sim"), ["any"]),
    "verbs": (TRANSPORT != "tcp", ["any"]),
    "tcp": (TRANSPORT == "tcp", ["any"]),
    "loopback": (TRANSPORT in ("tcp", "sim"), ["any"]),
    "rxe": (TRANSPORT == "rxe", ["any"]),
    "siw": (TRANSPORT == "siw", ["any"]),
    "iwarp": (IWARP, ["any"]),
    "sim": (TRANSPORT == "sim", ["any"]),
}
# SLUICE_TRANSPORT decides these: where the transport fits, no skip is declared.
CHOSEN = {"kernel verbs", "verbs", "tcp", "loopback", "rxe", "siw", "iwarp", "sim", "lab"}
KINDS = {"any", "host", "lab", "rdma", "no-rdma", "root", "user"}


def two_users(test):
    """Marks tests that run programs as another user, also between hosts (Bench.copy)."""
    elsewhere = pytest.mark.may_skip("lab", "only root can enter the other network namespace; rxe runs it", on="siw")
    return pytest.mark.needs("root", why="only root can run programs as two users")(elsewhere(test))


def case_of(item):
    """The ids of a test's parameters."""
    return item.name.partition("[")[2][:-1]


def declare(item, kind, why):
    assert kind in KINDS and why, "%s: %r is no kind of machine" % (item.nodeid, kind)
    item.user_properties.append(("may-skip", "%s %s" % (kind, why)))


def apply_needs(item, *whats, why):
    for what in whats:
        here, kinds = NEEDS[what]
        if not here:
            item.add_marker(pytest.mark.skip(reason=why))
        if not here or what not in CHOSEN:
            for kind in kinds:
                declare(item, kind, why)


def apply_may_skip(item, kind, why, on=TRANSPORT, cases="*"):
    if on == TRANSPORT and fnmatch.fnmatchcase(case_of(item), cases):
        declare(item, kind, why)


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(what, ..., why): skipped, and declared, where one of these is missing")
    config.addinivalue_line("markers", "may_skip(kind, why, on, cases): declares skips that the test decides itself")
    config.addinivalue_line("markers", "first: begun first, because at the end it would keep everybody waiting")


def place(item):
    """Each worker gets a run of neighbors: in a file of slow tests they would keep it busy after all others are done."""
    return zlib.crc32(item.nodeid.encode()) if os.environ.get("PYTEST_XDIST_WORKER") else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda i: (i.get_closest_marker("first") is None, place(i)))
    for item in items:
        for mark in item.iter_markers("needs"):
            apply_needs(item, *mark.args, **mark.kwargs)
        for mark in item.iter_markers("may_skip"):
            apply_may_skip(item, *mark.args, **mark.kwargs)
