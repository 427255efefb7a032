# SPDX-License-Identifier: Apache-2.0
"""Two hosts for the tests, and programs on them.

SLUICE_TRANSPORT selects what the two hosts are: with tcp, this machine on loopback; with rxe, two
addresses of this machine (soft-RoCE works in one network namespace only); with siw, two network
namespaces; with sim, this machine on loopback, with the simulated adapter SLUICE_SIM
(tests/simverbs/personalities); with device, two addresses of this machine, SLUICE_TEST_NEAR and
SLUICE_TEST_FAR, of an iWARP adapter if SLUICE_TEST_IWARP is set.
"""

import atexit
import functools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SLUICE_TEST_BIN", ROOT / "build" / "faults")) / "src"
# Replaces ssh.
RSH = ROOT / "tests" / "rig" / "rsh"
TRANSPORT = os.environ.get("SLUICE_TRANSPORT", "tcp")
SIM = os.environ.get("SLUICE_SIM", "connectx-roce") if TRANSPORT == "sim" else ""
RDMA = TRANSPORT != "tcp"
# An iWARP adapter has neither immediates nor acknowledgements.
IWARP = TRANSPORT == "siw" or "iwarp" in SIM or TRANSPORT == "device" and bool(os.environ.get("SLUICE_TEST_IWARP"))
HAS_ADAPTER = bool(SIM) or TRANSPORT == "device" or os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband"))
USER = os.geteuid() != 0
LAB = bool(os.environ.get("SLUICE_LAB"))
# scrypt stretches a typed key, which takes a tenth of a second, and seconds on an emulated CPU. A generated key
# needs no scrypt. Tests of keys have their own.
KEY = "sluice-key-1:" + "5a" * 32
COUNT = int(os.environ.get("SLUICE_COUNT", "1"))
# In the lab CPUs are emulated, so deadlines are three times as long.
SLOW = 3 if LAB else 1


class Host:
    """A host: its name, its addresses, and the words before a command that runs there."""

    def __init__(self, name, address, address6, prefix=()):
        self.name, self.address, self.address6 = name, address, address6
        self.prefix = list(prefix)


def simulated(adapter=SIM, **how):
    """The environment in which a program finds this simulated adapter. how: the options of make_host()."""
    sys.path.insert(0, str(ROOT / "tests" / "simverbs"))
    from make_host import make_host
    top = tempfile.mkdtemp(prefix="simverbs-")
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    make_host(adapter, top, **how)
    return {"SIMVERBS": top, "SIMVERBS_FORK": "1", "SIMVERBS_LEAKS": "1", "SIMVERBS_TOUCH": "1",
            "LD_LIBRARY_PATH": str(BIN.parent / "tests" / "simverbs")}


def _hosts():
    if TRANSPORT == "sim":
        os.environ.update(simulated())
    if TRANSPORT in ("tcp", "sim"):
        return Host("near", "127.0.0.1", "::1"), Host("far", "127.0.0.1", "::1")
    if TRANSPORT == "rxe":
        return (Host("near", "10.77.1.1", "fd77:1::1"), Host("far", "10.77.1.2", "fd77:1::2"))
    if TRANSPORT == "siw":
        return (Host("near", "10.77.2.1", "fd77:2::1", ["ip", "netns", "exec", "siwa"]),
                Host("far", "10.77.2.2", "fd77:2::2", ["ip", "netns", "exec", "siwb"]))
    if TRANSPORT == "device":
        return (Host("near", os.environ["SLUICE_TEST_NEAR"], None),
                Host("far", os.environ["SLUICE_TEST_FAR"], None))
    raise ValueError("SLUICE_TRANSPORT=%s" % TRANSPORT)


NEAR, FAR = _hosts()
# The option that requires the transport of this run, so that no data uses another one.
DEMAND = "--transport=rdma" if RDMA else "--transport=tcp"
# Three times the defaults, as all that a test waits for in the lab.
PATIENCE = ["--connect-timeout=30", "--timeout=45"] if LAB else []
# SLUICE_RDMA_OP runs all tests with one data operation.
OP = ["--rdma-op=" + os.environ["SLUICE_RDMA_OP"]] if os.environ.get("SLUICE_RDMA_OP") else []


def program(name):
    return str(BIN / name)


def environment(extra=None, home="/"):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RD_", "SLUICE_FAULT"))}
    env["SLUICE_TEST_HOSTS"] = "\n".join("%s %s" % (h.name, " ".join(h.prefix))
                                         for h in (NEAR, FAR))
    env["SLUICE_TEST_HOME"] = str(home)
    env.update(extra or {})
    return env


class Running:
    """A started program. Threads collect its output, so that a test can read it while the program runs."""

    def __init__(self, argv, host=None, stdin=None, stdout=None, env=None, cwd=None, home="/",
                 preexec=None, become=()):
        # become: words that run the program as another user, after those of the host
        self.argv = (host.prefix if host else []) + [str(a) for a in (*become, *argv)]
        self.proc = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE if stdout is None else stdout, stderr=subprocess.PIPE,
            env=environment(env, home), cwd=cwd, start_new_session=True, preexec_fn=preexec)
        self.out, self.err = bytearray(), bytearray()
        # the programs of the same test
        self.others = ()
        self._threads = []
        self._gather(self.proc.stderr, self.err)
        if stdout is None:
            self._gather(self.proc.stdout, self.out)

    def _gather(self, pipe, into):
        def pump():
            while True:
                got = pipe.read1(65536)
                if not got:
                    break
                into.extend(got)
        t = threading.Thread(target=pump, daemon=True)
        t.start()
        self._threads.append(t)

    def errors(self):
        return self.err.decode("utf-8", "replace")

    def expect(self, text, timeout=60):
        """Waits until a line of stderr contains text, and returns that line."""
        end = time.monotonic() + timeout * SLOW
        while time.monotonic() < end:
            for line in self.errors().splitlines():
                if text in line:
                    return line
            if self.proc.poll() is not None and not any(t.is_alive() for t in self._threads):
                break
            time.sleep(0.01)
        raise AssertionError("%s: no %r in: %s (exit %s)" % (
            self.argv, text, self.errors(), self.proc.poll()))

    def wait(self, timeout=60):
        try:
            code = self.proc.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            where = self.whereabouts()
            beside = "".join("\n%s (exit %s): %s" % (r.argv, r.proc.poll(), r.errors())
                             for r in self.others if r is not self)
            self.kill()
            raise AssertionError("%s does not end within %s s: %s\n%s%s" % (
                self.argv, timeout * SLOW, self.errors(), where, beside))
        for t in self._threads:
            t.join(5)
        return code

    def whereabouts(self):
        """All threads of the program, with the kernel function in which each waits."""
        lines = []
        for task in pathlib.Path("/proc/%d/task" % self.proc.pid).glob("*"):
            try:
                state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
                lines.append("%s: %s in %s: %s" % (
                    (task / "comm").read_text().strip(), state, (task / "wchan").read_text(),
                    " < ".join((task / "stack").read_text().split("\n")[:6])))
            except OSError:
                pass
        return "\n".join(lines)

    def signal(self, signo):
        self.proc.send_signal(signo)

    def group(self, signo):
        """Sends a signal to the program and all that it started."""
        # Once it has been waited for, a process with its id is another one, with a group of its own.
        if self.proc.returncode is not None and os.path.exists("/proc/%d" % self.proc.pid):
            return
        try:
            os.killpg(self.proc.pid, signo)
        except ProcessLookupError:
            pass

    def kill(self):
        self.group(signal.SIGKILL)
        self.proc.wait()


def split_options(args):
    """(options, all others); from "--" on, which begins a command, nothing is an option."""
    at = args.index("--") if "--" in args else len(args)
    options = [a for a in args[:at] if str(a).startswith("-")]
    return options, [a for a in args[:at] if a not in options] + list(args[at:])


class Bench:
    """Starts programs on hosts, and kills those that still run after the test."""

    def __init__(self, tmp):
        self.tmp = pathlib.Path(tmp)
        self.started = []

    def start(self, argv, **how):
        r = Running(argv, **how)
        r.others = self.started
        self.started.append(r)
        return r

    def run(self, argv, timeout=60, **how):
        r = self.start(argv, **how)
        r.code = r.wait(timeout)
        return r

    def close(self):
        for r in self.started:
            r.group(signal.SIGKILL)
            r.proc.wait()

    # -- streams -----------------------------------------------------------------------

    def receive(self, *args, key=KEY, port=0, transport=DEMAND, host=FAR, **how):
        """Starts rdrecv, and returns it with .port when it listens."""
        options, rest = split_options(args)
        env = dict(how.pop("env", None) or {}, RD_KEY=key)
        r = self.start([program("rdrecv"), transport, *PATIENCE, *OP, *options, str(port), "-", *rest],
                       host=host, env=env, **how)
        r.port = int(r.expect("listening on").rsplit(":", 1)[1].split()[0])
        return r

    def send(self, port, *args, key=KEY, transport=DEMAND, host=NEAR, to=None, **how):
        options, rest = split_options(args)
        env = dict(how.pop("env", None) or {}, RD_KEY=key)
        return self.start([program("rdsend"), transport, *PATIENCE, *OP, *options, to or FAR.address, str(port),
                           "-", *rest], host=host, env=env, **how)

    # -- copies ------------------------------------------------------------------------

    def copy(self, *args, transport=DEMAND, timeout=60, wait=True, rsh=None, **how):
        """Runs rdcp on the near host, with tests/rig/rsh instead of ssh. With wait=False it returns at once."""
        argv = [program("rdcp"), transport, *PATIENCE, *OP, "--rsh", str(rsh or RSH),
                "--rdcp-path", program("rdcp"), *args]
        if how.get("become") and TRANSPORT == "siw" and any(":" in str(a) for a in args):
            pytest.skip("only root can enter the other network namespace")
        how.setdefault("host", NEAR)
        how.setdefault("home", self.tmp)
        how.setdefault("cwd", self.tmp)
        return self.run(argv, timeout=timeout, **how) if wait else self.start(argv, **how)


def as_nobody(memlock=None):
    """Words that run a program as an unprivileged user, with this limit of locked memory."""
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all",
             "--bounding-set=-all"]
    return (["prlimit", "--memlock=%d:%d" % (memlock, memlock)] if memlock else []) + words


def open_up(directory):
    """Lets ordinary users write to directory."""
    for p in (directory, *list(directory.parents)[:3]):
        p.chmod(p.stat().st_mode | 0o755)
    directory.chmod(0o777)


def in_halves(size):
    """A shell command that prints the first half of the file "in", and the second one when there is a file "go"."""
    return "head -c %d in; until [ -e go ]; do sleep 0.1; done; tail -c +%d in" % (size // 2, size // 2 + 1)


def wait_until(what, timeout=60, step=0.01):
    end = time.monotonic() + timeout * SLOW
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(step)
    raise AssertionError("did not happen within %s s" % (timeout * SLOW))


def wait_until_gone(pids):
    def is_alive(pid):
        try:
            with open("/proc/%d/stat" % pid) as f:
                return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False
    wait_until(lambda: not any(is_alive(p) for p in pids))


def leftovers(directory):
    """The names of the temporaries and markers in directory."""
    return sorted(p.name for p in pathlib.Path(directory).iterdir()
                  if p.name.startswith(".sluice."))


@functools.lru_cache(maxsize=2)
def pattern(size, seed=1):
    """Bytes that differ from block to block. The tests of a file mostly move the same ones, and to make 32 MiB takes as
    long as to move them."""
    return random.Random(seed).randbytes(min(size, 1 << 20)) * (size // (1 << 20)) + \
        random.Random(seed + 1).randbytes(size % (1 << 20)) if size >= 1 << 20 else \
        random.Random(seed).randbytes(size)


def share(cases, few):
    """A few of the cases, chosen by a fixed seed; in long runs all."""
    return cases if COUNT > 1 or len(cases) <= few else random.Random(10).sample(cases, few)
