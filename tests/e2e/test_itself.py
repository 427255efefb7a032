# SPDX-License-Identifier: Apache-2.0
"""Copies of a file or tree onto or into itself are refused, also where only the two ends can detect that."""

import itertools
import os

import pytest

from hosts import pattern
from trees import WAYS, make, read, ways

pytestmark = pytest.mark.each_combination
BIG = 6 << 20

way = ways(*WAYS, "one far host")


def state(top):
    """Everything there, with its inode."""
    return sorted((path, os.lstat(path).st_ino, os.lstat(path).st_nlink)
                  for d, dirs, files in os.walk(top) for path in [os.path.join(d, n) for n in dirs + files])


def refused(bench, tmp_path, way, options, source, target):
    before, trees = state(tmp_path), read(tmp_path)
    r = bench.copy(*options, way[0] + "%s/%s" % (tmp_path, source), way[1] + "%s/%s" % (tmp_path, target))
    assert r.code == 11, (r.code, source, target, r.errors())
    assert "are the same" in r.errors() or "can't be copied into itself" in r.errors(), r.errors()
    assert state(tmp_path) == before and read(tmp_path) == trees, (source, target, r.errors())


@pytest.mark.parametrize("options,size", [([], 0), ([], 5), ([], BIG), (["--inplace"], BIG), (["-a"], 5), (["-a", "--checksum"], 5),
                                          (["--ignore-existing"], 5), (["-aH", "--remove-source-files"], 5)], ids=str)
def test_file_onto_itself_is_refused(bench, tmp_path, way, options, size):
    make(tmp_path, {"d": {"f": pattern(size)}, "way": "d", "to": "d/f"})
    os.link(tmp_path / "d" / "f", tmp_path / "link")
    os.link(tmp_path / "d" / "f", tmp_path / "d" / "other")
    pairs = [("d/f", "way/f"), ("d/f", "link")]
    if options == []:
        pairs += [("d/f", "d/f"), ("d/f", "way"), ("link", "d/other"), ("to", "d/f")]
    for source, target in pairs:
        refused(bench, tmp_path, way, options, source, target)


@pytest.mark.parametrize("options", [["-r"], ["-a", "--delete"], ["-a", "--remove-source-files"]], ids=" ".join)
def test_directory_onto_or_into_itself_is_refused(bench, tmp_path, way, options):
    make(tmp_path, {"d": {"f": b"f", "sub": {"g": b"g"}}, "way": "d", "sub": "d/sub"})
    for source, target in (("d/", "d"), ("d", ""), ("d/", "way"), ("way/", "d"), ("d", "d/sub"), ("d", "sub"),
                           ("d", "sub/new"), ("d/", "way/new"), ("d", "way")):
        refused(bench, tmp_path, way, options, source, target)


def test_relative_path_onto_itself_is_refused(bench, tmp_path, way):
    make(tmp_path, {"d": {"f": b"f", "sub": {"g": b"g"}}})
    for source in ("./d", "./d/f", "./d/sub"):
        refused(bench, tmp_path, way, ["-r", "--relative"], source, "")
    refused(bench, tmp_path, way, ["-r", "--relative"], "./d", "d/sub")


LINKS = [["-r"], ["-r", "--backup"], ["-r", "--inplace"], ["-a", "--checksum"], ["-a", "--delete"], ["-a", "-u"],
         ["-a", "--remove-source-files"]]


@pytest.mark.parametrize("options", LINKS, ids=" ".join)
def test_link_in_the_target_to_the_source_is_replaced(bench, tmp_path, way, options):
    """Like any symlink inside DST, and as rsync does it."""
    here = {"f": b"f", "d": {"g": pattern(BIG)}}
    make(tmp_path, {**here, "to": {"f": "../f", "d": "../d"}})
    before = state(tmp_path / "d")
    r = bench.copy(*options, *(way[0] + "%s/%s" % (tmp_path, n) for n in "fd"), way[1] + "%s/to" % tmp_path)
    assert r.code == 0, (r.code, r.errors())
    links = {"f~": "../f", "d~": "../d"} if "--backup" in options else {}
    assert read(tmp_path / "to") == {**here, **links}
    if "--remove-source-files" in options:
        here = {"d": {}}
    else:
        assert state(tmp_path / "d") == before
    assert {n: what for n, what in read(tmp_path).items() if n != "to"} == here


def test_link_named_as_dst_is_followed_to_the_source(bench, tmp_path, way):
    make(tmp_path, {"f": b"f", "d": {"g": b"g"}, "to": {"f": "../f", "d": "../d"}})
    for source, target in (("f", "to/f"), ("d/", "to/d"), ("d", "to/d")):
        refused(bench, tmp_path, way, ["-r"], source, target)


def test_copy_beside_the_source_works(bench, tmp_path, way):
    make(tmp_path, {"d": {"f": b"f", "sub": {"g": b"g"}}, "to": {}})
    names = itertools.product(("d/f", "d/f", "d", "d/", "d/sub"), ("to/1", "d/new", "to/2", "to/3", "d/new2"))
    for source, target in list(names)[::6]:
        r = bench.copy("-r", way[0] + "%s/%s" % (tmp_path, source), way[1] + "%s/%s" % (tmp_path, target))
        assert r.code == 0, (r.code, source, target, r.errors())
    assert read(tmp_path / "to") == {"1": b"f", "2": {"f": b"f", "new": b"f", "sub": {"g": b"g"}},
                                     "3": {"f": b"f", "new": b"f", "sub": {"g": b"g"}}}
    assert read(tmp_path / "d") == {"f": b"f", "new": b"f", "sub": {"g": b"g"}, "new2": {"g": b"g"}}
