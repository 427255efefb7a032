# SPDX-License-Identifier: Apache-2.0
"""--inplace onto names of the target that are hard links to one inode, while the source has several files."""

import os

import pytest

from trees import make, read, ways

pytestmark = pytest.mark.moves_blocks

way = ways("push", "pull", "local")


def copy(bench, tmp_path, way, *options):
    return bench.copy("-a", "--inplace", *options, "%s%s/tree/" % (way[0], tmp_path), "%s%s/to" % (way[1], tmp_path))


def link_all(top, first, *others):
    for name in others:
        os.link(top / first, top / name)


def inode(path):
    return path.stat().st_ino


@pytest.mark.each_combination
@pytest.mark.parametrize("options", [[], ["-H"], ["--checksum"], ["-H", "--checksum"], ["--no-times"], ["-H", "-I"]], ids=str)
def test_each_name_gets_its_content(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {"a": b"one", "c": b"three", "d": b"old"}, "to": {"a": b"old"}})
    link_all(tmp_path / "tree", "a", "b")
    link_all(tmp_path / "to", "a", "b", "c", "d", "extra")
    wanted = {"a": b"one", "b": b"one", "c": b"three", "d": b"old"}
    for _ in range(2):
        r = copy(bench, tmp_path, way, *options)
        assert r.code == 0, r.errors()
        got = read(tmp_path / "to")
        assert got.pop("extra") in (b"old", b"one", b"three") and got == wanted, got
    if "-H" in options:
        assert inode(tmp_path / "to" / "a") == inode(tmp_path / "to" / "b")


def test_names_that_are_one_file_of_the_source_stay_linked(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": b"old"}})
    link_all(tmp_path / "tree", "a", "b")
    link_all(tmp_path / "to", "a", "b", "alias")
    was = inode(tmp_path / "to" / "a")
    r = copy(bench, tmp_path, way, "-H")
    assert r.code == 0 and read(tmp_path / "to") == {n: b"new" for n in ("a", "b", "alias")}, r.errors()
    assert {inode(tmp_path / "to" / n) for n in ("a", "b", "alias")} == {was}


def test_each_name_gets_its_mode(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"same"}, "to": {}})
    (tmp_path / "tree" / "b").write_bytes(b"same")
    os.utime(tmp_path / "tree" / "b", ns=2 * (os.stat(tmp_path / "tree" / "a").st_mtime_ns,))
    os.chmod(tmp_path / "tree" / "a", 0o600)
    os.chmod(tmp_path / "tree" / "b", 0o640)
    copy(bench, tmp_path, way)
    os.unlink(tmp_path / "to" / "b")
    link_all(tmp_path / "to", "a", "b")
    r = copy(bench, tmp_path, way)
    assert r.code == 0, r.errors()
    assert [os.stat(tmp_path / "to" / n).st_mode & 0o777 for n in "ab"] == [0o600, 0o640]
