# SPDX-License-Identifier: Apache-2.0
"""The scenarios of the sweep: the files before, the commands, and what they promise. Each runs in a directory of its
own, with the source s and the target t."""

import functools
import grp
import os
import pwd
import random
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time

RSH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rsh")
KEY = "sluice-key-1:" + "5a" * 32
TIMES = ["--timeout=4", "--connect-timeout=6"]
OLD, NEW = 1_500_000_000, 1_600_000_000
CELL = 256 << 10
OWNER = [] if os.geteuid() else ["--chown=7:8"]
SCENARIOS = {}


@functools.lru_cache(maxsize=None)
def noise(size, seed):
    return random.Random(seed).randbytes(size)


def put(path, data, at=NEW, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
    os.utime(path, (at, at))


class Scenario:
    """loose: paths that a failed run may leave in any state, such as the output of a command.
    varies: the same, and the content is another one in each run, as that of a log or a key.
    also: exit codes that a failure may lead to besides those of codes.py, as the manual says of this command.
    adapter: a personality of tests/simverbs.
    faults: SLUICE_FAULT of all programs.
    shares: needs a file system on which files can share blocks."""

    name, streams, loose, varies, key = "", False, (), (), KEY
    serves = False  # the first command is a daemon, which outlives the second one
    adapter, transport, faults = None, "tcp", None
    shares = False
    slow = False    # only with --all, or by name
    sessions = False    # the program has several, each with an rdcp of its own, which reports its own failure
    prints = False  # failures are findings, on stdout
    reporters = 1   # processes of one program that may report one failure, each once, to the same stderr
    also = frozenset()
    codes = (0,)    # the exit codes if no call fails
    removes = deletes = backs_up = False

    def make(self, top):
        raise NotImplementedError

    def commands(self, bin_):
        """[rdcp command], or [rdrecv command, rdsend command] or [rdcpd command, rdcp command] with PORT for the port of the
        first one."""
        raise NotImplementedError

    def rdcp(self, bin_, *words):
        program = str(bin_ / "rdcp")
        return [program, "--transport=" + self.transport, *TIMES, "--rsh", RSH, "--rdcp-path", program, *words]


def add(cls):
    SCENARIOS[cls.name] = cls()
    return cls


class Copy(Scenario):
    """rdcp WORDS SRC... DST"""

    def __init__(self, name, words, make, **facts):
        self.name, self.words, self.make = name, words, make
        for k, v in facts.items():
            setattr(self, k, v)
        SCENARIOS[name] = self

    def commands(self, bin_):
        return [self.rdcp(bin_, *self.words)]


def one_file(top):
    put(top + "/s/f", noise(700_000, 1))
    put(top + "/t/f", noise(300_000, 2), OLD)


def text_file(top):
    put(top + "/s/f", b"".join(b"line %d of a text\n" % i for i in range(30_000)))
    put(top + "/t/f", noise(300_000, 2), OLD)


def sparse_file(top):
    path = top + "/s/f"
    put(path, noise(100_000, 3))
    with open(path, "r+b") as f:
        f.seek(12 * CELL + 4096)
        f.write(noise(CELL, 4))
        f.truncate(20 * CELL)
    os.utime(path, (NEW, NEW))
    put(top + "/t/f", noise(50_000, 5), OLD)


def acl(mask):
    """u::rw- u:7:r-- g::r-- m::MASK o::---"""
    nobody = 2**32 - 1
    rows = (1, 6, nobody), (2, 4, 7), (4, 4, nobody), (16, mask, nobody), (32, 0, nobody)
    return b"\x02\0\0\0" + b"".join(t.to_bytes(2, "little") + p.to_bytes(2, "little") + i.to_bytes(4, "little") for t, p, i in rows)


def tree(top):
    """A tree with every kind of entry."""
    s = top + "/s"
    put(s + "/empty", b"")
    put(s + "/small", noise(1000, 6), mode=0o751)
    put(s + "/middle", noise(300_000, 7))
    put(s + "/d/deep/er/file", noise(70_000, 8))
    put(s + "/d/one", noise(3000, 9))
    os.link(s + "/d/one", s + "/d/other")
    os.link(s + "/middle", s + "/d/middle")
    os.symlink("../small", s + "/d/link")
    os.mkfifo(s + "/d/fifo", 0o640)
    os.mkdir(s + "/void", 0o700)
    put(s + "/named", noise(2000, 10))
    os.setxattr(s + "/named", "user.colour", b"green")
    os.setxattr(s + "/d", "user.colour", b"blue")
    os.setxattr(s + "/small", "system.posix_acl_access", acl(4))
    os.setxattr(s + "/void", "system.posix_acl_default", acl(4))
    if os.geteuid() == 0:
        os.mknod(s + "/d/device", 0o20600, os.makedev(1, 3))
        os.chown(s + "/named", 7, 8)
    with open(s + "/holes", "wb") as f:
        f.truncate(6 * CELL)
        f.seek(4 * CELL)
        f.write(noise(5000, 11))
    for path, _, names in os.walk(s, topdown=False):
        for n in names:
            os.utime(path + "/" + n, (NEW, NEW), follow_symlinks=False)
        os.utime(path, (NEW, NEW))


def tree_over(top):
    """The same tree; the target has an older part of it, and files that the source does not have."""
    tree(top)
    t = top + "/t"
    put(t + "/small", noise(1200, 12), OLD)
    put(t + "/d/one", noise(100, 13), OLD)
    put(t + "/middle", noise(300_000, 14), OLD)
    put(t + "/extra", noise(500, 15), OLD)
    put(t + "/gone/below/file", noise(600, 16), OLD)
    os.symlink("file", t + "/gone/below/link")
    os.symlink("elsewhere", t + "/named")


def tree_again(top):
    """The same tree; the target has the same files with other attributes and modes. rdcp sends little data."""
    tree(top)
    run = ["cp", "-aT", top + "/s", top + "/t"]
    subprocess.run(run, check=True, stdin=subprocess.DEVNULL)
    os.setxattr(top + "/t/named", "user.shape", b"round")
    os.setxattr(top + "/t/named", "user.colour", b"red")
    os.removexattr(top + "/t/small", "system.posix_acl_access")
    for name in "d/fifo", "d/deep/er/file":
        os.setxattr(top + "/t/" + name, "system.posix_acl_access", acl(6))
    os.chmod(top + "/t/middle", 0o600)
    os.chmod(top + "/t/d/deep", 0o700)
    os.utime(top + "/t/empty", (OLD, OLD))


def in_the_way(top):
    """The same tree; entries at the target have the same names and other types."""
    tree(top)
    t = top + "/t"
    put(t + "/small/below/file", noise(700, 27), OLD)
    put(t + "/d", noise(800, 28), OLD)
    os.makedirs(t + "/empty")
    os.symlink("nowhere", t + "/middle")
    os.makedirs(t + "/named/void")
    # Left by a killed run.
    put(t + "/.sluice.0123456789abcdef.01234567", b"left", OLD, 0o600)


def through_link(top):
    put(top + "/s/f", noise(200_000, 29))
    put(top + "/t/real", noise(100_000, 30), OLD)
    os.symlink("real", top + "/t/link")


def large(top):
    put(top + "/s/f", BIG)
    put(top + "/t/f", BIG[:3_000_000], OLD)


def few(top):
    s = top + "/s"
    put(s + "/a", noise(2000, 17))
    put(s + "/b", noise(400_000, 18))
    put(s + "/d/c", noise(90_000, 19))
    os.symlink("a", s + "/d/link")


def stale(top):
    """The target has leftovers of killed runs."""
    few(top)
    t = top + "/t"
    put(t + "/.sluice.0123456789abcdef.01234567", b"left", OLD, 0o600)
    put(t + "/.sluice.0123456789abcdef.89abcdef/.sluice.marker.0123456789abcdef", b"", OLD, 0o600)
    os.makedirs(t + "/.sluice.fedcba9876543210.01234567")
    os.symlink("nowhere", t + "/.sluice.fedcba9876543210.89abcdef")


def odd_names(top):
    few(top)
    put(top + "/s/odd\\ \n\t\x01" + os.fsdecode(b"\xff"), b"odd")
    put(top + "/s/h\u00e9", b"accent")


def backed_up(top):
    """The target has entries with the names of backups, and directories of another owner."""
    few_over(top)
    t = top + "/t"
    put(t + "/gone/file", noise(600, 31), OLD)
    put(t + "/twice", noise(700, 32), OLD)
    os.link(t + "/twice", t + "/twice~")
    os.makedirs(t + "/a~")
    put(t + "/b~/below", b"old backup", OLD)
    put(t + "/d/c~", b"older", OLD)
    put(t + "/aside/a", b"oldest", OLD)
    if os.geteuid() == 0:
        os.chown(t + "/d", 7, 8)
        os.chown(t + "/gone", 7, 8)
    os.chmod(t + "/d", 0o2750)


def linked_over(top):
    """Hard links to one file in the source; at the target they are separate files."""
    few(top)
    s, t = top + "/s", top + "/t"
    for name in ("e", "d/f"):
        os.link(s + "/a", s + "/" + name)
    for name in ("a", "e", "d/f"):
        put(t + "/" + name, noise(2000, 17))
    put(t + "/e~", b"older", OLD)


def shared_target(top):
    """A target that its group may write to."""
    few_over(top)
    os.chmod(top + "/t", 0o2775)
    os.chmod(top + "/t/d", 0o1777)


def torn_sparse(top):
    sparse_file(top)
    put(top + "/t/f", noise(15 * CELL, 33), OLD)


def few_over(top):
    few(top)
    put(top + "/t/a", noise(2100, 20), OLD)
    os.setxattr(top + "/t/a", "user.shape", b"round")
    put(top + "/t/b", noise(400_000, 21), OLD)
    put(top + "/t/d/c", noise(90_000, 22), OLD)


def listed(top):
    few_over(top)
    put(top + "/list", b"a\nd/c\nb\n")
    put(top + "/rules", b"*.o\n/tmp/\n")


BIG = noise(6_000_000, 23)
_left = {}


def interrupted(top):
    """The leftovers of an interrupted run, of a file of 6 MB."""
    put(top + "/s/big", BIG)
    os.makedirs(top + "/t", exist_ok=True)
    for name, data in _left.items():
        put(top + "/t/" + name, data, mode=0o600)


def shrunk(top):
    """The run was interrupted when the source file was larger."""
    interrupted(top)
    put(top + "/s/big", BIG[:300_000])


def leave_partial(bin_):
    """Makes the leftovers for interrupted(): only once, because each interruption leaves different ones."""
    if _left:
        return
    with tempfile.TemporaryDirectory(prefix="sluice-sweep-") as top:
        interrupted(top)
        argv = Scenario().rdcp(bin_, "--bwlimit=3M", "s/big", "t/big")
        run = subprocess.Popen(argv, cwd=top, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while run.poll() is None and time.monotonic() < until:
            if any(os.stat(e).st_blocks * 512 > 1 << 20 for e in os.scandir(top + "/t")):
                break
            time.sleep(.02)
        time.sleep(.6)
        # Not SIGINT: a background job of a shell ignores it.
        run.send_signal(signal.SIGTERM)
        run.wait()
        for e in os.scandir(top + "/t"):
            with open(e, "rb") as f:
                _left[e.name] = f.read()
        if len(_left) != 1 or "big" in _left:
            raise RuntimeError("the interrupted run left %s, expected one temporary" % sorted(_left))


class Served(Copy):
    """rdcp WORDS SRC... DST with a rdcpd. rdma: in an operand is its port; the modules are s, to read, and t.

    daemon: more words for it. client: what starts rdcp. key_file: of rdcp."""

    serves = True
    daemon, client, key_file = (), (), "key"

    def __init__(self, name, words, make, **facts):
        super().__init__(name, words, functools.partial(self.prepare, make), **facts)

    def prepare(self, make, top):
        make(top)
        os.makedirs(top + "/t", exist_ok=True)
        put(top + "/key", KEY.encode() + b"\n", mode=0o600)

    def rdcpd(self, bin_):
        return [str(bin_ / "rdcpd"), "--key-file=key", "--address=127.0.0.1", "--port=0", "-v", *self.daemon, "--module=s=s",
                "--module=t=t:rw"]

    def commands(self, bin_):
        words = [re.sub(r"rdma:(\w+@)?", r"rdma://\g<1>127.0.0.1:PORT/", w) for w in self.words]
        how = ["--transport=" + self.transport] if self.adapter else []
        return [self.rdcpd(bin_), [*self.client, str(bin_ / "rdcp"), *how, *TIMES, "--rsh", RSH, "--rdcp-path", str(bin_ / "rdcp"), "--key-file=" + self.key_file, *words]]


for _way, _from, _to in (("push", "", "far:"), ("pull", "far:", ""), ("local", "", "")):
    Copy("file-" + _way, [_from + "s/f", _to + "t/f"], one_file)
    Copy("tree-" + _way, ["-aHAX", _from + "s/", _to + "t"], tree)
Served("daemon-push", ["-a", "s/", "rdma:t/"], few_over)
Served("daemon-pull", ["-a", "rdma:s/", "t"], few_over)
Served("daemon-to-daemon", ["-a", "--lanes=2", "rdma:s/", "rdma:t/"], few_over)
Served("daemon-to-ssh", ["-a", "rdma:s/", "far:t"], few_over)
Copy("compress-push", ["--compress=zstd", "--lanes=1", "--block-size=64k", "s/f", "far:t/f"], text_file)
Copy("compress-pull", ["-z", "--encrypt=on", "far:s/f", "t/f"], text_file)
Copy("sparse-push", ["s/f", "far:t/f"], sparse_file)
Copy("sparse-pull", ["--sparse", "far:s/f", "t/f"], sparse_file)
Copy("resume-push", ["-p", "s/big", "far:t/big"], interrupted)
Copy("resume-pull", ["-p", "--fsync", "far:s/big", "t/big"], interrupted)
Copy("delete-push", ["-aHAX", "--delete", "s/", "far:t"], tree_over, deletes=True)
Copy("delete-pull", ["-a", "--delete", "--json", "--stats", "far:s/", "t"], tree_over, deletes=True)
Copy("remove-push", ["-a", "--remove-source-files", "s/", "far:t"], few_over, removes=True)
Copy("remove-pull", ["-a", "--remove-source-files", "far:s/", "t"], few_over, removes=True)
Copy("backup-push", ["-a", "--backup", "--verify", "s/", "far:t"], few_over, backs_up=True)
Copy("backup-pull", ["-a", "--backup-dir=aside", "--verify", "--delete", "far:s/", "t"], few_over, backs_up=True, deletes=True)
Copy("checksum-push", ["-a", "--checksum", "--itemize-changes", "-v", "s/", "far:t"], few_over)
Copy("inplace-pull", ["-r", "--inplace", "--print-digest=md5", "far:s/f", "t/f"], one_file, loose=("t/f",))
Copy("listed-push", ["-a", "--files-from=list", "--exclude-from=rules", "--log-file=log", "--failed=failed", "s",
                     "far:t"], listed, loose=("failed",), varies=("log",))
Copy("update-local", ["-aH", "--update", "--fsync", "--progress=1", "s/", "t"], few_over)
Copy("pattern-pull", ["-r", "far:s/*", "t"], few_over)
Copy("ssh-push", ["--transport=ssh", "-a", "s/", "far:t"], few_over)
Copy("again-push", ["-aHAX", "--fsync", "s/", "far:t"], tree_again)
Copy("again-local", ["-aHX", "--checksum", "--backup", "s/", "t"], tree_again, backs_up=True)
Copy("ways-push", ["-aH", "--delete", "s/", "far:t"], in_the_way, deletes=True)
Copy("ways-pull", ["-aH", "--backup", "--delete", "far:s/", "t"], in_the_way, backs_up=True, deletes=True)
Copy("direct-local", ["--direct=on", "--fsync", "s/f", "t/f"], large)
Copy("mkpath-push", ["-a", "--mkpath", "--relative", "--fsync", "s/d", "s/small", "far:t/new/deep"], tree)
Copy("link-push", ["--inplace", "--fsync", "s/f", "far:t/link"], through_link, loose=("t/real",))
Copy("choose-local", ["-r", "--copy-links", "--chmod=u=rwX,g-w", *OWNER, "--stats", "--min-size=1k",
                      "--exclude=link", "s/", "t"],
     few_over)
Copy("dry-push", ["-a", "-n", "--delete", "--stats", "--itemize-changes", "s/", "far:t"], tree_over)
Copy("name-local", ["-r", "--print-digest", "--failed=failed", "s/", "missing", "t"], few_over, loose=("failed",),
     codes=(23,))


Copy("hosts-pull", ["-a", "-v", "far:s/a", "other:s/d", "other:s/b", "t"], few_over, also={23})
Copy("links-pull", ["-aH", "--remove-source-files", "far:s/d", "far:s/middle", "t"], tree_over, removes=True)
Copy("aside-push", ["-aH", "--backup", "--delete", "--fsync", "--json", "--progress=1", "s/", "far:t"], tree_over, backs_up=True,
     deletes=True)
Copy("digest-pull", ["-r", "-v", "--json", "--print-digest=sha256", "far:s/", "t"], few_over)
Copy("proc-push", ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled", "far:t/"], few_over)
Copy("address-push", ["-v", "--address=127.0.0.1", "-aX", "--inplace", "s/", "far:t"], few_over, loose=("t/a", "t/b", "t/d/c"))
Copy("skip-push", ["-a", "--ignore-existing", "--backup", "--suffix=.old", "s/", "far:t"], few_over)


Copy("fresh-push", ["-a", "--fsync", "s/d", "far:t/new"], stale)
Copy("fresh-pull", ["-r", "far:s/d", "t/new"], stale)
Copy("between", ["-a", "--delete", "other:s/", "far:t"], few_over, deletes=True)
Copy("between-ssh", ["--transport=ssh", "-a", "other:s/", "far:t"], few_over)
Copy("same-host", ["-a", "far:s/a", "far:s/d", "far:t"], few_over)
Copy("tilde-pull", ["far:~%s/%s" % (pwd.getpwuid(os.geteuid()).pw_name,
                                     os.path.relpath("/proc/version", pwd.getpwuid(os.geteuid()).pw_dir)), "t/"], few_over)
Copy("shrunk-push", ["-p", "s/big", "far:t/big"], shrunk)
Copy("odd-push", ["-r", "--json", "--print-digest", "s/", "far:t"], odd_names)
Copy("odd-pull", ["-r", "-v", "--print-digest", "far:s/", "t"], odd_names)
Copy("taken-push", ["-a", "--backup", "--delete", "--fsync", "s/", "far:t"], backed_up, backs_up=True, deletes=True)
Copy("taken-pull", ["-a", "--backup-dir=aside", "--delete", "--fsync", "far:s/", "t"], backed_up, backs_up=True, deletes=True)
Copy("equal-push", ["-aH", "--backup", "s/", "far:t"], linked_over, backs_up=True)
Copy("shared-push", ["-a", "s/", "far:t"], shared_target)
Copy("holes-local", ["--inplace", "--fsync", "s/f", "t/f"], torn_sparse, loose=("t/f",))
Copy("large-push", ["--fsync", "--direct=off", "s/f", "far:t/f"], large)
Copy("stdin-push", ["-", "far:t/out"], few_over)
Copy("device-push", ["s/b", "far:/dev/null"], few_over)
Copy("overlap-local", ["-r", "s/d", "t"], few_over)
Copy("procfs-push", ["-r", "/proc/sys/fs/epoll", "far:t"], few_over)
Copy("inplace-new", ["--inplace", "s/f", "far:t/new"], one_file, loose=("t/new",))


def empty_dir_in_the_way(top):
    few(top)
    os.makedirs(top + "/t/a")
    with open(top + "/s/hole", "wb") as f:
        f.truncate(3000)
    os.symlink("x" * 4000, top + "/s/long")


def bare(top):
    few_over(top)
    put(top + "/f", noise(3000, 36))


def stored(top, make=few):
    """The target has all files of the source."""
    make(top)
    subprocess.run(["cp", "-aT", top + "/s", top + "/t"], check=True, stdin=subprocess.DEVNULL)


def listed_below(top):
    tree(top)
    put(top + "/list", b"d/deep/er/file\nsmall\n")
    put(top + "/rules", b"*.o\n/tmp/\n")


Copy("plain-push", ["-a", "--block-size=4k", "s/", "far:t"], empty_dir_in_the_way)
Copy("relative-push", ["-a", "--relative", "--delete", "s/d", "far:t"], few_over, deletes=True)
Copy("moved-push", ["-aHAX", "--remove-source-files", "s/", "far:t"], lambda top: stored(top, tree), removes=True)
Copy("bare-push", ["--remove-source-files", "f", "far:t"], bare)
Copy("failed-local", ["-r", "--failed=/dev/null", "s/", "missing", "t"], few_over, codes=(23,))
Copy("below-push", ["-a", "--files-from=list", "--exclude-from=rules", "s", "far:t"], listed_below)


def shared_blocks(top):
    """Files that are large enough to share blocks with their copies."""
    put(top + "/s/a", noise(300_000, 37))
    put(top + "/s/b", noise(500_000, 38))
    put(top + "/s/d/c", noise(900_000, 39))
    put(top + "/s/small", noise(2000, 40))
    put(top + "/t/a", noise(200_000, 41), OLD)
    with open(top + "/s/holes", "wb") as f:
        f.truncate(8 * CELL)
        f.seek(4 * CELL)
        f.write(noise(CELL, 42))
    os.utime(top + "/s/holes", (NEW, NEW))


def moved(top):
    """The target has files that are deleted, and a part of what is moved."""
    few_over(top)
    put(top + "/t/extra", noise(500, 43), OLD)
    put(top + "/t/gone/file", noise(600, 44), OLD)


def attributed(top):
    """More attributes than fit into a short list, and an ACL at the target."""
    few_over(top)
    for n in range(10):
        os.setxattr(top + "/s/b", "user.%02d" % n + "x" * 110, b"long")
    os.setxattr(top + "/t/a", "system.posix_acl_access", acl(4))


def named_as_backups(top):
    """A file in a directory has the name of --backup-dir."""
    few_over(top)
    put(top + "/s/d/aside", noise(700, 45))


def few_exist(top):
    """Something new, and a time that some file systems cannot store."""
    few_over(top)
    put(top + "/s/new/below/file", noise(800, 46))
    put(top + "/s/b", noise(400_000, 18), -1)


def opened(top):
    few_over(top)
    put(top + "/t/out", noise(900_000, 47), OLD)


Copy("told-push", ["-v", "--json", "-z", "--encrypt=on", "s/f", "far:t/f"], text_file)
Copy("rekey-push", ["--encrypt=on", "--lanes=1", "s/f", "far:t/f"], one_file, faults="rekey:by=300000")
Copy("slow-push", ["--json", "s/f", "far:t/f"], one_file, faults="stall:lane=0,block=1,ms=1500")
Copy("failed-json", ["-r", "--json", "--log-file=log", "s/", "missing", "t"], few_over, codes=(23,), varies=("log",))
Copy("move-push", ["-a", "--delete", "--remove-source-files", "s/", "far:t"], moved, removes=True, deletes=True)
Copy("move-pull", ["-a", "--delete", "--remove-source-files", "far:s/", "t"], moved, removes=True, deletes=True)
Copy("acl-push", ["-rX", "s/", "far:t"], attributed)
Copy("apart-push", ["-a", "--backup", "--backup-dir=aside", "s/", "far:t"], named_as_backups, backs_up=True)
Copy("apart-new", ["-t", "--backup", "--backup-dir=aside", "s/a", "far:t/new"], few_over, backs_up=True)
Copy("apart-roots", ["-a", "--backup", "--backup-dir=aside", "s/a", "s/d", "far:t"], few_over, backs_up=True)
Copy("existing-push", ["-a", "--existing", "s/", "far:t"], few_exist)
Copy("dry-file", ["-n", "s/f", "far:t/f"], one_file)
Copy("dry-inplace", ["-n", "--inplace", "s/f", "far:t/f"], one_file)
Copy("dry-device", ["-n", "s/f", "far:/dev/null"], one_file)
Copy("direct-push", ["--direct=on", "--fsync", "s/f", "far:t/f"], large, shares=True)
Copy("clone-local", ["-a", "s/", "t"], shared_blocks, shares=True)
Copy("clone-fsync", ["-r", "--fsync", "--backup", "--lanes=1", "s/", "t"], shared_blocks, shares=True, backs_up=True)


def fifo(top):
    few(top)
    os.makedirs(top + "/t")
    os.mkfifo(top + "/t/a")


class Wrapped(Copy):
    """rdcp WORDS SRC... DST, started by another command, which may take it as one word for a shell."""

    quoted = False

    def __init__(self, name, wrapper, words, make, **facts):
        super().__init__(name, words, make, **facts)
        self.wrapper = wrapper

    def commands(self, bin_):
        words = self.rdcp(bin_, *self.words)
        return [[*self.wrapper, *([shlex.join(words)] if self.quoted else words)]]


Wrapped("stdout-pull", ["sh", "-c", 'exec "$@" >t/out', "sh"], ["far:s/b", "/dev/stdout"], few_over, loose=("t/out",))
Wrapped("sparse-stdout", ["sh", "-c", 'exec "$@" >t/out', "sh"], ["--sparse", "far:s/f", "/dev/stdout"], sparse_file, loose=("t/out",))
Wrapped("descriptor-push", ["sh", "-c", 'exec 3<>t/out; exec "$@" far:/proc/$$/fd/3', "sh"], ["s/b"], opened, loose=("t/out",))
Wrapped("closed-push", ["sh", "-c", 'exec "$@" <&- >&-', "sh"], ["-a", "s/", "far:t"], few_over)
Wrapped("homeless-pull", ["env", "-u", "HOME"], ["far:~/" + os.path.relpath("/proc/version", pwd.getpwuid(os.geteuid()).pw_dir), "t/"],
        few_over)
Wrapped("fifo-push", ["sh", "-c", 'exec 3<>t/a; exec "$@"', "sh"], ["s/a", "far:t/"], fifo)
Wrapped("screen-pull", ["script", "-qe", "/dev/null", "-c"], ["--progress", "--print-digest", "-a", "far:s/", "t"], few_over, prints=True, quoted=True,
        faults="stall:lane=0,block=1,ms=1200")
Wrapped("login-pull", ["env", "SSH_CONNECTION=127.0.0.1 22 127.0.0.1 2222"], ["-a", "far:s/", "t"], few_over)


NOBODY = 65534


def owned_by_nobody(make):
    """make(), with all files owned by nobody, who can reach them."""
    def remake(top):
        make(top)
        os.chmod(os.path.dirname(top), 0o755)
        for path, dirs, files in os.walk(top):
            for at in [path] + [os.path.join(path, n) for n in files + dirs]:
                os.chown(at, NOBODY, NOBODY, follow_symlinks=False)
    return remake


def guarded(top):
    """The target has modes that deny their owner access, and directories that a group may write to."""
    shared_target(top)
    t = top + "/t"
    os.setxattr(top + "/s/d/c", "user.colour", b"red")
    os.chmod(top + "/s/d/c", 0o444)
    os.chmod(t + "/a", 0o200)
    os.chmod(t + "/b", 0o400)
    os.chmod(t + "/d/c", 0)
    os.chmod(t + "/d", 0o500)
    put(t + "/.sluice.0123456789abcdef.01234567", b"left", OLD, 0o400)


def closed(top):
    """A file at the target is equal, but nobody may read it."""
    stored(top)
    os.chmod(top + "/t/a", 0)


def denied(top):
    """A directory of the target may not be listed, and a file not read."""
    few_over(top)
    os.chmod(top + "/t/a", 0o200)
    os.chmod(top + "/t/d", 0o300)


def hidden(top):
    """A symlink leads into a directory that may not be entered."""
    few(top)
    os.makedirs(top + "/t")
    os.makedirs(top + "/closed")
    os.symlink("../closed/file", top + "/s/hidden")
    os.chmod(top + "/closed", 0)


def foreign(top):
    """A file of another owner, in a group that nobody may give files to."""
    owned_by_nobody(few_over)(top)
    os.chown(top + "/t/a", 7, 8)


def search_only(top):
    few(top)
    put(top + "/t/dark/f", noise(5000, 34), OLD)
    os.chmod(top + "/t/dark", 0o300)


if os.geteuid() == 0:
    AS_NOBODY = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]
    Wrapped("nobody-push", AS_NOBODY, ["-aHAX", "s/", "far:t"], owned_by_nobody(guarded))
    Wrapped("nobody-delete", AS_NOBODY, ["-aX", "--delete", "--backup", "--fsync", "far:s/", "t"], owned_by_nobody(guarded),
            backs_up=True, deletes=True)
    Wrapped("nobody-remove", AS_NOBODY, ["-a", "--remove-source-files", "s/", "far:t"], owned_by_nobody(guarded),
            removes=True)
    Wrapped("nobody-again", AS_NOBODY, ["-rpX", "--fsync", "s/", "far:t"], owned_by_nobody(tree_again))
    Wrapped("nobody-closed", AS_NOBODY, ["-rt", "--fsync", "s/", "far:t"], owned_by_nobody(closed))
    Wrapped("nobody-denied", AS_NOBODY, ["-r", "s/", "far:t"], owned_by_nobody(denied))
    Wrapped("nobody-hidden", AS_NOBODY, ["-a", "s/hidden", "s/a", "far:t"], owned_by_nobody(hidden), codes=(23,))
    Wrapped("nobody-group", [w for w in AS_NOBODY if w != "--clear-groups"] + ["--groups=8"], ["-r", "s/", "far:t"],
            foreign)
    Wrapped("nobody-dark", AS_NOBODY, ["s/a", "far:t/dark/f"], owned_by_nobody(search_only))
    Wrapped("nobody-inplace", AS_NOBODY, ["--inplace", "--verify", "s/a", "far:t/dark/f"], owned_by_nobody(search_only),
            loose=("t/dark/f",))


class Configured(Served):
    """The same with a configuration file that has all keys. The module t is for users only; it belongs to nobody."""

    key_file = "alice.key"
    configuration = """
        address = 127.0.0.1
        port = 0
        key file = TOP/key
        secrets file = TOP/secrets
        hosts allow = 127.0.0.0/8
        hosts deny = *
        max sessions = 8
        max sessions per user = 4
        memory = 256M
        timeout = 60
        drain limit = 5
        transport = auto
        port range = 20000-20999
        tos = cs1
        [s]
        path = TOP/s
        comment = what is copied
        read only = no
        remove sources = yes
        hosts deny = 192.0.2.0/24, 2001:db8::/32
        [t]
        path = TOP/t
        list = no
        read only = no
        write only = no
        delete = yes
        uid = USER
        gid = GROUP
        users = alice bob
        hosts allow = 127.0.0.0/8 ::1
        hosts deny = *
        encryption required = yes
        fsync = yes
        max connections = 4
        max bytes = MOST
        min free = FREE
        incoming chmod = F+w
        refuse options = acls
        """
    most, free = "1G", "1M"

    def prepare(self, make, top):
        super().prepare(make, top)
        key = b"sluice-key-1:" + b"3c" * 32 + b"\n"
        put(top + "/secrets", b"alice:" + key, mode=0o600)
        put(top + "/alice.key", key, mode=0o600)
        self.configure(top)

    def configure(self, top):
        self.write_configuration(top, "conf", self.configuration)

    def write_configuration(self, top, name, text):
        uid, gid = (NOBODY, NOBODY) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        for word, value in ("TOP", top), ("MOST", self.most), ("FREE", self.free), ("USER", pwd.getpwuid(uid).pw_name), ("GROUP", grp.getgrgid(gid).gr_name):
            text = text.replace(word, value)
        put("%s/%s" % (top, name), text.encode())

    def rdcpd(self, bin_):
        return [str(bin_ / "rdcpd"), "--config=conf", "-v", *self.daemon]


class Reloaded(Configured):
    """rdcpd gets SIGHUP when its configuration file has the module t, too. Then rdcp starts; where the line about that is lost,
    after some seconds."""

    also = {3}      # of a module that it does not have
    client = ("sh", "-c", """mv conf.new conf; kill -HUP "$(cat pid)"; n=0
        until grep -qE "settings (again|stay)" ../stderr-0 || [ $((n += 1)) -gt 500 ]; do
            kill -0 "$(cat pid)" || exit 44; sleep .01; done; exec "$@" """, "sh")

    def configure(self, top):
        self.write_configuration(top, "conf.new", self.configuration)
        self.write_configuration(top, "conf", self.configuration[:self.configuration.index("[t]")])

    def rdcpd(self, bin_):
        return ["sh", "-c", 'echo $$ >pid; exec "$@"', "sh", *super().rdcpd(bin_)]


class Alone(Served):
    """rdcpd makes a key, and prints the commands of a client."""

    client, key_file = ("sh", "-c", 'umask 077; sed -n "/^sluice-key/p" ../stdout-0 >client.key; exec "$@"', "sh"), "client.key"

    def rdcpd(self, bin_):
        return ["sh", "-c", 'cd t && exec "$@"', "sh", str(bin_ / "rdcpd"), "--port=0", "-v"]


class Printing(Served):
    """A rdcpd that serves nothing."""

    serves = False

    def commands(self, bin_):
        return [[str(bin_ / "rdcpd"), *self.words]]


class Checking(Configured):
    """rdcpd --check-config"""

    serves = False

    def commands(self, bin_):
        return [[str(bin_ / "rdcpd"), "--config=conf", "--check-config", *self.words]]


class Wrong(Checking):
    configuration = "port = high\n[s]\nusers = ,\n[s]\npath = s\n"


def every_kind(top):
    tree(top)
    os.mknod(top + "/s/socket", 0o140600)
    for name in "socket", ".":
        os.utime(top + "/s/" + name, (NEW, NEW))


# A listing is moved into t when it is complete.
LISTING = {"client": ("sh", "-c", '"$@" >listing && mv listing t/', "sh"), "loose": ("listing",)}
as_nobody = owned_by_nobody if os.geteuid() == 0 else lambda make: make

Served("daemon-json", ["-v", "rdma:s/a", "t/a"], few_over, daemon=["--log-json"])
Served("daemon-refused", ["rdma:missing/a", "t/a"], few_over, daemon=["--log-json"], codes=(0, 3))
Served("daemon-list", ["rdma:s/"], every_kind, **LISTING)
Served("daemon-list-json", ["--json", "rdma:s/"], every_kind, **LISTING)
Served("daemon-list-file", ["rdma:s/named"], tree, **LISTING)
Configured("config-push", ["-a", "--delete", "s/", "rdma:alice@t/"], as_nobody(tree_over), deletes=True)
Configured("config-pull", ["-a", "--remove-source-files", "rdma:alice@s/", "t"], few_over, removes=True)
Configured("config-modules", ["rdma:alice@"], few, **LISTING)
Configured("config-modules-json", ["--json", "rdma:alice@"], few, **LISTING)
# The file b is more than a session may store, or nothing may be stored at all.
Configured("config-most", ["-a", "s/", "rdma:alice@t/"], as_nobody(few_over), most="300k", codes=(0, 23))
Configured("config-full", ["-a", "s/", "rdma:alice@t/"], as_nobody(few_over), free="1000T", codes=(0, 23))
Reloaded("config-reload", ["-a", "s/", "rdma:alice@t/"], as_nobody(few_over), loose=("conf", "conf.new"), varies=("pid",))
Checking("config-check", [], few)
Wrong("config-wrong", [], few, codes=(1,))
Alone("daemon-alone", ["-r", "s/", "rdma:upload/"], few_over, varies=("client.key",))
Printing("daemon-key", ["--make-key=t/new"], few, varies=("t/new",))
Printing("daemon-user", ["--secrets=t/new", "--make-key=alice"], few, varies=("t/new",))


class Stream(Scenario):
    streams = True

    def rdrecv(self, bin_, options, *words):
        return [str(bin_ / "rdrecv"), "--transport=" + self.transport, "--address=127.0.0.1", *TIMES, *options, "0", "-", *words]

    def rdsend(self, bin_, options, *words):
        return [str(bin_ / "rdsend"), "--transport=" + self.transport, *TIMES, *options, "127.0.0.1", "PORT", "-", *words]


@add
class Commands(Stream):
    name, loose, also = "stream-commands", ("t/out",), {11}

    def make(self, top):
        put(top + "/s/in", noise(900_000, 24))
        os.makedirs(top + "/t", exist_ok=True)

    def commands(self, bin_):
        return [self.rdrecv(bin_, ["-w4"], "--", "sh", "-c", "cat >t/out"),
                self.rdsend(bin_, [], "--", "cat", "s/in")]


@add
class Files(Stream):
    name = "stream-files"

    def make(self, top):
        put(top + "/s/in", noise(900_000, 25))
        put(top + "/t/out", noise(5000, 26), OLD)
        put(top + "/key", KEY.encode() + b"\n", mode=0o600)

    def commands(self, bin_):
        return [[w for w in self.rdrecv(bin_, ["-v", "-w4", "--tos=cs1", "--key-file=key"], "t/out") if w != "-"],
                [w for w in self.rdsend(bin_, ["-v", "--tos=ef", "--key-file=key"], "s/in") if w != "-"]]


@add
class Redirected(Files):
    """stdin and stdout are files that a shell opened."""

    name, loose = "stream-shell", ("t/out",)

    def commands(self, bin_):
        sink, source = super().commands(bin_)
        quoted = [" ".join(shlex.quote(w) for w in words[:-1]) for words in (sink, source)]
        return [["sh", "-c", "exec %s - >t/out" % quoted[0]], ["sh", "-c", "exec %s - <s/in" % quoted[1].replace("PORT", "$1"), "sh", "PORT"]]


@add
class Typed(Files):
    """The user typed the key, so scrypt derives the real one."""

    name, key = "stream-typed", "a typed key"

    def commands(self, bin_):
        return [self.rdrecv(bin_, ["-w4", "--progress=1"], "t/out"), self.rdsend(bin_, ["--json"], "s/in")]


@add
class Anywhere(Files):
    """rdrecv listens on every address of the host."""

    name = "stream-anywhere"

    def commands(self, bin_):
        sink, source = super().commands(bin_)
        return [[w for w in sink if w != "--address=127.0.0.1"], source]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


@add
class Relay(Files):
    """rdsend to an rdrecv whose command is an rdsend to the last rdrecv."""

    name, also, reporters = "stream-relay", {11}, 2

    def make(self, top):
        super().make(top)
        # Another run may get the same free port: with the same key it would take this run's stream.
        put(top + "/key", b"sluice-key-1:" + os.urandom(32).hex().encode() + b"\n", mode=0o600)

    def commands(self, bin_):
        source = super().commands(bin_)[1]
        port = free_port()
        last = self.rdrecv(bin_, ["-w4", "--key-file=key"])
        last[last.index("0")] = port
        last[last.index("-")] = "t/out"
        on = [w for w in self.rdsend(bin_, ["--key-file=key"]) if w != "-"]
        on[on.index("PORT")] = port
        relay = [w for w in self.rdrecv(bin_, ["-v", "-w4", "--key-file=key"]) if w != "-"]
        return [["sh", "-c", "%s & exec %s" % (shlex.join(last), shlex.join([*relay, "--", *on]))], source]


@add
class InPlace(Files):
    name, loose = "stream-inplace", ("t/out",)

    def commands(self, bin_):
        sink, source = super().commands(bin_)
        return [[*sink[:-1], "--inplace", sink[-1]], source]


@add
class ToDevice(Files):
    name = "stream-device"

    def commands(self, bin_):
        sink, source = super().commands(bin_)
        return [[*sink[:-1], "/dev/null"], source]


@add
class Stranger(Files):
    """Somebody else is there first, and is no Sluice."""

    name = "stream-stranger"

    def commands(self, bin_):
        sink, source = super().commands(bin_)
        call = 'exec 3<>/dev/tcp/127.0.0.1/$0; echo hello >&3; read -r answer <&3; exec 3<&-; exec "$@"'
        return [sink, ["bash", "-c", call, "PORT", *source]]


@add
class MakeKey(Scenario):
    name, varies = "make-key", ("new-key",)

    def make(self, top):
        os.mkdir(top + "/s")
        os.makedirs(top + "/t", exist_ok=True)

    def commands(self, bin_):
        return [[str(bin_ / "rdsend"), "--make-key=new-key"]]


class Printed(MakeKey):
    """What rdcp prints about itself."""

    varies = ()

    def __init__(self, name, word):
        self.name, self.word = name, word
        SCENARIOS[name] = self

    def commands(self, bin_):
        return [[str(bin_ / "rdcp"), self.word]]


Printed("help", "--help")
Printed("version", "--version")


# Over simulated adapters. With auto the copy goes on over TCP; with rdma it ends with the reason.
ROCE, IWARP = "connectx-roce", "t6-iwarp"


class OnAdapter(Copy):
    """A Copy over a simulated adapter."""

    def __init__(self, adapter, transport, name, words, make, **facts):
        kind = adapter.split("-")[1]
        super().__init__("%s-%s" % (kind, name), words, make, adapter=adapter, transport=transport, **facts)


Served("roce-daemon-push", ["-a", "s/", "rdma:t/"], few_over, adapter=ROCE, transport="auto")
Served("iwarp-daemon-pull", ["-a", "rdma:s/", "t"], few_over, adapter=IWARP, transport="rdma")
OnAdapter(ROCE, "auto", "push", ["s/f", "far:t/f"], one_file)
OnAdapter(IWARP, "rdma", "push", ["s/f", "far:t/f"], one_file)
OnAdapter(ROCE, "rdma", "tree", ["-a", "--tos=ef", "s/", "far:t"], few_over)
OnAdapter(IWARP, "auto", "tree", ["-a", "s/", "far:t"], few_over)
OnAdapter(ROCE, "rdma", "pull", ["-a", "far:s/", "t"], few_over)
OnAdapter(IWARP, "auto", "pull", ["-a", "--rdma-op=write-send", "far:s/", "t"], few_over)
OnAdapter(ROCE, "auto", "lanes", ["--lanes=4", "--depth=2", "s/f", "far:t/f"], large)
OnAdapter(ROCE, "rdma", "write-imm", ["--lanes=1", "--rdma-op=write-imm", "s/f", "far:t/f"], one_file)
OnAdapter(IWARP, "rdma", "write-send", ["--lanes=1", "--rdma-op=write-send", "s/f", "far:t/f"], one_file)
OnAdapter(ROCE, "rdma", "compress", ["--compress=zstd", "--rdma-op=write-imm", "s/f", "far:t/f"], text_file)
OnAdapter(ROCE, "rdma", "resume", ["-p", "s/big", "far:t/big"], interrupted)
OnAdapter(ROCE, "auto", "local", ["-a", "s/", "t"], few_over)


@add
class StreamOnRoce(Files):
    name, adapter, transport = "roce-stream", ROCE, "auto"


@add
class StreamOnIwarp(Commands):
    name, adapter, transport = "iwarp-stream", IWARP, "rdma"


@add
class Bench(Scenario):
    """rdbench prints figures, so only its exit code and messages are judged."""

    name, slow, sessions, words = "bench", True, True, ("--source=s/f", "--target=t")
    # So slow that no point is measured twice.
    faults = "stall:lane=0,block=1,every=1,ms=1"

    def make(self, top):
        put(top + "/s/f", noise(200_000, 35))
        os.makedirs(top + "/t", exist_ok=True)

    def commands(self, bin_):
        return [[str(bin_ / "rdbench"), "--transport=" + self.transport, *TIMES, "--rsh", RSH, "--rdcp-path", str(bin_ / "rdcp"),
                 "--lanes=1", "--depth=4", "--block-size=64k", "--seconds=0.001", *self.words, "far"]]


@add
class BenchMade(Bench):
    """rdbench makes the file that it reads, and a page with its figures."""

    name, words, varies = "bench-made", ("--source=s", "--target=t", "--json", "--plot=plot.svg"), ("plot.svg",)
    shares = True


@add
class BenchAlone(Bench):
    """Within this host, and without disks."""

    name, words = "bench-alone", ()

    def commands(self, bin_):
        return [super().commands(bin_)[0][:-1]]


@add
class Check(Scenario):
    name, slow, sessions, prints, words, also = "check", True, True, True, ("--json",), {43}
    # So slow that no measurement needs a second run, and so few bytes that the lanes cost no time of the processor.
    faults = "stall:lane=0,block=1,every=1,ms=8;stall:lane=1,block=0,every=1,ms=250"

    def make(self, top):
        os.mkdir(top + "/s")
        os.makedirs(top + "/t", exist_ok=True)

    def commands(self, bin_):
        return [[str(bin_ / "rdcheck"), "--transport=" + self.transport, *TIMES, "--rsh", RSH, "--rdcp-path", str(bin_ / "rdcp"),
                 *self.words, "far"]]


@add
class CheckClosed(Check):
    """Nothing gets through to the far end."""

    name, words, codes, faults = "check-closed", (), (43,), "take:lane=0,times=0;take:lane=1,times=0"


@add
class CheckOnRoce(Check):
    name, adapter, transport, words = "roce-check", ROCE, "auto", ()
    codes = (0, 43)     # the adapter has loopback addresses only
