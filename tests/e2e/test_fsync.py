# SPDX-License-Identifier: Apache-2.0
"""--fsync: what is synced, and when. tests/power shows that it survives a power cut."""

import os
import pathlib
import tempfile

import pytest

from faulty import refusing
from hosts import as_nobody, open_up
from marks import two_users
from trees import make, read


@pytest.fixture
def elsewhere():
    """On a file system whose properties are unknown."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sluice-fsync.") as top:
        yield pathlib.Path(top)


@pytest.mark.parametrize("size", [0, 70000, 6 << 20])
def test_file_is_synced_again_after_the_rename(bench, ground, elsewhere, size):
    """btrfs does not keep a file without a name, and its fsync of one does nothing."""
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
        # With its name, size and time it would be taken for complete.
        assert r.code == 0 or not (to / "f").exists()
    assert codes == [11, 11, 0]
    assert read(to) == {"f": data}


def test_inplace_sets_the_time_after_the_content_is_on_disk(bench, ground):
    """Otherwise a rerun would take what a power cut left for the complete file."""
    make(ground, {"from": {"f": b"n" * 300000}, "to": {"f": b"o" * 300000}})
    os.utime(ground / "from" / "f", (1000000000, 1000000000))
    command = ["-a", "--inplace", "--fsync", "from/", "far:%s" % (ground / "to")]
    r = bench.copy(*command, cwd=ground, env=refusing(ground / "to", "fsync", 1))
    assert r.code == 23 and "fsync" in r.errors(), (r.code, r.errors())
    assert os.stat(ground / "to" / "f").st_mtime != 1000000000
    r = bench.copy(*command, cwd=ground)
    assert r.code == 0 and read(ground / "to") == {"f": b"n" * 300000}
    assert os.stat(ground / "to" / "f").st_mtime == 1000000000


@two_users
def test_directories_that_cannot_be_opened_again_are_synced(bench, tmp_path):
    make(tmp_path, {"from": {"sub": {"f": b"f"}}, "to": {"sub": {}}})
    (tmp_path / "to" / "sub").chmod(0o300)
    for at in "from", "to":
        for dir, dirs, files in os.walk(tmp_path / at):
            for path in [dir, *(os.path.join(dir, n) for n in dirs + files)]:
                os.chown(path, 65534, 65534)
    open_up(tmp_path)
    for target in "to", "to/new":
        r = bench.copy("-r", "--fsync", "--chmod=D300", "from/", str(tmp_path / target), cwd=tmp_path, become=as_nobody())
        assert r.code == 0, r.errors()
