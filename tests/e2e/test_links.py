# SPDX-License-Identifier: Apache-2.0
"""--hard-links: each name of a file is judged separately, whichever the directory lists first."""

import itertools
import os

import pytest

from faulty import slow
from hosts import pattern, wait_until
from trees import dated, make, read, rsync

NOW = 1_600_000_000


# ---- existing targets ----------------------------------------------------------------------

NEW, OLD = b"new", b"old"
STATES = ("absent", "same", "older", "newer", "different", "directory", "linked")
OPTIONS = ((), ("-u",), ("--ignore-existing",), ("--checksum",), ("--delete",), ("--backup",), ("-u", "--delete"),
           ("--existing",), ("--existing", "-u"), ("--existing", "--delete"))


def put(path, state, linked):
    if state == "directory":
        make(path, {"in": b"the way"})
    elif state != "absent":
        # Linked names share the content of the first of them.
        first = path.parent / linked if linked else None
        if state == "linked" and first and first.exists():
            os.link(first, path)
            return
        path.write_bytes(NEW if state == "same" else OLD if state != "different" else b"odd")
        dated(path, NOW + {"older": -9, "linked": -9, "newer": 9}.get(state, 0))


def lay_out(top, groups):
    """A directory for each combination: hard links to one file at the source, in the order that the file system
    returns, and at the target the given states."""
    for which, states in enumerate(groups):
        name = "%03d" % which
        here, there = top / "from" / name, top / "to" / name
        here.mkdir(parents=True)
        there.mkdir(parents=True)
        if not states:
            continue
        names = "abc"[:len(states)]
        made = names if which % 2 else names[::-1]
        (here / made[0]).write_bytes(NEW)
        dated(here / made[0], NOW)
        for other in made[1:]:
            os.link(here / made[0], here / other)
        linked = next((n for n, s in zip(names, states) if s == "linked"), None)
        for n, state in zip(names, states):
            put(there / n, state, linked if n != linked else None)


def stays(options, state):
    if state == "absent":
        return "--existing" in options
    return "--ignore-existing" in options or state == "newer" and "-u" in options


def is_blocked(options, state):
    return state == "directory" and not stays(options, state) and "--delete" not in options


def check(options, states, there):
    """Each name that may be replaced has the source's content and is linked with the others; no other name is
    changed."""
    names = "abc"[:len(states)]
    wanted = {NEW}
    if "--checksum" not in options and "different" in states:
        # With the time and size of the source: the quick check takes it for the same, if it is examined.
        wanted.add(b"odd")
    taken = [n for n, s in zip(names, states) if not stays(options, s) and not is_blocked(options, s)]
    for n, state in zip(names, states):
        path = there / n
        if n in taken:
            assert path.read_bytes() in wanted and path.samefile(there / taken[0]), n
        elif state == "absent":
            assert not path.exists(), n
        elif state == "directory":
            assert read(path) == {"in": b"the way"}, n
        else:
            assert path.read_bytes() == {"same": NEW, "different": b"odd"}.get(state, OLD), n
    if "--backup" in options:
        for n, state in zip(names, states):
            if n in taken and state in ("older", "newer"):
                assert (there / (n + "~")).read_bytes() == OLD, n


def is_declared(options, states):
    """Differences from rsync, with the reasons."""
    # rsync replaces a newer name by a link if another name of the file is sent or is the same.
    if "-u" in options and "newer" in states:
        return True
    # If another name is missing, rsync deletes a directory in the way and puts nothing there.
    if "--existing" in options and {"absent", "directory"} <= set(states):
        return True
    # With a directory in the way of a name, rsync 3.5.0 hangs or exits with 13.
    if any(is_blocked(options, s) for s in states) or "--backup" in options:
        return True
    # A file that only seems to be the same counts as the same; rsync chooses another name to lead.
    return "different" in states and "--checksum" not in options


@pytest.mark.parametrize("count", (2, 3))
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(o) or "-H")
def test_each_hard_link_is_judged_separately(bench, tmp_path, options, count):
    groups = list(itertools.product(STATES, repeat=count))
    lay_out(tmp_path / "ours", groups)
    lay_out(tmp_path / "theirs", [() if is_declared(options, states) else states for states in groups])
    r = bench.copy("-aH", *options, str(tmp_path / "ours" / "from") + "/", "far:%s" % (tmp_path / "ours" / "to"))
    blocked = any(is_blocked(options, s) for states in groups for s in states)
    assert r.code == (23 if blocked else 0), (r.code, r.errors()[-2000:])
    rsync("-aH", *options, "from/", "to/", cwd=tmp_path / "theirs")
    wrong = []
    for which, states in enumerate(groups):
        ours, theirs = (tmp_path / side / "to" / ("%03d" % which) for side in ("ours", "theirs"))
        try:
            check(options, states, ours)
        except (AssertionError, OSError) as e:
            wrong.append("%s: %s, %s" % (states, read(ours), e))
        if not is_declared(options, states) and read(ours) != read(theirs):
            wrong.append("%s: %s, but rsync's %s" % (states, read(ours), read(theirs)))
    if wrong:
        pytest.fail("%d: %s" % (len(wrong), "\n".join(wrong[:20])), pytrace=False)


# ---- backups -------------------------------------------------------------------------------


def copy_linked_with_backups(bench, top, *options, **contents):
    """Copies two names of one file onto two files with equal times and these contents, which have older backups."""
    here, there = top / "from", top / "to"
    make(here, {"a": NEW})
    os.link(here / "a", here / "b")
    make(there, {"a~": b"before", "b~": b"before", **contents})
    for path in (here / "a", there / "a", there / "b"):
        dated(path, NOW)
    r = bench.copy("-aH", "--backup", *options, "%s/" % here, "far:%s" % there)
    assert r.code == 0, r.errors()
    assert (there / "a").samefile(there / "b")
    return read(there)


def test_linking_equal_files_keeps_their_older_backups(bench, tmp_path):
    """A rerun finds complete files that an interrupted run had not linked yet. A backup of them would replace the
    backup of the earlier content."""
    found = copy_linked_with_backups(bench, tmp_path, a=NEW, b=NEW)
    assert found == {"a": NEW, "b": NEW, "a~": b"before", "b~": b"before"}


@pytest.mark.parametrize("options", ((), ("--checksum",)), ids=("quick check", "--checksum"))
def test_linking_files_that_only_seem_equal_backs_one_up(bench, tmp_path, options):
    found = copy_linked_with_backups(bench, tmp_path, *options, a=NEW, b=b"odd")
    assert sorted(found.values()) in ([b"before", NEW, NEW, b"odd"], [b"before", NEW, b"odd", b"odd"])


# ---- names that the user wrote -------------------------------------------------------------


def linked(top, *paths):
    for path in paths:
        path = top / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path == top / paths[0]:
            path.write_bytes(NEW)
        else:
            os.link(top / paths[0], path)


@pytest.mark.parametrize("how", ("named", "glob", "named and in a directory"))
def test_hard_links_among_named_sources_are_kept(bench, tmp_path, way, how):
    linked(tmp_path / "from", "a", "b", "d/c", "d/e/f")
    (tmp_path / "from" / "x").write_bytes(b"other")
    (tmp_path / "to").mkdir()
    names = {"named": ["a", "x", "b"], "glob": ["?"], "named and in a directory": ["a", "d", "b"]}[how]
    if how == "glob" and not way[0]:
        names = ["a", "b", "d", "x"]
    words = [way[0] + str(tmp_path / "from" / n) for n in names]
    r = bench.copy("-aH", *words, way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    found = {n: tmp_path / "to" / n for n in ("a", "b", "d/c", "d/e/f") if (tmp_path / "to" / n).exists()}
    assert len(found) == {"named": 2}.get(how, 4)
    for path in found.values():
        assert path.read_bytes() == NEW and path.samefile(tmp_path / "to" / "a")
        assert path.stat().st_nlink == len(found)
    if "x" in names:
        assert (tmp_path / "to" / "x").read_bytes() == b"other"


def test_hard_linked_named_sources_are_removed(bench, tmp_path, way):
    linked(tmp_path / "from", "a", "b", "d/c")
    (tmp_path / "to").mkdir()
    r = bench.copy("-aH", "--remove-source-files", *(way[0] + str(tmp_path / "from" / n) for n in "abd"),
                   way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "from") == {"d": {}}
    assert read(tmp_path / "to") == {"a": NEW, "b": NEW, "d": {"c": NEW}}


@pytest.mark.parametrize("nth", range(20))
def test_link_to_a_source_that_is_removed_is_copied(bench, tmp_path, nth):
    """It is read by its own name, which leads nowhere once the other source is removed."""
    make(tmp_path / "from", {"a": b"content", "d": b"other"})
    make(tmp_path / "to", {"d": b"other", "link": b"content"})
    os.link(tmp_path / "from" / "a", tmp_path / "from" / "b")
    os.symlink("a", tmp_path / "from" / "link")
    r = bench.copy("-rH", "--remove-source-files", *("from/" + n for n in ("a", "b", "d", "link")), "to", cwd=tmp_path)
    assert r.code == 23 and "symbolic link to the copied file" in r.errors(), r.errors()
    assert os.listdir(tmp_path / "from") == ["link"]
    assert len({os.stat(tmp_path / "to" / name).st_ino for name in ("a", "b", "link")}) == 1


# ---- names that change during the run --------------------------------------------------------


@pytest.mark.parametrize("options", ((), ("-u",)), ids=str)
def test_file_that_replaced_a_hard_link_is_copied(bench, tmp_path, options):
    """It is not linked to the earlier name, and an unread file is not removed."""
    names = ["n%02d" % i for i in range(20)]
    linked(tmp_path / "from", *names)
    (tmp_path / "from" / "big").write_bytes(pattern(40 << 18))
    (tmp_path / "new").write_bytes(b"precious")
    run = bench.copy("-aH", "--remove-source-files", *options, str(tmp_path / "from") + "/",
                     "far:%s" % (tmp_path / "to"), wait=False, env={"SLUICE_FAULT": slow()})
    wait_until(lambda: (tmp_path / "to").exists() and os.listdir(tmp_path / "to"))
    last = [n for n in os.listdir(tmp_path / "from") if n != "big"][-1]
    os.rename(tmp_path / "new", tmp_path / "from" / last)
    code = run.wait()
    here = read(tmp_path / "from") if (tmp_path / "from").exists() else {}
    there = read(tmp_path / "to")
    assert b"precious" in (here.get(last), there.get(last)), (code, run.errors())
    assert code == 23 or there[last] == b"precious", (code, run.errors())
    assert all(there[n] == NEW for n in names if n != last)
    assert not [n for n, data in here.items() if data != b"precious" and code == 0], (code, run.errors())
