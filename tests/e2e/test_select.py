# SPDX-License-Identifier: Apache-2.0
"""Which part of a tree is copied, and how: patterns, lists, sizes, file systems, links, modes, owners. Where rsync
has the same option, rsync itself provides the expected result."""

import os
import re
import stat
import subprocess

import pytest

from file_systems import mounted
from hosts import USER, as_nobody, open_up, pattern
from marks import two_users
from trees import WAYS, changes, make, read, rsync, shape, stale, summary, told, untouched, walk, ways

TREE = {
    "a.c": b"1", "a.o": b"2", "core": b"3", ".hidden": b"4", "[x]": b"5", "b~": b"6", "to a.c": "a.c",
    "src": {"main.c": b"7", "main.o": b"8", "core": {"c.c": b"9"}, "deep": {"er": {"x.c": b"a", "x.o": b"b"}},
            "lib.d": {"l.o": b"c", "l.c": b"d"}},
    "doc": {"a.c": b"e", "man": {"x.1": b"f"}, "empty": {}},
    "\u00e4 \n": {"a.o": b"g"},
}
# Options, in order; FILE stands for a file with the lines that follow it.
RULES = [
    ["--exclude=*.o"],
    ["--exclude=/a.c", "--exclude=core/"],
    ["--include=*/", "--include=*.c", "--exclude=*"],
    ["--include=/src/", "--include=/src/deep/***", "--exclude=/src/*", "--exclude=doc/"],
    ["--exclude=deep/*/x.?", "--exclude=/src/lib.d/"],
    ["--exclude=src/**.c"],
    ["--exclude=**/er", "--exclude=\\[x\\]"],
    ["--exclude=[[]x]", "--exclude=[!a-z]*"],
    ["--exclude-from=FILE", "# c", "; c", "", "- *.o", "+ core/", "core", "*~"],
    ["--include-from=FILE", "- *.c", "+ main.o", "--exclude=*.o"],
    ["--exclude=*.c", "--exclude=!", "--exclude=*.1"],
    ["--exclude=doc", "--include=doc/a.c"],
    ["--exclude=/src/deep/er/x.c", "--exclude=er/x.o"],
]

way = ways("push", "pull", "local")


def rsync_version():
    return tuple(int(n) for n in re.search(rb"version (\d+)\.(\d+)", rsync("--version")).groups())


def rule_options(rules, tmp_path):
    lines = [line for line in rules if not line.startswith("--")]
    (tmp_path / "rules").write_text("".join(line + "\n" for line in lines))
    return [o.replace("=FILE", "=%s" % (tmp_path / "rules")) for o in rules if o.startswith("--")]


# ---- patterns ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(len(RULES)), ids=[" ".join(r[:2]) for r in RULES])
def test_patterns_match_rsync(bench, tmp_path, n):
    make(tmp_path, {"tree": TREE, "ours": {}, "theirs": {}})
    near, far = list(WAYS.values())[n % 4]
    options = rule_options(RULES[n], tmp_path)
    for source in ("tree/", "tree"):  # the contents; the tree as it exists at DST
        rsync("-rl", *options, source, "theirs/", cwd=tmp_path)
        r = bench.copy("-r", *options, near + str(tmp_path) + "/" + source, far + str(tmp_path / "ours"))
        assert r.code == 0, r.errors()
        assert read(tmp_path / "ours") == read(tmp_path / "theirs")


def test_pattern_may_exclude_the_source_itself(bench, tmp_path, way):
    make(tmp_path, {"tree": {"tree": b"", "x": b""}, "other": b"", "to": {}})
    r = bench.copy("-r", "--exclude=/tree/tree", "--exclude=other", way[0] + str(tmp_path / "tree"),
                   way[0] + str(tmp_path / "other"), way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"tree": {"x": b""}}


def test_patterns_are_read_from_stdin_with_from0(bench, tmp_path):
    make(tmp_path, {"tree": {"a\nb": b"", "#c": b"", "d": b"", "e": b""}})
    with open(tmp_path / "rules", "wb") as f:
        f.write(b"a\nb\0#c\0\0- d\0")
    with open(tmp_path / "rules", "rb") as rules:
        r = bench.copy("-r", "--exclude-from=-", "--from0", "tree", "far:%s" % (tmp_path / "to"), stdin=rules)
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"e": b""}


def test_hostile_pattern_takes_bounded_time(bench, tmp_path):
    make(tmp_path, {"tree": {"a" * 255: {"a" * 255: b"x"}}})
    r = bench.copy("-r", "--exclude=" + "*a" * 200 + "b", "--exclude=" + "**a" * 200 + "/b", "tree",
                   "far:%s" % (tmp_path / "to"), timeout=20)
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == read(tmp_path / "tree")


def test_too_long_pattern_is_refused(bench, tmp_path):
    make(tmp_path, {"tree": {}})
    r = bench.copy("-r", "--exclude=" + "x" * 5000, "tree", "far:%s" % (tmp_path / "to"))
    assert r.code == 1 and "xxx" in r.errors(), (r.code, r.errors())
    r = bench.copy("-r", "--exclude-from=none", "tree", "far:%s" % (tmp_path / "to"))
    assert r.code == 1 and "none" in r.errors(), (r.code, r.errors())


# ---- lists ---------------------------------------------------------------------------------

LISTS = [
    b"a.c\nsrc/main.c\n",
    b"src/deep\ndoc/man/x.1\n",
    b"# a comment\n; another\n\n./src//deep/er/x.c\n/doc/empty\nto a.c\n",
    b"src\nsrc/main.c\n",
    b".hidden\r\n[x]\n",
    b"a.c",
]


@pytest.mark.parametrize("n", range(len(LISTS)))
@pytest.mark.parametrize("recursive", [False, True], ids=["plain", "r"])
def test_files_from_matches_rsync(bench, tmp_path, n, recursive):
    make(tmp_path, {"tree": TREE, "ours": {}, "theirs": {}})
    near, far = list(WAYS.values())[n % 4]
    (tmp_path / "list").write_bytes(LISTS[n])
    options = ["-r"] * recursive + ["--files-from=%s" % (tmp_path / "list")]
    rsync("-l", *options, "tree/", "theirs/", cwd=tmp_path)
    for source in ("tree", "tree/"):
        r = bench.copy(*options, near + str(tmp_path) + "/" + source, far + str(tmp_path / "ours"))
        assert r.code == 0, r.errors()
        assert read(tmp_path / "ours") == read(tmp_path / "theirs")
    assert not stale(tmp_path / "ours")


def test_files_from_reads_stdin(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a\nb": b"1", "#c": b"2", " d ": {"e": b"3"}, "f": b"4"}})
    (tmp_path / "list").write_bytes(b"a\nb\0#c\0 d /e")
    with open(tmp_path / "list", "rb") as names:
        r = bench.copy("--files-from=-", "--from0", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"),
                       stdin=names)
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"a\nb": b"1", "#c": b"2", " d ": {"e": b"3"}}


def test_files_from_reads_many_names_from_a_pipe(bench, tmp_path, way):
    files = {"%04d" % i: {"f%d" % i: b"%d" % i} for i in range(300)}
    make(tmp_path, {"tree": {"some": files}})
    with subprocess.Popen(["sh", "-c", "sleep 0.3; find some -name 'f*[02468]'"], cwd=tmp_path / "tree",
                          stdout=subprocess.PIPE) as find:
        r = bench.copy("--files-from=-", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"),
                       stdin=find.stdout)
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"some": {k: v for k, v in files.items() if int(k) % 2 == 0}}


def test_missing_listed_name_fails_alone(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"a", "d": {"b": b"b"}}})
    (tmp_path / "list").write_text("none\na\nd/none\nd/b\na/none\n")
    r = bench.copy("--files-from=list", "--failed=failed", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"))
    assert r.code == 23, (r.code, r.errors())
    assert read(tmp_path / "to") == {"a": b"a", "d": {"b": b"b"}}
    assert sorted((tmp_path / "failed").read_bytes().split(b"\0")) == [b"", b"a/none", b"d/none", b"none"]


def test_listed_names_outside_the_source_are_refused(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"a"}, "secret": b"s"})
    for name in ("../secret", "a/../../secret", ".."):
        (tmp_path / "list").write_text(name + "\n")
        r = bench.copy("-r", "--files-from=list", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"))
        assert r.code == 1 and ".." in r.errors(), (r.code, r.errors())
        assert not (tmp_path / "to" / "secret").exists()


def copy_listed_as_rsync(bench, tmp_path, excluded):
    options = ["-r", "--files-from=list", *("--exclude=" + e for e in excluded)]
    rsync("-l", *options, "tree/", "theirs/", cwd=tmp_path)
    r = bench.copy(*options, "tree", "far:%s" % (tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


@pytest.mark.parametrize("excluded", [["*.o", "/src/deep"], ["doc", "*/"], ["/src", "/src/deep"]], ids=" ".join)
def test_patterns_apply_to_listed_names(bench, tmp_path, excluded):
    """But not to directories that only lead to them."""
    make(tmp_path, {"tree": TREE, "list": b"src\ndoc/a.c\na.o\nsrc/core/c.c\n"})
    copy_listed_as_rsync(bench, tmp_path, excluded)


@pytest.mark.parametrize("excluded", [["core"], ["deep", "*.c"], ["er"], ["src"]], ids=" ".join)
def test_patterns_do_not_apply_to_parents_below_a_listed_directory(bench, tmp_path, excluded):
    """src is copied with everything in it, except what is excluded and not listed."""
    make(tmp_path, {"tree": TREE, "list": b"src\nsrc/core/c.c\nsrc/deep/er/x.c\nsrc/main.c\n"})
    copy_listed_as_rsync(bench, tmp_path, excluded)


def test_delete_with_files_from_is_refused(bench, tmp_path):
    make(tmp_path, {"tree": {}, "list": b"a\n"})
    r = bench.copy("-r", "--delete", "--files-from=list", "tree", "far:%s" % (tmp_path / "to"))
    assert r.code == 1 and "--files-from" in r.errors(), (r.code, r.errors())


# ---- sizes, file systems -------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--max-size=1k"], ["--min-size=1k"], ["--min-size=1", "--max-size=1023"],
                                     ["--max-size=0"], ["--min-size=5k"]], ids=" ".join)
def test_size_limits_match_rsync(bench, tmp_path, way, options):
    make(tmp_path, {"tree": {"%d" % n: bytes(n) for n in (0, 1, 1023, 1024, 1025, 5 << 10, 300 << 10)},
                    "ours": {}, "theirs": {}})
    make(tmp_path / "tree", {"d": {"1": b"1"}, "l": "1024"})
    rsync("-rl", *options, "tree/", "theirs/", cwd=tmp_path)
    r = bench.copy("-r", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


@pytest.fixture
def mount_point(tmp_path):
    """A file system mounted at tree/d/inside."""
    make(tmp_path, {"tree": {"a": b"a", "d": {"b": b"b", "inside": {}}}})
    with mounted(tmp_path / "tree" / "d" / "inside", "-t", "tmpfs", "tmpfs") as inside:
        make(inside, {"c": b"c", "more": {"e": b"e"}})
        yield


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
@pytest.mark.parametrize("which", ["push", "pull"])
def test_one_file_system_skips_mount_points(bench, tmp_path, mount_point, which):
    near, far = WAYS[which]
    r = bench.copy("-rx", near + str(tmp_path / "tree"), far + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == {"a": b"a", "d": {"b": b"b", "inside": {}}}
    # For each source its own file system counts.
    r = bench.copy("-rx", near + str(tmp_path / "tree" / "d" / "inside"), far + str(tmp_path / "inside"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "inside") == {"c": b"c", "more": {"e": b"e"}}
    r = bench.copy("-r", near + str(tmp_path / "tree"), far + str(tmp_path / "all"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "all") == read(tmp_path / "tree")


# ---- dry runs ------------------------------------------------------------------------------


def pair(top, kinds=True):
    """Two trees with a difference for each letter of --itemize-changes."""
    now = 1_500_000_000 * 10**9
    for name, x in (("a", b"a"), ("b", b"b")):
        make(top / name, {"same": b"s", "time": b"t", "mode": b"m", "size": x * (1 + (x == b"b")), "content": x,
                          "touched": b"t", "l same": "same", "l other": name,
                          "d": {"in": b"i"}, "d mode": {}, "only " + name: x, "tree " + name: {"x": {"y": x}},
                          "kind 2": b"" if x == b"a" else "same"})
        if kinds:
            make(top / name, {"kind 1": {} if x == b"a" else b""})
        for path in list(walk(os.fsencode(top / name))):
            os.utime(os.path.join(os.fsencode(top / name), path), ns=(now, now), follow_symlinks=False)
    os.utime(top / "b" / "time", ns=(now, now + 10**9))
    os.utime(top / "a" / "touched", ns=(now, now + 5 * 10**9))
    (top / "b" / "mode").chmod(0o600)
    (top / "b" / "d mode").chmod(0o700)
    if not USER:
        os.chown(top / "b" / "same", 1, 2)


def told_by_rsync(*args, cwd):
    lines = rsync("-ni", *args, cwd=cwd).decode("utf-8", "surrogateescape").splitlines()
    return {line[12:].split(" -> ")[0]: line[:11].strip() for line in lines}


@pytest.mark.parametrize("options", [["-a"], ["-a", "--delete"], ["-a", "--checksum"], ["-a", "-u"],
                                     ["-a", "--ignore-existing"], ["-r", "--links", "--times"],
                                     ["-r", "--links", "--perms", "--times", "--delete"]], ids=" ".join)
def test_dry_run_itemizes_as_rsync(bench, tmp_path, options):
    # In a dry run rsync silently skips a directory whose name is taken, and everything in it.
    pair(tmp_path, kinds="--ignore-existing" not in options)
    before = untouched(tmp_path / "b")
    want = told_by_rsync(*options, "a/", "b/", cwd=tmp_path)
    r = bench.copy("-n", "--itemize-changes", *options, "a/", "b")
    assert r.code == 0, r.errors()
    assert {k: v for k, v in changes(r).items() if v} == want
    assert untouched(tmp_path / "b") == before
    # Then the real run.
    again = bench.copy("--itemize-changes", *options, "a/", "b")
    assert again.code == 0, again.errors()
    assert changes(again) == changes(r)


def test_dry_run_changes_nothing(bench, tmp_path, way):
    make(tmp_path, {"tree": TREE})
    (tmp_path / "tree" / "big").write_bytes(pattern(10 << 20))
    r = bench.copy("-an", "--remove-source-files", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert not (tmp_path / "to").exists()
    assert "big" in changes(r) or "to/big" in changes(r) or "tree/big" in changes(r), changes(r)
    assert {n.split("/")[-1] for n in changes(r)} >= {"main.c", "x.1", "a.c"}
    assert (tmp_path / "tree" / "big").exists()
    r = bench.copy("-n", way[0] + str(tmp_path / "tree" / "big"), way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert not (tmp_path / "to").exists()
    r = bench.copy("-an", "--json", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "to"))
    assert r.code == 0 and summary(r)["bytes"] == 0 and told(r, "file"), (r.code, r.errors())


# ---- links, modes, owners ------------------------------------------------------------------


def test_copy_links_matches_rsync(bench, tmp_path, way):
    make(tmp_path, {"out": {"f": b"f", "d": {"g": b"g"}}, "ours": {}, "theirs": {},
                    "tree": {"f": "../out/f", "d": "../out", "in": {"again": "../f"}, "x": b"x"}})
    rsync("-rL", "tree", "theirs/", cwd=tmp_path)
    r = bench.copy("-r", "--copy-links", way[0] + str(tmp_path / "tree"), way[1] + str(tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


def test_copy_links_copies_links_to_fifos_as_fifos(bench, tmp_path, way):
    make(tmp_path, {"tree": {"l": "../out/p", "f": b"1"}, "out": {}})
    os.mkfifo(tmp_path / "out" / "p", 0o640)
    for _ in range(2):
        r = bench.copy("-aHAX", "--copy-links", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
        assert r.code == 0, r.errors()
        assert stat.S_ISFIFO(os.lstat(tmp_path / "to" / "l").st_mode) and (tmp_path / "to" / "f").read_bytes() == b"1"


def test_dangling_links_fail_unless_excluded(bench, tmp_path, way):
    """They do not count as vanished files."""
    make(tmp_path, {"tree": {"l.o": "nowhere", "f": b"1"}, "list": b"l.o\nf\n"})
    for options in ([], ["--files-from=list"]):
        r = bench.copy("-r", "--copy-links", *options, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
        assert r.code == 23 and "l.o" in r.errors() and "vanished" not in r.errors(), (r.code, r.errors())
    r = bench.copy("-r", "--copy-links", "--exclude=*.o", way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0 and "l.o" not in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"1"}
    # A missing source is not skipped either.
    for options in ([], ["--relative"]):
        r = bench.copy("-r", "--exclude=none", *options, way[0] + str(tmp_path / "none"), way[1] + str(tmp_path / "to"))
        assert r.code == 3 and "none" in r.errors(), (r.code, r.errors())


@pytest.mark.parametrize("sources", [["tree/d/e"], ["tree/d/e/f"], ["tree/./d/e"], ["tree/d/./e"], ["tree/d/e/."],
                                     ["tree/d/e/f", "tree/d/g", "other/x"], ["./tree/d/"], ["tree/./d/e/f", "other/./x"]],
                         ids=" ".join)
def test_relative_matches_rsync(bench, tmp_path, sources):
    make(tmp_path, {"tree": {"a": b"a", "d": {"e": {"f": b"f", "h": b"h"}, "g": b"g"}}, "other": {"x": {"y": b"y"}},
                    "ours": {}, "theirs": {}})
    rsync("-rlR", *sources, "theirs/", cwd=tmp_path)
    r = bench.copy("-r", "--relative", *sources, "far:%s" % (tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")


@pytest.mark.parametrize("sources", [["tree/d"], ["tree/./f"], ["absent"], ["tree/d", "tree/f"]], ids=" ".join)
def test_relative_with_no_target_directory_is_refused(bench, tmp_path, sources):
    """The paths of the sources name what is created, so DST can't be the file or tree itself."""
    make(tmp_path, {"tree": {"d": {"g": b"g"}, "f": b"f"}, "to": {}})
    for to in ("to", "absent", "to/"):
        r = bench.copy("-r", "--relative", "--no-target-directory", *sources, "far:%s" % (tmp_path / to), cwd=tmp_path)
        assert r.code == 1 and "--no-target-directory and --relative" in r.errors(), (r.code, r.errors())
        assert read(tmp_path) == {"tree": {"d": {"g": b"g"}, "f": b"f"}, "to": {}}


def test_relative_with_a_home_directory_is_refused(bench, tmp_path):
    """The near end does not know what ~ is, so it could not check which names it requested."""
    make(tmp_path, {"a": {"b": {"f": b"1"}}, "to": {}})
    r = bench.copy("-r", "--relative", "far:~/a/b", "to", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert r.code == 1 and "~/./a/b" in r.errors(), (r.code, r.errors())
    r = bench.copy("-r", "--relative", "far:~/./a/b", "to", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert r.code == 0 and read(tmp_path / "to") == {"a": {"b": {"f": b"1"}}}, (r.code, r.errors())
    r = bench.copy("-r", "far:~/a/b", "to", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert r.code == 0 and read(tmp_path / "to")["b"] == {"f": b"1"}, (r.code, r.errors())


def test_relative_works_in_a_pull(bench, tmp_path):
    make(tmp_path, {"tree": {"d": {"e": {"f": b"f"}, "g": b"g"}}, "ours": {}})
    r = bench.copy("-a", "--relative", "far:%s/./tree/d/e" % tmp_path, "far:%s/./tree/d/g" % tmp_path, "ours")
    assert r.code == 0, r.errors()
    assert read(tmp_path / "ours") == {"tree": {"d": {"e": {"f": b"f"}, "g": b"g"}}}
    # Implied directories get the source's metadata as well.
    assert (tmp_path / "ours" / "tree").stat().st_mtime_ns == (tmp_path / "tree").stat().st_mtime_ns


@pytest.mark.parametrize("options,chmod", [
    (options, chmod) for options in (["-a"], ["-r"], ["-r", "--perms"])
    for chmod in ("D755,F644", "u=rwX,go=rX", "a-w", "g=u,+X")] + [(["-a"], "go=,Dg+s")])  # only together with the owner
@pytest.mark.may_skip("any", "rsync before 3.5 gives other modes", cases="*g=u*")
def test_chmod_matches_rsync(bench, tmp_path, options, chmod):
    if chmod == "g=u,+X" and rsync_version() < (3, 5):
        pytest.skip("rsync before 3.5 gives other modes")
    make(tmp_path, {"tree": {"f": b"1", "x": b"2", "d": {"g": b"3"}, "old": b"new"}, "ours": {"old": b""},
                    "theirs": {"old": b""}})
    for name, mode in (("f", 0o640), ("x", 0o751), ("d", 0o700), ("d/g", 0o404), ("old", 0o666)):
        (tmp_path / "tree" / name).chmod(mode)
    for to in ("ours", "theirs"):
        (tmp_path / to / "old").chmod(0o604)
    # rsync only compares the mode of an existing file: here it has to send the file.
    rsync(*options, "-I", "-l", "--chmod=" + chmod, "tree/", "theirs/", cwd=tmp_path)
    r = bench.copy(*options, "--chmod=" + chmod, "tree/", "far:%s" % (tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert shape(tmp_path / "ours") == shape(tmp_path / "theirs")


def test_invalid_chmod_is_refused(bench, tmp_path):
    make(tmp_path, {"tree": {}})
    r = bench.copy("-r", "--chmod=u=z", "tree", "far:%s" % (tmp_path / "to"))
    assert r.code == 1 and "u=z" in r.errors(), (r.code, r.errors())
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("name", ["d", "f"])
def test_excluded_source_does_not_examine_the_target(bench, tmp_path, way, name):
    tree = {"d": {"x": b"1"}, "f": b"2"}
    make(tmp_path, dict(tree, to=b"kept"))
    r = bench.copy("-a", "--exclude=" + name, way[0] + str(tmp_path / name), way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path) == dict(tree, to=b"kept")
    rsync("-a", "--exclude=" + name, name, "to", cwd=tmp_path)
    assert read(tmp_path) == dict(tree, to=b"kept")


@pytest.mark.needs("root", why="only root can give files away")
@pytest.mark.parametrize("chown", ["1:2", "daemon:sys", "daemon", ":sys", "1", "daemon:3"])
def test_chown_matches_rsync(bench, tmp_path, way, chown):
    make(tmp_path, {"tree": {"f": b"1", "d": {"g": b"3"}, "l": "f"}, "ours": {}, "theirs": {}})
    rsync("-a", "--chown=" + chown, "tree/", "theirs/", cwd=tmp_path)
    r = bench.copy("-a", "--chown=" + chown, way[0] + str(tmp_path / "tree") + "/", way[1] + str(tmp_path / "ours"))
    assert r.code == 0, r.errors()
    assert shape(tmp_path / "ours") == shape(tmp_path / "theirs")


def test_chown_to_an_unknown_user_is_refused(bench, tmp_path):
    make(tmp_path, {"tree": {}})
    r = bench.copy("-r", "--chown=nobody-of-this-name", "tree", "far:%s" % (tmp_path / "to"))
    assert r.code == 1 and "nobody-of-this-name" in r.errors(), (r.code, r.errors())


@two_users
def test_chown_without_privilege_is_ignored(bench, tmp_path):
    """As in rsync, owners are silently ignored where the user cannot set them."""
    make(tmp_path, {"tree": {"f": b"1"}})
    open_up(tmp_path)
    r = bench.copy("-a", "--chown=daemon", "tree", "far:%s" % (tmp_path / "to"), become=as_nobody())
    assert r.code == 0, r.errors()
    assert (tmp_path / "to" / "f").stat().st_uid == 65534
