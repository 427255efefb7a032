# SPDX-License-Identifier: Apache-2.0
"""rdcp -r and -a: trees of every kind, by seed, compared name by name; where they are stored."""

import errno
import os
import stat
import subprocess

import pytest

from faulty import failing
from file_systems import mounted
from hosts import LAB, SLOW, USER, leftovers, pattern, wait_until
from marks import two_users
from trees import (WAYS, changes, compare, equal, fell, generate, make, read,
                   rsync_differs, seeds, stale, summary, walk)

pytestmark = [pytest.mark.moves_blocks, pytest.mark.any_lane]
BLOCK = 256 << 10
FILES = 30 if LAB else 120
# What -a alone does not preserve.
NOT_WITH_A = ("links", "acls", "xattrs")
NOT_WITH_R = ("mode", "mtime", "owner", "acls", "xattrs", "links")
root_only = pytest.mark.needs("root", why="it takes root to be two users")
ONE_WAY_A_SEED = list(zip([w for _ in range(50) for w in ("push", "pull", "remote", "local", "push")],
                          seeds(5, 50)))


def rsync_finds_nothing(a, b, seed, *options):
    said = rsync_differs(a, b, *options)
    assert not said, "seed %s: %s" % (seed, said[:4000])


# ---- every kind of entry ------------------------------------------------------------------


@pytest.mark.parametrize("which,seed", ONE_WAY_A_SEED, ids=["%s-%d" % x for x in ONE_WAY_A_SEED])
@pytest.mark.lab(long=True)
@pytest.mark.lanes
@pytest.mark.first
def test_tree_of_every_kind_is_copied(bench, ground, which, seed):
    a, b = ground / "a", ground / "b"
    generate(seed, a, files=FILES)
    before = walk(os.fsencode(a))
    near, far = WAYS[which]
    r = bench.copy("-aHAX", near + str(a), far + str(b))
    assert r.code == 0, "seed %d: %s" % (seed, r.errors()[-3000:])
    assert not r.out
    equal(before, b, seed)
    rsync_finds_nothing(a, b, seed)
    # Again: nothing is sent, and nothing is changed.
    inodes = {p: (t.stat.st_ino, t.stat.st_ctime_ns) for p, t in walk(os.fsencode(b)).items()
              if t.kind != "directory"}
    r = bench.copy("-aHAX", "--itemize-changes", near + str(a) + "/", far + str(b))
    assert r.code == 0, "seed %d: %s" % (seed, r.errors()[-3000:])
    assert not r.out, "seed %d: %s" % (seed, bytes(r.out)[:3000])
    after = walk(os.fsencode(b))
    assert inodes == {p: (t.stat.st_ino, t.stat.st_ctime_ns) for p, t in after.items() if t.kind != "directory"}
    equal(before, after, seed)


@pytest.mark.timeout(1200)
@pytest.mark.first
def test_ten_thousand_files_and_one_of_4_gib_are_copied(bench, ground):
    seed = 99
    a, b = ground / "a", ground / "b"
    generate(seed, a, files=10000, many=True, huge=True)
    r = bench.copy("-aHAX", "--json", str(a), "far:%s" % b, timeout=120)
    assert r.code == 0, "seed %d: %s" % (seed, r.errors()[-3000:])
    equal(a, b, seed)
    rsync_finds_nothing(a, b, seed, "--exclude=/sparse 4 GiB + 1")
    r = bench.copy("-aHAX", "--itemize-changes", str(a) + "/", "far:%s" % b)
    assert r.code == 0 and not r.out, "seed %d: %s" % (seed, bytes(r.out)[:3000] or r.errors()[-3000:])


@root_only
@pytest.mark.parametrize("seed", seeds(2, 10, lab_many=1))
def test_checksum_and_delete_correct_a_modified_target(bench, ground, seed):
    """Any difference at the target is corrected by --checksum and --delete."""
    a, b = ground / "a", ground / "b"
    generate(seed, a, files=FILES)
    generate(seed, b, files=FILES)
    subprocess.run(["find", b, "-type", "s", "-delete"], check=True)
    for n, top in enumerate((a, b)):
        make(top / "known", {"same": b"abc", "content": b"x%d" % n, "size": b"y" * (n + 1), "mode": b"", "owner": b"",
                             "linked": b"abc", "apart": b"abc%d" % n, "attribute": b"", "acl": b"", "time": b"",
                             "link": "to %d" % n, "file or link": b"", "file or directory": b"",
                             "emptied": {"d": {}}, "gone %d" % n: b"", "tree %d" % n: {"x": {"y": b"z"}}})
    known, there = a / "known", b / "known"
    (there / "mode").chmod(0o765)
    os.setxattr(known / "attribute", "user.a", b"1")
    os.setxattr(there / "attribute", "user.a", b"2")
    os.setxattr(there / "attribute", "user.b", b"2")
    (there / "file or link").unlink()
    (there / "file or link").symlink_to("/etc/passwd")
    (there / "file or directory").unlink()
    make(there / "file or directory", {"in it": b""})
    (there / "emptied" / "d").rmdir()
    (there / "emptied").rmdir()
    (there / "emptied").write_bytes(b"a file")
    os.unlink(known / "linked")
    os.link(known / "same", known / "linked")
    # Only the differing files: existing hard links between identical files stay.
    os.unlink(there / "apart")
    os.link(there / "same", there / "apart")
    for name in os.listdir(known):
        os.utime(known / name, ns=(5, 10**18), follow_symlinks=False)
        if (there / name).exists():
            os.utime(there / name, ns=(5, 10**18 + (name == "time")), follow_symlinks=False)
    if not USER:
        os.chown(there / "owner", 1, 1)
        os.mknod(known / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(there / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    r = bench.copy("-aHAX", "--checksum", "--delete", str(a) + "/", "far:%s" % b)
    assert r.code == 0, "seed %d: %s" % (seed, r.errors()[-3000:])
    equal(a, b, seed)
    rsync_finds_nothing(a, b, seed)


def test_plain_r_preserves_what_cp_preserves(bench, ground, way):
    """Content, links as links, holes; modes minus the umask, no set-id bits, new times."""
    a, b = ground / "a", ground / "b"
    generate(7, a, files=20)
    r = bench.copy("-r", way[0] + str(a), way[1] + str(b), preexec=lambda: os.umask(0o027))
    assert r.code == 0, r.errors()[-3000:]
    nodes = ("fifo", "char", "block")
    there, here = walk(os.fsencode(a)), walk(os.fsencode(b))
    assert any(t.kind in nodes for t in there.values())
    equal({p: t for p, t in there.items() if t.kind not in nodes}, here, 7, without=NOT_WITH_R)
    for path, t in here.items():
        if t.kind in ("file", "directory"):
            want = there[path].stat.st_mode & 0o777 & ~0o027
            assert stat.S_IMODE(t.stat.st_mode) & 0o6777 == want, path
        assert t.stat.st_uid == os.geteuid() and not t.xattrs, path
    # Each kind that is skipped is reported.
    assert "fifo" in r.errors().lower() and "socket" in r.errors().lower(), r.errors()[-2000:]


def test_rerun_sends_changed_files_only(bench, ground):
    a, b = ground / "a", ground / "b"
    make(a, {"x": pattern(100000), "d": {"y": pattern(3 * BLOCK, 2), "z": b""}, "l": "x"})
    size = 100000 + 3 * BLOCK
    for options, again in ((["-a"], 0), (["-r"], size), (["-r", "--times"], 0), (["-r", "--perms"], size)):
        fell(b)
        assert bench.copy(*options, "a/", "far:%s" % b, cwd=ground).code == 0
        r = bench.copy(*options, "--json", "a/", "far:%s" % b, cwd=ground)
        assert r.code == 0, r.errors()
        assert summary(r)["bytes"] == again, (options, summary(r))
        assert read(b) == read(a)
    # A file whose time alone, or whose size alone, was changed.
    fell(b)
    assert bench.copy("-a", "a/", "far:%s" % b, cwd=ground).code == 0
    os.utime(a / "x", ns=(1, 10**18 + 1))
    with open(b / "d" / "y", "ab") as f:
        f.write(b"more")
    os.utime(b / "d" / "y", ns=(1, (a / "d" / "y").stat().st_mtime_ns))
    r = bench.copy("-a", "--itemize-changes", "a/", "far:%s" % b, cwd=ground)
    assert r.code == 0 and sorted(changes(r)) == ["d/y", "x"], bytes(r.out)
    equal(a, b)


def test_changed_metadata_is_updated_without_sending_the_file(bench, ground):
    """Only metadata differs: it is corrected without sending the file."""
    a, b = ground / "a", ground / "b"
    make(a, {"x": pattern(3 * BLOCK), "d": {"y": b"y"}})
    assert bench.copy("-a", str(a), "far:%s" % b).code == 0
    inode = (b / "x").stat().st_ino
    (a / "x").chmod(0o611)
    (a / "d").chmod(0o710)
    r = bench.copy("-a", "--json", str(a) + "/", "far:%s" % b)
    assert r.code == 0 and summary(r)["bytes"] == 0, r.errors()
    assert (b / "x").stat().st_ino == inode
    equal(a, b)


# ---- where a tree is stored -----------------------------------------------------------------

SRC = {"f": b"1", "d": {"g": b"2"}, "l": "f"}
OLD = {"old": b""}
# options and operands -> what exists afterwards (old: an existing directory)
WHERE = [
    (["-r", "src", "new"], {"new": SRC}),
    (["-r", "src/", "new"], {"new": SRC}),
    (["-r", "src", "new/"], {"new": SRC}),
    (["-rT", "src", "new"], {"new": SRC}),
    (["-r", "src", "old"], {"old": {**OLD, "src": SRC}}),
    (["-r", "src", "old/"], {"old": {**OLD, "src": SRC}}),
    (["-r", "src/", "old"], {"old": {**OLD, **SRC}}),
    (["-r", "src/.", "old"], {"old": {**OLD, **SRC}}),
    (["-rT", "src", "old"], {"old": {**OLD, **SRC}}),
    (["-a", "src", "old/x"], {"old": {**OLD, "x": SRC}}),
    (["-r", "src", "file", "old"], {"old": {**OLD, "src": SRC, "file": b"file"}}),
    (["-r", "src", "two", "old"], {"old": {**OLD, "src": SRC, "two": {"t": b"t"}}}),
    (["-r", "src/", "two/", "old"], {"old": {**OLD, **SRC, "t": b"t"}}),
    (["-r", "link", "new"], {"new": SRC}),
    (["-r", "link", "old"], {"old": {**OLD, "link": SRC}}),
    (["-r", "src/d", "old"], {"old": {**OLD, "d": SRC["d"]}}),
    (["-r", "empty", "new"], {"new": {}}),
    (["-r", "src", "to old"], {"old": {**OLD, "src": SRC}}),
    (["-r", "--mkpath", "src", "no/such/new"], {"no": {"such": {"new": SRC}}}),
    (["-r", "file", "new"], {"new": b"file"}),
]


@pytest.mark.parametrize("n", range(len(WHERE)), ids=[" ".join(w[0]) for w in WHERE])
@pytest.mark.parametrize("which", ["push", "pull"])
def test_target_follows_the_rules_of_cp(bench, tmp_path, which, n):
    words, want = WHERE[n]
    make(tmp_path, {"src": SRC, "two": {"t": b"t"}, "file": b"file", "empty": {}, "link": "src",
                    "to": {"old": OLD, "to old": "old"}})
    near, far = WAYS[which]
    options = [w for w in words if w.startswith("-")]
    *sources, target = [w for w in words if not w.startswith("-")]
    r = bench.copy(*options, *[near + str(tmp_path) + "/" + s for s in sources],
                   far + str(tmp_path / "to") + "/" + target)
    assert r.code == 0, r.errors()
    got = read(tmp_path / "to")
    assert got.pop("to old") == "old"
    assert got == {"old": OLD, **want}


def test_current_directory_is_a_source(bench, tmp_path):
    make(tmp_path, {"src": SRC, "old": OLD})
    for name in (".", "./"):
        r = bench.copy("-r", name, "far:%s" % (tmp_path / "old"), cwd=tmp_path / "src")
        assert r.code == 0, r.errors()
        assert read(tmp_path / "old") == {**OLD, **SRC}


def test_second_copy_goes_into_the_finished_tree(bench, tmp_path, way):
    """cp's rule; only an unfinished copy is continued."""
    make(tmp_path, {"src": SRC})
    for want in ({"new": SRC}, {"new": {**SRC, "src": SRC}}):
        r = bench.copy("-r", way[0] + str(tmp_path / "src"), way[1] + str(tmp_path / "to" / "new"), "--mkpath")
        assert r.code == 0, r.errors()
        assert read(tmp_path / "to") == want


def test_several_sources_need_a_directory(bench, tmp_path, way):
    make(tmp_path, {"a": SRC, "b": SRC})
    r = bench.copy("-r", way[0] + str(tmp_path / "a"), way[0] + str(tmp_path / "b"), way[1] + str(tmp_path / "new"))
    assert r.code == 11 and "--mkpath" in r.errors(), (r.code, r.errors())
    assert not (tmp_path / "new").exists()


MATCHED = [["-r"], ["-aH"], ["-r", "--delete"], ["-r", "--checksum"], ["-r", "--lanes=4", "-u"], ["-r", "--fsync", "--inplace"]]


@pytest.mark.parametrize("to", ["new", "no/such/new/"])
@pytest.mark.parametrize("options", MATCHED, ids=" ".join)
def test_mkpath_makes_dst_for_the_matches_of_a_pattern(bench, tmp_path, options, to):
    """Only the far end knows that there are several matches."""
    tree = {"a": b"a", "b": b"", "c": {"d": b"d", "e": {}}, "d": {"f": b"f"}, "l": b"large" * 300000}
    make(tmp_path, {"src": tree})
    os.link(tmp_path / "src" / "a", tmp_path / "src" / "z")
    target = "%s/%s" % (tmp_path, to)
    r = bench.copy("-n", "--mkpath", *options, "far:%s/src/*" % tmp_path, target)
    assert r.code == 0 and not r.errors(), (r.code, r.errors())
    assert os.listdir(tmp_path) == ["src"]
    r = bench.copy("--mkpath", *options, "far:%s/src/*" % tmp_path, target)
    assert r.code == 0, (r.code, r.errors())
    assert read(target) == {**tree, "z": b"a"}
    assert os.stat(tmp_path / to / "a").st_nlink == (2 if "-aH" in options else 1)


def test_mkpath_makes_dst_for_the_files_of_a_pattern(bench, tmp_path):
    make(tmp_path, {"src": {"a": b"a", "b": b"b"}, "file": b"file"})
    for to in ("new", "no/such/new/"):
        r = bench.copy("--mkpath", "far:%s/src/*" % tmp_path, "%s/%s" % (tmp_path, to))
        assert r.code == 0, (r.code, r.errors())
        assert read(tmp_path / to) == {"a": b"a", "b": b"b"}
    r = bench.copy("--mkpath", "far:%s/src/*" % tmp_path, tmp_path / "file")
    assert r.code == 23 and "is not a directory" in r.errors() and "--mkpath" not in r.errors(), (r.code, r.errors())
    assert (tmp_path / "file").read_bytes() == b"file"


def test_missing_target_directory_is_reported_with_mkpath(bench, tmp_path, way):
    make(tmp_path, {"src": SRC})
    r = bench.copy("-r", way[0] + str(tmp_path / "src"), way[1] + str(tmp_path / "no" / "such" / "new"))
    assert r.code == 11 and "--mkpath" in r.errors(), (r.code, r.errors())
    assert not (tmp_path / "no").exists()


def test_directory_without_r_is_reported(bench, tmp_path, way):
    make(tmp_path, {"src": SRC, "f": b"f", "to": {}})
    r = bench.copy(way[0] + str(tmp_path / "src"), way[0] + str(tmp_path / "f"), way[1] + str(tmp_path / "to"))
    assert r.code == 23 and "-r" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"f": b"f"}


def test_skipped_directory_takes_no_name(bench, tmp_path, way):
    """As in rsync: the first file of that name is copied, and only one."""
    make(tmp_path, {"x": {"f": SRC}, "y": {"f": b"y"}, "z": {"f": b"z"}, "to": {}})
    r = bench.copy(*(way[0] + str(tmp_path / name / "f") for name in "xyz"), way[1] + str(tmp_path / "to"))
    assert r.code == 23 and "x/f is a directory" in r.errors(), (r.code, r.errors())
    assert "z/f: the earlier source %s/y/f has" % tmp_path in r.errors(), r.errors()
    assert read(tmp_path / "to") == {"f": b"y"}


def test_missing_tree_of_two_exits_23(bench, tmp_path, way):
    make(tmp_path, {"src": SRC, "to": {}})
    r = bench.copy("-a", way[0] + str(tmp_path / "none"), way[0] + str(tmp_path / "src"), way[1] + str(tmp_path / "to"))
    assert r.code == 23 and "none" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"src": SRC}
    r = bench.copy("-a", way[0] + str(tmp_path / "none"), way[1] + str(tmp_path / "to"))
    assert r.code == 3, (r.code, r.errors())


def test_second_tree_of_one_name_is_refused(bench, tmp_path, way):
    make(tmp_path, {"a": {"x": {"f": b"a"}}, "b": {"x": {"f": b"b", "g": b"b"}}, "to": {}})
    r = bench.copy("-r", *[way[0] + str(tmp_path / d / "x") for d in "ab"], way[1] + str(tmp_path / "to"))
    assert r.code == 23, (r.code, r.errors())
    assert read(tmp_path / "to") == {"x": {"f": b"a"}}


def test_tree_is_not_copied_into_itself(bench, tmp_path):
    make(tmp_path, {"src": SRC})
    for to in ("src/new", "src", "src/d"):
        r = bench.copy("-r", "src", to, timeout=20)
        assert r.code != 0, (to, r.errors())
        assert {k: v for k, v in read(tmp_path / "src").items() if k in SRC} == SRC
        depth = max(p.count(b"/") for p in walk(os.fsencode(tmp_path / "src")))
        assert depth <= 3, (to, walk(os.fsencode(tmp_path / "src")).keys())


# ---- symlinks, devices, permissions --------------------------------------------------------


def test_symlinks_inside_trees_are_never_followed(bench, tmp_path, way):
    """Neither in the source, nor where they are in the way at the target."""
    make(tmp_path, {"outside": {"f": b"outside", "g": b"outside"},
                    "src": {"l": "../outside", "d": {"f": b"new"}, "f": b"new", "x": "nowhere"},
                    "to": {"d": "../outside", "f": "../outside/g", "l": {}, "x": b"a file"}})
    before = {p: t.stat.st_ctime_ns for p, t in walk(os.fsencode(tmp_path / "outside")).items()}
    r = bench.copy("-r", way[0] + str(tmp_path / "src") + "/", way[1] + str(tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert read(tmp_path / "to") == read(tmp_path / "src")
    assert before == {p: t.stat.st_ctime_ns for p, t in walk(os.fsencode(tmp_path / "outside")).items()}


@pytest.mark.lanes
def test_longest_symlinks_fit_the_smallest_blocks(bench, ground):
    """A record with its link target is larger than a block, and so are the attributes of some links."""
    make(ground, {"a": {"l%d" % n: "x" * n for n in (4095, 4094, 3700, 3600, 1)}})
    xattrs = not USER
    for n in range(3 if xattrs else 0):
        os.setxattr(ground / "a" / "l1", "trusted.%d" % n, b"v" * 1200, follow_symlinks=False)
    r = bench.copy("-aX", "--block-size=4k", str(ground / "a"), "far:%s" % (ground / "b"))
    assert r.code == 0, r.errors()
    equal(ground / "a", ground / "b")


def test_devices_option_copies_fifos_and_devices(bench, ground, way):
    a, b = ground / "a", ground / "b"
    make(a, {"f": b"f"})
    os.mkfifo(a / "fifo", 0o640)
    os.mknod(a / "socket", stat.S_IFSOCK | 0o600)
    if not USER:
        os.mknod(a / "char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(a / "block", stat.S_IFBLK | 0o600, os.makedev(7, 300))
    r = bench.copy("-r", way[0] + str(a), way[1] + str(b), timeout=20)
    assert r.code == 0, r.errors()
    assert os.listdir(b) == ["f"]
    assert all(n in r.errors() for n in os.listdir(a) if n != "f"), r.errors()
    r = bench.copy("-a", way[0] + str(a) + "/", way[1] + str(b), timeout=20)
    assert r.code == 0, r.errors()
    assert "socket" in r.errors()
    equal(a, b)
    if not USER:
        assert os.stat(b / "block").st_rdev == os.makedev(7, 300)


def as_user(bench, ground):
    """Words that run a program as another user, who may enter the directory."""
    from hosts import as_nobody, open_up
    open_up(ground)
    open_up(bench.tmp)
    return {"become": as_nobody()}


@two_users
def test_set_id_bits_need_their_owner(bench, ground):
    a = ground / "a"
    make(a, {"mine": b"", "root's": b"", "daemon's": b"", "d": {}})
    for name, owner, mode in (("mine", 65534, 0o6755), ("root's", 0, 0o6755), ("daemon's", 1, 0o6755),
                              ("d", 1, 0o2755)):
        os.chown(a / name, owner, owner)
        os.chmod(a / name, mode)
    # Root preserves owners, and so all bits.
    r = bench.copy("-a", str(a), "far:%s" % (ground / "b"))
    assert r.code == 0, r.errors()
    equal(a, ground / "b")
    # Without owners the bits would refer to another user.
    r = bench.copy("-r", "--perms", str(a), "far:%s" % (ground / "c"))
    assert r.code == 0, r.errors()
    modes = {n: stat.S_IMODE((ground / "c" / n).stat().st_mode) for n in os.listdir(a)}
    assert modes == dict.fromkeys(os.listdir(a), 0o755)
    # An ordinary user can't give files away.
    nobody = as_user(bench, ground)
    r = bench.copy("-a", str(a), "far:%s" % (ground / "d"), **nobody)
    assert r.code == 0, r.errors()
    modes = {n: stat.S_IMODE((ground / "d" / n).stat().st_mode) for n in os.listdir(a)}
    assert modes == {"mine": 0o6755, "root's": 0o755, "daemon's": 0o755, "d": 0o755}
    # Without -p they are not set either.
    r = bench.copy("-r", str(a), "far:%s" % (ground / "e"))
    assert r.code == 0, r.errors()
    assert all(not (ground / "e" / n).stat().st_mode & 0o6000 for n in os.listdir(a))


@two_users
def test_unreadable_entries_do_not_stop_the_rest(bench, ground):
    a, b = ground / "a", ground / "b"
    make(a, {"first": b"1", "secret": b"s", "d": {"secret too": b"s", "x": b"x"}, "closed": {"y": b"y"},
             "last": b"9", "many": {"%03d" % i: b"%d" % i for i in range(300)}})
    (a / "secret").chmod(0)
    (a / "d" / "secret too").chmod(0o200)
    (a / "closed").chmod(0o311)
    nobody = as_user(bench, ground)
    make(b, {"old": b"old"})
    os.chown(b, 65534, 65534)
    r = bench.copy("-a", "--failed", str(ground / "failed"), "--delete", str(a) + "/", "far:%s" % b, **nobody)
    assert r.code == 23, (r.code, r.errors())
    for name in ("secret", "d/secret too", "closed"):
        assert name in r.errors(), r.errors()
    assert sorted((ground / "failed").read_bytes().split(b"\0")) == [b"", b"closed", b"d/secret too", b"secret"]
    got = read(b)
    assert got.pop("old") == b"old", "deleted after an incomplete scan"
    got.pop("closed", None)
    want = read(a)
    del want["secret"], want["d"]["secret too"], want["closed"]
    assert got == want
    assert not stale(b)
    # The list of failed files is the input of the next run.
    for path, mode in (("secret", 0o644), ("d/secret too", 0o644), ("closed", 0o755)):
        (a / path).chmod(mode)
    r = bench.copy("-a", "-r", "--files-from", str(ground / "failed"), "--from0", str(a) + "/", "far:%s" % b, **nobody)
    assert r.code == 0, r.errors()
    (b / "old").unlink()
    assert read(b) == read(a)


@two_users
def test_directories_without_permissions_are_filled(bench, ground):
    """By their owner, who has no write permission, at the first run and later."""
    a, b = ground / "a", ground / "b"
    make(a, {"ro": {"f": b"f", "in": {"g": b"g"}}, "w": {}})
    nobody = as_user(bench, ground)
    for path in ("ro/in", "ro", "w", ""):
        (a / path).chmod(0o555)
    r = bench.copy("-a", str(a), "far:%s" % b, **nobody)
    assert r.code == 0, r.errors()
    equal(a, b, without=("owner",))
    for path in ("ro/in/h", "ro/more"):
        (a / path).write_bytes(b"new")
    r = bench.copy("-a", str(a) + "/", "far:%s" % b, **nobody)
    assert r.code == 0, r.errors()
    equal(a, b, without=("owner",))


def test_empty_directories_are_copied(bench, ground, way):
    a, b = ground / "a", ground / "b"
    make(a, {"e": {"e": {"e": {}}}, "f": {}})
    (a / "f").chmod(0o1711)
    os.utime(a / "e" / "e", ns=(1, -5))
    r = bench.copy("-a", way[0] + str(a), way[1] + str(b))
    assert r.code == 0, r.errors()
    equal(a, b)


def test_files_and_directories_in_place_of_each_other(bench, tmp_path, way):
    make(tmp_path, {"src": {"d": {"x": b"x"}, "f": b"new", "g": b"new", "l": "d", "z": b"z"},
                    "to": {"d": b"a file", "f": {}, "g": {"full": b""}, "l": {"full": b""}}})
    src, to = str(tmp_path / "src") + "/", str(tmp_path / "to")
    r = bench.copy("-r", way[0] + src, way[1] + to)
    assert r.code == 23 and "g" in r.errors(), (r.code, r.errors())
    want = read(src)
    assert read(to) == {**want, "g": {"full": b""}, "l": {"full": b""}}
    assert not stale(to)
    r = bench.copy("-r", "--delete", way[0] + src, way[1] + to)
    assert r.code == 0, r.errors()
    assert read(to) == want


@pytest.mark.parametrize("options, sources, code", [
    (["-r", "--exclude=d"], ["f", "d"], 23),            # the other one is skipped
    (["--max-size=3"], ["f", "large"], 23),
    (["-r"], ["d/"], 23),
    (["-r"], ["f"], 11),
    (["-r", "--relative"], ["d/./e/f"], 11),            # the directory that leads to it was not requested
], ids=str)
def test_exit_code_of_a_single_file_does_not_depend_on_a_race(bench, tmp_path, options, sources, code):
    """The reports of sink and source race: many runs have the same result."""
    make(tmp_path, {"f": b"f", "large": b"large", "d": {"e": {"f": b"f"}},
                    "to": {"f": {"full": b""}, "e": {"f": {"full": b""}}}})
    codes = [bench.copy(*options, *sources, "to", cwd=tmp_path).code for _ in range(15)]
    assert codes == 15 * [code]
    assert read(tmp_path / "to") == {"f": {"full": b""}, "e": {"f": {"full": b""}}}


def test_hard_link_with_a_blocked_first_name(bench, ground, way):
    a, b = ground / "a", ground / "b"
    make(a, {"one": b"1", "ok": b"ok", "d": {}})
    names = ["one", "d/two", "d/three"]
    for n in names[1:]:
        os.link(a / "one", a / n)
    os.link(a / "ok", a / "ok too")
    # Whichever name comes first, a non-empty directory is in its place.
    make(b, {"one": {"full": b""}, "d": {"two": {"full": b""}, "three": {"full": b""}}})
    r = bench.copy("-aH", way[0] + str(a) + "/", way[1] + str(b))
    assert r.code == 23, (r.code, r.errors())
    assert all(n in r.errors() for n in names), r.errors()
    assert os.path.samefile(b / "ok", b / "ok too")
    assert all((b / n).is_dir() for n in names) and not stale(b)
    r = bench.copy("-aH", "--delete", way[0] + str(a) + "/", way[1] + str(b))
    assert r.code == 0, r.errors()
    equal(a, b)


def test_hard_link_that_leads_out_of_the_tree(bench, ground):
    """The other name is not part of the copy; at the target, a hard link to a file elsewhere is not written
    through."""
    a, b = ground / "a", ground / "b"
    make(ground, {"outside": b"old", "a": {"f": b"f", "g": b"g"}, "b": {}})
    os.link(a / "f", ground / "other")
    os.link(ground / "outside", b / "g")
    r = bench.copy("-aH", str(a) + "/", "far:%s" % b)
    assert r.code == 0, r.errors()
    equal(a, b)
    assert (ground / "outside").read_bytes() == b"old"


# ---- files whose st_size is not their length -------------------------------------------------


MADE_UP = ("/proc/sys/net/ipv4/neigh/lo", "/sys/devices/system/cpu/cpu0/topology")


@pytest.mark.parametrize("options", (["-r"], ["-a"], ["-aH", "--checksum"], ["-r", "--verify"], ["-au"], ["-rn"]), ids=" ".join)
@pytest.mark.parametrize("tree", MADE_UP)
def test_proc_and_sys_files_are_read_to_their_end(bench, ground, tree, options):
    """Also when the target has an empty file with the same time, which equals an st_size of 0."""
    subprocess.run(["cp", "-r", "--preserve=timestamps", tree, ground / "wanted"], check=True)
    wanted = read(ground / "wanted")
    for again in range(2):
        r = bench.copy(*options, tree + "/", "far:%s" % (ground / "b"))
        assert r.code == 0, r.errors()
        if "-rn" in options:
            assert not (ground / "b").exists()
            continue
        assert read(ground / "b") == wanted
        for path in (ground / "b").rglob("*"):
            if again == 0 and path.is_file():
                was = os.stat(os.path.join(tree, path.relative_to(ground / "b")))
                os.truncate(path, 0)
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns - ("-au" in options)))


def test_ignore_existing_keeps_targets_of_proc_and_sys_files(bench, ground):
    make(ground / "b", {"lo": {"app_solicit": b"mine"}})
    for option in ("-u", "--ignore-existing"):
        os.utime(ground / "b" / "lo" / "app_solicit", (2**32, 2**32))
        r = bench.copy("-r", option, MADE_UP[0], "far:%s" % (ground / "b"))
        assert r.code == 0, r.errors()
        assert (ground / "b" / "lo" / "app_solicit").read_bytes() == b"mine"


def test_listed_proc_and_sys_files_are_read_to_their_end(bench, ground):
    (ground / "list").write_bytes(b"neigh/lo/app_solicit\nneigh/lo/gc_stale_time\n")
    r = bench.copy("--files-from=%s" % (ground / "list"), "/proc/sys/net/ipv4", "far:%s" % (ground / "b"))
    assert r.code == 0, r.errors()
    assert read(ground / "b") == {"neigh": {"lo": {
        n: open("/proc/sys/net/ipv4/neigh/lo/" + n, "rb").read() for n in ("app_solicit", "gc_stale_time")}}}


def test_empty_sys_file_is_copied_as_an_empty_file(bench, ground):
    """Its st_size is a page."""
    r = bench.copy("-r", "--include=ifalias", "--exclude=*", "/sys/class/net/lo/", "far:%s" % (ground / "b"))
    assert r.code == 0 and read(ground / "b") == {"ifalias": b""}, r.errors()


def test_proc_and_sys_files_cannot_be_removed(bench, ground):
    r = bench.copy("-r", "--remove-source-files", MADE_UP[1], "far:%s" % (ground / "b"))
    assert r.code == 23 and "remove" in r.errors(), (r.code, r.errors())
    assert read(ground / "b") == read(MADE_UP[1])


# ---- changes during the run ------------------------------------------------------------------


def test_vanished_files_are_reported(bench, ground):
    a, b = ground / "a", ground / "b"
    make(a, {"d%02d" % d: {"f%02d" % f: pattern(20000, d) for f in range(20)} for d in range(20)})
    r = bench.copy("-a", "--bwlimit=4M", str(a), "far:%s" % b, wait=False)
    wait_until(lambda: b.exists() and len(os.listdir(b)) >= 2)
    gone = []
    for d in range(19, -1, -2):
        for f in range(0, 20, 2):
            (a / ("d%02d" % d) / ("f%02d" % f)).unlink()
            gone.append("d%02d/f%02d" % (d, f))
    fell(a / "d18")
    code = r.wait(30)
    # A file that was gone before it was found is not reported; a file that was open at that moment counts as
    # changed.
    wanted = 23 if "while it was read" in r.errors() else 24 if "No such file" in r.errors() else 0
    assert code == wanted, (code, r.errors())
    lines = [x for x in compare(os.fsencode(a), os.fsencode(b), without=("mtime", "mode")) if "too many" not in x]
    assert not lines, lines[:20]
    assert not stale(b)
    assert code == 0 or any(g in r.errors() for g in [*gone, "d18"]), r.errors()


@pytest.mark.parametrize("too,which", [("nothing else", "push"), ("nothing else", "pull"), ("a failure there", "pull"),
                                       ("a failure here", "push"), ("--delete", "local")])
def test_vanished_file_exits_24(bench, ground, too, which):
    """24, but 23 if another failure happened as well."""
    near, far = WAYS[which]
    a, b = ground / "a", ground / "b"
    make(a, {"f%03d" % f: pattern(20000, f) for f in range(300)})
    make(b, {"old": b"old"})
    if too == "a failure there":
        make(b, {"f007": {"in the way": b""}})
    elif too == "a failure here":
        os.symlink("loop", a / "loop")
    options = ["--delete"] if too == "--delete" else ["--copy-links"] if too == "a failure here" else []
    r = bench.copy("-a", *options, "--bwlimit=500k", near + str(a) + "/", far + str(b), wait=False)
    wait_until(lambda: len(os.listdir(b)) > 5)
    here = set(os.listdir(b))
    gone = [n for n in os.listdir(a) if n.startswith("f") and n not in here]
    for name in gone:
        (a / name).unlink()
    code = r.wait(30)
    # A file that is open at that moment has not vanished, but has changed.
    other = "failure" in too or "while it was read" in r.errors()
    assert code == (23 if other else 24), (code, r.errors())
    assert not stale(b)
    assert {p.name for p in a.iterdir() if p.name.startswith("f")} <= set(os.listdir(b))
    assert (b / "old").exists() == (too != "--delete"), r.errors()


@pytest.mark.parametrize("first, second, code", [("bad", "good", 24), ("good", "bad", 24), ("bad", "bad", 24), ("bad", "none", 23),
                                                 ("none", "bad", 23)])
def test_vanished_files_of_several_hosts_exit_24(bench, tmp_path, first, second, code):
    """Also if all other hosts were fine, and 23 if a host failed in another way."""
    (tmp_path / "to").mkdir()
    make(tmp_path, {"a": {first: b"a", "1": b"1"}, "b": {second: b"b", "2": b"2"}})
    sources = [where + str(tmp_path / (side if name != "none" else "none"))
               for where, side, name in (("", "a", first), ("far:", "b", second))]
    # With --min-size a file is looked at before it is opened.
    r = bench.copy("-r", "--min-size=1", *sources, tmp_path / "to", env=failing(tmp_path, "fstatat", errno.ENOENT, name="bad"))
    assert r.code == code, (r.code, r.errors())
    assert (tmp_path / "failed").exists()


def test_file_that_changes_while_it_is_read_fails(bench, ground):
    """It fails and its target stays unchanged; a growing file is copied up to its initial size."""
    a, b = ground / "a", ground / "b"
    big = pattern(16 * BLOCK)
    make(a, {"changes": big, "grows": big, "last": b"last", "zz": {"x": b"x"}})
    make(b, {"changes": b"old"})
    r = bench.copy("-r", "--bwlimit=4M", str(a) + "/", "far:%s" % b, wait=False)
    wait_until(lambda: leftovers(b))

    def change():
        with open(a / "changes", "r+b") as f:
            f.seek(15 * BLOCK)
            f.write(b"changed")
        with open(a / "grows", "ab") as f:
            f.write(b"more")
    change()
    wait_until(lambda: change() or r.proc.poll() is not None, 30, step=0.05)
    assert r.wait() == 23, (r.proc.returncode, r.errors())
    assert "changes" in r.errors() and "grows" in r.errors(), r.errors()
    got = read(b)
    assert got.pop("changes") == b"old"
    assert got.pop("grows")[:len(big)] == big
    assert got == {"last": b"last", "zz": {"x": b"x"}}
    assert not stale(b)


@root_only
def test_full_file_system_is_reported_and_a_rerun_completes(bench, ground):
    """Files that found room are complete, the others are reported; a rerun with more room completes the copy."""
    a, b = ground / "a", ground / "b"
    make(a, {"f%02d" % i: pattern(200000, i) for i in range(40)})
    make(a, {"l": "f00", "d": {"big": pattern(4 << 20, 99)}})
    with mounted(b, "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        r = bench.copy("-a", str(a) + "/", "far:%s" % b)
        assert r.code in (11, 23) and "No space left" in r.errors(), (r.code, r.errors())
        want = {n: t for n, t in walk(os.fsencode(a)).items()}
        got = walk(os.fsencode(b))
        whole = {n: t for n, t in got.items() if t.kind == "file"}
        assert len(whole) >= 10, got.keys()
        for n, t in whole.items():
            assert n in want and want[n].digest == t.digest, n
        assert not stale(b)
        subprocess.run(["mount", "-o", "remount,size=64m", b], check=True)
        r = bench.copy("-a", str(a) + "/", "far:%s" % b)
        assert r.code == 0, r.errors()
        equal(a, b)


@root_only
def test_new_target_without_an_inode_for_its_marker_is_removed(bench, ground, way):
    """An empty DST left behind would make the rerun copy to DST/src."""
    make(ground, {"src": {"f": b"f"}})
    to = ground / "mnt"
    with mounted(to, "-t", "tmpfs", "-o", "nr_inodes=2", "tmpfs"):
        command = ["-r", way[0] + str(ground / "src"), way[1] + str(to / "dst")]
        r = bench.copy(*command)
        assert r.code == 23 and "make directory %s/dst: No space left" % to in r.errors(), (r.code, r.errors())
        assert os.listdir(to) == []
        r = bench.copy(*command, env=failing(ground, "unlinkat", name="dst"))
        assert r.code == 23 and "remove directory %s/dst: Input/output error" % to in r.errors(), (r.code, r.errors())
        assert os.listdir(to) == ["dst"]
        os.rmdir(to / "dst")
        subprocess.run(["mount", "-o", "remount,nr_inodes=100", to], check=True)
        r = bench.copy(*command)
        assert r.code == 0, r.errors()
        assert read(to) == {"dst": {"f": b"f"}}


# ---- other options ----------------------------------------------------------------------------


def test_verify_passes_for_a_tree(bench, ground, way):
    a, b = ground / "a", ground / "b"
    generate(8, a, files=20)
    r = bench.copy("-aHAX", "--verify", way[0] + str(a), way[1] + str(b))
    assert r.code == 0, r.errors()[-3000:]
    equal(a, b, 8)


def test_leftover_temporaries_in_the_source_are_not_copied(bench, tmp_path):
    """The leftovers of a source are not copied; names that only resemble them are."""
    make(tmp_path, {"src": {".sluice.0123456789abcdef": b"", ".sluice.marker.0123456789abcdef": b"",
                            ".sluice.x": b"x", ".sluice": b"y", "f": b"f"}})
    r = bench.copy("-r", str(tmp_path / "src"), "far:%s" % (tmp_path / "to"))
    assert r.code == 0, r.errors()
    assert ".sluice.0123456789abcdef: its name is that of an unfinished copy" in r.errors(), r.errors()
    assert read(tmp_path / "to") == {".sluice.x": b"x", ".sluice": b"y", "f": b"f"}


def test_extreme_times_and_access_times_are_preserved(bench, ground):
    """--atimes works with -p; extreme times are exact to the nanosecond."""
    a, b = ground / "a", ground / "b"
    make(a, {"f": b"f", "d": {}})
    os.utime(a / "f", ns=(-(10**18) + 1, 12 * 10**18 + 999_999_999))
    want = os.stat(a / "f")
    r = bench.copy("-rp", str(a), "far:%s" % b)
    assert r.code == 0, r.errors()
    got = os.stat(b / "f")
    assert (got.st_atime_ns, got.st_mtime_ns) == (want.st_atime_ns, want.st_mtime_ns)


@pytest.mark.parametrize("stalled", [0, 1])
def test_merged_directory_has_the_metadata_of_the_first_source(bench, tmp_path, stalled):
    """Whichever lane announces it first."""
    for n, (name, mode) in enumerate((("a", 0o711), ("b", 0o755), ("c", 0o700))):
        make(tmp_path, {name: {"d": {"e": {}, name: b"x"}, "of " + name: {}}})
        for dir in ("d/e", "d", "of " + name, "."):
            (tmp_path / name / dir).chmod(mode)
            os.utime(tmp_path / name / dir, (1_500_000_000 + n, 1_500_000_000 + n))
    for to, option, sources in (("new", "-a", ("a/", "b/")), ("modes", "-r", ("a/", "c/")), ("other", "-a", ("far:b/", "far:a/")),
                                ("matches", "-a", ("far:?/",)), ("paths", "-aR", ("a/./d", "b/./d", "c/./d"))):
        option, more = (option, ["--relative"]) if option == "-aR" else (option, [])
        r = bench.copy(option.replace("R", ""), *more, "--mkpath", "--lanes=2", *sources, str(tmp_path / to), cwd=tmp_path,
                       env={"SLUICE_FAULT": "stall:lane=%d,block=0,ms=%d" % (stalled, 200 * SLOW)})
        assert r.code == 0, r.errors()
        first = tmp_path / sources[0].replace("far:", "").replace("?", "a")[0]
        # With -r alone, the mode of a directory that --mkpath made stays.
        for dir in ["d", "d/e"] + ([] if more else ["of " + first.name]) + (["."] if option == "-a" and not more else []):
            is_, was = (tmp_path / to / dir).stat(), (first / dir).stat()
            assert stat.S_IMODE(is_.st_mode) == stat.S_IMODE(was.st_mode), (to, dir)
            assert option == "-r" or is_.st_mtime_ns == was.st_mtime_ns, (to, dir)
