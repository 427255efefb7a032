# SPDX-License-Identifier: Apache-2.0
"""What rdcp itself writes may be in the source or in the target: it is neither copied, removed, deleted nor replaced."""

import os

import pytest

from trees import make, read, ways

pytestmark = pytest.mark.moves_blocks

way = ways("push", "pull", "local")


def here(way, side):
    """Is the source (0) or the target (1) on the host of the command?"""
    return way[side] == ""


def copy(bench, tmp_path, way, *options, **how):
    return bench.copy("-a", *options, "%s%s/tree/" % (way[0], tmp_path), "%s%s/to" % (way[1], tmp_path), **how)


@pytest.mark.parametrize("options", [[], ["--remove-source-files"], ["--delete", "--remove-source-files"], ["-n"]], ids=" ".join)
@pytest.mark.parametrize("what", ["log-file", "failed"])
def test_output_in_the_source_stays_there(bench, tmp_path, way, what, options):
    make(tmp_path, {"tree": {"a": b"a"}, "to": {}})
    out = tmp_path / "tree" / "out"
    r = copy(bench, tmp_path, way, "--%s=%s" % (what, out), *options)
    assert r.code == 0 or not here(way, 0), r.errors()
    if here(way, 0):
        assert "this command writes it" in r.errors(), r.errors()
        assert read(tmp_path / "to") == ({} if "-n" in options else {"a": b"a"})
        assert out.exists() and (what == "failed" or b"end exit 0" in out.read_bytes())
        assert sorted(read(tmp_path / "tree")) == (["out"] if "--remove-source-files" in options else ["a", "out"])


@pytest.mark.parametrize("what", ["log-file", "failed"])
def test_output_in_the_target_is_not_deleted(bench, tmp_path, way, what):
    make(tmp_path, {"tree": {"a": b"a"}, "to": {"old": b"o"}})
    out = tmp_path / "to" / "out"
    r = copy(bench, tmp_path, way, "--%s=%s" % (what, out), "--delete")
    if here(way, 1):
        assert r.code == 0 and sorted(read(tmp_path / "to")) == ["a", "out"], (r.code, r.errors())
        assert what == "failed" or b"end exit 0" in out.read_bytes()


@pytest.mark.parametrize("options", [[], ["--inplace"], ["--delete"], ["--backup"]], ids=" ".join)
@pytest.mark.parametrize("source", [{"log": b"other"}, {"log": "a link"}, {"log": {"d": b"d"}}], ids=["file", "link", "directory"])
def test_log_is_not_replaced(bench, tmp_path, way, source, options):
    if not here(way, 1):
        way = ("", "")
    make(tmp_path, {"tree": {"a": b"a", **source}, "to": {}})
    log = tmp_path / "to" / "log"
    r = copy(bench, tmp_path, way, "--log-file=%s" % log, *options)
    assert r.code == 23 and "this command writes it" in r.errors(), (r.code, r.errors())
    assert b"end exit 23" in log.read_bytes() and (tmp_path / "to" / "a").read_bytes() == b"a"


def test_directory_with_the_log_is_not_deleted(bench, tmp_path):
    make(tmp_path, {"tree": {"a": b"a", "d": b"file"}, "to": {"d": {}, "x": {}}})
    r = copy(bench, tmp_path, ("", ""), "--delete", "--log-file=%s/to/d/log" % tmp_path)
    assert r.code == 23 and b"end exit 23" in (tmp_path / "to" / "d" / "log").read_bytes(), (r.code, r.errors())
    (tmp_path / "tree" / "d").unlink()
    (tmp_path / "tree" / "d").mkdir()
    r = copy(bench, tmp_path, ("", ""), "--delete", "--log-file=%s/to/x/log" % tmp_path)
    assert r.code == 0 and b"end exit 0" in (tmp_path / "to" / "x" / "log").read_bytes(), (r.code, r.errors())
    assert "protected" in r.errors() and read(tmp_path / "to" / "d") == {}


def test_log_that_is_named_as_a_source_fails(bench, tmp_path):
    make(tmp_path, {"tree": {"a": b"a", "log": b"earlier\n"}, "to": {}})
    log = tmp_path / "tree" / "log"
    r = bench.copy("--log-file=%s" % log, tmp_path / "tree" / "a", log, tmp_path / "to")
    assert r.code == 23 and "this command writes it" in r.errors() and read(tmp_path / "to") == {"a": b"a"}, r.errors()
    assert log.read_bytes().startswith(b"earlier\n")


def test_log_behind_a_followed_link_is_not_copied(bench, tmp_path):
    make(tmp_path, {"tree": {"a": b"a", "l": "../log"}, "to": {}})
    r = copy(bench, tmp_path, ("", ""), "-L", "--log-file=%s/log" % tmp_path)
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"a"}, (r.code, r.errors())


def test_redirected_output_in_the_source_is_not_copied(bench, tmp_path):
    make(tmp_path, {"tree": {"a": b"a"}, "to": {}})
    with open(tmp_path / "tree" / "out", "wb") as out:
        r = copy(bench, tmp_path, ("", ""), "--json", stdout=out)
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"a"}, r.code
    assert (tmp_path / "tree" / "out").stat().st_size > 0


def test_listed_output_is_not_copied(bench, tmp_path):
    make(tmp_path, {"tree": {"a": b"a"}, "to": {}})
    (tmp_path / "list").write_bytes(b"log\na\n")
    r = copy(bench, tmp_path, ("", ""), "--files-from=%s/list" % tmp_path, "--log-file=%s/tree/log" % tmp_path)
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"a"} and "writes it" in r.errors(), (r.code, r.errors())


@pytest.mark.parametrize("where", [[], ["--backup-dir=old"]], ids=str)
def test_no_backup_replaces_the_log(bench, tmp_path, where):
    make(tmp_path, {"tree": {"a": b"new"}})
    make(tmp_path, {"to": {"a": b"older", "old": {}}})
    os.utime(tmp_path / "to" / "a", (1, 1))
    log = tmp_path / "to" / ("old/a" if where else "a~")
    r = copy(bench, tmp_path, ("", ""), "--backup", *where, "--log-file=%s" % log)
    assert r.code == 23 and b"end exit 23" in log.read_bytes(), (r.code, r.errors())
    assert (tmp_path / "to" / "a").read_bytes() == b"older"
