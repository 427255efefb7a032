# SPDX-License-Identifier: Apache-2.0
"""Makes and compares trees, and parses reports of the programs."""

import itertools
import json
import os
import stat
import subprocess
import sys

import pytest

from hosts import COUNT, LAB, ROOT

sys.path.insert(0, str(ROOT / "tests" / "trees"))

from compare import compare, data_ranges, rsync_differs, walk  # noqa: E402,F401
from generate import acl, fell, generate  # noqa: E402,F401

# The prefixes of source and target names.
WAYS = {"push": ("", "far:"), "pull": ("far:", ""), "remote": ("near:", "far:"), "local": ("", "")}
FAR_AND_FAR = {"one far host": ("far:", "far:")}
later = itertools.count(1)  # nanoseconds that make() adds to times


def ways(*names):
    """A fixture `way' with one case for each name: the prefixes of source and target."""
    @pytest.fixture(params=names)
    def way(request):
        return {**WAYS, **FAR_AND_FAR}[request.param]
    return way


def seeds(few, many, lab=1, lab_many=3):
    """The seeds that this run tries. They are always the same, so that a failure can be repeated."""
    return range(1, 1 + ((lab if COUNT == 1 else lab_many) if LAB else few if COUNT == 1 else many))


def dated(path, seconds):
    os.utime(path, ns=(seconds * 10**9, seconds * 10**9), follow_symlinks=False)


def make(top, tree):
    """{name: bytes for a file, str for a symlink, dict for a directory}"""
    os.makedirs(top, exist_ok=True)
    for name, what in tree.items():
        path = os.path.join(top, name)
        if isinstance(what, dict):
            make(path, what)
        elif isinstance(what, str):
            os.symlink(what, path)
        else:
            with open(path, "wb") as f:
                f.write(what)
            # The kernel gives files made within one tick of its clock the same time; here all times differ.
            made = os.stat(path).st_mtime_ns + next(later)
            os.utime(path, ns=(made, made))


def read(top):
    """The reverse of make()."""
    tree = {}
    for name in os.listdir(top):
        path = os.path.join(top, name)
        if os.path.islink(path):
            tree[name] = os.readlink(path)
        elif os.path.isdir(path):
            tree[name] = read(path)
        elif os.path.isfile(path):
            with open(path, "rb") as f:
                tree[name] = f.read()
        else:
            tree[name] = None
    return tree


def equal(a, b, seed=None, **how):
    """Fails unless b equals a, names of temporaries and markers included."""
    a, b = [t if isinstance(t, dict) else os.fsencode(t) for t in (a, b)]
    lines = compare(a, b, **how)
    assert not lines, "seed %s: %d differences\n%s" % (seed, len(lines), "\n".join(lines[:40]))


def stale(top):
    """The temporaries and markers in a tree."""
    return [p for p in walk(os.fsencode(top)) if p.rsplit(b"/", 1)[-1].startswith(b".sluice.")]


def told(run, type_=None):
    """The objects of --json."""
    found = [json.loads(line) for line in bytes(run.out).decode().splitlines()]
    return [x for x in found if type_ in (None, x["type"])]


def summary(run):
    return told(run)[-1]


def changes(run):
    """{path: change} of --itemize-changes."""
    found = {}
    for line in bytes(run.out).decode("utf-8", "surrogateescape").splitlines():
        change, _, path = line.partition(" ")
        found[path.strip()] = change
    return found


def rsync(*args, ok=(0,), cwd=None, given=None):
    """Runs rsync, which provides the expected result."""
    done = subprocess.run(["rsync", *map(os.fspath, args)], cwd=cwd, input=given, capture_output=True,
                          env={**os.environ, "LC_ALL": "C"})
    assert done.returncode in ok, done.stderr
    return done.stdout


def shape(top):
    """{path: the metadata that -p preserves}"""
    return {p: (t.kind, stat.S_IMODE(t.stat.st_mode), t.stat.st_uid, t.stat.st_gid, t.digest)
            for p, t in walk(os.fsencode(top)).items() if p}


def untouched(top):
    """{path: (inode, ctime)}, which differs after any change of the tree."""
    return {p: (t.stat.st_ino, t.stat.st_ctime_ns) for p, t in walk(os.fsencode(top)).items()}
