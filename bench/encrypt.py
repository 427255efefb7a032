# SPDX-License-Identifier: Apache-2.0
"""Encryption alone beside OpenSSL's own measurement, and encrypted copies between two network namespaces, with rdcp and
programs that use ssh, for bench/run."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from measure import BIN, GIB, RDCP, ROOT, can_sshd, free_bytes, in_turn, made_file, not_run, report, sshd, timed

sys.path.append(str(ROOT / "tests/rig"))

from networks import Networks  # noqa: E402

SUBNET = "10.79.3"
FAR = SUBNET + ".2"


def openssl_rate(threads, *clock):
    """GB/s that `openssl speed' encrypts in blocks of 256 KiB."""
    done = subprocess.run(["openssl", "speed", "-evp", "aes-256-gcm", "-bytes", "262144", "-seconds", "3", *clock,
                           *(["-multi", str(threads)] if threads > 1 else [])], capture_output=True, text=True, check=True)
    return float(re.search(r"^(?:AES-256-GCM|evp) +([\d.]+)k", done.stdout, re.M | re.I)[1]) / 1e6


def seal_rates(threads, *clock):
    done = subprocess.run([BIN / "bench/seal_bench", "--threads", str(threads), *clock], capture_output=True, text=True, check=True)
    return [float(x) for x in done.stdout.split()]


def seal_alone(runs):
    if not shutil.which("openssl"):
        return not_run("Blocks of 256 KiB, sealed and opened", "needs openssl")
    for threads, name, ours, theirs in ((1, "one thread, by processor time", ["--cpu"], []),
                                        (1, "one thread, by elapsed time", [], ["-elapsed"]),
                                        (2, "two threads, by elapsed time", [], ["-elapsed"])):
        figures = {"sealed": [], "opened": [], "openssl speed": []}
        for _ in range(runs):
            for who, rate in zip(figures, [*seal_rates(threads, *ours), openssl_rate(threads, *theirs)]):
                figures[who].append(rate)
        report("Blocks of 256 KiB, sealed and opened with AES-256-GCM, %s" % name, figures)


@contextlib.contextmanager
def two_namespaces():
    """Yields None if they cannot be made here."""
    networks = Networks()
    try:
        if networks.make():
            networks.join(SUBNET)
            yield networks
        else:
            yield None
    finally:
        networks.remove()


def copies(networks, folder, size, runs, what):
    near = networks.on(0)
    with sshd(folder, FAR, networks.on(1)) as config:
        path, out = made_file(folder, size), pathlib.Path(folder) / "out"
        port = config.read_text().split()[3]

        def run(*argv):
            out.unlink(missing_ok=True)
            return timed([*near, *argv], size)

        def ours(*options):
            return run(RDCP, "-q", "--transport=tcp", *options, "--rdcp-path", RDCP, "-F", config, path, "%s:%s" % (FAR, out))
        who = {"rdcp, encrypted": ours,
               "rdcp --encrypt=off": lambda: ours("--encrypt=off"),
               "scp": lambda: run("scp", "-q", "-F", config, path, "%s:%s" % (FAR, out)),
               "rsync -W": lambda: run("rsync", "-W", "-e", "ssh -F %s" % config, path, "%s:%s" % (FAR, out)),
               "mscp": lambda: run("mscp", "-q", "-F", config, path, "%s:%s" % (FAR, out)),
               "rclone copyto, sftp": lambda: run(
                   "rclone", "copyto", "-q", "--config", "/dev/null", "--sftp-host", FAR, "--sftp-port", port, "--sftp-user",
                   "root", "--sftp-key-file", pathlib.Path(folder) / "user", path, ":sftp:%s" % out)}
        # The first run touches the memory, so it does not count.
        who["rdcp, encrypted"]()
        report(what, in_turn(runs, {n: f for n, f in who.items() if "rdcp" in n or shutil.which(n.split()[0])}),
               "all with the start of the far end over ssh, and with their defaults")


def encrypted_copies(runs, size=2 * GIB):
    what = "A cached %d GiB file to tmpfs between two network namespaces, TCP, start to end" % (size // GIB)
    if not can_sshd():
        return not_run(what, "needs root and sshd")
    if free_bytes("/dev/shm") < 2 * size + GIB:
        return not_run(what, "no room in /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d, two_namespaces() as networks:
        if not networks:
            return not_run(what, "network namespaces cannot be made here")
        copies(networks, d, size, runs, what)
