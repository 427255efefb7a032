# SPDX-License-Identifier: Apache-2.0
"""--delete when something goes wrong: what could not be copied, looked at or deleted."""

import os
import subprocess

import pytest

from hosts import SLOW, as_nobody, leftovers, open_up, pattern, wait_until
from trees import USER, WAYS, make, read

BLOCK = 256 << 10


@pytest.fixture(params=["push", "pull", "local"])
def way(request):
    return WAYS[request.param]


def delete(bench, tmp_path, way, *options, **how):
    return bench.copy("-r", "--delete", *options, way[0] + str(tmp_path / "tree") + "/",
                      way[1] + str(tmp_path / "to"), **how)


# ---- nothing is deleted if anything failed -------------------------------------------------


@pytest.mark.skipif(USER, reason="root can read everything")
def test_nothing_is_deleted_when_a_file_is_unreadable(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"f", "closed": b"c"}, "to": {"old": b"", "d": {"old": b""}}})
    (tmp_path / "tree" / "closed").chmod(0)
    open_up(tmp_path)
    subprocess.run(["chown", "-R", "65534:65534", tmp_path / "to"], check=True)
    r = delete(bench, tmp_path, way, become=as_nobody())
    assert r.code == 23, (r.code, r.errors())
    assert "nothing is deleted" in r.errors() and "1 file failed" in r.errors(), r.errors()
    assert read(tmp_path / "to") == {"f": b"f", "old": b"", "d": {"old": b""}}


def test_nothing_is_deleted_when_a_followed_link_leads_nowhere(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"f", "l": "nowhere"}, "to": {"old": b""}})
    r = delete(bench, tmp_path, way, "--copy-links")
    assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"f", "old": b""}


def test_nothing_is_deleted_when_a_target_is_in_the_way(bench, tmp_path, way):
    """--max-delete keeps a directory that a file would replace."""
    make(tmp_path, {"tree": {"f": b"f", "g": b"g"}, "to": {"f": {"1": b"", "2": b""}, "old": b""}})
    r = delete(bench, tmp_path, way, "--max-delete=1")
    assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": {"1": b"", "2": b""}, "g": b"g", "old": b""}


def test_nothing_is_deleted_when_a_file_changes(bench, tmp_path, way):
    make(tmp_path, {"tree": {"in": pattern(40 * BLOCK)}, "to": {"old": b""}})
    stall = ";".join("stall:lane=%d,block=%d,ms=%d" % (lane, b, 600 * SLOW) for lane in (0, 1) for b in (1, 2, 3))
    run = bench.copy("-r", "--delete", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"),
                     wait=False, env={"SLUICE_FAULT": stall})
    wait_until(lambda: leftovers(tmp_path / "to"))
    os.truncate(tmp_path / "tree" / "in", 5 * BLOCK)
    assert run.wait() in (23, 42), run.errors()
    assert "nothing is deleted" in run.errors(), run.errors()
    assert read(tmp_path / "to") == {"old": b""}


def test_nothing_is_deleted_when_the_target_is_full(bench, tmp_path, way):
    at = tmp_path / "to"
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", at], check=False).returncode:
        pytest.skip("may not mount")
    try:
        make(tmp_path, {"tree": {"f": b"f", "big": pattern(4 << 20)}, "to": {"old": b""}})
        r = delete(bench, tmp_path, way)
        assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
        assert read(at) == {"f": b"f", "old": b""}
    finally:
        subprocess.run(["umount", "-l", at], check=False)
