# SPDX-License-Identifier: Apache-2.0
"""A world is the content of a file system as a dictionary of paths. make() puts it on a disk, and read()
reads it from there."""

import errno
import hashlib
import os
import re
import stat
import struct

# {label: fingerprint} and {fingerprint: label} of all contents made so far. name_of() finds the label of
# what was read.
CONTENTS = {}
DEVICES = {"char": stat.S_IFCHR, "block": stat.S_IFBLK}
OURS = re.compile(r"\.sluice\.([0-9a-f]{16}(\.[0-9a-f]{8})?|marker\.[0-9a-f]{16})")


class Node:
    """One name. kind: file, dir, link, fifo, char or block. text: where a link leads, or the number of a device. ino:
    the same for names of one file. xattrs, acls: {name: value}.

    In a model's prediction, a field that is None may have any value, and content may be a set of which any
    member is right."""

    __slots__ = ("kind", "content", "mode", "mtime", "uid", "gid", "ino", "text", "xattrs", "acls")

    def __init__(self, kind, content=None, mode=0o644, mtime=None, uid=None, gid=None, ino=None, text=None):
        self.kind, self.content, self.mode, self.mtime = kind, content, mode, mtime
        self.uid, self.gid, self.ino, self.text = uid, gid, ino, text
        self.xattrs = self.acls = None

    def open_metadata(self):
        """Lets it have any metadata."""
        self.mode = self.mtime = self.uid = self.gid = self.xattrs = self.acls = None

    def copy(self, **changes):
        new = Node(self.kind, self.content, self.mode, self.mtime, self.uid, self.gid, self.ino, self.text)
        new.xattrs, new.acls = self.xattrs, self.acls
        for name, value in changes.items():
            setattr(new, name, value)
        return new

    def __repr__(self):
        words = [self.kind]
        if self.content is not None:
            words.append(str(sorted(self.content) if isinstance(self.content, (set, frozenset)) else self.content))
        if self.text is not None:
            words.append("-> " + printable(self.text))
        if self.mode is not None and self.kind != "link":
            words.append("%04o" % self.mode)
        if self.mtime is not None:
            words.append("time %d" % (self.mtime // 10**9 - 1_500_000_000)
                         + (".%d" % (self.mtime % 10**9) if self.mtime % 10**9 else ""))
        if self.uid or self.gid:
            words.append("owner %s:%s" % (self.uid, self.gid))
        if self.ino is not None:
            words.append("file #%s" % (self.ino,))
        words += ["%s=%s" % (n, v.hex()) for some in (self.xattrs, self.acls) for n, v in sorted((some or {}).items())]
        return " ".join(words)


# ---- contents: "LABEL:SIZE", with a hole in the middle "LABEL:SIZE/hole" ----------------------

def size_of(content):
    return int(content.rsplit(":", 1)[1].split("/")[0])


def pieces(content):
    """The non-zero parts of a content: (position, bytes)."""
    size = size_of(content)
    seed = hashlib.blake2b(content.encode(), digest_size=16).digest()
    if content.endswith("/hole") and size > 200000:
        return [(0, (seed * 64)[:1000]), (size - 1000, (seed[::-1] * 64)[:1000])]
    return [(0, (seed * (size // 16 + 1))[:size])]


def bytes_of(content):
    whole = bytearray(size_of(content))
    for at, part in pieces(content):
        whole[at:at + len(part)] = part
    return bytes(whole)


def fingerprint(data):
    return hashlib.sha256(data).digest()


def register(content):
    if content not in CONTENTS:
        CONTENTS[content] = fingerprint(bytes_of(content))
        CONTENTS[CONTENTS[content]] = content if size_of(content) else "nothing:0"
    return content if size_of(content) else "nothing:0"


def name_of(data):
    return CONTENTS.get(fingerprint(data)) or "unknown(%r...):%d" % (bytes(data[:12]), len(data)) if data else "nothing:0"


# ---- on the disk --------------------------------------------------------------------------------

def write(path, content):
    with open(path, "wb") as f:
        for at, part in pieces(content):
            f.seek(at)
            f.write(part)
        f.truncate(size_of(content))


def make(root, world, owners):
    """owners: whether this process can set owners."""
    first = {}
    for path in sorted(world):
        node, at = world[path], os.path.join(root, path)
        if node.kind == "dir":
            os.makedirs(at, exist_ok=True)
        elif node.kind == "link":
            os.symlink(root + node.text[1:] if node.text.startswith("@/") else node.text, at)
        elif node.kind == "fifo":
            os.mkfifo(at)
        elif node.kind in DEVICES:
            if not owners:
                continue
            os.mknod(at, DEVICES[node.kind] | 0o600, os.makedev(*map(int, node.text.split(":"))))
        elif node.ino is not None and node.ino in first:
            os.link(first[node.ino], at)
            continue
        else:
            write(at, register(node.content))
        if node.ino is not None:
            first[node.ino] = at
    for path in sorted(world, reverse=True):
        node, at = world[path], os.path.join(root, path)
        if node.kind in DEVICES and not owners:
            continue
        set_attributes(at, node)
        if owners and (node.uid or node.gid):
            os.chown(at, node.uid or 0, node.gid or 0, follow_symlinks=False)
        if node.kind != "link":
            os.chmod(at, node.mode)
        if node.mtime is not None:
            os.utime(at, ns=(node.mtime, node.mtime), follow_symlinks=False)


def set_attributes(at, node):
    """Those that this process may set, and that the file system supports."""
    for name, value in {**(node.xattrs or {}), **(node.acls or {})}.items():
        try:
            os.setxattr(at, name, value, follow_symlinks=False)
        except OSError as e:
            if e.errno not in (errno.EOPNOTSUPP, errno.EPERM):
                raise


def acl_of(mode, uid, permissions, default=False):
    """The ACL of a file or directory with this mode that gives a user permissions."""
    nobody = 0xffffffff
    entries = [(1, mode >> 6 & 7, nobody), (2, permissions, uid), (4, mode >> 3 & 7, nobody), (16, mode >> 3 & 7, nobody),
               (32, mode & 7, nobody)]
    return {"system.posix_acl_" + ("default" if default else "access"):
            struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)}


def read(root, beside=()):
    """The entries below root, and below those directories of `beside' that exist."""
    found = {p: read_node(os.path.join(root, p), root) for p in beside if os.path.isdir(os.path.join(root, p))}
    todo = ["", *found]
    while todo:
        top = todo.pop()
        with os.scandir(os.path.join(root, top)) as entries:
            for e in entries:
                path = os.path.join(top, e.name)
                found[path] = node = read_node(os.path.join(root, path), root)
                if node.kind == "dir":
                    todo.append(path)
    return found


def read_node(path, root):
    node = read_metadata(path, root)
    if node.kind == "file":
        with open(path, "rb") as f:
            node.content = name_of(f.read())
    return node


def read_metadata(path, root):
    """All but the content of a file."""
    st = os.lstat(path)
    node = Node("dir", None, stat.S_IMODE(st.st_mode), st.st_mtime_ns, st.st_uid, st.st_gid)
    if stat.S_ISREG(st.st_mode):
        node.kind = "file"
        node.ino = st.st_ino
    elif stat.S_ISLNK(st.st_mode):
        node.kind = "link"
        text = os.readlink(path)
        node.text = "@" + text[len(root):] if text.startswith(root + "/") else text
        node.mode = None
    elif stat.S_ISFIFO(st.st_mode):
        node.kind = "fifo"
    elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
        node.kind = "char" if stat.S_ISCHR(st.st_mode) else "block"
        node.text = "%d:%d" % (os.major(st.st_rdev), os.minor(st.st_rdev))
    elif not stat.S_ISDIR(st.st_mode):
        node.kind = "other"
    if node.kind in ("file", "dir"):
        attributes = {n: os.getxattr(path, n, follow_symlinks=False) for n in os.listxattr(path, follow_symlinks=False)}
        node.xattrs = {n: v for n, v in attributes.items() if n.startswith(("user.", "trusted."))}
        node.acls = {n: v for n, v in attributes.items() if n.startswith("system.posix_acl_")}
    return node


def is_ours(path):
    """A temporary, or a marker."""
    return OURS.fullmatch(os.path.basename(path)) is not None


def below(path, top):
    return path == top or path.startswith(top + "/")


def printable(text):
    """text, with everything escaped that a terminal or a report can't show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
