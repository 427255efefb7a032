# SPDX-License-Identifier: Apache-2.0
"""A file with two names, one on the server and one over NFS: a copy onto itself must not lose its content. Only in
the lab, because the kernel's NFS server exists once per machine; a few lines written to its tables replace the
daemons."""

import os
import pathlib
import subprocess

import pytest

from hosts import SLOW, pattern
from trees import make, read

pytestmark = [
    pytest.mark.lab("rxe", long=True),
    pytest.mark.needs("lab", "rxe", why="only the lab's machine may serve NFS, and in one of its runs"),
]
NFSD = pathlib.Path("/proc/fs/nfsd")
FOR_EVER = 2147483647
# insecure, no_subtree_check, fsid=0; root stays root
FLAGS = 0x2 | 0x400 | 0x2000


def tell(path, line):
    """One write per line, as the kernel requires."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


def serve(top):
    """The settings that exportfs, mountd, nfsdcld and rpc.nfsd would make."""
    subprocess.run(["modprobe", "-a", "nfsd", "nfsv4"], check=True)
    if not NFSD.joinpath("threads").exists():
        subprocess.run(["mount", "-t", "nfsd", "nfsd", NFSD], check=True)
    # This directory shows the server that no earlier client exists, for whose locks it would wait.
    os.makedirs("/var/lib/nfs/v4recovery", exist_ok=True)
    tables = "/proc/net/rpc/%s/channel"
    tell(tables % "auth.unix.ip", "nfsd 127.0.0.1 %d lab" % FOR_EVER)
    tell(tables % "nfsd.export", "lab %s %d %d 65534 65534 0" % (top, FOR_EVER, FLAGS))
    tell(tables % "nfsd.fh", "lab 1 \\x00000000 %d %s" % (FOR_EVER, top))
    # Older versions need rpcbind.
    tell(NFSD / "versions", "-2 -3")
    tell(NFSD / "nfsv4gracetime", "10")
    tell(NFSD / "portlist", "tcp 2049")
    tell(NFSD / "threads", "4")
    tell(NFSD / "v4_end_grace", "Y")


@pytest.fixture
def twice(ground, tmp_path):
    """(the directory on the server, the same over NFS with attributes cached for ten minutes)"""
    export = ground / "export"
    seen = tmp_path / "nfs"
    export.mkdir()
    seen.mkdir()
    serve(ground)
    options = "addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2,sec=sys,actimeo=600"
    subprocess.run(["mount", "-i", "-t", "nfs4", "-o", options, "127.0.0.1:/", seen], check=True, timeout=120)
    yield export, seen / "export"
    subprocess.run(["umount", "-l", seen], check=True)
    tell(NFSD / "threads", "0")
    for table in ("nfsd.fh", "nfsd.export", "auth.unix.ip"):
        tell("/proc/net/rpc/%s/flush" % table, str(FOR_EVER))


def reads(path):
    with open(path, "rb") as f:
        return f.read()


# Ten copies of three programs each, in a guest with few processors.
@pytest.mark.timeout(180 * SLOW)
def test_source_seen_over_nfs_is_not_overwritten_by_itself(bench, twice):
    """Only the change that the copy makes shows it, and the other view has to notice that."""
    data = pattern(300000)
    tree = {"d": {"f": data, "sub": {"g": b"g"}}}
    make(twice[0], tree)
    for options, source, target in (
            [[], "d/f", "d/"], [["--checksum"], "d/f", "d/"], [["-I"], "d/f", "d/"], [["-I", "--inplace"], "d/f", "d/"],
            [["-a"], "d/", "d"]):
        for here, there in (twice, twice[::-1]):
            # Now both views have cached its attributes.
            assert reads(here / "d" / "f") == reads(there / "d" / "f") == data
            r = bench.copy("--times", "--remove-source-files", *options, "%s/%s" % (here, source),
                           "%s/%s" % (there, target))
            assert r.code != 0 and read(twice[0]) == tree, (r.code, r.argv, r.errors())
