# SPDX-License-Identifier: Apache-2.0
"""The part `trees` of bench/run: many files with rdcp -a, tar, rsync and scp."""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import stat
import statistics
import subprocess
import sys
import tempfile
import time

from measure import (BIN, GIB, HOSTS, RDCP, RESULTS, by_shell, can_sshd, free_bytes, free_port, in_turn, made_file,
                     not_run, report, seconds, sshd, started, stream_peer, type_of, wait_listening)

TREE_COPY = BIN / "bench/tree_copy"
KIB = 1 << 10


def made_tree(folder, files, size, a_dir=1000):
    """Makes files of this size, all different, a thousand in each directory."""
    top = pathlib.Path(folder)
    top.mkdir()
    bytes_ = os.urandom(1 << 20)
    for i in range(files):
        if i % a_dir == 0:
            sub = os.path.join(top, "d%05d" % (i // a_dir))
            os.mkdir(sub)
        at = i * 61 % (len(bytes_) - size)
        fd = os.open(os.path.join(sub, "file-%07d" % i), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, bytes_[at:at + size])
        os.close(fd)
    return top


def regular_files(folder):
    return sum(len(files) for _, _, files in os.walk(folder))


@contextlib.contextmanager
def far_end(folder):
    """Yields (arguments with which rdcp reaches a host, its name, the file for ssh -F or None)."""
    if can_sshd():
        with sshd(folder) as config:
            yield ["-F", config], "127.0.0.1", config
    else:
        yield by_shell(), "far", None


def rdcp_a(how, host, source, out):
    return [RDCP, "-a", "-q", "--transport=tcp", *how, "--rdcp-path", RDCP, source, "%s:%s" % (host, out)]


# For minutes after a deletion ext4 takes long to find free inodes, so files on a disk are removed at the end.
LEFT = []


@contextlib.contextmanager
def work_in(folder):
    d = tempfile.mkdtemp(dir=folder)
    LEFT.append(d)
    try:
        yield d
    finally:
        if type_of(folder) == "tmpfs":
            shutil.rmtree(d, ignore_errors=True)


def cleared(out):
    """Removes an earlier copy."""
    if os.path.exists(out) and type_of(out.parent) != "tmpfs":
        out.rename(tempfile.mkdtemp(dir=out.parent) + "/out")
    shutil.rmtree(out, ignore_errors=True)


def copies(source, out, files):
    """Returns a function that times a command which copies source to out, in files per second."""
    def run(how):
        cleared(out)
        os.sync()  # write-back of an earlier copy must not slow this one
        took = how() if callable(how) else seconds(how)
        if took and regular_files(out) != files:
            print("  not all files came: %d of %d" % (regular_files(out), files), file=sys.stderr)
            return None
        return took and files / took
    return run


def tar_nc(source, out):
    os.mkdir(out)
    rate = stream_peer("nc -l 127.0.0.1 PORT </dev/null | tar -x -C %s" % out,
                       "tar -c -C %s . | nc -N 127.0.0.1 PORT >/dev/null" % source, 10**9)
    return rate and 1 / rate


@contextlib.contextmanager
def rsync_daemon(folder, out):
    conf, port = pathlib.Path(folder) / "rsyncd.conf", free_port()
    conf.write_text("port = %d\naddress = 127.0.0.1\nuse chroot = no\nuid = %d\ngid = %d\n"
                    "[out]\npath = %s\nread only = no\n" % (port, os.geteuid(), os.getegid(), out.parent))
    with started(["rsync", "--daemon", "--no-detach", "--config=%s" % conf], stdin=subprocess.DEVNULL):
        wait_listening(port)
        yield "rsync://127.0.0.1:%d/out/%s/" % (port, out.name)


def small_files(folder, runs, files):
    size = 4 * KIB
    with work_in(folder) as d, contextlib.ExitStack() as stack:
        source, out = made_tree(os.path.join(d, "source"), files, size), pathlib.Path(d) / "out"
        how, host, config = stack.enter_context(far_end(d))
        run = copies(source, out, files)
        who = {"rdcp -a": lambda: run(rdcp_a(how, host, source, out)),
               # The start of ssh takes as long as tens of thousands of files.
               "rdcp -a, started without ssh": lambda: run(rdcp_a(by_shell(), "far", source, out)),
               "tree_copy (local, two threads)": lambda: run([TREE_COPY, source, out])}
        if shutil.which("nc"):
            who["tar | nc | tar"] = lambda: run(lambda: tar_nc(source, out))
        if shutil.which("rsync"):
            module = stack.enter_context(rsync_daemon(d, out))
            who["rsync -a (local)"] = lambda: run(["rsync", "-a", "%s/" % source, out])
            who["rsync -a (to its daemon)"] = lambda: run(["rsync", "-a", "%s/" % source, module])
        if config:
            # It takes at least a minute, so it runs once.
            scp = iter([["scp", "-q", "-r", "-F", config, source, "%s:%s" % (host, out)]])
            who["scp -r"] = lambda: next((run(argv) for argv in scp), None)
        report("%d files of 4 KiB, %s, TCP loopback" % (files, type_of(folder)), in_turn(runs, who),
               unit="files/s", digits=0)


# ---- one big file beside a tree ------------------------------------------------------------

def kernel_source(folder, given):
    """(the kernel's source tree in folder, or None, and the reason)"""
    to = pathlib.Path(folder) / "linux"
    if given and os.path.isdir(given):
        shutil.copytree(given, to, symlinks=True, ignore_dangling_symlinks=True)
        return to, None
    found = [given] if given else sorted(glob.glob("/usr/src/linux-source-*.tar.*"))
    if not found:
        if not shutil.which("apt-get"):
            return None, "no package linux-source here, and no apt-get"
        text = subprocess.run(["apt-cache", "depends", "linux-source"], capture_output=True, text=True).stdout
        name = re.search(r"Depends: (linux-source-\S+)", text)
        if not name or subprocess.run(["apt-get", "-q", "download", name.group(1)], cwd=folder,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            return None, "package linux-source can't be fetched"
        deb = next(pathlib.Path(folder).glob("linux-source-*.deb"))
        subprocess.run(["dpkg-deb", "-x", deb, "deb"], cwd=folder, check=True)
        found = list(pathlib.Path(folder).glob("deb/usr/src/linux-source-*.tar.*"))
    to.mkdir()
    subprocess.run(["tar", "-x", "-f", found[-1], "-C", to, "--strip-components=1"], check=True)
    return to, None


def last_change(folder):
    """The time at which the last file was there. Symlinks follow all files of a run."""
    found = (os.lstat(os.path.join(at, name)) for at, _, files in os.walk(folder) for name in files)
    return max((st.st_ctime for st in found if stat.S_ISREG(st.st_mode)), default=0)


def tell_seconds(what, figures, note=""):
    print("\n%s%s" % (what, "  (%s)" % note if note else ""))
    for who, values in figures.items():
        print("  %-38s %s" % (who, "%8.2f s  [%s]" % (statistics.median(values), " ".join("%.2f" % v for v in values))
                              if values else "not run"))
    RESULTS.append({"what": what, "note": note, "unit": "s", "figures": figures})
    sys.stdout.flush()


def big_and_small(folder, runs, size, given):
    what = "The kernel's source beside one file of %.1f GiB, %s, TCP loopback" % (size / GIB, type_of(folder))
    if free_bytes(folder) < 2 * size + 6 * (1 + runs) * GIB:
        return not_run(what, "no room in %s" % folder)
    with work_in(folder) as d, contextlib.ExitStack() as stack:
        source, out = pathlib.Path(d) / "source", pathlib.Path(d) / "out"
        source.mkdir()
        tree, why = kernel_source(d, given)
        if not tree:
            return not_run(what, why)
        tree = tree.rename(source / "linux")
        made_file(source, size, "big")
        how, host, _ = stack.enter_context(far_end(d))
        arrived = {"the last file of the tree": [], "the big file": []}

        def timed(argv, both=False):
            for big in (out, out / "big"):
                with contextlib.suppress(OSError):
                    big.unlink()
            cleared(out)
            os.sync()
            began = time.time()
            took = seconds(argv)
            if took and both:
                arrived["the last file of the tree"].append(last_change(out / "linux") - began)
                arrived["the big file"].append(os.stat(out / "big").st_ctime - began)
            return took

        def ours(what, both=False):
            return timed(rdcp_a(how, host, what, out), both)
        got = in_turn(runs, {
            "rdcp -a, tree alone": lambda: ours(tree),
            "rdcp -a, big file alone": lambda: ours(source / "big"),
            "rdcp -a, both": lambda: ours(source, True),
            "tree_copy, tree alone": lambda: timed([TREE_COPY, tree, out]),
            "tree_copy, both": lambda: timed([TREE_COPY, source, out])})
        tell_seconds(what, got, "%d files in the tree" % regular_files(tree))
        tell_seconds("Of both in one run, after how long was there", arrived)
        alone = [got["rdcp -a, tree alone"], got["rdcp -a, big file alone"]]
        if all(alone) and got["rdcp -a, both"]:
            print("  both together take %.2f times what they take one after the other" % (
                statistics.median(got["rdcp -a, both"]) / sum(map(statistics.median, alone))))


# ---- memory --------------------------------------------------------------------------------

def processes():
    """{pid: (pid of its parent, program)}"""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parent = int(open("/proc/%s/stat" % name).read().rsplit(")", 1)[1].split()[1])
            found[int(name)] = parent, os.readlink("/proc/%s/exe" % name)
    return found


def below(pid, top, found):
    while pid in found and pid != top:
        pid = found[pid][0]
    return pid == top


def note_peaks(near, far_file, peaks):
    """The peak resident sizes of rdcp's processes so far, by end."""
    found = processes()
    with contextlib.suppress(OSError, ValueError):
        peaks.setdefault("far pid", int(far_file.read_text()))
    for pid, (_, program) in found.items():
        if program != str(RDCP.resolve()):
            continue
        end = "far" if below(pid, peaks.get("far pid", -1), found) else "near" if below(pid, near, found) else None
        with contextlib.suppress(OSError, AttributeError):
            kib = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/%d/status" % pid).read()).group(1))
            if end:
                peaks.setdefault(end, {})[pid] = kib / 1024


def memory(folder, files):
    what = "Memory at %d files of 16 bytes, %s" % (files, type_of(folder))
    if free_bytes(folder) < 2 * files * 5 * KIB or os.statvfs(folder).f_favail < 2.1 * files:
        return not_run(what, "no room in %s" % folder)
    with tempfile.TemporaryDirectory(dir=folder) as d, far_end(d) as (how, host, _):
        # One directory has half of the files.
        source, out, far_file = made_tree(os.path.join(d, "source"), files // 2, 16), os.path.join(d, "out"), \
            pathlib.Path(d) / "far-pid"
        made_tree(source / "many", files // 2, 16, files)
        wrapper = pathlib.Path(d) / "far-rdcp"
        wrapper.write_text("#!/bin/sh\necho $$ >%s\nexec %s \"$@\"\n" % (far_file, RDCP))
        wrapper.chmod(0o755)
        peaks = {}
        for run in ("first", "again"):
            far_file.unlink(missing_ok=True)
            peaks.clear()
            began = time.monotonic()
            with started([RDCP, "-a", "-q", "--transport=tcp", "-T", *how, "--rdcp-path", wrapper, source,
                          "%s:%s" % (host, out)]) as p:
                while p.poll() is None:
                    note_peaks(p.pid, far_file, peaks)
                    time.sleep(0.1)
            took = time.monotonic() - began
            if p.returncode or regular_files(out) != files // 2 * 2:
                return not_run(what, "rdcp failed, with %d" % p.returncode)
            ends = {end: sum(peaks.get(end, {}).values()) for end in ("near", "far")}
            print("\n%s, %s\n  near end %.1f MiB, far end %.1f MiB at the peak; %.1f s, %.0f files/s" % (
                what, "sent" if run == "first" else "run again, nothing to send", ends["near"], ends["far"], took,
                files / took), flush=True)
            RESULTS.append({"what": "%s, %s" % (what, run), "unit": "MiB", "figures": ends, "seconds": took})


# ---- lab: inside the guest ---------------------------------------------------------------

def lab_trees(adapter, runs, size=128 << 20):
    """Measures files of 64 KiB, one file of as many bytes, and files of 4 KiB."""
    (_, near), (_, far) = HOSTS[adapter]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        out, rsh = pathlib.Path(d) / "out", pathlib.Path(d) / "rsh"
        trees = {64: made_tree(os.path.join(d, "64k"), size // (64 * KIB), 64 * KIB),
                 4: made_tree(os.path.join(d, "4k"), size // (32 * KIB), 4 * KIB)}
        one = made_file(d, size)
        rsh.write_text("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done; shift\nexec %s sh -c \"$*\"\n" %
                       " ".join(far))
        rsh.chmod(0o755)

        def ours(source):
            shutil.rmtree(out, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                out.unlink()
            return seconds([*near, RDCP, "-a", "-q", "--transport=rdma", "--rsh", rsh, "--rdcp-path", RDCP, source,
                            "far:%s" % out])

        def rate(source, of):
            took = ours(source)
            return took and of / took
        report("%d MiB as files of 64 KiB, tmpfs to tmpfs, %s" % (size >> 20, adapter), in_turn(runs, {
            "rdcp -a, files of 64 KiB": lambda: rate(trees[64], size / 1e9),
            "rdcp -a, one file": lambda: rate(one, size / 1e9)}))
        files = regular_files(trees[4])
        report("%d files of 4 KiB, tmpfs to tmpfs, %s" % (files, adapter), in_turn(runs, {
            "rdcp -a": lambda: rate(trees[4], files)}), unit="files/s", digits=0)


# ---- all -----------------------------------------------------------------------------------

def options(ap):
    g = ap.add_argument_group("trees", "sizes, for quick trials, and places")
    g.add_argument("--files", type=int, default=100_000, help="of 4 KiB")
    g.add_argument("--big", type=float, default=8, metavar="GIB", help="of the big file")
    g.add_argument("--million", type=int, default=1_000_000, metavar="FILES", help="for memory; 0: not")
    g.add_argument("--kernel", metavar="PATH", help="a tree, or its archive, in place of package linux-source")
    g.add_argument("--disk", default="/var/tmp", help="a directory on a disk")
    g.add_argument("--lab-size", type=int, default=128, metavar="MIB", help="of trees in the lab")


def host_trees(a):
    try:
        measured_trees(a)
    finally:
        for d in LEFT:
            shutil.rmtree(d, ignore_errors=True)


def measured_trees(a):
    if a.big:
        big_and_small(a.disk, min(a.runs, 3), int(a.big * GIB), a.kernel)
    for folder in dict.fromkeys(["/dev/shm", a.disk]):
        copies_kept = 3 if type_of(folder) == "tmpfs" else 1 + 8 * a.runs
        if free_bytes(folder) < copies_kept * a.files * 5 * KIB:
            not_run("%d files of 4 KiB in %s" % (a.files, folder), "no room")
        else:
            small_files(folder, a.runs, a.files)
    if a.million:
        memory(a.disk, a.million)
