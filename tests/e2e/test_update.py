# SPDX-License-Identifier: Apache-2.0
"""Existing targets: what is sent again, replaced, kept, deleted and backed up, and what is reported. Where rsync
has the same option, rsync itself provides the expected result."""

import errno
import itertools
import os
import random
import shutil
import stat
import subprocess
import tempfile

import pytest

from faulty import failing
from file_systems import EXT4, mounted_image
from hosts import COUNT, SLOW, as_nobody, open_up, pattern, wait_until
from marks import two_users
from trees import WAYS, changes, make, read, rsync, shape, stale, summary, told, untouched, walk, ways

NOW = 1_500_000_000 * 10**9
SECOND = 10**9

way = ways("push", "pull", "local")


def dated(path, ns):
    os.utime(path, ns=(ns, ns), follow_symlinks=False)


# ---- what is sent --------------------------------------------------------------------------

AGES = {"older": NOW - 5 * SECOND, "equal": NOW, "newer": NOW + 5 * SECOND}
CONTENTS = {"same": b"abc", "differs": b"xyz", "longer": b"abcd"}


def ages(top):
    """Makes entries in b that are older and newer than those in a, with each kind of content."""
    for name in ("a", "b", "ours", "theirs"):
        make(top / name, {})
    for age, content in itertools.product(AGES, CONTENTS):
        name = "%s %s" % (age, content)
        for to in ("ours", "theirs"):
            make(top / to, {name: CONTENTS[content]})
            dated(top / to / name, AGES[age])
        make(top / "a", {name: b"abc"})
        dated(top / "a" / name, NOW)
    for to in ("ours", "theirs"):
        make(top / to, {"is a dir": {}, "is a link": "nowhere", "of b": b"b"})
        dated(top / to / "is a link", NOW + SECOND)
        dated(top / to / "is a dir", NOW)
    make(top / "a", {"is a dir": b"1", "is a link": b"2", "of a": b"3"})


# Plain -r here is like -I: every file is sent again.
UPDATES = [
    (["-a"], ["-a"]),
    (["-r"], ["-rl", "-I"]),
    (["-r", "-u"], ["-rl", "-I", "-u"]),
    (["-a", "-u"], ["-a", "-u"]),
    (["-r", "--times"], ["-rl", "--times"]),
    (["-r", "--ignore-existing"], ["-rl", "--ignore-existing"]),
    (["-a", "--ignore-existing"], ["-a", "--ignore-existing"]),
    (["-a", "--ignore-existing", "-u"], ["-a", "--ignore-existing", "-u"]),
    (["-r", "--existing"], ["-rl", "-I", "--existing"]),
    (["-a", "--existing"], ["-a", "--existing"]),
    (["-a", "--existing", "-u"], ["-a", "--existing", "-u"]),
    (["-a", "--checksum"], ["-a", "--checksum"]),
    (["-r", "--checksum"], ["-rl", "--checksum"]),
    (["-a", "--checksum", "-u"], ["-a", "--checksum", "-u"]),
]


@pytest.mark.parametrize("n", range(len(UPDATES)), ids=[" ".join(u[0]) for u in UPDATES])
def test_replaced_files_match_rsync(bench, tmp_path, n):
    ours, theirs = UPDATES[n]
    near, far = list(WAYS.values())[n % 4]
    ages(tmp_path)
    rsync(*theirs, "a/", "theirs/", cwd=tmp_path)
    r = bench.copy(*ours, near + str(tmp_path / "a") + "/", far + str(tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")
    if "-a" in ours:
        times = [{p: (tmp_path / to / p).lstat().st_mtime_ns for p in os.listdir(tmp_path / "a")
                  if "--existing" not in ours or p != "of a"}
                 for to in ("ours", "theirs")]
        assert times[0] == times[1]


@pytest.mark.parametrize("options", [["-a"], ["-aH"]], ids=" ".join)
def test_whole_second_at_the_target_is_another_time(bench, tmp_path, way, options):
    """4.5 s and 4 s differ, although some file systems store whole seconds only: this one does not."""
    make(tmp_path, {"a": {"f": b"NEWDATA"}, "to": {"f": b"OLDDATA"}})
    os.link(tmp_path / "a" / "f", tmp_path / "a" / "g")
    dated(tmp_path / "a" / "f", NOW + SECOND // 2)
    dated(tmp_path / "to" / "f", NOW)
    r = bench.copy(*options, way[0] + str(tmp_path / "a") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"f": b"NEWDATA", "g": b"NEWDATA"}
    assert (tmp_path / "to" / "f").stat().st_mtime_ns == NOW + SECOND // 2


@pytest.mark.needs("root", why="only root mounts")
@pytest.mark.may_skip("any", "a container may not be allowed to mount")
def test_file_system_of_whole_seconds_has_the_same_time(bench, tmp_path):
    """ext4 with small inodes stores no fractions of seconds."""
    make(tmp_path, {"a": {"f": b"f", "d": {"g": b"g"}, "l": "f"}})
    for path in ("f", "d/g", "l", "d", "."):
        dated(tmp_path / "a" / path, NOW + SECOND // 2)
    with mounted_image(tmp_path / "image", 16 << 20, tmp_path / "mounted", make=[*EXT4, "-I", "128"]) as top:
        for sent in (2, 0):
            r = bench.copy("-aH", "--json", str(tmp_path / "a") + "/", "far:%s" % (top / "to"))
            assert r.code == 0 and summary(r)["files"] == sent, r.errors()
        assert (top / "to" / "f").stat().st_mtime_ns == NOW
        dated(top / "to" / "f", NOW + SECOND)
        r = bench.copy("-aH", "--json", str(tmp_path / "a") + "/", "far:%s" % (top / "to"))
        assert r.code == 0 and summary(r)["files"] == 1, r.errors()


def test_ignore_existing_replaces_nothing_by_a_directory(bench, tmp_path, way):
    tree = {"f": {"in it": b"1", "empty": b"", "link": "x", "d": {"e": b""}}, "l": {"in it": b"2"}, "s": "mine"}
    make(tmp_path, {"tree": {"g": b"3", **tree}, "out": {}, "to": {"f": b"a file", "l": "../out", "s": "theirs"}})
    for options in (["-n"], ["--remove-source-files"]):
        r = bench.copy("-a", "--ignore-existing", *options, way[0] + str(tmp_path / "tree") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"a file", "l": "../out", "s": "theirs", "g": b"3"}
    assert read(tmp_path / "out") == {}
    # It does not count as stored either.
    assert read(tmp_path / "tree") == tree


def test_ignore_existing_replaces_nothing_by_a_named_directory(bench, tmp_path, way):
    for words in (["tree"], ["tree", "other"]):
        top = tmp_path / str(len(words))
        make(top, {"tree": {"f": b"1", "d": {"g": b"2"}}, "other": {"h": b"3"}, "to": {"tree": b"a file", "gone": b""}})
        r = bench.copy("-a", "--ignore-existing", "--delete", "--remove-source-files",
                       *[way[0] + str(top / w) for w in words], way[1] + str(top / "to"))
        assert r.code == 0, (r.code, r.errors())
        want = {"tree": b"a file", "gone": b"", **({"other": {"h": b"3"}} if words[1:] else {})}
        assert read(top / "to") == want
        assert read(top / "tree") == {"f": b"1", "d": {"g": b"2"}}


NAMES = ["a", "b", "c.o", "d.c", "e", "f"]


def plant(rng, top, depth=0):
    os.makedirs(top, exist_ok=True)
    for path in (os.path.join(top, name) for name in rng.sample(NAMES, rng.randrange(1, 6))):
        kind = rng.random()
        if kind < 0.35 and depth < 3:
            plant(rng, path, depth + 1)
            continue
        if kind < 0.5:
            os.symlink(rng.choice(NAMES), path)
        else:
            with open(path, "w") as f:
                f.write(rng.choice(["", "1", "2", "33", "44"]))
        dated(path, NOW + rng.randrange(3) * SECOND)
    os.chmod(top, rng.choice([0o755, 0o755, 0o700, 0o750]))


def some_options(rng):
    options = ["-a"]
    for chance, words in ((0.5, ["--delete"]), (0.3, ["--checksum"]), (0.25, ["-u"]), (0.15, ["--ignore-existing"]),
                          (0.3, ["--exclude=*.o", "--exclude=/a", "--include=*.c", "--exclude=a/**"]),
                          (0.3, ["--exclude=*.c", "--exclude=f", "--exclude=c.o/*"]), (0.1, ["--max-size=1"]),
                          (0.2, ["--backup", "--backup-dir=../aside", "--backup-dir=aside"]), (0.1, ["--min-size=1"]),
                          (0.1, ["--chmod=F600,D711"])):
        if rng.random() < chance:
            options.append(rng.choice(words))
    if rng.random() < 0.2:
        options.append("--delete-excluded" if "--delete" in options else "--remove-source-files")
    # A file that stayed is not removed from the source; rsync knows which of the others stayed, rdcp does not.
    return [o for o in options if o != "--remove-source-files" or "--ignore-existing" not in options]


def forms(top):
    found = {}
    for path, t in walk(os.fsencode(top)).items():
        mode = stat.S_IMODE(t.stat.st_mode)
        if t.kind == "directory":
            found[path] = None if b"aside" in path else mode  # private, where rsync uses those of the tree
        else:
            found[path] = (t.kind, mode, t.stat.st_mtime_ns, t.digest or os.readlink(os.path.join(os.fsencode(top), path)))
    return found


@pytest.mark.parametrize("seed", range(1, 1 + 12 * COUNT))
def test_random_options_on_random_trees_match_rsync(bench, tmp_path, seed):
    near, far = list(WAYS.values())[seed % 4]
    options = some_options(random.Random("%d options" % seed))
    # With both options rsync 3.5.0 deletes what it should keep; for entries other than files it knows which it
    # skipped.
    if random.Random("%d existing" % seed).random() < .15 and "--ignore-existing" not in options:
        options = [o for o in options if o != "--remove-source-files"] + ["--existing"]
    for top in ("ours", "theirs"):
        for tree in ("src", "to"):
            plant(random.Random("%d %s" % (seed, tree)), tmp_path / top / tree)
    done = subprocess.run(["rsync", *options, "src/", "to/"], cwd=tmp_path / "theirs", capture_output=True)
    r = bench.copy(*options, near + str(tmp_path / "ours" / "src") + "/", far + str(tmp_path / "ours" / "to"))
    if done.returncode:
        assert r.code in (0, done.returncode), (seed, options, r.errors(), done.stderr)
        return  # rsync's own temporaries
    assert r.code == 0, (seed, options, r.errors())
    assert forms(tmp_path / "ours") == forms(tmp_path / "theirs"), (seed, options)


def test_digest_is_printed_only_for_files_equal_to_the_source(bench, tmp_path, way):
    for options in (["-u"], ["--ignore-existing"]):
        make(tmp_path, {"a": {"f": b"source"}, "b": {"f": b"mine"}})
        dated(tmp_path / "a" / "f", NOW)
        r = bench.copy("-r", *options, "--print-digest=md5", way[0] + str(tmp_path / "a") + "/", way[1] + str(tmp_path / "b"))
        assert r.code == 0, r.errors()
        assert read(tmp_path / "b") == {"f": b"mine"} and not bytes(r.out).strip(), (options, bytes(r.out))


def test_several_matches_of_a_pattern_need_a_directory(bench, tmp_path):
    tree = {"c": {"f": b"inner"}, "d": {"f": b"other"}, "f": b"outer"}
    make(tmp_path, {"a": tree})
    for options in ([], ["--remove-source-files"], ["-n"]):
        r = bench.copy("-r", *options, "far:%s/a/*" % tmp_path, str(tmp_path / "absent"))
        assert r.code == 23 and "absent: no such directory (--mkpath makes it)" in r.errors(), (r.code, r.errors())
        assert read(tmp_path / "a") == tree and not (tmp_path / "absent").exists(), options


@pytest.mark.parametrize("options", [["-r"], ["-n", "-r"], ["-r", "--mkpath"], ["-r", "--remove-source-files"], ["-a", "--delete"]],
                         ids=" ".join)
@pytest.mark.parametrize("there", [True, False])
def test_several_matches_cannot_all_become_the_target(bench, tmp_path, options, there):
    """-T takes one SRC, and a pattern of the far end with several matches is several."""
    tree = {n: {"f": n.encode()} for n in "ab"}
    make(tmp_path, {"s": tree, **({"t": {"old": b"old"}} if there else {})})
    r = bench.copy("-T", *options, "far:%s/s/*" % tmp_path, str(tmp_path / "t"))
    assert r.code == 1 and "-T takes one SRC: %s/s/* matches 2 names" % tmp_path in r.errors(), (r.code, r.errors())
    assert read(tmp_path) == {"s": tree, **({"t": {"old": b"old"}} if there else {})}


def test_only_match_of_a_pattern_becomes_the_target(bench, tmp_path):
    make(tmp_path, {"s": {"a": {"f": b"content"}}, "t": {"old": b"old"}})
    r = bench.copy("-rT", "far:%s/s/*" % tmp_path, str(tmp_path / "t"))
    assert r.code == 0 and read(tmp_path / "t") == {"f": b"content", "old": b"old"}, (r.code, r.errors())


@pytest.mark.lab("siw", cases="push*", long=True)
def test_checksum_sends_no_equal_file(bench, tmp_path, way):
    """An equal time does not count as equal content either."""
    size = 5 << 20
    make(tmp_path, {"a": {"same": pattern(size), "d": {"differs": pattern(size)}, "small": b"s"}})
    make(tmp_path, {"b": {"same": pattern(size), "d": {"differs": pattern(size, 3)}, "small": b"s"}})
    for name in ("same", "d/differs", "small"):
        dated(tmp_path / "a" / name, NOW)
        dated(tmp_path / "b" / name, NOW + (name != "d/differs"))
    inode = (tmp_path / "b" / "same").stat().st_ino
    r = bench.copy("-a", "--checksum", "--json", way[0] + str(tmp_path / "a") + "/", way[1] + str(tmp_path / "b"))
    assert r.code == 0, r.errors()
    assert (summary(r)["files"], summary(r)["bytes"]) == (1, size), summary(r)
    assert read(tmp_path / "b") == read(tmp_path / "a")
    assert (tmp_path / "b" / "same").stat().st_ino == inode
    assert (tmp_path / "b" / "same").stat().st_mtime_ns == NOW


def test_single_file_is_compared_in_the_same_way(bench, tmp_path, way):
    make(tmp_path, {"in": b"abc", "out": b"xyz"})
    dated(tmp_path / "in", NOW)
    dated(tmp_path / "out", NOW)
    source, target = way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out")
    for options in (["-p"], ["--times"], ["-a"], ["--ignore-existing"], ["-u", "-p"]):
        r = bench.copy(*options, source, target)
        assert r.code == 0 and (tmp_path / "out").read_bytes() == b"xyz", (options, r.errors())
    dated(tmp_path / "out", NOW + SECOND)
    r = bench.copy("-u", source, target)
    assert r.code == 0 and (tmp_path / "out").read_bytes() == b"xyz", r.errors()
    r = bench.copy("--checksum", "-p", source, target)
    assert r.code == 0 and (tmp_path / "out").read_bytes() == b"abc", r.errors()


# ---- deleting ------------------------------------------------------------------------------

OLD = {"a.c": b"old", "gone": b"", "gone.o": b"", "x.o": b"old", "gone d": {"in it": {"deep": b""}, "y.o": b""},
       "kept": {"gone": b"", "z.o": b""}, "to gone": "gone", "is dir": b"", "is file": {"in it": b""}}
NEW = {"a.c": b"new", "x.o": b"new", "kept": {"here": b""}, "is dir": {"f": b""}, "is file": b""}


@pytest.mark.parametrize("options", [["--delete"], ["--delete", "--exclude=*.o"],
                                     ["--delete", "--delete-excluded", "--exclude=*.o"],
                                     ["--delete", "--exclude=/gone d/"], ["--delete", "--include=gone.o", "--exclude=*.o"],
                                     ["--delete-excluded", "--exclude=kept"]], ids=" ".join)
def test_delete_matches_rsync(bench, tmp_path, way, options):
    make(tmp_path, {"tree": NEW, "ours": OLD, "theirs": OLD})
    rsync("-rl", "-I", *options, "tree/", "theirs/", cwd=tmp_path)
    r = bench.copy("-r", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


@pytest.mark.lab("siw", cases="push*", long=True)
def test_delete_works_only_in_copied_directories(bench, tmp_path, way):
    make(tmp_path, {"one": {"f": b""}, "two": {"g": b""}, "file": b"",
                    "to": {"one": {"gone": b""}, "two": {"gone": {}}, "three": {"stays": b""}, "stays": b""}})
    r = bench.copy("-r", "--delete", *[way[0] + str(tmp_path / n) for n in ("one", "two", "file")],
                   way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"one": {"f": b""}, "two": {"g": b""}, "file": b"", "three": {"stays": b""},
                                     "stays": b""}


@pytest.mark.parametrize("options", [["-a"], ["-r"], ["-a", "--relative"]], ids=" ".join)
def test_delete_spares_the_files_of_other_sources(bench, tmp_path, way, options):
    make(tmp_path, {"one": {"f": b""}, "two": {"g": b""}, "file": b"", "to": {"one": {"gone": b""}}})
    words = ["one/./", "./two", "./file"] if "--relative" in options else ["one/", "two", "file"]
    for again in range(2):
        make(tmp_path, {"to": {"two": {"gone": b""}, "gone": b""}})
        r = bench.copy(*options, "--delete", *[way[0] + str(tmp_path) + "/" + w for w in words],
                       way[1] + str(tmp_path / "to"))
        assert r.code == 0, r.errors()
        assert read(tmp_path / "to") == {"f": b"", "two": {"g": b""}, "file": b""}, again


@pytest.mark.parametrize("options", [["-a"], ["-r"], ["-a", "--remove-source-files"], ["-a", "--delete"]], ids=" ".join)
def test_first_of_two_sources_with_one_name_counts(bench, tmp_path, way, options):
    one = {"d": {"%d" % i: b"one" for i in range(20)}, "f": b"1", "x": b"file", "y": {"in it": b"y"}}
    two = {"d": {"%d" % i: b"two" for i in range(30)}, "f": b"2", "x": {"in it": b"x"}, "y": b"file"}
    want = dict(one, d=dict(two["d"], **one["d"]))
    make(tmp_path, {"one": one, "two": two, "to": {}})
    r = bench.copy(*options, *[way[0] + str(tmp_path / n) + "/" for n in ("one", "two")], way[1] + str(tmp_path / "to"))
    # A file in place of a directory, or the reverse, neither exists at the target nor is replaced: it failed.
    assert r.code == 23, r.errors()
    assert "x: an earlier source has a file of that name" in r.errors(), r.errors()
    assert "y: an earlier source has a directory of that name" in r.errors(), r.errors()
    assert read(tmp_path / "to") == want
    why = "f: an earlier source has the same name"
    if "--remove-source-files" in options:
        why += ", and a rerun would replace that with it"
    assert why in r.errors(), r.errors()
    left = read(tmp_path / "two")
    assert left["f"] == b"2" and left["x"] == {"in it": b"x"} and left["y"] == b"file"
    assert set(left["d"]) == {"%d" % i for i in range(20 if "--remove-source-files" in options else 30)}


def test_dry_run_of_a_move_fails_as_the_move(bench, tmp_path, way):
    two = {"f": b"2", "g": b"3"}
    make(tmp_path, {"one": {"f": b"1"}, "two": two, "to": {"g": b"3"}})
    dated(tmp_path / "to" / "g", NOW)
    os.symlink("/dev/null", tmp_path / "null")
    merge = [way[0] + str(tmp_path / n) + "/" for n in ("one", "two")] + [way[1] + str(tmp_path / "to")]
    onto_device = [way[0] + str(tmp_path / "two" / "f"), way[1] + str(tmp_path / "null")]
    ctime = (tmp_path / "to" / "g").stat().st_ctime_ns
    for options in (["-n"], []):
        r = bench.copy("-r", "--remove-source-files", *options, *merge)
        assert r.code == 23, (options, r.code, r.errors())
        assert "two/f: an earlier source has the same name, and a rerun would replace that with it" in r.errors(), r.errors()
        assert "1 of " in r.errors().splitlines()[-1], r.errors()
        if options:
            assert read(tmp_path / "one") == {"f": b"1"} and read(tmp_path / "two") == two
            assert read(tmp_path / "to") == {"g": b"3"} and (tmp_path / "to" / "g").stat().st_ctime_ns == ctime
        r = bench.copy("--remove-source-files", *options, *onto_device)
        assert r.code == 1 and "does not keep what is written to it" in r.errors(), (options, r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"1", "g": b"3"}


@pytest.mark.parametrize("options", [["-r"], ["-r", "--delete"], ["-a", "--no-devices", "--remove-source-files"]],
                         ids=" ".join)
def test_skipped_file_takes_no_name_from_another_source(bench, tmp_path, way, options):
    make(tmp_path, {"one": {"dir": {"f": b""}, "file": b"1"}, "two": {"late file": b"2", "late dir": {"g": b""}}, "to": {}})
    for name in ("one/late file", "one/late dir", "two/dir", "two/file"):
        os.mkfifo(tmp_path / name)
    r = bench.copy(*options, *[way[0] + str(tmp_path / n) + "/" for n in ("one", "two")], way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"dir": {"f": b""}, "file": b"1", "late file": b"2", "late dir": {"g": b""}}
    assert r.errors().count("it is a FIFO (use --devices to recreate it)") == 4, r.errors()


def test_delete_follows_no_symlink(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b""}, "outside": {"g": b""}, "to": {"gone": "../outside", "gone too": "../outside/g"}})
    r = bench.copy("-r", "--delete", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"f": b""} and read(tmp_path / "outside") == {"g": b""}


@pytest.mark.parametrize("most", [0, 1, 3, 100])
def test_max_delete_limits_deletions(bench, tmp_path, way, most):
    make(tmp_path, {"tree": {"f": b"1"}, "to": {"gone %d" % i: b"" for i in range(4)}})
    r = bench.copy("-r", "--delete", "--max-delete=%d" % most, way[0] + str(tmp_path / "tree") + "/",
                   way[1] + str(tmp_path / "to"))
    left = read(tmp_path / "to")
    assert left.pop("f") == b"1"
    assert len(left) == max(0, 4 - most)
    assert r.code == (25 if most < 4 else 0), (r.code, r.errors())
    assert most >= 4 or "--max-delete" in r.errors(), r.errors()


def test_max_delete_counts_entries_in_the_way(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"1", "g": b"2"}, "to": {"f": {"d": {"x": b""}}, "g": {}}})
    for options in (["-n"], []):
        r = bench.copy("-r", "--delete", "--max-delete=1", *options, way[0] + str(tmp_path / "tree") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 23, (r.code, r.errors())
    assert "--max-delete" in r.errors(), r.errors()
    assert read(tmp_path / "to") == {"f": {"d": {"x": b""}}, "g": b"2"}


def test_each_deletion_is_reported(bench, tmp_path):
    make(tmp_path, {"tree": NEW, "to": OLD})
    want = {line[12:] for line in rsync("-rlni", "--delete", "tree/", "to/", cwd=tmp_path).decode().splitlines()
            if line.startswith("*deleting")}
    for options in (["-n"], []):
        r = bench.copy("-r", "--delete", "--itemize-changes", *options, "tree/", "far:%s" % (tmp_path / "to"))
        assert r.code == 0, r.errors()
        assert {p for p, c in changes(r).items() if c == "*deleting"} == want


@two_users
def test_unreadable_directory_prevents_deletions(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"f", "closed": {"g": b"g"}}, "to": {"old": b"", "closed": {"g": b"g", "old": b""}}})
    (tmp_path / "tree" / "closed").chmod(0)
    open_up(tmp_path)
    for name in ("to", "to/closed", "to/old", "to/closed/old", "to/closed/g"):
        os.chown(tmp_path / name, 65534, 65534)
    r = bench.copy("-r", "--delete", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"),
                   become=as_nobody())
    assert r.code == 23 and "delete" in r.errors() and "closed" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"f", "old": b"", "closed": {"g": b"g", "old": b""}}


def test_missing_source_prevents_deletions(bench, tmp_path, way):
    make(tmp_path, {"one": {"f": b"f"}, "to": {"of two": b""}})
    r = bench.copy("-r", "--delete", *[way[0] + str(tmp_path / n) + "/" for n in ("one", "two")], way[1] + str(tmp_path / "to"))
    assert r.code == 23 and "nothing is deleted" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"f", "of two": b""}


def test_delete_needs_recursive(bench, tmp_path):
    make(tmp_path, {"f": b"", "to": {"old": b""}})
    r = bench.copy("--delete", "f", "far:%s" % (tmp_path / "to"))
    assert r.code == 1 and "-r" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"old": b""}


# ---- entries in the way --------------------------------------------------------------------

IN_THE_WAY = {"f": {"d": {"x": b"x", "e": {}}, "y": b"y"}, "l": {"z": b"z"}, "g": {}, "h": {"w": b"w"}}


def told_as_deleted(run):
    return {p for p, c in changes(run).items() if c == "*deleting"}


@pytest.mark.parametrize("options", [["--delete"], ["--backup-dir=../aside", "--delete"]], ids=" ".join)
def test_removed_entries_in_the_way_are_itemized_as_in_rsync(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {"f": b"1", "g": b"", "l": "f", "h": b"2" * 300000},
                    "ours": {"to": IN_THE_WAY}, "theirs": {"to": IN_THE_WAY}})
    said = rsync("-rli", *options, "../tree/", "to/", cwd=tmp_path / "theirs").decode().splitlines()
    want = {line[12:] for line in said if line.startswith("*deleting")}
    assert "f/d/x" in want
    words = ["-r", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "ours" / "to")]
    r = bench.copy("-n", *words)
    assert r.code == 0 and told_as_deleted(r) == want, (r.code, r.errors(), bytes(r.out))
    assert read(tmp_path / "ours") == {"to": IN_THE_WAY}
    r = bench.copy("--itemize-changes", "--stats", "--log-file=log", *words)
    assert r.code == 0 and told_as_deleted(r) == want, (r.code, r.errors(), bytes(r.out))
    assert numbers(r.errors())["deleted"] == len(want)
    log = (tmp_path / "log").read_text().splitlines()
    assert {line.split("*deleting", 1)[1].strip() for line in log if "*deleting" in line} == {w.rstrip("/") for w in want}
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


def test_removed_entries_in_the_way_are_json_objects(bench, tmp_path, way):
    for options in (["-n"], []):
        make(tmp_path, {"tree": {"f": b"1"}, "to": {} if options == [] else {"f": {"x": b"x"}, "g": b""}})
        r = bench.copy("-r", "--delete", "--json", *options, way[0] + str(tmp_path / "tree") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 0, r.errors()
        gone = {x["path"] for x in told(r, "file") if x["deleted"]}
        assert gone == {"f/x", "g"}, told(r)
        assert summary(r)["deleted"] == 2, summary(r)


@pytest.mark.parametrize("most", range(6))
def test_removed_entries_in_the_way_count_for_max_delete(bench, tmp_path, way, most):
    old = {"f": {"d": {"x": b"x"}, "y": b"y"}, "gone": b""}
    # From 1 on there would be room, but nothing is deleted after a failure.
    want = {"f": b"1"} if most >= 4 else {"f": b"1", "gone": b""} if most == 3 else old
    for options in (["-n"], []):
        make(tmp_path, {"tree": {"f": b"1"}})
        subprocess.run(["rm", "-rf", tmp_path / "to"], check=True)
        make(tmp_path, {"to": old})
        r = bench.copy("-r", "--delete", "--max-delete=%d" % most, "--itemize-changes", *options,
                       way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
        # A directory that can't be removed as a whole keeps all its entries.
        assert r.code == (0 if most >= 4 else 25 if most == 3 else 23), (options, r.code, r.errors())
        assert most >= 4 or "--max-delete" in r.errors(), r.errors()
        assert len(told_as_deleted(r)) <= most
        assert read(tmp_path / "to") == (old if options else want)


@pytest.mark.parametrize("options", [["-r"], ["-r", "--delete", "--exclude=w"], ["-a"], ["-r", "--checksum"],
                                     ["-aH"]], ids=" ".join)
def test_dry_run_fails_where_the_run_does(bench, tmp_path, way, options):
    """A directory that must keep an entry is in the way of each type of entry."""
    old = {"h": {"w": b"w"}, "l": {"w": b"w"}, "p": {"w": b"w"}, "second": {"w": b"w"}, "e": {}}
    make(tmp_path, {"tree": {"first": b"1", "h": b"2", "l": "h", "e": b""}, "to": old})
    os.mkfifo(tmp_path / "tree" / "p")
    os.link(tmp_path / "tree" / "first", tmp_path / "tree" / "second")
    said = []
    for rehearsal in (["-n"], []):
        assert read(tmp_path / "to") == old
        r = bench.copy(*options, *rehearsal, "--failed=failed", way[0] + str(tmp_path / "tree") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 23, (rehearsal, r.code, r.errors())
        said.append(sorted((tmp_path / "failed").read_bytes().split(b"\0")))
    assert said[0] == said[1] and len(said[0]) >= 4, said


def test_dry_run_of_one_file_fails_where_the_run_does(bench, tmp_path, way):
    make(tmp_path, {"f": b"1", "to": {"f": {"x": b""}}})
    for rehearsal in (["-n"], []):
        r = bench.copy(*rehearsal, way[0] + str(tmp_path / "f"), way[1] + str(tmp_path / "to"))
        assert r.code == 11 and "is a directory" in r.errors(), (rehearsal, r.code, r.errors())


# ---- backups -------------------------------------------------------------------------------

def rsync_with_backups(tmp_path, old, options):
    """The result of rsync. rsync 3.5.0 sometimes fails to make a directory of several components for its backups
    (11), with the right result: its report is then ignored."""
    for n in range(6):
        theirs = tmp_path / ("theirs-%d" % n)
        make(tmp_path, {theirs.name: {"to": old}})
        try:
            rsync("-rl", "-I", *options, "../tree/", "to/", cwd=theirs)
        except AssertionError:
            continue
        return read(theirs)
    pytest.fail("rsync failed six times")


@pytest.mark.parametrize("options", [["--backup"], ["--backup", "--suffix=.old"], ["--backup-dir=aside"],
                                     ["--backup-dir=as/ide", "--suffix=.old"], ["--backup", "--delete"],
                                     ["--backup-dir=../aside", "--delete"],
                                     ["--backup", "--delete", "--exclude=*.o"]], ids=" ".join)
def test_backup_matches_rsync(bench, tmp_path, way, options):
    # A directory that is not empty, because its backups stay, is in the way of a file.
    old = {k: v for k, v in OLD.items() if k != "is file" or options[-2:] == ["--backup-dir=../aside", "--delete"]}
    make(tmp_path, {"tree": NEW, "ours": {"to": old}})
    rsync_says = rsync_with_backups(tmp_path, old, options)
    r = bench.copy("-r", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "ours" / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == rsync_says


@pytest.mark.parametrize("contents", [True, False])
def test_backup_directories_have_the_modes_of_the_originals(bench, tmp_path, way, contents):
    modes = {"d": 0o755, "d/e": 0o750, "d/private": 0o700, "d/gone": 0o775}
    top = "" if contents else "src/"
    make(tmp_path / "to" / "there", {})
    for n in (1, 2):
        make(tmp_path / "src", {"f": b"%d" % n * n, "d": {"f": b"%d" % n * n, "e": {"f": b"%d" % n * n},
                                                          "private": {"f": b"%d" % n * n}}})
        if n == 1:
            make(tmp_path / "src" / "d" / "gone", {"f": b"1"})
            for name, mode in modes.items():
                (tmp_path / "src" / name).chmod(mode)
        else:
            (tmp_path / "src" / "d" / "gone" / "f").unlink()
            (tmp_path / "src" / "d" / "gone").rmdir()
        r = bench.copy("-a", "--delete", "--backup-dir=../aside", way[0] + str(tmp_path / "src") + "/" * contents,
                       way[1] + str(tmp_path / "to" / "there"))
        assert r.code == 0, r.errors()
    aside = tmp_path / "to" / "aside" / top
    assert (aside / "d" / "gone" / "f").read_bytes() == b"1"
    assert {n: stat.S_IMODE((aside / n).stat().st_mode) for n in modes} == modes


@pytest.mark.parametrize("aside", ["../aside", "aside"])
def test_backup_dir_of_a_target_that_is_a_file(bench, tmp_path, way, aside):
    """A relative DIR is below the directory that contains the target, as in rsync."""
    make(tmp_path, {"f": b"new", "ours": {"in": {"f": b"old"}}})
    r = bench.copy("--backup-dir=" + aside, way[0] + str(tmp_path / "f"), way[1] + str(tmp_path / "ours" / "in" / "f"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == ({"in": {"f": b"new", "aside": {"f": b"old"}}} if aside == "aside" else
                                       {"in": {"f": b"new"}, "aside": {"f": b"old"}})


def test_backups_stay_after_a_rerun(bench, tmp_path):
    make(tmp_path, {"tree": {"f": b"1"}, "to": {"f": b"0", "gone": b"g"}})
    for content in (b"1", b"2", b"3"):
        make(tmp_path / "tree", {"f": content})
        r = bench.copy("-r", "--backup", "--delete", "tree/", "far:%s" % (tmp_path / "to"))
        assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"f": b"3", "f~": b"2", "gone~": b"g"}


def test_backup_dir_on_another_file_system_keeps_the_old_file(bench, tmp_path, way):
    """A backup is the renamed file itself: a file that can't be renamed there is neither replaced nor deleted."""
    other = next((d for d in ("/dev/shm", "/run", "/var/tmp") if os.access(d, os.W_OK) and
                  os.stat(d).st_dev != os.stat(tmp_path).st_dev), None)
    assert other, "there is one file system only"
    aside = tempfile.mkdtemp(dir=other)
    old = {"f": b"old", "gone": b"g", "d": {"x": b"x"}}
    make(tmp_path, {"tree": {"f": b"new", "d": b"d", "h": b"h"}, "to": old})
    try:
        r = bench.copy("-r", "--delete", "--backup", "--backup-dir=" + aside, way[0] + str(tmp_path / "tree") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 23 and "another file system" in r.errors(), (r.code, r.errors())
        assert read(tmp_path / "to") == dict(old, h=b"h") and not os.path.exists(os.path.join(aside, "f"))
    finally:
        subprocess.run(["rm", "-r", aside], check=True)


def as_rsync_does_again(bench, tmp_path, options, tree, old, rounds):
    """The same runs on the same files, by rdcp and by rsync."""
    make(tmp_path, {"tree": tree, "ours": {"to": old}, "theirs": {"to": old}})
    for changed in rounds:
        subprocess.run(["rm", "-rf", tmp_path / "tree"], check=True)
        make(tmp_path, {"tree": changed})
        rsync("-rl", "-I", *options, "../tree/", "to/", cwd=tmp_path / "theirs")
        r = bench.copy("-r", *options, "tree/", "far:%s" % (tmp_path / "ours" / "to"))
        assert r.code == 0, (changed, r.errors())
        assert read(tmp_path / "ours") == read(tmp_path / "theirs"), changed


@pytest.mark.parametrize("options", [["--backup"], ["--backup", "--delete"], ["--backup-dir=../aside", "--delete"],
                                     ["--backup", "--delete", "--exclude=*.o"]], ids=" ".join)
@pytest.mark.parametrize("kind", [{"k": {"q": b"q"}, "p": b"p"}, {}, "a link", b"a file"], ids=["dir", "empty", "link", "file"])
def test_backup_replaces_an_older_one_of_any_type(bench, tmp_path, options, kind):
    """Also a directory: z~ is the backup of z, whatever type it has."""
    as_rsync_does_again(bench, tmp_path, options, {"z": b"1"}, {"z": b"0", "z~": kind, "l": "old", "l~": kind},
                        [{"z": b"1", "l": "new"}, {"z": b"22", "l": "newer"}, {"z": b"333"}, {"y": b""}])


def test_names_of_backups_are_not_deleted(bench, tmp_path):
    """Directories too, except with --delete-excluded."""
    old = {"a": b"a", "b~": b"b", "o~": {"k": {"q": b"q"}}, "d": {"x~": {"y": b"y"}}}
    for options in (["--backup", "--delete"], ["--backup", "--delete", "--suffix=.b", "--exclude=*~"]):
        subprocess.run(["rm", "-rf", tmp_path / "ours", tmp_path / "theirs"], check=True)
        as_rsync_does_again(bench, tmp_path, options, {}, old, [{"z": b"1", "d": {}}, {"z": b"2", "d": {}}])


def test_backup_dir_accepts_changed_types(bench, tmp_path):
    """A former file is a directory now, and the reverse."""
    as_rsync_does_again(bench, tmp_path, ["--backup-dir=../aside", "--delete"], {}, {"f": b"0", "d": {"e": {"g": b"g"}}},
                        [{"f": {"x": b"1"}, "d": b"2"}, {"f": {"x": b"3"}, "d": {"e": {"g": b"4"}}}, {"f": b"5", "d": {"e": {}}}])


def test_directory_in_the_way_is_backed_up_as_a_whole(bench, tmp_path):
    """rsync fails there. The next backup replaces it."""
    make(tmp_path, {"tree": {"f": b"1"}, "to": {"f": {"d": {"x": b"x"}, "y": b"y"}}})
    r = bench.copy("-r", "--backup", "--delete", "--itemize-changes", "tree/", "far:%s" % (tmp_path / "to"))
    assert r.code == 0 and told_as_deleted(r) == {"f/d/x", "f/d/", "f/y"}, (r.code, r.errors(), bytes(r.out))
    assert read(tmp_path / "to") == {"f": b"1", "f~": {"d": {"x": b"x"}, "y": b"y"}}
    (tmp_path / "to" / "f").unlink()
    make(tmp_path, {"to": {"f": {"z": b"z"}}})
    r = bench.copy("-r", "--backup", "--delete", "--itemize-changes", "tree/", "far:%s" % (tmp_path / "to"))
    assert r.code == 0 and told_as_deleted(r) == {"f/z", "f~/d/x", "f~/d/", "f~/y"}, (r.code, r.errors(), bytes(r.out))
    assert read(tmp_path / "to") == {"f": b"1", "f~": {"z": b"z"}}


@pytest.mark.parametrize("options", [["--delete"], ["--delete-excluded"]], ids=" ".join)
def test_backup_that_replaced_an_older_one_is_not_deleted(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {"f": b"1", "d": {"g": b"2"}},
                    "to": {"f": b"old", "f~": b"older", "d": {"g": b"old", "g~": b"older"}}})
    for _ in range(2):
        r = bench.copy("-a", "--backup", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
        assert r.code == 0, r.errors()
        assert read(tmp_path / "to") == {"f": b"1", "f~": b"old", "d": {"g": b"2", "g~": b"old"}}


def test_source_file_named_like_a_backup_is_not_replaced(bench, tmp_path, way):
    """Whichever of the two is stored first."""
    big = pattern(8 << 20)
    make(tmp_path, {"tree": {"f": big, "f~": b"tilde", "g~": b"g", "h": b"1", "h~": {"x": b"x"}},
                    "to": {"f": b"old", "g": b"gone", "h": b"old"}})
    r = bench.copy("-a", "--backup", "--delete", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"f": big, "f~": b"tilde", "f~~": b"old", "g~": b"g", "g~~": b"gone", "h": b"1", "h~": {"x": b"x"},
                                     "h~~": b"old"}


def test_number_of_remembered_backup_names_is_bounded(bench, tmp_path):
    """Beyond the bound files fail: without their names, a backup could replace them."""
    make(tmp_path, {"tree": {"%03d~" % n: b"x" for n in range(300)}, "to": {}})
    r = bench.copy("-a", "--backup", str(tmp_path / "tree") + "/", str(tmp_path / "to"),
                   env={"SLUICE_FAULT": "bound:by=%d" % (1 << 16)})
    assert r.code in (22, 23) and "too many names of backups to keep in memory" in r.errors(), (r.code, r.errors())


@pytest.mark.parametrize("aside", ["aside", "as/ide", "kept/aside"])
def test_backup_dir_in_the_target_is_not_deleted(bench, tmp_path, way, aside):
    """While the option is given; a later run without it does not know the directory, nor does rsync."""
    make(tmp_path, {"tree": {"f": b"0", "kept": {}}})
    words = [way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to")]
    for content in (b"1", b"2", b"3"):
        make(tmp_path, {"tree": {"f": content}})
        r = bench.copy("-a", "--backup", "--backup-dir=" + aside, "--delete", *words)
        assert r.code == 0, r.errors()
    kept = {"f": b"2"}
    for part in reversed(aside.split("/")):
        kept = {part: kept}
    assert read(tmp_path / "to") == {"f": b"3", "kept": {}, **kept}
    r = bench.copy("-a", "--delete", *words)
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == read(tmp_path / "tree")


def test_parents_of_a_future_backup_dir_are_not_deleted(bench, tmp_path, way):
    """From the first run on: a directory that could not be removed as a whole keeps its entries."""
    tree, old = {"f": b"0"}, {"f": b"1", "gone": {"x": b"x"}, "old": {"g": b"g", "d": {"h": b"h"}}}
    make(tmp_path, {"tree": tree, "to": old})
    words = ["--backup", "--backup-dir=old/d/as/ide", "--delete", way[0] + str(tmp_path / "tree") + "/",
             way[1] + str(tmp_path / "to")]
    for _ in range(2):
        r = bench.copy("-a", *words)
        assert r.code == 0, r.errors()
        aside = {"f": b"1", "gone": {"x": b"x"}}
        assert read(tmp_path / "to") == {"f": b"0", "old": {"g": b"g", "d": {"h": b"h", "as": {"ide": aside}}}}
    make(tmp_path, {"tree": {"old": b"a file"}, "to": {"old": {"d": {"as": {}}}}})
    was = read(tmp_path / "to" / "old")
    r = bench.copy("-a", *words)
    assert r.code == 23 and read(tmp_path / "to" / "old") == was, (r.code, r.errors())


def test_backup_is_the_old_inode(bench, tmp_path, way):
    make(tmp_path, {"in": b"new", "out": b"old"})
    (tmp_path / "out").chmod(0o640)
    dated(tmp_path / "out", NOW)
    was = (tmp_path / "out").stat()
    r = bench.copy("--backup", "--suffix=.bak", way[0] + str(tmp_path / "in"), way[1] + str(tmp_path / "out"))
    assert r.code == 0, r.errors()
    now = (tmp_path / "out.bak").stat()
    assert (now.st_ino, now.st_mode, now.st_mtime_ns) == (was.st_ino, was.st_mode, was.st_mtime_ns)
    assert (tmp_path / "out").read_bytes() == b"new" and stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_unchanged_files_are_not_backed_up(bench, tmp_path):
    make(tmp_path, {"tree": {"f": b"1", "l": "f", "d": {}}})
    for _ in range(2):
        r = bench.copy("-a", "--backup", "tree/", "far:%s" % (tmp_path / "to"))
        assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == read(tmp_path / "tree")


# ---- removing sources -----------------------------------------------------------------------


def test_remove_source_files_matches_rsync(bench, tmp_path, way):
    tree = {"f": b"1", "d": {"g": b"2", "e": {}}, "l": "f", "x.o": b"3"}
    make(tmp_path, {"a": tree, "b": tree, "ours": {"f": b"1"}, "theirs": {"f": b"1"}})
    for path in ("a/f", "b/f", "ours/f", "theirs/f"):
        dated(tmp_path / path, NOW)
    rsync("-a", "--remove-source-files", "--exclude=*.o", "a/", "theirs/", cwd=tmp_path)
    r = bench.copy("-a", "--remove-source-files", "--exclude=*.o", way[0] + str(tmp_path / "b") + "/",
                   way[1] + str(tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "b") == read(tmp_path / "a") == {"d": {"e": {}}, "x.o": b"3"}
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


def test_sources_that_exist_at_the_target_are_compared_and_removed(bench, tmp_path, way):
    """So that an interrupted run can be completed; an equal time is not sufficient."""
    big, other = pattern(5 << 20), pattern(5 << 20, 7)
    make(tmp_path, {"tree": {"same": b"1", "empty": b"", "big": big, "d": {"differs": b"2", "big differs": big}},
                    "to": {"same": b"1", "empty": b"", "big": big, "d": {"differs": b"3", "big differs": other}}})
    for name in ("same", "empty", "big", "d/differs", "d/big differs"):
        for top in ("tree", "to"):
            dated(tmp_path / top / name, NOW)
    r = bench.copy("-a", "--remove-source-files", "--json", way[0] + str(tmp_path / "tree") + "/",
                   way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert summary(r)["same"] == 3 and summary(r)["files"] == 2, summary(r)
    assert read(tmp_path / "tree") == {"d": {}}
    assert read(tmp_path / "to") == {"same": b"1", "empty": b"", "big": big, "d": {"differs": b"2", "big differs": big}}


@pytest.mark.parametrize("options", [["-a"], ["-aH"], ["-r", "--checksum"], ["-rH", "--checksum"], ["-r"], ["-rH"], ["-r", "--inplace"],
                                     ["-a", "--inplace"], ["-aH", "--inplace"], ["-rH", "--inplace"]], ids=" ".join)
def test_source_that_is_the_target_itself_is_not_removed(bench, tmp_path, options):
    """Only the ends can detect it: both hosts have mounted one file system."""
    make(tmp_path, {"tree": {"f": b"1", "empty": b"", "big": pattern(5 << 20), "d": {"g": b"2"}}})
    os.link(tmp_path / "tree" / "f", tmp_path / "tree" / "d" / "f")
    os.link(tmp_path / "tree" / "big", tmp_path / "tree" / "d" / "big")
    os.symlink("f", tmp_path / "tree" / "l")
    os.link(tmp_path / "tree" / "l", tmp_path / "tree" / "d" / "l")
    was = read(tmp_path / "tree")
    # So that the ends do not detect that they are on one machine.
    env = failing(tmp_path, "open", errno.ENOENT, name="/proc/sys/kernel/random/boot_id")
    for _ in range(2):
        r = bench.copy(*options, "--remove-source-files", "tree", "far:%s" % tmp_path, env=env)
        assert (tmp_path / "failed").exists()
        assert r.code == 23, (r.code, r.errors())
        assert read(tmp_path / "tree") == was, r.errors()


@pytest.mark.parametrize("option", ["-a", "-aH"])
def test_hard_linked_sources_that_exist_at_the_target_are_removed(bench, tmp_path, way, option):
    for top in ("tree", "to"):
        make(tmp_path, {top: {"f": b"1", "empty": b""}})
        for name in ("f", "empty"):
            dated(tmp_path / top / name, NOW)
            os.link(tmp_path / top / name, tmp_path / top / (name + "2"))
    r = bench.copy(option, "--remove-source-files", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "tree") == {}
    assert read(tmp_path / "to") == {"f": b"1", "f2": b"1", "empty": b"", "empty2": b""}


def test_hard_linked_sources_that_partly_exist_at_the_target_are_removed(bench, tmp_path, way):
    """The removal of one name is no change of the file with which the others are compared."""
    tree = {name: data for data in (b"1", pattern(1 << 20)) for name in ["%s%d" % (len(data), i) for i in range(4)]}
    make(tmp_path, {"tree": {}, "to": {}})
    for name in tree:
        if name.endswith("0"):
            make(tmp_path / "tree", {name: tree[name]})
        else:
            os.link(tmp_path / "tree" / (name[:-1] + "0"), tmp_path / "tree" / name)
        if name.endswith("2"):
            make(tmp_path / "to", {name: tree[name]})
    r = bench.copy("-a", "--remove-source-files", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "tree") == {} and read(tmp_path / "to") == tree


@two_users
def test_sources_whose_target_could_not_be_updated_stay(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"1", "g": b"2", "h": b"3"}, "to": {"f": b"1", "g": b"2"}})
    for name in ("f", "g"):
        for top in ("tree", "to"):
            dated(tmp_path / top / name, NOW)
    (tmp_path / "tree" / "f").chmod(0o600)
    open_up(tmp_path)
    for name in ("tree", "tree/f", "tree/g", "tree/h", "to", "to/g"):
        os.chown(tmp_path / name, 65534, 65534)
    r = bench.copy("-r", "--perms", "--times", "--remove-source-files", way[0] + str(tmp_path / "tree") + "/",
                   way[1] + str(tmp_path / "to"), become=as_nobody())
    assert r.code == 23 and "f" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "tree") == {"f": b"1"}
    assert read(tmp_path / "to") == {"f": b"1", "g": b"2", "h": b"3"}


@pytest.mark.parametrize("options", [["-u"], ["--ignore-existing"]], ids=" ".join)
def test_excluded_sources_are_not_removed(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {"f": b"1", "empty": b"", "g": b"2"}, "to": {"f": b"3", "empty": b"full"}})
    dated(tmp_path / "tree" / "f", NOW)
    dated(tmp_path / "tree" / "empty", NOW)
    r = bench.copy("-a", "--remove-source-files", *options, way[0] + str(tmp_path / "tree") + "/",
                   way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "tree") == {"f": b"1", "empty": b""}
    assert read(tmp_path / "to") == {"f": b"3", "empty": b"full", "g": b"2"}


def test_failed_sources_are_not_removed(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"1", "d": b"2"}, "to": {"d": {"in it": b""}}})
    r = bench.copy("-r", "--remove-source-files", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 23, (r.code, r.errors())
    assert read(tmp_path / "tree") == {"d": b"2"}
    assert read(tmp_path / "to") == {"f": b"1", "d": {"in it": b""}}


def test_mkpath_makes_the_path_to_a_tree(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"1", "d": {"g": b"2"}}})
    for source, to in (("tree", "x/y/z"), ("tree/", "v/w/")):
        r = bench.copy("-r", "--mkpath", way[0] + str(tmp_path) + "/" + source, way[1] + str(tmp_path) + "/" + to)
        assert r.code == 0, r.errors()
        assert read(tmp_path / to) == read(tmp_path / "tree")


@pytest.mark.needs("root", why="root can read everything")
@pytest.mark.parametrize("options", [["-a", "-u"], ["-aX", "-u"], ["-aA", "-u"], ["-rX", "--ignore-existing"],
                                     ["-aHX", "-u"], ["-aX", "-u", "--checksum"]], ids=" ".join)
def test_skipped_files_need_not_be_readable(bench, tmp_path, way, options):
    """Also where their attributes cannot be read either."""
    make(tmp_path, {"tree": {"f": b"source", "g": b"g", "h": b"h", "new": b"new"}, "to": {"f": b"newer", "g": b"g"}})
    os.link(tmp_path / "tree" / "h", tmp_path / "tree" / "i")
    shutil.copy2(tmp_path / "tree" / "h", tmp_path / "to" / "h")
    shutil.copy2(tmp_path / "tree" / "h", tmp_path / "to" / "i")
    for name in "fghi":
        os.utime(tmp_path / "to" / name, (2000000000, 2000000000))
        (tmp_path / "tree" / name).chmod(0)
    open_up(tmp_path)
    subprocess.run(["chown", "-R", "65534:65534", tmp_path / "to", tmp_path / "tree"], check=True)
    r = bench.copy(*options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"), become=as_nobody())
    assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"newer", "g": b"g", "h": b"h", "i": b"h", "new": b"new"}
    os.unlink(tmp_path / "to" / "f")
    r = bench.copy(*options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"), become=as_nobody())
    assert r.code == 23 and "f: Permission denied" in r.errors() and "1 of 6" in r.errors(), (r.code, r.errors())


# ---- lists of failed files ------------------------------------------------------------------


def test_list_of_failed_files_serves_the_next_run(bench, tmp_path, way):
    names = ["a", "b\nc", "#d", " e ", "d/f", "-g", "\u00e4"]
    make(tmp_path, {"tree": {"a": b"1", "d": {}}, "to": {"a": {"in the way": b""}}})
    (tmp_path / "list").write_bytes(b"".join(os.fsencode(n) + b"\0" for n in names))
    source, target = way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to")
    words = ["--files-from=list", "--from0", "--failed=list", source, target]
    r = bench.copy(*words)
    assert r.code == 23, (r.code, r.errors())
    assert sorted((tmp_path / "list").read_bytes().split(b"\0")) == sorted([b"", *map(os.fsencode, names)])
    for name in names[1:-1]:
        make(tmp_path / "tree" / os.path.dirname(name), {os.path.basename(name): b"x"})
    subprocess.run(["rm", "-r", tmp_path / "to" / "a"], check=True)
    r = bench.copy(*words)
    assert r.code == 23, (r.code, r.errors())
    assert (tmp_path / "list").read_bytes() == os.fsencode(names[-1]) + b"\0"
    make(tmp_path / "tree", {names[-1]: b"y"})
    r = bench.copy(*words)
    assert r.code == 0, r.errors()
    assert (tmp_path / "list").read_bytes() == b""
    assert read(tmp_path / "to") == read(tmp_path / "tree")


def test_failed_names_are_relative_to_the_source(bench, tmp_path, way):
    """However the source is spelled."""
    for source in ("tree", "tree/", "tree/."):
        subprocess.run(["rm", "-rf", tmp_path / "tree", tmp_path / "to"], check=True)
        make(tmp_path, {"tree": {"f": b"1", "d": {"g": b"2"}}, "to": {"d": {"g": {"in the way": b""}}}})
        target = tmp_path / "to"
        if source == "tree":
            make(tmp_path, {"up": {}})
            (tmp_path / "to").rename(tmp_path / "up" / "tree")
            (tmp_path / "up").rename(tmp_path / "to")
            target = tmp_path / "to" / "tree"
        r = bench.copy("-r", "--failed=failed", way[0] + str(tmp_path) + "/" + source, way[1] + str(tmp_path / "to"))
        assert r.code == 23 and "d/g" in r.errors(), (r.code, r.errors())
        assert (tmp_path / "failed").read_bytes() == b"d/g\0"
        (target / "d" / "g" / "in the way").unlink()
        r = bench.copy("--files-from=failed", "--from0", way[0] + str(tmp_path / "tree"), way[1] + str(target))
        assert r.code == 0, r.errors()
        assert read(target) == read(tmp_path / "tree")


@two_users
def test_directory_that_cannot_be_made_is_one_message(bench, tmp_path, way):
    """With a count, however many entries it has; all of them are on the list for the next run."""
    inside = {"f%d" % i: b"f" for i in range(30)}
    make(tmp_path, {"tree": {"ok": b"1", "d": {"closed": {**inside, "sub": {"g": b"g", "l": "g", "big": bytes(5 << 20)}}}},
                    "to": {"d": {}}})
    open_up(tmp_path)
    for name in ("tree", "to"):
        (tmp_path / name).chmod(0o777)
    r = bench.copy("-r", "--failed=failed", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"),
                   become=as_nobody())
    assert r.code == 23, (r.code, r.errors())
    lines = r.errors().splitlines()
    assert len(lines) == 3 and "make directory" in lines[0] and "closed" in lines[0], lines
    assert "closed" in lines[1] and "34" in lines[1], lines
    assert "35 of" in lines[2], lines
    want = {"d/closed", "d/closed/sub", *["d/closed/" + n for n in inside], *["d/closed/sub/" + n for n in ("g", "l", "big")]}
    assert {os.fsdecode(n) for n in (tmp_path / "failed").read_bytes().split(b"\0")[:-1]} == want
    assert read(tmp_path / "to") == {"ok": b"1", "d": {}}
    # The top of the tree has a name on the list as well.
    r = bench.copy("-r", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to" / "d" / "new"), become=as_nobody())
    assert r.code == 23 and "DST could not be created, nor could 37 entries" in r.errors(), (r.code, r.errors())


# ---- reports --------------------------------------------------------------------------------


@pytest.mark.parametrize("digest,check", [("", ["xxh128sum", "-c"]), ("=sha256", ["sha256sum", "-c", "--strict"]),
                                          ("=md5", ["md5sum", "-c", "--strict"])])
def test_printed_digests_are_accepted_by_the_digest_tools(bench, tmp_path, way, digest, check):
    make(tmp_path, {"tree": {"a": b"a", "empty": b"", "b b": pattern(300000), " c ": b"c", "d": {"*e": pattern(5 << 20)}}})
    if not digest:
        assert subprocess.run(["which", "xxh128sum"], capture_output=True).returncode == 0
    elif digest:
        make(tmp_path / "tree", {"n\nl": b"1", "b\\s": b"2", "\r": b"3"})
    for options, count in ((["-r"], "all"), (["-a"], "all"), (["-a"], "again")):
        r = bench.copy(*options, "--print-digest" + digest, way[0] + str(tmp_path / "tree") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 0, r.errors()
        lines = bytes(r.out).splitlines()
        if count == "again" and not lines:
            continue  # nothing was sent
        assert len(lines) == (5 if not digest else 8), lines
        for top in ("tree", "to"):
            done = subprocess.run(check, cwd=tmp_path / top, input=bytes(r.out), capture_output=True,
                                  env={**os.environ, "LC_ALL": "C"})
            assert done.returncode == 0, (done.stdout, done.stderr)
    # And the tool does check.
    (tmp_path / "to" / "a").write_bytes(b"b")
    done = subprocess.run(check, cwd=tmp_path / "to", input=bytes(r.out) or b"x", capture_output=True)
    assert done.returncode != 0


def test_print_digest_works_for_one_file(bench, tmp_path, way):
    make(tmp_path, {"dir": {"in": pattern(700000)}})
    r = bench.copy("--print-digest=sha256", way[0] + str(tmp_path / "dir" / "in"), way[1] + str(tmp_path / "out"))
    assert r.code == 0, r.errors()
    done = subprocess.run(["sha256sum", "-c"], cwd=tmp_path / "dir", input=bytes(r.out), capture_output=True)
    assert done.returncode == 0 and done.stdout == b"in: OK\n", (bytes(r.out), done.stderr)


def numbers(text):
    """{what: number} of --stats."""
    return {line.split(":")[0]: int(line.split(":")[1].split()[0]) for line in text.splitlines()
            if ":" in line and line.split(":")[1].split()[0].isdigit()}


def test_stats_are_printed(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": bytes(1000), "g": b"2" * 500, "d": {"e": {}}, "l": "f"}, "to": {"gone": b"", "g": b"2" * 500}})
    for name in ("tree/g", "to/g"):
        dated(tmp_path / name, NOW)
    r = bench.copy("-n", "-a", "--stats", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    # f is missing there, but with -n nothing is sent.
    assert (numbers(r.errors())["files sent"], numbers(r.errors())["files not sent"]) == (0, 2), r.errors()
    r = bench.copy("-a", "--delete", "--stats", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert not r.out
    got = numbers(r.errors())
    assert (got["files sent"], got["files not sent"], got["bytes of files sent"], got["deleted"], got["failed"]) == \
        (1, 1, 1000, 1, 0), got
    # f, d, d/e and l; the top existed.
    assert got["created"] == 4, got
    assert "requested:" in r.errors() and "2 regular" in r.errors() and "1 symlinks" in r.errors(), r.errors()


def test_json_objects_are_printed(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"12345", "bad \x01\n": b"6", "d": {"in the way": b"7"}, "l": "f"},
                    "to": {"gone": b"", "d": {"in the way": {"x": b""}}}})
    r = bench.copy("-r", "--delete", "--json", "--exclude=x", way[0] + str(tmp_path / "tree") + "/",
                   way[1] + str(tmp_path / "to"))
    assert r.code == 23, (r.code, r.errors())
    assert [x["type"] for x in told(r)][::len(told(r)) - 1] == ["start", "summary"]
    assert all(x["v"] == 1 for x in told(r))
    files = {(x["path"], x["deleted"]): x for x in told(r, "file")}
    assert files["f", False]["size"] == 5 and files["f", False]["exit"] == 0
    assert files["d/in the way", False]["exit"] != 0
    assert ("gone", True) not in files, "nothing is deleted where something failed"
    assert files["l", False]["what"] == "symlink"
    assert any("bad" in path for path, _ in files)
    assert told(r, "error"), "the failure is told as an object, too"
    s = summary(r)
    assert (s["exit"], s["files"], s["bytes"], s["failed"]) == (23, 2, 6, 1), s
    (tmp_path / "to" / "d" / "in the way" / "x").unlink()
    r = bench.copy("-r", "--delete", "--json", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    files = {(x["path"], x["deleted"]): x for x in told(r, "file")}
    assert r.code == 0 and files["gone", True]["exit"] == 0, (r.code, r.errors())


def test_json_reports_progress(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f%d" % i: pattern(2 << 20) for i in range(4)}})
    r = bench.copy("-r", "--json", "--bwlimit=3M", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    seen = told(r, "progress")
    assert seen and all(x["bytes"] <= 8 << 20 for x in seen)
    assert [x["bytes"] for x in seen] == sorted(x["bytes"] for x in seen)
    assert seen[-1]["total_known"] and seen[-1]["total"] == 8 << 20


def test_log_file_lists_each_file(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"1", "d": {"g\n": b"2"}, "x": b"3"}, "to": {"x": {"in the way": b""}, "gone": b""}})
    words = ["-r", "--delete", "--log-file=log", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to")]
    for runs in (1, 2):
        r = bench.copy("--exclude=in the way", *words)
        assert r.code == 23, (r.code, r.errors())
        log = (tmp_path / "log").read_text()
        assert log.count("exit 23") == runs, log
    lines = log.splitlines()
    # The time comes first, so that lines can be sorted; each file once per run.
    assert all(line[:2] == "20" and line[4] == "-" for line in lines), lines
    assert sum(line.endswith(" f") for line in lines) == 2
    assert sum("failed" in line and line.endswith(" x") for line in lines) == 2
    assert not any("deleting" in line for line in lines), "nothing is deleted where something failed"
    assert bench.copy(*words).code == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum("deleting" in line and line.endswith(" gone") for line in lines) == 1
    assert any("d/g\\" in line for line in lines), lines


def test_quiet_prints_nothing(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"1"}})
    r = bench.copy("-aq", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"))
    assert r.code == 0 and not r.out and not r.err, r.errors()


def test_verify_and_update_work_together(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": pattern(5 << 20), "g": b"", "d": {"h": b"h"}}})
    for _ in range(2):
        r = bench.copy("-a", "--verify", "--print-digest=md5", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
        assert r.code == 0, r.errors()
        before = untouched(tmp_path / "to")
    assert shape(tmp_path / "to") == shape(tmp_path / "tree") and before and not stale(tmp_path / "to")


@pytest.mark.parametrize("sources", [["s/f", "s"], ["s", "s/f"], ["s/f", "s/f"], ["./s/f", "s/f", "s/", "s/f", "s"],
                                     ["s/d/g", "s/d", "s"], ["./s/./f", "./s/."]], ids=" ".join)
def test_source_named_twice_keeps_the_first_backup(bench, tmp_path, sources):
    make(tmp_path, {"s": {"f": b"new", "d": {"g": b"new"}},
                    "t": {"s": {"f": b"older", "d": {"g": b"older"}}, "f": b"older", "d": {"g": b"older"}}})
    r = bench.copy("-r", "--relative", "--backup", *sources, "t", cwd=tmp_path)
    assert r.code == 0, r.errors()
    kept = [p for p in (tmp_path / "t").rglob("*~")]
    assert kept and {p.read_bytes() for p in kept} == {b"older"}, kept
    for p in kept:
        assert p.with_name(p.name[:-1]).read_bytes() == b"new"


def test_first_of_two_files_with_one_relative_path_counts(bench, tmp_path):
    # The first counts.
    make(tmp_path, {"a": {"f": b"1"}, "b": {"f": b"2"}, "t": {"f": b"older"}})
    r = bench.copy("-r", "--relative", "--backup", "--remove-source-files", "a/./f", "b/./f", "t", cwd=tmp_path)
    assert r.code == 23 and "b/./f: an earlier source has the same name" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "t") == {"f": b"1", "f~": b"older"}
    assert read(tmp_path / "a") == {} and read(tmp_path / "b") == {"f": b"2"}


def test_source_named_twice_is_removed_once(bench, tmp_path, way):
    make(tmp_path, {"s": {"f": b"1"}, "t": {"f": b"1", "s": {"f": b"1"}}})
    for p in ("s/f", "t/f", "t/s/f"):
        dated(tmp_path / p, NOW)
    r = bench.copy("-a", "--remove-source-files", way[0] + str(tmp_path / "s" / "f"), way[0] + str(tmp_path / "s"),
                   way[1] + str(tmp_path / "t"))
    # The second session finds it, or the first has removed it before.
    assert r.code in (0, 24) and "remove" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "t") == {"f": b"1", "s": {"f": b"1"}} and read(tmp_path / "s") == {}


def test_empty_sources_that_exist_at_the_target_are_removed(bench, tmp_path, way):
    make(tmp_path, {"s": {"same": b"", "newer there": b"", "longer there": b"", "new": b""},
                    "t": {"same": b"", "newer there": b"", "longer there": b"x"}})
    for p in ("s/same", "s/longer there", "t/newer there"):
        dated(tmp_path / p, NOW + SECOND)
    for p in ("t/same", "t/longer there", "s/newer there"):
        dated(tmp_path / p, NOW)
    r = bench.copy("-a", "-u", "--checksum", "--remove-source-files", way[0] + str(tmp_path / "s") + "/",
                   way[1] + str(tmp_path / "t"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "s") == {"newer there": b""}
    assert read(tmp_path / "t") == {"same": b"", "newer there": b"", "longer there": b"", "new": b""}


@pytest.mark.parametrize("names,code", [("fl", 23), ("l", 3)])
def test_dangling_link_matched_by_a_pattern_is_missing(bench, tmp_path, names, code):
    make(tmp_path, {"s": {n: b"1" if n == "f" else "nowhere" for n in names}, "t": {}})
    r = bench.copy("-r", "far:%s/s/*" % tmp_path, str(tmp_path / "t") + "/")
    assert r.code == code, (r.code, r.errors())
    assert "vanished" not in r.errors()


@pytest.mark.needs("root", why="it takes root to be another user")
def test_file_with_mode_0_is_synced(bench, tmp_path):
    open_up(tmp_path)
    make(tmp_path, {"s": {"f": b"1"}, "t": {"f": b"1"}})
    for top in ("s", "t"):
        dated(tmp_path / top / "f", NOW)
        for p in (tmp_path / top, tmp_path / top / "f"):
            os.chown(p, 65534, 65534)
        (tmp_path / top / "f").chmod(0)
    r = bench.copy("-a", "--fsync", str(tmp_path / "s") + "/", str(tmp_path / "t"), become=as_nobody())
    assert r.code == 0, r.errors()


@pytest.mark.needs("root", why="it takes root to be another user")
@pytest.mark.parametrize("option", ["--max-size=3", "--min-size=5"])
def test_files_excluded_by_size_are_not_opened(bench, tmp_path, way, option):
    open_up(tmp_path)
    make(tmp_path, {"s": {"left out": b"1234", "d": {"f": b"1" * (2 if "max" in option else 6)}}})
    (tmp_path / "s" / "left out").chmod(0)
    r = bench.copy("-r", option, way[0] + str(tmp_path / "s") + "/", way[1] + str(tmp_path / "t"), become=as_nobody())
    assert r.code == 0, r.errors()
    assert list(read(tmp_path / "t")) == ["d"]


def test_inplace_overwrites_no_removed_source(bench, tmp_path, way):
    make(tmp_path, {"s": {"a": b"a", "b": b"bb", "c": b"ccc"}, "t": {"a": b"old"}})
    for name in "bc":
        os.link(tmp_path / "t" / "a", tmp_path / "t" / name)
    r = bench.copy("-r", "--inplace", "--remove-source-files", way[0] + str(tmp_path / "s") + "/",
                   way[1] + str(tmp_path / "t"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "t") == {"a": b"a", "b": b"bb", "c": b"ccc"} and read(tmp_path / "s") == {}


@pytest.mark.parametrize("old", [b"old", None], ids=["replaced", "new"])
def test_target_removed_while_it_is_written_inplace_is_a_failure(bench, tmp_path, old):
    """With --remove-source-files the content would be lost."""
    data = pattern(40 * (256 << 10))
    make(tmp_path, {"tree": {"f": data}, "to": {"f": old} if old else {}})
    stall = ";".join("stall:lane=%d,block=%d,ms=%d" % (lane, b, 600 * SLOW) for lane in (0, 1) for b in (1, 2, 3))
    run = bench.copy("-r", "--inplace", "--remove-source-files", "tree/", "far:%s" % (tmp_path / "to"), cwd=tmp_path,
                     wait=False, env={"SLUICE_FAULT": stall})
    wait_until(lambda: (tmp_path / "to" / "f").exists() and (tmp_path / "to" / "f").stat().st_size > 3)
    (tmp_path / "to" / "f").unlink()
    assert run.wait() == 23 and "No such file" in run.errors(), run.errors()
    assert read(tmp_path / "tree") == {"f": data} and read(tmp_path / "to") == {}


def test_hard_links_of_removed_sources_stay_linked(bench, tmp_path, way):
    """A name is removed as soon as it is stored, while other names of the file are still to be found."""
    make(tmp_path, {"s": {"d%d" % n: {} for n in range(200)}})
    for n in range(100):
        make(tmp_path / "s" / ("d%d" % n), {"f": b"%d" % n})
        os.link(tmp_path / "s" / ("d%d" % n) / "f", tmp_path / "s" / ("d%d" % (n + 100)) / "f")
    r = bench.copy("-rH", "--remove-source-files", "--lanes=4", way[0] + str(tmp_path / "s") + "/",
                   way[1] + str(tmp_path / "t"))
    assert r.code == 0, r.errors()
    assert not [p for p in (tmp_path / "s").rglob("f")]
    for n in range(100):
        one, other = [tmp_path / "t" / ("d%d" % i) / "f" for i in (n, n + 100)]
        assert one.read_bytes() == b"%d" % n and one.samefile(other), n


@pytest.mark.needs("root", why="it takes root to be another user")
def test_inplace_needs_write_permission(bench, tmp_path, way):
    """Without --inplace the file would be replaced."""
    open_up(tmp_path)
    make(tmp_path, {"tree": {"f": b"new", "g": b"new"}, "to": {"f": b"old", "g": b"old"}})
    for top in ("tree", "to"):
        for p in (tmp_path / top, tmp_path / top / "f", tmp_path / top / "g"):
            os.chown(p, 65534, 65534)
    (tmp_path / "to" / "f").chmod(0o444)
    for options, code, is_ in (["--inplace"], 23, b"old"), ([], 0, b"new"):
        r = bench.copy("-rI", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"), become=as_nobody())
        assert r.code == code and (not code or "Permission denied" in r.errors()), (r.code, r.errors())
        assert read(tmp_path / "to") == {"f": is_, "g": b"new"}, options
