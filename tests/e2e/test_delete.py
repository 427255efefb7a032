# SPDX-License-Identifier: Apache-2.0
"""--delete after failures: files that could not be copied, examined or deleted."""

import errno
import os
import shutil
import subprocess
import time

import pytest

from faulty import failing
from file_systems import mounted
from hosts import SLOW, as_nobody, leftovers, open_up, pattern, wait_until
from marks import two_users
from trees import make, read, rsync, ways

BLOCK = 256 << 10

way = ways("push", "pull", "local")


def delete(bench, tmp_path, way, *options, **how):
    return bench.copy("-r", "--delete", *options, way[0] + str(tmp_path / "tree") + "/",
                      way[1] + str(tmp_path / "to"), **how)


def test_hash_collision_does_not_keep_a_name(bench, tmp_path, way):
    """The sink keeps hashes of the source's names. These two names have the same XXH3-64 without a seed."""
    flip, flop, other = 0x6782737bea4239b9, 0xaf56bc3b0996523a, 0x0101010101010101
    ours, old = [os.fsdecode(a.to_bytes(8, "little") + b.to_bytes(8, "little"))
                 for a, b in ((flip ^ other, flop), (flip, flop ^ other))]
    make(tmp_path, {"tree": {ours: b"new"}, "to": {old: b"old"}})
    r = delete(bench, tmp_path, way)
    assert r.code == 0 and read(tmp_path / "to") == {ours: b"new"}, (r.code, r.errors())


def test_directory_named_like_a_temporary_is_spared(bench, tmp_path, way):
    """The source skips its own directory of such a name, so the target keeps one; a temporary is still deleted."""
    own, kept, gone = ".sluice.0123456789abcdef", ".sluice.fedcba9876543210", ".sluice.aaaaaaaaaaaaaaaa"
    make(tmp_path, {"tree": {own: {"f": b"1"}, kept: "link", "f": b"f"},
                    "to": {own: {"g": b"2"}, kept: {"h": b"3"}, gone: {"i": b"4"}, "old": b""}})
    r = delete(bench, tmp_path, way)
    assert r.code == 0 and r.errors().count("its name is that of an unfinished copy") == 2, (r.code, r.errors())
    assert read(tmp_path / "to") == {own: {"g": b"2"}, kept: {"h": b"3"}, "f": b"f"}
    r = delete(bench, tmp_path, way, "--exclude=.sluice.*", "--delete-excluded")
    assert r.code == 0 and read(tmp_path / "to") == {"f": b"f"}, (r.code, r.errors())


# ---- nothing is deleted after a failure -------------------------------------------------


@two_users
def test_unreadable_file_prevents_deletions(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"f", "closed": b"c"}, "to": {"old": b"", "d": {"old": b""}}})
    (tmp_path / "tree" / "closed").chmod(0)
    open_up(tmp_path)
    subprocess.run(["chown", "-R", "65534:65534", tmp_path / "to"], check=True)
    r = delete(bench, tmp_path, way, become=as_nobody())
    assert r.code == 23, (r.code, r.errors())
    assert "nothing is deleted" in r.errors() and "1 file failed" in r.errors(), r.errors()
    assert read(tmp_path / "to") == {"f": b"f", "old": b"", "d": {"old": b""}}


def test_dangling_followed_link_prevents_deletions(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"f", "l": "nowhere"}, "to": {"old": b""}})
    r = delete(bench, tmp_path, way, "--copy-links")
    assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"f", "old": b""}


def test_directory_in_the_way_prevents_deletions(bench, tmp_path, way):
    """--max-delete keeps a directory that a file should replace."""
    make(tmp_path, {"tree": {"f": b"f", "g": b"g"}, "to": {"f": {"1": b"", "2": b""}, "old": b""}})
    r = delete(bench, tmp_path, way, "--max-delete=1")
    assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": {"1": b"", "2": b""}, "g": b"g", "old": b""}


@pytest.mark.parametrize("most, code", [(0, 25), (1, 0), (2, 0)])
def test_protected_directory_does_not_exceed_max_delete(bench, tmp_path, way, most, code):
    """It would not be deleted without the limit either."""
    make(tmp_path, {"s": {}, "t": {"a": b"old", "d": {"kept.o": b"o", "e": {"kept.o": b"o"}}}})
    r = bench.copy("-r", "--delete", "--exclude=*.o", "--max-delete=%d" % most, way[0] + "%s/s/" % tmp_path, way[1] + str(tmp_path / "t"))
    assert r.code == code, r.errors()
    assert (tmp_path / "t" / "a").exists() == (most == 0)
    assert (tmp_path / "t" / "d" / "e" / "kept.o").exists()
    assert "cannot delete directory d: something in it is protected" in r.errors()


def test_changing_file_prevents_deletions(bench, tmp_path, way):
    make(tmp_path, {"tree": {"in": pattern(40 * BLOCK)}, "to": {"old": b""}})
    stall = ";".join("stall:lane=%d,block=%d,ms=%d" % (lane, b, 600 * SLOW) for lane in (0, 1) for b in (1, 2, 3))
    run = bench.copy("-r", "--delete", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"),
                     wait=False, env={"SLUICE_FAULT": stall})
    wait_until(lambda: leftovers(tmp_path / "to"))
    os.truncate(tmp_path / "tree" / "in", 5 * BLOCK)
    assert run.wait() in (23, 42), run.errors()
    assert "nothing is deleted" in run.errors(), run.errors()
    assert read(tmp_path / "to") == {"old": b""}


def test_unremovable_source_does_not_prevent_deletions(bench, tmp_path, way):
    """Everything is stored, even if the failure is known before the end of the copy."""
    make(tmp_path, {"tree": {"l": "../out", "large": pattern(40 * BLOCK)}, "out": b"out", "to": {"old": b""}})
    r = delete(bench, tmp_path, way, "--copy-links", "--remove-source-files", "--lanes=1",
               env={"SLUICE_FAULT": "stall:lane=0,block=20,ms=%d" % (300 * SLOW)})
    assert r.code == 23 and "1 of 3 sources could not be removed" in r.errors(), (r.code, r.errors())
    assert "nothing is deleted" not in r.errors(), r.errors()
    assert read(tmp_path / "to") == {"l": b"out", "large": pattern(40 * BLOCK)}
    assert without_markers(tmp_path / "tree") == {"l": "../out"} and (tmp_path / "out").read_bytes() == b"out"


def test_unremovable_source_and_max_delete_exit_23(bench, tmp_path, way):
    """23, whichever end reports first; sources that exist at the target are removed after it is complete."""
    links = ["l%d" % i for i in range(500)]
    make(tmp_path, {"tree": {n: "../out" for n in links}, "out": b"out", "to": {"old": b"", "older": b""}})
    for name in links:
        shutil.copy2(tmp_path / "out", tmp_path / "to" / name)
    r = delete(bench, tmp_path, way, "--times", "--copy-links", "--remove-source-files", "--max-delete=1")
    assert r.code == 23 and "500 of 501 sources could not be removed" in r.errors(), (r.code, r.errors())
    assert len(read(tmp_path / "to")) == 501


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_full_target_prevents_deletions(bench, tmp_path, way):
    with mounted(tmp_path / "to", "-t", "tmpfs", "-o", "size=2m", "tmpfs") as at:
        make(tmp_path, {"tree": {"f": b"f", "big": pattern(4 << 20)}, "to": {"old": b""}})
        r = delete(bench, tmp_path, way)
        assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
        assert read(at) == {"f": b"f", "old": b""}


# ---- a move that is not completed -------------------------------------------------------


MOVED = {"f%d" % i: b"content %d" % i for i in range(8)}


def move(bench, tmp_path, way, *options, **how):
    return delete(bench, tmp_path, way, "-a", "--remove-source-files", *options, **how)


def marker_in(top):
    return [n for n in os.listdir(top) if n.startswith(".sluice.marker.")]


def without_markers(top):
    return {n: c for n, c in read(top).items() if not n.startswith(".sluice.marker.")}


def is_kept(tmp_path):
    there = {**without_markers(tmp_path / "tree"), **without_markers(tmp_path / "to")}
    assert {n: there.get(n) for n in MOVED} == MOVED


def test_rerun_of_a_killed_move_loses_nothing(bench, tmp_path, way):
    """Killed when it removes sources: the rerun does not delete what the first run moved."""
    make(tmp_path, {"tree": MOVED, "to": {"old": b"old"}})
    env = failing(tmp_path, "unlinkat", name=os.listdir(tmp_path / "tree")[5], kill=1)
    r = move(bench, tmp_path, way, env=env)
    assert r.code != 0 and (tmp_path / "failed").exists(), (r.code, r.errors())
    is_kept(tmp_path)
    assert "old" not in read(tmp_path / "to") and marker_in(tmp_path / "tree")
    assert len(without_markers(tmp_path / "tree")) < 8
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "deletes nothing" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == MOVED and read(tmp_path / "tree") == {}
    # That move is completed: the source has nothing, and the next run mirrors that.
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "deletes nothing" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {} and read(tmp_path / "tree") == {}


@pytest.mark.parametrize("to", ["", "far:"])
def test_rerun_of_a_command_that_was_killed_loses_nothing(bench, tmp_path, to):
    """The source goes on without the command, and removes everything."""
    make(tmp_path, {"tree": MOVED, "to": {}})
    env = failing(tmp_path, "unlinkat", name="f3", kill="parent")
    r = move(bench, tmp_path, ("", to), env=env)
    assert r.code == -9, (r.code, r.errors())
    time.sleep(2 * SLOW)
    is_kept(tmp_path)
    r = move(bench, tmp_path, ("", to))
    assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "to") == MOVED and read(tmp_path / "tree") == {}


def test_no_source_is_removed_before_the_deletions(bench, tmp_path, way):
    make(tmp_path, {"tree": MOVED, "to": {"old": b"old"}})
    r = move(bench, tmp_path, way, env=failing(tmp_path, "unlinkat", name="old", kill=1))
    assert r.code != 0 and (tmp_path / "failed").exists(), (r.code, r.errors())
    assert read(tmp_path / "tree") == MOVED
    r = move(bench, tmp_path, way)
    assert r.code == 0 and "deletes nothing" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == MOVED and read(tmp_path / "tree") == {}


@pytest.mark.parametrize("options", [[], ["-H"], ["--relative"]], ids=str)
def test_rerun_after_a_failed_removal_loses_nothing(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {**MOVED, "d": {"e": b"e"}}, "to": {"old": b"old"}})
    os.link(tmp_path / "tree" / "f1", tmp_path / "tree" / "again")
    to = tmp_path / "to" if "--relative" not in options else tmp_path / "to" / str(tmp_path)[1:] / "tree"
    r = move(bench, tmp_path, way, *options, env=failing(tmp_path, "unlinkat", name="f3"))
    assert r.code == 23 and "1 of" in r.errors(), (r.code, r.errors())
    assert without_markers(tmp_path / "tree") == {"f3": MOVED["f3"], "d": {}} and marker_in(tmp_path / "tree")
    r = move(bench, tmp_path, way, *options)
    assert r.code == 0 and "deletes nothing" in r.errors(), (r.code, r.errors())
    assert read(to) == {**MOVED, "again": MOVED["f1"], "d": {"e": b"e"}}
    assert read(tmp_path / "tree") == {"d": {}}


def test_move_that_removed_nothing_leaves_no_marker(bench, tmp_path, way):
    make(tmp_path, {"tree": {"l": "../out"}, "out": b"out", "to": {"old": b"old"}})
    for _ in range(2):
        r = move(bench, tmp_path, way, "--copy-links")
        assert r.code == 23 and "1 of" in r.errors() and "deletes nothing" not in r.errors(), (r.code, r.errors())
        assert read(tmp_path / "tree") == {"l": "../out"} and read(tmp_path / "to") == {"l": b"out"}


def test_file_that_fails_does_not_cost_what_was_moved(bench, tmp_path, way):
    make(tmp_path, {"tree": {**MOVED, "l": "nowhere"}, "to": {"old": b"old"}})
    r = move(bench, tmp_path, way, "--copy-links")
    assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
    (tmp_path / "tree" / "l").unlink()
    r = move(bench, tmp_path, way, "--copy-links")
    assert r.code == 0 and "deletes nothing" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {**MOVED, "old": b"old"} and read(tmp_path / "tree") == {}


def test_nothing_is_removed_without_a_marker(bench, tmp_path, way):
    make(tmp_path, {"tree": MOVED, "to": {}})
    make(tmp_path, {"tree": {".sluice.marker.000000006d6f7665": "planted"}})
    r = move(bench, tmp_path, way)
    assert r.code == 23 and "8 of" in r.errors(), (r.code, r.errors())
    why = [line for line in r.errors().splitlines() if "create the marker" in line]
    assert all(": remove " in line for line in why) and len(set(why)) == len(why) > 1, why
    assert without_markers(tmp_path / "tree") == MOVED == read(tmp_path / "to")


def test_other_commands_ignore_the_marker(bench, tmp_path, way):
    make(tmp_path, {"tree": {**MOVED, ".sluice.marker.000000006d6f7665": b""}, "to": {"old": b"old"}})
    r = delete(bench, tmp_path, way)
    assert r.code == 0 and "deletes nothing" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == MOVED and marker_in(tmp_path / "tree")


# ---- sources on several hosts: each has a session of its own --------------------------------


@pytest.mark.parametrize("options", [["-r", "--delete"], ["-a", "--delete-excluded", "--exclude=x"],
                                     ["-a", "--remove-source-files"], ["-r", "--relative"], ["-r"]], ids=" ".join)
@pytest.mark.parametrize("hosts", [("", "far:"), ("far:", "near:"), ("one@far:", "two@far:")], ids="+".join)
def test_delete_and_similar_options_are_refused_with_several_hosts(bench, tmp_path, hosts, options):
    """The session of one host does not know what another session stored."""
    trees = {"a": {"f": b"a"}, "b": {"g": b"b"}, "to": {"old": b""}}
    make(tmp_path, trees)
    slash = "/" if options == ["-r"] else ""
    for to in (str(tmp_path / "to"), "far:%s" % (tmp_path / "to")):
        r = bench.copy(*options, *[h + str(tmp_path / n) + slash for h, n in zip(hosts, "ab")], to)
        assert r.code == 1 and "once for each host" in r.errors(), (r.code, r.errors())
        assert slash or options[1] in r.errors() or options[1].startswith("--delete"), r.errors()
        assert read(tmp_path) == trees


@pytest.mark.parametrize("target", ["", "far:"])
def test_host_does_not_overwrite_the_files_of_another(bench, tmp_path, target):
    """Only its own host can expand a pattern."""
    make(tmp_path, {"a": {"1.log": b"a1", "2.log": b"a2", "d.log": {"f": b"ad"}},
                    "b": {"2.log": b"b2", "3.log": b"b3", "d.log": {"f": b"bd", "g": b""}}, "to": {"2.log": b"old"}})
    for again in range(2):
        r = bench.copy("-a", "near:%s/*.log" % (tmp_path / "a"), "far:%s/*.log" % (tmp_path / "b"),
                       target + str(tmp_path / "to"))
        assert r.code == 23, (again, r.code, r.errors())
        for name in ("2.log", "d.log"):
            assert "%s: a source on another host" % name in r.errors(), r.errors()
        assert read(tmp_path / "to") == {"1.log": b"a1", "2.log": b"a2", "3.log": b"b3", "d.log": {"f": b"ad"}}


@pytest.mark.parametrize("names", [("x", "x~"), ("x~", "x")], ids="+".join)
def test_backup_does_not_replace_the_file_of_another_host(bench, tmp_path, names):
    make(tmp_path, {"a": {"x": b"ax", "x~": b"ax~"}, "to": {"x": b"old", "x~": b"older"}})
    r = bench.copy("--backup", "near:%s/a/%s" % (tmp_path, names[0]), "far:%s/a/%s" % (tmp_path, names[1]), "to")
    assert r.code == 23 and "a source on another host" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to")[names[0]] == read(tmp_path / "a")[names[0]]


def test_host_that_lacks_descriptors_leaves_the_others_alone(bench, tmp_path):
    make(tmp_path, {"a": b"a", "b": b"b", "to": {}})
    hosts = "near prlimit --nofile=8:8\nfar env"
    r = bench.copy("near:%s/a" % tmp_path, "far:%s/b" % tmp_path, str(tmp_path / "to"), env={"SLUICE_TEST_HOSTS": hosts})
    assert r.code == 23 and "near: " in r.errors() and "Too many open files" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"b": b"b"}


def test_other_options_work_with_several_hosts(bench, tmp_path):
    make(tmp_path, {"a": {"f": b"a"}, "b": {"f": b"b"}, "c": b"c", "to": {"old": b""}})
    r = bench.copy("-aHuv", "--ignore-existing", "--backup", "near:%s/a" % tmp_path, "far:%s/b" % tmp_path, "c", "to")
    assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "to") == {"a": {"f": b"a"}, "b": {"f": b"b"}, "c": b"c", "old": b""}


# ---- a directory that can't be examined is not empty ------------------------------------------

GONE = "gone" + "." * 251  # so long that no other allocation is as large
DEEP = "kept" + "." * 207


def delete_failing(bench, tmp_path, way, env, *options):
    r = delete(bench, tmp_path, way, *options, env=env)
    assert (tmp_path / "failed").exists(), "the call was never made"
    assert r.code == 23, (r.code, r.errors())
    return r


@pytest.mark.parametrize("kind", ["file", "directory", "deep"])
@pytest.mark.parametrize("call", ["fstatat", "unlinkat"])
def test_failed_deletion_is_a_failure(bench, tmp_path, way, call, kind):
    old = {"file": {"bad": b""}, "directory": {"bad": {"f": b""}}, "deep": {"d": {"bad": b"", "f": b""}}}[kind]
    make(tmp_path, {"tree": {"f": b"f"}, "to": {"gone": b"", **old}})
    r = delete_failing(bench, tmp_path, way, failing(tmp_path, call, name="bad"))
    assert "bad" in r.errors() and "Input/output error" in r.errors(), r.errors()
    left = read(tmp_path / "to")
    assert "gone" not in left and "bad" in (left["d"] if kind == "deep" else left), left


@pytest.mark.parametrize("call", ["fstatat", "unlinkat"])
def test_name_that_vanished_is_not_a_failed_deletion(bench, tmp_path, call):
    make(tmp_path, {"tree": {"f": b"f"}, "to": {"gone": b"", "bad": b""}})
    r = bench.copy("-r", "--delete", "tree/", "to", env=failing(tmp_path, call, errno.ENOENT, name="bad"))
    assert r.code == 0 and not r.errors(), (r.code, r.errors())
    assert (tmp_path / "failed").exists() and read(tmp_path / "to") == {"f": b"f", "bad": b""}


@pytest.mark.parametrize("code", [errno.ENOMEM, 0], ids=["ENOMEM", "unset"])
@pytest.mark.parametrize("where", ["kept", "gone"])
def test_unlistable_target_directory_is_a_failure(bench, tmp_path, way, where, code):
    make(tmp_path, {"tree": {"kept": {"f": b"f"}}, "to": {"kept": {"old": b""}, "gone": {"old": b""}}})
    r = delete_failing(bench, tmp_path, way, failing(tmp_path, "fdopendir", code, name=where))
    assert "list directory %s: %s" % (where, "Cannot allocate memory" if code else "") in r.errors(), r.errors()
    left = read(tmp_path / "to")
    assert left[where]["old"] == b"" and len(left) == (1 if where == "kept" else 2), left


@pytest.mark.parametrize("what", [{GONE: b""}, {GONE: {"f": b""}}], ids=["file", "directory"])
@pytest.mark.parametrize("at", ["top", "below"])
def test_no_memory_for_a_path_to_delete_is_a_failure(bench, tmp_path, way, what, at):
    make(tmp_path, {"tree": {"f": b"f"}, "to": what if at == "top" else {"d": what}})
    size = len(GONE) + 2 + (at == "below")
    r = delete_failing(bench, tmp_path, way, failing(tmp_path, "realloc", errno.ENOMEM, size=size))
    assert "Cannot allocate memory" in r.errors(), r.errors()
    left = read(tmp_path / "to")
    assert GONE in (left if at == "top" else left["d"]), left


def test_no_memory_for_the_path_of_a_directory_is_a_failure(bench, tmp_path, way):
    make(tmp_path, {"tree": {DEEP: {"f": b"f"}}, "to": {DEEP: {"old": b""}}})
    # With its NUL, and a slash for the target's own empty name.
    r = delete_failing(bench, tmp_path, way, failing(tmp_path, "malloc", errno.ENOMEM, size=len(DEEP) + 3))
    assert "Cannot allocate memory" in r.errors(), r.errors()
    assert read(tmp_path / "to") == {DEEP: {"f": b"f", "old": b""}}


# ---- directories that lead to other sources ------------------------------------------------


@pytest.mark.parametrize("sources", [["s/d", "s/d/e"], ["s/d/e", "s/d"], ["s/d", "s/d/e/f"], ["s/d", "s/d/g"],
                                     ["s/d", "s/d/e", "s/d/e/h/"], ["s/d/e/f", "s/d/e/h"],
                                     ["s/./d", "two/./d/other", "two/./d/sub/deep"]], ids=" ".join)
def test_delete_with_nested_sources_matches_rsync(bench, tmp_path, way, sources):
    old = {"gone": b"", "e": {"gone": b"", "h": {"gone": b""}, "f": b""}, "other": b"old", "sub": {"gone": b""}}
    make(tmp_path, {"s": {"d": {"g": b"g", "e": {"f": b"f", "h": {"i": b"i"}}}},
                    "two": {"d": {"other": b"o", "sub": {"deep": {"x": b"x"}}}}})
    for to in ("ours", "theirs"):
        make(tmp_path / to, {"s": {"d": old, "stays": b""}, "d": old, "stays": b""})
    rsync("-a", "--relative", "--delete", *sources, "theirs/", cwd=tmp_path)
    # The path of a remote SRC begins after the dot.
    words = [way[0] + (str(tmp_path) + "/" + ("" if "/./" in s else "./") if way[0] else "") + s for s in sources]
    r = bench.copy("-a", "--relative", "--delete", *words, way[1] + str(tmp_path / "ours"))
    assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


@pytest.mark.parametrize("exclude", ["f", "d/", "d/e", "/d/e/f", "[ef]"])
@pytest.mark.parametrize("listed", [["d/e/f", "g"], ["d/e"], ["d/e/f", "d/e/h/i", "l/f"]], ids=" ".join)
def test_parents_of_excluded_names_are_not_made_as_in_rsync(bench, tmp_path, way, listed, exclude):
    """With neither --files-from nor --relative, where the directory would replace a file of the target."""
    make(tmp_path, {"s": {"d": {"e": {"f": b"f", "h": {"i": b"i"}}}, "g": b"g", "l": "d/e"},
                    "list": "\n".join(listed + [""]).encode()})
    for old in ({}, {"d": b"a file"}):
        for top in ("ours", "theirs", "relative", "their relative"):
            subprocess.run(["rm", "-rf", tmp_path / top], check=True)
            make(tmp_path, {top: old})
        rsync("-a", "--files-from=list", "--exclude=" + exclude, "s/", "theirs/", cwd=tmp_path)
        r = bench.copy("-a", "--files-from=list", "--exclude=" + exclude, way[0] + str(tmp_path / "s"),
                       way[1] + str(tmp_path / "ours"))
        assert r.code == 0 and read(tmp_path / "ours") == read(tmp_path / "theirs"), r.errors()
        if "l/f" in listed:
            continue  # a symlink in the path: rsync copies it as a link, --relative as a directory
        rsync("-a", "--relative", "--exclude=" + exclude, *["s/./" + n for n in listed], "their relative/", cwd=tmp_path)
        r = bench.copy("-a", "--relative", "--exclude=" + exclude,
                       *[way[0] + "%s/s/./%s" % (tmp_path, n) for n in listed], way[1] + str(tmp_path / "relative"))
        assert r.code == 0 and read(tmp_path / "relative") == read(tmp_path / "their relative"), r.errors()


# ---- sources in the target ------------------------------------------------------------------


def test_delete_spares_a_source_in_the_target(bench, tmp_path, way):
    """Its uncopied parts would be lost."""
    for options in (["--max-size=2"], ["-u"], ["--ignore-existing"], ["-n"], ["--backup"]):
        tree = {"x": {"in": {"f": b"f", "big": b"large"}, "other": b""}, "f": b"is newer", "extra": b""}
        make(tmp_path, {"to": tree})
        os.utime(tmp_path / "to" / "f", (2**32, 2**32))
        r = bench.copy("-r", "--delete", *options, way[0] + str(tmp_path / "to" / "x" / "in") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 23 and "delete x/in: it is a source" in r.errors(), (options, r.code, r.errors())
        assert read(tmp_path / "to")["x"]["in"] == tree["x"]["in"]
        shutil.rmtree(tmp_path / "to")


def test_delete_spares_an_excluded_source_in_the_target(bench, tmp_path, way):
    make(tmp_path, {"to": {"in": {"f": b"f"}, "extra": b""}})
    r = bench.copy("-r", "--delete", "--exclude=/in", way[0] + str(tmp_path / "to" / "in") + "/",
                   way[1] + str(tmp_path / "to"))
    assert r.code == 0 and read(tmp_path / "to") == {"in": {"f": b"f"}, "f": b"f"}, r.errors()


def test_source_in_the_way_stays(bench, tmp_path, way):
    make(tmp_path, {"to": {"in": {"in": b"f", "g": b"g"}}})
    r = bench.copy("-r", "--delete", way[0] + str(tmp_path / "to" / "in") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 23 and read(tmp_path / "to")["in"] == {"in": b"f", "g": b"g"}, (r.code, r.errors())


def test_backup_dir_inside_a_source_is_refused(bench, tmp_path, way):
    """A backup there would replace files that are still to be read."""
    tree = {"a": {"1": b"one"}, "b": b"b"}
    make(tmp_path, {"tree": tree, "to": {"a": b"old", "b": b"old"}})
    r = bench.copy("-r", "--delete", "--backup-dir=%s" % (tmp_path / "tree"), way[0] + str(tmp_path / "tree") + "/",
                   way[1] + str(tmp_path / "to"))
    assert r.code == 23 and "is a source" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "tree") == tree
    assert set(read(tmp_path / "to").values()) == {b"old"}


def test_backup_of_a_directory_in_the_way_has_its_mode(bench, tmp_path, way):
    make(tmp_path, {"tree": {"x": b"new"}, "to": {"x": {"sub": {"o": b"old"}}}})
    (tmp_path / "to" / "x" / "sub").chmod(0o751)
    r = delete(bench, tmp_path, way, "--backup", "--backup-dir=B")
    assert r.code == 0 and read(tmp_path / "to") == {"x": b"new", "B": {"x": {"sub": {"o": b"old"}}}}, r.errors()
    assert [os.stat(tmp_path / "to" / p).st_mode & 0o777 for p in ("B/x", "B/x/sub")] == [0o755, 0o751]
