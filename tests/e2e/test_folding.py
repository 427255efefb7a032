# SPDX-License-Identifier: Apache-2.0
"""Targets that fold two names of the source into one: neither overwrites the other, and both are reported."""

import contextlib
import os
import subprocess

import pytest

from file_systems import EXT4, Fuse, mounted_image
from hosts import pattern, program
from trees import WAYS, make, read

# Hosts may lack a kernel with such an ext4. One case is enough for a short run.
ext4_in_lab = pytest.mark.lab("rxe", cases="ext4*", long=True)


@contextlib.contextmanager
def on_fuse(tmp_path):
    fs = Fuse("folding_fs.py", tmp_path, "folding")
    yield fs.top
    fs.close()


@contextlib.contextmanager
def on_ext4(tmp_path):
    make_fs = [*EXT4, "-O", "casefold"]
    with mounted_image(tmp_path / "image", 64 << 20, tmp_path / "folding", make=make_fs) as top:
        (top / "in").mkdir()
        r = subprocess.run(["chattr", "+F", top / "in"], capture_output=True, text=True, check=False)
        if r.returncode:
            pytest.skip("no ext4 with casefold here: " + r.stderr.strip())
        yield top / "in"


@pytest.fixture(params=[
    pytest.param(on_fuse, id="fuse", marks=pytest.mark.may_skip("any", "to mount takes root, and a container that may")),
    pytest.param(on_ext4, id="ext4", marks=pytest.mark.may_skip(
        "any", "to mount takes root, and a kernel with Unicode in ext4: Debian's has it, as in the lab")),
])
def folding(request, tmp_path):
    with request.param(tmp_path) as where:
        yield where


def pairs(source, target):
    """The source's files that exist at the target, under their given names; all of them are whole."""
    for name, what in target.items():
        assert name in source, name
        if isinstance(what, dict):
            pairs(source[name], what)
        else:
            assert what == source[name], name


TREE = {
    "files": {"Foo": b"one", "foo": b"another", "b": b"b"},
    "large": {"Big": pattern(5 << 20, 1), "big": pattern(5 << 20, 2)},
    "links": {"L": "one", "l": "another"},
    "dirs": {"Sub": {"f": b"one"}, "sub": {"f": b"another"}},
    "mixed": {"x": {"f": b"one"}, "X": b"another"},
}


@pytest.mark.parametrize("what", [*TREE, "all"])
@pytest.mark.parametrize("options", [[], ["--inplace"]], ids=["", "inplace"])
@ext4_in_lab
def test_names_that_fold_to_one_are_an_error(bench, tmp_path, folding, what, options):
    tree = TREE if what == "all" else TREE[what]
    make(tmp_path / "src", tree)
    r = bench.copy("-r", *options, "src/", "far:%s" % (folding / "new"), cwd=tmp_path)
    assert r.code == 23, (r.code, r.errors())
    pairs(tree, read(folding / "new"))
    for a, b in {"files": [("Foo", "foo")], "large": [("Big", "big")], "links": [("L", "l")],
                 "dirs": [("Sub", "sub")], "mixed": [("x", "X")]}.get(what, [("Foo", "foo"), ("Big", "big")]):
        told = [line for line in r.errors().splitlines() if "the file system does not distinguish this name" in line]
        assert any("%s:" % x in line and "from %s," % y in line for line in told for x, y in ((a, b), (b, a))), told


@ext4_in_lab
def test_sources_of_folding_names_are_not_removed(bench, tmp_path, folding):
    make(tmp_path / "src", TREE["files"])
    r = bench.copy("-r", "--remove-source-files", "src/", "far:%s" % (folding / "new"), cwd=tmp_path)
    assert r.code == 23, (r.code, r.errors())
    left, there = read(tmp_path / "src"), read(folding / "new")
    assert sorted({**left, **there}) == ["Foo", "b", "foo"] and len(left) == 1
    pairs(TREE["files"], {**left, **there})


@pytest.mark.parametrize("options", [["-a"], ["-r"], ["-a", "--checksum"]], ids=" ".join)
@ext4_in_lab
def test_folding_names_are_an_error_on_a_rerun_too(bench, tmp_path, folding, options):
    tree = {**TREE["files"], "d": {"G": b"one", "g": b"another"}, "Sub": {"f": b"one"}, "sub": {"f": b"another"}}
    make(tmp_path / "src", tree)
    for _ in range(3):
        r = bench.copy(*options, "src/", "far:%s" % (folding / "new"), cwd=tmp_path)
        assert r.code == 23, (r.code, r.errors())
        assert r.errors().count("the file system does not distinguish this name") == 3, r.errors()


@ext4_in_lab
def test_names_that_do_not_fold_are_replaced(bench, tmp_path, folding):
    tree = {"Foo": b"one", "d": {"f": b"two"}, "l": "three"}
    for n in (1, 2):
        make(tmp_path / ("src%d" % n), {**tree, "Foo": b"one%d" % n})
        r = bench.copy("-r", "src%d/" % n, "far:%s" % (folding / "new"), cwd=tmp_path)
        assert r.code == 0, (r.code, r.errors())
        assert read(folding / "new") == {**tree, "Foo": b"one%d" % n}


@pytest.mark.lab("rxe", cases="ext4-push")
@pytest.mark.parametrize("way", ["push", "pull", "local"])
@ext4_in_lab
def test_delete_spares_a_directory_that_was_written_under_another_name(bench, tmp_path, folding, way):
    """With --delete: the source's foo was stored in Foo, which is the same directory."""
    make(tmp_path / "src", {"foo": b"new", "same": b"same", "sub": {"g": b"new", "h": b"h"}, "l": "new", "é": b"new"})
    make(folding / "to", {"Foo": b"old", "SAME": b"same", "Sub": {"G": b"old", "extra": b""}, "L": "old", "É": b"old",
                          "Extra": b""})
    before, after = WAYS[way]
    for _ in range(2):
        r = bench.copy("-r", "--delete", before + "%s/" % (tmp_path / "src"), after + str(folding / "to"))
        assert r.code == 0, (r.code, r.errors())
        assert read(folding / "to") == {"Foo": b"new", "SAME": b"same", "Sub": {"G": b"new", "h": b"h"}, "L": "new",
                                        "É": b"new"}


@pytest.mark.parametrize("options", [["--remove-source-files"], ["--backup"], ["--inplace"], ["--checksum"],
                                     ["--ignore-existing"], ["-aH"]], ids=" ".join)
@ext4_in_lab
def test_folding_names_lose_nothing_with_other_options(bench, tmp_path, folding, options):
    make(tmp_path / "src", {"foo": b"new", "sub": {"g": b"new"}})
    make(folding / "to", {"Foo": b"old", "Sub": {"G": b"old"}, "extra": b""})
    r = bench.copy("-r", "--delete", *options, "src/", "far:%s" % (folding / "to"), cwd=tmp_path)
    assert r.code == 0, (r.code, r.errors())
    there = read(folding / "to")
    assert "extra" not in there or "--backup" in options
    what = b"old" if "--ignore-existing" in options else b"new"
    assert [there[n] for n in there if n.lower() == "foo"] == [what], there
    assert [d[n] for d in (there.get("Sub") or there["sub"],) for n in d if n.lower() == "g"] == [what], there


@ext4_in_lab
def test_delete_spares_the_folded_name_of_another_source(bench, tmp_path, folding):
    make(tmp_path, {"src": {"a": b"a"}, "foo": b"new", "sub": {"g": b"new"}})
    make(folding / "to", {"Foo": b"old", "Sub": {"G": b"old"}, "extra": b""})
    r = bench.copy("-r", "--delete", "src/", "foo", "sub", "far:%s" % (folding / "to"), cwd=tmp_path)
    assert r.code == 0, (r.code, r.errors())
    assert read(folding / "to") == {"a": b"a", "Foo": b"new", "Sub": {"G": b"new"}}
    make(tmp_path, {"m": {"s": {"b": b"b"}}, "n": {"s": {"foo": b"new"}}})
    make(folding / "to" / "s", {"Foo": b"old", "more": b""})
    r = bench.copy("-r", "--delete", "--relative", "m/./s", "n/./s/foo", "far:%s" % (folding / "to"), cwd=tmp_path)
    assert r.code == 0, (r.code, r.errors())
    assert read(folding / "to")["s"] == {"b": b"b", "Foo": b"new"}


def test_similar_names_do_not_clash(bench, tmp_path):
    """Where case matters: names that end with a dot or a blank, and hard links that differ in case."""
    make(tmp_path, {"s": {n: n.encode() for n in ("dot.", "blank ", "aa", "AA", "aA", "b.", "B.")}, "t": {}})
    os.link(tmp_path / "s" / "aa", tmp_path / "s" / "hh")
    os.link(tmp_path / "s" / "aa", tmp_path / "s" / "HH")
    for _ in range(3):
        r = bench.run([program("rdcp"), "-rH", "s/", "t"], cwd=tmp_path)
        assert r.code == 0, r.errors()
    assert read(tmp_path / "t") == read(tmp_path / "s")
