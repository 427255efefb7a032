# SPDX-License-Identifier: Apache-2.0
"""The comparison of trees finds every planted difference, and the generator makes every kind of entry."""

import os
import shutil
import stat
import struct
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from compare import CELL, compare, rsync_differs, walk  # noqa: E402
from generate import acl, fell, generate  # noqa: E402
from hosts import share  # noqa: E402

ROOT = os.geteuid() == 0
root_only = pytest.mark.needs("root", why="only root can make devices and set owners and some attributes")
ACL = acl([(1, 6, 0xffffffff), (2, 5, 8), (4, 4, 0xffffffff), (16, 5, 0xffffffff), (32, 4, 0xffffffff)])


@pytest.fixture
def pair(tmp_path):
    """Paths for two trees."""
    a, b = os.fsencode(tmp_path / "a"), os.fsencode(tmp_path / "b")
    yield a, b
    fell(a)
    fell(b)


@pytest.fixture
def two(pair):
    """Two equal trees."""
    for top in pair:
        generate(3, top, files=10)
        plain(top)
    return pair


def plain(top):
    """Makes entries with known names, in which tests plant differences."""
    for kind in ("access", "default"):
        if "system.posix_acl_" + kind in os.listxattr(top):
            os.removexattr(top, "system.posix_acl_" + kind)
    os.chmod(top, 0o755)
    at = top + b"/known"
    os.mkdir(at)
    for name, data in ((b"file", b"some bytes"), (b"other", b"some bytes"), (b"Case", b"x"), (b"\xff", b"y")):
        with open(at + b"/" + name, "wb") as f:
            f.write(data)
    with open(at + b"/holes", "wb") as f:
        f.truncate(24 * CELL)
        f.write(b"1")
    os.link(at + b"/file", at + b"/linked")
    os.symlink(b"file", at + b"/symlink")
    os.mkdir(at + b"/empty")
    os.mkfifo(at + b"/fifo")
    if ROOT:
        os.mknod(at + b"/device", stat.S_IFCHR | 0o600, os.makedev(1, 7))
    os.setxattr(at + b"/file", "user.word", b"value")
    os.setxattr(at + b"/file", "system.posix_acl_access", ACL)
    os.setxattr(at + b"/empty", "system.posix_acl_default", ACL)
    for n, name in enumerate(sorted(os.listdir(at)) + [b"."]):
        os.utime(at + b"/" + name, ns=(5, 10**18 + n), follow_symlinks=False)
    os.utime(top, ns=(5, 7))


def with_times_kept(path, change):
    """Changes path, and restores its times."""
    s = os.lstat(path)
    change(path)
    os.utime(path, ns=(s.st_atime_ns, s.st_mtime_ns), follow_symlinks=False)


def replace(path, make):
    """Replaces the entry, and restores the times of its directory."""
    up = os.path.dirname(path)

    def change(_):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        elif os.path.lexists(path):
            os.unlink(path)
        if make:
            make(path)
    with_times_kept(up, change)


def write(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def nudge(path, ns=1):
    s = os.lstat(path)
    os.utime(path, ns=(s.st_atime_ns, s.st_mtime_ns + ns), follow_symlinks=False)


def fill(path):
    write(path, CELL, bytes(CELL))


def in_deepest(top, do):
    """Calls do in a directory deeper than PATH_MAX."""
    fd = os.open(top + b"/deep names", os.O_RDONLY)
    while True:
        below = [n for n in os.listdir(fd) if stat.S_ISDIR(os.stat(n, dir_fd=fd, follow_symlinks=False).st_mode)]
        if not below:
            break
        next_ = os.open(below[0], os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = next_
    do(fd)
    os.close(fd)


def deep_content(fd):
    for name in os.listdir(fd):
        s = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISREG(s.st_mode):
            file = os.open(name, os.O_RDWR, dir_fd=fd)
            os.pwrite(file, b"other", CELL - 3)
            os.utime(file, ns=(s.st_atime_ns, s.st_mtime_ns))
            os.close(file)


def other_acl(path):
    os.setxattr(path, "system.posix_acl_access", ACL.replace(struct.pack("<HHI", 2, 5, 8),
                                                             struct.pack("<HHI", 2, 4, 8)))


def break_link(path):
    replace(path, lambda p: shutil.copy2(p.replace(b"linked", b"file"), p))
    os.setxattr(path, "system.posix_acl_access", ACL)


PLANTED = {
    # name: (the change below known/ of the copy, whether rsync detects it too)
    "a file missing": (lambda k: replace(k + b"other", None), True),
    "a file too many": (lambda k: replace(k + b"more", lambda p: open(p, "w").close()), True),
    "an empty directory missing": (lambda k: replace(k + b"empty", None), True),
    "a directory too many": (lambda k: replace(k + b"more", os.mkdir), True),
    "a file that is a symlink": (lambda k: replace(k + b"other", lambda p: os.symlink(b"file", p)), True),
    "a fifo that is a file": (lambda k: replace(k + b"fifo", lambda p: open(p, "w").close()), True),
    "a byte more": (lambda k: with_times_kept(k + b"other", lambda p: write(p, 10, b"!")), True),
    "a byte changed": (lambda k: with_times_kept(k + b"other", lambda p: write(p, 3, b"!")), True),
    "a byte of a file with holes": (lambda k: with_times_kept(k + b"holes", lambda p: write(p, 5 * CELL, b"!")), True),
    "a bit of a mode": (lambda k: os.chmod(k + b"other", 0o645), True),
    "set-uid": (lambda k: os.chmod(k + b"other", 0o4644), True),
    "a directory's mode": (lambda k: os.chmod(k + b"empty", 0o1755), True),
    "a nanosecond of a file": (lambda k: nudge(k + b"other"), True),
    "a nanosecond of a directory": (lambda k: nudge(k + b"empty"), True),
    "a nanosecond of a symlink": (lambda k: nudge(k + b"symlink", -1), True),
    "a symlink's target": (lambda k: (replace(k + b"symlink", lambda p: os.symlink(b"filf", p)),
                                      os.utime(k + b"symlink", ns=(5, 10**18 + 9), follow_symlinks=False)), True),
    "an owner": (lambda k: os.chown(k + b"other", 3, -1), True),
    "a group": (lambda k: os.chown(k + b"other", -1, 3), True),
    "a symlink's owner": (lambda k: os.lchown(k + b"symlink", 3, -1), True),
    "a device's number": (lambda k: replace(k + b"device", lambda p: os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 8))),
                          True),
    "an attribute": (lambda k: os.setxattr(k + b"file", "user.word", b"valuf"), True),
    "an attribute missing": (lambda k: os.removexattr(k + b"file", "user.word"), True),
    "an attribute too many": (lambda k: os.setxattr(k + b"empty", "user.more", b""), True),
    "an ACL": (lambda k: other_acl(k + b"file"), True),
    "a default ACL missing": (lambda k: os.removexattr(k + b"empty", "system.posix_acl_default"), True),
    "a hard link broken": (lambda k: break_link(k + b"linked"), True),
    "a hard link too many": (lambda k: with_times_kept(k, lambda p: (os.unlink(p + b"Case"), os.link(p + b"other", p + b"Case"))),
                             True),
    "a hole filled": (lambda k: with_times_kept(k + b"holes", fill), False),
    "all holes filled": (lambda k: with_times_kept(k + b"holes", lambda p: os.posix_fallocate(
        os.open(p, os.O_RDWR), 0, 24 * CELL)), False),
    "another case": (lambda k: with_times_kept(k, lambda p: os.rename(p + b"Case", p + b"case")), True),
    "another byte in a name": (lambda k: with_times_kept(k, lambda p: os.rename(p + b"\xff", p + b"\xfe")), True),
    "content deeper than PATH_MAX": (lambda k: in_deepest(os.path.dirname(k[:-1]), deep_content), False),
    "a mode deeper than PATH_MAX": (lambda k: in_deepest(os.path.dirname(k[:-1]), lambda fd: os.fchmod(fd, 0o1723)), False),
    "the top's mode": (lambda k: os.chmod(os.path.dirname(k[:-1]), 0o711), True),
    "the top's time": (lambda k: nudge(os.path.dirname(k[:-1])), True),
    "a socket": (lambda k: replace(k + b"a socket 1", lambda p: os.mknod(p, stat.S_IFSOCK | 0o600)), False),
}
ROOTS = ("an owner", "a group", "a symlink's owner", "a device's number")


def test_same_seed_makes_the_same_tree(two):
    assert not compare(*two, sockets=True)
    assert not rsync_differs(*two)


@pytest.mark.parametrize("what", [pytest.param(w, marks=root_only if w in ROOTS else ()) for w in share(list(PLANTED), 12)])
def test_planted_difference_is_found(two, what):
    plant, rsync_too = PLANTED[what]
    plant(two[1] + b"/known/")
    lines = compare(*two, sockets=True)
    assert 1 <= len(lines) <= 3, (what, lines)
    if rsync_too:
        assert rsync_differs(*two), what


def test_holes_do_not_change_the_content(two):
    """The zeros between scattered data are holes in one tree and data in the other."""
    pieces = [(8192 * i, 4096) for i in range(40)] + [(CELL - 100, 200), (5 * CELL + 1, 2 * CELL)]
    for n, top in enumerate(two):
        with open(top + b"/known/scattered", "wb") as f:
            f.write(bytes(8 * CELL) if n else b"")
            for at, length in pieces:
                f.seek(at)
                f.write(b"x" * length)
            f.truncate(8 * CELL)
        os.utime(top + b"/known/scattered", ns=(1, 1))
        os.utime(top + b"/known", ns=(1, 1))
    assert not compare(*two, without=["holes"], sockets=True)
    assert [x for x in compare(*two, sockets=True) if "holes" in x]


def test_sockets_are_expected_to_be_missing(two):
    def others(path):
        return any(n.startswith(b"a socket") for n in path.split(b"/"))
    there = walk(two[0])
    assert any(others(p) for p in there)
    assert not compare(there, {p: t for p, t in there.items() if not others(p)})
    assert compare(there, there)


@root_only
@pytest.mark.parametrize("seed", range(10, 13))
def test_copy_made_by_rsync_is_equal(pair, seed):
    """An independent check of equality, without the paths that rsync cannot handle."""
    a, b = pair
    generate(seed, a)
    fell(a + b"/deep names")
    subprocess.run(["rsync", "-aHAX", "--sparse", a + b"/", b + b"/"], check=True)
    # rsync sometimes leaves the time of the top directory unset.
    assert not [x for x in compare(a, b, sockets=True) if not x.startswith("'.': mtime")], "seed %d" % seed


@root_only
def test_tree_contains_every_kind_of_entry(pair):
    """At least one entry of each kind, so that a generator that loses some is noticed."""
    t = generate(1, pair[0], files=500, many=True, huge=True)
    found = walk(pair[0])
    things = found.values()
    assert {x.kind for x in things} == {"file", "directory", "symlink", "fifo", "socket", "char", "block"}
    assert {stat.S_IMODE(x.stat.st_mode) for x in things if x.kind == "file"} == set(range(0o10000))
    assert any(x.stat.st_mtime_ns < 0 for x in things) and any(x.stat.st_mtime_ns >= 2**31 * 10**9 for x in things)
    assert sum(x.stat.st_mtime_ns % 1000 != 0 for x in things) > 100
    assert max(map(len, found)) > 4096 and max(p.count(b"/") for p in found) > 2000
    assert any(len(n) == 255 for p in found for n in p.split(b"/"))
    assert {b for p in found for b in p} == set(range(1, 256))
    assert any(x.stat.st_size == (4 << 30) + 1 and x.stat.st_blocks < 4096 for x in things)
    for kind in ("file", "symlink", "fifo", "char"):
        assert sum(x.set is not None for x in things if x.kind == kind) >= 2, kind
    for kind in ("file", "directory", "fifo", "char"):
        assert any(x.acls for x in things if x.kind == kind), kind
    assert any("system.posix_acl_default" in x.acls for x in things)
    for kind in ("file", "directory", "symlink"):
        assert any(x.xattrs for x in things if x.kind == kind) or t.left_out, kind
    assert len({(x.stat.st_uid, x.stat.st_gid) for x in things}) > 10
    assert sum(bool(x.holes) for x in things) >= 8
