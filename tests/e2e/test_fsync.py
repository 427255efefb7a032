# SPDX-License-Identifier: Apache-2.0
"""--fsync: what is synced, and when.  That it outlives a power cut is shown by tests/power."""

import os
import pathlib
import tempfile

import pytest

from faulty import refusing
from trees import make, read


@pytest.fixture
def elsewhere():
    """On a file system of which nothing is known."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sluice-fsync.") as top:
        yield pathlib.Path(top)


@pytest.mark.parametrize("size", [0, 70000, 6 << 20])
def test_a_file_is_synced_once_more_when_it_has_its_name(bench, ground, elsewhere, size):
    """btrfs keeps nothing of a file without a name, whose fsync does nothing there."""
    data = bytes(range(256)) * (size // 256)
    make(ground, {"from": {"f": data}})
    to = elsewhere / "to"
    to.mkdir()
    to.chmod(0o777)
    codes = []
    for nth in (1, 2, 3):
        (to / "f").unlink(missing_ok=True)
        r = bench.copy("--fsync", "from/f", "far:%s/" % to, cwd=ground, env=refusing(to, "fsync", nth))
        codes.append(r.code)
        assert r.code == 0 or "fsync" in r.errors(), r.errors()
        # With its name, size and time it would be taken for whole.
        assert r.code == 0 or not (to / "f").exists()
    assert codes == [11, 11, 0]
    assert read(to) == {"f": data}


def test_in_place_the_time_is_not_set_before_the_content_is_on_disk(bench, ground):
    """Or the same command again would take what a power cut left for the whole file."""
    make(ground, {"from": {"f": b"n" * 300000}, "to": {"f": b"o" * 300000}})
    os.utime(ground / "from" / "f", (1000000000, 1000000000))
    command = ["-a", "--inplace", "--fsync", "from/", "far:%s" % (ground / "to")]
    r = bench.copy(*command, cwd=ground, env=refusing(ground / "to", "fsync", 1))
    assert r.code == 23 and "fsync" in r.errors(), (r.code, r.errors())
    assert os.stat(ground / "to" / "f").st_mtime != 1000000000
    r = bench.copy(*command, cwd=ground)
    assert r.code == 0 and read(ground / "to") == {"f": b"n" * 300000}
    assert os.stat(ground / "to" / "f").st_mtime == 1000000000
