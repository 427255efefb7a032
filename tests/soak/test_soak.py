# SPDX-License-Identifier: Apache-2.0
"""A short soak passes, and it finds planted defects."""

import os
import pathlib
import re
import subprocess

import pytest

pytestmark = pytest.mark.first
HERE = pathlib.Path(__file__).resolve().parent
BUILD = os.environ.get("SLUICE_TEST_BIN", str(HERE.parents[1] / "build" / "faults"))


def soak(*options):
    return subprocess.run([HERE / "soak", "--build=" + BUILD, "--seed=1", *options], capture_output=True, text=True,
                          timeout=600, check=False)


def test_short_soak_passes():
    r = soak("--seconds=12")
    assert r.returncode == 0, "\n".join(re.findall("^FOUND: .*", r.stdout, re.M)) or r.stdout + r.stderr
    assert int(re.search(r"(\d+) jobs in", r.stdout)[1]) > 3, r.stdout
    assert all(int(n) > 0 for n in re.search("stream (\\d+), push (\\d+)", r.stdout).groups()), r.stdout


def test_planted_defects_are_found():
    r = soak("--seconds=20", "--plant")
    assert r.returncode == 1, r.stdout + r.stderr
    for what in ("stream: descriptors grew", "stream: memory grew", "is left: sleep", "left in $TMPDIR", "is neither"):
        assert what in r.stdout, (what, r.stdout + r.stderr)
