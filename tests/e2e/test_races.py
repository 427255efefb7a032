# SPDX-License-Identifier: Apache-2.0
"""Another process exchanges directories of a tree with symlinks while root copies it. Each component below the
names given to root changes places with a symlink to a similar tree outside, tens of thousands of times a second.
Whatever rdcp reports: nothing outside is changed, and nothing outside is read into the copy."""

import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from hosts import COUNT, ROOT, SLOW, share, wait_until
from trees import make, walk

SECONDS = (1 if COUNT == 1 else 10) * SLOW
FLIP = str(ROOT / "tests" / "trees" / "flip.py")
NAMES = ["f%d" % i for i in range(12)]
# The exit codes that such a run may have: success, or failed files.
CODES = (0, 3, 11, 23, 24, 25, 42)

pytestmark = [
    pytest.mark.each_combination,
    pytest.mark.moves_blocks,
    pytest.mark.any_lane,
    pytest.mark.needs("root", why="a race against root takes root"),
]


class Stage:
    """src, dst and outside, with the same names: p/q with files in both."""

    def __init__(self, top):
        self.top = top
        self.src, self.dst, self.out = top / "src", top / "dst", top / "outside"
        (top / "aside").mkdir()
        for side in (self.src, self.dst, self.out):
            make(side / "p", {"g": b"g", "q": {n: b"0" for n in NAMES}})

    def each(self, sides=None):
        for top in sides or (self.src,):
            for d in (top / "p" / "q", top / "p"):
                for n in NAMES if d.name == "q" else ["g"]:
                    yield d / n


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def nothing(stage, n):
    pass


def new_content(stage, n):
    for f in stage.each():
        write(f, b"%d" % n * 3)


def new_names(stage, n):
    for f in stage.each():
        write(f.with_name("%s.%d" % (f.name, n)), b"new")


def modes(stage, n):
    for f in stage.each():
        f.chmod((0o640, 0o604)[n % 2])
        f.parent.chmod((0o750, 0o705)[n % 2])


def owners(stage, n):
    for f in stage.each():
        os.chown(f, n % 2 + 1, n % 2 + 1)
        os.chown(f.parent, n % 2 + 1, n % 2 + 1)


def times(stage, n):
    for f in stage.each():
        os.utime(f, ns=(1, 10**18 + n))
    link = stage.src / "p" / "q" / "link"
    if not os.path.lexists(link):
        for top in (stage.src, stage.out):
            os.symlink("f1", top / "p" / "q" / "link")
    os.utime(link, ns=(1, 10**18 + n), follow_symlinks=False)


def attributes(stage, n):
    for f in stage.each():
        os.setxattr(f, "user.n", b"%d" % n)
        os.setxattr(f.parent, "user.n", b"%d" % n)


def directories(stage, n):
    for i in range(6):
        (stage.src / "p" / "q" / ("d%d.%d" % (n, i)) / "e").mkdir(parents=True)


def symlinks(stage, n):
    for i in range(12):
        path = stage.src / "p" / "q" / ("l%d" % i)
        if os.path.lexists(path):
            path.unlink()
        path.symlink_to("to %d" % n)


def links(stage, n):
    for i in range(12):
        os.link(stage.src / "p" / "q" / NAMES[i], stage.src / "p" / "q" / ("h%d.%d" % (n, i)))


def nodes(stage, n):
    for i in range(6):
        os.mkfifo(stage.src / "p" / "q" / ("n%d.%d" % (n, i)))
        os.mknod(stage.src / "p" / "q" / ("c%d.%d" % (n, i)), stat.S_IFCHR | 0o600, os.makedev(1, 3))


# What a killed run leaves, with the suffix that allows any later run to remove it.
LEFT = ".sluice.%016x.%08x"


def put(top, files):
    """Into p and q below top, and nowhere else: they may be symlinks at this moment."""
    fds = [os.open(top, os.O_PATH | os.O_DIRECTORY)]
    try:
        for name in ("p", "q"):
            fds.append(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fds[-1]))
        for name, data in files.items():
            with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=fds[-1]), "wb") as f:
                f.write(data)
    except OSError:
        pass
    finally:
        for fd in fds:
            os.close(fd)


def leftovers_in(top, n):
    put(top, {LEFT % (i, n): b"left" for i in range(4)})


def partials(stage, n):
    new_content(stage, n)
    leftovers_in(stage.dst, n)


def extras(stage, n):
    put(stage.dst, {"extra%d" % i: b"delete me" for i in range(8)})


def refill(stage, n):
    put(stage.src, {n: b"0" for n in NAMES})


PLACES = {
    # the operations: (options, the change before each run, whose directories flip)
    "open a temporary": (["-r"], new_names, "dst"),
    "rename": (["-r", "--backup"], new_content, "dst"),
    "chmod": (["-r", "--perms", "--checksum"], modes, "dst"),
    "chown": (["-r", "--owner", "--group", "--checksum"], owners, "dst"),
    "utimens": (["-r", "--times", "--checksum"], times, "dst"),
    "xattr": (["-r", "-X", "-A", "--checksum"], attributes, "dst"),
    "mkdir": (["-a"], directories, "dst"),
    "symlink": (["-a"], symlinks, "dst"),
    "link": (["-aH"], links, "dst"),
    "mknod": (["-a"], nodes, "dst"),
    "unlink a temporary": (["-r"], partials, "dst"),
    "unlink by --delete": (["-r", "--delete"], extras, "dst"),
    "unlink a source": (["-r", "--remove-source-files"], refill, "src"),
    "opendir to scan": (["-a"], nothing, "src"),
    "open a source": (["-r", "-X"], nothing, "src"),
    "read for --checksum": (["-r", "--checksum"], nothing, "dst"),
}


def looks(top):
    """Everything in a tree that another process can change."""
    return {p: (t.stat[:7], t.stat.st_mtime_ns, t.stat.st_ctime_ns, t.digest, t.target, t.acls, t.xattrs)
            for p, t in walk(os.fsencode(top)).items()}


def flipping(bench, stage, side, seconds):
    top = getattr(stage, side)
    r = bench.start([sys.executable, FLIP, str(seconds), stage.top / "aside",
                     "%s=%s" % (top / "p", stage.out / "p"), "%s=%s" % (top / "p" / "q", stage.out / "p" / "q")])
    wait_until(lambda: b"ready" in r.out)
    return r


def outside_kept(stage, before):
    after = looks(stage.out)
    changed = [p for p in before.keys() | after.keys() if before.get(p) != after.get(p)]
    assert not changed, changed
    return True


@pytest.mark.parametrize("place", share(list(PLACES), 6))
@pytest.mark.timeout(90 + SECONDS)
def test_exchanged_parent_leads_nowhere(bench, ground, place):
    options, prepare, side = PLACES[place]
    stage = Stage(ground)
    if place.startswith("unlink a t"):
        leftovers_in(stage.out, 0)
        leftovers_in(stage.out, 1)
    elif place == "unlink by --delete":
        for i in range(8):
            write(stage.out / "p" / "q" / ("extra%d" % i), b"keep me")
    elif side == "src" and "--remove-source-files" not in options:
        for n in NAMES:
            write(stage.out / "p" / "q" / n, b"secret")
            write(stage.out / "p" / "q" / ("secret " + n), b"secret")
        write(stage.out / "p" / "secret", b"secret")
    prepare(stage, 0)
    before = looks(stage.out)
    flipper = flipping(bench, stage, side, SECONDS)
    n, codes = 0, []
    while flipper.proc.poll() is None:
        if n:
            prepare(stage, n)
        r = bench.copy(*options, str(stage.src) + "/", "far:%s" % stage.dst, timeout=30)
        codes.append(r.code)
        assert r.code in CODES, (place, r.code, r.errors())
        n += 1
    assert flipper.wait() == 0, flipper.errors()
    flips = int(bytes(flipper.out).split()[1])
    # On a busy machine one run takes the whole second of a short test: the directories flipped all the time.
    assert flips > 100 and n >= 1, (flips, codes)
    outside_kept(stage, before)
    if side == "src":
        for path, t in walk(os.fsencode(stage.dst)).items():
            assert b"secret" not in path, path
            if t.kind == "file":
                assert b"secret" not in (stage.dst / os.fsdecode(path)).read_bytes(), path


# ---- a program that trusts paths is detected ------------------------------------------------------

def careless(stage, what):
    """Checks first and then acts by path: the mistake that these tests look for."""
    d = stage.dst / "p" / "q"
    if not stat.S_ISDIR(os.lstat(stage.dst / "p").st_mode) or not stat.S_ISDIR(os.lstat(d).st_mode):
        return
    f = d / "f1"
    {"open": lambda: write(d / "f2.tmp", b"x"),
     "chmod": lambda: os.chmod(f, 0o600),
     "chown": lambda: os.chown(f, 1, 1),
     "utimens": lambda: os.utime(f),
     "xattr": lambda: os.setxattr(f, "user.x", b"x"),
     "unlink": lambda: (os.unlink(d / "f4"), write(d / "f4", b""))}[what]()


@pytest.mark.parametrize("what", ["open", "chmod", "chown", "utimens", "xattr", "unlink"])
def test_careless_program_is_detected(bench, ground, what):
    stage = Stage(ground)
    before = looks(stage.out)
    # It ends as soon as the program was detected, which takes longer beside others.
    flipper = flipping(bench, stage, "dst", 60)
    seen = threading.Event()

    def watch():
        while not seen.is_set() and flipper.proc.poll() is None:
            time.sleep(0.05)
            try:
                changed = looks(stage.out) != before
            except OSError:
                # A file that was listed is gone.
                changed = True
            if changed:
                seen.set()
    watcher = threading.Thread(target=watch)
    watcher.start()
    while not seen.is_set() and flipper.proc.poll() is None:
        try:
            careless(stage, what)
        except OSError:
            pass
    watcher.join()
    flipper.kill()
    assert seen.is_set(), "nothing outside was changed"


def test_undisturbed_copy_works(bench, ground):
    """Without flips each of these runs has its normal effect."""
    for n, (place, (options, prepare, _)) in enumerate(PLACES.items()):
        subprocess.run(["rm", "-rf", ground / "stage"], check=True)
        (ground / "stage").mkdir()
        stage = Stage(ground / "stage")
        prepare(stage, 1)
        before = {p for p in walk(os.fsencode(stage.src))}
        r = bench.copy(*options, str(stage.src) + "/", "far:%s" % stage.dst)
        assert r.code == 0, (place, r.errors())
        after = walk(os.fsencode(stage.dst))
        assert before <= after.keys(), (place, before - after.keys())
        assert not [p for p in after if b"extra" in p or b".sluice." in p], (place, sorted(after))
