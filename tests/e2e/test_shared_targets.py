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


def test_equal_files_stay_linked(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"same", "b": b"same"}, "to": {}})
    for name in "ab":
        os.utime(tmp_path / "tree" / name, (1, 1))
    assert copy(bench, tmp_path, way).code == 0
    os.unlink(tmp_path / "to" / "b")
    link_all(tmp_path / "to", "a", "b", "extra")
    r = copy(bench, tmp_path, way)
    assert r.code == 0 and (tmp_path / "to" / "a").stat().st_nlink == 3, r.errors()


@pytest.mark.parametrize("options", [[], ["-H"]], ids=str)
def test_a_name_that_is_skipped_stays_as_it_is(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {"a": b"AAAA", "c": b"CCCC", "z": b"ZZ"}, "to": {"a": b"OLD", "b": b"NEWB"}})
    link_all(tmp_path / "tree", "a", "b")
    link_all(tmp_path / "to", "a", "c", "z")
    os.utime(tmp_path / "tree" / "a", (10**9, 10**9))
    os.utime(tmp_path / "to" / "a", (9 * 10**8, 9 * 10**8))
    os.utime(tmp_path / "tree" / "z", (8 * 10**8, 8 * 10**8))
    for _ in range(2):
        r = copy(bench, tmp_path, way, "-u", *options)
        assert r.code == 0, r.errors()
        assert read(tmp_path / "to") == {"a": b"AAAA", "b": b"NEWB", "c": b"CCCC", "z": b"OLD"}
    r = copy(bench, tmp_path, way, "-I", "--max-size=3")
    assert r.code == 0 and (tmp_path / "to" / "a").read_bytes() == b"AAAA", r.errors()


def test_second_host_does_not_change_what_the_first_has_brought(bench, tmp_path):
    make(tmp_path, {"one": {"a": b"A"}, "two": {"c": b"CCCC"}, "to": {"a": b"OLD"}})
    link_all(tmp_path / "to", "a", "c")
    r = bench.copy("-a", "--inplace", "far:%s/one/a" % tmp_path, "near:%s/two/c" % tmp_path, "%s/to/" % tmp_path)
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"A", "c": b"CCCC"}, r.errors()
