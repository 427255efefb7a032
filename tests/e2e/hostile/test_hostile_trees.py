# SPDX-License-Identifier: Apache-2.0
"""Hostile trees: names that lead elsewhere, links that lead out, wrong ids, and false questions, cells and counts;
and the reports about trees that reach a conductor or rdcp. As in arena.py: the end exits by itself with the
right code, no sanitizer reports anything, memory stays small, and nothing outside the target has changed."""

import itertools
import os
import random
import shutil
import stat
import struct
import time

import pytest

from arena import SOON, Store, all_credited, ends, fails, manifest, play, rdcp, untouched
from hosts import COUNT, SLOW, leftovers, pattern

import far_end
import peer
import wire
from peer import (ASK, BLOCK, CELL, CHAR, CONTENTS, FIFO, HARD_LINK, I64, LINKED, NAMES,
                  PRESERVE, REGULAR, SPARSE, STREAM, SYMLINK, U32, U64, data_record, digest_of,
                  dir_record, end_record, file_record, keep_record, link_records, small_records,
                  total_of, xattr_record)

DIR = dir_record(name="dir")


def tree_sink(arena, flags=(), wants=("dir",), **how):
    e = arena.sink(wants=wants, flags=["RECURSIVE", *flags], **how).orders()
    return e, e.open()


def results_of(e, *ids):
    """The results of these files, in any order."""
    got = {}
    while not set(ids) <= set(got):
        result = e.result()
        got[result["file"]] = result["code"]
    return got


def end(e, *contents, **over):
    e.frames.send("END", **total_of(*contents, **over))


def in_the_target(arena):
    """All paths below the target, without temporaries and the marker."""
    return sorted(str(p.relative_to(arena.target)) for p in arena.target.rglob("*")
                  if not p.name.startswith(".sluice."))


# ---- an honest tree succeeds -------------------------------------------------------------------

def test_honest_tree_is_stored(arena):
    e, (lane,) = tree_sink(arena, flags=PRESERVE + ["HARD_LINKS", "DEVICES", "XATTRS", "DELETE"])
    play(e, lane, [DIR, small_records(b"one", id=2, dir=1, name="a", flags=LINKED),
                   dir_record(id=3, parent=1, name="sub", mode=0o700),
                   file_record(id=4, dir=3, size=3), xattr_record(b"value", id=4),
                   data_record(b"two", id=4), end_record(b"two", id=4),
                   keep_record(1, 0, ["a", "sub"]), keep_record(1, 1, ["b"]),
                   keep_record(3, 1, ["f", "way", "pipe"])])
    assert results_of(e, 2, 4) == {2: 0, 4: 0}
    play(e, lane, [link_records("../../outside", id=5, dir=3, name="way"),
                   small_records(id=6, dir=3, type=FIFO, name="pipe")])
    assert results_of(e, 5, 6) == {5: 0, 6: 0}
    play(e, lane, [small_records(id=7, dir=1, type=HARD_LINK, link_to=2, name="b")])
    assert results_of(e, 7) == {7: 0}
    all_credited(lane)
    end(e, b"one", b"two", others=5)
    done = e.frames.expect("DONE")
    assert done == {**total_of(b"one", b"two", others=5), "target": done["target"]} and done["target"]
    ends(e, 0)
    top = arena.target / "dir"
    assert in_the_target(arena) == ["dir", "dir/a", "dir/b", "dir/sub", "dir/sub/f",
                                    "dir/sub/pipe", "dir/sub/way", "f"]
    assert (top / "a").read_bytes() == b"one" and (top / "sub" / "f").read_bytes() == b"two"
    assert (top / "a").stat().st_ino == (top / "b").stat().st_ino
    assert os.readlink(top / "sub" / "way") == "../../outside"
    assert stat.S_IMODE((top / "sub").stat().st_mode) == 0o700
    assert not leftovers(arena.target) and not leftovers(top) and not leftovers(top / "sub")


# ---- names --------------------------------------------------------------------------------------

@pytest.mark.parametrize("what", ["top-directory", "directory", "file", "symlink", "kept"])
@pytest.mark.parametrize("name", NAMES)
def test_names_in_trees_are_checked(arena, name, what):
    """A name that is not a plain component is always refused; a plain one stays in its directory."""
    e, (lane,) = tree_sink(arena, flags=["DELETE"])
    bad = NAMES[name]
    if what == "top-directory":
        play(e, lane, [dir_record(name=bad), small_records(b"bad", id=2, dir=1)])
        fails(e, 12)
        untouched(arena)
        return
    if what == "kept" and len(bad) > 255:
        # A u8 cannot hold this length.
        return
    play(e, lane, [DIR, {
        "directory": lambda: dir_record(id=2, parent=1, name=bad),
        "file": lambda: small_records(b"bad", id=2, dir=1, name=bad),
        "symlink": lambda: link_records("../../outside/f", id=2, dir=1, name=bad),
        "kept": lambda: keep_record(1, 1, [bad])}[what]()])
    plain = b"/" not in bad and b"\0" not in bad and 0 < len(bad) < 256 and \
        bad not in (b".", b"..")
    if not plain:
        fails(e, 12)
        assert in_the_target(arena) in (["f"], ["dir", "f"])
        return
    if what in ("file", "symlink"):
        results_of(e, 2)
    all_credited(lane)
    end(e, *[b"bad"] * (what == "file"), others=1 if what in ("file", "kept") else 2)
    ends(e, 0)
    found = sorted(os.fsencode(p.name) for p in (arena.target / "dir").iterdir())
    assert found == ([] if what == "kept" else [bad])


@pytest.mark.parametrize("want", ["dir", "up/dir", "./dir", "/dir", "dir/../dir"])
def test_only_requested_names_are_accepted(arena, want):
    """A source that was asked for dir may send dir and its entries, and nothing else."""
    for records in ([small_records(b"x", name="other")],
                    [dir_record(name="other")],
                    [dir_record(name="", flags=CONTENTS)],
                    [link_records("outside", name="dir")],
                    [dir_record(name="dir", want=1)],
                    [small_records(b"x", name="authorized_keys"), DIR],
                    [DIR, small_records(b"x", id=2, name="f")]):
        e, (lane,) = tree_sink(arena, wants=[want])
        play(e, lane, records)
        fails(e, 12)
        assert in_the_target(arena) in (["f"], ["dir", "f"])
        assert (arena.target / "f").read_bytes() == b"old"


@pytest.mark.parametrize("flags", [[], ["QUIET"]])
def test_directory_instead_of_a_file_fails(arena, flags):
    e = arena.sink(wants=["dir"], flags=flags).orders()
    play(e, e.open()[0], [DIR])
    fails(e, 12)
    untouched(arena)


def test_only_listed_names_are_accepted(arena):
    """With --files-from: neither siblings of the listed names, nor entries below them."""
    listed = ["a/b", "c"]
    for records in ([dir_record(name="", flags=CONTENTS),
                     dir_record(id=2, parent=1, name="x")],
                    [dir_record(name="", flags=CONTENTS), small_records(b"x", id=2, dir=1, name="a")],
                    [dir_record(name="", flags=CONTENTS), dir_record(id=2, parent=1, name="a"),
                     small_records(b"x", id=3, dir=2, name="c")],
                    [dir_record(name="", flags=CONTENTS), dir_record(id=2, parent=1, name="a"),
                     dir_record(id=3, parent=2, name="b"), small_records(b"x", id=4, dir=3)],
                    [dir_record(name="", flags=CONTENTS), dir_record(id=2, parent=1, name="c"),
                     small_records(b"x", id=3, dir=2, name="below")]):
        e = arena.sink(wants=["."], flags=["FILES_FROM"], listed=listed).orders()
        play(e, e.open()[0], records)
        fails(e, 12)
        assert not [p for p in arena.target.rglob("*") if p.is_file() and p.name == "below"]


def ask(**over):
    return file_record(**{"id": 2, "dir": 1, "flags": ASK, **over})


# ---- directories ----------------------------------------------------------------------------------

SUB = dir_record(id=2, parent=1, name="sub")
DIRECTORIES = {
    "in-nothing": [dir_record(parent=9)],
    "in-itself": [dir_record(parent=1)],
    "in-each-other": [dir_record(id=1, parent=2), dir_record(id=2, parent=1)],
    "in-a-file": [DIR, small_records(b"x", id=2, dir=1), dir_record(id=3, parent=2)],
    "of-id-0": [dir_record(id=0, name="dir")],
    "of-an-open-files-id": [DIR, file_record(id=2, dir=1, size=9), dir_record(id=2, parent=1)],
    "twice": [DIR, DIR],
    "twice-otherwise": [DIR, dir_record(name="dir", mode=0o700)],
    "twice-elsewhere": [DIR, SUB, dir_record(id=3, parent=1, name="other"),
                        dir_record(id=2, parent=3, name="sub")],
    "unknown-flags": [dir_record(name="dir", flags=32)],
    "contents-with-a-name": [dir_record(name="dir", flags=CONTENTS)],
    "contents-in-a-directory": [DIR, dir_record(id=2, parent=1, name="", flags=CONTENTS)],
    "contents-that-were-not-asked-for": [dir_record(name="", flags=CONTENTS)],
    "no-name": [dir_record(name="")],
    "mode-beyond": [dir_record(name="dir", mode=0o10000)],
    "nanoseconds": [dir_record(name="dir", mtime_ns=10**9)],
    "the-last-want": [dir_record(name="dir", want=U32)],
    "a-file-in-an-unknown-one": [small_records(b"x", id=2, dir=1)],
    "a-file-in-itself": [DIR, file_record(id=2, dir=2)],
    "a-file-in-a-file": [DIR, small_records(b"x", id=2, dir=1), small_records(b"x", id=3, dir=2)],
    "a-file-of-its-id": [DIR, small_records(b"x", id=1, dir=1)],
    "data-of-one": [DIR, data_record(b"x", id=1)],
    "an-end-of-one": [DIR, end_record(id=1)],
    "a-hole-in-one": [DIR, peer.hole_record(0, 1, id=1)],
}


@pytest.mark.parametrize("what", DIRECTORIES)
def test_invalid_directories_fail(arena, what):
    e, (lane,) = tree_sink(arena)
    play(e, lane, DIRECTORIES[what])
    fails(e, 12)
    assert (arena.target / "f").read_bytes() == b"old"


@pytest.mark.parametrize("record", [small_records(b"x", id=2, dir=1), SUB, keep_record(1),
                                    xattr_record(id=1), ask()],
                         ids=["file", "directory", "keep", "attribute", "question"])
def test_each_lane_announces_its_directories(arena, record):
    """A directory that another lane announced does not exist for this lane."""
    e, lanes = tree_sink(arena, lanes=2, flags=["DELETE", "XATTRS"])
    play(e, lanes[0], [DIR])
    all_credited(lanes[0])
    play(e, lanes[1], [record])
    fails(e, 12)


def test_directory_on_two_lanes_is_the_same(arena):
    for over in (dict(mode=0o700), dict(mtime_s=5), dict(name="other"), dict(uid=7), dict(want=1)):
        e, lanes = tree_sink(arena, wants=["dir", "other"], lanes=2, flags=["MANY"])
        play(e, lanes[0], [DIR])
        all_credited(lanes[0])
        play(e, lanes[1], [dir_record(**{"name": "dir", **over})])
        fails(e, 12)


@pytest.mark.parametrize("name", ["d", "n" * 255])
def test_very_deep_tree_is_stored(arena, name):
    """Far deeper than PATH_MAX: it is made, or fails file by file; no directory is taken for another."""
    depth = 1000 * COUNT
    e, (lane,) = tree_sink(arena, timeout_ms=60000)
    arena.memory_max += 60 << 20
    play(e, lane, [DIR] + [dir_record(id=i, parent=i - 1, name=name)
                           for i in range(2, depth + 1)] +
         [small_records(b"deep", id=depth + 1, dir=depth)])
    code = results_of(e, depth + 1)[depth + 1]
    all_credited(lane)
    end(e, b"deep", others=depth)
    ends(e, 23 if code else 0, within=60)
    # pathlib would use paths, which are too long.
    assert os.system("rm -rf '%s'" % (arena.target / "dir")) == 0


def test_many_directories_stay_distinct(arena):
    """So many that not all can be held open; the first one is still the same in the end."""
    count = 3000 * COUNT
    arena.memory_max += 20 << 20
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR] + [dir_record(id=i + 2, parent=1, name="d%d" % i) for i in range(count)] +
         [small_records(b"x", id=count + 2 + i, dir=i + 2) for i in range(count)])
    assert set(results_of(e, *range(count + 2, 2 * count + 2)).values()) == {0}
    all_credited(lane)
    end(e, *[b"x"] * count, others=count + 1)
    ends(e, 0, within=60)
    assert all((arena.target / "dir" / ("d%d" % i) / "f").read_bytes() == b"x"
               for i in range(count))


# ---- links and devices --------------------------------------------------------------------------

def test_nothing_goes_through_a_symlink_that_was_sent(arena):
    """A symlink, then a directory, a file and an attribute with the same name."""
    e, (lane,) = tree_sink(arena, flags=PRESERVE + ["XATTRS", "DELETE"])
    play(e, lane, [DIR, link_records("../../outside", id=2, dir=1, name="way")])
    assert results_of(e, 2) == {2: 0}
    play(e, lane, [dir_record(id=3, parent=1, name="way", mode=0o777, mtime_s=9),
                   xattr_record(id=3), small_records(b"evil", id=4, dir=3, mode=0o777),
                   keep_record(3, 1, ["f"])])
    assert results_of(e, 4) == {4: 0}
    all_credited(lane)
    end(e, b"evil", others=3)
    ends(e, 0)
    way = arena.target / "dir" / "way"
    assert stat.S_ISDIR(way.lstat().st_mode) and (way / "f").read_bytes() == b"evil"


def test_nothing_goes_through_an_existing_symlink(arena):
    (arena.target / "dir").mkdir()
    (arena.target / "dir" / "way").symlink_to("../../outside")
    (arena.target / "dir" / "f").symlink_to("../../outside/f")
    (arena.target / "dir" / "g").symlink_to("../../outside/new")
    e, (lane,) = tree_sink(arena, flags=PRESERVE + ["DELETE", "INPLACE"])
    play(e, lane, [DIR, dir_record(id=2, parent=1, name="way", mode=0o777),
                   small_records(b"evil", id=3, dir=2), small_records(b"evil", id=4, dir=1),
                   small_records(b"evil", id=5, dir=1, name="g"),
                   keep_record(2, 1, ["f"]), keep_record(1, 1, ["way", "f", "g"])])
    results_of(e, 3, 4, 5)
    all_credited(lane)
    end(e, *[b"evil"] * 3, others=2)
    ends(e, 0)
    assert (arena.target / "dir" / "way" / "f").read_bytes() == b"evil"
    assert not (arena.target / "dir" / "way").is_symlink()


def test_target_that_is_a_symlink_is_followed(arena):
    """The user's own path is followed; a symlink dir in it is not."""
    (arena.target / "dir").symlink_to("../outside")
    e, (lane,) = tree_sink(arena, flags=PRESERVE)
    play(e, lane, [dir_record(name="dir", mode=0o777), small_records(b"evil", id=2, dir=1)])
    results_of(e, 2)
    all_credited(lane)
    end(e, b"evil", others=1)
    ends(e, 0)
    assert not (arena.target / "dir").is_symlink()


def test_directory_that_becomes_a_symlink_is_not_followed(arena):
    """During a transfer: its entries go into the moved directory, or fail."""
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, dir_record(id=2, parent=1, name="way"), small_records(b"x", id=3, dir=2)])
    results_of(e, 3)
    play(e, lane, [link_records("../../outside", id=4, dir=1, name="way")])
    code = results_of(e, 4)[4]
    play(e, lane, [small_records(b"evil", id=5, dir=2)])
    results_of(e, 5)
    all_credited(lane)
    end(e, b"x", b"evil", others=3)
    ends(e, *([0, 23] if code == 0 else [23]))


LINKS = {
    "to-nothing": dict(link_to=9),
    "to-a-directory": dict(link_to=1),
    "to-what-was-not-announced-as-linked": dict(link_to=2),
    "to-an-open-one": dict(link_to=3),
    "to-one-that-failed": dict(link_to=4),
    "to-the-last-id": dict(link_to=U32),
}


@pytest.mark.parametrize("what", LINKS)
def test_invalid_hard_links_fail(arena, what):
    """A hard link never leads to another file than the one that was sent."""
    e, (lane,) = tree_sink(arena, flags=["HARD_LINKS"])
    wrong = file_record(id=4, dir=1, name="wrong", size=1, flags=LINKED) + \
        data_record(b"x", id=4) + end_record(b"y", id=4)
    play(e, lane, [DIR, small_records(b"x", id=2, dir=1),
                   file_record(id=3, dir=1, name="open", size=9, flags=LINKED), wrong,
                   small_records(id=5, dir=1, type=HARD_LINK, name="link", **LINKS[what])])
    try:
        code = results_of(e, 5)[5]
    except peer.Silence:
        code = 12
    e.hang_up()
    ends(e, 12, 44, verdict=False)
    assert code in (0, 11, 12, 23)
    assert not (arena.target / "dir" / "link").exists()


TYPES = {
    "fifo": dict(type=FIFO), "char": dict(type=CHAR, major=1, minor=3),
    "block": dict(type=BLOCK, major=8), "hard-link": dict(type=HARD_LINK, link_to=2),
    "type-0": dict(type=0), "type-7": dict(type=7), "type-255": dict(type=255),
    "fifo-with-a-size": dict(type=FIFO, size=1), "fifo-with-a-number": dict(type=FIFO, minor=1),
    "regular-with-a-number": dict(type=REGULAR, major=1),
    "regular-that-links": dict(type=REGULAR, link_to=2),
    "symlink-of-nothing": dict(type=SYMLINK, size=0),
    "symlink-of-4096": dict(type=SYMLINK, size=4096),
    "symlink-that-is-asked-about": dict(type=SYMLINK, size=1, flags=ASK),
    "symlink-that-is-a-stream": dict(type=SYMLINK, size=0, flags=STREAM),
    "stream-that-is-asked-about": dict(flags=STREAM | ASK),
    "linked-unasked": dict(flags=LINKED),
}


@pytest.mark.parametrize("what", TYPES)
def test_unrequested_types_are_refused(arena, what):
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, small_records(b"x", id=2, dir=1),
                   file_record(**{"id": 3, "dir": 1, "name": "new", **TYPES[what]}),
                   end_record(id=3)])
    fails(e, 12)
    assert not os.path.lexists(arena.target / "dir" / "new")


@pytest.mark.parametrize("target", [b"a\0b", b"\0", b"x" * 4095, b"/etc/passwd", b"..", b"\x1b[31m"],
                         ids=["nul", "only-nul", "4095", "absolute", "up", "escapes"])
def test_any_symlink_target_is_stored(arena, target):
    """They are plain bytes that are not followed; only NUL is refused."""
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, link_records(target, id=2, dir=1, name="l")])
    if b"\0" in target:
        fails(e, 12)
        return
    code = results_of(e, 2)[2]
    all_credited(lane)
    end(e, others=2)
    ends(e, 23 if code else 0)
    if code == 0:
        assert os.fsencode(os.readlink(arena.target / "dir" / "l")) == target


SYMLINK_BYTES = {
    "cut-short": [data_record(b"ab", id=2), end_record(b"ab", id=2, size=3)],
    "too-long": [data_record(b"abcd", id=2), end_record(b"abcd", id=2)],
    "twice": [data_record(b"abc", id=2), data_record(b"abc", id=2), end_record(b"abc", id=2)],
    "from-its-middle": [data_record(b"bc", pos=1, id=2), data_record(b"a", id=2),
                        end_record(b"abc", id=2)],
    "with-a-hole": [data_record(b"ab", id=2), peer.hole_record(2, 1, id=2),
                    end_record(b"ab", id=2, size=3, holes=1)],
    "without": [end_record(b"abc", id=2)],
}


@pytest.mark.parametrize("what", SYMLINK_BYTES)
def test_invalid_symlink_bytes_fail(arena, what):
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, file_record(id=2, dir=1, name="l", type=SYMLINK, size=3),
                   *SYMLINK_BYTES[what]])
    e.frames.send("PING", cookie=1)
    try:
        code = e.result(timeout=2)["code"]
        assert code != 0 or what == "from-its-middle"
    except peer.Silence:
        pass
    e.hang_up()
    ends(e, 12, 44, verdict=False)
    link = arena.target / "dir" / "l"
    assert not os.path.lexists(link) or os.readlink(link) == "abc"


# ---- metadata ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("flags", [[], ["PERMS"], ["PERMS", "OWNER", "GROUP"],
                                   ["PERMS", "OWNER", "GROUP", "NUMERIC_IDS"]],
                         ids=["plain", "perms", "owner", "numeric"])
def test_set_id_bits_need_their_owner(arena, flags):
    """4242 is an unknown user here; with numeric ids the file belongs to that user."""
    e, (lane,) = tree_sink(arena, flags=flags)
    play(e, lane, [dir_record(name="dir", mode=0o6777, uid=4242, gid=4242),
                   small_records(b"x", id=2, dir=1, mode=0o6777, uid=4242, gid=4242)])
    assert results_of(e, 2) == {2: 0}
    all_credited(lane)
    end(e, b"x", others=1)
    ends(e, 0)
    for path in (arena.target / "dir", arena.target / "dir" / "f"):
        st = path.stat()
        if st.st_mode & stat.S_ISUID:
            assert st.st_uid == 4242
        if st.st_mode & stat.S_ISGID:
            assert st.st_gid == 4242


XATTRS = {
    "of-nothing": [xattr_record(id=9)],
    "of-id-0": [xattr_record(id=0)],
    "larger-than-64-KiB": [xattr_record(b"v", size=65537, id=2)],
    "of-4-GiB": [xattr_record(b"v", size=U32, id=2)],
    "longer-than-it-says": [xattr_record(b"value", size=2, id=2)],
    "of-nothing-yet": [xattr_record(b"", size=2, id=2)],
    "beyond-its-end": [xattr_record(b"v", size=2, pos=2, id=2)],
    "from-the-middle": [xattr_record(b"lue", size=5, pos=2, id=2)],
    "with-a-gap": [xattr_record(b"a", size=5, id=2), xattr_record(b"b", size=5, pos=2, id=2)],
    "twice": [xattr_record(id=2), xattr_record(id=2)],
    "two-at-once": [xattr_record(b"a", size=2, id=2), xattr_record(b"a", size=2, id=2, name="user.y"),
                    xattr_record(b"b", size=2, pos=1, id=2)],
    "cut-short": [xattr_record(b"a", size=2, id=2), end_record(id=2)],
    "of-no-name": [xattr_record(name="", id=2)],
    "of-256-bytes": [xattr_record(name="user." + "n" * 251, id=2)],
    "with-a-nul": [xattr_record(name=b"user.\0", id=2)],
    "more-than-a-MiB": list(itertools.chain.from_iterable(
        [xattr_record(b"v" * 8000, size=64000, pos=p, name="user.%d" % i, id=2)
         for p in range(0, 64000, 8000)] for i in range(20))),
    "a-hundred-thousand": [xattr_record(b"", name="user.%d" % i, id=2) for i in range(100000)],
    "behind-the-end": [end_record(id=2), xattr_record(id=2)],
}


@pytest.mark.parametrize("what", XATTRS)
def test_invalid_attributes_fail(arena, what):
    e, (lane,) = tree_sink(arena, flags=["XATTRS"])
    play(e, lane, [DIR, file_record(id=2, dir=1)] + XATTRS[what])
    fails(e, 12)


@pytest.mark.parametrize("name", ["security.selinux", "security.capability", "security.evil",
                                  "system.posix_acl_access", "system.evil", "lustre.lov",
                                  "trusted.evil", "evil", "user", "user."])
@pytest.mark.parametrize("flags", [[], ["XATTRS"]], ids=["unasked", "asked"])
def test_unrequested_attributes_are_not_set(arena, name, flags):
    """They are refused or left out, never set."""
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in (
        (1, 7, U32), (2, 7, 4242), (4, 7, U32), (16, 7, U32), (32, 7, U32)))
    e, (lane,) = tree_sink(arena, flags=flags)
    play(e, lane, [DIR, xattr_record(acl, id=1, name=name), file_record(id=2, dir=1, size=1),
                   xattr_record(acl, id=2, name=name), data_record(b"x", id=2),
                   end_record(b"x", id=2)])
    try:
        results_of(e, 2)
        all_credited(lane)
        end(e, b"x", others=1)
    except (peer.Silence, EOFError, OSError):
        pass
    ends(e, 0, 12, 23)
    for path in (arena.target / "dir", arena.target / "dir" / "f"):
        if path.exists():
            # Root may set trusted ones.
            assert set(os.listxattr(path)) <= ({"trusted.evil"} if "XATTRS" in flags else set())


def entries(*each):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in each)


ACLS = {
    "empty": b"", "one-byte": b"\2", "version-only": struct.pack("<I", 2),
    "version-3": struct.pack("<I", 3) + entries((1, 7, U32))[4:],
    "cut-short": entries((1, 7, U32))[:-1], "unknown-tag": entries((3, 7, U32)),
    "all-permissions": entries((1, 0xffff, U32)), "many": entries(*[(2, 7, i) for i in range(8000)]),
    "the-same-user-twice": entries((1, 7, U32), (2, 7, 4242), (2, 7, 4242), (4, 7, U32),
                                   (16, 7, U32), (32, 7, U32)),
}


@pytest.mark.parametrize("what", ACLS)
def test_invalid_acls_fail(arena, what):
    e, (lane,) = tree_sink(arena, flags=["ACLS", "PERMS"])
    value = ACLS[what]
    pieces = [xattr_record(value[p:p + 8000], size=len(value), pos=p, id=2,
                           name="system.posix_acl_access")
              for p in range(0, len(value), 8000)] or \
        [xattr_record(b"", id=2, name="system.posix_acl_access")]
    play(e, lane, [DIR, file_record(id=2, dir=1, size=1)] + pieces +
         [data_record(b"x", id=2), end_record(b"x", id=2)])
    try:
        results_of(e, 2)
        all_credited(lane)
        end(e, b"x", others=1)
    except (peer.Silence, EOFError, OSError):
        pass
    ends(e, 0, 12, 23)


def test_endless_owners_use_bounded_memory(arena):
    """Names of users and groups: they are refused, or cost little."""
    e, (lane,) = tree_sink(arena, flags=["OWNER", "GROUP"])
    play(e, lane, [DIR] + [wire.record("OWNER", group=i & 1, id=i, name="user%d" % i)
                           for i in range(200000 * COUNT)])
    e.hang_up()
    ends(e, 12, 44, verdict=False, within=60)


def bound(by):
    """Divides the bounds on what a peer can make an end remember, so that little data reaches them."""
    return {"SLUICE_FAULT": "bound:by=%d" % by}


def test_endless_directories_use_bounded_memory(arena):
    """They cost little on disk, and the remembered part of them is bounded."""
    e, (lane,) = tree_sink(arena, env=bound(1024))  # 384 KiB
    play(e, lane, [DIR] + [dir_record(id=i, parent=1, name="%d-%s" % (i, "n" * 200)) for i in range(2, 1000)])
    said = fails(e, 22)
    assert b"directories in memory" in said["text"], said
    assert 100 < len(os.listdir(arena.target / "dir")) < 900


def test_endless_attributes_of_questions_use_bounded_memory(arena):
    """Attributes of compared files are kept until the comparison is done; files whose attributes do not fit are
    sent."""
    (arena.target / "dir").mkdir()
    for i in range(2, 22):
        (arena.target / "dir" / ("n%d" % i)).write_bytes(b"x")
    e, (lane,) = tree_sink(arena, flags=["CHECKSUM", "XATTRS"], env=bound(8192))  # 8 KiB
    play(e, lane, itertools.chain([DIR], *(
        [ask(id=i, name="n%d" % i, size=1) + xattr_record(bytes(2000), id=i)] for i in range(2, 22))))
    answers = {}
    while len(answers) < 20:
        answers.update((a["file"], a["answer"]) for a in e.frames.expect("ANSWERS")["answers"])
    assert list(answers.values()).count(peer.COMPARE) == 4, answers
    assert list(answers.values()).count(peer.SEND) == 16, answers
    e.hang_up()
    ends(e, 44, verdict=False)


def test_endless_attributes_of_directories_use_bounded_memory(arena):
    """They are kept until the end, within a bound: a directory costs next to nothing on disk."""
    e, (lane,) = tree_sink(arena, flags=["XATTRS"], env=bound(64))  # 2 MiB

    def records():
        yield DIR
        for i in range(2, 12):
            yield dir_record(id=i, parent=1, name="d%d" % i)
            for n in range(64):
                yield xattr_record(bytes(15000), id=i, name="user.%02d" % n)
    play(e, lane, records())
    said = fails(e, 22, within=60)
    assert b"attributes of directories" in said["text"], said


# ---- KEEP and deletions ------------------------------------------------------------------------------

KEEPS = {
    "of-nothing": [keep_record(9)],
    "of-id-0": [keep_record(0)],
    "of-a-file": [small_records(b"x", id=2, dir=1), keep_record(2)],
    "after-the-last": [keep_record(1), keep_record(1)],
    "of-no-names-and-no-end": [keep_record(1, 0)],
    "last-2": [keep_record(1, 2)],
    "of-no-name": [keep_record(1, 1, b"\0")],
    "of-a-name-cut-short": [keep_record(1, 1, b"\5abc")],
}


@pytest.mark.parametrize("what", KEEPS)
def test_invalid_keep_fails(arena, what):
    (arena.target / "dir").mkdir()
    (arena.target / "dir" / "mine").write_bytes(b"mine")
    e, (lane,) = tree_sink(arena, flags=["DELETE"])
    play(e, lane, [DIR] + KEEPS[what])
    fails(e, 12)
    assert (arena.target / "dir" / "mine").read_bytes() == b"mine"


def test_keep_without_delete_fails(arena):
    (arena.target / "dir").mkdir()
    (arena.target / "dir" / "mine").write_bytes(b"mine")
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, keep_record(1)])
    try:
        all_credited(lane)
        end(e, others=1)
    except (EOFError, OSError):
        pass
    ends(e, 0, 12)
    assert (arena.target / "dir" / "mine").read_bytes() == b"mine"


@pytest.mark.parametrize("how", ["incomplete", "never-last", "no-keep", "hang-up", "error", "wrong-end"])
def test_deletions_need_a_complete_list(arena, how):
    """Nothing, unless the source's list is complete and the transfer succeeds."""
    (arena.target / "dir" / "sub").mkdir(parents=True)
    (arena.target / "dir" / "mine").write_bytes(b"mine")
    (arena.target / "dir" / "sub" / "mine").write_bytes(b"mine")
    e, (lane,) = tree_sink(arena, flags=["DELETE"])
    keeps = {"never-last": [keep_record(1, 0, ["f"])], "no-keep": []}.get(how, [keep_record(1)])
    play(e, lane, [DIR] + keeps)
    all_credited(lane)
    if how == "hang-up":
        e.hang_up()
    elif how == "error":
        e.frames.send("ERROR", code=11, host="", text="no")
    else:
        end(e, others=1 + (how == "wrong-end"), incomplete=int(how == "incomplete"))
    ends(e, *{"hang-up": [44], "error": [11], "wrong-end": [12]}.get(how, [0, 12, 23]),
         verdict=how != "hang-up")
    assert (arena.target / "dir" / "mine").read_bytes() == b"mine"
    assert (arena.target / "dir" / "sub" / "mine").read_bytes() == b"mine"


def test_deletions_stay_in_the_tree(arena):
    """Symlinks in it lead out; they are removed, and their targets stay."""
    top = arena.target / "dir"
    top.mkdir()
    (top / "way").symlink_to("../../outside")
    (top / "file").symlink_to("../../outside/f")
    (top / "deep" / "down").mkdir(parents=True)
    (top / "deep" / "down" / "way").symlink_to("../../../../outside")
    e, (lane,) = tree_sink(arena, flags=["DELETE"])
    play(e, lane, [DIR, keep_record(1)])
    all_credited(lane)
    end(e, others=1)
    ends(e, 0)
    assert in_the_target(arena) == ["dir", "f"]


def test_sink_enforces_max_delete(arena):
    top = arena.target / "dir"
    top.mkdir()
    for i in range(10):
        (top / ("n%d" % i)).write_bytes(b"x")
    e, (lane,) = tree_sink(arena, flags=["DELETE"], max_delete=3)
    play(e, lane, [DIR, keep_record(1)])
    all_credited(lane)
    end(e, others=1)
    ends(e, 25)
    assert len(list(top.iterdir())) == 7


def test_endless_keeps_use_bounded_memory(arena):
    """Endless names that the source claims to have: refused at some point, or stored in little memory."""
    arena.memory_max += 64 << 20
    e, (lane,) = tree_sink(arena, flags=["DELETE"])
    names = (["%d-%s" % (i, "n" * 200) for i in range(start, start + 60)]
             for start in range(0, 60 * 4000 * COUNT, 60))
    play(e, lane, itertools.chain([DIR], (keep_record(1, 0, some) for some in names)))
    e.hang_up()
    ends(e, 12, 44, verdict=False, within=60)


# ---- questions ------------------------------------------------------------------------------------------

HAVE = {
    "without-a-question": [file_record(id=2, dir=1, size=CELL), ("HAVE", 0, CELL)],
    "of-no-file": [("HAVE", 0, CELL)],
    "before-the-answer": [ask(size=CELL), ("HAVE", 0, CELL)],
    "after-send": [ask(size=CELL), "answer", file_record(id=2, dir=1, size=CELL), ("HAVE", 0, CELL)],
    "of-nothing": [file_record(id=2, dir=1, size=CELL), ("HAVE", 0, 0)],
    "off-a-cell": [file_record(id=2, dir=1, size=CELL), ("HAVE", 1, CELL - 1)],
    "that-wraps": [file_record(id=2, dir=1, size=I64), ("HAVE", CELL, U64 - CELL + 1)],
    "beyond": [file_record(id=2, dir=1, size=CELL), ("HAVE", CELL, CELL)],
}


def with_old(arena, data):
    (arena.target / "dir").mkdir()
    (arena.target / "dir" / "f").write_bytes(data)


def said(record):
    return record if isinstance(record, bytes) else \
        wire.record("HAVE", id=2, pos=record[1], len=record[2])


@pytest.mark.parametrize("what", HAVE)
def test_invalid_have_fails(arena, what):
    e, (lane,) = tree_sink(arena, flags=["CHECKSUM"])
    play(e, lane, [DIR])
    for record in HAVE[what]:
        if record == "answer":
            e.frames.expect("ANSWERS")
        else:
            play(e, lane, [said(record)])
    fails(e, 12)
    assert not (arena.target / "dir" / "f").exists()


QUESTIONS = {
    "twice": [ask(size=9), ask(size=9)],
    "twice-in-two-blocks": [ask(size=9), None, ask(size=9)],
    "and-pieces": [ask(size=1), data_record(b"x", id=2)],
    "and-an-extent": [ask(size=1), "extent"],
    "and-a-hole": [ask(size=1, flags=ASK | SPARSE), peer.hole_record(0, 1, id=2)],
    "in-no-directory": [ask(dir=9)],
    "of-a-directorys-id": [ask(id=1)],
    "while-it-is-sent": [file_record(id=2, dir=1, size=9), ask(size=9)],
    "same-without-a-question": [wire.record("SAME", id=2)],
    "same-of-a-directory": [wire.record("SAME", id=1)],
    "same-of-what-is-sent": [file_record(id=2, dir=1, size=9), wire.record("SAME", id=2)],
    "same-after-send": [ask(size=8), None, wire.record("SAME", id=2)],
    "of-id-0": [ask(id=0)],
    "attributes-of-another": [ask(), xattr_record(id=3)],
}


@pytest.mark.parametrize("what", QUESTIONS)
def test_invalid_question_fails(arena, what):
    """None: in another block, after all earlier blocks are stored."""
    with_old(arena, b"123456789")
    e, (lane,) = tree_sink(arena, flags=["CHECKSUM", "XATTRS"])
    block = DIR
    for record in QUESTIONS[what] + [None]:
        if record is None:
            lane.records(block)
            block = b""
            try:
                all_credited(lane)
            except (EOFError, OSError):
                pass
        elif record == "extent":
            lane.records(block)
            block = b""
            lane.extent(b"x", id=2)
        else:
            block += record
    fails(e, 12)
    assert (arena.target / "dir" / "f").read_bytes() == b"123456789"


def test_reused_ids_harm_their_own_files_only(arena):
    """A sink forgets finished ids; a source that reuses one only harms itself."""
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, small_records(b"x", id=2, dir=1), dir_record(id=2, parent=1)])
    results_of(e, 2)
    all_credited(lane)
    end(e, b"x", others=2)
    ends(e, 0, 12)
    assert (arena.target / "dir" / "f").read_bytes() == b"x"


@pytest.mark.parametrize("lie", ["other-size", "sent-anyway", "wrong-bytes", "same-twice",
                                 "attributes", "never"])
def test_false_data_after_compare_leaves_the_old_file_or_the_sent_one(arena, lie):
    """Responses to an honest answer: the target is the old file, or the complete sent one."""
    old = pattern(2 * CELL + 9)
    with_old(arena, old)
    arena.memory_max += 16 << 20
    e, (lane,) = tree_sink(arena, flags=["CHECKSUM"])
    play(e, lane, [DIR, ask(size=len(old))])
    cells = e.frames.expect("CELLS")
    assert cells["file"] == 2 and cells["pos"] == 0 and len(cells["digests"]) == 3
    total = sum(d["low"] + (d["high"] << 64) for d in cells["digests"]) % (1 << 128)
    assert (total & U64, total >> 64) == digest_of(old)
    assert e.frames.expect("ANSWERS")["answers"] == [dict(file=2, answer=peer.COMPARE)]
    if lie == "other-size":
        play(e, lane, [small_records(b"new", id=2, dir=1)])
        assert results_of(e, 2) == {2: 0}
        all_credited(lane)
        end(e, b"new", others=1)
        ends(e, 0)
        assert (arena.target / "dir" / "f").read_bytes() == b"new"
        return
    if lie == "same-twice":
        play(e, lane, [wire.record("SAME", id=2), wire.record("SAME", id=2)])
        fails(e, 12)
    elif lie == "attributes":
        play(e, lane, [xattr_record(id=2), wire.record("SAME", id=2)])
        fails(e, 12)
    elif lie == "sent-anyway":
        play(e, lane, [wire.record("SAME", id=2), small_records(b"new", id=2, dir=1)])
        assert results_of(e, 2) == {2: 0}
        all_credited(lane)
        end(e, b"new", others=1)
        fails(e, 12)
    elif lie == "wrong-bytes":
        play(e, lane, [file_record(id=2, dir=1, size=3), data_record(b"bad", id=2),
                       end_record(b"new", id=2)])
        assert results_of(e, 2) == {2: 41}
        all_credited(lane)
        end(e, b"new", others=1)
        ends(e, 23)
    else:
        # The source sends nothing more of it: the file failed there.
        all_credited(lane)
        end(e, others=1, failed=1)
        ends(e, 23)
    assert (arena.target / "dir" / "f").read_bytes() == old or lie == "sent-anyway"


def interrupted(arena, data):
    """The leftovers of a run that was interrupted before the last byte."""
    e, (lane,) = tree_sink(arena)
    # Sparse: no space is reserved, so that the last cell is missing.
    play(e, lane, [DIR, file_record(id=2, dir=1, size=len(data), flags=SPARSE)])
    for pos in range(0, len(data) - CELL, e.block_size):
        while lane.number - lane.stored >= e.depth:
            lane.credit()
        lane.extent(data[pos:pos + e.block_size], pos=pos, id=2)
    all_credited(lane)
    e.hang_up()
    ends(e, 44, verdict=False)
    (name,) = leftovers(arena.target / "dir")
    return (arena.target / "dir" / name).read_bytes()


@pytest.mark.parametrize("lie", ["honest", "honest-bounded", "never-told", "twice", "also-sent", "another-file",
                                 "half-a-cell", "wrong-digest", "one-more"])
def test_false_have_after_resume_is_refused(arena, lie):
    """HAVE is accepted for announced cells of the file in question, once each."""
    # Room for 16 cells.
    env = {"SLUICE_FAULT": "bound:by=%d" % ((256 << 20) // 400)} if lie == "honest-bounded" else {}
    data = pattern(20 * CELL)
    arena.memory_max += 32 << 20
    stored = interrupted(arena, data)
    e, (lane,) = tree_sink(arena, env=env)
    play(e, lane, [DIR, ask(size=len(data))])
    told = {}
    while True:
        name, values = e.frames.next("CELLS", "ANSWERS")
        if name == "ANSWERS":
            break
        for i, cell in enumerate(values["digests"]):
            told[values["pos"] + i * CELL] = cell
    assert values["answers"] == [dict(file=2, answer=peer.RESUME)]
    assert told and all(wire.hash128(stored[pos:pos + CELL], pos) == (cell["low"], cell["high"])
                        for pos, cell in told.items())
    size = len(data) + (lie == "another-file")
    play(e, lane, [file_record(id=2, dir=1, size=size)])
    have = [pos for pos in range(0, len(data), CELL) if pos in told]
    sent = [pos for pos in range(0, len(data), CELL) if pos not in told]
    if lie == "never-told":
        have.append(sent.pop())
    elif lie == "twice":
        have.append(have[0])
    elif lie == "also-sent":
        sent.append(have[0])
    play(e, lane, [wire.record("HAVE", id=2, pos=pos, len=CELL if lie != "half-a-cell" else CELL // 2)
                   for pos in have])
    if lie == "one-more":
        play(e, lane, [wire.record("HAVE", id=2, pos=len(data), len=CELL)])
    for pos in itertools.chain.from_iterable(range(p, p + CELL, e.block_size) for p in sent):
        try:
            while lane.number - lane.stored >= e.depth:
                lane.credit()
        except (EOFError, OSError):
            break
        lane.extent(data[pos:pos + e.block_size], pos=pos, id=2)
    holes = len(have) * CELL
    low, high = digest_of(data)
    play(e, lane, [end_record(data, id=2, size=len(data), holes=holes, data=len(data) - holes,
                              digest_low=low ^ (lie == "wrong-digest"), digest_high=high)])
    assert len(told) == (16 if lie == "honest-bounded" else 19)
    if lie in ("honest", "honest-bounded", "wrong-digest"):
        code = results_of(e, 2)[2]
        assert code == (41 if lie == "wrong-digest" else 0)
        all_credited(lane)
        end(e, data, others=1, digest_low=low ^ (lie == "wrong-digest"))
        ends(e, 23 if code else 0)
    else:
        fails(e, 12)
    path = arena.target / "dir" / "f"
    assert path.read_bytes() == data if lie.startswith("honest") else not path.exists()


def test_endless_questions_use_bounded_memory(arena):
    """A sink answers each; the number of remembered questions and of open files is bounded."""
    count = 5000 * COUNT
    arena.memory_max += 20 << 20
    e, (lane,) = tree_sink(arena, flags=["QUICK"])
    play(e, lane, [DIR] + [ask(id=i + 2, name="n%d" % i, size=1) for i in range(count)])
    answers = []
    while len(answers) < count:
        answers += (a for a in e.frames.expect("ANSWERS")["answers"] if a["file"] > 1)
    assert {a["answer"] for a in answers} == {peer.SEND}
    assert sorted(a["file"] for a in answers) == list(range(2, count + 2))
    e.hang_up()
    ends(e, 44, verdict=False)


@pytest.mark.parametrize("flags", [["CHECKSUM"], []], ids=["compare", "resume"])
def test_many_questions_with_cells_are_bounded(arena, flags):
    """More than it can hold: it refuses, waits or answers SEND, and opens a bounded number of files."""
    count = 300
    arena.memory_max += 64 << 20
    top = arena.target / "dir"
    top.mkdir()
    for i in range(count):
        (top / ("n%d" % i)).write_bytes(b"x")
        os.truncate(top / ("n%d" % i), 5 << 20)
    e, (lane,) = tree_sink(arena, flags=flags)
    play(e, lane, [DIR] + [ask(id=i + 2, name="n%d" % i, size=5 << 20) for i in range(count)])
    time.sleep(1)
    e.hang_up()
    ends(e, 44, 12, verdict=False)


# ---- END ------------------------------------------------------------------------------------------------

ENDS = {
    "fewer-others": dict(others=1), "more-others": dict(others=3), "no-others": dict(others=0),
    "others-2^64-1": dict(others=U64), "same": dict(same=1), "same-2^64-1": dict(same=U64),
    "another-file": dict(files=2), "files-as-others": dict(files=0, bytes=0, digest_low=0,
                                                         digest_high=0, others=3),
    "incomplete-2": dict(incomplete=2),
}


@pytest.mark.parametrize("what", ENDS)
def test_wrong_end_totals_of_a_tree_fail(arena, what):
    e, (lane,) = tree_sink(arena)
    play(e, lane, [DIR, SUB, small_records(b"x", id=3, dir=2)])
    results_of(e, 3)
    all_credited(lane)
    end(e, b"x", **{"others": 2, **ENDS[what]})
    fails(e, 12)


@pytest.mark.parametrize("late", [[dir_record(id=9, parent=1, name="late")],
                                  [small_records(b"late", id=9, dir=1, name="late")],
                                  [keep_record(1)], [xattr_record(id=1)],
                                  [ask(id=9, name="late")]],
                         ids=["directory", "file", "keep", "attribute", "question"])
def test_messages_after_the_end_of_a_tree_fail(arena, late):
    for i in range(4 * COUNT):
        e, (lane,) = tree_sink(arena, flags=["DELETE", "XATTRS", "QUICK"])
        play(e, lane, [DIR, small_records(b"x", id=2, dir=1)])
        results_of(e, 2)
        all_credited(lane)
        message = wire.message("END", **total_of(b"x", others=1))
        if i % 2:
            e.frames.raw(message)
            play(e, lane, late)
        else:
            play(e, lane, late)
            e.frames.raw(message)
        # Records before END are refused because of END.
        if ends(e, 0, 12)["code"] == 0:
            assert not (arena.target / "dir" / "late").exists()
        shutil.rmtree(arena.target / "dir")


def test_dry_run_changes_nothing(arena):
    """Whatever is sent; content without a question is discarded or refused."""
    top = arena.target / "dir"
    top.mkdir()
    (top / "f").write_bytes(b"old")
    before = manifest(arena.target, None)
    e, (lane,) = tree_sink(arena, flags=PRESERVE + ["DRY_RUN", "DELETE"])
    play(e, lane, [dir_record(name="dir", mode=0o700, mtime_s=5), ask(size=3),
                   dir_record(id=3, parent=1, name="new"), keep_record(1),
                   small_records(b"evil", id=4, dir=1, name="unasked"),
                   link_records("x", id=5, dir=1, name="link")])
    time.sleep(0.5 * SLOW)
    e.hang_up()
    ends(e, 12, 44, verdict=False)
    assert manifest(arena.target, None) == before


# ---- requests of a conductor for trees --------------------------------------------------------------------

# A GiB of listed names takes a while.
ORDERS = [("RULE", dict(include=0, pattern="p" * 4000), 160)] + \
    [("LISTED", dict(name="d/" * 2000), 1400)] * (COUNT > 1)


@pytest.mark.parametrize("name, values, memory", ORDERS, ids=["rules", "paths"][:len(ORDERS)])
def test_endless_requests_use_bounded_memory(arena, name, values, memory):
    """So many, or so long, that they are not kept."""
    arena.memory_max += memory << 20
    e = arena.sink(flags=["FILES_FROM"])
    e.greeting()
    e.frames.send("START", **e.start_values)
    e.frames.send("WANT", name="dir")
    field = "pattern" if name == "RULE" else "name"
    for i in range(1000):
        frame = b"".join(wire.message(name, **{**values, field: "%d%s" % (
            100 * i + k, values[field][8:])}) for k in range(100))
        if not e.frames.raw(frame):
            break
    else:
        raise AssertionError("it takes everything")
    fails(e, 12, 22)


@pytest.mark.parametrize("pattern", ["*" * 4000, "**/" * 1300, "[" * 4000, "[a-" + "z" * 3000,
                                     "?*" * 2000, "\\" * 4001, "a" + "*a" * 1900 + "b", "/", "", "***/"],
                         ids=["stars", "doubles", "brackets", "open", "pairs", "backslashes", "steps",
                              "slash", "empty", "three"])
def test_any_pattern_is_matched_at_once(arena, pattern):
    """They match or not, in bounded time."""
    e, (lane,) = tree_sink(arena, rules=["-" + pattern], flags=["DELETE"])
    (arena.target / "dir").mkdir(exist_ok=True)
    (arena.target / "dir" / ("a" * 250)).write_bytes(b"mine")
    try:
        play(e, lane, [DIR, small_records(b"x", id=2, dir=1, name="a" * 255), keep_record(1)])
        results_of(e, 2)
        all_credited(lane)
        end(e, b"x", others=1)
    except (peer.Silence, EOFError, OSError):
        pass
    ends(e, 0, 1, 12)


@pytest.mark.parametrize("name", ["..", "../f", "/etc/passwd", "a/../../f", "", ".", "a//b", "a/",
                                  b"\x1b[31m", "n" * 300])
def test_listed_names_stay_below_the_source(arena, name):
    """A listed name is a path below SRC, or an error; nothing outside is read or written."""
    e = arena.source(wants=["target"], flags=["FILES_FROM", "RECURSIVE"], listed=[name]).orders()
    try:
        (lane,) = e.open()
        store = Store(e, lane)
        e.frames.expect("END", timeout=SOON)
        assert not [1 for n, v in store.records if n == "DATA" and
                    v["bytes"] not in (b"old",)]
    except (peer.Silence, EOFError, OSError):
        pass
    e.hang_up()
    ends(e, 1, 3, 11, 12, 23, 44, verdict=False)


# ---- rdcp -------------------------------------------------------------------------------------

@pytest.mark.parametrize("what", far_end.TREES)
def test_tree_of_a_far_host_is_checked(arena, what):
    """Entries of the requested directory, and others that were not requested."""
    (arena.target / "dir").mkdir()
    (arena.target / "dir" / "mine").write_bytes(b"mine")
    run = rdcp(arena, "tree:" + what, "-r", sources=["far:dir"], target=arena.target)
    # Attributes of directories are checked at the end, which never comes.
    assert run.code == (44 if what == "attribute" else 12), (run.code, run.errors())
    assert in_the_target(arena) == ["dir", "dir/mine", "f"]


@pytest.mark.parametrize("options", [["--itemize-changes"], ["--json"], ["-v", "--log-file=log"],
                                     ["--failed=list"], ["--stats", "-vvv"]],
                         ids=["itemized", "json", "logged", "failed", "stats"])
def test_events_are_shown_escaped(arena, options):
    options = [o.replace("=", "=%s/" % arena.target) for o in options]
    run = rdcp(arena, "events_of_escapes", "-a", *options, sources=["far:dir"], target=arena.target)
    assert run.code == 11, run.errors()
    shown = bytes(run.out) + bytes(run.err)
    if (arena.target / "log").exists():
        shown += (arena.target / "log").read_bytes()
    assert not set(shown) & set(b"\x1b\x9b\r\x07\x08"), shown
    shown.decode()


def test_endless_events_are_printed(arena):
    """They are printed as they arrive."""
    with open(os.devnull, "wb") as out:
        run = rdcp(arena, "events_without_end", "-a", "--itemize-changes", "--connect-timeout=30",
                   "--timeout=30", timeout=40, sources=["far:dir"],
                   target=arena.target, stdout=out)
    assert run.code == 11, run.errors()


# ---- random damage -----------------------------------------------------------------------------------------

def honest_blocks(content):
    """A tree in four blocks, with every kind of entry."""
    acl = entries((1, 6, U32), (2, 6, 7), (4, 4, U32), (16, 6, U32), (32, 4, U32))
    return [
        DIR + wire.record("OWNER", group=0, id=7, name="root") +
        small_records(content[:100], id=2, dir=1, name="a", flags=LINKED, uid=7) +
        dir_record(id=3, parent=1, name="sub") + xattr_record(id=3) +
        file_record(id=4, dir=3, size=9, flags=SPARSE) + xattr_record(id=4) +
        xattr_record(acl, id=4, name="system.posix_acl_access") +
        peer.hole_record(0, 9, id=4) + end_record(id=4, size=9, data=0, holes=9),
        ask(id=5, name="asked", size=3) + xattr_record(id=5),
        keep_record(1, 0, ["a", "sub"]) + keep_record(1) + keep_record(3) +
        file_record(id=5, dir=1, name="asked", size=3) + data_record(b"new", id=5) +
        end_record(b"new", id=5),
        link_records("../../outside", id=6, dir=3, name="way") +
        small_records(id=7, dir=3, type=FIFO, name="pipe") +
        small_records(id=8, dir=1, type=HARD_LINK, link_to=2, name="b"),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_randomly_damaged_trees_stay_below_the_target(arena, seed):
    """Some bytes are changed; everything written stays below the target, and the session ends."""
    chance = random.Random("trees %d" % seed)
    arena.memory_max += 16 << 20
    content = chance.randbytes(5000)
    flags = PRESERVE + ["DELETE", "HARD_LINKS", "XATTRS", "ACLS", "CHECKSUM", "DEVICES"]
    for _ in range(8 * COUNT):
        e = arena.sink(wants=["dir"], flags=["RECURSIVE"] + flags, timeout_ms=1500,
                       connect_timeout_ms=1500)
        try:
            e.orders()
            (lane,) = e.open()
            for records in honest_blocks(content):
                records = bytearray(records)
                for _ in range(chance.randint(0, 2)):
                    records[chance.randrange(len(records))] = chance.choice(
                        [0, 1, 2, 3, 5, 0x2e, 0x2f, 0x7f, 0x80, 0xff])
                lane.records(bytes(records))
                time.sleep(chance.random() * 0.01)
            end(e, content[:100], b"", b"new", others=5)
            e.frames.expect("DONE", "ERROR", "VERDICT", timeout=1)
        except (OSError, EOFError, peer.Silence):
            pass
        e.hang_up()
        assert e.proc.wait(SOON) >= 0, e.proc.errors()
        os.system("rm -rf '%s'/* '%s'/.sluice*" % (arena.target, arena.target))
        (arena.target / "f").write_bytes(b"old")
