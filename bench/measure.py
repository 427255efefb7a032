# SPDX-License-Identifier: Apache-2.0
"""Shared by the parts of bench/run: starts programs, times them, and prints the figures."""

import contextlib
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("SLUICE_TEST_BIN", ROOT / "build" / "release"))
RDCP = BIN / "src/rdcp"
GIB = 1 << 30
RESULTS = []
# In the lab: the address of each end, and the words that run a program there.
HOSTS = {"rxe": (("10.77.1.1", []), ("10.77.1.2", [])),
         "siw": (("10.77.2.1", ["ip", "netns", "exec", "siwa"]), ("10.77.2.2", ["ip", "netns", "exec", "siwb"]))}


def machine():
    model = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo")
                  if l.startswith("model name")), platform.machine())
    memory = next(int(l.split()[1]) >> 20 for l in open("/proc/meminfo") if l.startswith("MemTotal"))
    return "%s, %d CPUs, %d GiB, Linux %s%s" % (
        model, os.cpu_count(), memory, platform.release(),
        ", emulated by QEMU" if os.environ.get("SLUICE_LAB") else "")


def ratio_of(ours, theirs, rounds):
    """How many times theirs ours is. rounds: of the values of each round, as in_rounds() has them, which a machine whose
    speed changes falsifies less than a ratio of medians."""
    if rounds:
        return statistics.median(a / b for a, b in zip(ours, theirs))
    return statistics.median(ours or [0]) / statistics.median(theirs)


def report(what, figures, note="", unit="GB/s", digits=3, rounds=False):
    """Prints a line for each entry of figures, {program: [rate, …]}, with the ratio to the first one, Sluice."""
    print("\n%s%s" % (what, "  (%s)" % note if note else ""))
    ours = next(iter(figures.values()))
    for who, values in figures.items():
        if not values:
            print("  %-38s not run" % who)
            continue
        m = statistics.median(values)
        print("  %-38s %8.*f %s  [%s]%s" % (
            who, digits, m, unit, " ".join("%.*f" % (digits, v) for v in values),
            "" if who == next(iter(figures)) else "   ours is %.2f times this" % ratio_of(ours, values, rounds)))
    RESULTS.append({"what": what, "note": note, "unit": unit, **({"rounds": True} if rounds else {}), "figures": figures})
    sys.stdout.flush()


def not_run(what, why):
    print("\n%s: not run (%s)" % (what, why), flush=True)
    RESULTS.append({"what": what, "not run": why})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def timed(argv, size, **how):
    """The rate in GB/s of a program that moves size bytes, from its start to its end; None if it failed."""
    took = seconds(argv, **how)
    return took and size / took / 1e9


def seconds(argv, **how):
    """The seconds that a program takes; None if it failed."""
    start = time.monotonic()
    p = subprocess.run([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)
    took = time.monotonic() - start
    if p.returncode:
        print("  %s failed: %s" % (argv[0], p.stderr.decode(errors="replace")[-300:]), file=sys.stderr)
        return None
    return took


@contextlib.contextmanager
def started(argv, **how):
    p = subprocess.Popen([str(a) for a in argv], **how)
    try:
        yield p
    finally:
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def wait_listening(port, prefix=(), until=10):
    end = time.monotonic() + until
    while time.monotonic() < end:
        out = subprocess.run([*prefix, "ss", "-Hltn", "sport = :%d" % port], capture_output=True, text=True)
        if out.stdout.strip():
            return
        time.sleep(0.02)


def in_turn(runs, who):
    """Calls each function of who, {name: function}, `runs` times, in turn. Returns {name: [results that are not None]}."""
    got = {name: [] for name in who}
    for _ in range(runs):
        for name, fn in who.items():
            v = fn()
            if v:
                got[name].append(v)
    return got


def in_rounds(runs, who):
    """As in_turn(), without the rounds in which one failed: the n-th results of all are those of one round."""
    rounds = [{name: fn() for name, fn in who.items()} for _ in range(runs)]
    return {name: [r[name] for r in rounds if all(r.values())] for name in who}


def stream_peer(listen, send, size):
    """The rate in GB/s of two shell commands with the word PORT, until both have ended; None if one failed."""
    port = free_port()
    sink = subprocess.Popen(listen.replace("PORT", str(port)), shell=True)
    wait_listening(port)
    start = time.monotonic()
    subprocess.run(send.replace("PORT", str(port)), shell=True, check=False)
    try:
        code = sink.wait(60)
    except subprocess.TimeoutExpired:
        sink.kill()
        code = sink.wait()
    return size / (time.monotonic() - start) / 1e9 if code == 0 else None


def made_file(folder, size, name="data"):
    path = pathlib.Path(folder) / name
    with open(path, "wb") as f:
        piece = os.urandom(16 << 20)
        for _ in range(size // len(piece)):
            f.write(piece)
        f.write(piece[:size % len(piece)])
    return path


def by_shell():
    """The arguments with which rdcp reaches a host "far", which is this one, without ssh."""
    os.environ["SLUICE_TEST_HOSTS"] = "far "
    return ["--rsh", ROOT / "tests/rig/rsh"]


def can_sshd():
    return os.geteuid() == 0 and os.path.exists("/usr/sbin/sshd")


@contextlib.contextmanager
def sshd(folder, address="127.0.0.1", prefix=()):
    """Starts an sshd on an address, with the words prefix before it. Yields the configuration for ssh -F that connects to it."""
    d = pathlib.Path(folder)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / name], check=True)
    shutil.copy(d / "user.pub", d / "authorized")
    port = free_port()
    (d / "sshd").write_text("Port %d\nListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\n"
                            "StrictModes no\nUsePAM no\nMaxStartups 256\nPidFile none\nPermitRootLogin yes\n"
                            "Subsystem sftp internal-sftp\n" % (port, address, d, d))
    (d / "config").write_text("Host *\n Port %d\n IdentityFile %s/user\n StrictHostKeyChecking no\n"
                              " UserKnownHostsFile /dev/null\n LogLevel ERROR\n" % (port, d))
    os.makedirs("/run/sshd", exist_ok=True)
    with started([*prefix, "/usr/sbin/sshd", "-D", "-f", d / "sshd"], stderr=subprocess.DEVNULL):
        wait_listening(port, prefix)
        yield d / "config"


def free_bytes(folder):
    st = os.statvfs(folder)
    return st.f_bavail * st.f_frsize


def type_of(folder):
    out = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True)
    return {"ext2/ext3": "ext4"}.get(out.stdout.strip(), out.stdout.strip())


def write_json(path):
    """Writes RESULTS. If all come from one machine, it is named once; else results of a guest name the guest."""
    here = machine()
    machines = {r.get("machine", here) for r in RESULTS}
    top = machines.pop() if len(machines) == 1 else here
    results = [{k: v for k, v in r.items() if k != "machine" or v != top} for r in RESULTS]
    pathlib.Path(path).write_text(json.dumps({"machine": top, "results": results}, indent=1) + "\n")
