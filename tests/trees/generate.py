#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a tree of everything that a file system can hold. A seed always makes the same tree:
generate.py [--files N] [--many] [--huge] SEED DIRECTORY

--files=N makes N plain small files (default: 120). --many also makes a file of each mode and
thousands of nested directories, --huge a sparse file of 4 GiB and one byte. Leaves out what the user
may not make or the file system does not have (devices, owners, attributes). Every call is relative to
a held directory, because part of the tree is deeper than PATH_MAX."""

import argparse
import errno
import os
import random
import stat
import struct
import subprocess

BLOCK = 256 << 10
POOL = 1 << 20
SOCKET = b"a socket "          # names that begin so are sockets, which rdcp does not copy
DEEP = b"deep "                # below names that begin so, paths are longer than PATH_MAX
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32

# Names that confuse shells, programs that print lines, and careless comparisons.
AWKWARD = [
    b"-rf", b"--", b"-", b"~", b"~root", b"*", b"?", b"[a]", b"a\\b", b"a b", b" ", b" lead",
    b"trail ", b"a\nb", b"\n", b"\r", b"\t", b"\x1b[31mred", b"\x7f", b"\x9b1m", b"\xff", b"\xfe\xff",
    b"\xc3\x28", b"\xed\xa0\x80", "\u00fc".encode(), "u\u0308".encode(), "\u202etxt.exe".encode(),
    b"...", b"..a", b".hidden", b"a:b", b":", b"$HOME", b"`id`", b"$(id)", b"'", b'"', b"a;b", b"a&b",
    b"#", b"#x", b"; ", b"%s%n", b"!", b"CON", b"nul.txt", b".sluice", b".sluice.", b".sluice.marker",
    b".sluice.0123456789abcde", b".sluice.marker.x", b".rsync-filter", b".nfs0001", b"lost+found",
]
CASES = [(b"readme", b"README", b"ReadMe"), (b"a", b"A"), ("\u00e9".encode(), "\u00c9".encode()),
         ("stra\u00dfe".encode(), b"strasse")]


def acl(entries):
    """The kernel's encoding of an ACL: (tag, permissions, id)…"""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


class Directory:
    def __init__(self, fd, path):
        self.fd, self.path, self.names = fd, path, set()


class Tree:
    def __init__(self, top, seed, files, many, huge):
        self.random = random.Random(seed)
        self.pool = self.random.randbytes(POOL)
        self.seed, self.files, self.many, self.huge = seed, files, many, huge
        self.root = os.geteuid() == 0
        self.left_out = set()
        self.dirs = [Directory(os.open(top, os.O_RDONLY | os.O_DIRECTORY), b".")]
        self.count = 0

    # -- names and numbers --------------------------------------------------------------

    def odd_name(self):
        r = self.random
        kind = r.random()
        if kind < 0.45:
            return b"%s%d%s" % (r.choice([b"file", b"Data", b"x"]), r.randrange(1000),
                                r.choice([b"", b".c", b".tar.gz"]))
        if kind < 0.6:
            return r.choice(AWKWARD)
        if kind < 0.9:
            raw = r.randbytes(r.randint(1, 40))
        else:
            raw = r.randbytes(r.choice([254, 255]))
        raw = bytes(b if b not in b"\0/" else b + 1 for b in raw)
        return b"x" if raw in (b".", b"..") or raw.startswith((SOCKET, DEEP)) else raw

    def name(self, d, wanted=None):
        """A name that d does not have yet."""
        name = wanted or self.odd_name()
        while name in d.names:
            name = b"%s.%d" % (name[:240], self.random.randrange(10**6))
        d.names.add(name)
        self.count += 1
        return name

    def any_dir(self):
        return self.random.choice(self.dirs)

    def when(self):
        """Nanoseconds, also before 1970 and after 2038."""
        r = self.random
        ns = r.choice([0, 1, 999_999_999, r.randrange(10**9), r.randrange(10**9)])
        s = r.choice([1_500_000_000 + r.randrange(10**8), 1_500_000_000 + r.randrange(10**8),
                      r.choice([-1, 0, 1, 2**31 - 1, 2**31, -2**31, 2**32]),
                      -r.randrange(2**31), 2**31 + r.randrange(12 * 10**9)])
        return s * 10**9 + ns

    def owner(self):
        r = self.random
        return (r.choice([0, 0, 1, 2, 65534, 12345, 70000, 2**31 + 5]),
                r.choice([0, 0, 1, 4, 65534, 54321, 80000]))

    def mode(self, directory=False):
        r = self.random
        mode = r.choice([0o644, 0o600, 0o755, 0o444, r.randrange(0o1000), r.randrange(0o10000)])
        return mode if self.root else mode | (0o500 if directory else 0o400)

    # -- metadata, in an order in which no step undoes an earlier one -------------------------

    def attribute(self, at, name, value):
        """Sets an attribute, unless the file system refuses it. at: a descriptor or path."""
        try:
            os.setxattr(at, name, value, follow_symlinks=True)
        except OSError as e:
            if e.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENOSPC, errno.E2BIG, errno.ERANGE):
                raise
            self.left_out.add("%s: %s" % (name.split(".")[0], e.strerror))

    def acls(self, at, mode, directory):
        r = self.random

        def some(top):
            entries = [(USER_OBJ, mode >> 6 & 7, 0xffffffff)]
            entries += [(USER, r.randrange(8), i) for i in sorted(r.sample([1, 2, 8, 65534, 12345], r.randint(0, 3)))]
            entries.append((GROUP_OBJ, r.randrange(8), 0xffffffff))
            entries += [(GROUP, r.randrange(8), i) for i in sorted(r.sample([1, 4, 54321], r.randint(0, 2)))]
            entries.append((MASK, r.randrange(8), 0xffffffff))
            entries.append((OTHER, r.randrange(8), 0xffffffff))
            self.attribute(at, "system.posix_acl_" + top, acl(entries))

        if r.random() < 0.7 or not directory:
            some("access")
        if directory and r.random() < 0.6:
            some("default")

    def xattrs(self, at, user):
        r = self.random
        kinds = (["user."] if user else []) + (["trusted."] if self.root else [])
        for _ in range(r.randint(1, 4) if kinds else 0):
            name = r.choice(kinds) + r.choice(["a", "with space", "\u00fc", "x" * 200, "n%d" % r.randrange(100)])
            self.attribute(at, name, r.choice([b"", b"1", b"\0\xff\n", r.randbytes(r.randint(1, 100)),
                                               r.randbytes(1000)]))

    def dress(self, at, directory=False, rich=0.2, mode=None, user=True):
        """Sets owner, mode, ACL and attributes of `at' (a descriptor, or a path through one)."""
        mode = self.mode(directory) if mode is None else mode
        if self.random.random() < rich:
            self.xattrs(at, user)
        if self.root:
            os.chown(at, *self.owner())
        os.chmod(at, mode)
        if self.random.random() < rich:
            self.acls(at, mode, directory)

    def times(self, at, **how):
        os.utime(at, ns=(self.when(), self.when()), **how)

    def dress_node(self, d, name, link=False):
        """Sets the metadata of an entry that can't be opened. Symlinks have no mode."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=d.fd)
        at = "/proc/self/fd/%d" % fd
        if link:
            if self.root:
                os.chown(name, *self.owner(), dir_fd=d.fd, follow_symlinks=False)
                if self.random.random() < 0.2:
                    self.xattrs(at, user=False)
        else:
            self.dress(at, user=False, rich=0.4)
        os.close(fd)
        self.times(name, dir_fd=d.fd, follow_symlinks=False)

    # -- things -------------------------------------------------------------------------

    def bytes(self, size):
        if size > POOL:
            return self.random.randbytes(size)
        at = self.random.randrange(POOL - size + 1)
        return self.pool[at:at + size]

    def file(self, d, size=0, wanted=None, pieces=None, mode=None, rich=0.2):
        """pieces: (offset, length)… of data; the rest up to size is holes."""
        name = self.name(d, wanted)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=d.fd)
        for at, length in [(0, size)] if pieces is None else pieces:
            if length:
                os.pwrite(fd, self.bytes(length), at)
        if pieces is not None:
            os.ftruncate(fd, size)
        self.dress(fd, rich=rich, mode=mode)
        self.times(fd)
        os.close(fd)
        return name

    def symlink(self, d, target, wanted=None):
        name = self.name(d, wanted)
        os.symlink(target, name, dir_fd=d.fd)
        self.dress_node(d, name, link=True)
        return name

    def node(self, d, kind, device=0, wanted=None):
        name = self.name(d, wanted)
        try:
            os.mknod(name, kind | 0o600, device, dir_fd=d.fd)
        except PermissionError:
            self.left_out.add("devices")
            return None
        self.dress_node(d, name)
        return name

    def mkdir(self, parent, wanted=None):
        name = self.name(parent, wanted)
        os.mkdir(name, 0o700, dir_fd=parent.fd)
        return Directory(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent.fd),
                         parent.path + b"/" + name)

    def directories(self):
        for _ in range(10 + min(self.files // 60, 180)):
            # Often inside each other, otherwise the tree would be flat.
            parent = self.dirs[-1] if self.random.random() < 0.3 else self.any_dir()
            if len(parent.path) < 2000:
                self.dirs.append(self.mkdir(parent))
        for _ in range(4):  # these stay empty
            d = self.mkdir(self.any_dir())
            self.dress(d.fd, directory=True, rich=0.5)
            self.times(d.fd)
            os.close(d.fd)

    def sizes(self):
        for size in (0, 1, 2, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK + 1,
                     3 * BLOCK + self.random.randrange(BLOCK), 18 * BLOCK + self.random.randrange(BLOCK)):
            self.file(self.any_dir(), size)
        self.file(self.dirs[0], 40000 + self.random.randrange(BLOCK))

    def holes(self):
        odd = self.random.randrange(1, BLOCK)
        for size, pieces in (
                (4 * BLOCK, []), (1, []), (BLOCK + 1, []), (3 * BLOCK + odd, []),
                (4 * BLOCK, [(3 * BLOCK, BLOCK)]), (4 * BLOCK + 1, [(4 * BLOCK, 1)]),    # at the start
                (4 * BLOCK, [(0, BLOCK), (3 * BLOCK, BLOCK)]), (7 * BLOCK, [(0, 1), (6 * BLOCK, 5)]),  # in the middle
                (4 * BLOCK, [(0, BLOCK)]), (3 * BLOCK + odd, [(0, 7)]),                        # at the end
                (9 * BLOCK, [(i * BLOCK, BLOCK) for i in range(1, 9, 2)]),
                (2 * BLOCK, [(i * 8192, 4096) for i in range(64)]),
                (30 * BLOCK + odd, [(odd, 100), (11 * BLOCK + odd, BLOCK)])):
            self.file(self.any_dir(), size, pieces=pieces)
        # Written zeros beside a hole.
        d = self.any_dir()
        name = self.file(d, 3 * BLOCK, pieces=[(0, 10)], mode=0o600, rich=0)
        fd = os.open(name, os.O_WRONLY, dir_fd=d.fd)
        os.pwrite(fd, bytes(BLOCK), BLOCK)
        self.times(fd)
        os.close(fd)
        if self.huge:
            self.file(self.dirs[0], (4 << 30) + 1, b"sparse 4 GiB + 1",
                      [(0, 1), (2 << 30, BLOCK + 1), ((4 << 30) - 1, 2)])

    def links(self):
        r = self.random
        for i in range(6):
            d = self.any_dir()
            kind = i % 6
            if kind < 3:
                name = self.file(d, r.choice([0, 100, BLOCK + 5]))
            elif kind == 3:
                name = self.symlink(d, b"linked symlink")
            elif kind == 4:
                name = self.node(d, stat.S_IFIFO)
            else:
                name = self.node(d, stat.S_IFCHR, os.makedev(1, 3))
            for _ in range(r.randint(1, 4) if name else 0):
                to = self.any_dir()
                os.link(name, self.name(to), src_dir_fd=d.fd, dst_dir_fd=to.fd, follow_symlinks=False)

    def symlinks(self):
        for target in (b"nowhere", b"no/such/dir/file", b"/", b"/etc/passwd", b"/nonexistent/absolute", b".", b"..",
                       b"../" * 40 + b"etc", b"a\nb\xff", b"x" * 255, b"/".join([b"y" * 200] * 20), b"z/" * 2047,
                       self.random.choice(self.dirs).path, b"./"):
            self.symlink(self.any_dir(), target)
        d = self.any_dir()
        for here, there in ((b"loop a", b"loop b"), (b"loop b", b"loop a"), (b"loop c", b"loop c")):
            if here not in d.names and there not in d.names or here == b"loop b":
                self.symlink(d, there, here)
        inner = self.mkdir(d)
        self.dirs.append(inner)
        self.symlink(d, os.path.basename(inner.path), b"to a directory")
        self.symlink(inner, b"..", b"up again")
        file = self.file(d, 10)
        self.symlink(d, file, b"to a file")
        self.symlink(inner, b"../" + file, b"to a file above")

    def nodes(self):
        for _ in range(3):
            self.node(self.any_dir(), stat.S_IFIFO)
        for i in range(3):
            self.node(self.any_dir(), stat.S_IFSOCK, wanted=SOCKET + b"%d" % i)
        if self.root:
            for kind, major, minor in ((stat.S_IFCHR, 1, 3), (stat.S_IFCHR, 0, 0), (stat.S_IFCHR, 4095, 1048575),
                                       (stat.S_IFBLK, 7, 0), (stat.S_IFBLK, 259, 300), (stat.S_IFCHR, 5, 256)):
                self.node(self.any_dir(), kind, os.makedev(major, minor))

    def cases(self):
        for names in CASES:
            d = self.any_dir()
            for name in names:
                if name not in d.names:
                    self.file(d, self.random.randrange(100), name)
        for name in AWKWARD:
            if name not in self.dirs[0].names:
                self.file(self.dirs[0], self.random.randrange(50), name)
        d = self.any_dir()
        for name in (b"\x01" * 255, "\u00fc".encode() * 127 + b"x", b"n" * 254):
            if name not in d.names:
                self.file(d, 3, name)

    def deep(self, top, names):
        """A chain of nested directories with entries in some of them; no path to its end fits into a system call."""
        fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.dirs[0].fd)
        last = len(names) - 1
        for n, name in enumerate(names):
            os.mkdir(name, 0o700, dir_fd=fd)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
            self.count += 1
            if n in (last // 2, last):
                d = Directory(fd, b"")
                file = self.file(d, BLOCK + 1 if n == last else 5)
                self.symlink(d, file, b"to the file")
                self.node(d, stat.S_IFIFO)
                if n == last:
                    at = self.any_dir()
                    os.link(file, self.name(at), src_dir_fd=fd, dst_dir_fd=at.fd)
        for _ in names:
            up = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            self.dress(fd, directory=True, rich=0.1 if len(names) < 100 else 0.01)
            self.times(fd)
            os.close(fd)
            fd = up
        self.dress(fd, directory=True)
        self.times(fd)
        os.close(fd)

    def depths(self):
        chains = [(b"names", [b"%d" % (i % 10) * 255 for i in range(18)])]
        if self.many:
            chains.append((b"levels", [b"d"] * 2100))
        for word, names in chains:
            name = self.name(self.dirs[0], DEEP + word)
            os.mkdir(name, 0o700, dir_fd=self.dirs[0].fd)
            self.deep(name, names)

    def many_files(self):
        r = self.random
        sizes = [0, 1, 100, 1000, 4096, r.randrange(20000)]
        for _ in range(self.files):
            self.file(self.any_dir(), r.choice(sizes), rich=0.02)
        for mode in range(0o10000) if self.many else r.sample(range(0o10000), 40):
            if self.root or mode & 0o400:
                self.file(self.dirs[1 + mode % 3], mode % 3, b"mode %04o" % mode, mode=mode, rich=0)

    def grow(self):
        self.directories()
        for things in (self.cases, self.sizes, self.holes, self.symlinks, self.nodes, self.links, self.many_files,
                       self.depths):
            things()
        # The directories are complete; held descriptors do not need permissions.
        for d in self.dirs:
            self.dress(d.fd, directory=True, rich=0.4)
            self.times(d.fd)
            os.close(d.fd)
        return self


def generate(seed, top, files=120, many=False, huge=False):
    """Makes a tree in top, an empty directory, which is created if it is missing."""
    os.makedirs(top, exist_ok=True)
    return Tree(top, seed, files, many, huge).grow()


def fell(top):
    """Removes a tree, however deep it is and whatever its modes are."""
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "u+rwx", top], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["rm", "-rf", "--", top], check=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--files", type=int, default=120)
    p.add_argument("--many", action="store_true")
    p.add_argument("--huge", action="store_true")
    p.add_argument("seed", type=int)
    p.add_argument("directory")
    a = p.parse_args()
    t = generate(a.seed, a.directory, a.files, a.many, a.huge)
    print("seed %d: %d names%s" % (a.seed, t.count, "".join("; left out: " + x for x in sorted(t.left_out))))


if __name__ == "__main__":
    main()
