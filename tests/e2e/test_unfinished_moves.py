# SPDX-License-Identifier: Apache-2.0
"""What follows a move with --delete that was not completed: other targets, other options, directories in the way."""

import os

import pytest

from trees import make, read, ways

pytestmark = pytest.mark.moves_blocks

way = ways("push", "pull", "local")


def move(bench, tmp_path, way, *options, source="tree/", to="to", **how):
    return bench.copy("-a", "--delete", "--remove-source-files", *options, "%s%s/%s" % (way[0], tmp_path, source),
                      "%s%s/%s" % (way[1], tmp_path, to), **how)


def contents(top):
    return {n: c for n, c in read(top).items() if not n.startswith(".sluice.marker.")}


def begin(bench, tmp_path, way, *options, **names):
    """Moves `one', and not `two', because a directory is in its way."""
    make(tmp_path, {"tree": {"one": b"1", "two": b"2"}, "to": {"two": {"in": b"x"}}})
    r = move(bench, tmp_path, way, "--max-delete=0", *options, **names)
    assert r.code == 23, (r.code, r.errors())
    assert contents(tmp_path / "tree")["two"] == b"2" and not (tmp_path / "tree" / "one").exists()


def test_move_to_another_target_does_not_complete_it(bench, tmp_path, way):
    begin(bench, tmp_path, way)
    make(tmp_path, {"other": {"extra": b"e"}})
    r = move(bench, tmp_path, way, to="other")
    assert r.code == 0 and "another move of" in r.errors(), (r.code, r.errors())
    assert contents(tmp_path / "tree") == {} and read(tmp_path / "other") == {"two": b"2", "extra": b"e"}
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "deletes nothing" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"one": b"1", "two": {"in": b"x"}}
    assert read(tmp_path / "tree") == {} and read(tmp_path / "other") == {"two": b"2", "extra": b"e"}


def test_two_moves_that_were_not_completed(bench, tmp_path, way):
    begin(bench, tmp_path, way)
    make(tmp_path, {"tree": {"three": b"3"}, "other": {"two": {"in": b"x"}}})
    assert move(bench, tmp_path, way, to="other").code == 23
    assert contents(tmp_path / "tree") == {"two": b"2"}
    for to in "other", "to":
        (tmp_path / to / "two" / "in").unlink()
        r = move(bench, tmp_path, way, to=to)
        assert r.code == 0 and ("another move of" in r.errors()) == (to == "other"), (to, r.code, r.errors())
    assert read(tmp_path) == {"tree": {}, "to": {"one": b"1", "two": {}}, "other": {"three": b"3", "two": b"2"}}


def test_target_is_known_by_any_path(bench, tmp_path, way):
    begin(bench, tmp_path, way)
    (tmp_path / "link").symlink_to("to")
    (tmp_path / "to" / "two" / "in").unlink()
    r = move(bench, tmp_path, way, to="link/../link/.")
    assert r.code == 0 and "another move of" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "tree") == {} and read(tmp_path / "to") == {"one": b"1", "two": b"2"}


@pytest.mark.parametrize("options", [["--exclude=two"], ["--max-size=0"], ["--existing"]], ids=" ".join)
def test_choosing_fewer_files_does_not_complete_it(bench, tmp_path, way, options):
    begin(bench, tmp_path, way)
    r = move(bench, tmp_path, way, *options)
    assert "deletes nothing" in r.errors(), (r.code, r.errors())
    r = move(bench, tmp_path, way, "--max-delete=0")
    assert r.code == 23 and read(tmp_path / "to") == {"one": b"1", "two": {"in": b"x"}}, (r.code, r.errors())


def test_same_source_at_another_place_of_the_target(bench, tmp_path, way):
    """`tree' goes to to/tree, and `tree/' to `to' itself."""
    make(tmp_path, {"tree": {"one": b"1", "two": b"2"}, "to": {"tree": {"two": {"in": b"x"}}}})
    assert move(bench, tmp_path, way, "--max-delete=0", source="tree").code == 23
    assert contents(tmp_path / "tree") == {"two": b"2"}
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "another move of" in r.errors(), (r.code, r.errors())
    r = move(bench, tmp_path, way, source="tree")
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"two": b"2", "tree": {"one": b"1", "two": {"in": b"x"}}}


def test_move_of_the_directory_above_deletes_nothing(bench, tmp_path, way):
    """Not what the first one moved, and not what has always been there."""
    make(tmp_path, {"up": {"tree": {"one": b"1", "two": b"2"}}, "to": {"up": {"tree": {"two": {"in": b"x"}}, "old": b"o"}}})
    assert move(bench, tmp_path, way, "--max-delete=0", source="up/tree/", to="to/up/tree").code == 23
    (tmp_path / "to" / "up" / "tree" / "two" / "in").unlink()
    r = move(bench, tmp_path, way, source="up")
    assert r.code == 0 and "another move of" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"up": {"tree": {"one": b"1", "two": b"2"}, "old": b"o"}}
    assert contents(tmp_path / "up" / "tree") == {}


@pytest.mark.parametrize("options", [[], ["--backup"]], ids=str)
def test_directory_that_was_moved_makes_no_room(bench, tmp_path, way, options):
    """Its name is that of a file now."""
    make(tmp_path, {"tree": {"d": {"one": b"1"}}})
    begin(bench, tmp_path, way)
    assert read(tmp_path / "to" / "d") == {"one": b"1"}
    (tmp_path / "tree" / "d").rmdir()
    make(tmp_path, {"tree": {"d": b"new"}})
    (tmp_path / "to" / "two" / "in").unlink()
    r = move(bench, tmp_path, way, *options)
    if options:
        assert r.code == 0, r.errors()
        assert read(tmp_path / "to") == {"one": b"1", "two": b"2", "d": b"new", "d~": {"one": b"1"}}
        return
    assert r.code == 23 and "an earlier move was not completed" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"one": b"1", "two": b"2", "d": {"one": b"1"}}
    assert contents(tmp_path / "tree") == {"d": b"new"}


def test_a_marker_that_cannot_be_read_is_for_another_target(bench, tmp_path, way):
    begin(bench, tmp_path, way)
    (marker,) = [n for n in os.listdir(tmp_path / "tree") if n.startswith(".sluice.marker.")]
    (tmp_path / "to" / "two" / "in").unlink()
    with open(tmp_path / "tree" / marker, "ab") as f:
        f.write(b"not a target ...\n")
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "another move of" in r.errors(), (r.code, r.errors())
    assert (tmp_path / "tree" / marker).exists() and read(tmp_path / "to") == {"one": b"1", "two": b"2"}


def test_torn_line_of_a_marker_is_for_no_target(bench, tmp_path, way):
    make(tmp_path, {"tree": {"one": b"1", ".sluice.marker.000000006d6f7665": b"0123"}, "to": {}})
    r = move(bench, tmp_path, way)
    assert r.code == 0 and read(tmp_path) == {"tree": {}, "to": {"one": b"1"}}, (r.code, r.errors())


def test_marker_has_room_for_many_runs(bench, tmp_path):
    """A run that succeeds leaves its line to the next one."""
    begin(bench, tmp_path, ("", ""))
    (tmp_path / "to" / "two" / "in").unlink()
    for n in range(70):
        make(tmp_path, {"tree": {"x%d" % n: b"x"}, "other": {}})
        assert move(bench, tmp_path, ("", ""), "--exclude=two", to="other").code == 0
    (marker,) = [n for n in os.listdir(tmp_path / "tree") if n.startswith(".sluice.marker.")]
    assert (tmp_path / "tree" / marker).stat().st_size == 2 * 17
    r = move(bench, tmp_path, ("", ""))
    assert r.code == 0 and read(tmp_path / "tree") == {}, (r.code, r.errors())


def test_file_of_another_source_makes_no_room(bench, tmp_path, way):
    """A SRC that is a file is sent before the directory with the marker is read."""
    make(tmp_path, {"tree": {"d": {"one": b"1"}}, "single": {"d": b"file"}})
    begin(bench, tmp_path, way)
    (tmp_path / "tree" / "d").rmdir()
    (tmp_path / "to" / "two" / "in").unlink()
    for sources in (["tree/", "single/d"], ["single/d", "tree/"], ["single/", "tree/"]):
        r = bench.copy("-a", "--delete", "--remove-source-files", *["%s%s/%s" % (way[0], tmp_path, s) for s in sources],
                       "%s%s/to/" % (way[1], tmp_path))
        assert r.code == 23 and "earlier move was not completed" in r.errors(), (sources, r.code, r.errors())
        assert read(tmp_path / "to")["d"] == {"one": b"1"}
        assert read(tmp_path / "single") == {"d": b"file"}


def test_backup_that_was_moved_is_not_replaced(bench, tmp_path, way):
    make(tmp_path, {"tree": {"x~": {"one": b"1"}}, "to": {"x": b"old"}})
    begin(bench, tmp_path, way)
    (tmp_path / "tree" / "x~").rmdir()
    make(tmp_path, {"tree": {"x": b"new"}})
    r = move(bench, tmp_path, way, "--backup")
    assert r.code == 23 and "replace backup" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to")["x~"] == {"one": b"1"} and read(tmp_path / "to")["x"] == b"old"


def test_move_of_a_directory_below_deletes_nothing(bench, tmp_path, way):
    make(tmp_path, {"tree": {"sub": {"one": b"1"}}})
    begin(bench, tmp_path, way)
    r = move(bench, tmp_path, way, source="tree/sub/", to="to/sub")
    assert r.code == 0 and "directory above" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to")["sub"] == {"one": b"1"}


def test_empty_marker_is_for_no_target(bench, tmp_path, way):
    """A run was killed before it removed anything."""
    make(tmp_path, {"tree": {"one": b"1", ".sluice.marker.000000006d6f7665": b""}, "to": {"old": b"o"}})
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "deletes nothing" in r.errors() and "another" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path) == {"tree": {}, "to": {"one": b"1", "old": b"o"}}


@pytest.mark.parametrize("option, closed", [("--itemize-changes", False), ("--json", False), ("--print-digest", True), ("--log-file=/dev/full", False)])
def test_move_whose_output_cannot_be_written_is_completed(bench, tmp_path, way, option, closed):
    """It fails, so the rerun deletes nothing."""
    make(tmp_path, {"tree": {"one": b"1", "two": b"2"}, "to": {}})
    with open("/dev/full", "wb") as full:
        r = move(bench, tmp_path, way, option, stdout=full, preexec=(lambda: os.close(1)) if closed else None)
    assert r.code == 11 and r.errors().count("write ") == 1, (r.code, r.errors())
    r = move(bench, tmp_path, way)
    assert r.code == 0, r.errors()
    assert contents(tmp_path / "tree") == {} and read(tmp_path / "to") == {"one": b"1", "two": b"2"}
