# SPDX-License-Identifier: Apache-2.0
"""Streams and files between two ends, with Sluice and other programs, for bench/run: on loopback and in the lab."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from measure import (BIN, GIB, HOSTS, RDCP, RESULTS, by_shell, can_sshd, free_bytes, free_port, in_turn, made_file,
                     not_run, report, sshd, started, stream_peer, timed, wait_listening)

LOOPBACK = (("127.0.0.1", []), ("127.0.0.1", []))


@contextlib.contextmanager
def key_file():
    with tempfile.NamedTemporaryFile("w", prefix="key") as key:
        os.chmod(key.name, 0o600)
        key.write("sluice-key-1:" + "5a" * 32 + "\n")
        key.flush()
        yield key.name


def shell(prefix, line):
    return subprocess.Popen([*map(str, prefix), "sh", "-c", line], stderr=subprocess.PIPE)


def ended(p):
    """Waits for p. Returns (exit status, processor seconds of p and of the children that it waited for)."""
    p.stderr.read()
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    return p.returncode, used.ru_utime + used.ru_stime


def two_shells(hosts, listen, send, size, cpu):
    """Runs shell commands with the words PORT and HOST at both ends. Returns the rate in GB/s, or None if one failed.
    Adds (processor seconds per GB at the source, at the sink) to the list cpu."""
    (_, near), (address, far) = hosts
    words = {"PORT": str(free_port()), "HOST": address}

    def filled(line):
        return re.sub("PORT|HOST", lambda m: words[m.group()], line)
    sink = shell(far, filled(listen))
    wait_listening(int(words["PORT"]), far)
    begin = time.monotonic()
    source = shell(near, filled(send))
    source_code, source_cpu = ended(source)
    sink_code, sink_cpu = ended(sink)
    took = time.monotonic() - begin
    if source_code or sink_code:
        print("  %s: %d, %d" % (send.split()[0], source_code, sink_code), file=sys.stderr)
        return None
    cpu.append((source_cpu / size * 1e9, sink_cpu / size * 1e9))
    return size / took / 1e9


def tell_cpu(cpu):
    for who, pairs in cpu.items():
        if pairs:
            source, sink = (sorted(p[i] for p in pairs)[len(pairs) // 2] for i in (0, 1))
            print("  %-38s %8.2f and %.2f CPU s/GB at source and sink" % (who, source, sink))
    RESULTS.append({"what": "CPU seconds a GB, at source and sink, of the pipes above", "figures": cpu})
    sys.stdout.flush()


def pipes(hosts, transport, where, runs, size):
    """Measures each program between the same producer and consumer."""
    make, take = "head -c %d /dev/zero" % size, "cat >/dev/null"
    with key_file() as key:
        ours = "%s -q --transport=%s --key-file %s"
        lines = {
            "rdsend, rdrecv": (ours % (BIN / "src/rdrecv", transport, key) + " PORT",
                               ours % (BIN / "src/rdsend", transport, key) + " HOST PORT"),
            "nc": ("nc -l HOST PORT </dev/null", "nc -N HOST PORT"),
            "socat -b 1048576": ("socat -u -b 1048576 TCP-LISTEN:PORT,bind=HOST STDOUT",
                                 "socat -u -b 1048576 STDIN TCP:HOST:PORT"),
            "mbuffer -s 1M -m 64M": ("mbuffer -q -s 1M -m 64M -I PORT", "mbuffer -q -s 1M -m 64M -O HOST:PORT"),
        }
        cpu = {who: [] for who in lines}
        who = {name: lambda name=name: two_shells(hosts, "%s | %s" % (lines[name][0], take), "%s | %s" % (
            make, lines[name][1]), size, cpu[name])
               for name in lines if name.startswith("rdsend") or shutil.which(name.split()[0])}
        report("A stream of %d MB from a pipe into a pipe, %s" % (size // 10**6, where), in_turn(runs, who))
        tell_cpu(cpu)


def bandwidth(hosts, transport, path):
    """The rate from the first block to the end that -v prints, of a file to /dev/null."""
    (_, near), (address, far) = hosts
    port = free_port()
    with key_file() as key:
        arg = ["--transport=" + transport, "--key-file", key]
        with started([*far, BIN / "src/rdrecv", *arg, port, "/dev/null"], stderr=subprocess.DEVNULL) as sink:
            wait_listening(port, far)
            out = subprocess.run([str(a) for a in (*near, BIN / "src/rdsend", "-v", *arg, address, port, path)],
                                 capture_output=True, text=True)
            sink.wait(60)
    found = re.search(r"^Bandwidth ([0-9.]+) GB/s", out.stderr, re.M)
    return float(found.group(1)) if found and out.returncode == 0 and sink.returncode == 0 else None


# ---- host ------------------------------------------------------------------------------

def host_streams(runs):
    size = 2 * GIB
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        path = made_file(d, size)
        who = {"rdsend FILE, rdrecv /dev/null": lambda: file_ours(path, size)}
        for name, (listen, send) in {
                "nc -N": ("nc -l 127.0.0.1 PORT >/dev/null", "nc -N 127.0.0.1 PORT <%s" % path),
                "socat -b 1048576": ("socat -u -b 1048576 TCP-LISTEN:PORT,bind=127.0.0.1 OPEN:/dev/null",
                                     "socat -u -b 1048576 OPEN:%s TCP:127.0.0.1:PORT" % path),
                "mbuffer -s 1M -m 64M": ("mbuffer -q -s 1M -m 64M -I PORT -o /dev/null 2>/dev/null",
                                         "mbuffer -q -s 1M -m 64M -i %s -O 127.0.0.1:PORT 2>/dev/null" % path)}.items():
            if shutil.which(name.split()[0]):
                who[name] = lambda listen=listen, send=send: stream_peer(listen, send, size)
        report("A 2 GiB file in /dev/shm to /dev/null, TCP loopback", in_turn(runs, who))
    pipes(LOOPBACK, "tcp", "TCP loopback", runs, 4 * 10**9)


def file_ours(path, size):
    with key_file() as key:
        port = free_port()
        arg = ["--transport=tcp", "--key-file", key]
        sink = subprocess.Popen([str(a) for a in (BIN / "src/rdrecv", *arg, port, "/dev/null")])
        wait_listening(port)
        v = timed([BIN / "src/rdsend", *arg, "127.0.0.1", port, path], size)
        return v if sink.wait() == 0 else None


def host_copy(runs, size=4 * GIB):
    what = "A cached %d GiB file to tmpfs on the same host, start to end" % (size // GIB)
    if not can_sshd():
        return not_run(what, "needs root and sshd")
    if free_bytes("/dev/shm") < 2 * size + GIB:
        return not_run(what, "no room in /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d, sshd(d) as config:
        path, out = made_file(d, size), pathlib.Path(d) / "out"
        quoted = shlex.quote(str(path)), shlex.quote(str(out))

        def run(*argv):
            with contextlib.suppress(FileNotFoundError):
                out.unlink()
            return timed(argv, size)

        def peer(listen, send):
            with contextlib.suppress(FileNotFoundError):
                out.unlink()
            return stream_peer(listen % quoted[1], send % quoted[0], size)
        ours = [RDCP, "-q", "--rdcp-path", RDCP]
        who = {"rdcp": lambda: run(*ours, "-F", config, path, "127.0.0.1:%s" % out),
               # ssh takes a third of a second; the streams below begin at once.
               "rdcp, started without ssh": lambda: run(*ours, *by_shell(), path, "far:%s" % out),
               "scp": lambda: run("scp", "-q", "-F", config, path, "127.0.0.1:%s" % out),
               "rsync -W": lambda: run("rsync", "-W", "-e", "ssh -F %s" % config, path, "127.0.0.1:%s" % out),
               "mbuffer -s 1M -m 64M": lambda: peer("mbuffer -q -s 1M -m 64M -I PORT -o %s 2>/dev/null",
                                                    "mbuffer -q -s 1M -m 64M -i %s -O 127.0.0.1:PORT 2>/dev/null"),
               "socat -b 1048576": lambda: peer("socat -u -b 1048576 TCP-LISTEN:PORT,bind=127.0.0.1 CREATE:%s",
                                                "socat -u -b 1048576 OPEN:%s TCP:127.0.0.1:PORT"),
               "nc -N": lambda: peer("nc -l 127.0.0.1 PORT >%s", "nc -N 127.0.0.1 PORT <%s")}
        # The first run touches the memory, which takes time in a guest, so it does not count.
        who["rdcp"]()
        report(what, in_turn(runs, {n: f for n, f in who.items() if "rdcp" in n or shutil.which(n.split()[0])}),
               "rdcp, scp and rsync with the start of the far end over ssh")


# ---- lab: inside the guest ---------------------------------------------------------------

def lab_streams(adapter, runs, lanes):
    """lanes: a function that measures lanes alone, memory to memory, with digests."""
    size = 256_000_000
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        path = made_file(d, size)
        report("A cached file of %d MB to /dev/null, %s" % (size // 10**6, adapter), in_turn(runs, {
            "rdsend FILE, rdrecv /dev/null": lambda: bandwidth(HOSTS[adapter], "rdma", path),
            "lanes, memory to memory": lanes}), "from the first block to the end")
    pipes(HOSTS[adapter], "rdma", "%s; the peers over TCP on the same wire" % adapter, runs, size)
