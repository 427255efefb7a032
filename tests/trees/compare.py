#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how two trees differ: compare.py [--without WHAT,…] [--sockets] A B

Compares names, types, sizes, contents, modes, mtimes to the nanosecond, owners, link targets, device
numbers, attributes, ACLs, sets of hard links, and holes: each aligned cell of 256 KiB that is a hole
in A must be one in B. Without --sockets, sockets of A must be missing in B. Prints a line for each
difference, and then exits with 1. It passes only single names to the kernel, so paths may have any
length."""

import argparse
import errno
import hashlib
import os
import stat
import subprocess
import sys

CELL = 256 << 10
READ = 1 << 20
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
         stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}
ALL = ("type", "content", "mode", "mtime", "owner", "target", "rdev", "xattrs", "acls", "links", "holes")
# These belong to the file system, not to the file, and cannot be copied.
FOREIGN = ("trusted.overlay.", "lustre.", "security.selinux")


def shown(path):
    """Short enough for a line, and unambiguous."""
    text = repr(path)[1:]
    return text if len(text) < 200 else text[:90] + " ... " + text[-90:]


def attributes(at):
    """(ACLs, other attributes). at: a descriptor or path."""
    acls, others = {}, {}
    try:
        names = os.listxattr(at)
    except OSError as e:
        if e.errno != errno.ENOTSUP:
            raise
        names = []
    for name in names:
        if not name.startswith(FOREIGN):
            (acls if name.startswith("system.posix_acl_") else others)[name] = os.getxattr(at, name)
    return acls, others


def data_ranges(fd, size):
    """The ranges with data, as the file system reports them."""
    at, found = 0, []
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:
                break
            return [(0, size)]
        at = min(os.lseek(fd, begin, os.SEEK_HOLE), size)
        found.append((begin, at))
    return found


def holes(ranges, size):
    """The cells that lie completely in holes, as ranges of cell numbers."""
    found, at = [], 0
    for begin, end in ranges + [(size, size)]:
        first, last = -(-at // CELL), begin // CELL
        if first < last:
            found.append((first, last))
        at = end
    return found


def digest(fd, size):
    """(digest of the content, holes). The digest does not depend on holes."""
    ranges = data_ranges(fd, size)
    sum_ = hashlib.blake2b(digest_size=16)
    zeros = bytes(READ)
    at = 0
    for begin, end in ranges:
        at = max(at, begin - begin % CELL)  # some bytes of a range may have been read with the previous one
        while at < end:
            piece = os.pread(fd, min(READ - at % READ, size - at), at)
            if not piece:
                raise OSError("shorter than its size")
            if len(piece) != READ or piece != zeros:
                for i in range(0, len(piece), CELL):
                    cell = piece[i:i + CELL]
                    if cell.strip(b"\0"):
                        sum_.update(b"%d %d " % (at + i, len(cell)))
                        sum_.update(cell)
            at += len(piece)
    return sum_.digest(), holes(ranges, size)


class Thing:
    __slots__ = ("stat", "kind", "digest", "holes", "target", "acls", "xattrs", "set")


def look(name, dirfd):
    t = Thing()
    t.digest, t.holes, t.target, t.set = None, [], None, None
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=dirfd)
    try:
        s = t.stat = os.fstat(fd)
        t.kind = KINDS[stat.S_IFMT(s.st_mode)]
        t.acls, t.xattrs = attributes("/proc/self/fd/%d" % fd)
        if t.kind == "symlink":
            t.target = os.readlink(b"", dir_fd=fd)
        elif t.kind == "file":
            try:
                file = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY | os.O_NOATIME)
            except PermissionError:
                t.digest = "can't be read"
            else:
                t.digest, t.holes = digest(file, s.st_size)
                os.close(file)
    finally:
        os.close(fd)
    return t


def enter(name, dirfd):
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NOATIME, dir_fd=dirfd)


def walk(top):
    """{path: Thing}. One directory is open at a time and left by "..", so no directory may be moved meanwhile."""
    found, first = {b".": look(top, None)}, {}
    fd = enter(top, None)
    todo = [(b"", sorted(os.fsencode(n) for n in os.listdir(fd)))]
    while todo:
        path, names = todo[-1]
        if not names:
            todo.pop()
            up = enter("..", fd) if todo else -1
            os.close(fd)
            fd = up
            continue
        name = names.pop(0)
        here = path + b"/" + name if path else name
        t = found[here] = look(name, fd)
        if t.kind == "directory":
            try:
                below = enter(name, fd)
            except PermissionError:
                t.digest = "can't be read"
                continue
            os.close(fd)
            fd = below
            todo.append((here, sorted(os.fsencode(n) for n in os.listdir(fd))))
        elif t.stat.st_nlink > 1:
            t.set = first.setdefault((t.stat.st_dev, t.stat.st_ino), here)
    return found


def inside(part, whole):
    """Is each range of part within one of whole?"""
    return all(any(w[0] <= p[0] and p[1] <= w[1] for w in whole) for p in part)


def differ(a, b, what):
    """Yields the differences between two entries of one type."""
    if "mode" in what and a.kind != "symlink" and stat.S_IMODE(a.stat.st_mode) != stat.S_IMODE(b.stat.st_mode):
        yield "mode %04o is %04o" % (stat.S_IMODE(a.stat.st_mode), stat.S_IMODE(b.stat.st_mode))
    if "mtime" in what and a.stat.st_mtime_ns != b.stat.st_mtime_ns:
        yield "mtime %d is %d" % (a.stat.st_mtime_ns, b.stat.st_mtime_ns)
    if "atime" in what and a.kind == "file" and a.stat.st_atime_ns != b.stat.st_atime_ns:
        yield "atime %d is %d" % (a.stat.st_atime_ns, b.stat.st_atime_ns)
    if "owner" in what and (a.stat.st_uid, a.stat.st_gid) != (b.stat.st_uid, b.stat.st_gid):
        yield "owner %d:%d is %d:%d" % (a.stat.st_uid, a.stat.st_gid, b.stat.st_uid, b.stat.st_gid)
    if "target" in what and a.target != b.target:
        yield "target %s is %s" % (shown(a.target), shown(b.target))
    if "rdev" in what and a.kind in ("char", "block") and a.stat.st_rdev != b.stat.st_rdev:
        yield "device %#x is %#x" % (a.stat.st_rdev, b.stat.st_rdev)
    for word in ("acls", "xattrs"):
        x, y = getattr(a, word), getattr(b, word)
        if word in what and x != y:
            yield "%s differ: %s" % (word, ", ".join(sorted(
                n[:60] for n in x.keys() | y.keys() if x.get(n) != y.get(n))))
    if a.kind == "file":
        if "content" in what:
            if a.stat.st_size != b.stat.st_size:
                yield "size %d is %d" % (a.stat.st_size, b.stat.st_size)
            elif a.digest != b.digest:
                yield "content differs"
        if "holes" in what and a.stat.st_size == b.stat.st_size:
            if not inside(a.holes, b.holes):
                yield "holes (in cells) %s are %s" % (a.holes[:9], b.holes[:9])
            # A file system may report a hole although its blocks are allocated.
            saved = sum(y - x for x, y in a.holes) * CELL
            if saved >= 4 << 20 and (b.stat.st_blocks - a.stat.st_blocks) * 512 > saved // 2:
                yield "%d blocks are %d" % (a.stat.st_blocks, b.stat.st_blocks)
    if a.digest == "can't be read" and "content" in what:
        yield "can't be read"


def compare(a, b, without=(), sockets=False, also=()):
    """A line for each difference. a and b are paths, or results of walk()."""
    a = a if isinstance(a, dict) else walk(a)
    b = b if isinstance(b, dict) else walk(b)
    what = [w for w in (*ALL, *also) if w not in without]
    lines = []
    sets = {}
    for path in sorted(a.keys() | b.keys()):
        x, y = a.get(path), b.get(path)
        if x and x.kind == "socket" and not sockets:
            if y:
                lines.append("%s: a socket is a %s" % (shown(path), y.kind))
        elif not y:
            lines.append("%s: %s is missing" % (shown(path), x.kind))
        elif not x:
            lines.append("%s: %s too many" % (shown(path), y.kind))
        elif x.kind != y.kind:
            lines.append("%s: %s is a %s" % (shown(path), x.kind, y.kind))
        else:
            lines += ["%s: %s" % (shown(path), d) for d in differ(x, y, what)]
            if "links" in what and x.kind != "directory":
                # Two names must be linked in B if, and only if, they are linked in A.
                one, other = x.set or path, y.set or path
                if sets.setdefault(("a", one), other) != other or sets.setdefault(("b", other), one) != one:
                    lines.append("%s: linked to %s is linked to %s" % (shown(path), shown(one), shown(other)))
    return lines


def rsync_differs(a, b, *options):
    """What rsync would change to make b equal to a, except for paths that rsync cannot handle."""
    r = subprocess.run(["rsync", "-naiAXH", "--checksum", "--delete", "--modify-window=-1", "--exclude=/deep *",
                        "--exclude=a socket *", *options, "--", os.path.join(os.fsencode(a), b""),
                        os.path.join(os.fsencode(b), b"")],
                       capture_output=True, check=False)
    said = (r.stdout + r.stderr).decode("utf-8", "backslashreplace")
    return said + "exit %d" % r.returncode if r.returncode else said


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--without", default="", help="of: " + ",".join(ALL))
    p.add_argument("--sockets", action="store_true")
    p.add_argument("a")
    p.add_argument("b")
    o = p.parse_args()
    lines = compare(o.a, o.b, [w for w in o.without.split(",") if w], o.sockets)
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
