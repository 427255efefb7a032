# SPDX-License-Identifier: Apache-2.0
"""rdcp -a: which metadata of a file is preserved and reported."""

import errno
import os
import stat
import subprocess

import pytest

from faulty import FAILING
from file_systems import EXT4, mounted_image
from hosts import USER, pattern, program
from trees import acl, equal, make, read, summary, walk, ways

pytestmark = [pytest.mark.moves_blocks, pytest.mark.any_lane]
OLD, NOW = 10**18, 15 * 10**17

way = ways("push", "pull")


def touch(top, ns, *names):
    for name in names or [os.fsdecode(p) for p in walk(os.fsencode(top))]:
        os.utime(os.path.join(top, name), ns=(ns, ns), follow_symlinks=False)


def copy(bench, *words, code=0, **how):
    r = bench.copy(*words, **how)
    assert r.code == code, (words, r.code, r.errors())
    return r


def test_checksum_compares_content(bench, ground, way):
    a, b = ground / "a", ground / "b"
    big = pattern(5 << 20)
    make(a, {"time": big, "content": big, "small": b"abc", "size": b"1"})
    make(b, {"time": big, "content": big[:-1] + b"!", "small": b"abd", "size": b"22"})
    with open(a / "holes", "wb") as f:
        f.truncate(6 << 20)
    (b / "holes").write_bytes(bytes(6 << 20))
    touch(a, OLD)
    touch(b, OLD)
    touch(b, NOW, "time")
    # Equal sizes and times deceive the quick check.
    copy(bench, "-a", way[0] + str(a) + "/", way[1] + str(b))
    assert (b / "small").read_bytes() == b"abd" and (b / "size").read_bytes() == b"1"
    (b / "size").write_bytes(b"22")
    touch(b, OLD, "size")
    touch(b, NOW, "time")
    inode = (b / "time").stat().st_ino
    r = copy(bench, "-a", "--checksum", "--json", way[0] + str(a) + "/", way[1] + str(b))
    assert summary(r)["bytes"] == len(big) + 3 + 1, summary(r)
    assert (b / "time").stat().st_ino == inode
    equal(a, b, without=("holes",))


@pytest.mark.needs("root", why="only root gives files away")
def test_chown_and_numeric_ids_set_owners(bench, tmp_path, way):
    make(tmp_path, {"a": {"f": b"", "d": {"x": b""}}})
    (tmp_path / "a" / "f").chmod(0o4755)
    os.chown(tmp_path / "a" / "d" / "x", 123456, 234567)
    copy(bench, "-a", "--chown=daemon:sys", way[0] + str(tmp_path / "a"), way[1] + str(tmp_path / "b"))
    owners = {(t.stat.st_uid, t.stat.st_gid) for t in walk(os.fsencode(tmp_path / "b")).values()}
    assert owners == {(1, 3)}
    copy(bench, "-a", "--numeric-ids", way[0] + str(tmp_path / "a"), way[1] + str(tmp_path / "c"))
    equal(tmp_path / "a", tmp_path / "c")


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("mode", [0o700, 0o1700, 0o3700])
def test_private_directory_stays_private(bench, ground, way, mode):
    """The mode bits of an existing directory have no other meaning for rdcp; nor have those of DST."""
    a, b = ground / "a", ground / "b"
    make(a, {"d": {"f": b"f"}})
    make(b, {"d": {}})
    (b / "d").chmod(mode)
    b.chmod(mode)
    copy(bench, "-r", way[0] + str(a) + "/", way[1] + str(b))
    assert (mode_of(b), mode_of(b / "d"), (b / "d" / "f").read_bytes()) == (mode, mode, b"f")
    copy(bench, "-r", way[0] + str(a), way[1] + str(b))
    assert (mode_of(b), mode_of(b / "a") & 0o1777) == (mode, mode_of(a))


def test_acls_option_implies_modes(bench, ground, way):
    make(ground / "a", {"d": {"f": b"f"}})
    for name, mode in (("d/f", 0o664), ("d", 0o770), ("", 0o711)):
        (ground / "a" / name).chmod(mode)
    for _ in range(2):
        copy(bench, "-rA", way[0] + str(ground / "a"), way[1] + str(ground / "b"), "-T")
        assert [mode_of(ground / "b" / n) for n in ("d/f", "d", "")] == [0o664, 0o770, 0o711]


@pytest.mark.needs("root", why="these attributes are root's")
def test_attribute_namespaces_follow_the_options(bench, ground, way):
    a = ground / "a"
    make(a, {"f": b"", "d": {}})
    names = ["user.x", "trusted.x", "security.capability"]
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    for name in names:
        os.setxattr(a / "f", name, capability if "cap" in name else b"1")
    for n, (options, want) in enumerate(((["-a"], []), (["-aX"], names[:2]), (["-a", "--xattrs=all"], names),
                                         (["-aA"], []), (["-rX"], names[:2]))):
        copy(bench, *options, way[0] + str(a), way[1] + str(ground / ("b%d" % n)))
        assert sorted(os.listxattr(ground / ("b%d" % n) / "f")) == sorted(want), options


def test_itemized_metadata_changes_match_rsync(bench, ground):
    """The same letters for the same differences, with -aHAX."""
    a, b = ground / "a", ground / "b"
    tree = {n: b"same" for n in ("same", "mode", "time", "mode and time", "acl", "attribute", "owner", "group",
                                 "content")}
    make(a, {**tree, "size": b"123", "new": b"", "d": {"new": b""}, "l": "same", "new l": "x", "od": {}})
    make(b, {**tree, "size": b"12", "content": b"diff", "l": "other", "od": {}, "extra": b"", "ed": {"x": b""}})
    touch(a, OLD)
    touch(b, OLD)
    for n in ("time", "mode and time", "content"):
        touch(b, NOW, n)
    for n in ("mode", "mode and time", "od"):
        (b / n).chmod(0o711)
    os.setxattr(a / "attribute", "user.a", b"1")
    os.setxattr(b / "attribute", "user.a", b"2")
    os.setxattr(a / "acl", "system.posix_acl_access", acl([(1, 6, 0xffffffff), (2, 5, 8), (4, 4, 0xffffffff),
                                                           (16, 4, 0xffffffff), (32, 4, 0xffffffff)]))
    if not USER:
        os.chown(b / "owner", 1, -1)
        os.chown(b / "group", -1, 1)
        os.mknod(a / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mkfifo(a / "fifo")
    touch(a, OLD, ".")
    rsync = subprocess.run(["rsync", "-naiHAX", "--delete", str(a) + "/", str(b) + "/"], capture_output=True, text=True)
    r = copy(bench, "-aHAX", "--itemize-changes", "--delete", str(a) + "/", "far:%s" % b)
    ours = sorted(line.lstrip("<>").rstrip() for line in bytes(r.out).decode().splitlines())
    theirs = sorted(line.lstrip("<>").rstrip().split(" -> ")[0] for line in rsync.stdout.splitlines())
    assert ours == theirs
    equal(a, b)


NONE = 0xFFFFFFFF
DEFAULTS = {
    "a user more": [(1, 7, NONE), (2, 7, 2), (4, 7, NONE), (16, 7, NONE), (32, 4, NONE)],
    "wider than the umask": [(1, 7, NONE), (4, 7, NONE), (32, 7, NONE)],
    "narrower": [(1, 6, NONE), (4, 0, NONE), (32, 0, NONE)],
}


def modes_and_acls(top):
    found = {}
    for path in sorted(top.rglob("*")):
        acls = {n: os.getxattr(path, n) for n in os.listxattr(path) if n.startswith("system.posix_acl")}
        found[str(path.relative_to(top))] = oct(path.stat().st_mode), acls
    return found


@pytest.mark.parametrize("what", DEFAULTS)
def test_default_acl_replaces_the_umask(bench, ground, what):
    """As for cp."""
    make(ground, {"src": {"f": b"1", "x": b"2", "big": bytes(1 << 20), "d": {"e": {"g": b"3"}}}, "cp": {}, "ours": {}})
    (ground / "src" / "x").chmod(0o755)
    (ground / "src" / "d" / "e" / "g").chmod(0o666)
    for name in ("cp", "ours"):
        os.setxattr(ground / name, "system.posix_acl_default", acl(DEFAULTS[what]))
    subprocess.run(["cp", "-r", "src", "src/x", "cp"], cwd=ground, check=True)
    for sources, target in ((["src", "src/x"], "ours"), (["src/"], "ours/src")):
        r = bench.copy("-r", *sources, "far:%s" % (ground / target), cwd=ground)
        assert r.code == 0, r.errors()
        assert modes_and_acls(ground / "ours") == modes_and_acls(ground / "cp")
        (ground / "ours" / "src" / "f").unlink()
        subprocess.run(["rm", "-r", ground / "ours" / "src" / "d"], check=True)
    r = bench.copy("src/f", "far:%s" % (ground / "ours" / "new"), cwd=ground)
    assert r.code == 0, r.errors()
    assert (ground / "ours" / "new").stat().st_mode == (ground / "cp" / "src" / "f").stat().st_mode


def without(tmp_path, capability):
    """A far end that runs as root with fewer privileges: root_squash, or a container."""
    (tmp_path / "less").write_text("#!/bin/sh\nexec setpriv --bounding-set=-%s %s \"$@\"\n" % (
        capability, program("rdcp")))
    (tmp_path / "less").chmod(0o755)
    return "--rdcp-path=%s" % (tmp_path / "less")


@pytest.mark.needs("root", why="only root gives files away")
@pytest.mark.parametrize("options", [["-aH"], ["-r", "--chown=daemon"]], ids=str)
def test_owner_that_root_cannot_set_exits_23(bench, ground, options):
    """As in rsync: everything is stored, links are made, and the exit code is 23, also with -q."""
    a, b, things = ground / "a", ground / "b", 23 if "-aH" in options else 24
    make(a, {"f%02d" % i: b"x" * i for i in range(20)})
    (a / "d").mkdir()
    (a / "s").symlink_to("nowhere")
    os.link(a / "f03", a / "linked")
    for p in [a, *a.iterdir()]:
        os.chown(p, 3, 4, follow_symlinks=False)
    make(ground, {"b": {"more": b""}})
    r = copy(bench, *options, "-q", "--json", "--delete", str(a) + "/", "far:%s" % b, without(ground, "chown"), code=23)
    assert 1 <= r.errors().count("Operation not permitted") <= 11 and "metadata of %d files" % things in r.errors(), r.errors()
    got = summary(r)
    assert got["unkept"] == things and got["failed"] == 0 and got["exit"] == 23, got
    assert read(b) == read(a)
    assert "-aH" not in options or (b / "f03").stat().st_ino == (b / "linked").stat().st_ino
    # Existing files behave the same.
    r = copy(bench, *options, "-q", str(a) + "/", "far:%s" % b, without(ground, "chown"), code=23)
    copy(bench, *options, str(a) + "/", "far:%s" % b)
    assert options == ["-r", "--chown=daemon"] or (b / "d").stat().st_uid == 3


@pytest.mark.needs("root", why="only root gives files away")
def test_source_whose_owner_is_not_preserved_is_not_removed(bench, ground):
    a, b = ground / "a", ground / "b"
    make(a, {"f": b"precious"})
    os.chown(a / "f", 3, 4)
    r = copy(bench, "-a", "--remove-source-files", str(a) + "/", "far:%s" % b, without(ground, "chown"), code=23)
    assert "set owner of" in r.errors(), r.errors()
    assert (a / "f").read_bytes() == (b / "f").read_bytes() == b"precious"
    copy(bench, "-a", str(a / "f"), "far:%s" % (ground / "one"), without(ground, "chown"), code=23)
    assert (ground / "one").read_bytes() == b"precious"


@pytest.mark.needs("root", why="only root mounts")
@pytest.mark.may_skip("any", "a container may not be allowed to mount")
def test_time_that_the_file_system_cannot_store_exits_23(bench, tmp_path):
    """ext4 with small inodes stores the years 1901 to 2038."""
    make(tmp_path / "a", {"new": b"1", "now": b"2", "d": {"old": b"3"}, "l": "now"})
    for path, second in (("new", 1 << 31), ("d/old", -(1 << 31) + 1), ("l", 1 << 32), ("d", 1 << 33)):
        os.utime(tmp_path / "a" / path, (second, second), follow_symlinks=False)
    with mounted_image(tmp_path / "image", 16 << 20, tmp_path / "mounted", make=[*EXT4, "-I", "128"]) as top:
        r = copy(bench, "-a", "--json", str(tmp_path / "a") + "/", "far:%s" % (top / "to"), code=23)
        assert r.errors().count("cannot store the time") == 3 and summary(r)["unkept"] == 3, r.errors()
        assert read(top / "to") == read(tmp_path / "a")
        r = copy(bench, "-a", "--remove-source-files", str(tmp_path / "a") + "/", "far:%s" % (top / "to"), code=23)
        assert read(tmp_path / "a") == {"new": b"1", "l": "now", "d": {}}, r.errors()
        assert read(top / "to") == {"new": b"1", "now": b"2", "d": {"old": b"3"}, "l": "now"}


def test_times_beyond_32_bits_are_preserved_and_compared(bench, ground, way):
    """Of files, links and directories. With 32 bits 2040 is 1903, and what is older seems newer."""
    second, year_2040 = 10**9, 2208988800
    times = [-(1 << 31), -1, 0, (1 << 31) - 1, 1 << 31, year_2040, (1 << 32) - 1, 1 << 32, 1 << 33]
    a, b = ground / "a", ground / "b"
    make(a, {"%d" % n: {"f": b"x", "l": "f", "d": {}} for n in times})
    for n in times:
        for name in ("f", "l", "d", ""):
            touch(a / str(n), n * second + 999999999, name)
    copy(bench, "-a", way[0] + str(a) + "/", way[1] + str(b))
    assert (b / str(year_2040) / "f").stat().st_mtime_ns == year_2040 * second + 999999999
    equal(a, b)
    r = copy(bench, "-a", "--json", way[0] + str(a) + "/", way[1] + str(b))
    assert summary(r)["bytes"] == 0, summary(r)
    make(ground, {"new": b"new", "old": b"old", "to": {}})
    for given, there, wanted in (("new", "old", b"new"), ("old", "new", b"new"), ("new", "new", b"new")):
        touch(ground, year_2040 * second, "new")
        touch(ground, (year_2040 - (1 << 32)) * second, "old")
        copy(bench, "-p", str(ground / there), str(ground / "to" / "f"))
        copy(bench, "-pu", way[0] + str(ground / given), way[1] + str(ground / "to" / "f"))
        assert (ground / "to" / "f").read_bytes() == wanted, (given, there)


@pytest.mark.needs("root", why="only root gives files away")
def test_replaced_owner_that_cannot_be_kept_is_a_warning(bench, ground):
    """Without -a the owner was not requested."""
    make(ground, {"a": b"new", "b": b"old"})
    os.chown(ground / "b", 3, 4)
    r = copy(bench, str(ground / "a"), "far:%s" % (ground / "b"), without(ground, "chown"))
    assert "could not be kept" in r.errors() and (ground / "b").read_bytes() == b"new", r.errors()


@pytest.mark.needs("root", why="only root has such attributes")
def test_refused_trusted_attribute_exits_23(bench, ground):
    a, b = ground / "a", ground / "b"
    make(a, {"f": b"x"})
    os.setxattr(a / "f", "trusted.try", b"1")
    r = copy(bench, "-aX", "-q", str(a) + "/", "far:%s" % b, without(ground, "sys_admin"), code=23)
    assert "trusted.try" in r.errors() and read(b) == read(a), r.errors()
    # Ordinary users cannot see trusted attributes.
    copy(bench, "-a", str(a) + "/", "far:%s" % b)




@pytest.mark.skipif(not FAILING.exists(), reason="a build without faults")
@pytest.mark.parametrize("asked", [False, True], ids=["plain", "perms"])
def test_mode_that_cannot_be_set_is_reported(bench, tmp_path, way, asked):
    """One warning if it was not requested, else a failure; the content is stored."""
    # A file that replaces another one has a different mode as long as it has a temporary name.
    make(tmp_path, {"a": {"f": b"f", "g": b"g"}, "b": {"f": b"old", "g": b"old"}})
    env = {"LD_PRELOAD": str(FAILING), "FAIL_CALL": "fchmod", "FAIL_ERRNO": str(int(errno.EPERM))}
    r = bench.copy("-r", *["--perms"] * asked, way[0] + str(tmp_path / "a") + "/", way[1] + str(tmp_path / "b"), env=env)
    assert r.code == (23 if asked else 0), (r.code, r.errors())
    assert read(tmp_path / "b") == {"f": b"f", "g": b"g"}
    if asked:
        assert "set mode of f: Operation not permitted" in r.errors(), r.errors()
    else:
        assert r.errors().count("its mode could not be set: Operation not permitted") == 1, r.errors()


# ---- ACLs, and what else decides who may read ------------------------------------------------------

CLOSED = [(1, 7, NONE), (2, 7, 1000), (4, 0, NONE), (16, 7, NONE), (32, 0, NONE)]     # the group bits of the mode are the mask


def access_acl(path):
    try:
        return os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return None


@pytest.mark.parametrize("how", ["files-from", "relative"])
def test_directories_that_are_led_through_keep_their_attributes(bench, ground, way, how):
    make(ground, {"a": {"p": {"q": {"f": b"f"}}}, "list": b"p/q/f\n", "b": {}})
    for d in "p", "p/q":
        os.setxattr(ground / "a" / d, "system.posix_acl_access", acl(CLOSED))
        os.setxattr(ground / "a" / d, "user.k", d.encode())
    os.setxattr(ground / "a" / "p", "system.posix_acl_default", acl(CLOSED))
    words = {"files-from": ["--files-from=%s" % (ground / "list"), way[0] + str(ground / "a")],
             "relative": ["--relative", way[0] + str(ground / "a") + "/./p/q/f"]}[how]
    for _ in range(2):
        copy(bench, "-aAX", *words, way[1] + str(ground / "b") + "/")
        for d in "p", "p/q":
            a, b = ground / "a" / d, ground / "b" / d
            assert {n: os.getxattr(a, n) for n in os.listxattr(a)} == {n: os.getxattr(b, n) for n in os.listxattr(b)}
            assert a.stat().st_mode == b.stat().st_mode
        # A copy of all finds nothing to change.
        assert copy(bench, "-aAX", "--itemize-changes", way[0] + str(ground / "a") + "/p/", way[1] + str(ground / "b/p")).out == b""


@pytest.mark.parametrize("change,mode", [("F600", 0o600), ("F640", 0o640), ("g-w", 0o654)])
def test_chmod_changes_acls(bench, ground, way, change, mode):
    make(ground, {"a": {"f": b"f"}, "b": {}})
    os.setxattr(ground / "a" / "f", "system.posix_acl_access", acl([(1, 6, NONE), (2, 7, 1000), (4, 5, NONE), (16, 7, NONE), (32, 4, NONE)]))
    for n in range(3):
        r = copy(bench, "-aA", "--chmod=" + change, "--itemize-changes", way[0] + str(ground / "a") + "/", way[1] + str(ground / "b"))
        assert n == 0 or r.out == b"", r.out
        st = (ground / "b" / "f").stat()
        assert st.st_mode & 0o777 == mode and access_acl(ground / "b" / "f") is not None
        assert n == 0 or st.st_ctime_ns == last, "set again"
        last = st.st_ctime_ns


@pytest.mark.parametrize("options", [["-a"], ["-aA"]], ids=" ".join)
def test_backup_directory_gives_no_rights_that_an_acl_denies(bench, ground, way, options):
    make(ground, {"a": {"d": {"f": b"new"}}, "b": {"d": {"f": b"old!"}}})
    for top in "ab":
        os.setxattr(ground / top / "d", "system.posix_acl_access", acl(CLOSED))
    copy(bench, *options, "--backup", "--backup-dir=old", way[0] + str(ground / "a") + "/", way[1] + str(ground / "b"))
    assert (ground / "b" / "old" / "d" / "f").read_bytes() == b"old!"
    assert (ground / "b" / "old" / "d").stat().st_mode & 0o777 == 0o700


def test_only_changes_of_directories_are_itemized(bench, ground, way):
    """Not those of the later of two sources, nor of a target that is only led through."""
    make(ground, {"y1": {"k": {"f": b"1"}}, "y2": {"k": {"g": b"2"}}, "to": {}, "list": b"k/f\n", "other": {}})
    (ground / "y1" / "k").chmod(0o700)
    touch(ground / "y1", OLD)
    words = ["-a", "--itemize-changes", *("%s%s/%s/" % (way[0], ground, n) for n in ("y1", "y2")), way[1] + str(ground / "to")]
    copy(bench, *words)
    for extra in [], ["-n"]:
        assert copy(bench, *words, *extra).out == b""
    words = ["-a", "--itemize-changes", "--files-from=%s" % (ground / "list"), way[0] + str(ground / "y1"), way[1] + str(ground / "other")]
    copy(bench, *words)
    assert copy(bench, *words).out == b""


def test_attributes_of_directories_are_itemized(bench, ground, way):
    """As by rsync."""
    make(ground, {"a": {"p": {"q": {"f": b"f"}}, "r": {}}, "b": {}})
    copy(bench, "-aAX", str(ground / "a") + "/", str(ground / "b"))
    os.setxattr(ground / "a" / "p", "system.posix_acl_access", acl(CLOSED))
    os.setxattr(ground / "b" / "p", "user.extra", b"1")
    os.setxattr(ground / "a" / "r", "user.k", b"1")
    (ground / "b" / "p" / "q").chmod(0o700)
    make(ground / "a", {"p": {"new": {}}})
    os.utime(ground / "a" / "p", (1, 1))    # rsync ignores less than a second
    theirs = subprocess.run(["rsync", "-naiAX", str(ground / "a") + "/", str(ground / "b")], capture_output=True, text=True, check=True).stdout
    for options in ["-n"], []:
        r = copy(bench, "-aAX", "--itemize-changes", *options, way[0] + str(ground / "a") + "/", way[1] + str(ground / "b"))
        assert sorted(r.out.decode().split("\n")) == sorted(theirs.split("\n"))
    assert copy(bench, "-aAX", "--itemize-changes", way[0] + str(ground / "a") + "/", way[1] + str(ground / "b")).out == b""


def test_attributes_of_directories_are_compared_from_the_top(bench, ground, way):
    """Each after its parent: in any other order each of a deep chain opens all those above it."""
    chain, names = {}, []
    for n in range(60, 0, -1):
        chain = {"d%d" % n: chain}
    make(ground, {"a": chain, "b": {}})
    words = "-aX", "--itemize-changes", way[0] + str(ground / "a") + "/", way[1] + str(ground / "b")
    copy(bench, *words)
    at = ground / "a"
    for n in range(1, 61):
        at = at / ("d%d" % n)
        os.setxattr(at, "user.a", b"1")
        names.append(str(at.relative_to(ground / "a")) + "/")
    told = copy(bench, *words).out.decode().splitlines()
    assert [line.split(" ", 1)[1] for line in told] == names
