# SPDX-License-Identifier: Apache-2.0
"""No part of a copy grows with the square of what is copied. Counts of calls do not depend on the machine, as times
do."""

import os
import random
import subprocess

import pytest

from sites import ROOT, SHARED, Record, Sites

BUILD = ROOT / "build" / "sweep"
THINGS, MOST = 800, 10      # calls at one place for a thing; a quadratic part makes 100 and more


@pytest.fixture(scope="module")
def sites():
    return Sites(BUILD / "src" / "rdcp")


class OneProgram:
    """A Book of rdcp alone."""

    def __init__(self, sites):
        self.sites = sites

    def of(self, _role):
        return self.sites


def calls(sites, at, *words):
    """{site: calls} of a rdcp in the directory `at', without those that libraries make."""
    shared = at / "shared"
    with shared.open("wb") as f:
        f.truncate(SHARED)
    env = dict(os.environ, LD_PRELOAD=str(BUILD / "tests" / "every_call.so"), SWEEP_FILE=str(shared), ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")
    r = subprocess.run([BUILD / "src" / "rdcp", *words], cwd=at, env=env, capture_output=True, timeout=300, check=False)
    assert r.returncode == 0, r.stderr.decode()
    found = {}
    for (_, site), count in Record(shared, OneProgram(sites)).counts.items():
        if ">" not in site:
            found[site] = found.get(site, 0) + count
    return found


def deep_tree(at, n, seed=1):
    """n directories, one in the other, whose inode numbers say nothing about where they are."""
    names = list(range(n))
    random.Random(seed).shuffle(names)
    for k in names:
        (at / ("part%d" % k)).mkdir()
        (at / ("part%d" % k) / "f").touch()
    for k in range(n - 1, 0, -1):
        os.rename(at / ("part%d" % k), at / ("part%d" % (k - 1)) / "d")
    os.rename(at / "part0", at / "d")


def attributes_of_a_deep_tree(at, n):
    (at / "s").mkdir()
    deep_tree(at / "s", n)
    subprocess.run(["cp", "-a", at / "s", at / "t"], check=True)
    return "-aX", "--itemize-changes", "s/", "t"


def deletions_in_a_deep_tree(at, n):
    for top in "st":
        (at / top).mkdir()
        deep_tree(at / top, n)
    subprocess.run(["find", at / "s", "-type", "f", "-delete"], check=True)
    return "-a", "--delete", "s/", "t"


def names_beyond_ascii(at, n):
    for top in "st":
        for k in range(n):
            (at / top / ("\u00e9%d" % k)).mkdir(parents=True)
    return "-a", "s/", "t"


def files_named_one_by_one(at, n):
    (at / "t").mkdir()
    for k in range(n):
        (at / ("f%d" % k)).touch()
    return *("f%d" % k for k in range(n)), "t"


@pytest.mark.parametrize("make", [attributes_of_a_deep_tree, deletions_in_a_deep_tree, names_beyond_ascii, files_named_one_by_one])
def test_calls_grow_with_the_work(sites, tmp_path, make):
    found = calls(sites, tmp_path, *make(tmp_path, THINGS))
    assert found and not {site: count for site, count in found.items() if count > MOST * THINGS}
