# SPDX-License-Identifier: Apache-2.0
"""--existing: existing targets are updated, and nothing new is made. Where rsync has the same option, rsync itself
provides the expected result."""

import os
import shutil
import subprocess

import pytest

from hosts import pattern
from trees import changes, dated, make, read, rsync, summary, told, walk

NOW = 1_600_000_000


def lay_out(top):
    """In "to" a part of what is in "from", some of it with another type."""
    make(top / "from", {
        "new": b"n", "have": b"n", "large": pattern(5 << 20), "large new": pattern(5 << 20, 3), "empty": b"",
        "both": {"new": b"n", "have": b"n", "deep": {"f": b"n"}}, "missing": {"f": b"n", "deep": {"er": b"n"}, "l": "f"},
        "link": "new", "link new": "new", "link for a dir": "new", "file for a link": b"n", "file for a dir": b"n",
        "dir for a file": {"in": b"n", "deep": {}}, "dir for a link": {"have": b"n"}})
    make(top / "to", {
        "have": b"old", "large": b"old", "empty": b"old", "both": {"have": b"old", "gone": b""}, "link": "old",
        "link for a dir": {}, "file for a link": "have", "file for a dir": {}, "dir for a file": b"old",
        "dir for a link": "both", "gone": b"", "gone too": {"f": b""}})
    os.mkfifo(top / "from" / "fifo")
    os.mkfifo(top / "from" / "fifo new")
    make(top / "to", {"fifo": b"old"})
    for tree, time in (("from", NOW), ("to", NOW - 9)):
        for dir, dirs, names in os.walk(top / tree, topdown=False):
            for name in dirs + names:
                dated(os.path.join(dir, name), time)
    dated(top / "to" / "both" / "have", NOW + 9)


def forms(top):
    return {path: (t.kind, t.digest, t.stat.st_mode, t.stat.st_mtime_ns if t.kind != "directory" else 0,
                   os.readlink(os.path.join(os.fsencode(top), path)) if t.kind == "symlink" else None)
            for path, t in walk(os.fsencode(top)).items()}


def kinds(top):
    return {path: t.kind for path, t in walk(os.fsencode(top)).items()}


@pytest.mark.parametrize("options", [["-a"], ["-aH"], ["-a", "--delete"], ["-a", "-u"], ["-a", "--backup"],
                                     ["-a", "--backup", "--backup-dir=aside"], ["-a", "--inplace"],
                                     ["-a", "--checksum"], ["-a", "--exclude=have"], ["-a", "--max-size=1"]],
                         ids=" ".join)
def test_existing_matches_rsync(bench, tmp_path, way, options):
    for side in ("ours", "theirs"):
        lay_out(tmp_path / side)
    before = kinds(tmp_path / "ours" / "to")
    rsync(*options, "--existing", "from/", "to/", cwd=tmp_path / "theirs")
    words = [way[0] + str(tmp_path / "ours" / "from") + "/", way[1] + str(tmp_path / "ours" / "to")]
    r = bench.copy(*options, "--existing", "-n", *words)
    assert r.code == 0 and kinds(tmp_path / "ours" / "to") == before, (r.code, r.errors())
    would = changes(r)
    r = bench.copy(*options, "--existing", "--itemize-changes", *words)
    assert r.code == 0, (r.code, r.errors())
    assert forms(tmp_path / "ours" / "to") == forms(tmp_path / "theirs" / "to")
    assert changes(r) == would
    assert not [p for p in would if "new" in p or "missing" in p], would
    # A second run has nothing to do, although names are still missing.
    r = bench.copy(*options, "--existing", "--itemize-changes", *words)
    assert r.code == 0 and (changes(r) == {} or "--checksum" not in options), changes(r)
    assert forms(tmp_path / "ours" / "to") == forms(tmp_path / "theirs" / "to")


def test_existing_and_ignore_existing_copy_nothing(bench, tmp_path, way):
    lay_out(tmp_path)
    source, before = forms(tmp_path / "from"), forms(tmp_path / "to")
    for options in (["-H"], ["--remove-source-files"], ["--delete"]):
        r = bench.copy("-a", "--existing", "--ignore-existing", *options, way[0] + str(tmp_path / "from") + "/",
                       way[1] + str(tmp_path / "to"))
        assert r.code == 0, (r.code, r.errors())
        gone = [p for p in before if b"gone" in p] if "--delete" in options else []
        assert forms(tmp_path / "to") == {p: t for p, t in before.items() if p not in gone}, options
        assert forms(tmp_path / "from") == source, options


def test_remove_source_files_keeps_skipped_files(bench, tmp_path, way):
    """Even an empty file, which needs no comparison."""
    for options in ([], ["--checksum"], ["-H"], ["--delete"]):
        top = tmp_path / ("-".join(options) or "plain")
        lay_out(top)
        make(top / "from", {"empty new": b"", "same": b"", "missing": {"empty": b""}})
        make(top / "to", {"same": b""})
        for name in ("empty new", "missing/empty", "same"):
            dated(top / "from" / name, NOW)
        dated(top / "to" / "same", NOW)
        os.link(top / "from" / "new", top / "from" / "new too")
        os.link(top / "from" / "have", top / "from" / "have too new")
        r = bench.copy("-a", "--existing", "--remove-source-files", *options, way[0] + str(top / "from") + "/",
                       way[1] + str(top / "to"))
        assert r.code == 0, (r.code, r.errors())
        left = kinds(top / "from")
        for name in (b"new", b"new too", b"have too new", b"large new", b"empty new", b"missing/empty", b"missing/f",
                     b"missing/deep/er", b"both/new", b"both/deep/f", b"dir for a file/in", b"link new"):
            assert name in left, (options, name)
        for name in (b"have", b"large", b"empty", b"both/have", b"same", b"file for a link", b"file for a dir"):
            assert name not in left, (options, name)
        assert (top / "to" / "both" / "have").read_bytes() == b"n" and not (top / "to" / "new").exists()


def test_only_existing_names_of_a_hard_linked_file_are_updated(bench, tmp_path, way):
    """The name that is found first may be missing at the target."""
    make(tmp_path, {"from": {"d": {}, "missing": {}}, "to": {"c": b"old", "d": {"e": b"older"}, "x": b"old"}})
    (tmp_path / "from" / "b").write_bytes(b"new")
    for name in ("a", "c", "d/e", "f", "missing/g"):
        os.link(tmp_path / "from" / "b", tmp_path / "from" / name)
    os.link(tmp_path / "to" / "c", tmp_path / "to" / "linked")
    r = bench.copy("-aH", "--existing", way[0] + str(tmp_path / "from") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "to") == {"c": b"new", "d": {"e": b"new"}, "x": b"old", "linked": b"old"}
    assert (tmp_path / "to" / "c").samefile(tmp_path / "to" / "d" / "e")


# ---- a missing DST -------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["-r", "tree"], ["-r", "tree/"], ["-aH", "tree/", "--remove-source-files"], ["tree/f"],
                                   ["-p", "tree/f", "--remove-source-files"], ["tree/f", "--inplace"],
                                   ["tree/f", "--verify"], ["-r", "--relative", "tree/d/g"],
                                   ["-r", "--files-from=list", "tree"], ["-rT", "tree"]], ids=" ".join)
def test_missing_target_is_not_made(bench, tmp_path, way, words):
    make(tmp_path, {"tree": {"f": b"f", "d": {"g": b"g"}}, "list": b"f\nd/g\n"})
    before = read(tmp_path)
    words = [way[0] + ("" if "--relative" in words and not way[0] else str(tmp_path) + "/./") + w
             if w.startswith("tree") else w for w in words]
    for options in (["-n"], []):
        r = bench.copy("--existing", *options, *words, way[1] + str(tmp_path / "no"), cwd=tmp_path)
        assert r.code == 0 and not bytes(r.out), (r.code, r.errors(), r.out)
        assert read(tmp_path) == before


def test_only_mkpath_makes_missing_parents(bench, tmp_path, way):
    make(tmp_path, {"tree": {"f": b"f", "d": {"g": b"g"}}})
    for words, made in ((["tree/f", "x/y/z"], {"y": {}}), (["tree/f", "x/y/z/"], {"y": {"z": {}}}),
                        (["tree/", "x/y/z/"], {"y": {"z": {}}}), (["tree", "x/y/z/"], {"y": {"z": {}}}),
                        (["tree/", "x/y/z"], {"y": {}}), (["tree/f", "tree/d", "x/y/z"], {"y": {"z": {}}})):
        words = [way[0] + str(tmp_path) + "/" + w for w in words[:-1]] + [way[1] + str(tmp_path) + "/" + words[-1]]
        r = bench.copy("-r", "--existing", *words)
        assert r.code == 11 and "--mkpath" in r.errors() and not (tmp_path / "x").exists(), (r.code, r.errors())
        r = bench.copy("-r", "--existing", "--mkpath", "-n", *words)
        assert r.code == 0 and not (tmp_path / "x").exists(), (r.code, r.errors())
        r = bench.copy("-r", "--existing", "--mkpath", *words)
        assert r.code == 0 and read(tmp_path / "x") == made, (words, r.code, r.errors())
        shutil.rmtree(tmp_path / "x")


def test_implied_directories_are_not_made(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": {"b": {"c": b"new", "d": b"new"}}, "e": b"new"}, "list": b"a/b/c\ne\na/b/d\n"})
    top = str(tmp_path / "tree")
    for words in (["--relative", top + "/./a/b/c", top + "/./a/b/d", top + "/./e"], ["--files-from=list", top]):
        words = [w if w.startswith("--") else way[0] + w for w in words]
        for there, after in (({}, {}), ({"a": {}}, {"a": {}}), ({"a": {"b": {"c": b"o"}}}, {"a": {"b": {"c": b"new"}}}),
                             ({"e": b"o"}, {"e": b"new"})):
            make(tmp_path / "to", there)
            r = bench.copy("--existing", *words, way[1] + str(tmp_path / "to"), cwd=tmp_path)
            assert r.code == 0 and read(tmp_path / "to") == after, (words, r.code, r.errors())
            shutil.rmtree(tmp_path / "to")


# ---- several sources, streams, reports -----------------------------------------------------


def test_existing_with_several_sources_and_hosts(bench, tmp_path):
    make(tmp_path, {"a": {"f": b"new", "g": b"new"}, "b": {"f": b"new", "h": b"new"}, "c": b"new", "d": b"new",
                    "to": {"a": {"f": b"old"}, "d": b"old"}})
    for sources in (("a", "b", "c", "d"), ("near:%s/a" % tmp_path, "far:%s/b" % tmp_path, "c", "d")):
        for again in range(2):
            r = bench.copy("-a", "--existing", *sources, "far:%s/to" % tmp_path)
            assert r.code == 0, (r.code, r.errors())
            assert read(tmp_path / "to") == {"a": {"f": b"new"}, "d": b"new"}
        make(tmp_path, {"to": {"a": {"f": b"old"}, "d": b"old"}})


def test_stream_into_a_missing_target_is_skipped(bench, tmp_path):
    make(tmp_path, {"have": b"old"})
    made = pattern(3 << 20, 7)
    make(tmp_path, {"given": made})
    for to in ("", "far:"):
        for name in ("have", "missing"):
            with open(tmp_path / "given", "rb") as given, subprocess.Popen(["cat"], stdin=given, stdout=subprocess.PIPE) as cat:
                r = bench.copy("--existing", "-", to + str(tmp_path / name), stdin=cat.stdout)
            assert r.code == 0, (r.code, r.errors())
        assert read(tmp_path) == {"have": made, "given": made}
        (tmp_path / "have").write_bytes(b"old")
    r = bench.copy("--existing", str(tmp_path / "have"), "/dev/null")
    assert r.code == 0, (r.code, r.errors())
    r = bench.copy("--existing", "far:" + str(tmp_path / "have"), "-")
    assert r.code == 0 and bytes(r.out) == b"old", (r.code, r.errors())


def test_skipped_files_are_reported(bench, tmp_path, way):
    """As with --ignore-existing."""
    trees = {"from": {"have": b"new", "new": b"new", "missing": {"f": b"f"}}, "to": {"have": b"old", "gone": b""}}
    make(tmp_path, trees)
    words = ["-r", "--json", way[0] + str(tmp_path / "from") + "/", way[1] + str(tmp_path / "to")]
    r = bench.copy("--existing", *words)
    assert r.code == 0, r.errors()
    last, seen = summary(r), {x["path"]: x for x in told(r) if "path" in x}
    assert (last["files"], last["bytes"], last["created"]) == (1, 3, 0), last
    assert seen["have"]["change"].startswith(">f") or seen["have"]["change"].startswith("<f"), seen
    assert not seen.get("new", {"change": ""})["change"].strip(".f "), seen
    r = bench.copy("--ignore-non-existing", "-v", *[w for w in words if w != "--json"])
    assert r.code == 0 and read(tmp_path / "to") == {"have": b"new", "gone": b""}, r.errors()


def test_existing_with_a_pattern(bench, tmp_path):
    """Only the far end knows that there are several matches."""
    make(tmp_path, {"src": {"a": b"new", "b": b"new", "c": {"d": b"new", "e": b"new"}, "f": {"g": b""}},
                    "to": {"b": b"old", "c": {"e": b"old"}}})
    for options in (["-n"], []):
        r = bench.copy("-r", "--existing", "--mkpath", *options, "far:%s/src/*" % tmp_path, tmp_path / "new")
        assert r.code == 0, (r.code, r.errors())
    assert read(tmp_path / "new") == {}
    for again in range(2):
        r = bench.copy("-aH", "--existing", "far:%s/src/*" % tmp_path, tmp_path / "to")
        assert r.code == 0 and read(tmp_path / "to") == {"b": b"new", "c": {"e": b"new"}}, (r.code, r.errors())
